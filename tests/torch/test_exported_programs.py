"""redalg.optimize: an exported program goes on to be one, and computes what it did."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

import redalg as ra
import redalg.torch
from redalg.errors import GraphError, PlanError
from redalg.torch import exported
from redalg.torch.records import recorded_reports
from tests.house.source import ROOT
from tests.torch.test_aten import Called, drawn

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
PREDICTED = {"redalg.gate": "predicted"}
X, OTHER = drawn(4, 24), drawn(3)
LOADING = """
import sys, redalg, torch
program, (given, wanted) = torch.export.load(sys.argv[1]), torch.load(sys.argv[2])
assert "redalg.run" in str(program.graph)
with torch.no_grad():
    for found, each in zip(program.module()(*given), wanted, strict=True):
        torch.testing.assert_close(found, each)
print("loaded")
"""


class Model(nn.Module):
    """Parameters, a buffer that changes and one that is not saved, a constant, and several outputs, inputs too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.table = nn.Linear(24, 24), nn.LayerNorm(24), torch.arange(24.0)
        self.total, self.shift = nn.Buffer(torch.zeros(4)), nn.Buffer(torch.full((24,), 0.5), persistent=False)

    def forward(self, input: torch.Tensor, other: torch.Tensor) -> tuple[Any, ...]:
        weights = (self.norm(self.linear(input)) + self.table / 9 - self.shift).softmax(-1)
        self.total.add_(weights.square().sum(-1))
        return weights, other, weights.argmax(-1), None, 3, input, weights


def program_of(model: nn.Module, *given: torch.Tensor, **options: Any) -> ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(model.eval(), given, **options)


def count_of(program: ExportedProgram) -> int:
    """The redalg operators of a program."""
    return len(program.graph.find_nodes(op="call_function", target=torch.ops.redalg.run.default))


def check(program: ExportedProgram, optimized: ExportedProgram, *given: torch.Tensor) -> None:
    """Two programs return the same, and leave the same in their buffers."""
    modules = program.module(), optimized.module()
    with torch.no_grad():
        for _ in range(2):
            wanted, found = (module(*given) for module in modules)
            torch.testing.assert_close(found, wanted)
    wanted, found = (dict(module.named_buffers()) for module in modules)
    torch.testing.assert_close({name: found[name] for name in wanted}, wanted)


def centred(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).softmax(-1)


class Rows(nn.Module):
    """A group inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return centred(self.linear(x))


# ---- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_computes_what_it_did(strict: bool) -> None:
    program = program_of(Model(), X, OTHER, strict=strict)
    before = str(program)
    optimized = ra.optimize(program, options=PREDICTED)
    assert count_of(optimized) > 0
    assert str(program) == before
    mine, own = optimized.graph_signature, program.run_decompositions().graph_signature
    assert mine.input_specs == own.input_specs
    assert [(one.kind, one.target) for one in mine.output_specs] == [(one.kind, one.target) for one in own.output_specs]
    assert optimized.state_dict.keys() == program.state_dict.keys()
    check(program, optimized, X, OTHER)


def test_products_with_weights_stay() -> None:
    """The groups know which inputs are weights; what stands around them is core ATen."""
    optimized = ra.optimize(program_of(Model(), X, OTHER), options=PREDICTED)
    names = {str(node.target) for node in optimized.graph.nodes if node.op == "call_function"}
    assert "aten.addmm.default" in names
    assert "aten._softmax.default" not in names
    assert not names & {"aten.reshape.default", "aten.to.dtype"}


def test_a_program_runs_in_another_process(tmp_path: Path) -> None:
    program = program_of(Model(), X, OTHER)
    with torch.no_grad():
        wanted = program.module()(X, OTHER)
    torch.export.save(ra.optimize(program, options=PREDICTED), tmp_path / "program.pt2")
    torch.save(((X, OTHER), wanted), tmp_path / "data.pt")
    files = [str(tmp_path / name) for name in ("program.pt2", "data.pt")]
    command = [sys.executable, "-W", "ignore", "-c", LOADING, *files]
    made = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["loaded"]


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_program_is_compiled(compiler: str) -> None:
    program = program_of(Model(), X, OTHER)
    run = torch.compile(ra.optimize(program, options=PREDICTED).module(), backend=compiler)
    with torch.no_grad():
        torch.testing.assert_close(run(X, OTHER), program.module()(X, OTHER))


def test_a_program_is_optimized_twice() -> None:
    program = program_of(Model(), X, OTHER)
    once = ra.optimize(program, options=PREDICTED)
    twice = ra.optimize(once, options=PREDICTED)
    assert count_of(twice) >= count_of(once)
    check(program, twice, X, OTHER)


def test_signatures_of_modules_inside_are_not_preserved() -> None:
    """Their outputs may be gone, as they are computed within an operator."""
    program = program_of(nn.Sequential(Rows(), Rows()), X, preserve_module_call_signature=("0", "1"))
    optimized = ra.optimize(program, options=PREDICTED)
    assert count_of(optimized) == 2
    assert [entry.fqn for entry in optimized.module_call_graph if entry.signature is not None] == [""]
    check(program, optimized, X)


def similar(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.T / 4).softmax(-1) @ x


@pytest.mark.parametrize("function", [similar, centred], ids=["with products", "without"])
def test_sizes_may_vary(function: Callable[..., Any]) -> None:
    program = program_of(Called(function), X, dynamic_shapes=(({0: Dim("b", min=2, max=50)},),))
    optimized = ra.optimize(program, options=PREDICTED)
    assert count_of(optimized) == 1
    assert list(optimized.range_constraints.values()) == list(program.range_constraints.values())
    for length in (3, 7):
        check(program, optimized, drawn(length, 24))


# ---- programs that stay as they are ----------------------------------------------------------------------------------


def on_two_devices(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return centred(x), torch.zeros(3, device="meta").exp()


@pytest.mark.parametrize("function", [lambda x: x + 1, on_two_devices], ids=["nothing to find", "two devices"])
def test_a_program_without_groups_is_decomposed_alone(function: Callable[..., Any]) -> None:
    program = program_of(Called(function), X)
    optimized = ra.optimize(program, options=PREDICTED)
    assert str(optimized) == str(program.run_decompositions())


def test_a_branch_stays(caplog: pytest.LogCaptureFixture) -> None:
    program = program_of(Called(lambda x: torch.cond(x.sum() > 0, centred, torch.exp, (x,))), X)
    with caplog.at_level(logging.WARNING, "redalg.torch"):
        optimized = ra.optimize(program, options=PREDICTED)
    assert "an exported program stays as it is: GraphError" in caplog.text
    check(program, optimized, X)


def test_whatever_fails_the_program_runs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(graph: torch.fx.Graph, *_: Any, **__: Any) -> Any:
        graph.output_node().args = ((),)
        raise RuntimeError("planted")

    monkeypatch.setattr(exported, "put_groups", failing)
    program = program_of(Called(centred), X)
    with caplog.at_level(logging.INFO, "redalg.torch"), recorded_reports() as reports:
        optimized = ra.optimize(program, options=PREDICTED)
    assert [one.levelname for one in caplog.records if one.name == "redalg.torch"] == ["WARNING", "INFO"]
    assert [report.failure for report in reports] == ["RuntimeError: planted"]
    check(program, optimized, X)


def test_a_version_that_was_not_tested_puts_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exported, "is_tested", lambda _: False)
    with caplog.at_level(logging.WARNING, "redalg.torch"):
        assert count_of(ra.optimize(program_of(Called(centred), X))) == 0
    assert "exported programs stay as they are" in caplog.text


def test_groups_beyond_the_budget_are_not_put() -> None:
    program = program_of(Called(centred), X)
    with recorded_reports() as reports:
        optimized = ra.optimize(program, options={"redalg.budget_s": 0})
    assert [one.decision.is_put for one in reports[0].groups] == [False]
    assert count_of(optimized) == 0
    check(program, optimized, X)


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [Model(), torch.fx.symbolic_trace(nn.ReLU()), centred, None], ids=type)
def test_other_things_than_programs_are_refused(wrong: Any) -> None:
    with pytest.raises(GraphError, match=r"Write `ra.optimize\(torch.export.export\(model, args\)\)`"):
        ra.optimize(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_autotune": True}, r"takes 'redalg.gate' and 'redalg.budget_s' alone"),
        ({"redalg.gate": "fast"}, "the gate should be one of 'measured', 'replayed', 'predicted'"),
        ({"redalg.budget_s": "60"}, "should be a number of seconds"),
    ],
)
def test_options_that_it_has_not_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ra.optimize(program_of(nn.ReLU(), X), options=options)


def test_it_has_two_names() -> None:
    assert ra.optimize is redalg.torch.optimize
    assert "optimize" not in ra.__all__  # `import *` loads no torch
