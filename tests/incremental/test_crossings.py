"""Sums about a centre that lies far from the data, or is made of other data: they lose no digit and no range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sympy import Expr, sqrt, tanh

import redalg as ra
from redalg.decompose.separate import laurent
from redalg.incremental.derive.crossings import without_centres

b, n = ra.axes("b n")
p, w, x, y = ra.tensors("p[b,n] w[b,n] x[b,n] y[b,n]")
t = ra.tensor("t[b]")
FAR: dict[str, Callable[[], Expr]] = {
    "chosen by a sign": lambda: (t * ra.sum(w, n) + p) * ra.where(t > 0, n.extent, p),
    "beside itself": lambda: (p - t) * p - (p - t) * w,
    "a mean": lambda: (t * ra.mean(w, n) + p) * ra.where(t > 0, n.extent, p),
    "to the third": lambda: (p - t) * p**2 + (p - t) * w,
}


def worst(form: ra.Fused, given: dict[str, np.ndarray]) -> float:
    wanted = form.reference(**given)
    made = [form(**given, backend="numpy")]
    pieces = [form.leaf({name: one if name == "t" else one[:, first : first + 3] for name, one in given.items()},
                        start={n: first}) for first in range(0, 9, 3)]  # fmt: skip
    merged = form.merge(pieces[2], form.merge(pieces[1], pieces[0]))
    made.append(form.finish(merged, {"t": given["t"]} if "t" in given else None))
    return max(float(np.max(np.abs(one - wanted) / np.abs(wanted))) for one in made)


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("centre", [1e3, -1e7, 1e11])
def test_a_centre_far_from_all_data_costs_no_digit(name: str, centre: float) -> None:
    rng = np.random.default_rng(1)
    form = ra.fuse(ra.sum(FAR[name](), n), axes="b")
    given = {one: rng.uniform(0.5, 1, (2, 9)) for one in form.cascade.inputs() if one != "t"}
    given |= {"t": np.array([-centre, centre])} if "t" in form.cascade.inputs() else {"w": given["w"] * centre}
    assert worst(form, given) <= 1e-13


def test_a_centre_near_the_data_keeps_its_digits() -> None:
    """Σ (p − t)·p of p = t + 1e-6·z is 1e-6·Σ z·p: the deviations are those of the data."""
    rng = np.random.default_rng(2)
    form = ra.fuse(ra.sum((t * ra.sum(w, n) + p) * ra.where(t > 0, n.extent, p), n), axes="b")
    given = {"w": np.full((2, 8), 1 / 8), "t": np.array([-1e6, -3e5])}
    given["p"] = -given["t"][:, None] + rng.uniform(0.5, 1, (2, 8))
    wanted = ((given["p"] + given["t"][:, None]) * given["p"]).sum(1)
    np.testing.assert_allclose(form(**given), wanted, rtol=1e-14)


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e200])
@pytest.mark.parametrize("centre", ["a size", "another sum", "a row"])
def test_a_centre_of_other_data_is_not_taken_over_a_scale(size: float, centre: str) -> None:
    c = {"a size": n.extent, "another sum": ra.sum(w, n), "a row": t}[centre]
    form = ra.fuse(ra.sum((c + x) * (c + y), n) / ra.sum(w, n), axes="b")
    rng = np.random.default_rng(3)
    given = {name: rng.uniform(0.5, 1, (2, 5)) for name in "wxy"} | {"t": rng.uniform(0.5, 1, 2)}
    given |= {"x": given["x"] * size, "y": given["y"] / max(size, 1)}
    given = {name: given[name] for name in form.cascade.inputs()}
    np.testing.assert_allclose(form(**given, backend="numpy"), form.reference(**given), rtol=1e-13)


POSITIVE = ra.sum(ra.where(x > 0, 1, 0), n)
ROOT = sqrt(ra.sum(abs(x), n))
SHRINKING = {
    "a count": ra.sum(((POSITIVE + x) * (POSITIVE + abs(x)) + w * x) * p, n) / ra.sum(p, n),
    "a count beside a function": ra.sum((POSITIVE + tanh(x)) * (POSITIVE + abs(x)) * p, n) / ra.sum(p, n),
    "a count beside a product": ra.sum((POSITIVE + w * x) * (POSITIVE + abs(x)) * p, n) / ra.sum(p, n),
    "a root": sqrt(ra.sum((abs(x) - ROOT) ** 2 * p, n)),
}


@pytest.mark.parametrize("name", SHRINKING)
@pytest.mark.parametrize("size", [1e-310, 1e-200, 1])
def test_a_centre_that_does_not_shrink_as_the_data_is_not_taken_over_their_scale(size: float, name: str) -> None:
    """Found by the fuzzer, seed 34004411: a count over a scale of 1e-310 is infinite; over 1e-200 it hid all digits."""
    form = ra.fuse(SHRINKING[name], axes="b")
    rng = np.random.default_rng(6)
    given = {name: rng.uniform(0.5, 1, (2, 5)) for name in "pw"} | {"x": size * rng.standard_normal((2, 5))}
    given = {name: given[name] for name in form.cascade.inputs()}
    np.testing.assert_allclose(form(**given, backend="numpy"), form.reference(**given), rtol=1e-12)


def test_a_centre_of_the_data_themselves_keeps_its_scale() -> None:
    form = ra.fuse(sqrt(ra.sum((x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2, n)), axes="b")
    rng = np.random.default_rng(4)
    x_, w_ = rng.standard_normal((2, 7)), rng.uniform(0.5, 1, (2, 7))
    np.testing.assert_allclose(form(x=1e200 * x_, w=w_), 1e200 * form(x=x_, w=w_), rtol=1e-13)


def symbol(number: int) -> laurent.Polynomial:
    return {((), ((number, 1),)): 1}


def test_terms_are_kept_where_a_centre_is_no_shorter() -> None:
    """v alone stays v, which δ + c would be two terms of."""
    v, delta, c = (symbol(number) for number in range(3))
    moved = laurent.add(delta, c)
    assert without_centres([v], [(v, moved)]) == [v]
    product, square = laurent.multiply(v, delta), laurent.multiply(delta, delta)
    [made] = without_centres([product, laurent.scale(square, -1)], [(v, moved)])
    assert made == laurent.multiply(delta, c)


def test_a_centre_that_is_a_number_stays() -> None:
    """Found by the fuzzer: v = 1/2 has no value to be replaced."""
    form = ra.fuse(ra.sum((p - ra.mean(p, n) + 0.5) * p, n), axes="b")
    given = {"p": np.random.default_rng(5).standard_normal((2, 6))}
    np.testing.assert_allclose(form(**given), form.reference(**given), rtol=1e-12)
