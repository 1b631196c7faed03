"""Modules of fused functions: parameters that train as those of the written PyTorch module, copies, pickles, errors."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Module, Parameter

import redalg as ra
from redalg.runtime.bind.module import FusedModule
from tests.house.source import ROOT

b, n, m = ra.axes("b n m")
x, w, bias, P, at = ra.tensors("x[b,n] w[n] bias[n] P[m,n] at[b]")
NORM = ra.fuse(ra.layer_norm(x, n, eps=1e-5) * w + bias, axes="b n", inputs=(w, x))
PRODUCT = ra.fuse(ra.sum(ra.rms_norm(x, n, eps=1e-6) * w * P, n), axes="b m")
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


class Norm(Module):
    def __init__(self, w: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.w, self.bias = Parameter(w.clone()), Parameter(bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (7,), self.w, self.bias)


class Product(Module):
    def __init__(self, w: torch.Tensor, P: torch.Tensor) -> None:
        super().__init__()
        self.w, self.P = Parameter(w.clone()), Parameter(P.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (7,), self.w, eps=1e-6) @ self.P.T


def norms() -> tuple[FusedModule, Module]:
    start = {"w": drawn(7), "bias": drawn(7)}
    return NORM.as_module({name: one.clone() for name, one in start.items()}), Norm(**start)


def products() -> tuple[FusedModule, Module]:
    start = {"w": drawn(7), "P": drawn(3, 7)}
    return PRODUCT.as_module({name: one.clone() for name, one in start.items()}), Product(**start)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", [norms, products])
def test_it_trains_as_the_written_module(make: Callable[[], tuple[FusedModule, Module]], compiled: bool) -> None:
    ours, theirs = make()
    torch.compiler.reset()
    call: Any = torch.compile(ours, fullgraph=True, backend="aot_eager") if compiled else ours
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (ours, theirs)]
    starts = {name: one.detach().clone() for name, one in ours.named_parameters()}
    for _ in range(2):
        data = drawn(5, 7)
        losses = [call(x=data).square().mean(), theirs(data).square().mean()]
        torch.testing.assert_close(losses[0], losses[1])
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert not any(torch.equal(one, starts[name]) for name, one in ours.named_parameters())


def test_states_are_loaded_and_dtypes_are_moved() -> None:
    ours, theirs = norms()
    again = NORM.as_module({"w": torch.ones(7), "bias": torch.zeros(7)}).to(torch.float64)
    assert {one.dtype for one in again.parameters()} == {torch.float64}
    again.load_state_dict(theirs.state_dict())
    data = drawn(5, 7)
    torch.testing.assert_close(again(x=data), theirs(data))
    assert ours.to(torch.bfloat16)(x=data.bfloat16()).dtype == torch.bfloat16
    assert str(ours) == "FusedModule(w=(7,), bias=(7,))"


def test_copies_are_of_their_own() -> None:
    ours, _ = norms()
    data, other = drawn(5, 7), copy.deepcopy(ours)
    torch.testing.assert_close(other(x=data), ours(x=data), rtol=0, atol=0)
    with torch.no_grad():
        other.get_parameter("w").mul_(2)
    assert not torch.equal(other(x=data), ours(x=data))
    assert [*other.state_dict()] == ["w", "bias"]


def test_a_pickle_is_a_text_and_parameters(tmp_path: Path) -> None:
    ours, _ = norms()
    ours.eval()
    data, held = drawn(5, 7), io.BytesIO()
    torch.save(ours, held)
    assert NORM.to_json().encode() in pickle.dumps(ours)
    torch.save((ours, data, ours(x=data).detach()), tmp_path / "module.pt")
    code = """
import sys, torch
module, data, wanted = torch.load(sys.argv[1], weights_only=False)
assert not module.training
torch.testing.assert_close(module(x=data), wanted, rtol=0, atol=0)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "module.pt")]
    made = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    again = torch.load(io.BytesIO(held.getvalue()), weights_only=False)
    torch.testing.assert_close(again(x=data), ours(x=data), rtol=0, atol=0)


def test_tensors_by_position_are_those_that_are_no_parameters() -> None:
    ours, theirs = norms()
    data = drawn(5, 7)
    torch.testing.assert_close(ours(data), theirs(data))
    torch.testing.assert_close(ours(data, backend="torch"), theirs(data))
    with pytest.raises(ra.InputError, match="2 tensors are given by position, and 1 may be"):
        ours(data, data)


def test_parameters_are_shared_and_tensors_are_not_required_to_be_all() -> None:
    weight = Parameter(torch.ones(7), requires_grad=False)
    first, second = (NORM.as_module({"w": weight}) for _ in range(2))
    assert first.w is second.w is weight
    assert first(x=torch.ones(2, 7), bias=torch.ones(7)).tolist() == torch.ones(2, 7).tolist()
    assert NORM.as_module()(x=torch.ones(2, 7), w=weight, bias=weight).shape == (2, 7)


@pytest.mark.parametrize(("parameters", "said"), [
    ({"weight": torch.ones(7)}, "`weight` is no tensor of the function, which has bias, w, x"),
    ({"w": (7,)}, r"`w` is \(7,\), and a parameter is a tensor of floats.*torch.ones"),
    ({"w": torch.ones(7, dtype=torch.int64)}, "`w` is a tensor of torch.int64"),
])  # fmt: skip
def test_what_is_no_parameter_is_refused(parameters: Any, said: str) -> None:
    with pytest.raises(ra.InputError, match=said):
        NORM.as_module(parameters)


def test_names_that_modules_have_and_tensors_given_twice_are_refused() -> None:
    form = ra.fuse(ra.sum(x * ra.tensor("half[n]"), n), axes="b")
    with pytest.raises(ra.InputError, match="`half` is an attribute that the module has itself"):
        form.as_module({"half": torch.ones(7)})
    with pytest.raises(ra.InputError, match="`w` is a parameter of the module, and is given too"):
        NORM.as_module({"w": torch.ones(7)})(x=torch.ones(2, 7), w=torch.ones(7))
