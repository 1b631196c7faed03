"""Benchmarks of backwards: small ones run here, and what is compiled ahead is what runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import compete, report
from benchmarks.__main__ import main
from benchmarks.ahead import compile_all
from benchmarks.commands.run import with_kept_rows
from benchmarks.compete import OWN
from benchmarks.families import FAMILIES, attention, backwards
from benchmarks.family import Problem, Row
from benchmarks.report import save
from benchmarks.timing import Timing
from redalg.gradient.stage import JointStage, Stage, own_sizes

CPU = torch.device("cpu")
FAMILY = FAMILIES["backwards"]
ROWS = {row.name: row for row in FAMILY.rows(CPU)}


def inputs_of(row: Row) -> dict[str, torch.Tensor]:
    return FAMILY.inputs(row, torch.Generator().manual_seed(0))


def contestants(row: Row) -> dict[str, Any]:
    return {OWN: FAMILY.fused(row), **FAMILY.peers(row, CPU)}


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_those_of_the_definition(name: str) -> None:
    """Each time that the prepared call runs: the graph is kept."""
    row, tensors = ROWS[name], inputs_of(ROWS[name])
    for contestant in contestants(row).values():
        call = FAMILY.prepare(row, contestant, tensors)
        assert max(FAMILY.error(row, call(), tensors) for _ in range(2)) <= FAMILY.tolerance(row)


@pytest.mark.parametrize("name", ["sinks-2x2x70x70x32", "layer_norm-16x500", "linear_cross_entropy-64x300x32-float32"])
def test_a_wrong_gradient_is_not_timed(name: str) -> None:
    row, tensors = ROWS[name], inputs_of(ROWS[name])
    right = FAMILY.prepare(row, FAMILY.fused(row), tensors)()
    for place in range(len(right)):
        wrong = [one * (1.1 if place == number else 1) for number, one in enumerate(right)]
        assert FAMILY.error(row, wrong, tensors) > FAMILY.tolerance(row)
    wrong_call = compete.compete(FAMILY, row, lambda **one: 1.1 * FAMILY.fused(row)(**one), [tensors], CPU)
    assert wrong_call.timing is None
    assert "wrong" in wrong_call.failure


@pytest.mark.parametrize("name", ROWS)
def test_what_is_compiled_ahead_is_what_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every stage: the function, its sizes, and the dtypes and shapes of its tensors."""
    row, run = ROWS[name], list[Any]()

    def noting(found: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Stage | JointStage, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> Any:
            if self.fused is not None and self.serves(sizes):
                read = {name: one for name, one in tensors.items() if name in self.inputs}
                dtypes = {name: str(one.dtype).removeprefix("torch.") for name, one in read.items()}
                shapes = {name: tuple(one.shape) for name, one in read.items()}
                run.append(Problem(self.fused, own_sizes(self.fused, sizes, self.renamed), dtypes, shapes))
            return found(self, tensors, sizes)

        return noted

    monkeypatch.setattr(Stage, "run", noting(Stage.run))
    monkeypatch.setattr(JointStage, "tensors", noting(JointStage.tensors))
    for dtype in ("float32", "bfloat16"):
        run.clear()
        dtypes = {name: dtype if "float" in one else one for name, one in row.dtypes.items()}
        own = replace(row, dtypes=dtypes)
        tensors = {name: one.to(getattr(torch, dtypes[name])) for name, one in inputs_of(row).items()}
        FAMILY.prepare(own, FAMILY.fused(own), tensors)()
        assert [*FAMILY.problems(own)][1:] == run


@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
def test_flex_attention_is_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, scores and sinks as FlexAttention takes them; it has no backward on the CPU."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    for row in (row for row in ROWS.values() if row.use.kind == "attention"):
        tensors = inputs_of(row)
        wide = {name: one.double() for name, one in tensors.items()}
        wanted = attention.unfused(row.use.forward.use, **wide)[0]
        assert torch.allclose(backwards.flex(row.use.forward)(**tensors).double(), wanted, atol=1e-5)


def test_every_published_row_can_be_compiled() -> None:
    """Shapes, dtypes and sizes of all stages of the rows for a GPU are known without one."""
    for row in FAMILY.rows(torch.device("cuda")):
        forward, *stages = FAMILY.problems(row)
        assert set(row.shapes) == set(forward.shapes)
        for problem in stages:
            assert problem.dtypes.keys() == problem.shapes.keys() == set(problem.function.cascade.inputs())


# ---- the runner ------------------------------------------------------------------------------------------------------


def timing(method: str) -> Timing:
    return Timing(method, (1.0,), 1.0, 1, 1)


def test_contestants_are_timed_by_one_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the graph of one fails, all are timed by events; of a family that asks for nothing, each as it can be."""
    methods = iter(("cuda graph", "cuda events"))

    def measured(*_: Any, captured: bool) -> Timing:
        return timing(next(methods) if captured else "cuda events")

    monkeypatch.setattr(compete, "measure", measured)
    row = ROWS["softmax-16x500"]
    found = compete.contest(FAMILY, row, CPU)
    assert [one.timing.method for one in found.values() if one.timing is not None] == ["cuda events", "cuda events"]
    methods = iter(("cuda graph", "cuda events"))
    monkeypatch.setattr(type(FAMILY), "alike", False)
    found = compete.contest(FAMILY, row, CPU)
    assert [one.timing.method for one in found.values() if one.timing is not None] == ["cuda graph", "cuda events"]


@pytest.mark.parametrize("method", ["inputs", "peers", "fused"])
def test_a_row_that_fails_is_recorded(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(type(FAMILY), method, failing)
    row = ROWS["softmax-16x500"]
    assert "out of memory" in compete.run(FAMILY, row, "c", CPU).measurements[OWN].failure
    assert bool(compete.problems_of(FAMILY, row)) == (method != "fused")


@pytest.mark.slow
def test_kernels_are_compiled_ahead_in_processes() -> None:
    problems = FAMILY.problems(ROWS["variance-16x500"])
    broken = problems[0]._replace(sizes={})
    first, second, failure = compile_all([*problems, broken], "c")
    assert (first, second) == ("", "")
    assert "Error" in failure


def test_a_run_is_written_and_shown(tmp_path: Path) -> None:
    names = ["variance-16x500", "linear_cross_entropy-64x300x32-float32-with-forward"]
    assert main(["run", "backwards", "--rows", *names, "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "backwards.json").read_text(encoding="utf-8"))
    told = {row["name"]: row["timed"] for row in content["rows"]}
    assert list(told) == names
    assert told[names[0]].startswith("the backward alone")
    assert told[names[1]] == "forward and backward"
    for row in content["rows"]:
        assert row["source_sha256"]
        assert all(one["method"] == "wall" and one["error"] < 2e-5 for one in row["contestants"].values())
    assert main(["report", str(tmp_path / "backwards.json"), "--out", str(tmp_path)]) == 0


def test_rows_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    """Those of this commit and this device, in the family's order; what runs again replaces its own."""
    first, second, *_ = ROWS
    rows = [{"name": name, "at": 1} for name in (first, second, "gone")]
    save(tmp_path / "a.json", {"environment": {"device": "A"}, "rows": rows})
    again = [{"name": second, "at": 2}]
    kept = with_kept_rows(again, tmp_path / "a.json", {"device": "A"}, FAMILY)
    assert kept == [{"name": first, "at": 1}, *again]
    assert with_kept_rows(again, tmp_path / "a.json", {"device": "B"}, FAMILY) == again
    assert with_kept_rows(again, tmp_path / "b.json", {"device": "A"}, FAMILY) == again


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch.compile, and of PyTorch's product in a backward's first thread
@pytest.mark.parametrize("row", [
    backwards.attention_row("causal", "1x4x512x512x64", backwards.CAUSAL),
    backwards.attention_row("sinks", "1x4x512x512x64", backwards.SINKS),
    backwards.rows_row("layer_norm", 256, 1024),
    backwards.loss_row(512, 1000, 256),
    backwards.loss_row(512, 1000, 256, whole=True),
], ids=lambda row: row.name)  # fmt: skip
def test_backwards_are_captured_in_graphs(row: Row) -> None:
    """All contestants', on the stream of their forwards; and memory is counted."""
    found = compete.contest(FAMILY, row, torch.device("cuda"))
    assert {name: one.failure for name, one in found.items() if one.failure} == {}
    assert {one.timing.method for one in found.values() if one.timing is not None} == {"cuda graph"}
    assert all(one.peak_bytes for one in found.values())


def test_peaks_are_shown_where_they_are_known() -> None:
    line = {"contestants": {"a": {"peak_bytes": 3 * 2**20}, "b": {}}}
    content = {"rows": [line]}
    assert report.memory_header(content) == ["peak memory, MiB"]
    assert report.memory_cells(content, line, ["a", "b", "c"]) == ["3 - -"]
    assert report.memory_header({"rows": [{"contestants": {"a": {}}}]}) == []


def test_the_time_to_find_groups_is_shown_where_it_is_known() -> None:
    line: dict[str, Any] = {"contestants": {"a": {"explored_s": [0.5, 1.25]}, "b": {"explored_s": []}}}
    content = {"rows": [line, {"contestants": {"a": {}}}]}
    assert report.exploration_header(content) == ["groups found in, s"]
    assert [report.exploration_cells(content, each, ["a", "b"]) for each in content["rows"]] == [["1.8"], ["-"]]
    assert report.exploration_cells({"rows": []}, line, ["a"]) == []
