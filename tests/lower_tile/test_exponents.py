"""Exponentials of a tile as powers of 2 of one multiply-add: where they are, and that no digit is lost by them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sympy import Expr, Rational, exp, oo

import redalg as ra
from redalg.strategies.schedule import AnySchedule, with_choices

b, i, j, d, e = ra.axes("b i j d e")
Q, K, V = ra.tensors("q[i,d] k[j,d] v[j,e]")
SIZES = {"i": 24, "j": 600, "d": 16, "e": 16}


def weighted_mean(scale: Expr, mask: Expr | None = None) -> ra.Fused:
    scores = ra.sum(Q * K, d) * scale
    scores = scores if mask is None else ra.where(mask, scores, -oo)
    weights = exp(scores - ra.max(scores, j))
    return ra.fuse({"out": (ra.sum(weights / ra.sum(weights, j) * V, j), "i e"),
                    "lse": (ra.reduce("logsumexp", scores, axis=j), "i")})  # fmt: skip


def wide(form: ra.Fused, target: str, **choices: int) -> AnySchedule:
    """The rules' plan, with tiles of 128 elements."""
    return with_choices(form.lower(target, sizes=SIZES, dtypes="float32").plan, block_streamed=128, **choices)


@pytest.mark.parametrize("target", ["c", "sm_80", "sm_90a"])
def test_a_row_has_one_exponent_and_an_element_one_multiply_add(target: str) -> None:
    form = weighted_mean(Rational(1, 4))
    text = form.source(target, sizes=SIZES, plan=wide(form, target, segments=1))
    assert "max_0_rate[i] = rate(max_0[i], 0.36067376022224085, 0.25)" in text
    assert "max_0_exponent[i] = rounded_product(max_0[i], max_0_rate[i])" in text
    assert "T.exp2(multiply_add(" in text
    assert text.count("T.exp2(") == 2


def test_sums_of_which_ratios_count_stay_about_the_rounded_pivot() -> None:
    scores = ra.sum(Q * K, d)
    mean = ra.fuse(ra.sum(ra.softmax(scores, j) * V, j), axes="i e")
    text = mean.source("sm_90a", sizes=SIZES, plan=wide(mean, "sm_90a", segments=1))
    assert "multiply_add(" in text
    assert "correction" not in text
    weight = exp(scores - ra.max(scores, j))
    sums = ra.fuse({"out": (ra.sum(weight * V, j), "i e"), "total": (ra.sum(weight, j), "i")})
    text = sums.source("sm_90a", sizes=SIZES, plan=wide(sums, "sm_90a", segments=1))
    assert "correction[i] = T.exp2(-multiply_add(" in text


@pytest.mark.parametrize("scale", [2, ra.scalars("s", positive=True)], ids=str)
def test_a_product_that_may_overflow_is_left(scale: Expr) -> None:
    """k = 2·log₂e is 2.9: times the least float32 it is infinite, and u − c is not."""
    scores = ra.sum(Q * K, d)
    form = ra.fuse(ra.sum(exp(scale * (scores - ra.max(scores, j))) * V, j), axes="i e")
    assert "multiply_add(" not in form.source("sm_90a", sizes=SIZES, plan=wide(form, "sm_90a"))


def test_a_narrow_tile_saves_less_than_a_row_costs() -> None:
    form = weighted_mean(Rational(1, 4))
    plan = with_choices(wide(form, "sm_90a"), block_streamed=64)
    assert "multiply_add(" not in form.source("sm_90a", sizes=SIZES, plan=plan)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("scale", [Rational(1, 8), Rational(1, 4), 1, Rational(-1, 3)], ids=str)
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e36])
@pytest.mark.parametrize("offset", [0.0, -1e4, 1e4])
def test_large_logits_keep_their_digits(size: float, offset: float, segments: int, scale: Expr) -> None:
    """The pivot of a weight is what a rescale and a merge take it for, though k·c is rounded at 1e4 to 1e-3."""
    generator = torch.Generator().manual_seed(0)
    query, keys = (torch.randn(n, 16, generator=generator) for n in (24, 600))
    keys = keys * size
    query[:, 0], keys[:, 0] = (1.0, offset) if size < 1e30 else (query[:, 0], keys[:, 0])
    data = {"q": query, "k": keys, "v": torch.randn(600, 16, generator=generator)}
    form = weighted_mean(scale)
    found = form(**data, backend="tilelang", plan=wide(form, "c", segments=segments))
    wanted = form.reference(**{name: one.double() for name, one in data.items()})
    scores = data["q"] @ data["k"].T * float(scale)
    unfused = torch.softmax(scores, 1) @ data["v"], torch.logsumexp(scores, 1)
    for got, want, plain in zip(*(map(np.float64, one) for one in (found, wanted, unfused)), strict=True):
        assert np.abs(got - want).max() <= 8 * np.abs(plain - want).max() + 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("scale", [Rational(1, 3), 1])
@pytest.mark.parametrize("fill", [-torch.inf, torch.finfo(torch.float32).min, torch.finfo(torch.bfloat16).min, -1e9])
def test_rows_without_weight_are_as_defined(fill: float, scale: Expr) -> None:
    """A row of −∞ has no mean; one of the least number, or of one that absorbs the scores, is uniform."""
    bias = ra.tensor("m[i,j]")
    scores = ra.sum(Q * K, d) / 4 + bias
    weights = exp((scores - ra.max(scores, j)) * scale)
    form = ra.fuse(ra.sum(weights / ra.sum(weights, j) * V, j), axes="i e")
    generator = torch.Generator().manual_seed(0)
    data = {name: torch.randn(n, 16, generator=generator) for name, n in (("q", 24), ("k", 600), ("v", 600))}
    data["m"] = torch.zeros(24, 600)
    data["m"][3], data["m"][5, 40:] = fill, fill
    plan = wide(form, "c")
    assert "multiply_add(" in form.source("c", sizes=SIZES, dtypes="float32", plan=plan)
    found = form(**data, backend="tilelang", plan=plan)
    wanted = torch.softmax((data["q"] @ data["k"].T / 4 + data["m"]).double() * float(scale), 1) @ data["v"].double()
    torch.testing.assert_close(torch.as_tensor(found).double(), wanted, rtol=2e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("offset", [-1e4, -200.0, 0.0, 1e4])
def test_the_first_scores_of_a_row_come_after_masked_tiles(offset: float) -> None:
    """p was 0 while c was −∞: exp2 of the first score, far below 0, was then ∞ times a sum of 0."""
    form = weighted_mean(Rational(1, 4), mask=j >= 20 * i)
    generator = torch.Generator().manual_seed(0)
    data = {"q": torch.ones(24, 16), "k": torch.randint(-3, 4, (600, 16), generator=generator) + offset / 4,
            "v": torch.randn(600, 16, generator=generator)}  # fmt: skip
    found = form(**data, backend="tilelang", plan=wide(form, "c", segments=1))
    wanted = form.reference(**{name: one.double() for name, one in data.items()})
    for got, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), torch.as_tensor(exact), rtol=1e-5, atol=1e-5)
