"""Graphs that were exported run in a process that has only imported redalg, and its operators are there in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sympy import oo

import redalg as ra
from tests.house.source import ROOT

b, h, q, k, d, e, n = ra.axes("b h q k d e n")
Q, K, V, x = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] x[b,n]")
CAUSAL = ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, ra.sum(Q * K, d) / 2, -oo), k) * V, k), axes="b h q e")
SEVERAL = ra.fuse(
    {"s": (ra.logsumexp(x * ra.scalars("t"), n) / ra.axes("m").extent, "b"), "best": (ra.argmax(x, n), "b")}
)
LOADING = """
import sys
for name in sys.argv[3].split():
    __import__(name)
import torch
module, (inputs, outputs, gradients) = torch.export.load(sys.argv[1]).module(), torch.load(sys.argv[2])
made = module(*inputs)
for mine, wanted in zip(made, outputs, strict=True):
    torch.testing.assert_close(mine, wanted, rtol=0, atol=0)
if gradients:
    made[0].square().sum().backward()
for name, one in module.named_parameters():
    torch.testing.assert_close(one.grad, gradients[name])
print("redalg" in sys.modules, "loaded")
"""
ORDERS = {"redalg first": "redalg torch", "torch first": "torch redalg", "redalg alone": "redalg"}


class Causal(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (CAUSAL(Q=self.linear(x), K=x, V=x) + 1,)


class Several(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(SEVERAL(x=x.tanh(), t=0.5, sizes={"m": 3}, precision="wide"))


def load_elsewhere(
    program: torch.export.ExportedProgram, module: torch.nn.Module, data: torch.Tensor, folder: Path, order: str
) -> str:
    """The print of a process of its own, which loads the program and compares it with the module, gradients too."""
    outputs, parameters = module(data), dict(module.named_parameters())
    gradients = torch.autograd.grad(outputs[0].square().sum(), [*parameters.values()]) if parameters else ()
    torch.export.save(program, folder / "program.pt2")
    kept = tuple(one.detach() for one in outputs)
    torch.save(((data,), kept, dict(zip(parameters, gradients, strict=True))), folder / "data.pt")
    files = [str(folder / name) for name in ("program.pt2", "data.pt")]
    command = [sys.executable, "-W", "ignore", "-c", LOADING, *files, order]
    made = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.sweep(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("strict", "order"), [(False, "redalg first"), (True, "torch first"), (False, "redalg alone")])
def test_an_exported_module_runs_elsewhere(strict: bool, order: str, tmp_path: Path) -> None:
    module, data = Causal(), torch.randn(2, 3, 5, 4)
    sizes = {"x": {2: torch.export.Dim("length", min=2, max=99)}}
    program = torch.export.export(module, (data,), dynamic_shapes=sizes, strict=strict)
    longer = torch.randn(2, 3, 9, 4)
    torch.testing.assert_close(program.module()(longer), module(longer), rtol=0, atol=0)
    assert load_elsewhere(program, module, longer, tmp_path, ORDERS[order]).split() == ["True", "loaded"]


@pytest.mark.filterwarnings("ignore")
def test_options_scalars_and_several_outputs_are_exported(tmp_path: Path) -> None:
    module, data = Several(), torch.randn(3, 7)
    program = torch.export.export(module, (data,))
    assert "redalg.run" in str(program.graph)
    assert load_elsewhere(program, module, data, tmp_path, "redalg").split() == ["True", "loaded"]


def test_a_program_that_imports_no_torch_has_none() -> None:
    code = """
import sys, importlib.util, numpy, redalg as ra
found = importlib.util.find_spec("torch")
out = ra.fuse(ra.max(ra.tensor("x[n]"), ra.axes("n")))(x=numpy.ones(3), backend="numpy")
assert "torch" not in sys.modules
import torch
assert torch.__spec__.name == found.name and "exec_module" not in vars(torch.__spec__.loader)
print(torch.ops.redalg.run.default, [one for one in sys.meta_path if type(one).__module__.startswith("redalg")])
"""
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["redalg.run.default", "[]"]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("module", [Causal, Several])
def test_a_jit_trace_holds_one_operator_for_any_sizes(module: type[torch.nn.Module]) -> None:
    layer = module()
    trace = torch.jit.trace(layer, (torch.randn(1, 2, 3, 4) if module is Causal else torch.randn(2, 3),))
    assert str(trace.graph).count("redalg::run") == 1
    data = torch.randn(2, 3, 5, 4) if module is Causal else torch.randn(4, 7)
    made, wanted = trace(data), layer(data)
    for mine, one in zip(made, wanted, strict=True):
        torch.testing.assert_close(mine, one, rtol=0, atol=0)
    for parameter in layer.parameters():
        found = [torch.autograd.grad(each[0].square().sum(), parameter)[0] for each in (trace(data), layer(data))]
        torch.testing.assert_close(*found)
