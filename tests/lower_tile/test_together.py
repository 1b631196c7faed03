"""Outputs that share one pass: whatever stands beside a reduction, at any level, in one part or several, it is right.

An extremum's exponents, a mean's centre, a norm's scale and what is joined in order all ask the loop for something of
their own (moves, a lag, neighbouring elements); here they ask for it together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sympy import Expr, exp

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import outputs_of, problem
from tests.sweeps import draws

n = ra.axis("n")
x, y, w, v = ra.tensors("x[b,n] y[b,n] w[b,n] v[n,e]")
weight = exp(y) / ra.sum(exp(y), n)

OUTPUTS: dict[str, Callable[[], tuple[Expr, str]]] = {
    "sum": lambda: (ra.sum(x, n), "b"),
    "compensated sum": lambda: (ra.compensated_sum(y, n), "b"),
    "product": lambda: (ra.prod(1 + x / 50, n), "b"),
    "maximum": lambda: (ra.max(y, n), "b"),
    "variance": lambda: (ra.var(x, n), "b"),
    "variance of another": lambda: (ra.var(y, n), "b"),
    "third moment": lambda: (ra.mean((x - ra.mean(x, n)) ** 3, n), "b"),
    "covariance": lambda: (ra.covariance(x, w, n), "b"),
    "slope": lambda: (ra.covariance(x, w, n) / (ra.var(x, n) + 1), "b"),
    "logsumexp": lambda: (ra.logsumexp(x, n), "b"),
    "logsumexp of another": lambda: (ra.logsumexp(y, n), "b"),
    "entropy": lambda: (ra.sum(ra.softmax(x, n) * ra.log_softmax(x, n), n), "b"),
    "weighted mean": lambda: (ra.sum(weight * x, n), "b"),
    "weighted variance": lambda: (ra.sum(weight * (x - ra.sum(weight * x, n)) ** 2, n), "b"),
    "norm": lambda: (ra.norm(x, n), "b"),
    "norm of another": lambda: (ra.norm(y, n), "b"),
    "cosine": lambda: (ra.cosine_similarity(x, w, n), "b"),
    "place": lambda: (ra.argmax(x, n), "b"),
    "best three": lambda: (ra.topk(x, n, ra.axis("j", size=3))[0], "b j"),
    "last": lambda: (ra.last(y, n), "b"),
    "any": lambda: (ra.any(x > 2, n), "b"),
    "weights": lambda: (ra.softmax(x, n), "b n"),
    "normed": lambda: (ra.layer_norm(x, n), "b n"),
    "weighted columns": lambda: (ra.sum(ra.softmax(x, n) * v, n), "b e"),
    "centred columns": lambda: (ra.sum((y - ra.mean(y, n)) * v, n), "b e"),
}
ROWS, COLUMNS = 3, 4


@cache
def together(*names: str) -> ra.Fused:
    """One form of several outputs."""
    return ra.fuse({name.replace(" ", "_"): OUTPUTS[name]() for name in names})


def drawn(form: ra.Fused, length: int, seed: int) -> dict[str, torch.Tensor]:
    """Numbers about 3 in x, about 0 elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"v": (length, COLUMNS)}
    return {name: 2 * torch.randn(shapes.get(name, (ROWS, length)), generator=generator) + 3 * (name == "x")
            for name in form.cascade.inputs()}  # fmt: skip


def is_near(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Within rounding of what is large beside it."""
    got, wanted = got.double(), wanted.double()
    return torch.allclose(got, wanted, rtol=1e-4, atol=1e-4 * (1 + float(wanted.abs().max())))


def check(names: tuple[str, ...], length: int, seed: int, tile: dict[str, Any]) -> None:
    """The program under a plan, against the definition."""
    form = together(*names)
    tensors = drawn(form, length, seed)
    options, wanted = problem(form, tensors), outputs_of(form.reference(**tensors))
    plan = form.lower("c", **options).plan
    if numbers_of(plan).multiplies:
        tile = {**tile, "level": numbers_of(plan).level}
    elif form.form.places and tile["level"] == "thread":
        tile = {**tile, "level": "block"}
    if tile["level"] == "row":
        tile = {**tile, "segments": 1, "block_streamed": max(length, 4)}
    program = form.lower("c", **options, plan=with_choices(plan, **tile)).program
    out = interpret(program, {name: one.numpy() for name, one in tensors.items()})
    for name, one in wanted.items():
        assert is_near(torch.from_numpy(out[name]).reshape(one.shape), one), name


TILES = st.fixed_dictionaries({
    "level": st.sampled_from(["thread", "block", "warp", "row"]),
    "block_streamed": st.sampled_from([1, 4, 16]),
    "segments": st.sampled_from([1, 3]),
})  # fmt: skip
LANES = {"level": "thread", "block_streamed": 4, "segments": 1}
together_settings = settings(max_examples=draws(120), suppress_health_check=[HealthCheck.too_slow])


@given(
    st.lists(st.sampled_from(list(OUTPUTS)), min_size=2, max_size=3, unique=True),
    st.sampled_from([1, 2, 5, 70, 300]),
    st.integers(0, 99),
    TILES,
)
@together_settings
@example(["variance", "logsumexp"], 5, 0, LANES)  # a lane's sums follow its maximum while its centre lags
@example(["variance", "logsumexp"], 300, 0, LANES)  # and stay there when the centre moves
@example(["variance", "norm of another"], 300, 0, LANES)
@example(["variance", "last"], 70, 0, LANES)  # neighbouring elements, group after group
def test_outputs_of_one_pass(names: list[str], length: int, seed: int, tile: dict[str, Any]) -> None:
    check(tuple(names), length, seed, tile)


@pytest.mark.slow
@pytest.mark.parametrize("names", [*combinations(OUTPUTS, 2)], ids=", ".join)
def test_every_pair_at_every_level(names: tuple[str, ...]) -> None:
    for length in (1, 5, 70):
        for level in ("thread", "block", "warp", "row"):
            for segments in (1, 3):
                check(names, length, 1, {"level": level, "block_streamed": 4, "segments": segments})
