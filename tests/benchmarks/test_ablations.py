"""Ablations in a reduced form: on the C target, and where they need no device, on a few rows."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import calibrate, report, training
from benchmarks.__main__ import main
from benchmarks.ablations import incremental, levels, transformations
from benchmarks.ablations.exhaustive import Exhaustive
from benchmarks.ablations.model import Model
from benchmarks.ablations.smem import actual, right, share_of
from benchmarks.ablations.transformations import Worth
from benchmarks.ablations.tuning import Tuning
from benchmarks.agreement import agreement
from benchmarks.drawn import Drawn, by_row, drawn
from benchmarks.families.rows import TOLERANCE
from benchmarks.stale import as_shipped
from redalg.strategies.model.cost import H200
from tests.torch.test_aten import Called

MODEL, TUNING, EXHAUSTIVE, WORTH = Model(), Tuning(), Exhaustive(), Worth()


def run(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """An ablation's document, through its command line; its picture is made of the document."""
    assert main(["run", name, "--out", str(folder), *options]) == 0
    assert main(["report", str(folder / f"ablation-{name}.json"), "--out", str(folder)]) == 0
    assert (folder / f"ablation-{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
    return report.load(folder / f"ablation-{name}.json")


def test_the_papers_funnel(tmp_path: Path) -> None:
    """26 expressions and 109,051,904 candidates, then 5, then 3 (MCFuser, section III-C)."""
    content = run("funnel", tmp_path, "--families", "variance")
    stages = content["rows"][0]["stages"]
    assert [one["expressions"] for one in stages] == [26, 5, 3, 3, 3]
    assert stages[0]["candidates"] == 109_051_904
    assert all(line["plans"] > 0 for line in content["rows"][1:])


def test_estimates_of_shared_memory(tmp_path: Path) -> None:
    content = run("smem", tmp_path, "--families", "moe", "--sample", "4")
    assert len(content["plans"]) == 4 * 8
    assert share_of(content["plans"]) >= 0.95


def test_what_the_compiler_allots_outweighs_the_count() -> None:
    line = {"limit": 100, "estimated": 90, "counted": 95}
    assert (actual(line), right(line)) == (95, True)
    assert (actual({**line, "allotted": 101}), right({**line, "allotted": 101})) == (101, False)


def test_the_model_is_judged_by_what_was_drawn() -> None:
    content = training.read(training.UNIFORM, family="chains")[-1]
    content["rows"] = content["rows"][:2]
    found = MODEL.of([content, *training.read(training.TUNED)])
    (plans,) = found["families"].values()
    assert len(plans) == sum(1 for _ in drawn(content)) > 20
    assert found["measured on"] == [content["environment"]]


def test_levels_on_the_c_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "SMALL", (4, (64,)))
    (row,) = run("levels", tmp_path)["rows"]
    assert row["levels"].keys() == {"intra-thread", "intra-block", "whole row", "inter-block"}  # no warps here
    assert all(one["error"] <= 2 * TOLERANCE["float32"] for (one,) in row["levels"].values())
    assert all(one["median_us"] > 0 for (one,) in row["levels"].values())


def test_incremental_on_the_c_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "SEGMENTS_ON_C", (1, 2))
    (row,) = run("incremental", tmp_path)["rows"]
    assert {(one["segments"], one["way"]) for one in row["cuts"]} == {(a, b) for a in (1, 2) for b in incremental.WAYS}
    assert [one["blocks"] for one in row["cuts"]] == [one["segments"] for one in row["cuts"]]  # 4 rows are one tile
    assert all(one["best"]["median_us"] > 0 for one in row["cuts"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_kernels_become_fewer_with_each_transformation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: transformations.SMALL[name] for name in ("MMoE", "SE-240x14")}
    monkeypatch.setattr(transformations, "SMALL", few)
    rows = run("transformations", tmp_path)["rows"]
    kernels = {row["name"]: [each["kernels"] for each in row["levels"].values()] for row in rows}
    assert kernels["MMoE"] == sorted(kernels["MMoE"], reverse=True)
    assert kernels["MMoE"][0] > kernels["MMoE"][1] > kernels["MMoE"][2] > kernels["MMoE"][-1] == 1
    assert kernels["SE-240x14"][0] > kernels["SE-240x14"][-1] == 1
    for row in rows:
        moved = [each["bytes"] for each in row["levels"].values()]
        assert moved == sorted(moved, reverse=True)
        assert moved[0] > moved[-1] > 0
        assert [each["time_us"] for each in row["levels"].values()] == [None] * 5
    again = run("transformations", tmp_path, "--models", "MMoE")["rows"]
    assert [row["name"] for row in again] == ["MMoE", "SE-240x14"]
    with pytest.raises(SystemExit, match="no model BERT-384 for cpu; there are MMoE, SE-240x14"):
        main(["run", "transformations", "--models", "BERT-384"])
    text = str(WORTH.table({"rows": rows}))
    assert "| MMoE, float32 | µs | - | - | - | - | - |" in text
    assert "Times need a GPU" in WORTH.said({"card": "H100", "rows": rows})


@pytest.mark.filterwarnings("ignore")
def test_subprograms_are_counted_beside_groups() -> None:
    """Two of the three subprograms that MMoE would have alone save less than the groups in their place."""
    made, x = transformations.SMALL["MMoE"].make(), torch.ones(1, 100)
    with torch.no_grad():
        found = transformations.count_model(made, x, transformations.LEVELS["V2"])
    assert (found.kernels, found.groups, found.subprograms) == (6, 4, 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("function", "kernels", "moved"),
    [
        (lambda x: (x.reshape(6, 2), x[1:], *x.split(2)), 0, 0),
        (lambda x: x.t().contiguous(), 1, 2 * 48),
        (lambda x: torch.bmm(x[None], x.t()[None]), 1, 48 + 64),
        (lambda x: x.sum() * 2, 2, 48 + 4 + 4 + 4),
    ],
    ids=["views", "copy", "library", "statements"],
)
def test_statements_alone_are_kernels(function: Any, kernels: int, moved: int) -> None:
    """Views are none, unless PyTorch copies; a tensor is moved once by each."""
    found = transformations.count_model(Called(function), torch.ones(4, 3), transformations.LEVELS["V0"])
    assert (found.kernels, found.bytes, found.groups) == (kernels, moved, 0)


def test_tuning_reads_what_searches_wrote() -> None:
    tried = {64: (5.0, ""), 128: (4.0, ""), 256: (None, "wrong")}
    trials = [{"block_row": row, "measured_us": time, "failure": why} for row, (time, why) in tried.items()]
    row = {"name": "G1", "wall_s": 12.5, "rules": {"block_row": 64}, "trials": trials}
    content = TUNING.of([{"benchmark": "tune-chains", "taken": "tuned", "environment": {}, "rows": [row]}])
    assert list(TUNING.table(content).rows) == [("chains G1", "12.5", "2", "5.0", "4.0")]


def test_tuning_without_searches() -> None:
    assert TUNING.of(training.read(training.UNIFORM))["rows"] == []


def some_draws() -> list[Drawn]:
    """Of two rows of products, and of one of statistics."""
    contents = [training.read(training.UNIFORM, family=name)[-1] for name in ("chains", "variance")]
    return [one for content in contents for one in drawn({**content, "rows": content["rows"][::8]})]


def test_fitting_finds_constants_that_explain_the_times() -> None:
    """Times that a model of other constants gives: the fit starts from the H200's, and explains them."""
    pytest.importorskip("scipy", reason="scipy is of the extra 'dev'")
    truth = replace(H200, memory=0.5, launch_us=6.0, scalar=0.1)
    draws = [replace(one, time_us=one.predicted(truth).time_us) for one in some_draws()]
    before, after = agreement(by_row(draws)), agreement(by_row(draws, calibrate.fit(draws, evaluations=6)))
    assert before.typical > 1.3
    assert after.typical - 1 < (before.typical - 1) / 4  # the pull to the start leaves a little


@pytest.mark.slow
def test_refining_lessens_what_choices_lose() -> None:
    """From other constants than the H200's back to ones that cost no more than these; shares stay shares."""
    draws, start = some_draws(), replace(H200, launch_us=6.0, arithmetic=0.3)
    found = calibrate.refine(draws, start)
    assert calibrate.cost(draws, found) < 0.8 * calibrate.cost(draws, start)
    assert all(getattr(found, name) <= 1 for name in calibrate.SHARES)


def test_judging_leaves_the_constants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = training.read(training.UNIFORM, family="moe")[-1]
    report.save(tmp_path / "sweep-moe.json", content)
    assert main(["fit", "constants", str(tmp_path / "sweep-moe.json"), "--evaluations", "0"]) == 0
    said = capsys.readouterr().out
    assert f"exponential={H200.exponential:.3g}" in said
    count = sum(1 for _ in drawn(content))
    assert f"moe: {count} plans: correlation 0." in said


@pytest.mark.slow
def test_every_plan_and_a_search_on_the_c_target(tmp_path: Path) -> None:
    (line,) = run("exhaustive", tmp_path)["rows"]
    assert line["measured"] == line["listed"] == 1  # rules alone choose for C
    assert line["best"] == line["chosen"] == line["tuned"]
    assert line["tuned_us"] == line["best_us"] > 0
    assert line["wall_s"] > 0


def test_the_table_says_how_far_from_the_fastest_plans_are() -> None:
    """Of three rows: both near; the tuned plan far; the chosen plan not measured."""
    times = ((10.9, 10.4), (10.0, 10.6), (None, 10.0))
    rows = [{"family": "rows", "name": f"r{place}", "listed": 9, "measured": 8, "best_us": 10.0, "chosen_us": chosen,
             "tuned_us": tuned, "wall_s": 34.6} for place, (chosen, tuned) in enumerate(times)]  # fmt: skip
    content = EXHAUSTIVE.headed({"environment": {}, "rows": rows})
    assert EXHAUSTIVE.said(content).startswith("Of 3 rows")
    assert "within 10 % of the fastest on 2" in EXHAUSTIVE.said(content)
    assert "within 5 % on 2." in EXHAUSTIVE.said(content)
    lines = str(EXHAUSTIVE.table(content)).splitlines()
    assert [line.split("|")[4].strip() for line in lines[2:]] == ["1.09", "1.00", "-"]


def test_a_search_knows_nothing_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("/somewhere", None):
        monkeypatch.setenv("REDALG_CACHE_DIR", before) if before else monkeypatch.delenv("REDALG_CACHE_DIR")
        with as_shipped():
            assert not list(Path(os.environ["REDALG_CACHE_DIR"]).iterdir())
        assert os.environ.get("REDALG_CACHE_DIR") == before
