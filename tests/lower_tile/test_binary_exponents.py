"""Exponentials of matrix products as powers of 2, and masks of computed operands: the programs mean the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sympy import Expr, exp, log, sqrt, tanh

import redalg as ra
from redalg.expression import Element, Label
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import TileProgram
from redalg.lower_tile.passes.order import PASSES
from redalg.lower_tile.place.build import assemble
from redalg.runtime.lowering import kernel_dtype, results
from redalg.strategies.schedule import numbers_of

q, k, c, d = ra.axes("q k c d")
S = ra.sum(ra.tensor("Q[q,c]") * ra.tensor("K[k,c]"), c)
G = ra.sum(ra.tensor("G[q,c]") * ra.tensor("V[k,c]"), c)
Z, D = Element(Label("rows", "finite"), q), ra.tensor("D[q]")
SIZES = {"q": 200, "k": 136, "c": 64, "d": 64}
EXPONENTS = {"scaled": S / sqrt(64) - Z, "plain": S - Z, "alone": 2 * S, "of a function": 3 * tanh(S) - Z,
             "of two terms": S / sqrt(64) + (k - q) * ra.tensor("a") / 64 - Z,
             "of powers of 2": S / sqrt(64) - log(2) * Z}  # fmt: skip


def gradients(exponent: Expr, *, masked: bool) -> ra.Fused:
    """Two sums over q that share a weight, as backwards have them."""
    weight = exp(exponent)

    def product(operand: Expr, rows: str) -> Expr:
        term = operand * ra.tensor(f"{rows}[q,d]")
        return ra.sum(ra.where(k <= q, term, 0) if masked else term, q)

    return ra.fuse({"a": (product(ra.cast((G - D) * weight, "float16"), "X"), "k d"),
                    "b": (product(ra.cast(weight, "float16"), "Y"), "k d")})  # fmt: skip


def programs(form: ra.Fused) -> list[TileProgram]:
    """The program ahead of every pass, and after the last."""
    dtypes = {one.name: "float32" if one.name in ("rows", "D") else "float16" for one in form.cascade.elements()}
    lowered = form.lower("sm_90a", sizes=SIZES, dtypes=dtypes)
    plan = numbers_of(lowered.plan)
    made = {name: kernel_dtype(dtype, "sm_90a") for name, dtype in results(lowered.stages, lowered.problem).items()}
    found = [assemble(lowered.stages, plan, lowered.problem, made)]
    for each in PASSES:
        found.append(each.apply(found[-1], plan))
    return found


def exponential_lines(form: ra.Fused) -> list[str]:
    """The lines of the kernel with its exponentials."""
    dtypes = {one.name: "float32" if one.name in ("rows", "D") else "float16" for one in form.cascade.elements()}
    return [one for one in form.source("sm_90a", sizes=SIZES, dtypes=dtypes).splitlines() if "T.exp2(" in one]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", EXPONENTS)
def test_every_pass_means_the_program_that_it_is_given(name: str, masked: bool) -> None:
    found = programs(gradients(EXPONENTS[name], masked=masked))
    changed = {each.name for each, (before, after) in zip(PASSES, pairwise(found), strict=True) if before != after}
    assert ("binary exponents" in changed) == (name != "of a function")
    assert ("choices" in changed) == (name == "of two terms")
    assert "whole tiles" in changed  # the end of q at least
    generator = np.random.default_rng(0)
    data = {one.name: (generator.standard_normal([int(size) for size in one.shape]) / 4).astype(one.dtype)
            for one in found[0].parameters if one.role == "input"}  # fmt: skip
    meant = [interpret(program, data) for program in dict.fromkeys(found)]
    for before, after in pairwise(meant):
        for key, value in before.items():
            np.testing.assert_allclose(after[key], value, rtol=2e-3, atol=2e-3 * float(np.abs(value).max()))


@pytest.mark.parametrize("name", ["scaled", "of two terms"])
def test_no_element_branches_around_its_exponential(name: str) -> None:
    """What it masks is computed first: a mask of every element is asked of the tiles that need it, or chosen after."""
    lines = exponential_lines(gradients(EXPONENTS[name], masked=True))
    assert lines
    assert not any("if_then_else" in one for one in lines)


def test_a_logarithm_of_base_2_is_multiplied_by_nothing() -> None:
    lines = exponential_lines(gradients(EXPONENTS["of powers of 2"], masked=True))
    assert lines
    assert all(one.rstrip(")").endswith(", -rows_tile[j]") for one in lines)


def test_a_weight_that_two_products_share_is_computed_once() -> None:
    form = gradients(EXPONENTS["scaled"], masked=True)
    dtypes = {one.name: "float32" if one.name in ("rows", "D") else "float16" for one in form.cascade.elements()}
    text = form.source("sm_90a", sizes=SIZES, dtypes=dtypes)
    kernel = text[text.index("with T.Kernel") : text.index("def compiled")]
    assert kernel.count("T.exp2(") == 1
    assert (
        kernel.count("T.copy(rows[") == kernel.count("T.copy(D[") == 1
    )  # loaded with the tile, not element by element
    assert kernel.count("    if ") == 2
