"""What `curvature` says of an expression holds on numbers: directions, and the four shapes, for random expressions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import (
    Abs,
    Dummy,
    Expr,
    Max,
    Min,
    Rational,
    Symbol,
    acosh,
    asinh,
    atan,
    erf,
    exp,
    floor,
    lambdify,
    log,
    sinh,
    sqrt,
    tanh,
)

from redalg.decompose.separate.curvature import CONCAVE, CONVEX, QUASICONCAVE, QUASICONVEX, curvature
from redalg.decompose.separate.signs import Facts
from redalg.expression import Label, Value, tensor

U = Dummy("u", extended_real=True)
OVER_0 = Dummy("u", nonnegative=True)
UP, DOWN = Symbol("up", positive=True), Symbol("down", negative=True)
ANY = Symbol("any", extended_real=True)
CONSTANTS = {UP: 0.75, DOWN: -1.25}
POINTS = np.linspace(-1.5, 1.5, 31)


def values(expr: Expr, variable: Expr, points: np.ndarray, other: float) -> np.ndarray | None:
    """f at the points; None where some value is not finite and real."""
    at = expr.xreplace({**CONSTANTS, ANY: other})
    with np.errstate(all="ignore"):
        made = np.asarray(
            lambdify(variable, at, [{"erf": np.vectorize(math.erf)}, "numpy"])(points), dtype=complex
        ) + np.zeros(len(points))
    return made.real if np.isfinite(made).all() and (abs(made.imag) < 1e-12).all() else None


def holds(expr: Expr, variable: Expr, points: np.ndarray) -> None:
    """Every claim about the expression, on every pair of points and what lies halfway between."""
    found = curvature(expr, variable)
    for other in (-1.5, 0.0, 0.6):
        made = values(expr, variable, points, other)
        if made is None:
            continue
        room = 1e-9 * (1 + np.abs(made).max())
        if found.direction is not None:
            assert (found.direction * np.diff(made) >= -room).all(), f"{expr} is not of direction {found.direction}"
            assert found.direction or np.ptp(made) <= room
        low, high = np.triu_indices(len(points), 2)
        even = (high - low) % 2 == 0
        low, high = low[even], high[even]
        ends, middle = np.stack([made[low], made[high]]), made[(low + high) // 2]
        claims = {
            CONVEX: middle <= ends.mean(0) + room, CONCAVE: middle >= ends.mean(0) - room,
            QUASICONVEX: middle <= ends.max(0) + room, QUASICONCAVE: middle >= ends.min(0) - room,
        }  # fmt: skip
        for shape in found.shape:
            assert claims[shape].all(), f"{expr} is not {shape}"


CONSTANT = st.sampled_from([UP, DOWN, ANY, Rational(1, 2), Rational(-3, 2)])


def grown(parts: Any) -> Any:
    """One rule more."""
    return st.one_of(
        st.tuples(parts, parts).map(lambda pair: pair[0] + pair[1]),
        st.tuples(parts, CONSTANT).map(lambda pair: pair[0] * pair[1]),
        st.tuples(parts, CONSTANT).map(lambda pair: pair[0] + pair[1]),
        st.tuples(parts, parts).map(lambda pair: Max(*pair)),
        st.tuples(parts, CONSTANT).map(lambda pair: Min(*pair)),
        st.tuples(parts, st.sampled_from([2, 3, 4])).map(lambda pair: pair[0] ** pair[1]),
        st.tuples(st.sampled_from([Abs, exp, tanh, atan, sinh, asinh, floor]), parts).map(
            lambda pair: pair[0](pair[1])
        ),
    )


@given(st.recursive(st.just(U), grown, max_leaves=4))
def test_claims_hold_of_random_expressions(expr: Expr) -> None:
    holds(expr, U, POINTS)


@given(st.recursive(st.just(OVER_0), grown, max_leaves=4))
def test_claims_hold_of_random_expressions_over_what_is_not_negative(expr: Expr) -> None:
    holds(expr, OVER_0, POINTS - POINTS.min())


CLAIMS: list[tuple[Expr, int | None, set[str]]] = [
    (3 * U + ANY, 1, {CONVEX, CONCAVE}),
    (ANY - U, -1, {CONVEX, CONCAVE}),
    (ANY * U, None, {CONVEX, CONCAVE}),
    (Abs(U - ANY), None, {CONVEX}),
    ((U - ANY) ** 2, None, {CONVEX}),
    (exp(-U) * UP, -1, {CONVEX}),
    (-Abs(U - ANY), None, {CONCAVE}),
    (tanh(U) ** 3, 1, {QUASICONVEX, QUASICONCAVE}),
    (Abs(tanh(U)), None, {QUASICONVEX}),
    (ANY * exp(U), None, {QUASICONVEX, QUASICONCAVE}),
    (Max(U, -U) + U**2, None, {CONVEX}),
    (erf(U), 1, {QUASICONVEX, QUASICONCAVE}),
    (floor(2 * U), 1, {QUASICONVEX}),
    (sqrt(OVER_0), 1, {CONCAVE}),
    (OVER_0**3, 1, {CONVEX}),
    (log(OVER_0), 1, {CONCAVE}),
    (acosh(OVER_0), 1, {CONCAVE}),
    (1 / (OVER_0 + UP), -1, {CONVEX}),
    (Abs(OVER_0 - DOWN, evaluate=False), 1, {CONVEX, CONCAVE}),
    (Abs(DOWN - OVER_0, evaluate=False), 1, {CONVEX, CONCAVE}),
    (Max(OVER_0, DOWN, evaluate=False), 1, {CONVEX, CONCAVE}),
    (Min(-OVER_0, UP, evaluate=False), -1, {CONVEX, CONCAVE}),
]


@pytest.mark.parametrize(("expr", "direction", "shapes"), CLAIMS, ids=[str(one[0]) for one in CLAIMS])
def test_what_is_known_is_claimed(expr: Expr, direction: int | None, shapes: set[str]) -> None:
    """The rules are of use, and true."""
    variable = OVER_0 if expr.has(OVER_0) else U
    found = curvature(expr, variable)
    assert found.direction == direction
    assert shapes <= found.shape
    holds(
        expr, variable, POINTS + 3 if expr.has(acosh, log) else POINTS - POINTS.min() if variable is OVER_0 else POINTS
    )


def test_a_product_of_two_varying_factors_is_left_open() -> None:
    assert curvature(U * exp(U), U).direction is None
    assert curvature(U * exp(U), U).shape == frozenset()


M, Q = Value(Label("m")), Value(Label("q"))
X = tensor("x[n]")
FACTS: Facts = {M: ("max", Abs(X)), Q: ("sum", X**2)}


@pytest.mark.parametrize(
    ("expr", "direction"),
    [(M * U, 1), (-(U**3) / exp(M), -1), (U * (Q + UP) ** 2, 1), (Abs(OVER_0 + M), 1), (Max(OVER_0, -M), 1),
     (U * (M - Q), None), (Max(U, M), 1)],
    ids=str,
)  # fmt: skip
def test_values_have_the_signs_that_follow_from_what_they_are(expr: Expr, direction: int | None) -> None:
    variable = OVER_0 if expr.has(OVER_0) and not expr.has(U) else U
    assert curvature(expr, variable, FACTS).direction == direction


def test_a_maximum_varies_strictly_with_the_part_that_exceeds_the_others() -> None:
    assert curvature(Max(OVER_0, -M), OVER_0, FACTS).strict
    assert not curvature(Max(U, -M), U, FACTS).strict
