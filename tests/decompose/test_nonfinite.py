"""NaN, infinities and masks: every backend, in pieces merged in any order, gives what `decompose.conventions` says.

The definition is `tests/oracle.py`. Which non-finite value a sum is that is not finite is not promised; of extrema and
places it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sympy import Expr, exp, log, oo, sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from tests.oracle import Oracle

b, n = ra.axes("b n")
j = ra.axis("j", size=2)
s, v, w, x, y, M = ra.tensors("s[b,n] v[b,n] w[b,n] x[b,n] y[b,n] M[b,n]")
z = ra.tensor("z[b]")
NAN, INF = np.nan, np.inf
Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def floating_point_is_quiet() -> Iterator[None]:
    """0·NaN and log 0 warn in NumPy; what they give is what these tests ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


# ---- everywhere ------------------------------------------------------------------------------------------------------


def sizes_of(made: ra.Fused, tensors: Arrays) -> dict[str, int]:
    found = {"j": 2} if any(one.place is not None for one in made.form.structures) else {}
    for one in made.cascade.elements():
        found |= {str(axis): size for axis, size in zip(one.indices, tensors[one.name].shape, strict=True)
                  if axis in made.cascade.axes()}  # fmt: skip
    return found


def in_pieces(made: ra.Fused, tensors: Arrays, edges: tuple[int, ...]) -> Any:
    """Leaves of pieces of the streamed axis, the last merged first."""
    axis = made.cascade.axis
    along = {one.name: one.indices.index(axis) for one in made.cascade.elements() if axis in one.indices}
    cuts = [0, *edges, sizes_of(made, tensors)[str(axis)]]
    states = [made.leaf({name: np.take(one, range(start, stop), along[name]) if name in along else one
                         for name, one in tensors.items()}, start={axis: start})
              for start, stop in pairwise(cuts)]  # fmt: skip
    while len(states) > 1:
        states = [*states[:-2], made.merge(states[-1], states[-2])]
    return made.finish(states[0], {name: one for name, one in tensors.items() if name not in along})


def interpreted(made: ra.Fused, tensors: Arrays) -> Any:
    dtypes = {name: str(one.dtype) for name, one in tensors.items()}
    program = made.lower("c", sizes=sizes_of(made, tensors), dtypes=dtypes).program
    shape = tuple(sizes_of(made, tensors)[str(axis)] for axis in made.cascade.outputs[0].axes)
    return interpret(program, tensors)[made.cascade.outputs[0].name].reshape(shape)


RUNS: dict[str, Callable[[ra.Fused, Arrays], Any]] = {
    "numpy": lambda made, tensors: made(**tensors, backend="numpy"),
    "torch": lambda made, tensors: made(**tensors, backend="torch"),
    "1 | 3": lambda made, tensors: in_pieces(made, tensors, (1,)),
    "2 | 0 | 2": lambda made, tensors: in_pieces(made, tensors, (2, 2)),
    "tile interpreter": interpreted,
}
KERNEL = {"C target": lambda made, tensors: made(**tensors, backend="tilelang")}


def defined(expr: Expr, axes: str, tensors: Arrays, sizes: dict[str, int]) -> Any:
    return Oracle(tensors, {}, sizes).output(expr, axes)[0]


def assert_as_defined(
    expr: Expr, tensors: Arrays, axes: str = "b", *, kernel: bool = False, runs: dict[str, Any] | None = None
) -> None:
    """Every backend is finite where the definition is, and equal to it there; what is compared exactly is so."""
    made = ra.fuse(expr, axes=axes)
    tensors = {name: one for name, one in tensors.items() if name in made.cascade.inputs()}
    want = defined(expr, axes, tensors, sizes_of(made, tensors))
    chosen = made.cascade.reductions[-1].monoid.name in ("max", "min", "argmax", "argmin", "topk")
    for name, run in {**(RUNS if runs is None else runs), **(KERNEL if kernel else {})}.items():
        got = np.asarray(run(made, tensors)).astype(np.longdouble)
        close = np.isclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True) | (got == want)
        lost = ~np.isfinite(want) & ~np.isfinite(got)
        assert (close | (lost & (not chosen))).all(), f"{name}: {expr} is {got}, defined {want}"


def rows(*given: list[float]) -> np.ndarray:
    return np.array(given, np.float32)


# ---- a weight that underflows is no mask -----------------------------------------------------------------------------


WEIGHTED = (
    ra.sum(ra.softmax(s, n) * v, n), ra.sum(exp(s) * v**2, n) / ra.sum(exp(s), n),
    ra.sum(ra.softmax(s, n) * (v - ra.sum(ra.softmax(s, n) * v, n)) ** 2, n),
)  # fmt: skip


@pytest.mark.parametrize("payload", [NAN, INF, -INF])
@pytest.mark.parametrize("expr", WEIGHTED)
def test_a_live_payload_is_seen_however_small_its_weight(expr: Expr, payload: float) -> None:
    scores = rows([0, -200, 0, 0], [-200, 0, 0, -300], [0, -INF, 0, 1], [-INF, -INF, -INF, -INF])
    values = rows([1, payload, 1, 1], [payload, 1, 1, 1], [1, payload, 3, 4], [1, payload, 1, 1])
    assert_as_defined(expr, {"s": scores, "v": values})


def test_kernels_see_it_too() -> None:
    scores, values = rows([0, -200, 0, 0], [0, -INF, 0, 1]), rows([1, NAN, 1, 1], [1, NAN, 3, 4])
    assert_as_defined(ra.sum(ra.softmax(s, n) * v, n), {"s": scores, "v": values}, kernel=True)


@pytest.mark.parametrize("term", [exp((x - y) / z), exp(x / z - y / z)], ids=["a quotient", "a difference"])
def test_a_division_by_zero_is_no_mask(term: Expr) -> None:
    """A temperature or a deviation of 0: (x − y)/0 is an infinity or NaN, though −y/0 alone is −∞."""
    numbers = {"x": rows([3, 1], [1, 1], [1, -INF]), "y": rows([1, 0], [2, 1], [2, 3]), "z": np.array([0, 0, 2], "f4")}
    made = ra.fuse(ra.max(term, n), axes="b")
    quotients = (numbers["x"] - numbers["y"]) / numbers["z"][:, None]
    wanted = np.exp(quotients).max(1) if term == exp((x - y) / z) else [NAN, NAN, np.exp(-0.5)]
    for backend in ("numpy", "torch", "tilelang"):
        np.testing.assert_allclose(made(**numbers, backend=backend), wanted, rtol=1e-6)
    np.testing.assert_allclose(made.reference(**numbers), wanted, rtol=1e-6)


def test_what_the_exponent_holds_has_no_weight_either() -> None:
    """Σ exp(x)·x at x = −∞ is p·log p at p = 0; the verdict says so."""
    expr = ra.sum(exp(x) * x, n) / ra.sum(exp(x), n)
    assert_as_defined(expr, {"x": rows([1, -INF, 2, 3], [-INF, -INF, 0, -INF])})
    said = " ".join(ra.fuse(expr).explain().split())
    assert "Where x[b,n] is −∞ an element has no weight: its terms are 0" in said
    verdict, plain = ra.analyze(expr), ra.analyze(ra.logsumexp(x, n))
    assert isinstance(verdict, ra.Exact)
    assert isinstance(plain, ra.Exact)
    [condition] = verdict.conditions
    assert condition.startswith("Where x[b,n] is −∞ an element has no weight")
    assert condition in " ".join(str(verdict).split())
    assert plain.conditions == ()
    assert "has no weight" not in ra.fuse(ra.logsumexp(x, n)).explain()
    assert "has no weight" not in ra.fuse(ra.var(x, n)).explain()


# ---- which elements are selected -------------------------------------------------------------------------------------

ODD = {
    "x": rows([1, 3, 2, 0], [1, 3, 2, 0], [1, NAN, 2, 3], [NAN, 1, 2, 3], [-INF, -INF, -INF, -INF], [-1, -3, -2, -4]),
    "y": rows([0, NAN, 0, 0], [0, 1, 0, 0], [0, 1, 2, 3], [0, NAN, 0, 0], [0, 1, 2, 3], [0, NAN, 1, 1]),
}
SELECTED = {
    "factor": x * (1 + ra.sum(y**2, n)), "summand": x - ra.max(y, n), "both": x * ra.sum(exp(y), n) - ra.sum(y, n),
    "under a function": exp(x - ra.max(y, n)), "normalized": ra.softmax(x, n),
}  # fmt: skip


@pytest.mark.parametrize("term", SELECTED.values(), ids=SELECTED)
def test_a_nan_that_does_not_vary_comes_first(term: Expr) -> None:
    values, indices = ra.topk(term, n, j)
    assert_as_defined(ra.argmax(term, n), ODD)
    assert_as_defined(ra.argmin(term, n), ODD)
    assert_as_defined(indices, ODD, "b j")
    assert_as_defined(values, ODD, "b j")


@pytest.mark.parametrize("edge", [INF, -INF])
def test_what_makes_all_alike_selects_the_first(edge: float) -> None:
    data = {"x": rows([1, 3, 2, 0], [1, NAN, 2, 0], [-1, -3, -2, 0]), "y": np.full((3, 4), edge, np.float32)}
    assert_as_defined(ra.argmax(x - ra.max(y, n), n), data)
    if edge < 0:
        assert_as_defined(ra.argmax(x * ra.sum(exp(y), n), n), data)


def test_kernels_put_it_first_too() -> None:
    assert_as_defined(ra.argmax(x * (1 + ra.sum(y**2, n)), n), ODD, kernel=True)


def test_an_index_is_no_float() -> None:
    """Places beyond 2²⁴ keep their last digits in a kernel whose largest term holds d."""
    made = ra.fuse(ra.argmax(x - ra.max(y, n), n))
    source = made.source("c", sizes={"b": 8, "n": 1000}, dtypes="float32")
    assert "argmax_0 = T.alloc_fragment" not in source


def test_a_logarithm_of_less_than_nothing_would_come_first() -> None:
    with pytest.raises(ra.NotDecided, match="strictly"):
        ra.fuse(ra.argmax(log(x * ra.sum(exp(y), n)), n))
    assert_as_defined(ra.argmax(log(ra.softmax(x, n)), n), ODD)


def test_the_verdict_says_when_places_are_those_of_x_alone() -> None:
    said = " ".join(ra.fuse(ra.argmax(x * ra.sum(exp(y), n), n)).explain().split())
    assert "Its places are those of the definition if all that does not vary along n is finite and not 0" in said


# ---- masks by what does not vary -------------------------------------------------------------------------------------

alpha = ra.scalars("alpha")
total = ra.sum(w, n)
BY_OTHERS = {
    "a parameter": ra.sum(ra.where(z > 0, log(z) * y, 0), n),
    "a factor": ra.sum(ra.where(z > 0, 1, 0) * log(z) * y, n),
    "in a mean": ra.mean(ra.where(z > 0, y / z, 0), n),
    "nested": ra.sum(ra.where(z >= 0, ra.where(z > 0, log(z) * y, 1), 0), n),
    "an index beside": ra.sum(ra.where(ra.logical_and(z > 0, n > 1), log(z) * y, 0), n),
    "data hides a parameter": ra.sum(ra.where(M, log(z) * y, 0), n),
    "data as a factor": ra.sum(ra.where(M, 1, 0) * log(z) * ra.max(w, n) * y, n),
    "a reduced value": ra.sum(ra.where(total > 0, y / total, 0), n),
    "a reduced root": ra.sum(ra.where(total >= 0, sqrt(total) * y, y), n),
    "a square of what a value chooses": ra.sum(ra.where(total < 1, 0, log(z) * y) ** 2, n),
    "a maximum of it": ra.max(ra.where(z > 0, log(z) * y, -oo), n),
    "a product of it": ra.prod(ra.where(z > 0, log(z) * y, 1), n),
    "a parameter and a value": ra.sum(ra.where(z > 0, log(z) * y * ra.max(w, n), 0), n),
}
DATA = {
    "z": np.float32([-1, 0, 2, NAN]), "y": rows([1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]),
    "w": rows([0, 0, 0], [1, 2, 3], [-1, 0, 0], [0, 0, NAN]),
    "M": np.array([[False] * 3, [False] * 3, [True, False, True], [False] * 3]),
}  # fmt: skip


@pytest.mark.parametrize("expr", BY_OTHERS.values(), ids=BY_OTHERS)
def test_a_mask_hides_whatever_its_condition_is_of(expr: Expr) -> None:
    assert_as_defined(expr, DATA, runs={name: run for name, run in RUNS.items() if name != "2 | 0 | 2"})


MEAN = ra.mean(w, n)
BESIDE = {
    "a value": exp(s) * ra.where(n > 0, MEAN, 0),
    "a value and a factor": exp(s) * ra.where(M, MEAN * y, 0),
    "a factor beside": x * exp(s) * ra.where(n > 0, MEAN, 0),
    "about its maximum": exp(s - ra.max(s, n)) * ra.where(n > 2, MEAN * y, 0),
    "all about it": x * exp(s - ra.max(s, n)) * ra.where(n > 0, MEAN, 0),
    "about another value": exp(s - MEAN) * ra.where(n > 0, MEAN, 0),
    "in the other branch": exp(s) * ra.where(n < 1, 0, n.extent),
}


@pytest.mark.parametrize("term", BESIDE.values(), ids=BESIDE)
def test_a_choice_of_0_that_is_no_mask_hides_no_weight(term: Expr) -> None:
    """Found by the fuzzer, seed 911770: exp(NaN)·where(c, h, 0) is NaN; so is exp(∞)·0, and exp(−∞)·0 is 0."""
    scores = rows([NAN, 1, 2], [INF, 1, 2], [-INF, 1, 2], [700, 1, 2], [-INF] * 3, [1, NAN, 2], [1, -INF, 2])
    factors = rows([1, 2, 3], [1, 2, 3], [NAN, 2, 3], [INF, 2, 3], [NAN, 2, 3], [1, 2, 3], [1, 2, 3])
    plain = np.ones((7, 3), np.float32)
    beside = {"s": scores.astype("f8"), "x": factors, "w": plain, "y": 2 * plain, "M": plain > rows([1, 0, 0])}
    assert_as_defined(ra.sum(term, n), beside, runs={name: one for name, one in RUNS.items() if name != "2 | 0 | 2"})


def test_of_a_scalar_and_in_two_outputs() -> None:
    hidden = ra.where(alpha > 0, log(alpha) * y, 0)
    made = ra.fuse({"a": (ra.sum(hidden, n), "b"), "c": (ra.sum(y, n), "b")})
    for value, factor in ((-1.0, 0.0), (0.0, 0.0), (2.0, np.log(2.0))):
        for backend in ("numpy", "torch"):
            got = made(y=DATA["y"], alpha=value, backend=backend)
            np.testing.assert_allclose(got.a, np.full(4, 6 * factor), rtol=1e-6)
            np.testing.assert_allclose(got.c, np.full(4, 6.0))


def test_kernels_hide_it_too() -> None:
    assert_as_defined(BY_OTHERS["an index beside"], DATA, kernel=True)


def test_of_an_empty_row_and_of_a_score_of_infinity() -> None:
    """As docs/theory/numerics.md has them."""
    perplexity, nothing = ra.library.perplexity(), np.full((1, 3), -np.inf)
    np.testing.assert_array_equal([perplexity(s=nothing, empty=one)[0] for one in ("nan", "zero")], [NAN, 0])
    load = ra.library.expert_load()(s=np.array([[np.inf, 1.0, 2.0], [0.0, 0.0, 0.0]])).mean
    np.testing.assert_allclose(load, [NAN, 1 / 6, 1 / 6])
