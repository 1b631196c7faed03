"""Functions of a row's values: the pass that makes the values computes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sympy import Abs, Max, exp, log, sqrt

import redalg as ra
from tests.cases.kernels import worst_error

n, b, c = ra.axes("n b c")
x, y = ra.tensors("x[b,n] y[c,n]")
eps = ra.scalars("eps")
top, total = ra.max(Abs(x), n), ra.sum(x, n)
code = ra.cast(x / Max(top, eps) * 127, "int8")
CASES: dict[str, tuple[Any, str, dict[str, str]]] = {
    "a scale": (ra.sum(code * y, n) * Max(top, eps) / 127, "b c",
                {"of_max_0": "Max(eps, max_0)/127", "rounded_0": "1.0*cast(127*x[b, n]/Max(eps, max_0), int8)"}),
    "a root": (ra.sum(Abs(x - sqrt(total**2 + eps)), n), "b", {"of_sum_0": "sqrt(eps + sum_0**2)"}),
    "a divisor": (ra.sum(Abs(x / Max(top, eps) - 1 / y), n), "b c", {"of_max_0": "Max(eps, max_0)"}),
    "the value as well": (ra.sum(Abs(x - sqrt(total**2 + eps)), n) + total, "b", {"sum_0": "sum_0"}),
    "arithmetic alone": (ra.sum(Abs(x - total / 3), n), "b", {"sum_0": "sum_0"}),
    "two functions of one value": (ra.sum(Abs(x - exp(-(total**2))) * sqrt(total**2 + 1), n), "b", {"sum_0": "sum_0"}),
    "an extent": (ra.sum(Abs(x - log(1 + total**2 / n.extent)), n), "b", {"sum_0": "sum_0"}),
    "of two rows": (ra.sum(Abs(x * y - Max(ra.max(x, n), ra.max(y, n))), n), "b c",
                    {"max_0": "max_0", "max_1": "max_1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_pass_makes_what_the_second_reads(name: str) -> None:
    expr, axes, made = CASES[name]
    form = ra.fuse(expr, axes=axes, passes=2)
    assert {one.name: str(one.expr) for one in form.passes.intermediates} == made


@pytest.mark.parametrize("backend", ["torch", "tilelang"])
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_the_definition(name: str, backend: str) -> None:
    expr, axes, _ = CASES[name]
    form, generator = ra.fuse(expr, axes=axes, passes=2), torch.Generator().manual_seed(0)
    drawn = {"x": torch.randn(5, 40, generator=generator), "y": torch.rand(3, 40, generator=generator) + 1}
    given: dict[str, Any] = {
        key: one for key, one in drawn.items() if any(key == own.name for own in form.passes.elements)
    }
    given |= {"eps": 0.25} if expr.has(eps) else {}
    assert worst_error(form(**given, backend=backend), form.reference(**given)) <= 4e-6
