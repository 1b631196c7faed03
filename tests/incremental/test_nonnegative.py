"""What is at least 0 by its definition is so in every backend, though `finish` makes it as a difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from sympy import Add, Expr, Max, sqrt

import redalg as ra
from redalg.incremental.derive.nonnegative import gram_difference
from redalg.lower_tile.check.interpret import interpret
from tests.cases.kernels import problem

b, n = ra.axes("b n")
x, y, s = ra.tensors("x[b,n] y[b,n] s[b,n]")
w = ra.tensor("w[b,n]", positive=True)
CONSTANT = 40


def total(term: Expr) -> Expr:
    return ra.sum(term, n)


def residual() -> Expr:
    """Of x on y, through the origin: 0 where x is a multiple of y."""
    return total((x - y * total(x * y) / total(y**2)) ** 2)


def weighted(weight: Expr) -> Expr:
    return total(weight * x**2) / total(weight) - (total(weight * x) / total(weight)) ** 2


SQUARES: dict[str, Callable[[], Expr]] = {
    "residual": residual,
    "scaled residual": lambda: 3 * residual() / n.extent,
    "masked residual": lambda: total(ra.where(s > 0, (x - y * total(x * y) / total(y**2)) ** 2, 0)),
    "Cauchy": lambda: total(x**2) * total(y**2) - total(x * y) ** 2,
    "by weights": lambda: weighted(w),
    "by a softmax": lambda: weighted(ra.softmax(s, n)),
    "sums alone": lambda: total(w * x**2) - total(w * x) ** 2 / total(w),
    "a product": lambda: total((x - ra.mean(x, n)) ** 2 * (y - ra.mean(y, n)) ** 2),
}


def degenerate(length: int, dtype: str) -> dict[str, np.ndarray]:
    """Rows of equal elements, x a multiple of y: every square above is 0 there."""
    rng = np.random.default_rng(length)
    sizes = 10.0 ** rng.uniform(-3, 3, (2, CONSTANT, 1))
    given = {name: np.repeat(rng.standard_normal((CONSTANT, 1)) * size, length, 1)
             for name, size in zip("xy", sizes, strict=True)}  # fmt: skip
    given |= {"s": rng.standard_normal((CONSTANT, length)), "w": rng.uniform(0.1, 1, (CONSTANT, length))}
    return {name: one.astype(dtype) for name, one in given.items()}


def tile_program(form: ra.Fused, given: Mapping[str, np.ndarray]) -> np.ndarray:
    lowered = form.lower("c", **problem(form, {name: torch.from_numpy(one) for name, one in given.items()}))
    return interpret(lowered.program, dict(given))["out"]


def in_pieces(form: ra.Fused, given: Mapping[str, np.ndarray]) -> np.ndarray:
    length = given["x"].shape[1]
    states = [form.leaf({name: one[:, first : first + 2] for name, one in given.items()}, start={n: first})
              for first in range(0, length, 2)]  # fmt: skip
    merged = states[0]
    for one in states[1:]:
        merged = form.merge(merged, one)
    return np.asarray(form.finish(merged))


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("length", [1, 7])
def test_a_square_is_not_negative(name: str, length: int) -> None:
    form = ra.fuse(SQUARES[name](), axes="b")
    for dtype in ("float32", "float64"):
        given = {key: one for key, one in degenerate(length, dtype).items() if key in form.cascade.inputs()}
        made = {"numpy": form(**given, backend="numpy"), "pieces": in_pieces(form, given)}
        made["torch"] = form(**{key: torch.from_numpy(one) for key, one in given.items()}, backend="torch").numpy()
        made |= {"tile program": tile_program(form, given)} if dtype == "float32" else {}
        for backend, values in made.items():
            assert (values >= 0).all(), (backend, dtype, values.min())


@pytest.mark.parametrize("name", ["residual", "Cauchy", "by a softmax"])
def test_the_root_of_a_square_is_a_number_in_a_kernel(name: str) -> None:
    form = ra.fuse(sqrt(SQUARES[name]()), axes="b")
    given = degenerate(7, "float32")
    assert (
        form(**{key: torch.from_numpy(given[key]) for key in form.cascade.inputs()}, backend="tilelang")
        .isfinite()
        .all()
    )


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("backend", ["numpy", "torch", "tile program"])
def test_a_square_of_nan_is_nan(name: str, backend: str) -> None:
    form = ra.fuse(SQUARES[name](), axes="b")
    given = {key: one for key, one in degenerate(5, "float32").items() if key in form.cascade.inputs()}
    given["x"][0, 3] = np.nan
    given |= {"s": np.abs(given["s"]) + 1} if name == "masked residual" else {}
    if backend == "tile program":
        made = tile_program(form, given)
    else:
        made = np.asarray(form(**{key: torch.from_numpy(one) for key, one in given.items()}, backend=backend))
    assert np.isnan(made).tolist() == [True] + [False] * (CONSTANT - 1)


def test_what_may_be_negative_is_left_as_it_is() -> None:
    """By weights of any sign a variance may be negative; so may a covariance."""
    any_sign = ra.tensor("v[b,n]")
    given = {"x": np.array([[1.0, 2, 4]]), "v": np.array([[1.0, -3, 1]]), "y": np.array([[3.0, 2, 1]])}
    for expr in (weighted(any_sign), total((x - ra.mean(x, n)) * (y - ra.mean(y, n)))):
        form = ra.fuse(expr, axes="b")
        made = form(**{key: given[key] for key in form.cascade.inputs()})
        np.testing.assert_allclose(made, form.reference(**{key: given[key] for key in form.cascade.inputs()}))
        assert made < 0


def test_a_variance_about_its_own_mean_needs_no_clip() -> None:
    """Its sums of equal elements are exact: the difference is 0, and the kernel stays as it was."""
    for expr in (ra.var(x, n), ra.std(x, n), total(x**2) - total(x) ** 2 / n.extent):
        form = ra.fuse(expr, axes="b").form
        exprs = [*(one.expr for one in form.assignments), *(one.expr for one in form.outputs)]
        assert not any(one.has(Max) for one in exprs)
        made = ra.fuse(expr, axes="b")(x=np.repeat(np.geomspace(1e-9, 1e9, 999)[:, None], 1000, 1).astype("float32"))
        assert (made == 0).all()


def test_a_difference_is_read_as_one_of_squares() -> None:
    form = ra.fuse(sqrt(weighted(w)), axes="b").form
    sums = {one.value: one for one in form.accumulators}
    found = [gram_difference(one, sums) for step in form.assignments for one in step.expr.atoms(Add)]
    [parts] = [one for one in found if one is not None]
    assert (parts.q.term * parts.n.term / parts.s.term**2).expand() == 1
    assert not parts.is_exact
