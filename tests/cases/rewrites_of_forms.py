"""Properties of the rewrites that change a form: cancelled pivots, two passes, folds, sums at an extremum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import ulp
from typing import Any

import numpy as np
from sympy import Abs, Ge, Le, exp, log, sqrt

import redalg as ra
from redalg.decompose.verdict.passes import split_cascade
from redalg.expression import Cast, Element
from redalg.incremental.arrange.orient import orient_products
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.incremental.fix_pivots import fix_pivots
from redalg.lower_tile.check.interpret import interpret

b, n = ra.axes("b n")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
EPSILON = 2.0**-53
FAR = 2.0**40


def eighths(*shape: int, seed: int = 0) -> np.ndarray:
    """Values to which FAR is added without rounding."""
    return np.random.default_rng(seed).integers(-16, 17, shape) / 8


def pieces(fused: ra.Fused, extents: dict[str, int] | None = None, **tensors: np.ndarray) -> Any:
    """`finish` of merged pieces, of lengths 2, 1 and the rest."""
    length = next(iter(tensors.values())).shape[1]
    parts = [
        fused.leaf({name: one[:, start:end] for name, one in tensors.items()}, start={n: start}, extents=extents)
        for start, end in pairwise((0, 2, 3, length))
    ]
    return fused.finish(fused.merge(fused.merge(parts[0], parts[1]), parts[2]))


def raw_moments() -> None:
    """From raw moments of data at 2^40, a variance and a covariance lose what their deviations lose, no more."""
    near, beside = eighths(2, 12), eighths(2, 12, seed=1)
    for expr, wanted in (
        (ra.mean(x**2, n) - ra.mean(x, n) ** 2, near.var(1)),
        (ra.mean(x * y, n) - ra.mean(x, n) * ra.mean(y, n),
         ((near - near.mean(1, keepdims=True)) * (beside - beside.mean(1, keepdims=True))).mean(1)),
    ):  # fmt: skip
        fused = ra.fuse(expr)
        size = 4 * near.std(1) * beside.std(1) + 4 * near.var(1)  # of the sums of products that are rounded
        tensors = {name: one + FAR for name, one in (("x", near), ("y", beside)) if name in fused.cascade.inputs()}
        for got in (fused(**tensors, backend="numpy"), pieces(fused, **tensors)):
            assert (np.abs(got - wanted) <= 64 * EPSILON * size).all()
    assert 64 * EPSILON * size.max() < ulp(FAR**2) / 1e6, "raw moments would not pass"


def extremum_less_mean() -> None:
    """The largest deviation of data at 2^40, to its own last digits; a mean rounded at 2^40 keeps 12 bits of them."""
    near = eighths(4, 13)
    room = 32 * EPSILON * np.abs(near).max()
    for expr, wanted in (
        (ra.max(x, n) - ra.mean(x, n), near.max(1) - near.mean(1)),
        (ra.max(Abs(x - ra.mean(x, n)), n), np.abs(near - near.mean(1, keepdims=True)).max(1)),
    ):
        fused = ra.fuse(expr)
        for got in (fused(x=near + FAR, backend="numpy"), pieces(fused, x=near + FAR)):
            assert (np.abs(got - wanted) <= room).all()
    plain = (near + FAR).max(1) - (near + FAR).mean(1)
    assert (np.abs(plain - near.max(1) + near.mean(1)) > room).any(), "what is not cancelled would pass"


def two_passes() -> None:
    """The second pass takes the first one's values as tensors, and rounds exactly as the definition does."""
    largest = ra.max(Abs(x), n)
    expr = ra.sum(ra.cast(x / largest * 448, "float8_e4m3fn") * largest / 448 * w, n)
    exact = ra.fuse(expr, exact=True)
    assert len(exact.passes) == 2
    values = np.exp2(np.random.default_rng(0).uniform(-3, 3, (3, 64))).cumsum(1)  # the scale grows all along
    weights = np.random.default_rng(1).standard_normal((3, 64))
    wanted = exact.reference(x=values, w=weights)
    size = (np.abs(values) * np.abs(weights)).sum(1)
    got = exact(x=values, w=weights, backend="numpy")
    assert (np.abs(got - wanted) <= 64 * EPSILON * size).all()
    rounded = pieces(ra.fuse(expr), x=values, w=weights)
    assert (np.abs(rounded - wanted) > 1e6 * EPSILON * size).any(), "the rounding would not tell the two apart"
    first, second = split_cascade(exact.cascade, [one.value for one in exact.cascade.reductions if one.name == "max_0"])
    assert [one.name for one in first.outputs] == ["max_0"]
    assert not any(one.name == "max_0" for one in second.reductions)
    assert any(isinstance(one, Element) and one.name == "max_0" for one in second.elements())


def number_of_elements_known() -> None:
    """A product over sums with a share of the number of elements: one pass that takes the number from the call."""
    fused = ra.fuse(ra.prod(x - 1 / n.extent, n), passes=2)
    assert len(fused.passes) == 1
    values = np.random.default_rng(0).uniform(1, 2, (3, 24))
    wanted = (values - 1 / 24).prod(1)
    for got in (fused(x=values, backend="numpy"), pieces(fused, extents={"n": 24}, x=values)):
        np.testing.assert_allclose(got, wanted, rtol=96 * EPSILON)


def folds() -> None:
    """A block folded at once, and in any pieces, is what joining one element after the other gives."""
    scale, shift = np.random.default_rng(0).uniform(-1, 1, (2, 3, 11))
    fused = ra.fuse({"scan": (ra.affine(w, x, n)[1], "b"), "best": (ra.argmax(x, n), "b"),
                     "total": (ra.compensated_sum(x, n), "b"), "product": (ra.prod(w, n), "b")})  # fmt: skip
    state, size = np.zeros(3), np.zeros(3)
    for place in range(11):
        state = scale[:, place] * state + shift[:, place]
        size = np.abs(scale[:, place]) * size + np.abs(shift[:, place])
    for got in (fused(w=scale, x=shift, backend="numpy"), pieces(fused, w=scale, x=shift)):
        assert (np.abs(got.scan - state) <= 22 * EPSILON * size).all()
        np.testing.assert_array_equal(got.best, shift.argmax(1))
        np.testing.assert_allclose(got.total, shift.sum(1), rtol=0, atol=11 * EPSILON * np.abs(shift).sum())
        np.testing.assert_allclose(got.product, scale.prod(1), rtol=22 * EPSILON)


def at_the_extremum(extremum: Callable[..., Any]) -> None:
    """Every element that attains the extremum counts, ties included, and no other; and all others, where they are."""
    reached = extremum(x, n)
    beyond = Ge(x, reached) if extremum is ra.max else Le(x, reached)
    of_x = np.random.default_rng(0).integers(-2, 3, (4, 9)).astype(float)
    of_w = np.random.default_rng(1).integers(-8, 9, (4, 9)).astype(float)
    best = of_x.max(1, keepdims=True) if extremum is ra.max else of_x.min(1, keepdims=True)
    wanted = np.where(of_x == best, of_w, 0).sum(1)
    for condition in (ra.eq(x, reached), beyond, beyond.reversed):
        fused = ra.fuse(ra.sum(ra.where(condition, w, 0), n))
        others = ra.fuse(ra.sum(ra.where(ra.logical_not(condition), 3 * w, 0), n))
        for got in (fused(x=of_x, w=of_w, backend="numpy"), pieces(fused, x=of_x, w=of_w)):
            np.testing.assert_array_equal(got, wanted)
        for got in (others(x=of_x, w=of_w, backend="numpy"), pieces(others, x=of_x, w=of_w)):
            np.testing.assert_array_equal(got, 3 * (of_w.sum(1) - wanted))


def power_of_a_factor() -> None:
    """Π x/A with x^n or A^n out of range; of a factor of either sign; of 0 and of what is not finite as computed."""
    near = 1 + eighths(3, 40) / 64
    largest = ra.max(Abs(x), n)
    fused = ra.fuse(ra.prod(x / largest, n))
    for scale in (1.0, 2.0**40, 2.0**-40):
        wanted = np.prod(near / np.abs(near).max(1, keepdims=True), 1)
        for got in (fused(x=scale * near, backend="numpy"), pieces(fused, x=scale * near)):
            np.testing.assert_allclose(got, wanted, rtol=80 * EPSILON)
    turned = ra.fuse(ra.prod(x * ra.min(y, n), n))
    for length in (3, 4):
        got = turned(x=near[:, :length], y=-near[:, :length], backend="numpy")
        np.testing.assert_allclose(got, np.prod(near[:, :length] * -near[:, :length].max(1, keepdims=True), 1))
    beyond = np.array([[0.0, 0.0], [np.inf, 1.0]])
    assert np.isnan(fused(x=beyond, backend="numpy")).all()
    assert (fused(x=near[:, :0], backend="numpy") == 1).all()


def rate_of_a_difference() -> None:
    """At 2^40 + x, x in eighths, differences are exact: powers of any base are those of x, to their last digits."""
    near = eighths(3, 40)
    top, low = near.max(1, keepdims=True), near.min(1, keepdims=True)
    k = ra.scalars("k", positive=True)
    for expr, wanted in (
        (3 ** (x - ra.max(x, n)), 3.0 ** (near - top)),
        (2 ** (ra.min(x, n) - x), 2.0 ** (low - near)),
        (exp(k * (x - ra.max(x, n))), np.exp(0.3 * (near - top))),
    ):
        fused = ra.fuse(ra.sum(expr, n))
        given = {"k": 0.3} if expr.has(k) else {}
        np.testing.assert_allclose(fused(x=near + FAR, **given, backend="numpy"), wanted.sum(1), rtol=64 * EPSILON)
        if not given:
            np.testing.assert_allclose(pieces(fused, x=near + FAR), wanted.sum(1), rtol=64 * EPSILON)


def scale_that_a_root_takes() -> None:
    """Norms and a cosine of data whose powers leave float64's range, to the digits that a scale of 2^k leaves alone."""
    near, beside = eighths(3, 40), eighths(3, 40, seed=1)
    size = np.linalg.norm(near, axis=1)
    cosine = (near * beside).sum(1) / (size * np.linalg.norm(beside, axis=1))
    for scale in (1.0, 2.0**600, 2.0**-600):
        for expr, wanted in (
            (ra.norm(x, n), scale * size),
            (ra.norm(x, n, p=3), scale * (np.abs(near) ** 3).sum(1) ** (1 / 3)),
            (ra.cosine_similarity(x, y, n), cosine),
            (log(ra.sum(x**2, n)), 2 * np.log(size) + 2 * np.log(scale)),
        ):
            fused = ra.fuse(expr)
            tensors = {"x": scale * near, "y": beside / scale} if "y" in fused.cascade.inputs() else {"x": scale * near}
            for got in (fused(**tensors, backend="numpy"), pieces(fused, **tensors)):
                np.testing.assert_allclose(got, wanted, rtol=64 * EPSILON, atol=64 * EPSILON * scale * 2.0**-900)
    for scale in (1.0, 2.0**600, 2.0**-600):  # beside a number the larger of the two is the unit
        got = ra.fuse(sqrt(ra.mean(x**2, n) + 1))(x=scale * near, backend="numpy")
        np.testing.assert_allclose(got, np.hypot(scale * size / np.sqrt(40), 1), rtol=64 * EPSILON)
    for expr in (ra.mean(x**2, n), ra.norm(x, n) + ra.sum(x**2, n)):
        assert not ra.fuse(expr).form.pivots, "the sum itself is asked for"


def scale_that_a_term_takes() -> None:
    largest, near = ra.max(Abs(x), n), eighths(3, 40)
    fused = ra.fuse(ra.sum((x / largest) ** 4, n))
    wanted = ((near / np.abs(near).max(1, keepdims=True)) ** 4).sum(1)
    for scale in (1.0, 2.0**300, 2.0**-300):
        for got in (fused(x=scale * near, backend="numpy"), pieces(fused, x=scale * near)):
            np.testing.assert_allclose(got, wanted, rtol=64 * EPSILON)


def rounded_once() -> None:
    """The first pass rounds for every column together: the second one's sum holds what it made, and no cast."""
    X, W = ra.tensors("X[m,k] W[n,k]")
    k = ra.axes("k")
    largest = ra.max(Abs(X), k)
    exact = ra.fuse(ra.sum(ra.cast(X / largest * 448, "float8_e4m3fn") * W, k) * largest, axes="m n", exact=True)
    assert len(exact.passes) == 2
    assert not any(factor.has(Cast) for one in exact.form.accumulators for factor in one.factors)
    random = np.random.default_rng(0)
    arrays = {"X": random.standard_normal((3, 40)), "W": random.standard_normal((5, 40))}
    scale = np.abs(arrays["X"]).max(1, keepdims=True)
    size = 448 * np.abs(arrays["X"]) @ np.abs(arrays["W"]).T
    wanted = (NumpyOps("float64").round_to(arrays["X"] / scale * 448, "float8_e4m3fn") @ arrays["W"].T) * scale
    assert (np.abs(exact(**arrays, backend="numpy") - wanted) <= 40 * EPSILON * size).all()


def turned_products() -> None:
    """Σ f·g = Σ g·f: the form's outputs are the same numbers, and its first factor has the output's first axis."""
    X, W = ra.tensors("X[m,k] W[n,k]")
    form = ra.fuse(ra.sum(X * W, ra.axes("k")), axes="m n").form
    turned = orient_products(form)
    assert [str(factor) for factor in turned.accumulators[0].factors] == ["X[m, k]", "W[n, k]"]
    assert form.accumulators[0].factors == turned.accumulators[0].factors[::-1]
    assert orient_products(turned) == turned


def row_factors_leave_the_loop() -> None:
    """(448/s[m])·x[m,k] is s's part once a row, and rounds to what the definition does but for ties."""
    X, W, s = ra.tensors("X[m,k] W[n,k] s[m]")
    k = ra.axes("k")
    form = ra.fuse(ra.sum(ra.cast(448 * X / s, "float8_e4m3fn") * W, k), axes="m n")
    random = np.random.default_rng(0)
    arrays = {"X": random.standard_normal((5, 70)), "W": random.standard_normal((6, 70)), "s": 2.0 ** np.arange(5)}
    known = {"sizes": {"m": 5, "n": 6, "k": 70}, "dtypes": dict.fromkeys(arrays, "float64")}
    program = form.lower("c", **known).program
    ahead, loop = program.kernels[0].body[0], program.kernels[0].body[-2]
    assert "s[" in str(ahead), "s is read once a row"
    assert "s[" not in str(loop), "and never in the loop"
    made, wanted = interpret(program, arrays)["out"], form.reference(**arrays)
    size = np.abs(448 * arrays["X"] / arrays["s"][:, None]) @ np.abs(arrays["W"]).T
    assert (np.abs(made - wanted) <= 70 * EPSILON * size).all()


def weights_in_outputs() -> None:
    """exp(q·(u − m)) stands in an output about the safe m: 0 where nothing counts, as by definition elsewhere."""
    x = ra.tensor("x[b,n]")
    n = ra.axes("n")
    weights = ra.let("w", exp((x - ra.max(x, n)) / 2))
    form = ra.fuse({"w": (weights, "b n"), "total": (ra.sum(weights, n), "b")})
    values = np.random.default_rng(0).standard_normal((3, 40))
    values[1], values[2, ::2] = -np.inf, -np.inf
    program = form.lower("c", {"b": 3, "n": 40}, {"x": "float64"}).program
    with np.errstate(invalid="ignore"):
        made, wanted = interpret(program, {"x": values})["w"], form.reference(x=values).w
    assert "exp(" in str(program)
    assert "isfinite" not in str(program)
    np.testing.assert_allclose(made[[0, 2]], wanted[[0, 2]], rtol=4 * EPSILON)
    assert (made[1] == 0).all()


def fixed_pivots() -> None:
    """A pivot along the columns may be any finite number: fixed at element 0, finite or not, outputs are the same."""
    X, Y = ra.tensors("X[m,k] Y[k,n]")
    n, k = ra.axes("n k")
    made = ra.fuse(ra.mean((X - ra.mean(X, k)) * (Y - ra.mean(Y, k)), k), axes="m n")
    still = fix_pivots(made.form, n)
    assert [one.base for one in still.pivots] == [X], "the rows' pivot still moves"
    assert all(str(one.value) != "c_0" or one in still.pivots for one in made.form.pivots if one.base == X)
    still.verify()
    random = np.random.default_rng(0)
    arrays = {"X": random.standard_normal((3, 40)), "Y": random.standard_normal((40, 5))}
    for first in (arrays["Y"][0, 0], FAR):
        arrays["Y"][0] = first
        wanted = made.reference(**arrays)
        other = replace(made)
        vars(other)["form"] = still
        got = other(**arrays, backend="numpy")
        size = np.abs(arrays["X"]).max() * (np.abs(arrays["Y"]).max() + np.abs(first))
        assert (np.abs(got - wanted) <= 40 * EPSILON * size).all()
    assert fix_pivots(made.form, None) == made.form
    assert fix_pivots(still, n) == still
