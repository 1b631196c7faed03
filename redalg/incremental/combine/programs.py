"""The programs of a form, each written when it is first asked for, and kept as long as the form lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final
from weakref import ref

from redalg.incremental.combine.combine import combine
from redalg.incremental.combine.define import definition_program, producer_program
from redalg.incremental.combine.let import Program
from redalg.incremental.combine.lines import Lines
from redalg.incremental.combine.sources import Elements, States
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered


def leaf_program(form: FusedForm) -> Program:
    """The state of a block of data."""
    lines = Lines()
    elements = Elements(form, lines)
    state = combine(form, [elements], lines)
    return Program("leaf", (), tuple(lines.lets), state, elements.domain).pruned()


def merge_program(form: FusedForm) -> Program:
    """The state of two states, `a` before `b`."""
    lines = Lines()
    a, b = States(form, "a", lines), States(form, "b", lines)
    state = combine(form, [a, b], lines)
    return Program("merge", (*a.slots.values(), *b.slots.values()), tuple(lines.lets), state).pruned()


def collapse_program(form: FusedForm, steps: int | None = None, *, full: bool = False) -> Program:
    """The state of states side by side along the form's axis, in order (`full`: each holds numbers as pivots)."""
    lines = Lines()
    states = States(form, "lane", lines, (form.cascade.axis,), full=full)
    state = combine(form, [states], lines, steps)
    return Program("collapse", tuple(states.slots.values()), tuple(lines.lets), state).pruned()


@final
class Programs:
    """The programs of one form, by what they do."""

    def __init__(self, form: FusedForm) -> None:
        self._form, self._written = ref(form), dict[object, Program]()

    def of(self, write: Callable[..., Program], **how: Any) -> Program:
        """The program that a function writes of the form."""
        key = (write, *how.values())
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
