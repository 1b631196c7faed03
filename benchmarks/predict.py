"""Times on cards that are not here: `python -m benchmarks run predictions`.

For every row, the model's best plan on each card and the time that it predicts: no measurement. Constants were fitted
to an H200 (`redalg.strategies.model.cost`); other cards differ by their multiprocessors, rates and limits alone.
Beside them stands what RedFuser (ASPLOS '26) publishes of its own kernels: averages over its workloads' rows, against
peers that a prediction says nothing of, so the two are not to be compared row by row.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks import report
from benchmarks.ablations.chosen import first_built
from benchmarks.environment import device, environment
from benchmarks.families import FAMILIES
from benchmarks.family import Family, Row
from benchmarks.markdown import Table
from benchmarks.spaces import space_of
from redalg.errors import RedalgError
from redalg.strategies.device import CARDS, device_for
from redalg.strategies.model.cost import Prediction
from redalg.strategies.schedule import Schedule
from redalg.strategies.search.space import Space

Document = dict[str, Any]
NAME = "predictions"
ROWS_OF = "H200"
"""The card whose kind of rows is predicted: the published ones."""
PREDICTED = ("mha", "mla", "moe", "quant", "variance", "inertia")
PUBLISHED = {
    "mha": "1.09 × FlashAttention-2 on average; 2.8 × PyTorch Dynamo and 2.6 × TVM on LLaMA-65B (section 5.2.1)",
    "mla": "1.02 × FlashMLA, 2.4 × PyTorch Dynamo, 8.7 × TVM (section 5.2.1)",
    "moe": "1.7 × PyTorch Dynamo, 6.6 × TVM (section 5.2.2)",
    "quant": "3.4 × PyTorch Dynamo, 12.1 × TVM (section 5.2.2)",
    "variance": "PyTorch eager: 4.8 × on A10, 4.0 × on A100, 2.9 × on H800 (appendix A.6)",
    "inertia": "PyTorch eager: 6.4 × on A10, 5.5 × on A100, 6.2 × on H800 (appendix A.6)",
}
"""What RedFuser publishes of its own kernels: how many times as fast as each peer, averages."""


def best(space: Space) -> tuple[Schedule, Prediction]:
    """The plan that is predicted fastest, of those whose program a block of the card can hold."""
    pairs = [(space.predict(plan), plan) for plan in space.plans()]
    ranked = [plan for _, plan in sorted(pairs, key=lambda one: one[0].time_us)]
    (found,) = first_built(space, ranked, 1)
    return found.plan, space.predict(found.plan)


def predicted(family: Family, row: Row, card: str) -> dict[str, Any]:
    """A row on a card; why not, where the card cannot."""
    try:
        plan, prediction = best(space_of(family, row, card))
    except RedalgError as refusal:
        return {"refused": str(refusal)[:200]}
    return {"time_us": prediction.time_us, "bound": prediction.bound, "plan": str(plan)}


def lines(names: Sequence[str], cards: Sequence[str]) -> list[dict[str, Any]]:
    """Every row on every card."""
    rows = [(FAMILIES[name], row) for name in names for row in FAMILIES[name].rows(device(device_for(ROWS_OF).target))]
    told = track(rows, description="predicting", console=Console(stderr=True))
    return [{"family": family.name, "name": row.name, "cards": {card: predicted(family, row, card) for card in cards}}
            for family, row in told]  # fmt: skip


def caption(content: Document) -> str:
    """The text above the tables."""
    told = content["environment"]
    return ("These are predictions, not measurements: the model's best plan for each card, by "
            f"`redalg.strategies.model.cost` as fitted to an H200, commit {str(told['commit'])[:7]}. Microseconds, and "
            "what bounds the kernel. What RedFuser publishes of its own kernels on A10 and H800 stands above each "
            "table; it gives averages against peers, not times of rows.")  # fmt: skip


def tables(content: Document) -> Iterator[tuple[str, Table]]:
    """(heading, table) of each family."""
    cards = content["cards"]
    for name in dict.fromkeys(line["family"] for line in content["rows"]):
        rows = [(line["name"], *(cell(line["cards"][card]) for card in cards))
                for line in content["rows"] if line["family"] == name]  # fmt: skip
        published = content["published"].get(name)
        heading = f"### {name}, predicted" + (f"\n\nRedFuser, published: {published}." if published else "")
        yield heading, Table(("row", *(f"{card}, predicted µs" for card in cards)), rows)


def cell(prediction: dict[str, Any]) -> str:
    return f"{prediction['time_us']:.1f} ({prediction['bound']})" if "time_us" in prediction else "cannot"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cards", nargs="+", default=list(CARDS), choices=CARDS, metavar="CARD",
                        help=f"of {NAME}: some of {', '.join(CARDS)}")  # fmt: skip


def run(options: argparse.Namespace) -> bool:
    """Predict, write and show; True, for a card that cannot run a row is a result."""
    rows = lines(options.families or PREDICTED, options.cards)
    found = {"cards": options.cards, "published": PUBLISHED, "rows": rows}
    content = {"benchmark": NAME, "environment": environment(), **found}
    if options.out:
        report.save(options.out / f"{NAME}.json", content)
    show(content)
    return True


def show(content: Document) -> None:
    """Print the tables."""
    for heading, table in tables(content):
        print(table.shown(heading.removeprefix("### ")))
