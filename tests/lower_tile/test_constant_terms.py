"""Counts are added once for all the trips of a loop, and other sums stay in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sympy import Expr, Integer, symbols

from redalg.lower_tile.ir.program import Buffer, Kernel, Loop, Parallel, Store, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.constant_terms import add_constants_once
from tests.lower_tile.test_tall_products import FORMS

I, J, T = symbols("i j t")
COUNT, TOTAL = Load("count", I), Load("total", I)
PLAN: Any = SimpleNamespace(is_serial=True, binding=SimpleNamespace(column=I))
"""Of threads that keep columns."""


def kernel_of(*exprs: Expr, start: int = 0, stop: int = 5, index: Expr = I) -> Kernel:
    stores = tuple(Store(name, (index,), expr) for name, expr in zip(("count", "total"), exprs, strict=False))
    loop = Loop(J, Integer(stop), 0, (Parallel(((I, 8),), stores),), pipelined=False, start=Integer(start))
    outer = Loop(T, Integer(3), 0, (loop,), pipelined=False)
    buffers = tuple(Buffer(name, "fragment", (8,), "float32") for name in ("count", "total"))
    return Kernel((), buffers, (outer,), "test")


def targets_of(kernel: Kernel) -> list[str]:
    """The stores in order, each with its trips of the inner loop: `count` stands ahead of it, `j: count` within."""
    loops = [one for one in nested_statements(kernel.body) if isinstance(one, Parallel)]
    [inner] = (one for one in nested_statements(kernel.body) if isinstance(one, Loop) and one.variable == J)
    return [f"{'j: ' * (loop in inner.body)}{store.target}" for loop in loops for store in loop.body]


@pytest.mark.parametrize(("kernel", "stores"), [
    (kernel_of(COUNT + 1, TOTAL + J), ["count", "j: total"]), (kernel_of(COUNT - 2, TOTAL + J), ["count", "j: total"]),
    (kernel_of(COUNT + 1), ["j: count"]),  # nothing else is in the loop
    (kernel_of(COUNT + 1, TOTAL + COUNT), ["j: count", "j: total"]),
    (kernel_of(COUNT + J, TOTAL + J), ["j: count", "j: total"]),
    (kernel_of(COUNT + 0.5, TOTAL + J), ["j: count", "j: total"]),
    (kernel_of(2 * COUNT + 1, TOTAL + J), ["j: count", "j: total"]),
    (kernel_of(Load("count", J) + 1, TOTAL + J, index=J), ["j: count", "j: total"]),
])  # fmt: skip
def test_sums_that_leave_the_loop(kernel: Kernel, stores: list[str]) -> None:
    assert targets_of(add_constants_once(kernel, PLAN)) == stores


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (2, 5), (5, 5), (7, 5)])
def test_results_stay(start: int, stop: int) -> None:
    kernel = kernel_of(COUNT + 3, TOTAL + J, start=start, stop=stop)
    statements = nested_statements(add_constants_once(kernel, PLAN).body)
    [store, _] = (store for one in statements if isinstance(one, Parallel) for store in one.body)
    assert store.expr == COUNT + 3 * max(0, stop - start)


def test_a_covariance_counts_by_tiles() -> None:
    form = FORMS["covariance"]
    kernel = form.lower("H200", {"n": 1_000_000, "a": 64, "b": 64}, {"x": "float32"}).program.kernels[0]
    _, inner = (one for one in nested_statements(kernel.body) if isinstance(one, Loop))
    assert "count" not in str(inner)
