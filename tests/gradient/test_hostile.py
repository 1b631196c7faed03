"""Gradients of float32 on data that break naive formulas: at most twice the error of PyTorch's own float32.

Scores that a product of matrices makes are weighed as FlashAttention-2 differentiates them. Other patterns that have no
function in PyTorch are differentiated by it node by node. What is farther is listed, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import pytest
import torch

import redalg as ra
from redalg.definition import evaluate_definition
from tests.cases.corpus import Pattern
from tests.cases.literature import ATTENTION, CARRIED, PATTERNS
from tests.cases.trained import TRAINED, Trained
from tests.gradient.test_recorded import HOSTILE

SEEDS = range(3)
ROUNDINGS = 8
"""Roundings of the largest element that are no error: sums have 33 to 77 terms."""
NUMBERS = HOSTILE | {"large": lambda x: x * 1e4}
MASKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a third of -inf": lambda x: torch.where(torch.arange(x.shape[-1]) % 3 == 0, -torch.inf, x),
    "a row of -inf": lambda x: torch.where(torch.arange(x.shape[-2])[:, None] == 1, -torch.inf, x),
}
HOSTILE = NUMBERS | MASKS
MASKED = ("softmax", "softmax, as a ratio", "log-softmax", "logsumexp", "logsumexp, as a logarithm", "cross entropy",
          "attention, bias", "attention, bias of all batches", "gates of experts",
          "gates of experts, of the best scores")  # fmt: skip
"""Patterns whose hostile tensor holds logits."""
FARTHER: dict[tuple[str, str], float] = {
    # a few roundings in another order; PyTorch's error is of the same size
    ("skewness", "far"): 4,
    # a weight below 1e-38 is all that a row has: 1/Σw² overflows
    ("kernel regression", "large"): torch.inf,
    # the tenth power of a deviation of 1e4 is out of range
    ("bimodality coefficient, Pfister et al. 2013", "large"): torch.inf,
}
"""How many times PyTorch's error is allowed, where it is not 2; ∞: what is known to be farther."""
Tensors = dict[str, torch.Tensor]


@final
@dataclass(frozen=True)
class Case:
    """A function, its peer, and its data.

    Attributes:
        form, written: the function, and how PyTorch has it; both take tensors by name.
        drawn: the data of a seed.
        hostile: the tensors that hostile numbers stand in.
        masked: True if −inf may stand there.
    """

    form: Callable[..., Any]
    written: Callable[..., Any]
    drawn: Callable[[int], Tensors]
    hostile: tuple[str, ...]
    masked: bool


def of_trained(pattern: Trained) -> Case:
    form = ra.fuse(dict(pattern.outputs))
    names = tuple(name for name, one in pattern.data(form, 0).items() if pattern.is_free(name) and one.dim())
    own = (pattern.hostile,) if pattern.hostile else names
    return Case(lambda **data: form(**data, sizes=dict(pattern.sizes)), pattern.written,
                lambda seed: pattern.data(form, seed), own, pattern.name in MASKED)  # fmt: skip


def of_literature(pattern: Pattern) -> Case:
    form = pattern.fuse()
    sizes = {axis.name: pattern.extents()[axis.name] for axis in form.cascade.axes() if axis.size is None}
    outputs = {name: (expr, out.axes) for (name, expr), out in zip(form.written, form.cascade.outputs, strict=True)}

    def written(**data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kind = next(str(one.dtype) for one in data.values() if one.is_floating_point())
        return tuple(evaluate_definition(outputs, data, pattern.scalars, sizes, kind.removeprefix("torch.")).values())

    def drawn(seed: int) -> Tensors:
        found = {name: torch.as_tensor(one) for name, one in pattern.tensors("float32", seed).items()
                 if name in form.cascade.inputs()}  # fmt: skip
        return {name: one.double() if one.is_floating_point() else one for name, one in found.items()}

    hostile = tuple(name for name, role in pattern.roles.items() if role in ("logit", "value", "free"))
    return Case(lambda **data: form(**data, **pattern.scalars, sizes=sizes), written, drawn, hostile, masked=False)


CASES: Mapping[str, Trained | Pattern] = {
    **{one.name: one for one in TRAINED},
    **{f"{one.name}, {one.source}": one for one in (*PATTERNS, *CARRIED) if one not in ATTENTION},
}


def case_of(name: str) -> Case:
    pattern = CASES[name]
    return of_trained(pattern) if isinstance(pattern, Trained) else of_literature(pattern)


def gradients(call: Callable[..., Any], data: Tensors, kind: torch.dtype) -> Tensors:
    """The gradients, in float64, of a sum of the outputs with fixed weights."""
    leaves = {name: one.to(kind).requires_grad_() if one.is_floating_point() else one for name, one in data.items()}
    made = call(**leaves)
    outputs = [one for one in (made if isinstance(made, tuple) else (made,)) if one.is_floating_point()]
    weights = [torch.randn(one.shape, generator=torch.Generator().manual_seed(100 + place)).to(kind)
               for place, one in enumerate(outputs)]  # fmt: skip
    learned = {name: one for name, one in leaves.items() if one.is_floating_point()}
    found = torch.autograd.grad(outputs, [*learned.values()], weights, allow_unused=True)
    return {name: torch.zeros_like(data[name]) if one is None else one.double()
            for name, one in zip(learned, found, strict=True)}  # fmt: skip


def error(found: torch.Tensor, true: torch.Tensor) -> float:
    """The largest difference where the true gradient is finite."""
    apart = (found - true).abs().masked_fill(~true.isfinite(), 0)
    return float(apart.nan_to_num(torch.inf).max())


def errors(case: Case, kind: str) -> dict[str, tuple[float, float, float]]:
    """By tensor: the largest errors of redalg and of PyTorch, and the largest gradient."""
    worst = dict[str, tuple[float, float, float]]()
    for seed in SEEDS:
        data = {name: HOSTILE[kind](one).float().double() if name in case.hostile else one
                for name, one in case.drawn(seed).items()}  # fmt: skip
        true = gradients(case.written, data, torch.float64)
        mine, eager = (gradients(call, data, torch.float32) for call in (case.form, case.written))
        for name, one in true.items():
            now = error(mine[name], one), error(eager[name], one), error(torch.zeros_like(one), one)
            before = worst.get(name, (0.0, 0.0, 0.0))
            worst[name] = (max(before[0], now[0]), max(before[1], now[1]), max(before[2], now[2]))
    return worst


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pattern", TRAINED, ids=lambda one: one.name)
def test_gradients_of_float64_are_pytorchs(pattern: Trained) -> None:
    case = of_trained(pattern)
    mine, true = (gradients(call, case.drawn(0), torch.float64) for call in (case.form, case.written))
    for name, one in true.items():
        torch.testing.assert_close(mine[name], one, rtol=0, atol=1e-12 * float(one.abs().max()), msg=name)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_float32_are_as_near_as_pytorchs(name: str) -> None:
    case = case_of(name)
    for kind in HOSTILE if case.masked else NUMBERS:
        times, step = FARTHER.get((name, kind), 2), ROUNDINGS * torch.finfo(torch.float32).eps
        for tensor, (mine, eager, largest) in errors(case, kind).items() if times < torch.inf else ():
            assert mine <= times * eager + step * largest, f"{kind}, {tensor}: {mine}, and PyTorch {eager} of {largest}"


def test_what_is_farther_is_a_case() -> None:
    assert {name for name, _ in FARTHER} <= {*CASES}
    assert {kind for _, kind in FARTHER} <= {*HOSTILE}
