"""Names for numbers of an element: where a kernel has many, and that they change no result."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sympy import Add, symbols

import redalg as ra
from redalg.expression import Where
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Parallel, Store, nested_statements
from redalg.lower_tile.ir.scalars import IsFinite, Kept, Load
from redalg.lower_tile.passes.elements import LONGEST, MANY, MOST_TERMS, cancelled_names, long_names

n, l = ra.axes("n l")
m, r = ra.tensors("m[n] r[n,l]")
CENTRE = ra.sum(m * r, n) / ra.sum(m, n)
INERTIA = ra.sum(m * ra.sum((r - CENTRE) ** 2, l), n)
SIZES = {"n": 3001, "l": 3}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_moment_of_inertia_of_one_row_has_names(target: str) -> None:
    form = ra.fuse(INERTIA, axes="")
    lowered = form.lower(target, sizes=SIZES, dtypes="float32")
    names = [[one for one in kernel.buffers if one.scope == "element"] for kernel in lowered.program.kernels]
    assert max(map(len, names)) >= MANY
    for kernel, elements in zip(lowered.program.kernels, names, strict=True):
        stores = [store for loop in nested_statements(kernel.body) if isinstance(loop, Parallel) for store in loop.body]
        for buffer in elements:
            assert [store.indices for store in stores if store.target == buffer.name] == [()]
            assert f"{buffer.name} = fragment" not in str(lowered.source)
    rng = np.random.default_rng(0)
    data = {"m": rng.random(3001, np.float32), "r": (100 + rng.standard_normal((3001, 3))).astype(np.float32)}
    exact = {name: array.astype(np.float64) for name, array in data.items()}
    np.testing.assert_allclose(interpret(lowered.program, data)["out"], form.reference(**exact), rtol=1e-5)


def test_few_numbers_keep_their_buffers() -> None:
    x = ra.tensor("x[b,n]")
    form = ra.fuse(ra.var(x, n), axes="b")
    for kernel in form.lower("sm_90a", sizes={"b": 64, "n": 3001}, dtypes="float32").program.kernels:
        assert all(buffer.scope != "element" for buffer in kernel.buffers)


A, B, S, X = (Load(name, *symbols("i j")) for name in "absx")
SUMS = {
    "(s + x) − s": (A - S, {"a": S + X}, {"a"}),
    "x − (a − s), a = s + x": (X - Kept(A - S), {"a": S + X}, {"a"}),
    "b − a through two names": (B - A, {"a": S + X, "b": S + 2 * X}, {"a", "b"}),
    "−a + s": (S - A, {"a": Kept(S - X)}, {"a"}),
    "a + s": (A + S, {"a": S + X}, set()),
    "a·x − s": (A * X - S, {"a": S + X}, set()),
    "a·x − a": (A * X - A, {"a": S + X}, set()),
    "2·a − s": (2 * A - S, {"a": S + X}, set()),
}


@pytest.mark.parametrize("name", SUMS)
def test_names_are_not_looked_through(name: str) -> None:
    """TileLang makes (s + x) − s an x where it sees the sum; it sees none in a buffer."""
    total, meaning, wanted = SUMS[name]
    assert cancelled_names(total, meaning) == wanted


def test_a_sum_of_too_many_terms_is_not_looked_through() -> None:
    many = Add(*(Load(f"t{number}") for number in range(MOST_TERMS + 1)))
    assert cancelled_names(A - B, {"a": many, "b": many}) == {"a", "b"}


def test_compensated_sums_keep_their_buffers() -> None:
    x = ra.tensor("x[b,n]")
    outputs = {"sum": ra.compensated_sum(x, n), "kurtosis": ra.mean((x - ra.mean(x, n)) ** 4, n) / ra.var(x, n) ** 2}
    form = ra.fuse({name: (one, "b") for name, one in outputs.items()})
    for kernel in form.lower("sm_90a", sizes={"b": 2, "n": 1_000_001}, dtypes="float32").program.kernels:
        elements = {buffer.name for buffer in kernel.buffers if buffer.scope == "element"}
        for loop in (one for one in nested_statements(kernel.body) if isinstance(one, Parallel)):
            meaning = {store.target: store.expr for store in loop.body if store.target in elements}
            for node in (node for store in loop.body for node in store.expr.atoms(Add)):
                assert not cancelled_names(node, meaning)


def test_names_do_not_grow_in_each_other() -> None:
    """A chain of 40 squares stood for 2^40 numbers; a kernel of Cramer's rule compiled for more than half an hour."""
    i, j = symbols("i j")
    names = [f"a{place}" for place in range(40)]
    first = Store(names[0], (i, j), X)
    chain = [Store(new, (i, j), Load(old, i, j) * (Load(old, i, j) + 1))
             for old, new in pairwise(names)]  # fmt: skip
    loop = Parallel(((i, 8), (j, 8)), (first, *chain))
    kept = long_names(loop, set(names))
    lengths = dict[str, int]()
    for store in loop.body:
        reads = [load.name for load in (store.expr,) if isinstance(load, Load)] or [
            names[int(store.target[1:]) - 1]
        ] * 2
        within = all(name in lengths and name not in kept for name in reads)
        lengths[store.target] = sum(lengths[name] for name in reads) if within else 1
    assert max(lengths[name] for name in names if name not in kept) <= LONGEST
    assert 0 < len(kept) < len(names) / 2


@pytest.mark.parametrize("terms", [LONGEST // 2, LONGEST // 2 + 1])
def test_a_long_number_that_is_asked_to_be_finite_keeps_its_buffer(terms: int) -> None:
    """The variance of columns of weights compiled for 20 s: a condition of 14 numbers stood in many others."""
    i = symbols("i")
    parts = [Store(f"a{place}", (i,), Load("x", place, i)) for place in range(terms)]
    total = Load("total", i)
    asked = Store("finite", (i,), Where(IsFinite(total), total, 0))
    loop = Parallel(((i, 8),), (*parts, Store("total", (i,), Add(*(Load(one.target, i) for one in parts))), asked))
    named = {"total", *(one.target for one in parts)}
    assert long_names(loop, named) == ({"total"} if 2 * terms > LONGEST else set())
