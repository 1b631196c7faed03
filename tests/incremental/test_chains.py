"""Residuals on several generators keep their digits: about an offset, nearly collinear, with an outlier."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sympy import Expr, Matrix, S

import redalg as ra
from tests.cases.digits import LENGTH, ROWS, Case, in_pieces, measured, named_axes, single
from tests.oracle import Oracle

b, n = ra.axes("b n")
x, y, z, t, w = ra.tensors("x[b,n] y[b,n] z[b,n] t[b,n] w[b,n]")
About = Callable[[Expr], Expr]


def plain(term: Expr) -> Expr:
    return term


def about_mean(term: Expr) -> Expr:
    return term - ra.mean(term, n)


def about_weighted_mean(term: Expr) -> Expr:
    return term - ra.sum(w * term, n) / ra.sum(w, n)


def by_cramer(*columns: Expr, about: About = about_mean, weigh: Expr = S.One) -> Expr:
    """Σ (y − Σ b·x)², b by Cramer's rule from the normal equations."""
    size = range(len(columns))

    def dot(one: Expr, other: Expr) -> Expr:
        return ra.sum(weigh * about(one) * about(other), n)

    gram = Matrix([[dot(columns[i], columns[j]) for j in size] for i in size])
    right = Matrix([dot(one, y) for one in columns])
    fit = S.Zero
    for i in size:
        changed = gram.copy()
        changed[:, i] = right
        fit += changed.det() / gram.det() * about(columns[i])
    return ra.sum(weigh * (about(y) - fit) ** 2, n)


def by_gram_schmidt(*columns: Expr, about: About = about_mean) -> Expr:
    """Σ (y − Σ b·r)², each r what is left of a column on those before it."""
    residuals = list[Expr]()
    for one in (*columns, y):
        left = about(one)
        for r in residuals:
            left = left - r * ra.sum(about(one) * r, n) / ra.sum(r * r, n)
        residuals.append(left)
    return ra.sum(residuals[-1] ** 2, n)


def adjusted() -> Expr:
    """Adjusted R² of a regression on two."""
    return 1 - (by_cramer(x, z) / (n.extent - 3)) / (ra.sum(about_mean(y) ** 2, n) / (n.extent - 1))


RESIDUALS: dict[str, tuple[Callable[[], Expr], str]] = {
    "two, Cramer": (lambda: by_cramer(x, z), "xzy"),
    "two, Cramer, through 0": (lambda: by_cramer(x, z, about=plain), "xzy"),
    "two, Gram-Schmidt": (lambda: by_gram_schmidt(x, z), "xzy"),
    "two, Gram-Schmidt, through 0": (lambda: by_gram_schmidt(x, z, about=plain), "xzy"),
    "two, weighted": (lambda: by_cramer(x, z, about=about_weighted_mean, weigh=w), "xzyw"),
    "adjusted R²": (adjusted, "xzy"),
    "three, Gram-Schmidt": (lambda: by_gram_schmidt(x, z, t), "xzty"),
    "three, any coefficients": (lambda: ra.sum(
        (y - ra.max(x, n) * x - ra.min(z, n) * z - ra.mean(t, n) * t) ** 2, n), "xzty"),
}  # fmt: skip


def columns(offset: float, apart: float) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    """x, z and t of y: all of one size, or z within `apart` of x, and t of x − z."""

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        def noise() -> np.ndarray:
            return rng.standard_normal((ROWS, LENGTH))

        first = noise()
        second = first + apart * noise() if apart else noise()
        third = first - second + (apart or 1) * noise()
        target = 2 * first - second + third / 2 + noise()
        made = {"x": first, "z": second, "t": third, "y": target}
        return {name: single(one + offset) for name, one in made.items()} | {
            "w": single(rng.uniform(1, 2, (ROWS, LENGTH)))
        }

    return draw


def outlier(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One element far from all others, in every column."""
    made = columns(0, 0)(rng)
    for name in "xzty":
        made[name][:, 7] += np.float32(1e4)
    return made


def picked(draw: Callable[[np.random.Generator], dict[str, np.ndarray]], names: str) -> Callable[[Any], Any]:
    return lambda rng: {name: one for name, one in draw(rng).items() if name in names}


DATA = {"": columns(0, 0), "at 1e4": columns(1e4, 0), "at 1e6": columns(1e6, 0), "1e-2 apart": columns(0, 1e-2),
        "1e-3 apart": columns(0, 1e-3), "with an outlier": outlier}  # fmt: skip


def case(name: str, kind: str) -> Case:
    term, names = RESIDUALS[name]
    return Case(f"{name} {kind}".strip(), lambda: (term(), "b"), picked(DATA[kind], names))


CASES = [case(name, kind) for name in RESIDUALS for kind in DATA]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_residual_keeps_the_digits_of_the_definition(one: Case) -> None:
    found = measured(one, kernel=one.name == "two, Cramer 1e-2 apart")
    assert not found.lost, found


@pytest.mark.sweep(8)
@pytest.mark.parametrize("kind", ["", "1e-2 apart", "1e-3 apart"])
@pytest.mark.parametrize("name", list(RESIDUALS))
def test_collinear_columns_cost_no_digits(name: str, kind: str) -> None:
    """Cramer's determinants lose all digits in float32, as written; their lines are found from residuals."""
    found = measured(case(name, kind), kernel=False)
    assert max(found.whole, found.pieces) <= 1e-5, found


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", list(RESIDUALS))
def test_in_float64_it_is_the_definition(name: str) -> None:
    """In pieces of unlike data, some of one element, merged in any order."""
    term, names = RESIDUALS[name]
    rng = np.random.default_rng(0)
    data = {one: rng.standard_normal((2, 40)) + np.linspace(0, 3, 40) for one in names}
    made = ra.fuse(term(), axes="b")
    want, _ = Oracle(data, {}, {"b": 2, "n": 40}).output(term(), "b")
    for got in (made(**data, backend="numpy"), in_pieces(made, data, named_axes(term(), data), n, 40, rng, parts=9)):
        np.testing.assert_allclose(got, want.astype(float), rtol=1e-9)
