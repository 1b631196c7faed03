"""README's regions, docs/BENCHMARKS.md and its pictures, and docs/PUBLISHED.md, from results/ and the training data.

A region of README stands between `<!-- benchmarks:NAME -->` and `<!-- /benchmarks -->`: `summary`, or a family's name.
Nothing else of these documents' figures is typed by hand; a test makes them again and compares.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import models, report, training_step
from benchmarks.ablations import ABLATIONS
from benchmarks.ablations.ablation import Derived
from benchmarks.ablations.transformations import Worth
from benchmarks.compete import OWN
from benchmarks.families import FAMILIES
from benchmarks.markdown import Table
from benchmarks.papers.page import page
from benchmarks.plot import plot
from benchmarks.plots.bars import speedups
from benchmarks.predict import NAME as PREDICTIONS
from benchmarks.predict import caption, tables
from benchmarks.traffic import TABLES

Document = dict[str, Any]
REGION = re.compile(r"<!-- benchmarks:(\w+) -->\n.*?<!-- /benchmarks -->", re.DOTALL)
README, FULL, PICTURES = Path("README.md"), Path("docs/BENCHMARKS.md"), Path("docs/pictures")
PUBLISHED = Path("docs/PUBLISHED.md")
HEAD = """# Benchmarks

Made by `python -m benchmarks report` from the JSON in [benchmarks/results](../benchmarks/results), which holds every
sample, and from the plans that the cost model was fitted to ([benchmarks/data](../benchmarks/data)). Times are medians
of device time, of CUDA graphs whose calls find no input in the cache; each result was checked before it was timed. A
ratio is redalg's time over the peer's: below 1, redalg is faster. Rows marked † were measured with a kernel that is
emitted differently now.
"""


@dataclass(frozen=True)
class Results:
    """The documents of a folder: families in their order, with stale rows; ablations, predictions, the step, models."""

    families: Mapping[str, Document]
    ablations: Mapping[str, Document]
    predictions: Document | None
    stale: Mapping[str, frozenset[str]]
    step: Document | None = None
    models: Document | None = None


def read(folder: Path, stale: Callable[[Document], list[str]]) -> Results:
    """Every document that tables and pictures are made from; what the training data tell is made now."""
    found = {path.stem: report.load(path) for path in sorted(folder.glob("*.json"))}
    found |= {content["benchmark"]: content
              for content in (one.document() for one in ABLATIONS.values() if isinstance(one, Derived))}  # fmt: skip
    families = {name: found[name] for name in FAMILIES if name in found}
    ablations = {name: found[f"ablation-{name}"] for name in ABLATIONS if f"ablation-{name}" in found}
    old = {name: frozenset(stale(content)) for name, content in families.items()}
    return Results(
        families, ablations, found.get(PREDICTIONS), old, found.get(training_step.NAME), found.get(models.NAME)
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def typical(ratios: Mapping[str, float]) -> str:
    """Geometric mean and range.

    >>> typical({"A": 0.5, "B": 2.0})
    '1.00 (0.50 to 2.00)'
    """
    values = list(ratios.values())
    return f"{exp(fmean(map(log, values))):.2f} ({min(values):.2f} to {max(values):.2f})"


def summary(results: Results) -> str:
    """One line for each family."""
    lines: list[tuple[str, ...]] = []
    for name, content in results.families.items():
        old = f" ({len(results.stale[name])} †)" if results.stale[name] else ""
        beside = [f"{peer} {typical({row: 1 / value for row, value in by_row.items()})}"
                  for peer, by_row in speedups(content).items() if not peer.startswith(f"{OWN},")]  # fmt: skip
        lines.append((f"[{name}]({FULL}#{anchor(name)})", ", ".join(beside), f"{len(content['rows'])}{old}"))
    return str(Table(("family", "redalg's time over each peer's, mean (range)", "rows"), lines))


def anchor(name: str) -> str:
    """A family's heading, as GitHub links to it."""
    return heading(name).lower().replace(" ", "-").translate({ord(one): None for one in ":,."})


def heading(name: str) -> str:
    return f"{name}: {FAMILIES[name].title}"


def where(content: Document) -> str:
    """Device, versions and commit; of what was measured, where a document is made of others."""
    return places(environments(content))


def environments(content: Document) -> list[Document]:
    """What is told of the places that a document was measured at."""
    return list(content.get("measured on") or [content["environment"]])


def places(told: Iterable[Document]) -> str:
    """Devices and versions, each once, with its commits.

    >>> versions = {"torch": "2.11", "tilelang": "0.1.15"}
    >>> places({"device": "H200", "versions": versions, "commit": one} for one in ("aaaaaaaa", "bbbbbbbb", "aaaaaaaa"))
    'H200, torch 2.11, TileLang 0.1.15, commits aaaaaaa, bbbbbbb'
    """
    commits: dict[str, dict[str, None]] = {}
    for one in told:
        commits.setdefault(machine(one), {})[str(one["commit"])[:7]] = None
    return "; ".join(
        f"{name}, commit{'s' if len(found) > 1 else ''} {', '.join(found)}" for name, found in commits.items()
    )


def elsewhere(content: Document) -> str:
    """The rows that were measured on another device than the document's, by their devices."""
    own, found = content["environment"]["device"], dict[str, list[str]]()
    for row in content["rows"]:
        if row.get("device", own) != own:
            found.setdefault(row["device"], []).append(row["name"])
    return "".join(f" On {device}: {', '.join(names)}." for device, names in found.items())


def machine(told: Document) -> str:
    """Device and versions."""
    versions = told["versions"]
    tilelang = f", TileLang {versions['tilelang']}" if versions["tilelang"] else ""
    return f"{told['device']}, torch {versions['torch']}{tilelang}"


def everywhere(results: Results) -> str:
    """The places that the families' documents were measured at."""
    return places(told for content in results.families.values() for told in environments(content))


def full(content: Document, stale: frozenset[str]) -> Table:
    """Every row of a family: sizes, redalg's time and rates, and each peer's time with the ratio."""
    names = list(dict.fromkeys(name for line in content["rows"] for name in line["contestants"]))
    rows = []
    for line in content["rows"]:
        name, *others = report.cells(line, names)
        told = (*report.memory_cells(content, line, names), *report.exploration_cells(content, line, names))
        rows.append((name + (" †" if name in stale else ""), *others[:-1], *told))
    peers = [f"{name}, ms (ratio)" for name in names[1:]]
    told = (*report.memory_header(content), *report.exploration_header(content))
    return Table(("row", "sizes", f"{OWN}, ms", "TFLOP/s", "TB/s", *peers, "errors", *told), rows)


# ---- documents -------------------------------------------------------------------------------------------------------


def regions(text: str, results: Results) -> str:
    """A document with its regions made anew."""

    def anew(found: re.Match[str]) -> str:
        return f"<!-- benchmarks:{found[1]} -->\n{region(found[1], results)}\n<!-- /benchmarks -->"

    return REGION.sub(anew, text)


def region(name: str, results: Results) -> str:
    """The text of a region."""
    if name == "summary":
        return f"{everywhere(results)}.\n\n{summary(results)}"
    return str(full(results.families[name], results.stale[name]))


def benchmarks(results: Results) -> str:
    """docs/BENCHMARKS.md."""
    return "\n".join([HEAD, *sections(results)]).rstrip() + "\n"


def published(results: Results) -> str:
    """docs/PUBLISHED.md."""
    return page(results.models, results.ablations.get(Worth.name))


def sections(results: Results) -> Iterator[str]:
    """Its parts: families, the training step, models, ablations, predictions."""
    for name, content in results.families.items():
        yield f"## {heading(name)}\n\n{where(content)}.\n\n{full(content, results.stale[name])}\n"
        yield from (f"{line}\n" for line in map(code, report.failures(content)))
        yield f"{shown(f'{name}-speedup')}\n{shown(f'{name}-roofline')}\n"
    if results.step is not None:
        yield f"## {training_step.TITLE}\n\n{where(results.step)}.\n\n{full(results.step, frozenset())}\n"
        yield from (f"{line}\n" for line in map(code, report.failures(results.step)))
        yield f"{training_step.first_losses(results.step)}\n"
    if results.models is not None:
        told = f"{where(results.models)}.{elsewhere(results.models)}"
        yield f"## {models.TITLE}\n\n{told}\n\n{full(results.models, frozenset())}\n"
        yield from (f"{line}\n" for line in map(code, report.failures(results.models)))
        beside = ((title, table_of(results.models)) for title, table_of in TABLES.items())
        yield from (f"{title}:\n\n{table}\n" for title, table in beside if table is not None)
    for name, content in results.ablations.items():
        ablation = ABLATIONS[name]
        yield f"## {ablation.title}\n\n{where(content)}.\n\n{ablation.table(content)}\n"
        yield from [f"{said}\n" for said in [ablation.said(content)] if said]
        yield f"{shown(content['benchmark'])}\n"
    if results.predictions is not None:
        yield f"## Predictions for other cards\n\n{caption(results.predictions)}\n"
        yield from (f"{title}\n\n{table}\n" for title, table in tables(results.predictions))


def code(line: str) -> str:
    return f"`{line.strip()}`"


def shown(picture: str) -> str:
    """A picture, as Markdown."""
    return f"![{picture}](pictures/{picture}.svg)"


def write(root: Path, results: Results) -> None:
    """Write the documents and the pictures, and remove pictures that nothing shows any more."""
    readme = root / README
    readme.write_text(regions(readme.read_text(encoding="utf-8"), results), encoding="utf-8")
    documents = [*results.families.values(), *results.ablations.values()]
    pictures = {path for content in documents for path in plot(content, root / PICTURES)}
    for path in set((root / PICTURES).glob("*.svg")) - pictures:
        path.unlink()
    (root / FULL).write_text(benchmarks(results), encoding="utf-8")
    (root / PUBLISHED).write_text(published(results), encoding="utf-8")
