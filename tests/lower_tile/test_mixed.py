"""Reductions of reductions over two and three axes, drawn at random: program and derived form against the definition.

An element e of all axes; s = ⊕ e along one of them; an output of e, of s and of what reduces them along another. Loops
of other axes, stages before and after, elementwise stages: what the engine fuses no kernel refuses, and all is right.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Expr, exp, sqrt

import redalg as ra
from redalg.expression.contents import free_axes
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from tests.oracle import Oracle
from tests.sweeps import draws

i, k, b, n, c = ra.axes("i k b n c")
x, w, v, z, u = ra.tensors("x[i,k] w[i] v[k] z[b,n,c] u[n]")
SIZES = {"i": 5, "k": 7, "b": 3, "n": 4, "c": 6}
LARGE = {"i": 300, "k": 200, "b": 8, "n": 64, "c": 100}
SPACES = (((i, k), x, (w, v)), ((b, n, c), z, (u,)))

MAPS: tuple[Callable[[Any], Any], ...] = (
    lambda e: e, lambda e: e**2, lambda e: exp(-(e**2) / 4), lambda e: 1 / (1 + e**2), lambda e: sqrt(1 + e**2),
    lambda e: ra.where(e > 0.3, e, 0.5 * e),
)  # fmt: skip
PAIRS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p / (1 + q**2)
)  # fmt: skip
REDUCED: tuple[Callable[[Any, Any], Any], ...] = (
    ra.sum, ra.mean, ra.max, ra.min, ra.var, ra.logsumexp, lambda e, axis: ra.sum(ra.softmax(e, axis) * e, axis)
)  # fmt: skip


@st.composite
def outputs(draw: st.DrawFn) -> Expr:
    """One output."""

    def mapped(e: Any) -> Any:
        return draw(st.sampled_from(MAPS))(e)

    def paired(p: Any, q: Any) -> Any:
        return draw(st.sampled_from(PAIRS))(p, q)

    def reduced(e: Any, axis: ra.Axis) -> Any:
        return draw(st.sampled_from(REDUCED))(e, axis)

    axes, base, others = draw(st.sampled_from(SPACES))
    e = paired(mapped(base), draw(st.sampled_from(others)))
    first, second, *_ = draw(st.permutations(axes))
    s = reduced(mapped(e), first)
    made: Expr = draw(st.sampled_from((
        lambda: reduced(paired(mapped(s), s), second),
        lambda: paired(e, reduced(s, second)),
        lambda: paired(s, reduced(s, second)),
        lambda: reduced(paired(e, s), second),
        lambda: paired(paired(e, s), reduced(paired(e, s), second)),
        lambda: reduced(paired(s, reduced(e, second)), second),
        lambda: paired(reduced(e, first), reduced(mapped(e), second)),
    )))()  # fmt: skip
    return made


def example(form: ra.Fused, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {one.name: [SIZES[str(axis)] for axis in one.indices] for one in form.cascade.elements()}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def named_axes(expr: Expr) -> str:
    """The axes of an output, in order."""
    return " ".join(str(one) for axes, *_ in SPACES for one in axes if one in free_axes(expr))


def fused(expr: Expr) -> ra.Fused | None:
    """The form of an output; None where the engine says that it has none, and why."""
    try:
        return ra.fuse(expr, axes=named_axes(expr))
    except (ra.NotFusible, ra.NotDecided, ra.ExpressionError):
        return None


def check(expr: Expr, seed: int, targets: tuple[str, ...] = ("c", "sm_90a")) -> None:
    """The derived form and the programs of an output are the definition, within the running bound on rounding."""
    form = fused(expr)
    if form is None:
        return
    data = example(form, seed)
    wanted, bound = Oracle(data, {}, SIZES).output(expr, named_axes(expr))

    def assert_defined(got: np.ndarray) -> None:
        wrong = np.abs(got.reshape(wanted.shape) - wanted) > np.finfo("float32").eps * bound
        assert not wrong.any(), f"{expr}: {got.reshape(wanted.shape)[wrong][:3]}, wanted {wanted[wrong][:3]}"

    assert_defined(np.asarray(form(**data, backend="numpy")))
    sizes = {axis.name: SIZES[axis.name] for axis in form.cascade.axes()}
    for target in targets:
        one = form.lower(target, sizes, dict.fromkeys(data, "float32"))
        assert_defined(interpret(one.program, data)["out"])


quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=draws(25), suppress_health_check=quiet)
@given(outputs(), st.integers(0, 9))
def test_reductions_of_reductions(expr: Expr, seed: int) -> None:
    check(expr, seed)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=quiet)
@given(outputs(), st.integers(0, 9))
def test_many_reductions_of_reductions(expr: Expr, seed: int) -> None:
    check(expr, seed)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@settings(max_examples=40, suppress_health_check=quiet)
@given(outputs())
def test_many_compile_at_sizes_of_hundreds(expr: Expr) -> None:
    form = fused(expr)
    if form is not None:
        one = form.lower(
            "sm_90a",
            {axis.name: LARGE[axis.name] for axis in form.cascade.axes()},
            dict.fromkeys(form.cascade.inputs(), "float32"),
        )
        assert all(kernel.registers for kernel in compile_only(one.source))
