"""The programs of a form, each written when it is first asked for, and kept as long as the form lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final
from weakref import ref

from sympy import fraction

from redalg.expression import Value
from redalg.incremental.combine.combine import combine
from redalg.incremental.combine.define import definition_program, producer_program
from redalg.incremental.combine.elements import Elements
from redalg.incremental.combine.let import Program
from redalg.incremental.combine.lines import Lines
from redalg.incremental.combine.sources import FIRST, LANE, SECOND, States, slot_of_tag
from redalg.incremental.form import FusedForm, Pivot
from redalg.incremental.remembered import Remembered


def leaf_program(form: FusedForm) -> Program:
    """The state of a block of data."""
    lines = Lines()
    elements = Elements(form, lines)
    state = combine(form, [elements], lines)
    return Program("leaf", (), tuple(lines.lets), state, elements.domain).prune()


def group_program(form: FusedForm) -> Program:
    """The state of a block of data whose sums are added in float64: a centre that is a mean is found once."""
    lines = Lines()
    elements = Elements(form, lines)
    state = combine(form, [elements], lines, form.links if starts_at_centres(form) else None)
    return Program("groups", (), tuple(lines.lets), state, elements.domain).prune()


def starts_at_centres(form: FusedForm) -> bool:
    """Tell if every pivot that a block finds is the mean of its generator, at which the block starts."""
    sums = {one.value: one for one in form.accumulators}

    def is_mean(pivot: Pivot) -> bool:
        above, below = (sums.get(part) for part in fraction(pivot.source))
        plain = above is not None and not above.weight and above.factors == (pivot.residual,)
        return plain and below is not None and below.is_count and not pivot.slopes

    return all(is_mean(one) for one in form.slot_pivots if one.is_found)


def merge_program(form: FusedForm) -> Program:
    """The state of two states, `a` before `b`."""
    lines = Lines()
    a, b = States(form, FIRST, lines), States(form, SECOND, lines)
    state = combine(form, [a, b], lines)
    return Program("merge", (*a.slots.values(), *b.slots.values()), tuple(lines.lets), state).prune()


def append_program(form: FusedForm) -> Program:
    """The state of a state `a` and a state `b` after it, whose extrema have met those of `a`."""
    lines = Lines()
    a, b = States(form, FIRST, lines), States(form, SECOND, lines)
    state = combine(form, [a, b], lines, extrema={one.value: b.slots[one.value] for one in form.extrema})
    return Program("append", (*a.slots.values(), *b.slots.values()), tuple(lines.lets), state).prune()


def collapse_program(form: FusedForm, steps: int | None = None, *, full: bool = False) -> Program:
    """The state of states side by side along the form's axis, in order (`full`: each holds numbers as pivots)."""
    lines = Lines()
    states = States(form, LANE, lines, (form.cascade.axis,), full=full)
    state = combine(form, [states], lines, steps)
    return Program("collapse", tuple(states.slots.values()), tuple(lines.lets), state).prune()


def tile_program(form: FusedForm, *, ends: bool, by_totals: frozenset[Value] = frozenset()) -> Program:
    """The state of a tile, of which a kernel makes the producers.

    `ends`: the axis may end within it. `by_totals`: pivots c with Σ (u − c) = Σ u − n·c, which no element is read for.
    """
    lines = Lines()
    tile = Elements(form, lines, tile=True, ends=ends, by_totals=by_totals)
    state = combine(form, [tile], lines, form.links + (not form.centres_are_means))
    return Program("tile", tile.given, tuple(lines.lets), state).prune()


def tile_producers_program(form: FusedForm) -> Program:
    """The producers' values in a tile: symbol -> value. Their products are plain numbers."""
    return producer_program(form.cascade, scaled=False)


def step_program(form: FusedForm, *, ends: bool) -> Program:
    """The state of a running state `a` and a tile after it."""
    lines = Lines()
    running, tile = States(form, FIRST, lines), Elements(form, lines, tile=True, ends=ends)
    state = combine(form, [running, tile], lines, 1)
    return Program("step", (*running.slots.values(), *tile.given), tuple(lines.lets), state).prune()


def lane_program(
    form: FusedForm, *, ends: bool, full: bool, steps: int, still: frozenset[Value] = frozenset()
) -> Program:
    """The state of a lane's state `a` and its next element (`full`: the lane's pivots are numbers)."""
    lines = Lines()
    running = States(form, FIRST, lines, full=full)
    element = Elements(form, lines, (), tile=True, ends=ends)
    state = combine(form, [running, element], lines, steps, still)
    return Program("lane", (*running.slots.values(), *element.given), tuple(lines.lets), state).prune()


def move_program(form: FusedForm) -> Program:
    """The sums of a state `a` about the extrema of a state `b`."""
    lines = Lines()
    running = States(form, FIRST, lines)
    extrema = {one.value: slot_of_tag(one.value, SECOND) for one in form.extrema}
    state = combine(form, [running], lines, 0, extrema=extrema)
    return Program("move", (*running.slots.values(), *extrema.values()), tuple(lines.lets), state).prune()


def add_program(form: FusedForm, *, ends: bool, full: bool = False) -> Program:
    """The sums of a state `a` and an element (`ends`: the axis may end before it) that its extrema have met.

    `full`: the state's pivots are numbers.
    """
    lines = Lines()
    running, element = States(form, FIRST, lines, full=full), Elements(form, lines, (), tile=True, ends=ends)
    extrema = {one.value: running.slots[one.value] for one in form.extrema}
    state = combine(form, [running, element], lines, 0, extrema=extrema)
    return Program("add", (*running.slots.values(), *element.given), tuple(lines.lets), state).prune()


def first_program(form: FusedForm, *, ends: bool) -> Program:
    """The pivots with which a lane starts from its first element."""
    lines = Lines()
    element = Elements(form, lines, (), tile=True, ends=ends)
    state = combine(form, [element], lines, 0)
    pivots = {pivot.value: state[pivot.value] for pivot in form.slot_pivots}
    return Program("first", element.given, tuple(lines.lets), pivots).prune()


def recentre_program(form: FusedForm, still: frozenset[Value] = frozenset()) -> Program:
    """A state `a` at its natural pivots."""
    lines = Lines()
    running = States(form, FIRST, lines)
    state = combine(form, [running], lines, 1, still)
    return Program("recentre", tuple(running.slots.values()), tuple(lines.lets), state).prune()


@final
class Programs:
    """The programs of one form, by what they do."""

    def __init__(self, form: FusedForm) -> None:
        self._form, self._written = ref(form), dict[object, Program]()

    def of(self, write: Callable[..., Program], **how: Any) -> Program:
        """The program that a function writes of the form."""
        key = (write, *how.items())
        if key not in self._written:
            form = self._form()
            if form is None:
                raise AssertionError("the form of these programs is gone")
            self._written[key] = write(form, **how)
        return self._written[key]


programs = Remembered(Programs)
"""Form -> its programs."""
definitions = Remembered(definition_program)
"""Cascade -> the program of its outputs as they are written."""
productions = Remembered(producer_program)
"""Cascade -> the program of its producers."""
