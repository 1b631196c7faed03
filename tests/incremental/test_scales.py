"""Range: what is standardized is right wherever its result is, though powers of the data leave the range.

Judged against formulas of NumPy in 80 bits, whose range holds every power, and which share no code with the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sympy import Abs, Expr, Max, Rational, log, sqrt

import redalg as ra
from redalg.incremental.derive.scales import for_kernels
from redalg.incremental.form import PivotPolicy
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import with_choices

b, n = ra.axes("b n")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
LEVELS = (("block", 1, 64), ("block", 3, 64), ("thread", 1, 32), ("thread", 3, 32), ("row", 1, 512))


def mean(term: Expr) -> Expr:
    return ra.mean(term, n)


def weighed(term: Expr) -> Expr:
    return ra.sum(w * term, n) / ra.sum(w, n)


def raw(term: Expr) -> Expr:
    return mean(term**2) - mean(term) ** 2


def cov(g: Any, h: Any, weights: Any = 1) -> Any:
    """The covariance of two rows, weighed."""
    weights = weights * np.ones_like(g)
    g, h = (one - (weights * one).sum() / weights.sum() for one in (g, h))
    return (weights * g * h).sum() / weights.sum()


def moment(g: Any, power: int) -> Any:
    return ((g - g.mean()) ** power).mean()


Formula = Callable[[Any, Any, Any], Any]
SPELLINGS: dict[str, tuple[Expr, Formula]] = {
    "std": (ra.std(x, n), lambda x, y, w: x.std()),
    "std, raw": (sqrt(raw(x)), lambda x, y, w: x.std()),
    "std of a sample": (ra.std(x, n, correction=1), lambda x, y, w: x.std(ddof=1)),
    "its reciprocal": (1 / sqrt(ra.var(x, n)), lambda x, y, w: 1 / x.std()),
    "weighted": (sqrt(weighed((x - weighed(x)) ** 2)), lambda x, y, w: cov(x, x, w) ** 0.5),
    "weighted, raw": (sqrt(weighed(x**2) - weighed(x) ** 2), lambda x, y, w: cov(x, x, w) ** 0.5),
    "skewness": (mean((x - mean(x)) ** 3) / ra.var(x, n) ** Rational(3, 2),
                 lambda x, y, w: moment(x, 3) / x.std() ** 3),
    "skewness, raw": ((mean(x**3) - 3 * mean(x) * mean(x**2) + 2 * mean(x) ** 3) / raw(x) ** Rational(3, 2),
                      lambda x, y, w: moment(x, 3) / x.std() ** 3),
    "kurtosis": (mean((x - mean(x)) ** 4) / ra.var(x, n) ** 2, lambda x, y, w: moment(x, 4) / moment(x, 2) ** 2),
    "weighted kurtosis": (weighed((x - weighed(x)) ** 4) / weighed((x - weighed(x)) ** 2) ** 2,
                          lambda x, y, w: (w * (x - (w * x).sum() / w.sum()) ** 4).sum() / w.sum() / cov(x, x, w) ** 2),
    "coefficient of variation": (ra.std(x, n) / mean(x), lambda x, y, w: x.std() / x.mean()),
    "dispersion": (ra.var(x, n) / mean(x), lambda x, y, w: cov(x, x) / x.mean()),
    "correlation": (ra.covariance(x, y, n) / sqrt(ra.var(x, n) * ra.var(y, n)),
                    lambda x, y, w: cov(x, y) / (x.std() * y.std())),
    "correlation, raw": ((mean(x * y) - mean(x) * mean(y)) / sqrt(raw(x) * raw(y)),
                         lambda x, y, w: cov(x, y) / (x.std() * y.std())),
    "slope": (ra.covariance(x, y, n) / ra.var(x, n), lambda x, y, w: cov(x, y) / cov(x, x)),
    "largest score": ((ra.max(x, n) - mean(x)) / ra.std(x, n), lambda x, y, w: (x.max() - x.mean()) / x.std()),
    "logarithm": (log(ra.var(x, n)), lambda x, y, w: 2 * np.log(x.std())),
    "two deviations": (sqrt(ra.var(x, n) + ra.var(y, n)), lambda x, y, w: np.hypot(x.std(), y.std())),
    "std and mean": (ra.std(x, n) + mean(x), lambda x, y, w: x.std() + x.mean()),
    "of a difference": (ra.std(x - y, n), lambda x, y, w: (x - y).std()),
    "of where": (ra.std(ra.where(w > 0.5, x, 0), n), lambda x, y, w: np.where(w > 0.5, x, 0).std()),
    "of what is counted": (sqrt(ra.sum(ra.where(w > 0.5, (x - mean(x)) ** 2, 0), n) / n.extent),
                           lambda x, y, w: np.where(w > 0.5, (x - x.mean()) ** 2, 0).mean() ** 0.5),
}  # fmt: skip
CARRIED: dict[str, tuple[Expr, Formula]] = {
    "scores": ((x - mean(x)) / ra.std(x, n), lambda x, y, w: (x - x.mean()) / x.std()),
    "layer_norm": (ra.layer_norm(x, n), lambda x, y, w: (x - x.mean()) / np.hypot(x.std(), np.sqrt(1e-5))),
    "layer_norm, weighted": (ra.layer_norm(x, n, weight=w), lambda x, y, w: w * (x - x.mean()) / np.hypot(
        x.std(), np.sqrt(1e-5))),
    "rms_norm": (ra.rms_norm(x, n, eps=Rational(1, 10**6)), lambda x, y, w: x / np.hypot(
        np.sqrt((x / x.max()) ** 2).mean() * 0 + np.abs(x).max() * np.sqrt(((x / np.abs(x).max()) ** 2).mean()), 1e-3)),
}  # fmt: skip
ALL = SPELLINGS | CARRIED


def rows(scale: float, dtype: str, length: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    noise = rng.exponential(size=(3, 3, length))
    made = {"x": scale * (2 + noise[0]), "y": scale * (1 + noise[0] + noise[1]), "w": rng.random((3, length))}
    return {name: array.astype(dtype) for name, array in made.items()}


def wanted(name: str, given: dict[str, np.ndarray]) -> Any:
    """The formula in 80 bits, whose range holds every power, row by row."""
    wide = {key: array.astype(np.longdouble) for key, array in given.items()}
    with np.errstate(all="ignore"):
        return np.array([ALL[name][1](*(wide[key][i] for key in "xyw")) for i in range(len(given["x"]))])


def error(made: Any, exact: Any) -> float:
    """The largest error, relative to the largest of the row where it is one."""
    made, exact = np.asarray(made, dtype=np.longdouble), np.asarray(exact)
    assert np.isfinite(exact).all()
    size = np.abs(exact).max(axis=1, keepdims=True) if exact.ndim > 1 else np.abs(exact)
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.max(np.abs(made - exact) / size), nan=np.inf))


def of(name: str) -> Any:
    return ra.fuse({"o": (ALL[name][0], "b n" if name in CARRIED else "b")})


def tensors_of(form: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in map(str, form.form.cascade.inputs())}


def merged(form: Any, given: dict[str, np.ndarray], rng: Any) -> Any:
    """The state of pieces, of 0 and of 1 elements among them, merged in any order."""
    cuts = [0, 0, 1, 50, 51, 200, given["x"].shape[1]]
    parts = [form.leaf({key: array[:, i:j] for key, array in given.items()}) for i, j in pairwise(cuts)]
    order = rng.permutation(len(parts))
    state = parts[order[0]]
    for place in order[1:]:
        state = form.merge(state, parts[place])
    return state


SCALES = {"f4": (1.0, 1e10, 1e25, 1e-10, 1e-25), "f8": (1.0, 1e200, 1e-200)}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", SCALES)
def test_it_is_in_range_where_the_result_is(name: str, dtype: str) -> None:
    """Whole on both array backends, and in pieces merged in any order."""
    form, rng, bound = of(name), np.random.default_rng(0), 4e-6 if dtype == "f4" else 1e-14
    for scale in SCALES[dtype]:
        given = tensors_of(form, rows(scale, dtype))
        if name == "logarithm" and scale == 1:
            continue  # near 0: its own size is no measure
        exact = wanted(name, rows(scale, dtype))
        for backend in ("numpy", "torch"):
            assert error(form(**given, backend=backend).o, exact) < bound, (scale, backend)
        if name not in CARRIED:
            assert error(form.finish(merged(form, given, rng)).o, exact) < bound, scale


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e3])
def test_numbers_of_16_bits_are_in_range(name: str, scale: float) -> None:
    form, given = of(name), rows(scale, "f2")
    made = form(**tensors_of(form, given), backend="numpy").o.astype("f8")
    exact = wanted(name, given).astype("f8")
    if np.abs(exact).max() < 6e4 and (scale != 1 or name != "logarithm"):
        size = np.abs(exact).max() + 1e-7
        assert np.max(np.abs(made - exact)) < 2e-3 * size + 1e-7


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", ["std", "std, raw", "weighted", "kurtosis", "correlation", "coefficient of variation"])
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_every_schedule_keeps_the_range(name: str, level: tuple[str, int, int]) -> None:
    form = of(name)
    for scale in (1.0, 1e25, 1e-25):
        given = rows(scale, "f4", length=260)
        assert error(lowered(form, tensors_of(form, given), level), wanted(name, given)) < 4e-6, scale


def lowered(form: Any, given: dict[str, np.ndarray], level: tuple[str, int, int]) -> Any:
    """What the tile program of a schedule computes."""
    sizes, dtypes = {"b": 3, "n": given["x"].shape[1]}, {name: str(array.dtype) for name, array in given.items()}
    plan = form.lower("c", sizes=sizes, dtypes=dtypes, precision="wide").plan
    plan = with_choices(plan, level=level[0], segments=level[1], block_streamed=level[2], block_row=2)
    return interpret(form.lower("c", sizes=sizes, dtypes=dtypes, plan=plan, precision="wide").program, given)["o"]


# ---- hostile data ----------------------------------------------------------------------------------------------------


def runs(form: Any, given: dict[str, np.ndarray]) -> list[Any]:
    """The results of every way to run a form."""
    made = [form(**given, backend=backend).o for backend in ("numpy", "torch")]
    made.append(form.finish(merged(form, given, np.random.default_rng(1))).o)
    return [*made, *(lowered(form, given, level) for level in LEVELS)]


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25])
def test_one_outlier(scale: float) -> None:
    """The rest vanishes beside an element 1e30 times as large, or is at its mean beside one that is as far."""
    form, given = of("std"), rows(scale, "f4")
    given["x"][0, 7] = np.float32(1e30) if scale < 1e20 else np.float32(1e-5)
    given["x"][1] = np.float32(scale)
    given["x"][1, 100] = np.float32(-scale)
    for made in runs(form, tensors_of(form, given)):
        assert error(made, wanted("std", given)) < 4e-6


@pytest.mark.sweep(2)
@pytest.mark.parametrize("value", [0.0, 3e25, -3e-25, 1e-45])
def test_equal_elements(value: float) -> None:
    form = of("std")
    given = {"x": np.full((3, 300), value, "f4")}
    for made in runs(form, given):
        assert not np.asarray(made).any()
    assert not of("layer_norm")(x=given["x"], backend="numpy").o.any()


def test_no_elements_and_one() -> None:
    form = of("std")
    nothing = form.leaf({"x": np.zeros((3, 0), "f4")})
    single = form.leaf({"x": np.full((3, 1), 1e30, "f4")})
    assert np.isnan(np.asarray(form.finish(nothing).o)).all()
    for state in (single, form.merge(nothing, single), form.merge(single, nothing), form.merge(single, single)):
        assert not np.asarray(form.finish(state).o).any()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 60, 299])
def test_what_is_no_number_reaches_its_row_alone(bad: float, place: int) -> None:
    form, given = of("std"), {"x": rows(1e25, "f4")["x"]}
    given["x"][1, place] = bad
    exact = wanted("std", rows(1e25, "f4"))
    for made in runs(form, given):
        assert not np.isfinite(np.asarray(made)[1])
        assert error(np.asarray(made)[[0, 2]], exact[[0, 2]]) < 4e-6


def test_an_element_of_no_weight_scales_nothing() -> None:
    """Beside one of 1e4 and weight 0; in its units squares of small numbers would vanish."""
    form, given = of("weighted"), rows(1.0, "f4")
    given["x"][:, 5], given["w"][:, 5] = 1e4, 0
    for made in runs(form, tensors_of(form, given)):
        assert error(made, wanted("weighted", given)) < 1e-3
    [largest] = [one.term for one in form.form.extrema]
    assert largest == ra.where(ra.ne(w, 0), Abs(x), 0)


def test_what_a_mask_excludes_scales_nothing() -> None:
    inside = ra.where(n <= 100, 1, 0)
    count = ra.sum(inside, n)
    centre = ra.sum(ra.where(n <= 100, x, 0), n) / count
    form = ra.fuse({"o": (sqrt(ra.sum(ra.where(n <= 100, (x - centre) ** 2, 0), n) / count), "b")})
    given = {"x": rows(1e-25, "f4")["x"]}
    exact = given["x"][:, :101].astype(np.longdouble).std(axis=1)
    for hidden in (1e30, np.nan):
        given["x"][:, 101:] = hidden
        for level in (None, *LEVELS):
            made = form(**given, backend="numpy").o if level is None else lowered(form, given, level)
            assert error(made, exact) < 4e-6


# ---- what stays as it was --------------------------------------------------------------------------------------------

V = ra.tensor("V[n,e]")
PLAIN: dict[str, tuple[Expr, str]] = {
    "variance": (ra.var(x, n), "b"),
    "covariance": (ra.covariance(x, y, n), "b"),
    "mean of squares": (mean(x**2), "b"),
    "weighted variance": (weighed((x - weighed(x)) ** 2), "b"),
    "deviation by softmax": (sqrt(ra.sum(ra.softmax(y, n) * (x - ra.sum(ra.softmax(y, n) * x, n)) ** 2, n)), "b"),
    "a variance beside a factor": (ra.var(x, n) * mean(y), "b"),
    "a contraction": (ra.sum((x - mean(x)) * V, n) / ra.std(x, n), "b e"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_needs_the_sums_themselves_is_not_scaled(name: str) -> None:
    expr, axes = PLAIN[name]
    assert not any(one.magnitude or one.policy is PivotPolicy.SCALE for one in ra.fuse({"o": (expr, axes)}).form.pivots)


def test_kernels_scale_nothing_beside_a_number_and_nothing_of_16_bits() -> None:
    plain = of("layer_norm").form
    assert any(one.magnitude for one in plain.pivots)
    assert not any(one.magnitude for one in for_kernels(plain).pivots)
    deviation = of("std").form
    assert not any(one.magnitude for one in for_kernels(deviation, {"x": "float32"}).pivots)
    assert any(one.magnitude for one in for_kernels(deviation, {"x": "bfloat16"}, wide=True).pivots)
    assert not any(one.magnitude for one in for_kernels(deviation, {"x": "float16"}, wide=True).pivots)
    fifth = ra.fuse({"o": (mean((x - mean(x)) ** 5) / ra.std(x, n) ** 5, "b")}).form
    assert any(one.magnitude for one in for_kernels(fifth, {"x": "float16"}, wide=True).pivots)


def test_the_derivation_says_how_a_scale_moves() -> None:
    text = str(ra.fuse(ra.std(x, n)).explain())
    assert "What it shifts is divided by c_0 first." in text
    assert "ρ_c_1      = c_0/c_0′" in text
    assert "Generated kernels take the sums without it" in str(ra.fuse(ra.layer_norm(x, n)).explain())
    assert "Generated kernels take the sums without it" not in text


def test_a_scale_serves_maxima_too() -> None:
    """The range over the deviation, and one of two largest."""
    expr = Max(Abs(ra.max(x, n) - mean(x)), Abs(ra.min(x, n) - mean(x))) / ra.std(x, n)
    given = rows(1e25, "f4")["x"]
    wide = given.astype(np.longdouble)
    exact = np.abs(wide - wide.mean(axis=1, keepdims=True)).max(axis=1) / wide.std(axis=1)
    assert error(ra.fuse({"o": (expr, "b")})(x=given, backend="numpy").o, exact) < 4e-6


def test_a_call_asks_for_the_range() -> None:
    """Kernels are as fast as plain ones unless the call asks; the other backends are always in range."""
    form, given = ra.fuse(ra.std(x, n)), {"x": rows(1e25, "f4")["x"]}
    assert not np.isfinite(form(**given, backend="tilelang")).any()
    exact = form(**given, backend="numpy")
    np.testing.assert_allclose(form(**given, backend="tilelang", precision="wide"), exact, rtol=1e-5)
