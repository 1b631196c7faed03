"""Monoids of several components in kernels: sums that carry what rounding loses, and those that a user registers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Expr, Max, Min, oo

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.interpret import interpret
from redalg.monoids import MONOIDS
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.kernels import outputs_of, problem, worst_error
from tests.sweeps import draws

b, n, c = ra.axes("b n c")
x, y, z, w = ra.tensors("x[b,n] y[b,n] z[b,n] w[b,n]")
relaxed = settings(
    max_examples=draws(6), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
EPSILON = 2.0**-24


# ---- compensated sums ------------------------------------------------------------------------------------------------

SUM = ra.fuse(ra.compensated_sum(x, n))


def cancelling(rows: int, length: int, seed: int) -> torch.Tensor:
    """Numbers of about 1e8 that cancel in pairs, some far apart, and small ones between them."""
    rng = np.random.default_rng(seed)
    large = (1e8 + 30 * rng.standard_normal((rows, length))).astype(np.float32)
    far, near = rng.random((rows, length)) < 0.5, rng.standard_normal((2, rows, length))
    made = np.concatenate([np.where(far, large, near[0]), np.where(far, -large, near[1])[:, : length - 1]], 1)
    return torch.from_numpy(rng.permuted(made, axis=1).astype(np.float32))


def exact(values: torch.Tensor) -> torch.Tensor:
    """The sum in extended precision."""
    wide = values.numpy().astype(np.longdouble)
    return torch.from_numpy(wide.sum(1).astype(np.float64))


def bound(values: torch.Tensor, lanes: int) -> torch.Tensor:
    """2u|Σ x| + (d·u)²Σ|x|, d the depth of the sum: to second order alone (Ogita, Rump, Oishi 2005, section 4)."""
    depth = values.shape[1] / lanes + np.log2(values.shape[1]) + 2
    return 2 * EPSILON * exact(values).abs() + (depth * EPSILON) ** 2 * values.double().abs().sum(1)


@relaxed
@given(st.sampled_from([1, 2, 7, 64, 333]), st.integers(0, 99), st.sampled_from([1, 3, 16, 64]),
       st.sampled_from(["c", "sm_90a"]))  # fmt: skip
def test_a_compensated_sum_by_lanes(length: int, seed: int, lanes: int, target: str) -> None:
    """The tile program, as the form's own interpreter, keeps what a plain sum loses."""
    values = cancelling(3, length, seed)
    options = problem(SUM, {"x": values})
    lanes *= 1 if target == "c" else 64
    plan = with_choices(SUM.lower(target, **options).plan, block_streamed=lanes)
    out = torch.from_numpy(interpret(SUM.lower(target, **options, plan=plan).program, {"x": values.numpy()})["out"])
    for got in (out, SUM(x=values, backend="torch"), SUM(x=values, backend="numpy")):
        assert bool(((got.double() - exact(values)).abs() <= bound(values, lanes)).all())


def test_the_compiler_keeps_the_compensation() -> None:
    """Neither TVM's simplifier, which takes (a + b) − a for b, nor the C compiler takes it away."""
    values = cancelling(4, 2000, 1)
    allowed = bound(values, numbers_of(SUM.lower("c", **problem(SUM, {"x": values})).plan).block_streamed)
    got, plain = SUM(x=values, backend="tilelang").double(), values.sum(1).double()
    assert bool(((got - exact(values)).abs() <= allowed).all())
    assert bool(((plain - exact(values)).abs() > 10 * allowed).all())


def test_a_compensated_sum_of_what_is_not_finite() -> None:
    rows = torch.tensor([[torch.inf, 1.0, 2.0], [torch.inf, 1.0, -torch.inf], [torch.nan, 0.0, 1.0], [3e38, 3e38, 1.0]])
    got = torch.from_numpy(interpret(SUM.lower("c", **problem(SUM, {"x": rows})).program, {"x": rows.numpy()})["out"])
    assert got.isnan().tolist() == [False, True, True, False]
    assert got[0] == got[3] == torch.inf


def test_each_step_of_a_compensated_sum_has_a_buffer() -> None:
    """In one expression it would be simplified to 0."""
    text = SUM.source("sm_90a", sizes={"b": 4, "n": 4096}, dtypes="float32")
    assert "second[i, j] = total[i, j] - compensated_sum_0_sum_lanes[i, j]" in text
    assert "fast_math" not in text


@pytest.mark.parametrize("merge", ["kernel", "launch"])
def test_parts_of_a_long_row_are_compensated_too(merge: str) -> None:
    values = cancelling(2, 3000, 2)
    plan = with_choices(SUM.lower("c", **problem(SUM, {"x": values})).plan, segments=5, merge=merge, block_merged=1)
    for level in ("thread", "block"):
        got = SUM(x=values, backend="tilelang", plan=with_choices(plan, level=level))
        assert bool(((got.double() - exact(values)).abs() <= bound(values, numbers_of(plan).block_streamed)).all())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_tree_is_a_loop_that_waits_before_it_reads_and_before_it_stores() -> None:
    """Lanes do not lengthen the text, and neighbours are never read while others are stored."""
    form, known = ra.fuse(ra.first(x, n, y > 0)), ({"b": 999, "n": 3000}, {"x": "float32", "y": "float32"})
    plan = form.lower("sm_90a", *known).plan
    few, many = (form.lower("sm_90a", *known, plan=with_choices(plan, segments=1, block_streamed=lanes))
                 for lanes in (64, 1024))  # fmt: skip
    assert len(str(few.source).splitlines()) == len(str(many.source).splitlines())
    [compiled] = compile_only(few.source)
    tree = compiled.cuda[compiled.cuda.index("for (int level") :]
    _, joins, stores, after = tree.split("__syncthreads();")
    stored = re.compile(r"_tree\)\[.*\] = ")
    assert "_joined" in joins
    assert stored.search(stores)
    assert not stored.search(joins)
    assert not stored.search(after)


def test_a_long_row_is_cut_by_the_rules() -> None:
    options: Any = {"sizes": {"b": 1, "n": 1 << 24}, "dtypes": {"x": "float32"}}
    assert numbers_of(SUM.lower("sm_90a", **options).plan).segments > 32


# ---- two monoids of the same elements --------------------------------------------------------------------------------

ENDS = ra.fuse({"a": (ra.first(x, n), "b"), "z": (ra.last(x, n), "b")})


@pytest.mark.parametrize("length", [1, 6, 100, 128, 300])
@pytest.mark.parametrize("target", ["c", "sm_90a"])
def test_elements_that_two_monoids_share(target: str, length: int) -> None:
    """Beyond the end of a row no lane has an element, for either."""
    rows = torch.arange(1.0, 2 * length + 1).reshape(2, length)
    program = ENDS.lower(target, **problem(ENDS, {"x": rows})).program
    out = interpret(program, {"x": rows.numpy()})
    assert out["a"].tolist() == rows[:, 0].tolist()
    assert out["z"].tolist() == rows[:, -1].tolist()


# ---- monoids that a user registers -----------------------------------------------------------------------------------

Parts = tuple[Expr, ...]


def joined_moments(a: Parts, b: Parts) -> Parts:
    """(n, mean, M₂) of both (Chan et al. 1979)."""
    count, delta = a[0] + b[0], b[1] - a[1]
    some = ra.where(ra.eq(count, 0), 1, count)
    return count, a[1] + delta * b[0] / some, a[2] + b[2] + delta**2 * a[0] * b[0] / some


def multiplied(p: Parts, q: Parts) -> Parts:
    """Two matrices of 2 by 2."""
    return (p[0] * q[0] + p[1] * q[2], p[0] * q[1] + p[1] * q[3],
            p[2] * q[0] + p[3] * q[2], p[2] * q[1] + p[3] * q[3])  # fmt: skip


OWN: dict[str, dict[str, Any]] = {
    "own_total": {"components": {"s": 0}, "combine": lambda a, b: a[0] + b[0]},
    "own_moments": {
        "components": {"count": 0, "mean": 0, "m2": 0}, "integers": ["count"], "lift": lambda x, n: (1, x, 0),
        "combine": joined_moments, "lower": lambda count, mean, m2: m2 / count,
    },
    "own_second": {
        "components": {"best": -oo, "second": -oo}, "domain": "extended", "exact": True,
        "lift": lambda x, n: (x, -oo), "combine": lambda a, b: (Max(a[0], b[0]), Max(Min(a[0], b[0]), a[1], b[1])),
    },
    "own_matrices": {"components": {"p": 1, "q": 0, "r": 0, "s": 1}, "combine": multiplied, "commutative": False},
    "own_brackets": {
        "components": {"open": 0, "close": 0}, "integers": ["open", "close"], "domain": "truth", "exact": True,
        "commutative": False, "lift": lambda x, n: (x, 1 - x),
        "combine": lambda a, b: (b[0] + Max(0, a[0] - b[1]), a[1] + Max(0, b[1] - a[0])),
    },
    "own_places": {
        "components": {"first": 2**40, "last": -1}, "integers": ["first", "last"], "exact": True, "idempotent": True,
        "lift": lambda x, n: (ra.where(x > 0, n, 2**40), ra.where(x > 0, n, -1)),
        "combine": lambda a, b: (Min(a[0], b[0]), Max(a[1], b[1])),
    },
}  # fmt: skip
OPERANDS: dict[str, list[Expr]] = {
    "own_matrices": [1 + x / 9, y / 9, z / 9, 1 + w / 9], "own_brackets": [ra.where(x > 0, 1, 0)],
}  # fmt: skip


@pytest.fixture
def registered() -> Iterator[Callable[[str], ra.Fused]]:
    """What fuses a reduction by one of them; the table of monoids is put back as it was."""
    before, known = dict(MONOIDS), dict[str, ra.Fused]()

    def made(name: str) -> ra.Fused:
        if name not in known:
            known[name] = fused(name)
        return known[name]

    def fused(name: str) -> ra.Fused:
        ra.register_monoid(name, **OWN[name])
        results = ra.reduce(name, *OPERANDS.get(name, [x]), axis=n)
        several = results if isinstance(results, tuple) else (results,)
        return ra.fuse({f"out_{place}": (one, "b") for place, one in enumerate(several)})

    yield made
    MONOIDS.clear()
    MONOIDS.update(before)


PLANS: list[dict[str, Any]] = [
    {"level": level, "block_streamed": lanes, "segments": segments, "merge": merge, "block_merged": rows}
    for level in ("thread", "block") for lanes in (1, 3, 16) for segments in (1, 2, 5)
    for merge, rows in (("kernel", 1), ("launch", 1), ("launch", 3)) if segments > 1 or merge == "kernel"
    if level == "thread" or lanes != 3
]  # fmt: skip


def drawn(form: ra.Fused, length: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(3, length, generator=generator) for name in form.cascade.inputs()}


@pytest.mark.sweep(3)
@relaxed
@given(st.sampled_from([1, 2, 7, 100]), st.integers(0, 99), st.sampled_from(PLANS))
@pytest.mark.parametrize("name", OWN)
def test_a_registered_monoid_in_the_tile_program(
    registered: Callable[[str], ra.Fused], name: str, length: int, seed: int, changes: dict[str, Any]
) -> None:
    """By lanes and tile by tile, in one part and several, which are merged in their order."""
    form = registered(name)
    tensors = drawn(form, length, seed)
    options, wanted = problem(form, tensors), form.reference(**tensors)
    plan = with_choices(form.lower("c", **options).plan, **changes)
    out = interpret(form.lower("c", **options, plan=plan).program, {key: one.numpy() for key, one in tensors.items()})
    for key, one in outputs_of(wanted).items():
        got = torch.from_numpy(out[key])
        assert worst_error(got, one) <= (0 if not one.dtype.is_floating_point else 1e-5)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["own_moments", "own_matrices", "own_places"])
def test_a_registered_monoid_on_the_c_target(registered: Callable[[str], ra.Fused], name: str) -> None:
    form = registered(name)
    tensors = drawn(form, 300, 0)
    plan, wanted = form.lower("c", **problem(form, tensors)).plan, outputs_of(form.reference(**tensors))
    for segments in (1, 3):
        out = outputs_of(form(**tensors, backend="tilelang", plan=with_choices(plan, segments=segments)))
        for key, one in wanted.items():
            assert worst_error(out[key], one) <= (0 if not one.dtype.is_floating_point else 1e-5)


@pytest.mark.parametrize("lift", [lambda x, n: n**2, lambda x, n: n * 3, lambda x, n: x])
def test_an_integer_that_a_kernel_would_round_is_refused(registered: Any, lift: Any) -> None:
    ra.register_monoid("own_sum", components={"s": 0}, integers=["s"], lift=lift, domain="count", exact=True,
                       combine=lambda a, b: a[0] + b[0])  # fmt: skip
    form = ra.fuse(ra.reduce("own_sum", x, axis=n))
    with pytest.raises(PlanError, match="component `s` of own_sum is an integer, and a kernel would compute `"):
        form.lower("c", {"b": 2, "n": 3}, {"x": "float32"})


def test_a_producer_may_be_a_truth_value() -> None:
    X, W = ra.tensors("X[b,c] W[c,n]")
    form = ra.fuse(ra.sum(ra.where(ra.ne(ra.any(X + W > 1, c), 0), ra.all(X + W > -2, c), 3), n), axes="b")
    tensors = {"X": torch.randn(5, 3), "W": torch.randn(3, 40)}
    out = interpret(form.lower("c", **problem(form, tensors)).program, {k: v.numpy() for k, v in tensors.items()})
    assert worst_error(torch.from_numpy(out["out"]), form.reference(**tensors)) == 0


def test_selected_elements_may_be_neighbours_of_one_tile() -> None:
    """Where r[b, n, 0] and r[b, n, 1] are one dimension, what is selected is read there too."""
    r = ra.Tensor("r")
    form, values = ra.fuse(ra.argmax(r[b, n, 0] + r[b, n, 1], n)), torch.randn(3, 40, 2)
    out = interpret(form.lower("c", **problem(form, {"r": values})).program, {"r": values.numpy()})["out"]
    assert out.tolist() == values.sum(2).argmax(1).tolist()
