"""Factors that sums share: the sums stay what they are, and the text multiplies by the shared product."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sympy import Expr, Mul, Rational, S, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import Buffer, Fill, Kernel, Parallel, Parameter, Store, TileProgram, index
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.factors import share_factors

ROWS, NAMES = 5, ("a", "b", "c")
I, BLOCK = index("i"), index("block")
SUMS = {name: Load(name, I) for name in ("first", "second", "third")}
FACTORS: tuple[Expr, ...] = (
    *(Load(name, I) for name in NAMES),
    *SUMS.values(),
    sqrt(1 + Load("a", I) ** 2) ** -1,
    (1 + Load("b", I) ** 2) ** Rational(-3, 2),
    Load("c", I) ** 2,
    S(3),
)


def program(*stores: tuple[str, Expr]) -> TileProgram:
    """A program whose loop stores expressions to sums, and then the sums."""
    parameters = tuple(Parameter(name, (ROWS,), "float64", "input", name) for name in NAMES)
    outputs = tuple(Parameter(f"{name}_out", (ROWS,), "float64", "output", f"{name}_out") for name in SUMS)
    loop = Parallel(((I, ROWS),), tuple(Store(name, (I,), expr) for name, expr in stores))
    ends = Parallel(((I, ROWS),), tuple(Store(f"{name}_out", (I,), read) for name, read in SUMS.items()))
    body = (*(Fill(name, S(2)) for name in SUMS), loop, ends)
    buffers = tuple(Buffer(name, "fragment", (ROWS,), "float64") for name in SUMS)
    return TileProgram("p", (*parameters, *outputs), (Kernel(((BLOCK, 1),), buffers, body, "test"),), "float64")


def shared(one: TileProgram) -> TileProgram:
    """A program after the pass."""
    [kernel] = one.kernels
    return replace(one, kernels=(replace(kernel, body=share_factors(kernel.body)),))


def run(one: TileProgram) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return interpret(one, {name: rng.normal(size=ROWS) for name in NAMES})


def exprs(one: TileProgram) -> list[Expr]:
    """What the loop over the sums stores."""
    loop = one.kernels[0].body[len(SUMS)]
    assert isinstance(loop, Parallel)
    return [store.expr for store in loop.body]


TERMS = st.lists(st.sampled_from(FACTORS), min_size=1, max_size=4).map(lambda factors: Mul(*factors))


@given(st.lists(st.tuples(st.sampled_from(sorted(SUMS)), TERMS, st.sampled_from((1, -1))), min_size=2, max_size=4))
def test_sums_stay_what_they_are(stores: list[tuple[str, Expr, int]]) -> None:
    before = program(*((name, SUMS[name] + sign * term) for name, term, sign in stores))
    after = shared(before)
    verify(after)
    for name, result in run(before).items():
        np.testing.assert_allclose(run(after)[name], result, rtol=1e-13, atol=1e-13)


def test_what_several_sums_multiply_by_is_one_product() -> None:
    a, b, c = (Load(name, I) for name in NAMES)
    one = shared(program(("first", SUMS["first"] + a * b), ("second", SUMS["second"] + a * b * c)))
    assert [str(expr) for expr in exprs(one)] == ["(a[i]*b[i]) + first[i]", "(a[i]*b[i])*c[i] + second[i]"]


def test_a_factor_that_is_overwritten_in_between_is_not_shared() -> None:
    a, b, c = (Load(name, I) for name in NAMES)
    first = SUMS["first"]
    before = program(("second", SUMS["second"] + first * a * b), ("first", c), ("third", SUMS["third"] + first * a * c))
    assert shared(before) == before


def test_one_shared_factor_saves_nothing() -> None:
    a, b, c = (Load(name, I) for name in NAMES)
    before = program(("first", SUMS["first"] + a * b), ("second", SUMS["second"] + a * c))
    assert shared(before) == before


def test_a_force_multiplies_every_component_by_one_number() -> None:
    i, j, d, e = ra.axes("i j d e")
    x, w, y = ra.Tensor("x"), ra.tensor("w[j]"), ra.Tensor("y")
    square = ra.sum((x[i, d] - y[j, d]) ** 2, d)
    force = ra.sum(w * (x[i, e] - y[j, e]) / (square + Rational(1, 100)) ** Rational(3, 2), j)
    sizes = {"i": 4096, "j": 4096, "d": 3, "e": 3}
    text = ra.fuse(force, axes="i e").source("H200", sizes=sizes, dtypes="float32")
    weight = r"= inverse_root \* inverse_root \* inverse_root \* w_tile\[run \* \d+ \+ j\]$"
    assert len(re.findall(weight, text, re.MULTILINE)) == 1
    assert len(re.findall(r"(sum_0_\d_run\[i\]) = \1 \+ \w+ \* difference", text)) == 3
