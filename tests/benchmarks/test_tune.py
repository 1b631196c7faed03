"""`python -m benchmarks fit tune` and `fit pack`: what they pack is what calls look up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import tune
from benchmarks.__main__ import main
from benchmarks.environment import chip_of
from benchmarks.families import FAMILIES
from benchmarks.report import load, save
from benchmarks.spaces import space_of
from redalg.runtime.compile import cache
from redalg.runtime.known import tuned
from redalg.runtime.tune import tuner
from redalg.strategies.schedule import TUNED, choices_of
from redalg.strategies.search.search import Limits
from redalg.version import VERSION
from tests.house.source import ROOT, sources

ROWS = [(name, row.name) for name, family in FAMILIES.items() for row in family.rows(torch.device("cpu"))]


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setattr(tuned, "PACKS", tmp_path / "packs")
    monkeypatch.setattr(tuned, "cache_file", lambda name: tmp_path / "tuned" / tuned.file_name(name))


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_call_looks_up_what_is_packed_of_a_row(name: str, row: str) -> None:
    """The key made from a row's sizes and dtypes is the one made from tensors."""
    family = FAMILIES[name]
    one = next(one for one in family.rows(torch.device("cpu")) if one.name == row)
    fused = family.fused(one)
    inputs = family.inputs(one, torch.Generator().manual_seed(0))
    task = tuner.task_of(fused.passes, inputs, {}, tuner.Tuning())
    space = space_of(family, one, "c")
    assert tuned.problem_key(fused.form, space.problem, space.device) == tuned.problem_key(
        fused.form, task.space.problem, task.space.device
    )
    assert dict(space.problem.sizes) == dict(task.space.problem.sizes)


def sweep(where: str = "NVIDIA H200", target: str = "sm_90a") -> dict[str, Any]:
    """A sweep of a row of which two plans were measured, and one failed."""
    family = FAMILIES["variance"]
    row = next(one for one in family.rows(torch.device("cuda")) if one.name == "V4")
    plans = list(space_of(family, row, chip_of(where, target)).plans())[:3]
    lines = [{**choices_of(plan), "median_us": time} for plan, time in zip(plans, (9.0, 7.0, 1.0), strict=True)]
    lines[2]["failure"] = "wrong: error 1"
    versions = {"redalg": VERSION, "tilelang": tuned.tilelang_version()}
    rows = [{"name": "V4", "sizes": dict(row.sizes), "plans": lines}, {"name": "V99", "sizes": {}, "plans": lines},
            {"name": "V5", "sizes": {}, "plans": []}]  # fmt: skip
    environment = {"device": where, "target": target, "versions": versions}
    return {"benchmark": "sweep-variance", "environment": environment, "rows": rows}


def test_the_winners_of_a_sweep_are_packed_and_taken(tmp_path: Path) -> None:
    content = sweep()
    save(tmp_path / "sweep.json", content)
    assert main(["fit", "pack", str(tmp_path / "sweep.json")]) == 0
    family = FAMILIES["variance"]
    row = next(one for one in family.rows(torch.device("cuda")) if one.name == "V4")
    plan = family.fused(row).lower("H200", row.sizes, row.dtypes).plan
    assert (plan.origin, choices_of(plan)) == (
        "pack",
        {name: content["rows"][0]["plans"][1][name] for name in choices_of(plan)},
    )
    assert family.fused(row).lower("A100", row.sizes, row.dtypes).plan.origin not in TUNED


def test_a_pack_names_the_versions_that_were_measured(tmp_path: Path) -> None:
    content = sweep()
    content["environment"]["versions"] = {"redalg": "0.0.1", "planner": 7, "tilelang": None}
    path = tmp_path / "own.json"
    assert tune.packed([content], path) == [path]
    assert [(one.key.planner, one.key.tilelang) for one in tuned.read_entries(path).values()] == [(7, "")]


def test_the_packs_that_ship_are_made_of_the_training_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python -m benchmarks fit pack` would change nothing."""
    monkeypatch.setattr(tuned, "PACKS", tmp_path)
    assert main(["fit", "pack"]) == 0
    packs = {place.name: place.read_bytes() for place in (ROOT / "redalg" / "tuned").glob("*.json")}
    assert {place.name: place.read_bytes() for place in tmp_path.iterdir()} == packs
    assert packs.keys() == {"H100.json", "H200.json"}


def test_a_row_is_tuned_written_and_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tuner, "FEW", Limits(population=2, batch=2, patience=1))
    monkeypatch.setattr(tune, "device", lambda chip="": torch.device("cpu"))
    pack = tmp_path / "pack.json"
    options = ["--rows", "C1", "--budget-s", "100", "--out", str(tmp_path), "--pack", str(pack)]
    assert main(["fit", "tune", "variance", *options]) == 0
    content = load(tmp_path / "tune-variance.json")
    (line,) = content["rows"]
    assert line["trials"][0]["measured_us"] > 0
    assert line["wall_s"] < 100
    assert {"device", "versions", "commit"} <= content["environment"].keys()
    (entry,) = tuned.read_entries(pack).values()
    assert entry.measured_us == min(one["measured_us"] for one in line["trials"])
    assert entry.key.card == "c"


@pytest.mark.parametrize("arguments", [[], ["variance"], ["nothing", "--out", "x"]])
def test_what_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "tune", *arguments])


def test_every_variable_is_documented() -> None:
    used = {
        name for one in sources("redalg", "benchmarks") for name in re.findall(r"\bREDALG_[A-Z_]+[A-Z]\b", one.text)
    }
    assert {cache.VARIABLE, tuned.SWITCH} <= used
    assert used <= set(re.findall(r"`(REDALG_[A-Z_]+)`", (ROOT / "docs" / "TUNING.md").read_text(encoding="utf-8")))
