"""How far a pass that rounds otherwise than its definition may lie from it: `bound` holds, saturation included.

The definition is written in NumPy; a bound is evaluated by the oracle, its values replaced by what they reduce.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import Abs, Expr, Float, Max, Min, exp, floor, log, oo, sign, sqrt

import redalg as ra
from tests.oracle import Oracle
from tests.sweeps import draws

Array = np.ndarray
b, n, e = ra.axes("b n e")
x, y, w = ra.tensors("x[b,n] y[b,n] w[n,e]")
AMAX = ra.max(Abs(x), n)
LARGEST = {
    "int8": 127,
    "int32": 2**31 - 1,
    "float8_e4m3fn": 448,
    "float8_e5m2": 57344,
    "float16": np.inf,
    "bfloat16": np.inf,
}
DTYPES = tuple(LARGEST)


def rounded(q: Array, dtype: str) -> Array:
    """q in a dtype: saturated where integers and 8-bit floats would overflow."""
    q = np.clip(q, -LARGEST[dtype] - (dtype.startswith("int")), LARGEST[dtype])
    if dtype.startswith("int"):
        return np.rint(q)
    with np.errstate(over="ignore"):
        return torch.from_numpy(q).to(getattr(torch, dtype)).double().numpy()


def largest(a: Array) -> Array:
    return np.abs(a).max(1, keepdims=True)


def bound_of(fused: ra.Fused, tensors: dict[str, Array]) -> Array:
    """The bound of the last reduction, which is the output."""
    written: dict[Expr, Expr] = {}
    for one in fused.cascade.reductions:
        written[one.value] = one.to_reduce(one.term.xreplace(written), fused.cascade.reduced_axes)
    [*_, most] = fused.bound.values()
    sizes = {"b": tensors["x"].shape[0], "n": tensors["x"].shape[1]}
    value, _ = Oracle(tensors, {}, sizes).output(most.xreplace(written), "b")
    return np.asarray(value, dtype=float)


def pieces(fused: ra.Fused, cuts: list[int], tensors: dict[str, Array]) -> Array:
    """`finish` of pieces merged one after the other."""
    length = tensors["x"].shape[1]
    ends = sorted({0, length, *(one for one in cuts if one < length)})
    states = [fused.leaf({name: one[:, p:q] for name, one in tensors.items()}, start={n: p}) for p, q in pairwise(ends)]
    state = states[0]
    for other in states[1:]:
        state = fused.merge(state, other)
    return np.asarray(fused.finish(state, tensors))


ROUNDED: dict[str, tuple[Expr, Callable[[Array], Array]]] = {
    "by the largest": (x / AMAX, lambda a: a / largest(a)),
    "by the largest, at least ε": (x / Max(AMAX, Float(1e-30)), lambda a: a / np.maximum(largest(a), 1e-30)),
    "by a power of two": (x * 2 ** floor(log(1 / AMAX, 2)), lambda a: a * 2.0 ** np.floor(-np.log2(largest(a)))),
    "about the mean": (x - ra.mean(x, n), lambda a: a - a.mean(1, keepdims=True)),
    "by a growing scale": (x * AMAX, lambda a: a * largest(a)),
    "by the range": (x / (ra.max(x, n) - ra.min(x, n) + 1), lambda a: a / np.ptp(a, axis=1, keepdims=True).__add__(1)),
    "by the norm": (x / sqrt(ra.sum(x * x, n)), lambda a: a / np.sqrt((a * a).sum(1, keepdims=True))),
    "by the largest alone, of either sign": (x / ra.max(x, n), lambda a: a / a.max(1, keepdims=True)),
}
FACTORS = (1, 100, 127, 300, 448, 4)
TERMS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array, Array], Array]]] = {
    "weighted": (lambda c: c * y, lambda c, y: c * y),
    "squared": (lambda c: c**2 * y + x, lambda c, y: c**2 * y),
    "chosen": (lambda c: ra.where(y > 0, c, 1), lambda c, y: np.where(y > 0, c, 1)),
}
NUMBERS = st.one_of(st.integers(-8, 8).map(float), st.sampled_from([1000.0, 0.3, -2.5, 1e-3, 1e5, -77.7]))


@settings(max_examples=draws(60), deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(ROUNDED)), st.sampled_from(FACTORS), st.sampled_from(DTYPES),
    st.sampled_from(["weighted", "chosen"]), st.lists(NUMBERS, min_size=1, max_size=9),
    st.lists(st.integers(1, 8), max_size=3), st.booleans(),
)  # fmt: skip
def test_the_bound_holds(what: str, factor: int, dtype: str, term: str, row: list[float], cuts: list[int],
                         rising: bool) -> None:  # fmt: skip
    """Scales that grow along the row are the worst: what was met first was rounded at others."""
    values = sorted(row, key=abs) if rising else row
    expr, of_x = ROUNDED[what]
    build, of_rounded = TERMS[term]
    verdict = ra.analyze(ra.sum(build(ra.cast(factor * expr, dtype)), n))
    assert isinstance(verdict, ra.Approximate)
    assume(not verdict.fused.bound["sum_1" if "sum_1" in verdict.fused.bound else "sum_0"].has(floor))
    tensors = {"x": np.array([values, values[::-1]]), "y": np.ones((2, len(values)))}
    tensors["y"][1] = np.arange(len(values)) - 2
    with np.errstate(all="ignore"):
        definition = of_rounded(rounded(factor * of_x(tensors["x"]), dtype), tensors["y"]).sum(1)
        most = bound_of(verdict.fused, tensors)
    for got in (verdict.fused(**tensors, backend="numpy"), pieces(verdict.fused, cuts, tensors)):
        usable = np.isfinite(definition) & np.isfinite(got)
        size = np.abs(tensors["y"]).sum(1) + np.abs(definition)
        assert (np.abs(got - definition) <= most * (1 + 1e-9) + 1e-9 * size)[usable].all()
        assert not (np.isinf(definition) & np.isfinite(most)).any()


def test_saturation_is_a_part_of_the_bound() -> None:
    """A number of 3000 and the 127 that the definition has of it."""
    tensors = {"x": np.array([[1000.0, 0, 0, 0]]), "y": np.ones((1, 4))}
    verdict = ra.analyze(ra.sum(ra.cast(4 * (x - ra.mean(x, n)), "int8") * y, n))
    assert isinstance(verdict, ra.Approximate)
    off = abs(verdict.fused(**tensors, backend="numpy")[0] - (127 - 3 * 128))
    assert 250 < off <= bound_of(verdict.fused, tensors)[0]
    assert "What exceeds 127 in magnitude, where the definition saturates, stays as it is." in verdict.explain()
    assert "how much a number exceeds the type's largest is a part of the bound" in " ".join(
        verdict.fused.explain().split()
    )


def test_a_scale_that_may_saturate_leaves_the_rounding_out() -> None:
    for factor, running in ((127, True), (100, True), (300, False)):
        verdict = ra.analyze(ra.sum(ra.cast(factor * x / AMAX, "int8") * y, n))
        assert isinstance(verdict, ra.Approximate)
        [(_, one)] = verdict.fused.decomposition.roundings
        assert (one.scale is not None, one.within) == (running, running)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("term", "definition"),
    {
        "rectified": (lambda c: Max(c, 0) * y, lambda c, y: np.maximum(c, 0) * y),
        "magnitude": (lambda c: Abs(c) * y, lambda c, y: np.abs(c) * y),
        "sign": (lambda c: sign(c) * y, lambda c, y: np.sign(c) * y),
        "clipped": (lambda c: Min(Max(c, -5), 5) * y, lambda c, y: np.clip(c, -5, 5) * y),
        "compared": (lambda c: ra.where(c > 3, y, 0), lambda c, y: np.where(c > 3, y, 0)),
        "exponential": (lambda c: exp(c / 64) * y, lambda c, y: np.exp(c / 64) * y),
        "rounded again": (lambda c: ra.cast(c * 2, "float16") * y, lambda c, y: 2 * c * y),
        "reciprocal": (lambda c: y / (c + 200), lambda c, y: y / (c + 200)),
    }.values(),
)  # fmt: skip
def test_functions_of_a_rounding_take_two_passes(term: Any, definition: Any) -> None:
    """Refused, with the call that works."""
    expr = ra.sum(term(ra.cast(127 * x / AMAX, "int8")), n)
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Refused | ra.Undecided)
    assert "passes=2" in verdict.hint
    rng = np.random.default_rng(0)
    tensors = {"x": rng.standard_normal((3, 20)).cumsum(1), "y": rng.standard_normal((3, 20))}
    wanted = definition(rounded(127 * tensors["x"] / largest(tensors["x"]), "int8"), tensors["y"]).sum(1)
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(ra.fuse(expr, passes=2)(**tensors, backend=backend), wanted, rtol=1e-12, atol=1e-11)


def test_products_and_powers_of_roundings_are_bounded() -> None:
    c, d = ra.cast(127 * x / AMAX, "int8"), ra.cast(127 * y / ra.max(Abs(y), n), "int8")
    rng = np.random.default_rng(1)
    tensors = {"x": np.sort(np.abs(rng.standard_normal((3, 40))), 1), "y": rng.standard_normal((3, 40)).cumsum(1)}
    of_x, of_y = (rounded(127 * one / largest(one), "int8") for one in tensors.values())
    for expr, wanted in (
        (c * d, of_x * of_y),
        (c**2 * y, of_x**2 * tensors["y"]),
        (c**3 + c * d, of_x**3 + of_x * of_y),
    ):
        fused = ra.fuse(ra.sum(expr, n))
        taken = {name: tensors[name] for name in fused.cascade.inputs()}
        for got in (fused(**taken, backend="numpy"), pieces(fused, [3, 9, 20], taken)):
            off = np.abs(got - wanted.sum(1))
            assert (off <= bound_of(fused, tensors)).all()
            assert off.max() > 0


def test_what_a_rounded_sum_stands_in_moves_with_it() -> None:
    total = ra.sum(ra.cast(127 * x / AMAX, "int8") * y, n)
    linear, largest_of, curved = (
        ra.fuse(one) for one in (ra.sum(y * total, n), ra.max(x + total, n), ra.sum(exp(total) * y, n))
    )
    assert [[*one.bound][-1] for one in (linear, largest_of, curved)] == ["sum_1", "max_1", "sum_1"]
    assert curved.bound["sum_1"] is oo
    rng = np.random.default_rng(2)
    tensors = {"x": rng.standard_normal((3, 20)).cumsum(1), "y": rng.standard_normal((3, 20))}
    of_total = (rounded(127 * tensors["x"] / largest(tensors["x"]), "int8") * tensors["y"]).sum(1)
    got = pieces(linear, [4, 9], tensors)
    assert (np.abs(got - tensors["y"].sum(1) * of_total) <= bound_of(linear, tensors) * (1 + 1e-9)).all()


def test_no_pass_before_the_last_rounds_in_silence() -> None:
    """The scale, the rounded sum and the distances from it: two passes would approximate, and three are exact."""
    expr = ra.sum(Abs(x - ra.sum(ra.cast(127 * x / AMAX, "int8") * y, n)), n)
    verdict = ra.analyze(expr, passes=2)
    assert isinstance(verdict, ra.Refused | ra.Undecided)
    assert "passes=3" in verdict.hint
    assert isinstance(ra.analyze(expr, passes=3), ra.Exact)


def test_no_other_reduction_rounds_in_silence() -> None:
    c = ra.cast(100 * x / AMAX, "float16")
    for expr in (ra.prod(c, n), ra.max(c * y, n), ra.argmax(c, n)):
        verdict = ra.analyze(expr)
        assert isinstance(verdict, ra.Refused | ra.Undecided)
        assert len(ra.fuse(expr, passes=2).passes) == 2


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_power_of_two_is_one_at_ties_too(backend: str) -> None:
    """2^⌊e⌋ computed as exp(⌊e⌋·log 2) would not be, and numbers between two 8-bit ones would go the other way."""
    scale = 448 * 2 ** floor(log(1 / AMAX, 2))
    fused = ra.fuse(ra.sum(ra.cast(scale * x, "float8_e4m3fn") * y, n))
    row = np.array([[17.0, 21.0, 3.0, 25.0, 27.0, 6.0]])
    wanted = rounded(448 * row * 2.0 ** np.floor(-np.log2(27)), "float8_e4m3fn")
    for place in range(6):
        got = fused(x=row, y=np.eye(6)[place][None], backend=backend)
        assert got[0] == wanted[0, place]
