"""Several passes: what one pass does not compute, computed exactly by the fewest that do, on every backend.

The definitions are written in NumPy here, in float64.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Max, Min, Rational, cos, exp, floor, oo, pi, sqrt

import redalg as ra
from redalg.decompose.verdict import passes as engine
from redalg.decompose.verdict.passes import Advice
from redalg.decompose.verdict.words import short_reductions
from redalg.expression import Value
from redalg.lower_tile.check.lint import lint
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowering import lower_passes
from redalg.strategies.schedule import numbers_of
from tests.cases.kernels import worst_error
from tests.sweeps import draws

Array = np.ndarray
b, n, k, e = ra.axes("b n k e")
j = ra.axis("j", size=3)
x, y, z, Q, K, G = ra.tensors("x[b,n] y[b,n] z[b,n,k] Q[b,k] K[n,k] G[n,e]")
BEST = ra.topk(x, n, j)[0]
p = ra.scalars("p", positive=True)
MEAN, SOFTMAX = ra.mean(x, n), ra.softmax(x, n)
DEVIATION = ra.mean(Abs(x - MEAN), n)
SCORE = ra.sum(Q * K, k)


def centred(a: Array) -> Array:
    return a - a.mean(1, keepdims=True)


def softmax(a: Array) -> Array:
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def huber(x: Array) -> Array:
    size = np.abs(centred(x))
    return np.where(size < 1, size**2 / 2, size - 0.5).sum(1)


@dataclass(frozen=True)
class Case:
    """A cascade that one pass refuses, its definition, and what each pass before the last computes."""

    expr: Any
    wanted: Callable[..., Any]
    before: tuple[tuple[str, ...], ...]
    axes: str | None = None

    @property
    def passes(self) -> int:
        return max(2, len(self.before) + 1)

    @cached_property
    def fused(self) -> ra.Fused:
        return self.fuse()

    def fuse(self, **options: Any) -> ra.Fused:
        return ra.fuse(self.expr, self.axes, **{"passes": self.passes, **options})


SUM, SOFT = (("sum_0",),), (("max_0", "sum_0"),)
CASES = {
    "mean absolute deviation": Case(DEVIATION, lambda x: np.abs(centred(x)).mean(1), SUM),
    "Huber about the mean": Case(
        ra.sum(ra.where(Abs(x - MEAN) < 1, (x - MEAN) ** 2 / 2, Abs(x - MEAN) - Rational(1, 2)), n), huber, SUM
    ),
    "share below the mean": Case(ra.mean(ra.where(x < MEAN, 1, 0), n), lambda x: (centred(x) < 0).mean(1), SUM),
    "clipped softmax": Case(
        ra.sum(Min(SOFTMAX, Rational(1, 8)) * y, n), lambda x, y: (np.minimum(softmax(x), 1 / 8) * y).sum(1), SOFT
    ),
    "top p at a threshold": Case(
        ra.sum(ra.where(p <= SOFTMAX, SOFTMAX * y, 0), n),
        lambda x, y, p: np.where(softmax(x) >= p, softmax(x) * y, 0).sum(1),
        SOFT,
    ),
    "deviations beyond the mean deviation": Case(
        ra.sum(ra.where(Abs(x - MEAN) > DEVIATION, y, 0), n),
        lambda x, y: np.where(np.abs(centred(x)) > np.abs(centred(x)).mean(1, keepdims=True), y, 0).sum(1),
        (("sum_0",), ("sum_1",)),
    ),
    "product of distances from a share": Case(
        ra.prod(x - 1 / n.extent, n), lambda x: (x - 1 / x.shape[1]).prod(1), ()
    ),
    "distance from a bin": Case(
        ra.sum(Abs(y - ra.sum(x * cos(2 * pi * 3 * n / n.extent), n)), n),
        lambda x, y: np.abs(y - np.fft.fft(x)[:, 3:4].real).sum(1),
        SUM,
    ),
    "logistic with a reduced slope": Case(
        ra.sum(1 / (1 + exp(-x * ra.mean(y, n))), n),
        lambda x, y: (1 / (1 + np.exp(-x * y.mean(1)[:, None]))).sum(1),
        SUM,
    ),
    "largest above the mean": Case(
        ra.max(ra.where(x > MEAN, y, -oo), n), lambda x, y: np.where(centred(x) > 0, y, -np.inf).max(1), SUM
    ),
    "distance from the largest's place": Case(
        ra.sum(Abs(n - ra.argmax(x, n)) * y, n),
        lambda x, y: (np.abs(np.arange(x.shape[1]) - x.argmax(1)[:, None]) * y).sum(1),
        (("argmax_0",),),
    ),
    "product of distances": Case(ra.prod(x - MEAN, n), lambda x: centred(x).prod(1), SUM),
    "place of the largest deviation": Case(
        ra.argmax(Abs(x - MEAN) * y, n), lambda x, y: (np.abs(centred(x)) * y).argmax(1), SUM
    ),
    "weights beside a kink": Case(
        ra.sum(Abs(x - MEAN) * ra.softmax(y, n), n),
        lambda x, y: (np.abs(centred(x)) * softmax(y)).sum(1),
        (("sum_1",),),
    ),
    "several outputs, one that carries the axis": Case(
        {"mad": (DEVIATION, "b"), "var": (ra.var(x, n), "b"), "z": ((x - MEAN) / DEVIATION, "b n"), "s": (MEAN, "b")},
        lambda x: (
            np.abs(centred(x)).mean(1), x.var(1), centred(x) / np.abs(centred(x)).mean(1, keepdims=True), x.mean(1)
        ),
        SUM,
    ),
    "two reduced axes": Case(
        ra.sum(Abs(z - ra.mean(z, n, k)), n, k), lambda z: np.abs(z - z.mean((1, 2), keepdims=True)).sum((1, 2)), SUM
    ),
    "a producer in both passes": Case(
        ra.sum(Min(ra.softmax(SCORE, n), Rational(1, 8)) * y, n),
        lambda Q, K, y: (np.minimum(softmax(Q @ K.T), 1 / 8) * y).sum(1),
        SOFT,
    ),
    "distance from the first": Case(
        ra.sum(Abs(x - ra.first(x, n)), n), lambda x: np.abs(x - x[:, :1]).sum(1), (("first_0",),)
    ),
    "below a sum of maxima": Case(
        ra.sum(ra.where(x < ra.sum(ra.max(G, n), e), x, 0), n),
        lambda x, G: np.where(x < G.max(0).sum(), x, 0).sum(1),
        (("max_0",),),
    ),
    "distance from the mean of the three largest": Case(
        ra.sum(Abs(x - ra.sum(BEST, j) / 3), n),
        lambda x: np.abs(x - np.sort(x, 1)[:, -3:].mean(1, keepdims=True)).sum(1),
        (("topk_values_0",),),
    ),
    "what is among the three largest": Case(
        ra.sum(ra.where(x >= ra.min(BEST, j), y, 0), n),
        lambda x, y: np.where(x >= np.sort(x, 1)[:, -3, None], y, 0).sum(1),
        (("topk_values_0",),),
    ),
    "a mask in both passes": Case(
        ra.sum(ra.where(n <= 20, Abs(x - ra.max(ra.where(n <= 20, y, -oo), n) * ra.mean(x, n)), 0), n),
        lambda x, y: np.abs(x - y[:, :21].max(1, keepdims=True) * x.mean(1, keepdims=True))[:, :21].sum(1),
        (("max_0", "sum_0"),),
    ),
}  # fmt: skip
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def data(case: Case, rows: int = 3, length: int = 32, seed: int = 0) -> dict[str, Any]:
    """Multiples of 1/8, and lengths that are powers of 2: means are exact, and no comparison is at a rounding."""
    rng = np.random.default_rng(seed)
    shapes = {"z": (rows, length, 4), "Q": (rows, 4), "K": (length, 4), "G": (length, 5)}
    fused = case.fused
    names = {name for one in (fused.cascade,) for name in one.inputs()}
    made = {name: rng.integers(-16, 17, shapes.get(name, (rows, length))) / 8 for name in sorted(names)}
    return made | {str(one.name): 0.04 for one in fused.cascade.scalars()}


def tuple_of(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


@each
def test_the_fewest_passes_that_compute_it(case: Case) -> None:
    assert tuple(tuple(one.name for one in form.outputs) for form in case.fused.passes.earlier) == case.before
    assert len(case.fuse(passes=case.passes + 3).passes) == len(case.before) + 1
    assert isinstance(ra.analyze(case.expr, case.axes, passes=case.passes), ra.Exact)


@each
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_they_give_the_definition(case: Case, backend: str) -> None:
    fused, tensors = case.fused, data(case)
    for _ in range(2):  # the second call is a prepared one
        got, wanted = tuple_of(fused(**tensors, backend=backend)), tuple_of(case.wanted(**tensors))
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["deviations beyond the mean deviation", "distance from the largest's place"])
def test_kernels_give_the_definition(name: str) -> None:
    case = CASES[name]
    tensors = data(case)
    single = {key: torch.from_numpy(one).float() for key, one in tensors.items()}
    got = case.fused(**single, backend="tilelang")
    assert got.dtype == torch.float32
    assert worst_error(got, torch.from_numpy(case.wanted(**tensors))) <= 2e-6


@each
def test_every_pass_has_a_kernel(case: Case) -> None:
    fused = case.fused
    sizes = {axis.name: 8 if axis in (k, e) else axis.size or 1024 for axis in fused.cascade.axes()}
    dtypes = dict.fromkeys(fused.cascade.inputs(), "float16")
    lowered = lower_passes(fused.passes, "sm_90a", sizes, dtypes, lower)
    assert len(lowered) == len(fused.passes)
    for one in lowered:
        lint(one.program, numbers_of(one.plan))


# ---- hostile data ----------------------------------------------------------------------------------------------------


HOSTILE = {
    "far away": lambda a: a + 1e8,
    "all equal": lambda a: 0 * a + 3,
    "an outlier": lambda a: np.where(np.arange(a.shape[1]) == 5, 1e12, a),
    "tiny": lambda a: a * 2.0**-1000,
    "NaN": lambda a: np.where(np.arange(a.shape[1]) == 5, np.nan, a),
    "infinite": lambda a: np.where(np.arange(a.shape[1]) == 5, np.inf, a),
    "one element": lambda a: a[:, :1],
    "no elements": lambda a: a[:, :0],
    "no rows": lambda a: a[:0],
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_hostile_data(kind: str, backend: str) -> None:
    """NaN and infinities reach what they reach in the definition."""
    spoilt = HOSTILE[kind]
    for name in ("mean absolute deviation", "clipped softmax", "Huber about the mean", "weights beside a kink"):
        if kind == "no elements" and name in ("clipped softmax", "weights beside a kink"):
            continue  # NumPy has no largest of none
        case = CASES[name]
        tensors = {key: spoilt(one) for key, one in data(case).items()}
        got, wanted = case.fused(**tensors, backend=backend), case.wanted(**tensors)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
        room = 1e-11 * np.nan_to_num(np.abs(tensors["x"])).sum(initial=0) if kind != "tiny" else 0
        np.testing.assert_allclose(got[np.isfinite(wanted)], wanted[np.isfinite(wanted)], rtol=1e-11, atol=room)


# ---- the hint --------------------------------------------------------------------------------------------------------


@each
def test_the_hint_is_the_call_that_works(case: Case) -> None:
    verdict = ra.analyze(case.expr, case.axes)
    assert isinstance(verdict, ra.Refused | ra.Undecided)
    assert isinstance(verdict.hint, str)
    assert f"`ra.fuse(…, passes={case.passes})`" in verdict.hint
    assert isinstance(verdict.advice, Advice)
    texts = {value: f"`{text}`" for value, text in short_reductions(verdict.advice.cascade)}
    texts = {value.name: text for value, text in texts.items() if isinstance(value, Value)}
    for name in {one for each in case.before for one in each}:
        assert texts.get(name, name) in verdict.hint
    with pytest.raises((ra.NotFusible, ra.NotDecided)) as error:
        case.fuse(passes=None)
    assert error.value.hint == verdict.hint
    assert str(error.value).endswith(verdict.hint)
    again = pickle.loads(pickle.dumps(error.value))
    assert (again.hint, again.reason) == (verdict.hint, verdict.reason)
    assert pickle.loads(pickle.dumps(verdict)) == verdict


def test_the_hint_is_looked_for_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(engine, "Levels", searched)
    verdict = ra.analyze(DEVIATION)
    assert isinstance(verdict, ra.Refused)
    with pytest.raises(AssertionError):
        _ = verdict.hint


def test_too_few_passes_say_how_many_it_takes() -> None:
    case = CASES["deviations beyond the mean deviation"]
    with pytest.raises(ra.NotFusible, match=r"takes three passes, and `passes=2` allows no more than two"):
        case.fuse(passes=2)
    verdict = ra.analyze(case.expr, passes=2)
    assert isinstance(verdict, ra.Refused)
    assert "takes three passes" in verdict.reason


@pytest.mark.parametrize("passes", [0, -1, True, 1.5, "2"])
def test_what_is_no_number_of_passes(passes: Any) -> None:
    with pytest.raises(ra.ExpressionError, match="is no number of passes"):
        ra.fuse(MEAN, passes=passes)


def test_one_exact_pass_is_refused_where_it_would_round() -> None:
    rounded = ra.sum(ra.cast(x / ra.max(Abs(x), n) * 127, "int8") * y, n)
    with pytest.raises(ra.NotFusible, match="Run two passes"):
        ra.fuse(rounded, exact=True, passes=1)
    options: list[dict[str, Any]] = [{"exact": True}, {"passes": 2}, {"passes": 1}, {}]
    assert [len(ra.fuse(rounded, **one).passes) for one in options] == [2, 2, 1, 1]
    assert isinstance(ra.analyze(rounded, passes=2), ra.Exact)
    assert isinstance(ra.analyze(rounded), ra.Approximate)
    assert len(ra.fuse(MEAN, exact=True, passes=1).passes) == 1


# ---- what is said and refused ----------------------------------------------------------------------------------------


def test_all_passes_are_explained() -> None:
    fused = CASES["deviations beyond the mean deviation"].fused
    text = fused.explain()
    assert text.startswith("out[b] in three passes over n")
    assert "pass 1 makes sum_0[b]" in text
    assert all(f"Pass {number}: the cascade" in text for number in (1, 2, 3))
    assert "rounding is then" not in text
    verdict = ra.analyze(CASES["deviations beyond the mean deviation"].expr, passes=3)
    assert isinstance(verdict, ra.Exact)
    assert "Pass 3: finish" in verdict._repr_html_()


@pytest.mark.parametrize("method", ["leaf", "merge", "finish", "empty_state"])
def test_a_state_of_one_pass_holds_no_several(method: str) -> None:
    fused = CASES["deviations beyond the mean deviation"].fused
    arguments: dict[str, tuple[Any, ...]] = {"leaf": ({"x": np.ones((1, 2)), "y": np.ones((1, 2))},), "merge": (1, 2)}
    said = "this form takes three passes over the data (pass 1 for sum_0, pass 2 for sum_1)"
    with pytest.raises(ra.InputError, match=f"{method}: {re.escape(said)}"):
        getattr(fused, method)(*arguments.get(method, ({"b": 1},)))


def test_what_does_not_fit_is_refused_before_a_pass_runs() -> None:
    fused = CASES["clipped softmax"].fused
    ones = np.ones((2, 3))
    with pytest.raises(ra.InputError, match=r"missing: y\). It needs x\[b, n\], y\[b, n\]\."):
        fused(x=ones)
    with pytest.raises(ra.InputError, match="`sum_0` is what an earlier pass computes"):
        fused(x=ones, y=ones, sum_0=ones[:, 0])
    with pytest.raises(ra.InputError, match="unknown: w"):
        fused(x=ones, y=ones, w=ones)
    with pytest.raises(ra.InputError, match="no axis 'c'"):
        fused(x=ones, y=ones, sizes={"c": 2})
    with pytest.raises(ra.InputError, match="axis n has several sizes"):
        fused(x=ones, y=np.ones((2, 4)))


@pytest.mark.parametrize(
    ("dtype", "backend"), [("float16", "torch"), ("bfloat16", "torch"), ("float64", "torch"), ("float16", "tilelang")]
)
def test_outputs_have_the_callers_dtype(dtype: str, backend: str) -> None:
    """Values between passes are float32, and decide nothing."""
    tensors = {"x": torch.arange(8.0).reshape(2, 4).to(getattr(torch, dtype))}
    got = CASES["mean absolute deviation"].fused(**tensors, backend=backend)
    assert str(got.dtype) == f"torch.{dtype}"
    assert got.tolist() == [1, 1]


def test_forms_of_several_passes_pickle() -> None:
    fused = CASES["deviations beyond the mean deviation"].fused
    again = pickle.loads(pickle.dumps(fused))
    tensors = data(CASES["deviations beyond the mean deviation"])
    assert again == fused
    np.testing.assert_array_equal(again(**tensors, backend="numpy"), fused(**tensors, backend="numpy"))


# ---- drawn -----------------------------------------------------------------------------------------------------------


def rows(value: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: value(a)[:, None]


VALUES: list[tuple[Expr, Callable[[Array], Array]]] = [
    (MEAN, rows(lambda a: a.mean(1))),
    (ra.max(x, n) / 2, rows(lambda a: a.max(1) / 2)),
    (ra.min(x, n) + 1, rows(lambda a: a.min(1) + 1)),
    (ra.mean(x * x, n), rows(lambda a: (a * a).mean(1))),
    (DEVIATION, rows(lambda a: np.abs(centred(a)).mean(1))),
    (ra.sum(SOFTMAX * x, n), rows(lambda a: (softmax(a) * a).sum(1))),
    (sqrt(ra.var(x, n) + 1), rows(lambda a: np.sqrt(a.var(1) + 1))),
]
CURVES: list[tuple[Callable[[Expr, Expr], Expr], Callable[[Array, Array], Array]]] = [
    (lambda u, d: Abs(u - d), lambda u, d: np.abs(u - d)),
    (Max, np.maximum),
    (lambda u, d: Min(u * d, 1), lambda u, d: np.minimum(u * d, 1)),
    (lambda u, d: ra.where(u > d + Rational(1, 3), u, d), lambda u, d: np.where(u > d + 1 / 3, u, d)),
    (lambda u, d: exp(-u * d / 4), lambda u, d: np.exp(-u * d / 4)),
    (lambda u, d: floor(4 * u - d + Rational(1, 3)), lambda u, d: np.floor(4 * u - d + 1 / 3)),
    (lambda u, d: 1 / (1 + (u - d) ** 2), lambda u, d: 1 / (1 + (u - d) ** 2)),
]
WEIGHTS: list[tuple[Expr, Callable[[Array], Array]]] = [
    (Rational(1), np.ones_like), (y, lambda a: a), (ra.softmax(y, n), softmax),
]  # fmt: skip
REDUCED: list[tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = [
    (lambda term: ra.sum(term, n), lambda a: a.sum(1)), (lambda term: ra.mean(term, n), lambda a: a.mean(1)),
    (lambda term: ra.max(term, n), lambda a: a.max(1)),
]  # fmt: skip


@settings(max_examples=draws(12), deadline=None, derandomize=True)
@given(st.sampled_from(VALUES), st.lists(st.sampled_from(CURVES), min_size=1, max_size=2), st.sampled_from(WEIGHTS),
       st.sampled_from(REDUCED), st.integers(0, 99))  # fmt: skip
def test_drawn_refusals(value: Any, curves: Any, weight: Any, reduced: Any, seed: int) -> None:
    """A curve about a value, and a curve about the reduction of that: at most one more pass for each."""
    rng = np.random.default_rng(seed)
    tensors = {"x": rng.integers(-16, 17, (3, 16)) / 8, "y": rng.integers(-16, 17, (3, 16)) / 8}
    d, of_d = value
    wanted = of_d(tensors["x"])
    for curve, of_curve in curves:
        d = reduced[0](curve(x, d) * weight[0])
        wanted = reduced[1](of_curve(tensors["x"], wanted) * weight[1](tensors["y"]))[:, None]
    fused = ra.fuse(d, passes=2 + len(curves))
    taken = {name: tensors[name] for name in fused.cascade.inputs()}
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(fused(**taken, backend=backend), wanted[:, 0], rtol=1e-8, atol=1e-8)
    verdict = ra.analyze(d)
    if not isinstance(verdict, ra.Exact | ra.Approximate):
        assert f"passes={max(2, len(fused.passes))})" in verdict.hint
