"""Gradients of random nests of reductions, beside those that PyTorch takes of what was written, element by element."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, Add, Expr, Mul, Pow, exp, log, tanh
from sympy.core.basic import Basic

import redalg as ra
from redalg.errors import ExpressionError, GradientError
from redalg.expression import Axis, Element, Extent, Reduce
from redalg.expression.contents import free_axes
from tests.decompose.test_bound_names import BOTH, NAMES, SIZE, data, element, i, j, k, sizes_of, w, x, y

BOTH_AND_MORE: tuple[Callable[[Expr, Expr], Expr], ...] = (
    *BOTH, lambda u, v: exp(-(u**2)) * v, lambda u, v: u / (1 + v**2), lambda u, v: log(1 + u**2) + v,
    lambda u, v: exp(tanh(u)) * v,
)  # fmt: skip
OVER: tuple[Callable[[Expr, Axis], Expr], ...] = (
    ra.sum, ra.mean, ra.max, ra.min, ra.logsumexp, ra.var,
    lambda u, axis: ra.sum(ra.softmax(u, axis) * u, axis),
)  # fmt: skip


def nest(rng: random.Random, depth: int, scope: Mapping[Axis, Axis]) -> Expr:
    """A reduction of a random term, in which others stand."""
    axis = rng.choice(NAMES)
    inside = {**scope, axis: axis}
    term = element(rng, axis, inside)[0]
    for _ in range(rng.randint(0, 2)):
        deeper = depth and rng.random() < 0.7
        other = nest(rng, depth - 1, inside) if deeper else element(rng, axis, inside)[0]
        term = rng.choice(BOTH_AND_MORE)(term, other)
    return rng.choice(OVER)(term, axis)


def value(node: Basic, places: Mapping[Axis, int], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """An expression at places of its free axes, by PyTorch's scalars."""
    if node.is_number or isinstance(node, Extent):
        return torch.tensor(float(SIZE if isinstance(node, Extent) else node), dtype=torch.float64)
    if isinstance(node, Element):
        return tensors[node.name][tuple(places[axis] for axis in node.indices)]
    if isinstance(node, Reduce):
        [axis, *others] = node.bound
        term = node.rebuilt(node.expr, others) if others else node.expr
        terms = torch.stack([value(term, {**places, axis: place}, tensors) for place in range(SIZE)])
        reduce: Any = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "logsumexp": torch.logsumexp}[node.kind]
        return reduce(terms, 0)
    made = [value(one, places, tensors) for one in node.args]
    if isinstance(node, Add | Mul):
        total = made[0]
        for one in made[1:]:
            total = total + one if isinstance(node, Add) else total * one
        return total
    functions: dict[Any, Any] = {Pow: torch.pow, Abs: torch.abs, exp: torch.exp, log: torch.log, tanh: torch.tanh}
    made_by: torch.Tensor = functions[node.func](*made)
    return made_by


def outcome(expr: Expr) -> str:
    """`right`, or the kind of refusal; gradients of a fused expression are held to PyTorch's."""
    axes = [i] if i in free_axes(expr) else []
    try:
        verdict = ra.analyze(expr, axes="i" if axes else "")
    except ExpressionError:
        return "refused"
    if not hasattr(verdict, "fused"):
        return "refused"
    fused = verdict.fused
    own = {name: torch.tensor(one, requires_grad=True) for name, one in data().items()}
    want = torch.stack([value(expr, {i: place}, own) for place in range(SIZE)]) if axes else value(expr, {}, own)
    weights = torch.tensor(np.random.default_rng(1).normal(size=tuple(want.shape)))
    (want * weights).sum().backward()
    given = {name: one.detach().clone().requires_grad_() for name, one in own.items() if name in fused.cascade.inputs()}
    try:
        found = fused(**given, sizes=sizes_of(fused))
    except (ExpressionError, GradientError):
        return "gradient refused"
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-9)
    (found * weights).sum().backward()
    for name, one in given.items():
        grad = own[name].grad
        exact = torch.zeros_like(one) if grad is None else grad
        scale = max(1.0, exact.abs().max().item())
        made = torch.zeros_like(one) if one.grad is None else one.grad
        torch.testing.assert_close(made / scale, exact / scale, rtol=1e-8, atol=1e-8, msg=f"{name}: {expr}")
    return "right"


@pytest.mark.parametrize("block", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 60))])
def test_gradients_of_nests_are_those_of_what_was_written(block: int) -> None:
    outcomes = [outcome(nest(random.Random(seed), 1 + seed % 2, {i: i} if seed % 3 == 0 else {}))
                for seed in range(10 * block, 10 * block + 10)]  # fmt: skip
    assert outcomes.count("right") > 2


NESTS = {
    "a maximum that no pivot is": ra.sum(y[j] * ra.sum((w[j, k] - ra.max(y[k] ** 2, k)) ** 2, k), j),
    "a mean of rows under a maximum": ra.max(w[i, k] - ra.mean((y[i] - ra.sum(x[i], i)) ** 2, i), k),
    "a product of its row": ra.sum((y[k] * ra.max((y[k] - ra.sum(x[i] ** 2 * y[k] * w[k, i], i)) * x[k], k)) ** 2, k),
    "a sum of nothing": ra.sum(x[j] + ra.mean(tanh(w[i, j]) * ra.sum(0 * x[j], j) + ra.max(x[j] - w[i, j], j), j), j),
    "a case that divides by 0": ra.mean(x[j] / (1 + ra.max(ra.logsumexp(abs(x[i] - x[j]), i) * x[j], j) ** 2), j),
    "a length that no tensor has": ra.var(abs(x[i] - x[j]) - ra.sum(x[j] ** 2 * y[j], j), j),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTS)
def test_gradients_that_were_wrong_or_raised_are_right(name: str) -> None:
    assert outcome(NESTS[name]) == "right"
