"""Masks × payloads × places × reductions, drawn at random, in random pieces merged in a random order.

What a mask hides is hidden whatever it is, and what it does not hide is seen: the finite and the non-finite results
stand where `tests/oracle.py` has them, and the finite ones are equal.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sympy import Expr, exp, log, oo, sqrt
from sympy.logic.boolalg import Boolean

import redalg as ra
from tests.oracle import Oracle
from tests.sweeps import draws

b, n, g = ra.axes("b n g")
x, y, w, s, M, z = ra.tensors("x[b,n] y[b,n] w[b,n] s[b,n] M[b,n] z[b]")
G, at = ra.Tensor("G"), ra.tensor("at[b,n]")
SIZES = {"b": 3, "n": 5, "g": 4}
ODD = (np.nan, np.inf, -np.inf, 0.0, -1.0)


@pytest.fixture(autouse=True)
def floating_point_is_quiet() -> Iterator[None]:
    """0·NaN and log 0 warn in NumPy; what they give is what these tests ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


MASKS: dict[str, Boolean] = {
    "data": ra.ne(M, 0), "not data": ra.eq(M, 0), "index": n <= 2, "causal": n <= b, "parameter": z > 0,
    "reduced": ra.sum(w, n) > 0, "an extremum": ra.max(w, n) > 1, "both": ra.logical_and(ra.ne(M, 0), n > 0),
    "data and parameter": ra.logical_and(ra.ne(M, 0), z > 0), "nowhere": n > 9,
}  # fmt: skip
PAYLOADS: dict[str, Expr] = {
    "x": x, "log x": log(x), "1/x": 1 / x, "root": sqrt(x) * y, "square": x**2, "log z": log(z) * y, "1/z": y / z,
    "over a sum": x / ra.sum(w, n), "log of a sum": y * log(ra.sum(w, n)), "beside a maximum": x - ra.max(w, n),
    "gather": G[at] * y, "entropy": x * log(x), "exponential": exp(x) * y,
}  # fmt: skip
REDUCTIONS = {
    "sum": lambda m, f: ra.sum(ra.where(m, f, 0), n),
    "or y": lambda m, f: ra.sum(ra.where(m, f, y), n),
    "mean": lambda m, f: ra.mean(ra.where(m, f, 0), n),
    "factor": lambda m, f: ra.sum(ra.where(m, 1, 0) * f, n),
    "max": lambda m, f: ra.max(ra.where(m, f, -oo), n),
    "min": lambda m, f: ra.min(ra.where(m, f, oo), n),
    "prod": lambda m, f: ra.prod(ra.where(m, f, 1), n),
    "weighted": lambda m, f: ra.sum(ra.softmax(ra.where(m, s, -oo), n) * f, n),
    "additive": lambda m, f: ra.sum(ra.softmax(s + ra.where(m, 0, -oo), n) * f, n),
    "naive": lambda m, f: ra.sum(exp(s) * ra.where(m, f, 0), n) / ra.sum(exp(s), n),
    "logsumexp": lambda m, f: ra.logsumexp(ra.where(m, f, -oo), n),
    "squares": lambda m, f: ra.sum(ra.where(m, (f - ra.mean(y, n)) ** 2, 0), n),
}


@dataclass(frozen=True)
class Case:
    """A masked reduction, and data that is odd in masked or in live places."""

    name: str
    expr: Expr
    tensors: dict[str, np.ndarray]


def case(mask: str, payload: str, reduction: str, seed: int) -> Case:
    """Data by a seed; a gather is in range where its mask holds, and elsewhere need not be."""
    random, shape = np.random.default_rng(seed), (SIZES["b"], SIZES["n"])
    tensors: dict[str, np.ndarray] = {name: random.uniform(0.5, 3, shape) for name in "xys"}
    tensors |= {"w": random.normal(0, 1, shape)}
    tensors |= {"M": random.random(shape) < 0.6, "z": random.uniform(0.5, 3, 3), "G": random.uniform(1, 2, 4)}
    tensors["M"][random.random(3) < 0.4] = False
    tensors["w"][random.random(3) < 0.3] = random.choice((0.0, -1.0))
    tensors["z"][random.random(3) < 0.4] = random.choice(ODD)
    holds = np.broadcast_to(Oracle(tensors, {}, SIZES)(MASKS[mask]).squeeze(1), shape)
    places = (holds, ~holds, ~holds, np.ones(shape, bool))[random.integers(4)] & (random.random(shape) < 0.6)
    tensors["x"][places] = random.choice(ODD)
    tensors["s"][random.random(shape) < random.choice((0.0, 0.4))] = random.choice((-np.inf, -1e4))
    late = MASKS[mask].has(ra.expression.Reduce)  # when elements are read it is not known yet
    tensors["at"] = np.where(holds | late, random.integers(0, 4, shape), random.choice((0, 9, -7)))
    name = f"{reduction} of {payload} by {mask}, seed {seed}"
    return Case(name, REDUCTIONS[reduction](MASKS[mask], PAYLOADS[payload]), tensors)


def any_of(given: Mapping[str, object]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(given))


CASES = st.builds(case, any_of(MASKS), any_of(PAYLOADS), any_of(REDUCTIONS), st.integers(0, 10**6))


def in_pieces(made: ra.Fused, tensors: dict[str, Any], draw: Any) -> Any:
    """Leaves of random pieces of n, merged in a random order."""
    along = {one.name: one.indices.index(n) for one in made.cascade.elements() if n in one.indices}
    cuts = [0, *sorted(draw(st.lists(st.integers(0, 5), max_size=3))), 5]
    states = [made.leaf({name: np.take(one, range(start, stop), along[name]) if name in along else one
                         for name, one in tensors.items()}, start={n: start}, extents={"b": 3})
              for start, stop in pairwise(cuts)]  # fmt: skip
    while len(states) > 1:
        one, other = (states.pop(draw(st.integers(0, len(states) - 1))) for _ in range(2))
        states.append(made.merge(one, other))
    return made.finish(states[0], {name: one for name, one in tensors.items() if name not in along})


def assert_defined(got: Any, case: Case, run: str) -> None:
    want, bound = Oracle(case.tensors, {}, SIZES).output(case.expr, "b")
    got = np.asarray(got).astype(np.longdouble)
    close = (got == want) | (np.abs(got - want) <= 1e-13 + 8 * np.finfo(float).eps * bound)
    lost = ~np.isfinite(want) & ~np.isfinite(got)
    if case.expr.has(ra.expression.Reduce) and case.name.startswith(("max", "min")):
        lost &= (got == want) | (np.isnan(got) & np.isnan(want))
    assert (close | lost).all(), f"{run}: {case.name} is {got}, defined {want}"


@settings(max_examples=draws(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CASES, st.data())
def test_a_mask_hides_what_it_hides_and_nothing_else(case: Case, choice: st.DataObject) -> None:
    try:
        made = ra.fuse(case.expr, axes="b")
    except (ra.NotFusible, ra.NotDecided):
        assume(False)
    tensors = {name: one for name, one in case.tensors.items() if name in made.cascade.inputs()}
    for backend in ("numpy", "torch"):
        assert_defined(made(**tensors, backend=backend, sizes={"b": 3}), case, backend)
    assert_defined(in_pieces(made, tensors, choice.draw), case, "in pieces")


BEFORE, DIFFERS = n >= 1, ra.Tensor("x")[b, n] * ra.Tensor("x")[b, n - 1] < 0
GUARDED = {
    "a mask within a mask": ra.where(BEFORE, ra.where(DIFFERS, 1, 0), 0),
    "a conjunction": ra.where(ra.logical_and(DIFFERS, BEFORE), 1, 0),
    "a disjunction": 1 - ra.where(ra.logical_or(ra.logical_not(DIFFERS), n < 1), 1, 0),
}


RUNS = [*product(GUARDED, ("numpy", "torch")), ("a conjunction", "tilelang")]


@pytest.mark.parametrize(("name", "backend"), RUNS)
def test_a_condition_is_read_where_the_others_leave_it_open(name: str, backend: str) -> None:
    """x[b,n−1] has no element at n = 0, which `n ≥ 1` excludes in whatever spelling."""
    changes, data = ra.fuse(ra.sum(GUARDED[name], n), axes="b"), np.array([[1.0, -1.0, -2.0, 3.0, 0.0, 1.0]])
    for made in (changes(x=data, backend=backend), changes.reference(x=data)):
        np.testing.assert_array_equal(made, [2.0])
