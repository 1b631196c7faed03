"""Outputs read what the terms of their row's sums were made of: exact, wherever nothing changed in between."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, Ne, Symbol, exp, oo, symbols

import redalg as ra
from redalg.expression import Where
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.mentions import names_stored_by
from redalg.lower_tile.ir.program import Buffer, Copy, Kernel, Parallel, ReduceTile, Statement, Store
from redalg.lower_tile.ir.scalars import Load, ScaledExp
from redalg.lower_tile.passes.kept_terms import keep_terms
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import outputs_of
from tests.lower_tile.test_together import is_near
from tests.sweeps import draws

n = ra.axis("n")
x, w, gate = ra.tensors("x[b,n] w[n] gate[b,n]")
FORMS = {
    "softmax": ra.fuse(ra.softmax(x, n), axes="b n"),
    "log softmax": ra.fuse(x - ra.logsumexp(x, n), axes="b n"),
    "of scaled rows": ra.fuse(ra.softmax(x * w / 3, n), axes="b n"),
    "where a gate is open": ra.fuse(ra.softmax(ra.where(Ne(gate, 0), x, -oo), n), axes="b n"),
    "both": ra.fuse({"share": (ra.softmax(x, n), "b n"), "log": (x - ra.logsumexp(x, n), "b n")}),
    "weighed again": ra.fuse(w * ra.softmax(x, n) + x, axes="b n"),
}
I, J = symbols("i j")
PLAN: Any = SimpleNamespace(level="row", threads=32, device=SimpleNamespace(target="cuda"))


@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from([1, 3, 140]),
    st.sampled_from([1, 7, 128, 1000, 2048]),
    st.sampled_from(["float32", "bfloat16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(25), suppress_health_check=[HealthCheck.too_slow])
def test_rows_mean_the_definition(name: str, rows: int, length: int, dtype: str, seed: int) -> None:
    """In whole rows on an H200, by the program's interpreter."""
    form, generator = FORMS[name], torch.Generator().manual_seed(seed)
    shapes = {"x": (rows, length), "w": (length,), "gate": (rows, length)}
    drawn = {key: torch.randn(shapes[key], generator=generator) for key in form.cascade.inputs()}
    drawn = {key: one.to(getattr(torch, dtype)).float() for key, one in drawn.items()}
    if "gate" in drawn:
        drawn["gate"] = (drawn["gate"] > 0).float()
        drawn["gate"][:, 0] = 1
    options = {"sizes": {"b": rows, "n": length}, "dtypes": dtype}
    plan = form.lower("sm_90a", **options).plan
    whole = 1 << max(5, (length - 1).bit_length())
    choices = {"level": "row", "threads": 32, "block_row": 1, "block_streamed": whole, "segments": 1}
    program = form.lower("sm_90a", **options, plan=with_choices(plan, **choices)).program
    out = interpret(program, {key: one.numpy() for key, one in drawn.items()})
    wanted = form.reference(**{key: one.double() for key, one in drawn.items()})
    for key, value in outputs_of(wanted).items():
        assert is_near(torch.from_numpy(out[key]).reshape(value.shape), value), key


@pytest.mark.parametrize(("name", "exponentials"), [
    ("softmax", 1), ("of scaled rows", 1), ("where a gate is open", 1), ("both", 1), ("weighed again", 1),
])  # fmt: skip
@pytest.mark.parametrize("length", [1000, 1024])
def test_an_element_has_one_exponential(name: str, exponentials: int, length: int) -> None:
    form = FORMS[name]
    dtypes = dict.fromkeys(form.cascade.inputs(), "bfloat16")
    [kernel] = form.lower("H200", {"b": 4096, "n": length}, dtypes).program.kernels
    loops = [one for one in kernel.body if isinstance(one, Parallel) and len(one.indices) > 1]
    found = {node for loop in loops for store in loop.body for node in store.expr.atoms(ScaledExp, exp)}
    assert len(found) == exponentials


# ---- the pass --------------------------------------------------------------------------------------------------------


def each(target: str, expr: Expr, *, guard: Any = True) -> Parallel:
    """A loop over a tile of 1 x 64 elements."""
    indices = ((I, 1), (J, 64))
    store = Store(target, (I, J), expr)
    return Parallel(indices, (store if guard is True else replace(store, guard=guard),))


def row(target: str, expr: Expr) -> Parallel:
    """A loop over one row's number."""
    return Parallel(((I, 1),), (Store(target, (I,), expr),))


X, U, TERM, M, R, S = Load("x", I, J), Load("u", I, J), Load("t", I, J), Load("m", I), Load("r", I), Load("s", I)
LIVE = Symbol("j") < 50


def kept(*body: Statement, dtype: str = "bfloat16") -> list[Expr]:
    """The expressions of the loops that store outputs, after the pass."""
    tiles = (Buffer("x", "fragment", (1, 64), dtype), *(Buffer(one, "fragment", (1, 64), "float32") for one in "ut"))
    numbers = tuple(Buffer(one, "fragment", (1,), "float32") for one in "mrs")
    kernel = keep_terms(Kernel((), (*tiles, *numbers), body, "test"), PLAN)
    loops = (one for one in kernel.body if isinstance(one, Parallel))
    stored = {store.target for one in kernel.body if isinstance(one, Parallel) for store in one.body}
    assert {one.name for one in kernel.buffers} >= stored - {"out"}
    return [store.expr for one in loops for store in one.body if store.target == "out"]


LOADED = Copy("data", "x")
MAXIMUM, SUM = ReduceTile("max", "u", "m", clear=True), ReduceTile("sum", "t", "s", clear=True)
STEPS = (LOADED, each("u", X), MAXIMUM, each("t", ScaledExp(U, M, Integer(1))), SUM)


def test_an_exponential_is_read_again() -> None:
    assert kept(*STEPS, each("out", ScaledExp(X, M, Integer(1)) / S)) == [TERM / S]


def test_a_name_stands_for_what_it_is_stored_as() -> None:
    """r = m: the loop that stores it goes with its last reader."""
    assert kept(*STEPS, row("r", M), each("out", ScaledExp(X, R, Integer(1)) / S)) == [TERM / S]


def test_a_mask_is_implied_by_the_guard_or_stays() -> None:
    masked = each("u", Where(LIVE, X, -oo))
    steps = (LOADED, masked, *STEPS[2:])
    weight = ScaledExp(X, M, Integer(1))
    assert kept(*steps, each("out", weight, guard=LIVE)) == [TERM]
    assert kept(*steps, each("out", weight)) == [weight]
    assert kept(*steps, each("out", X - M, guard=LIVE)) == [U - M]


@pytest.mark.parametrize("change", [
    Copy("data", "x"), ReduceTile("max", "u", "m", clear=True), row("m", S), each("t", U), each("u", TERM),
], ids=str)  # fmt: skip
def test_what_changed_is_computed_anew(change: Statement) -> None:
    weight = ScaledExp(X, M, Integer(1)) / S
    [found] = kept(*STEPS, change, each("out", weight))
    assert found in (weight, weight.xreplace({X: U}))
    assert found == weight or not {"x", "u"} & names_stored_by(change)


def test_a_loop_that_changes_what_it_read_stands_for_nothing() -> None:
    """r = m; m = s, in one loop: r is no longer m."""
    both = Parallel(((I, 1),), (Store("r", (I,), M), Store("m", (I,), S)))
    weight = ScaledExp(X, R, Integer(1))
    assert kept(LOADED, each("u", X), both, each("t", ScaledExp(U, M, Integer(1))), each("out", weight)) == [weight]


def test_other_exponentials_stay() -> None:
    for other in (ScaledExp(X, R, Integer(1)), ScaledExp(X, M, Integer(2)), ScaledExp(S, M, Integer(1))):
        assert kept(*STEPS, each("out", other)) == [other.xreplace({X: U})]


def test_an_element_of_more_digits_is_read_as_it_is() -> None:
    """Integers and float64 lose digits in a tile of float32."""
    body = (*STEPS, each("out", X - M))
    assert kept(*body) == [U - M]
    assert kept(*body, dtype="int32") == [X - M]
    assert kept(*body, dtype="float64") == [X - M]


# ---- kernels ---------------------------------------------------------------------------------------------------------

LONG = {
    "softmax": (ra.softmax(x, n), lambda x: torch.softmax(x, 1)),
    "log softmax": (x - ra.logsumexp(x, n), lambda x: torch.log_softmax(x, 1)),
    "layer norm": (ra.layer_norm(x, n), lambda x: torch.nn.functional.layer_norm(x, x.shape[1:])),
    "rms norm": (ra.rms_norm(x, n), lambda x: torch.nn.functional.rms_norm(x, x.shape[1:], eps=1e-5)),
}
"""Expression and PyTorch's function."""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("rows", "length"), [(200, 1000), (140, 16384), (133, 18000), (140, 32000), (70, 40000), (135, 50257)]
)
@pytest.mark.parametrize("name", LONG)
def test_rows_that_a_block_holds_are_right_on_a_gpu(name: str, rows: int, length: int, dtype: torch.dtype) -> None:
    """With a constant row, one of −∞ but for a place, and one of large numbers."""
    expr, of_torch = LONG[name]
    generator = torch.Generator("cuda").manual_seed(length)
    data = torch.randn(rows, length, generator=generator, device="cuda").to(dtype)
    data[0], data[2] = 3.0, 1e4 + 10 * data[2]
    if "softmax" in name:
        data[1], data[1, 7] = -torch.inf, 1.0
    out, wanted = ra.fuse(expr, axes="b n")(x=data), of_torch(data.double())
    bound = {torch.float32: 2e-5, torch.bfloat16: 1.2e-2, torch.float16: 2e-3}[dtype]
    largest = wanted.abs().where(wanted.isfinite(), 0).amax(1, keepdim=True)
    away = (out.double() - wanted).abs() / largest.clamp_min(1e-3 if "norm" in name else 1e-9)
    assert out.dtype == dtype
    assert torch.equal(out[1].double().isinf(), wanted[1].isinf())
    assert float(away.where(wanted.isfinite(), 0).max()) < bound
