"""Loops over rows that store what leaves a block are one loop, under one condition where theirs is one."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import S
from sympy.logic.boolalg import Boolean

from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Buffer, Kernel, Parallel, Parameter, Store, TileProgram, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.join import fuse_row_loops
from redalg.lower_tile.text.emit import Emitter

I, BLOCK = index("i"), index("block")
PLACE, LIVE = BLOCK * 4 + I, BLOCK * 4 + I < 7
ROW = Buffer("row", "fragment", (4,), "float32")


def loop(target: str, expr: object, guard: Boolean = LIVE) -> Parallel:
    place = I if target == "row" else PLACE
    return Parallel(((I, 4),), (Store(target, (place,), S(expr), guard),))


def program(*body: Parallel) -> TileProgram:
    parameters = tuple(Parameter(name, (7,), "float32", "input" if name == "x" else "output", name) for name in "xyz")
    return TileProgram("p", parameters, (Kernel(((BLOCK, 2),), (ROW,), body, "test"),), "float32")


FIRST = loop("row", Load("x", PLACE) + 1, S.true)
CASES = {
    "two outputs": ((loop("y", Load("row", I)), loop("z", 2 * Load("row", I))), 1),
    "one output twice": ((loop("y", Load("row", I)), loop("y", 2 * Load("row", I))), 2),
    "an output that is read": ((loop("y", Load("row", I)), loop("z", Load("y", PLACE))), 2),
    "a number of the row beside an output": ((loop("y", Load("row", I)), loop("row", Load("x", PLACE), S.true)), 2),
    "other conditions": ((loop("y", Load("row", I)), loop("z", Load("row", I), PLACE < 5)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_stored_by_one_loop(name: str) -> None:
    """parallel i: A; parallel i: B  →  parallel i: A; B, where each stores to a parameter of its own."""
    (first, second), loops = CASES[name]
    apart = (FIRST, first, second)
    both = fuse_row_loops(apart, frozenset({"row"}))
    assert len(both) == 1 + loops
    inputs = {"x": np.arange(7, dtype="f")}
    before, after = interpret(program(*apart), inputs), interpret(program(*both), inputs)
    for key in before:
        np.testing.assert_array_equal(before[key], after[key])


@pytest.mark.parametrize(("name", "conditions"), [("two outputs", 1), ("other conditions", 2)])
def test_a_condition_stands_once(name: str, conditions: int) -> None:
    one = program(*fuse_row_loops((FIRST, *CASES[name][0]), frozenset({"row"})))
    last = one.kernels[0].body[-1]
    assert isinstance(last, Parallel)
    assert "\n".join(Emitter(one).parallel(last)).count("if ") == conditions
