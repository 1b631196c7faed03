"""Generators that are kept whole: their moments keep the digits that a difference of raw sums loses, and their range.

Judged against 80 bits by `tests.cases.generators`, which shares no code with the engine, and against the same formula
pass by pass in float32, in the worst of three orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sympy import Expr, Rational, exp, log, oo, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import with_choices
from tests.cases import generators
from tests.oracle import Oracle

b, n = ra.axes("b n")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
LEVELS = (("block", 1, 64), ("block", 3, 64), ("thread", 1, 32), ("thread", 3, 32), ("row", 1, 512))


def mean(term: Expr) -> Expr:
    return ra.mean(term, n)


def error(made: Any, exact: Any) -> float:
    """The largest relative error; of two that are no numbers, 0."""
    made, exact = np.asarray(made, dtype=np.longdouble), np.asarray(exact, dtype=np.longdouble)
    same = (made == exact) | (np.isnan(made) & np.isnan(exact))
    with np.errstate(all="ignore"):
        return float(np.max(np.where(same, 0, np.abs(made - exact) / np.abs(exact))))


def tensors_of(form: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in map(str, form.cascade.inputs())}


# ---- the table of generators -----------------------------------------------------------------------------------------


def test_there_are_sixty_seven_generators() -> None:
    assert len(generators.GENERATORS) == 67


@pytest.mark.sweep(3)
@pytest.mark.parametrize("form", generators.FORMS)
def test_no_generator_loses_its_digits(form: str) -> None:
    """Beyond 1e-4 and 20 times what an unfused float32 evaluation loses; the parts of it are merged as well."""
    given = generators.data(2048)
    orders = (slice(None), np.argsort(given["x"]), np.random.default_rng(1).permutation(2048))
    lost = {}
    for name in generators.GENERATORS:
        exact = generators.unfused(name, form, given, np.longdouble)
        unfused = max(error(generators.unfused(name, form, given, np.float32, one), exact) for one in orders)
        expr = generators.expression(name, form)
        fused = ra.fuse(expr)
        call = tensors_of(fused, given) | ({"a": generators.A} if generators.SYMBOLIC.a in expr.free_symbols else {})
        found = error(fused(**call, backend="numpy"), exact)
        if not found <= max(1e-4, 20 * unfused):
            lost[name] = (found, unfused)
    assert not lost


# ---- other spellings, and values beside each other -------------------------------------------------------------------


def weighed(weights: Expr) -> Any:
    """The mean with weights, of an expression."""
    return lambda term: ra.sum(weights * term, n) / ra.sum(weights, n)


def covariance(m: Any, g: Any, h: Any) -> Any:
    return m((g - m(g)) * (h - m(h)))


SHARES = ra.softmax(x, n)
SPELLINGS: dict[str, tuple[Expr, str]] = {
    "covariance": (covariance(mean, exp(x), exp(y)), "cov(E, F)"),
    "covariance, raw": (mean(exp(x) * exp(y)) - mean(exp(x)) * mean(exp(y)), "cov(E, F)"),
    "covariance with y, raw": (mean(exp(x) * y) - mean(exp(x)) * mean(y), "cov(E, y)"),
    "correlation": (covariance(mean, exp(x), exp(y)) / sqrt(ra.var(exp(x), n) * ra.var(exp(y), n)),
                    "cov(E, F) / (cov(E, E) * cov(F, F)) ** .5"),
    "slope": (covariance(mean, exp(x), y) / ra.var(exp(x), n), "cov(E, y) / cov(E, E)"),
    "weighted": (covariance(weighed(w), exp(x), exp(x)), "cov(E, E, w)"),
    "weighted, raw": (weighed(w)(exp(2 * x)) - weighed(w)(exp(x)) ** 2, "cov(E, E, w)"),
    "weighted by exponentials": (covariance(weighed(exp(y)), exp(x), exp(x)), "cov(E, E, F)"),
    "weighted by exponentials, raw": (weighed(exp(y))(exp(2 * x)) - weighed(exp(y))(exp(x)) ** 2, "cov(E, E, F)"),
    "of shares": (ra.var(SHARES, n), "cov(P, P)"),
    "of shares, raw": (mean(SHARES**2) - mean(SHARES) ** 2, "cov(P, P)"),
    "from equal shares": (ra.sum((SHARES - 1 / n.extent) ** 2, n), "cov(P, P) * len(P)"),
    "third, raw": (mean(exp(3 * x)) - 3 * mean(exp(x)) * mean(exp(2 * x)) + 2 * mean(exp(x)) ** 3,
                   "((E - E.mean()) ** 3).mean()"),
    "kurtosis": (mean((exp(x) - mean(exp(x))) ** 4) / ra.var(exp(x), n) ** 2,
                 "((E - E.mean()) ** 4).mean() / cov(E, E) ** 2"),
    "coefficient of variation": (sqrt(ra.var(exp(x), n)) / mean(exp(x)), "cov(E, E) ** .5 / E.mean()"),
    "logarithm": (log(ra.var(exp(x), n)), "log(cov(E, E))"),
    "beside its own x": (ra.var(exp(x), n) + ra.var(x, n), "cov(E, E) + cov(x, x)"),
    "about its maximum": (mean((exp(x) - ra.max(exp(x), n)) ** 2), "((E - E.max()) ** 2).mean()"),
    "below its maximum": (ra.var(exp(x - ra.max(x, n)), n), "cov(E / E.max(), E / E.max())"),
    "masked": (weighed(ra.where(w > 0.3, 1, 0))(exp(2 * x)) - weighed(ra.where(w > 0.3, 1, 0))(exp(x)) ** 2,
               "cov(E, E, w > 0.3)"),
}  # fmt: skip


def written(text: str, given: dict[str, np.ndarray]) -> Any:
    """A formula in 80 bits, row by row."""

    def row(x: Any, y: Any, w: Any) -> Any:
        def cov(g: Any, h: Any, weights: Any = 1) -> Any:
            weights = weights * np.ones_like(g)
            g, h = (one - (weights * one).sum() / weights.sum() for one in (g, h))
            return (weights * g * h).sum() / weights.sum()

        names = {"x": x, "y": y, "w": w, "E": np.exp(x), "F": np.exp(y), "P": np.exp(x) / np.exp(x).sum()}
        return eval(text, {"cov": cov, "log": np.log, "len": len, **names})

    return np.array([row(*(given[name][i].astype(np.longdouble) for name in "xyw")) for i in range(3)])


def rows(offset: float, spread: float, dtype: str = "f4", length: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    noise = rng.exponential(size=(3, 3, length)) - 1
    made = {"x": offset + spread * noise[0], "y": 1.7 + 2e-3 * (noise[1] + noise[0]), "w": 0.1 + np.abs(noise[2])}
    return {name: array.astype(dtype) for name, array in made.items()}


@pytest.mark.parametrize("name", SPELLINGS)
def test_any_spelling_keeps_its_digits(name: str) -> None:
    expr, text = SPELLINGS[name]
    given = rows(1.3, 1e-3)
    form = ra.fuse({"o": (expr, "b")})
    call = tensors_of(form, given)
    for backend in ("numpy", "torch"):
        assert error(form(**call, backend=backend).o, written(text, given)) < 2e-4


TOP = ra.max(w * x, n)
DEVIATIONS = {
    "squares": ra.sum((x - TOP) ** 2 * (y - TOP) ** 2, n),
    "beside another sum": ra.sum((x - TOP) ** 2 * (y - TOP) ** 2, n) * ra.sum(y, n),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_products_of_deviations_stay_products(name: str) -> None:
    """Found by the fuzzer, seed 34000789: x·y − m·x − m·y + m², kept whole on lines, lost what x − m and y − m keep."""
    rng = np.random.default_rng(3)
    given = {"x": 1 + 1e-6 * rng.uniform(size=(2, 9)), "y": 1 + 1e-6 * rng.uniform(size=(2, 9)), "w": np.ones((2, 9))}
    form = ra.fuse(DEVIATIONS[name], axes="b")
    exact, _ = Oracle(given, {}, {"b": 2, "n": 9}).output(DEVIATIONS[name], "b")
    assert error(form(**given, backend="numpy"), exact) < 1e-8


# ---- the range of an exponential -------------------------------------------------------------------------------------

RANGE: dict[str, Expr] = {
    "written": sqrt(ra.var(exp(x), n)) / mean(exp(x)),
    "raw": sqrt(mean(exp(2 * x)) - mean(exp(x)) ** 2) / mean(exp(x)),
    "skewness": mean((exp(x) - mean(exp(x))) ** 3) / ra.var(exp(x), n) ** Rational(3, 2),
}
PLACES = ((50, 1e-3), (700, 1e-3), (-700, 1e-3), (0, 1e4), (1e4, 1e-2))


def standardized(name: str, given: np.ndarray) -> Any:
    """The same of exp(x − max x), which differs by nothing."""
    e = np.exp(given.astype(np.longdouble) - given.max(axis=1, keepdims=True))
    e = e / e.mean(axis=1, keepdims=True) - 1
    second, third = (e**2).mean(axis=1), (e**3).mean(axis=1)
    return third / second**1.5 if name == "skewness" else second**0.5


@pytest.mark.parametrize("name", RANGE)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_no_exponential_leaves_the_range(name: str, dtype: str) -> None:
    """std(exp x)/mean(exp x) at x ≈ 50 and 700, and of logits of ±1e4; whole, and in pieces merged in any order."""
    form, rng = ra.fuse({"o": (RANGE[name], "b")}), np.random.default_rng(0)
    for offset, spread in PLACES:
        given = rows(offset, spread, dtype)["x"]
        parts = [form.leaf({"x": given[:, i:j]}) for i, j in ((0, 7), (7, 7), (7, 200), (200, 499), (499, 500))]
        order = rng.permutation(len(parts))
        state = parts[order[0]]
        for place in order[1:]:
            state = form.merge(state, parts[place])
        for made in (form(x=given, backend="numpy"), form(x=given, backend="torch"), form.finish(state)):
            assert error(made.o, standardized(name, given)) < (3e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize("form", ["variance", "raw"])
def test_a_product_in_range_is_not_made_of_factors_that_are_not(form: str) -> None:
    """var(exp x) = exp(2m)·(…): at x ≈ 50 the first factor alone is beyond float32."""
    given = rows(47, 1e-3)
    made = ra.fuse({"o": (generators.FORMS[form](mean, exp(x), None), "b")})
    tiles = lowered(made, {"x": given["x"]}, LEVELS[1])
    assert error(made(x=given["x"], backend="numpy").o, written("cov(E, E)", given)) < 3e-5
    assert error(tiles, written("cov(E, E)", given)) < 3e-5


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["written", "skewness"])
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_every_schedule_keeps_digits_and_range(name: str, level: tuple[str, int, int]) -> None:
    form = ra.fuse({"o": (RANGE[name], "b")})
    for offset, spread in ((1.3, 1e-3), (700, 1e-3), (0, 1e4)):
        given = rows(offset, spread, length=260)["x"]
        made = lowered(form, {"x": given}, level)
        assert error(made, standardized(name, given)) < 5e-5, (offset, spread)


def lowered(form: Any, given: dict[str, np.ndarray], level: tuple[str, int, int]) -> Any:
    """What the tile program of a schedule computes."""
    sizes, dtypes = {"b": 3, "n": given["x"].shape[1]}, {name: str(array.dtype) for name, array in given.items()}
    plan = form.lower("c", sizes=sizes, dtypes=dtypes).plan
    plan = with_choices(plan, level=level[0], segments=level[1], block_streamed=level[2], block_row=2)
    return interpret(form.lower("c", sizes=sizes, dtypes=dtypes, plan=plan).program, given)["o"]


def test_the_c_target_does_what_the_interpreter_does() -> None:
    torch = pytest.importorskip("torch")
    form = ra.fuse({"o": (RANGE["written"], "b"), "v": (covariance(weighed(w), exp(x), exp(x)), "b")})
    given = rows(30, 1e-3)
    made = form(**{one: torch.from_numpy(given[one]) for one in "xw"}, backend="tilelang")
    assert error(made.o.numpy(), standardized("written", given["x"])) < 3e-5
    assert error(made.v.numpy(), written("cov(E, E, w)", given)) < 3e-5


# ---- what counts for nothing, and what is no number ------------------------------------------------------------------


@pytest.mark.sweep(2)
@pytest.mark.parametrize("level", [None, *LEVELS], ids=str)
def test_an_exponential_of_minus_infinity_is_data(level: tuple[str, int, int] | None) -> None:
    """exp(−∞) = 0 is an element of the variance; of nothing else it is 0; NaN and +∞ make their row no number."""
    given = rows(1.3, 1e-3)["x"]
    given[0, ::3] = given[0, :90] = -np.inf
    given[1] = -np.inf
    form = ra.fuse({"o": (ra.var(exp(x), n), "b")})
    exact = np.exp(given.astype(np.longdouble)).var(axis=1)
    made = form(x=given, backend="numpy").o if level is None else lowered(form, {"x": given}, level)
    assert error(made, exact) < 1e-5
    assert made[1] == 0
    for bad in (np.nan, np.inf):
        hostile = given.copy()
        hostile[:, 400] = bad
        made = form(x=hostile, backend="numpy").o if level is None else lowered(form, {"x": hostile}, level)
        assert not np.isfinite(made).any()


@pytest.mark.parametrize("level", [None, *LEVELS], ids=str)
def test_what_a_mask_excludes_is_not_read(level: tuple[str, int, int] | None) -> None:
    """Σ over n ≤ 100·b: row 0 has one element; what lies beyond may be anything."""
    count = ra.sum(ra.where(n <= 100 * b, 1, 0), n)
    centre = ra.sum(ra.where(n <= 100 * b, exp(x), 0), n) / count
    expr = ra.sum(ra.where(n <= 100 * b, (exp(x) - centre) ** 2, 0), n) / count
    form, given = ra.fuse({"o": (expr, "b")}), rows(1.3, 1e-3)["x"]
    exact = np.array([np.exp(given[i, : 100 * i + 1].astype(np.longdouble)).var() for i in range(3)])
    for i in range(3):
        given[i, 100 * i + 1 :] = 1e4 if i else np.nan
    made = form(x=given, backend="numpy").o if level is None else lowered(form, {"x": given}, level)
    assert error(made[1:], exact[1:]) < 5e-5
    assert abs(made[0]) < 1e-12


def test_no_elements_and_one() -> None:
    form = ra.fuse({"o": (ra.var(exp(x), n), "b")})
    state = form.leaf({"x": np.full((3, 0), 0, "f4")})
    one = form.leaf({"x": np.full((3, 1), 80, "f4")})  # exp(2·80) is out of range, and 0 times it is 0
    assert np.isnan(np.asarray(form.finish(state).o)).all()
    assert error(form.finish(form.merge(form.merge(state, one), state)).o, np.zeros(3)) == 0


# ---- what stays as it was --------------------------------------------------------------------------------------------

v, s = ra.tensors("v[n,e] s[b,n]")
PLAIN: dict[str, Expr] = {
    "attention": ra.sum(ra.softmax(s, n) * v, n),
    "entropy": -ra.sum(ra.softmax(s, n) * ra.log_softmax(s, n), n),
    "logsumexp": log(ra.sum(exp(s), n)),
    "participation": ra.sum(exp(s), n) ** 2 / ra.sum(exp(2 * s), n) / n.extent,
    "weighted variance": covariance(weighed(exp(s)), x, x),
    "masked": ra.sum(ra.softmax(ra.where(n <= b, s, -oo), n) * v, n),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_no_difference_loses_is_taken_apart(name: str) -> None:
    assert not any(one.scales for one in ra.fuse({"o": PLAIN[name]}).form.pivots)


def test_a_root_is_whole_only_where_its_square_is_never_needed_without_it() -> None:
    """E[x] − E[√x]² is no number of x < 0, but E[x] is."""
    form = ra.fuse({"spread": (mean(x) - mean(sqrt(x)) ** 2, "b"), "level": (mean(x), "b")})
    assert error(form(x=-np.ones((3, 5)), backend="numpy").level, -np.ones(3)) == 0


def test_the_derivation_says_how_a_scaled_pivot_moves() -> None:
    text = str(ra.fuse(ra.var(exp(x), n)).explain())
    assert "ρ_c_0      = exp(aux_0 − aux_0′)" in text
    assert "δ_c_0      = c_0′ − ρ_c_0·c_0" in text
    assert "No term was written about a centre" not in text
