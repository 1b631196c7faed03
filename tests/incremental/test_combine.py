"""Programs of a form: they verify, a tape is the interpreter's run, and every way to combine gives the definition."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import S, oo, sqrt

import redalg as ra
from redalg.expression import Axis, Value
from redalg.incremental.arrays.interpret import Executor, run_lines, run_program, tapes
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.incremental.combine.combine import combine
from redalg.incremental.combine.define import definition_program
from redalg.incremental.combine.elements import Elements
from redalg.incremental.combine.finish import finish_program, output_program
from redalg.incremental.combine.let import Assign, Program
from redalg.incremental.combine.lines import Lines
from redalg.incremental.combine.programs import (
    add_program,
    first_program,
    lane_program,
    leaf_program,
    merge_program,
    move_program,
    programs,
    recentre_program,
    step_program,
    tile_program,
)
from redalg.incremental.combine.sources import Source, States
from redalg.incremental.form import FusedForm
from redalg.library import variance
from redalg.runtime.bind.arrays import scope_for, to_axes
from redalg.runtime.bind.inputs import bind

b, n, k, d, q = ra.axes("b n k d q")
j = ra.axis("j", size=3)
e = ra.axes("e")
x, w, y, Z = ra.tensors("x[b,n] w[b,n] y[b,n] Z[b,n,e]")
Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
SCORE = ra.sum(Q * K, d) / sqrt(d.extent)
weights = ra.softmax(y, n)
LANE = Axis("lane")
EXPRESSIONS = {
    "mean": ra.mean(x, n),
    "variance": ra.var(x, n),
    "skewed": ra.mean((x - ra.mean(x, n)) ** 3, n),
    "weighted variance": ra.sum(w * (x - ra.sum(w * x, n) / ra.sum(w, n)) ** 2, n) / ra.sum(w, n),
    "masked variance": ra.var(ra.where(n > 4, x, 0), n),
    "covariance": ra.covariance(x, y, n),
    "regression": ra.sum((y - ra.mean(y, n) - ra.covariance(x, y, n) / ra.var(x, n) * (x - ra.mean(x, n))) ** 2, n),
    "softmax variance": ra.sum(weights * (x - ra.sum(weights * x, n)) ** 2, n),
    "masked by a sum": ra.sum(ra.where(ra.sum(Z, e) > 0, x, 0), n),
    "norm": ra.norm(x, n),
    "logsumexp": ra.logsumexp(x, n),
    "entropy": ra.entropy(ra.softmax(x, n), n),
    "range": ra.max(x, n) - ra.min(x, n),
    "product": ra.prod(1 + x / 8, n),
    "argmax": ra.argmax(x, n),
    "topk": ra.topk(x, n, j)[0],
    "recurrence": ra.reduce("affine", w / 2, x, axis=n)[1],
    "first": ra.first(x, n),
    "compensated": ra.compensated_sum(x, n),
    "attention": ra.sum(ra.softmax(SCORE, k) * V, k),
    "causal": ra.sum(ra.softmax(ra.where(k <= q, SCORE, -oo), k) * V, k),
}
AXES = {"attention": "b q e", "causal": "b q e", "topk": "b j"}
SIZES = {"b": 2, "n": 23, "k": 13, "q": 5, "d": 4, "e": 3}


@cache
def fused(name: str) -> ra.Fused:
    return ra.fuse(EXPRESSIONS[name], axes=AXES.get(name))


def drawn(name: str, seed: int, offset: float) -> dict[str, np.ndarray]:
    """Float64 data: positive weights, the rest about an offset."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for element in fused(name).cascade.elements():
        shape = [SIZES[str(axis)] for axis in element.indices]
        found[element.name] = rng.random(shape) + 0.1 if element.name == "w" else rng.normal(offset, 1, shape)
    return found


class Laned:
    """A form on data, over the cascade's axes and one more, along which states may lie."""

    def __init__(self, name: str, data: dict[str, np.ndarray]) -> None:
        self.form, self.ops = fused(name).form, NumpyOps()
        bound = bind(self.form.cascade, data)
        plain = scope_for(self.form.cascade, bound, self.ops, data)
        self.plain = plain
        self.scope = replace(plain, axes=(*plain.axes, LANE), ranges={**plain.ranges, LANE: (0, 1)})
        self.streamed = self.form.cascade.axis

    def combined(
        self, sources: Callable[[Lines], Sequence[Source]], given: dict[Value, Any], ranges: dict[Axis, Any]
    ) -> dict[Value, Any]:
        lines = Lines()
        wanted = sources(lines)
        state = combine(self.form, wanted, lines)
        domain = next((source.domain for source in wanted if isinstance(source, Elements)), S.true)
        inputs = tuple(given)
        program = Program("combined", inputs, tuple(lines.lets), state, domain).prune()
        program.verify()
        with np.errstate(all="ignore"):
            return run_lines(program, self.scope.over(ranges), given)

    def leaf(self, start: int, stop: int) -> dict[Value, Any]:
        ranges = {self.streamed: (start, stop)}
        return self.combined(lambda lines: [Elements(self.form, lines)], {}, ranges)

    def step(self, state: dict[Value, Any], start: int, stop: int) -> dict[Value, Any]:
        """The running state and the data of a block at once: one step of a loop."""

        def sources(lines: Lines) -> list[Source]:
            return [States(self.form, "a", lines), Elements(self.form, lines)]

        given = {States(self.form, "a", Lines()).read(value): array for value, array in state.items()}
        return self.combined(sources, given, {self.streamed: (start, stop)})

    def together(self, states: Sequence[dict[Value, Any]]) -> dict[Value, Any]:
        """All states at once, side by side along an axis."""
        beside = States(self.form, "p", Lines(), (LANE,))
        given = dict[Value, Any]()
        for value in states[0]:
            arrays = np.broadcast_arrays(*(state[value] for state in states))
            given[beside.read(value)] = np.concatenate(arrays, -1)
        ranges = {LANE: (0, len(states)), self.streamed: (0, 0)}
        return self.combined(lambda lines: [States(self.form, "p", lines, (LANE,))], given, ranges)

    def lanes(self, start: int, width: int, turns: int) -> dict[Value, Any]:
        """A state in each of `width` lanes, which take every `width`-th element; then all lanes at once."""

        def sources(lines: Lines) -> list[Source]:
            return [States(self.form, "a", lines), Elements(self.form, lines, ())]

        state = self.combined(
            lambda lines: [Elements(self.form, lines, ())], {}, {self.streamed: (start, start + width)}
        )
        for turn in range(1, turns):
            given = {States(self.form, "a", Lines()).read(value): array for value, array in state.items()}
            first = start + turn * width
            state = self.combined(sources, given, {self.streamed: (first, first + width)})
        beside = States(self.form, "p", Lines(), (self.streamed,))
        given = {beside.read(value): array for value, array in state.items()}
        return self.combined(
            lambda lines: [States(self.form, "p", lines, (self.streamed,))], given, {self.streamed: (0, width)}
        )

    def finished(self, state: dict[Value, Any]) -> np.ndarray:
        executor = Executor(self.form, self.ops)
        with np.errstate(all="ignore"):
            [output] = executor.finish(self.plain, {value: array[..., 0] for value, array in state.items()}).values()
        return np.squeeze(to_axes(output, self.form.outputs[0].axes, self.plain))


def cuts(length: int, edges: Sequence[int]) -> list[tuple[int, int]]:
    ends = [0, *sorted(min(edge, length) for edge in edges), length]
    return list(pairwise(ends))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", EXPRESSIONS)
@given(st.lists(st.integers(0, 23), max_size=4), st.integers(0, 9), st.sampled_from([0.0, 100.0]))
def test_every_way_to_combine_gives_the_definition(name: str, edges: list[int], seed: int, offset: float) -> None:
    data = drawn(name, seed, offset)
    laned = Laned(name, data)
    length = SIZES[str(laned.streamed)]
    pieces = cuts(length, edges)
    states = [laned.leaf(*piece) for piece in pieces]
    stepped = states[0]
    for piece in pieces[1:]:
        stepped = laned.step(stepped, *piece)
    wanted = np.squeeze(fused(name).reference(**data))
    for state in (laned.leaf(0, length), stepped, laned.together(states)):
        np.testing.assert_allclose(laned.finished(state), wanted, rtol=1e-8, atol=1e-8)


COMMUTATIVE = [name for name in EXPRESSIONS if not fused(name).form.structures]
"""Forms whose lanes may take elements out of order, and whose states of one element are numbers."""


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", COMMUTATIVE)
@given(st.integers(1, 4), st.integers(0, 9), st.sampled_from([0.0, 100.0]))
def test_lanes_of_single_elements_give_the_definition(name: str, turns: int, seed: int, offset: float) -> None:
    data = drawn(name, seed, offset)
    laned = Laned(name, data)
    length = SIZES[str(laned.streamed)]
    width = length // turns
    state = laned.together([laned.lanes(0, width, turns), laned.leaf(width * turns, length)])
    wanted = np.squeeze(fused(name).reference(**data))
    np.testing.assert_allclose(laned.finished(state), wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_programs_of_kernels_verify(name: str) -> None:
    form = fused(name).form
    still = frozenset(pivot.value for pivot in form.slot_pivots)
    for ends in (False, True):
        step_program(form, ends=ends).verify()
        tile_program(form, ends=ends).verify()
        first_program(form, ends=ends).verify()
        add_program(form, ends=ends).verify()
        for full, steps in ((True, 0), (False, 1)):
            lane_program(form, ends=ends, full=full, steps=steps, still=still if full else frozenset()).verify()
    recentre_program(form).verify()
    move_program(form).verify()


def test_an_element_whose_extrema_are_met_is_added_without_rescaling() -> None:
    form = fused("attention").form
    assert "rescale" in str(move_program(form))
    assert "rescale" not in str(add_program(form, ends=False))


def test_a_full_lane_asks_for_no_empty_state() -> None:
    form = fused("variance").form
    asks = [str(lane_program(form, ends=False, full=full, steps=0)).count("-oo") for full in (True, False)]
    assert asks[0] == 0 < asks[1]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_programs_verify_and_tapes_are_the_interpreters_runs(name: str) -> None:
    form, data = fused(name).form, drawn(name, 0, 1.0)
    written = programs(form)
    for program in (
        *map(written.of, (leaf_program, merge_program, finish_program)),
        written.of(output_program, carries=False, empty="zero"),
    ):
        program.verify()
        assert str(program).count("\n") >= len(program.lets)
    scope = scope_for(form.cascade, bind(form.cascade, data), NumpyOps(), data)
    program = written.of(leaf_program)
    with np.errstate(all="ignore"):
        by_tape, by_lines = run_program(program, scope, {}), run_lines(program, scope, {})
    assert tapes(program)
    for value, array in by_lines.items():
        np.testing.assert_array_equal(by_tape[value], array)


def test_one_tape_serves_other_sizes_and_frees_what_it_no_longer_reads() -> None:
    form = fused("variance").form
    program, ops = programs(form).of(leaf_program), NumpyOps()
    for length in (1, 7, 300):
        data = {"x": np.random.default_rng(0).normal(size=(3, length))}
        state = run_program(program, scope_for(form.cascade, bind(form.cascade, data), ops, data), {})
        [total] = [array for value, array in state.items() if value.name == "sum_1_acc"]
        np.testing.assert_allclose(np.squeeze(total), length * data["x"].var(1), atol=1e-12)
    [tape] = [tape for key, tape in tapes(program).items() if key[1] == ops.compute]
    wide = [target for target, *_ in tape.steps if target not in tape.results]
    freed = {number for *_, dead in tape.steps for number in dead}
    assert set(wide) <= freed


def test_a_program_that_reads_what_no_line_defines_is_refused() -> None:
    a, c = (Value(ra.expression.Label(name)) for name in "ac")
    with pytest.raises(AssertionError, match="reads \\['a'\\] before"):
        Program("broken", (), (Assign(c, a + 1),), {c: c}).verify()
    with pytest.raises(AssertionError, match="defines \\['c'\\] a second time"):
        Program("broken", (a,), (Assign(c, a + 1), Assign(c, a + 2)), {c: c}).verify()
    with pytest.raises(AssertionError, match="no line defines the results"):
        Program("broken", (a,), (), {c: c}).verify()


def test_the_definition_of_a_cascade_is_a_program() -> None:
    cascade = fused("attention").cascade
    program = definition_program(cascade)
    program.verify()
    assert [value.name for value in program.results] == ["out"]


def calls_of(function: Callable[[], Any]) -> Counter[str]:
    """How often each function of redalg is called, by file."""
    counted: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/redalg/" in frame.f_code.co_filename:
            counted[frame.f_code.co_filename.rsplit("/redalg/", 1)[1]] += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted


def test_a_second_call_repeats_what_the_first_recorded() -> None:
    """The variance of 64 rows took 578 calls of redalg's functions, generators apart, when it was interpreted anew."""
    form, rows = variance(), torch.randn(64, 300)
    form(x=rows, backend="torch")
    counted = calls_of(lambda: form(x=rows, backend="torch"))
    assert sum(counted.values()) <= 125, counted


def test_states_work_out_once_what_their_form_says() -> None:
    """A leaf of rows took 428 calls of redalg's functions, and a merge 484, when each worked out slots and places."""
    form, rows = variance(), np.random.default_rng(0).normal(size=(4, 100))
    for make, most in ((lambda: form.leaf({"x": rows}, start={"n": 3}, backend="library"), 300),
                       (lambda: form.merge(*[form.leaf({"x": rows}, backend="library")] * 2), 560)):  # fmt: skip
        make()
        counted = calls_of(make)
        assert sum(counted.values()) <= most, counted


def test_programs_live_as_long_as_their_form() -> None:
    form = fused("norm").form
    copied: FusedForm = replace(form)
    assert programs(copied) is programs(copied)
    assert programs(copied) is not programs(form)
