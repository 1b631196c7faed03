"""A tile is loaded as the one mask leaves it that it is read under, where that changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from sympy import Expr, Lt, Rational, oo, symbols

import redalg as ra
from redalg.expression import Where
from redalg.lower_tile.ir.program import Buffer, Copy, Kernel, Parallel, Statement, Store
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.masked_loads import load_masked

I, J = symbols("i j")
LIVE, OTHER = Lt(J, 50), Lt(J, 40)
X, U, DATA = Load("x", I, J), Load("u", I, J), Load("data", J)
PLAN: Any = None


def each(target: str, expr: Expr, guard: Any = True) -> Parallel:
    """A loop over a tile of 1 x 64 elements."""
    store = Store(target, (I, J), expr)
    return Parallel(((I, 1), (J, 64)), (store if guard is True else Store(target, (I, J), expr, guard),))


def after(*body: Statement, dtype: str = "bfloat16") -> list[Expr]:
    """What the loops store, after the pass."""
    tiles = (Buffer("x", "fragment", (1, 64), dtype), Buffer("u", "fragment", (1, 64), "float32"))
    kernel = load_masked(Kernel((), tiles, body, "test"), PLAN)
    return [store.expr for one in kernel.body if isinstance(one, Parallel) for store in one.body]


LOAD, MASKED = each("x", Where(LIVE, DATA, 0)), each("u", Where(LIVE, X, -oo))


def test_the_load_takes_the_mask() -> None:
    assert after(LOAD, MASKED) == [Where(LIVE, DATA, -oo), X]


@pytest.mark.parametrize("again", [
    each("out", 2 * X, LIVE), each("out", Where(LIVE, X**2, 0)), each("out", U), each("u", Where(LIVE, X, -oo)),
], ids=["guarded", "masked", "of what was masked", "twice"])  # fmt: skip
def test_reads_under_the_mask_change_nothing(again: Statement) -> None:
    assert after(LOAD, MASKED, again)[:2] == [Where(LIVE, DATA, -oo), X]


@pytest.mark.parametrize("again", [
    each("out", X), each("out", 2 * X, OTHER), each("out", Where(OTHER, X, 0)), each("u", Where(LIVE, X, oo)),
    each("x", U), Copy("x", "y"), each("out", Where(LIVE, 1, X)),
], ids=["unmasked", "another guard", "another mask", "another value", "again", "copied", "beside it"])  # fmt: skip
def test_other_reads_keep_the_zeros(again: Statement) -> None:
    assert after(LOAD, MASKED, again)[:2] == [Where(LIVE, DATA, 0), Where(LIVE, X, -oo)]


@pytest.mark.parametrize("value", [0, 1, Rational(1, 3)])
def test_numbers_stay_as_they_are(value: Expr) -> None:
    """A tile of 16 bits would round a third."""
    masked = Where(LIVE, X, value)
    assert after(LOAD, each("u", masked)) == [Where(LIVE, DATA, 0), masked]


def test_a_dtype_without_infinities_stays() -> None:
    assert after(LOAD, MASKED, dtype="float8_e4m3fn") == [Where(LIVE, DATA, 0), Where(LIVE, X, -oo)]


def test_a_load_of_16_bits_stays_one_of_vectors() -> None:
    """The text moves the element and −∞ in their own dtype: a thread converts nothing twice."""
    n = ra.axis("n")
    form = ra.fuse(ra.softmax(ra.tensor("x[b,n]"), n), axes="b n")
    text = form.source("H200", {"b": 4096, "n": 1001}, "bfloat16")
    assert 'x[first + j], -T.infinity("bfloat16"))' in text
