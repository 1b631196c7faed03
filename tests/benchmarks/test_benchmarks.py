"""Benchmarks without a GPU: families run, documents are what the JSON says, pictures are the same every time."""

import json
import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import arrays, documents, fitted, predict, report, training
from benchmarks.__main__ import main
from benchmarks.ablations import ABLATIONS
from benchmarks.ablations.ablation import Derived, Measured
from benchmarks.agreement import agreement, lost
from benchmarks.calibrate import STEP, cost
from benchmarks.drawn import drawn
from benchmarks.families import FAMILIES
from benchmarks.plot import picture_names, pictures, plot
from benchmarks.plots.bars import speedups
from benchmarks.plots.figure import COLOURS
from benchmarks.plots.roofline import card, reached
from benchmarks.plots.scatter import thinned
from benchmarks.stale import as_shipped, stale_rows
from redalg.runtime.known.tuned import SWITCH
from redalg.strategies.device import CARDS
from redalg.strategies.model.cost import H200
from redalg.strategies.plan import CHOICES
from redalg.strategies.schedule import choices_of
from tests.house.source import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = ("mha", "mla", "moe", "quant", "variance", "inertia", "rows", "chains", "attention_small")


def timed(**times_us: float) -> dict[str, Any]:
    """A row's contestants."""
    return {name.replace("_", "."): {"error": 0.0, "failure": "", "median_us": time, "samples_us": [time]}
            for name, time in times_us.items()}  # fmt: skip


def document(**times_us: float) -> dict[str, Any]:
    """A family's document of one row of 4 GFLOP on 1 MB."""
    row = {"name": "A", "sizes": {"b": 1}, "dtypes": {"x": "float16"}, "flops": 4e9, "bytes": 1e6}
    told = {"device": "NVIDIA H200", "target": "sm_90a"}
    return {"benchmark": "mha", "environment": told, "rows": [{**row, "contestants": timed(**times_us)}]}


# ---- families --------------------------------------------------------------------------------------------------------


def test_the_published_families_are_there() -> None:
    assert set(PUBLISHED) <= FAMILIES.keys()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_contestant_has_a_colour(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    family, where = FAMILIES[name], torch.device(kind)
    assert {peer for row in family.rows(where) for peer in family.peers(row, where)} <= COLOURS.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_rows_and_peers_without_a_gpu(name: str) -> None:
    where = torch.device("cpu")
    rows = FAMILIES[name].rows(where)
    assert all(FAMILIES[name].peers(row, where) for row in rows)
    assert max(row.in_bytes for row in rows) <= 2**26


def test_a_family_runs_and_is_drawn(tmp_path: Path) -> None:
    assert main(["run", "chains", "--rows", "C1", "--out", str(tmp_path)]) == 0
    content = report.load(tmp_path / "chains.json")
    assert speedups(content).keys() == {"eager"}
    assert main(["report", str(tmp_path / "chains.json"), "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"chains-speedup", "chains-roofline"}


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_is_the_same_every_time(tmp_path: Path) -> None:
    content = report.load(RESULTS / "quant.json")
    first, again = plot(content, tmp_path / "first"), plot(content, tmp_path / "again")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_picture_tells_every_contestant(tmp_path: Path) -> None:
    """Matplotlib hides labels that start with an underscore."""
    texts = [path.read_text(encoding="utf-8") for path in plot(report.load(RESULTS / "quant.json"), tmp_path)]
    assert all("scaled_mm alone" in text for text in texts)


def test_speedups_are_ratios_of_medians() -> None:
    assert speedups(document(redalg=2.0, eager=6.0, cuDNN=1.0)) == {"eager": {"A": 3.0}, "cuDNN": {"A": 0.5}}


def test_a_contestant_that_failed_has_no_bar() -> None:
    content = document(redalg=2.0, eager=6.0)
    content["rows"][0]["contestants"]["cuDNN"] = {"error": None, "failure": "no kernel"}
    assert speedups(content).keys() == {"eager"}


def test_a_roofline_has_the_cards_ceilings() -> None:
    content = document(redalg=10.0)
    assert reached(content, counted=True) == {"redalg": [(4000.0, 400.0)]}
    spec = card(content)
    assert spec is not None
    assert (spec.memory_gb_s, spec.product_tflops) == (4800, 989)


def test_a_roofline_of_an_unknown_device_has_no_ceiling() -> None:
    content = document(redalg=10.0)
    content["environment"] = {"device": "CPU x86_64", "target": "c"}
    assert card(content) is None
    assert len(list(pictures(content))) == 2


# ---- documents -------------------------------------------------------------------------------------------------------


def test_documents_are_what_the_results_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m benchmarks report` would change no text, and draw what is there."""
    drawn: list[Path] = []

    def plot(content: dict[str, Any], folder: Path) -> list[Path]:
        paths = [folder / f"{name}.svg" for name in picture_names(content)]
        drawn.extend(paths)
        return paths

    monkeypatch.setenv(SWITCH, "pack")
    monkeypatch.setattr(documents, "plot", plot)
    results = documents.read(RESULTS, stale_rows)
    for path in (documents.README, documents.FULL, documents.PUBLISHED):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    documents.write(tmp_path, results)
    for path in (documents.README, documents.FULL, documents.PUBLISHED):
        assert (tmp_path / path).read_text(encoding="utf-8") == (ROOT / path).read_text(encoding="utf-8")
    assert {path.name for path in drawn} == {path.name for path in (ROOT / documents.PICTURES).glob("*.svg")}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", [*FAMILIES, *(f"ablation-{name}" for name in ABLATIONS)])
def test_pictures_are_what_the_results_say(name: str, tmp_path: Path) -> None:
    ablation = ABLATIONS.get(name.removeprefix("ablation-"))
    content = ablation.document() if isinstance(ablation, Derived) else report.load(RESULTS / f"{name}.json")
    for path in plot(content, tmp_path):
        assert path.read_bytes() == (ROOT / documents.PICTURES / path.name).read_bytes()


def test_what_stands_around_a_region_is_kept() -> None:
    told = {"device": "D", "versions": {"torch": "1", "tilelang": "2"}, "commit": "abcdefghij", "target": "c"}
    content = {**document(redalg=1.0, eager=2.0), "environment": told}
    results = documents.Results({"mha": content}, {}, None, {"mha": frozenset({"A"})})
    made = documents.regions("before\n<!-- benchmarks:mha -->\nold\n<!-- /benchmarks -->\nafter", results)
    assert made.startswith("before\n<!-- benchmarks:mha -->\n| row |")
    assert made.endswith("<!-- /benchmarks -->\nafter")
    assert "old" not in made
    assert "| A † |" in made
    assert documents.regions(made, results) == made


def test_the_summary_counts_stale_rows() -> None:
    told = {"device": "D", "versions": {"torch": "1", "tilelang": "2"}, "commit": "abcdefghij", "target": "c"}
    content = {**document(redalg=1.0, eager=2.0), "environment": told}
    made = documents.summary(documents.Results({"mha": content}, {}, None, {"mha": frozenset({"A"})}))
    assert "eager 0.50 (0.50 to 0.50)" in made
    assert made.endswith("| 1 (1 †) |")


# ---- the model -------------------------------------------------------------------------------------------------------


def test_agreement_of_what_is_proportional() -> None:
    found = agreement({"A": [(1.0, 2.0), (3.0, 6.0)], "B": [(9.0, 18.0)]})
    assert (found.count, found.first, found.top) == (3, {"A": 1.0, "B": 1.0}, {"A": 1.0, "B": 1.0})
    assert found.correlation == pytest.approx(1)
    assert found.correlation_of_logs == pytest.approx(1)
    assert found.typical == pytest.approx(2)


def test_what_a_choice_loses() -> None:
    row = [(10.0, 1.0), (5.0, 2.0), (4.0, 3.0)]
    assert [lost(row, count) for count in (1, 2, 3)] == [2.5, 1.25, 1.0]


def test_draws_are_the_plans_that_were_measured() -> None:
    content = training.read(training.UNIFORM, family="mla")[-1]
    content["rows"] = content["rows"][:2]
    recorded = [{name: one[name] for name in CHOICES if name in one and name != "block_merged"}
                for row in content["rows"] for one in row["plans"] if "median_us" in one]  # fmt: skip
    found = [{name: choices_of(one.plan)[name] for name in line}
             for line, one in zip(recorded, drawn(content), strict=True)]  # fmt: skip
    assert found == recorded


def test_a_sweep_is_drawn_with_its_correlation(tmp_path: Path) -> None:
    content = training.read(training.UNIFORM, family="chains")[-1]
    content["rows"] = content["rows"][:2]
    (path,) = plot(content, tmp_path)
    assert "correlation 0." in path.read_text(encoding="utf-8")


# ---- the training data -----------------------------------------------------------------------------------------------


def test_the_reports_hash_is_that_of_the_training_data() -> None:
    said = report.load(fitted.REPORT)["data"]
    assert said["sha256"] == training.file_sha256()
    assert said["plans"] == training.counted(training.read())


def test_the_report_is_what_the_constants_predict() -> None:
    """`python -m benchmarks fit record` would change nothing: hash, constants and how well they predict."""
    assert report.load(fitted.REPORT) == json.loads(json.dumps(fitted.document(fitted.draws())))


def test_training_data_are_compressed_to_the_same_bytes(tmp_path: Path) -> None:
    documents = training.read(training.TUNED)
    for name in ("first", "again"):
        training.write(documents, tmp_path / name)
    assert training.read(path=tmp_path / "first") == documents
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()


def test_what_is_drawn_is_added_to_the_training_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = training.read(training.BEST, family="uses")[0]
    monkeypatch.setattr(training, "read", partial(training.read, path=tmp_path / "data.json.xz"))
    monkeypatch.setattr(training, "write", partial(training.write, path=tmp_path / "data.json.xz"))
    monkeypatch.setattr(fitted, "REPORT", tmp_path / "report.json")
    training.write([])
    for name, taken in (("a", "best"), ("b", None)):
        report.save(tmp_path / f"{name}.json", {**content, "taken": taken})
        assert main(["fit", "record", str(tmp_path / f"{name}.json")]) == 0
    assert [one["taken"] for one in training.read()] == [training.BEST, training.UNIFORM]
    count = sum(len(line["plans"]) for line in content["rows"])
    assert report.load(tmp_path / "report.json")["data"]["plans"] == {"uniform": count, "best": count, "tuned": 0}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [STEP, 1 / STEP])
def test_no_step_of_a_constant_gains_much(factor: float) -> None:
    """The fit is at its end: of all constants none, moved by the fit's first step, lessens the cost by a hundredth."""
    draws = fitted.draws()
    known = cost(draws, H200)
    others = [replace(H200, **{name: factor * value}) for name, value in asdict(H200).items() if name != "exponential"]
    assert min(cost(draws, other) for other in others) > 0.99 * known


def test_the_results_are_small_and_of_one_generation() -> None:
    """A file a name: what is measured again replaces what was, and what is made of it stands elsewhere or nowhere."""
    ablations = {f"ablation-{name}" for name, found in ABLATIONS.items() if isinstance(found, Measured)}
    found = {path.stem: path.stat().st_size for path in RESULTS.glob("*.json")}
    others = {"accuracy", "arrays", "calls", "cold", "engines", "models", "parquet", "predictions", "ranks", "sanitize",
              "step", "wide"}  # fmt: skip
    assert found.keys() == {*FAMILIES, *ablations, *others}
    assert sum(found.values()) < 2_000_000  # 700 kB of them the errors of all families
    assert training.FILE.stat().st_size < 500_000


def test_a_cloud_has_a_point_a_cell() -> None:
    assert thinned([(1.0, 1.0)] * 9 + [(1.0, 2.0)]) == [(1.0, 1.0), (1.0, 2.0)]


# ---- the commands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["", "run", "step", "models", "ranks", "judge", "fit", "fit draw", "fit tune", "report"]
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), "--help"])
    assert stopped.value.code == 0
    assert f"python -m benchmarks {command}".strip() in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["readme"], ["run"], ["run", "nothing"], ["run", "mha", "--rows", "H99"],
                                       ["judge", "nothing"], ["fit", "draw", "mha"]])  # fmt: skip
def test_what_is_not_known_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code


# ---- predictions -----------------------------------------------------------------------------------------------------


def test_a_card_of_less_bandwidth_is_predicted_slower() -> None:
    family = FAMILIES["variance"]
    row = family.rows(torch.device("cuda"))[-1]
    found = [predict.predicted(family, row, name) for name in ("H800", "A10")]
    fast, slow = (one["time_us"] - H200.launch_us for one in found)
    assert [one["bound"] for one in found] == ["memory", "memory"]
    assert slow / fast == pytest.approx(CARDS["H800"].memory_gb_s / CARDS["A10"].memory_gb_s, rel=0.1)


def test_predictions_are_written_and_labelled(tmp_path: Path) -> None:
    assert main(["run", "predictions", "--families", "variance", "--cards", "H800", "A10", "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))
    ((heading, table),) = predict.tables(content)
    assert "predictions, not measurements" in predict.caption(content)
    assert "RedFuser, published: PyTorch eager: 4.8 × on A10" in heading
    assert len(table.rows) == 8


def test_stale_rows_do_not_depend_on_what_is_tuned_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("REDALG_TUNED", "off")
    with as_shipped():
        assert os.environ["REDALG_CACHE_DIR"] != str(tmp_path)
        assert "REDALG_TUNED" not in os.environ
    assert (os.environ["REDALG_CACHE_DIR"], os.environ["REDALG_TUNED"]) == (str(tmp_path), "off")


# ---- array backends --------------------------------------------------------------------------------------------------


def test_array_backends_are_measured_beside_another_commit() -> None:
    case = arrays.Case("variance", {"b": 2, "n": 30})
    rows = [arrays.measured(case, backend) for backend in arrays.BACKENDS]
    assert all(row["ms"] > 0 and row["peak_bytes"] > 0 for row in rows)
    made = arrays.table({"rows": rows, "beside": {"rows": rows}})
    assert [line[-2:] for line in made.rows] == [["1.00", "1.00"]] * 2
