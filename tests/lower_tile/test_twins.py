"""Tiles in shared memory that hold the same: one is left, wherever both are stored once of what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sympy import Integer, symbols

from redalg.lower_tile.ir.program import Buffer, Kernel, Loop, Parallel, Store, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.twins import share_twins
from tests.lower_tile.test_tall_products import FORMS

I, J, E, T = symbols("i j e t")
PLAN: Any = None
"""The pass asks nothing of it."""


def stored_tiles(name: str) -> list[str]:
    """The tiles in shared memory that loops store, of a kernel of an H200."""
    form = FORMS[name]
    dtypes = dict.fromkeys(form.cascade.inputs(), "float32")
    kernel = form.lower("H200", {"n": 1_000_000, "a": 64, "b": 64}, dtypes).program.kernels[0]
    shared = {one.name for one in kernel.buffers if one.scope == "shared"}
    loops = (one for one in nested_statements(kernel.body) if isinstance(one, Parallel))
    return [store.target for loop in loops for store in loop.body if store.target in shared]


def test_rows_and_columns_of_one_tensor_share_a_tile() -> None:
    """What they are is tested beside the others (`test_tall_products`)."""
    assert stored_tiles("covariance") == ["centre", "factor"]
    assert stored_tiles("of two tensors") == ["centre", "centre_1", "factor", "factor_1"]


def tile_of(target: str, source: str, last: Any, *, by: int = 1) -> Parallel:
    expr = Load(source, J, last) * by
    return Parallel(((J, Integer(4)), (last, Integer(8))), (Store(target, (J, last), expr),))


@pytest.mark.parametrize(("body", "left"), [
    ([tile_of("p", "x", I), tile_of("q", "x", E)], ["p"]),
    ([tile_of("p", "x", I), tile_of("q", "p", E, by=2), tile_of("r", "p", I, by=2)], ["p", "q"]),
    ([tile_of("p", "x", I), tile_of("q", "x", E), tile_of("r", "p", I), tile_of("s", "q", E)], ["p", "r"]),
    ([tile_of("p", "x", I), tile_of("q", "y", E)], ["p", "q"]),
    ([tile_of("p", "x", I), tile_of("q", "x", E, by=2)], ["p", "q"]),
    ([tile_of("p", "x", I), tile_of("x", "y", I), tile_of("q", "x", E)], ["p", "x", "q"]),
    ([tile_of("p", "x", I), tile_of("y", "q", I), tile_of("q", "x", E)], ["p", "y", "q"]),
    ([tile_of("p", "x", I), tile_of("q", "x", E), tile_of("q", "y", E)], ["p", "q", "q"]),
])  # fmt: skip
def test_tiles_that_are_left(body: list[Parallel], left: list[str]) -> None:
    """One that is stored twice, or of what changed, or read between, is another's no twin."""
    buffers = tuple(Buffer(name, "shared", (4, 8), "float32") for name in "pqrsxy")
    loop = Loop(T, Integer(0), Integer(3), tuple(body))
    found = share_twins(Kernel((), buffers, (loop,), "test"), PLAN)
    loops = [one for one in nested_statements(found.body) if isinstance(one, Parallel)]
    assert [one.body[0].target for one in loops] == left
    names = {one.name for one in found.buffers}
    assert {load.name for one in loops for load in one.body[0].expr.atoms(Load)} <= names


def test_a_conditional_store_has_no_twin() -> None:
    first, second = tile_of("p", "x", I), tile_of("q", "x", E)
    second = replace(second, body=(replace(second.body[0], guard=E < 3),))
    buffers = tuple(Buffer(name, "shared", (4, 8), "float32") for name in "pqx")
    kernel = Kernel((), buffers, (first, second), "test")
    assert share_twins(kernel, PLAN) == kernel
