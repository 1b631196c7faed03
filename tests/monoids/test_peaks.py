"""Extrema of exponential products, and their places, where the exponentials alone leave the range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sympy import Abs, Expr, exp, oo

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.monoids.laws import violation
from redalg.monoids.table import monoid
from tests.cases.kernels import problem

b, n = ra.axes("b n")
s, w, y = ra.tensors("s[b,n] w[b,n] y[b,n]")
TOP = ra.max(s, n)
SHARE = exp(s - TOP) * w
FORMS: dict[str, Expr] = {
    "max": ra.max(SHARE, n),
    "min": ra.min(SHARE, n),
    "largest size": ra.max(Abs(SHARE), n),
    "of a sum": ra.max(exp(s - TOP) * w + exp(s - TOP) * y, n),
    "of a softmax": ra.max(ra.softmax(s, n) * w, n),
    "below a minimum": ra.max(exp(ra.min(s, n) - s) * w, n),
    "of a rate": ra.min(exp((s - TOP) / 3) * w, n),
    "of two exponents": ra.max(exp(2 * s + y - 2 * TOP) * w, n),
    "squared": ra.max(SHARE**2, n),
    "less than a sum": ra.max(ra.sum(y, n) - SHARE, n),
    "masked": ra.max(ra.where(y > 0, SHARE, -oo), n),
    "masked to 0": ra.min(ra.where(y > 0, SHARE, 0), n),
    "times a mask": ra.max(ra.where(y > 0, 1, 0) * SHARE, n),
    "under a sum": ra.sum(SHARE / ra.max(Abs(SHARE), n) * y, n),
}
KINDS = ("plain", "far", "at -1e4", "at 1e4", "masked", "without weight", "NaN", "infinite")


def tensors_of(kind: str, length: int = 13, dtype: type = np.float64) -> dict[str, np.ndarray]:
    """Rows of one kind."""
    random = np.random.default_rng(KINDS.index(kind))
    logits, weights, others = (random.normal(size=(4, length)) for _ in range(3))
    if kind == "far":
        logits *= 1e4
    if kind == "at -1e4":
        logits, weights = logits - 1e4, -np.abs(weights)
    if kind == "at 1e4":
        logits += 1e4
    if kind == "masked":
        logits[0], logits[1, 3], others[2] = -np.inf, -np.inf, -1
    if kind == "without weight":
        weights[0], weights[1, :5], logits = 0, 0, logits * 1e3
    if kind == "NaN":
        logits[0, 3], weights[1, 2], others[2], logits[2, 3] = np.nan, np.nan, -1, np.nan
    if kind == "infinite":
        logits[0, 3], weights[1, 2] = np.inf, np.inf
    return {"s": logits.astype(dtype), "w": weights.astype(dtype), "y": others.astype(dtype)}


def needed(form: ra.Fused, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: tensors[name] for name in form.form.cascade.inputs()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMS)
def test_every_backend_equals_the_definition(name: str, kind: str) -> None:
    form = ra.fuse(FORMS[name])
    tensors = needed(form, tensors_of(kind))
    wanted = form.reference(**tensors)
    pieces = [form.leaf({one: array[:, part] for one, array in tensors.items()})
              for part in (slice(5), slice(5, 6), slice(6, None))]  # fmt: skip
    streamed = form.finish(form.merge(form.merge(pieces[2], pieces[0]), pieces[1]))
    for made in (form(**tensors, backend="numpy"), form(**tensors, backend="torch"), streamed):
        np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-300)


PLACES: dict[str, Expr] = {
    "argmax": ra.argmax(SHARE, n),
    "argmin": ra.argmin(SHARE, n),
    "argmax of a softmax": ra.argmax(ra.softmax(s, n) * w, n),
}


def first_of(tensors: dict[str, np.ndarray], sign: int) -> list[int]:
    """The place of the largest exp(s)·w of each row, in exact numbers; of no weight an element is 0."""
    found = []
    for logits, weights in zip(tensors["s"], sign * tensors["w"], strict=True):
        with np.errstate(divide="ignore"):
            sizes = logits + np.log(np.abs(weights))
        keys = [(int(np.sign(weight)), float(np.sign(weight) * size) if weight else 0.0)
                for weight, size in zip(weights, sizes, strict=True)]  # fmt: skip
        found.append(keys.index(max(keys)))
    return found


@pytest.mark.sweep(8)
@pytest.mark.parametrize("kind", ["plain", "far", "at -1e4", "at 1e4", "without weight"])
@pytest.mark.parametrize("name", PLACES)
def test_the_place_of_the_largest_is_found_where_exponentials_leave_the_range(name: str, kind: str) -> None:
    form = ra.fuse(PLACES[name])
    tensors = needed(form, tensors_of(kind))
    wanted = first_of(tensors, -1 if name == "argmin" else 1)
    pieces = [form.leaf({one: array[:, start:stop] for one, array in tensors.items()}, start={"n": start})
              for start, stop in ((0, 5), (5, 6), (6, 13))]  # fmt: skip
    streamed = form.finish(form.merge(form.merge(pieces[2], pieces[0]), pieces[1]))
    lowered = form.lower("c", **problem(form, {one: torch.from_numpy(array) for one, array in tensors.items()}))
    kernel = interpret(lowered.program, tensors)["out"]
    for made in (form(**tensors, backend="numpy"), form(**tensors, backend="torch"), streamed, kernel):
        assert list(made) == wanted


@pytest.mark.parametrize("kind", ["masked", "NaN"])
@pytest.mark.parametrize("name", PLACES)
def test_a_place_follows_the_conventions(name: str, kind: str) -> None:
    form = ra.fuse(PLACES[name])
    tensors = needed(form, tensors_of(kind))
    assert list(form(**tensors, backend="numpy")) == list(form.reference(**tensors))


def test_pieces_must_say_where_they_start() -> None:
    form = ra.fuse(PLACES["argmax"])
    piece = form.leaf(needed(form, tensors_of("plain")))
    with pytest.raises(ra.InputError, match="start"):
        form.merge(piece, piece)


@pytest.mark.parametrize("name", FORMS)
def test_no_element_gives_the_identity(name: str) -> None:
    form = ra.fuse(FORMS[name])
    tensors = needed(form, tensors_of("plain", 0))
    np.testing.assert_array_equal(form(**tensors, backend="numpy"), form.reference(**tensors))


@pytest.mark.sweep(10)
@pytest.mark.parametrize("kind", ["plain", "far", "at -1e4", "at 1e4", "without weight"])
@pytest.mark.parametrize("name", ["max", "min", "masked", "under a sum"])
def test_kernels_keep_the_digits_of_float32(name: str, kind: str) -> None:
    form = ra.fuse(FORMS[name])
    tensors = needed(form, tensors_of(kind, 300, np.float32))
    wanted = form.reference(**tensors)
    for target in ("c", "sm_90a"):
        given = {one: torch.from_numpy(array) for one, array in tensors.items()}
        lowered = form.lower(target, **problem(form, given))
        made = interpret(lowered.program, tensors)["out"]
        np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=1e-37)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", ["far", "at 1e4", "masked"])
def test_the_c_kernel_equals_the_definition(kind: str) -> None:
    form = ra.fuse(FORMS["max"])
    tensors = needed(form, tensors_of(kind, 300, np.float32))
    given = {one: torch.from_numpy(array) for one, array in tensors.items()}
    made = form(**given, backend="tilelang").numpy()
    np.testing.assert_allclose(made, form.reference(**tensors), rtol=2e-5, atol=1e-37)


def test_the_weight_and_the_exponent_are_an_elements_own() -> None:
    form = ra.fuse(FORMS["max"])
    assert [slot.name for slot in form.form.slots] == ["max_0", "max_1_weight_max", "max_1_exponent_max"]
    assert violation(monoid("peak")) is None
    assert violation(monoid("argpeak")) is None


def test_an_exponential_beside_none_of_d_stays_an_extremum() -> None:
    assert not ra.fuse(ra.max(exp(s) * w * ra.sum(y, n) ** 2, n)).form.structures


VANISHING: dict[str, Expr] = {
    "exponential": ra.max(exp(s - TOP), n),
    "affine": ra.max(3 * exp(2 * s - 2 * TOP) + 1, n),
    "difference": ra.max(s - TOP, n),
    "at a minimum": ra.min(exp(s - ra.min(s, n)), n),
    "from a maximum": ra.min(exp(TOP - s), n),
    "ratio": ra.max(Abs(s) / ra.max(Abs(s), n), n),
}


@pytest.mark.parametrize("name", VANISHING)
def test_what_cancels_of_finite_numbers_is_no_number_of_others(name: str) -> None:
    form, rows = ra.fuse(VANISHING[name]), np.random.default_rng(0).normal(size=(7, 5))
    rows[0], rows[1, 2], rows[2, 2], rows[3, 1], rows[4], rows[5] = -np.inf, np.inf, np.nan, -np.inf, 0, np.inf
    for made in (form(s=rows, backend="numpy"), form(s=rows, backend="torch")):
        finite = np.isfinite(wanted := form.reference(s=rows))
        np.testing.assert_array_equal(made[finite], wanted[finite])
        assert not np.isfinite(made[~finite]).any()


def conditions(expr: Expr) -> tuple[str, ...]:
    """Those of an exact verdict."""
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Exact)
    return verdict.conditions


def test_what_all_elements_may_attain_is_a_condition() -> None:
    form = ra.fuse(ra.sum_at_max(s - ra.max(y, n), w, n))
    tensors = tensors_of("plain")
    tensors["y"][0] = -np.inf
    [said] = conditions(ra.sum_at_max(s - ra.max(y, n), w, n))
    assert "max_0 is not finite" in said
    np.testing.assert_array_equal(np.isnan(form(**tensors, backend="numpy")), [True, False, False, False])
    assert not conditions(ra.sum_at_max(s, w, n))
