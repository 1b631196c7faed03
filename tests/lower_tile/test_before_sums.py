"""Tiles are computed ahead of the sums that they do not read: the same numbers, in one loop with the tiles before."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Integer, Symbol

import redalg as ra
from redalg.gradient.stage import for_dtypes, own_sizes
from redalg.library import layer_norm
from redalg.lower_tile.ir.program import (
    Buffer,
    Kernel,
    Loop,
    Parallel,
    ReduceTile,
    Statement,
    Store,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.before_sums import tiles_before_sums
from redalg.strategies.plan import Plan
from redalg.strategies.schedule import numbers_of

I, J, A, B = (Symbol(name, integer=True) for name in "ijab")
n = ra.axis("n")


def thread_plan() -> Plan:
    """A plan whose tiles hold a state for every lane."""
    fused = ra.fuse(ra.sum(ra.tensor("x[b,n]"), n))
    schedule = ra.Schedule(ra.Grid("b"), ra.Lanes(n, 128), ra.Loop(n, 512))
    return numbers_of(fused.lower("sm_90a", sizes={"b": 64, "n": 4096}, dtypes="float32", plan=schedule).plan)


def tile(target: str, read: str, *, row: str = "", names: tuple[Symbol, Symbol] = (I, J)) -> Parallel:
    """target[i, j] := read[i, j] (+ row[i])."""
    first, second = names
    expr = Load(read, first, second) + (Load(row, first) if row else 0)
    return Parallel(((first, 1), (second, 64)), (Store(target, (first, second), expr),))


def order(*statements: Statement, outputs: tuple[str, ...] = ()) -> list[str]:
    """What a loop of statements stores, in order, after the pass."""
    names = {"x": (1, 64), "a": (1, 64), "b": (1, 64), "v": (1,), "w": (1,)}
    buffers = tuple(Buffer(name, "fragment", shape, "float32") for name, shape in names.items() if name not in outputs)
    kernel = Kernel((), buffers, (Loop(Symbol("t", integer=True), Integer(4), 0, statements),), "loop")
    [loop] = tiles_before_sums(kernel, thread_plan()).body
    assert isinstance(loop, Loop)
    return [stored(statement) for statement in loop.body]


def stored(statement: Statement) -> str:
    """What a sum, or a loop over a tile, stores."""
    if isinstance(statement, ReduceTile):
        return statement.target
    assert isinstance(statement, Parallel)
    return statement.body[0].target


SUM = ReduceTile("sum", "a", "v", clear=True)


def test_a_tile_moves_ahead_of_a_sum_that_it_does_not_read() -> None:
    assert order(tile("a", "x"), SUM, tile("b", "x")) == ["a", "b", "v"]
    assert order(tile("a", "x"), SUM, tile("b", "x", names=(A, B))) == ["a", "b", "v"]  # in the indices of the first


@pytest.mark.parametrize(
    "later",
    [tile("b", "x", row="v"), tile("a", "x")],
    ids=["reads the sum", "stores what is summed"],
)
def test_a_tile_that_needs_the_sum_or_its_terms_stays(later: Parallel) -> None:
    assert order(tile("a", "x"), SUM, later) == ["a", "v", later.body[0].target]


def test_a_store_to_memory_stays() -> None:
    assert order(tile("a", "x"), SUM, tile("b", "x"), outputs=("b",)) == ["a", "v", "b"]


def test_gradients_of_layer_norms_read_their_rows_once_before_the_sums() -> None:
    """One loop computes the terms of two sums of rows, and takes two columns in."""
    backward = for_dtypes(
        layer_norm().vjp(wrt=("x", "weight", "bias")), dict.fromkeys(("x", "weight", "bias", "grad_out"), "bfloat16")
    )
    [stage] = backward.stages
    sizes = own_sizes(stage.function, {"b": 8192, "n": 4096}, getattr(stage, "renamed", None))
    dtypes = {name: "float32" if name.startswith("row") else "bfloat16" for name in stage.inputs}
    lowered = stage.function.lower("H200", sizes=sizes, dtypes=dtypes)
    loop = next(one for one in lowered.program.kernels[0].body if isinstance(one, Loop))
    stored = [len(one.body) for one in loop.body if isinstance(one, Parallel) and len(one.indices) > 1]
    assert max(stored) == 4
    reduced = [place for place, one in enumerate(nested_statements(loop.body)) if isinstance(one, ReduceTile)]
    assert len(reduced) == 2
    assert np.all(np.diff(reduced) > 0)
