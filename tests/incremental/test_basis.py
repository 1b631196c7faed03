"""Transitions of a basis, in exact arithmetic: B(z − δ), on slopes B(z_x − δ, z_y − ε − σ·z_x), is what they say."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Expr, exp

import redalg as ra
from redalg.decompose.separate.laurent import Vector
from redalg.incremental.derive.basis import Pool
from redalg.incremental.derive.centre import centre

n = ra.axes("n")
x, y, z, w, v = ra.tensors("x[b,n] y[b,n] z[b,n] w[b,n] v[n,e]")


def centred(u: Expr) -> Expr:
    return u - ra.mean(u, n)


def residuals() -> Expr:
    slope = ra.sum(centred(x) * centred(y), n) / ra.sum(centred(x) ** 2, n)
    return ra.sum((centred(y) - slope * centred(x)) ** 2, n)


def through_the_origin() -> Expr:
    slope = ra.sum(x * y, n) / ra.sum(x**2, n)
    return ra.sum((y - slope * x) ** 2, n)


TERMS: dict[str, Callable[[], Expr]] = {
    "variance": lambda: ra.var(x, n),
    "fourth moment": lambda: ra.mean(centred(x) ** 4, n),
    "product": lambda: ra.mean(centred(x) * centred(y) * centred(z), n),
    "covariance": lambda: ra.mean(centred(x) * centred(w), n),
    "weighted": lambda: ra.sum(w * (x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2, n),
    "weighted columns": lambda: ra.sum(w * (x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2 * v, n),
    "under exponentials": lambda: ra.sum(exp(w - ra.max(w, n)) * centred(x) ** 3, n),
    "residuals": residuals,
    "residuals through the origin": through_the_origin,
}
PIVOTED = [name for name in TERMS if not name.startswith("residuals")]
"""Those that move by displacements of pivots alone."""


def pool_of(expr: Expr) -> Pool:
    """The pool of a cascade's sums, with every written centre."""
    decomposition = ra.fuse(expr).decomposition
    sums = [one for one in decomposition.separations if one.reduction.monoid.name == "sum"]
    return Pool(decomposition.separator.atoms, [centre(one, decomposition.separator) for one in sums])


def evaluated(vector: Vector, point: Mapping[int, Fraction]) -> Fraction:
    """A polynomial at a point, exactly."""
    total = Fraction(0)
    for monomial, c in vector.items():
        term = c
        for atom, q in monomial:
            assert q.denominator == 1
            term *= point[atom] ** int(q)
        total += term
    return total


def moved(pool: Pool, point: Mapping[int, Fraction], delta: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """The generators after the move: each less its own δ, and less σ·z_x of every slope on an unmoved z_x."""
    made = {atom: at - (delta[atom] if atom in pool.pivoted else 0) for atom, at in point.items()}
    for key in pool.keys:
        pair = pool.slope(key)
        if pair is not None:
            over, on = pair
            made[over] -= delta[key] * point[on]
    return made


@pytest.mark.parametrize("name", TERMS)
def test_a_transition_is_the_basis_moved(name: str) -> None:
    pool, rng = pool_of(TERMS[name]()), random.Random(0)
    assert pool.functions
    for _ in range(10):
        point = {atom: Fraction(rng.randint(-9, 9), rng.randint(1, 9)) for atom in range(len(pool.atoms.list))}
        point = {atom: at or Fraction(1, 7) for atom, at in point.items()}
        delta = {key: Fraction(rng.randint(-9, 9), rng.randint(1, 9)) for key in pool.keys}
        after = moved(pool, point, delta)
        for number, function in enumerate(pool.functions):
            told = Fraction(0)
            for other, row in pool.transition(number).items():
                assert pool.functions[other].grade == function.grade
                for shift, c in row.items():
                    size = prod((delta[key] ** int(power) for key, power in shift), start=c)
                    told += size * evaluated(pool.functions[other].vector, point)
            assert told == evaluated(function.vector, after)


def matrix(pool: Pool, shift: dict[int, float]) -> np.ndarray:
    """The transition A at given displacements of the pivots."""
    size = len(pool.functions)
    made = np.zeros((size, size))
    for row in range(size):
        for column, terms in pool.transition(row).items():
            made[row, column] = sum(
                float(c) * np.prod([shift[atom] ** int(q) for atom, q in power]) for power, c in terms.items()
            )
    return made


def at(pool: Pool, points: np.ndarray, shift: dict[int, float]) -> np.ndarray:
    """The basis functions of one exponential grade at random values of the atoms, pivots moved by `shift`."""
    made = []
    for function in pool.functions:
        total = 0.0
        for monomial, c in function.vector.items():
            factors = [(points[atom] - shift.get(atom, 0.0)) ** float(q) for atom, q in monomial]
            total = total + float(c) * np.prod(factors, axis=0)
        made.append(np.broadcast_to(total, points.shape[1:]))
    return np.array(made)


@pytest.mark.parametrize("name", PIVOTED)
@given(st.integers(0, 2**32 - 1))
def test_transitions_move_the_basis(name: str, seed: int) -> None:
    """B(z − δ) = A(δ) B(z); A(0) = I; A(δ₂) A(δ₁) = A(δ₁ + δ₂)."""
    pool, rng = pool_of(TERMS[name]()), np.random.default_rng(seed)
    first, second = ({atom: float(rng.uniform(-2, 2)) for atom in pool.pivoted} for _ in range(2))
    points = rng.uniform(0.5, 2, (len(pool.atoms.list), 7))
    assert pool.pivoted
    np.testing.assert_allclose(
        matrix(pool, first) @ at(pool, points, {}), at(pool, points, first), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(matrix(pool, dict.fromkeys(pool.pivoted, 0.0)), np.eye(len(pool.functions)))
    both = {atom: first[atom] + second[atom] for atom in pool.pivoted}
    np.testing.assert_allclose(matrix(pool, second) @ matrix(pool, first), matrix(pool, both), rtol=1e-9, atol=1e-9)


def test_slopes_are_among_the_keys() -> None:
    """The cases hold slopes, with a shift of the regressor and without one."""
    with_shift, without = pool_of(residuals()), pool_of(through_the_origin())
    assert [pool.slope(pool.keys[-1]) is not None for pool in (with_shift, without)] == [True, True]
    assert with_shift.pivoted
    assert not without.pivoted


def test_a_move_of_nothing_changes_nothing() -> None:
    for make in TERMS.values():
        pool = pool_of(make())
        for number in range(len(pool.functions)):
            unmoved = {other: row[()] for other, row in pool.transition(number).items() if () in row}
            assert unmoved == {number: 1}
