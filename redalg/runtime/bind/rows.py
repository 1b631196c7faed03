"""Rows of states: taken from a state, put into one, and one row for many.

    take      s'[r] = s[rows[r]]            new arrays
    put       s[rows[r]] := other[r]        in the memory of s
    expand    s'[r] = s[0]                  views, without a copy

Rows lie along an axis that is not reduced. A slot that lacks the axis holds what all rows share: `take` keeps it, and
rows that are `put` must agree on it. Where the places of rows matter, the rows taken or put follow each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sympy import Mul

from redalg.errors import InputError
from redalg.expression import Axis, Element
from redalg.expression.arguments import short_text
from redalg.incremental.form import FusedForm
from redalg.incremental.mapped import map_form
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.identity import identity
from redalg.runtime.bind.inputs import array_dtype
from redalg.runtime.bind.merge import check_tensors, one_set_of_scalars
from redalg.runtime.bind.options import named_sizes, python_integer
from redalg.runtime.bind.packing import Packed, Packing, empty_buffer
from redalg.runtime.bind.places import Boxes, is_of_places, row_axes_by_place
from redalg.runtime.bind.state import State, check_state, copy_with, is_empty_state


def take_rows(form: FusedForm, state: State, rows: Any, axis: Any) -> State:
    """The state of some rows of an axis, in the order given, in memory of its own."""
    check_state(form, state, "take")
    axis = row_axis(form, axis, "take")
    check_resizable(axis, "take")
    numbers = row_numbers(rows, state.sizes[axis.name], axis, "take")
    starts = starts_of_rows(form, state, numbers, axis, "take")
    places = {slot.name: slot.axes.index(axis) for slot in form.slots if axis in slot.axes}
    shapes = {slot.name: tuple(state.slots[slot.name].shape) for slot in form.slots}
    shapes |= {name: (*shapes[name][:at], len(numbers), *shapes[name][at + 1 :]) for name, at in places.items()}
    packing = Packing({name: array_dtype(state.slots[name]) for name in shapes}, shapes)
    packed = Packed(empty_buffer(packing, state.library, state.device), packing)
    for name, view in packed.items():
        source = state.slots[name]
        view[...] = select_rows(source, numbers, places[name]) if name in places else source
    return copy_with(state, slots=packed, sizes={**state.sizes, axis.name: len(numbers)}, starts=starts)


def put_rows(form: FusedForm, state: State, rows: Any, other: State, axis: Any) -> State:
    """The state with some rows replaced by those of another state, in the memory of the former."""
    for each in (state, other):
        check_state(form, each, "put")
    axis = row_axis(form, axis, "put")
    numbers = row_numbers(rows, state.sizes[axis.name], axis, "put")
    if twice := [row for row in numbers if numbers.count(row) > 1]:
        raise InputError(f"put: row {twice[0]} of axis {axis} is given twice. Give each row once.")
    if not isinstance(state.slots, Packed):
        raise InputError("put: the slots of the state lie in no common buffer, and may share memory. Pass a state of "
                         "`leaf`, `merge`, `take`, `empty_state` or `from_bytes`.")  # fmt: skip
    check_tensors(state, other, "put")
    wanted = {**state.sizes, axis.name: len(numbers)}
    if dict(other.sizes) != wanted:
        raise InputError(f"put: {len(numbers)} rows of axis {axis} should have sizes {wanted}; those given have "
                         f"{dict(other.sizes)}.")  # fmt: skip
    starts = starts_of_rows(form, state, numbers, axis, "put")
    if not is_empty_state(other) and any(other.starts.get(name, 0) != first for name, first in starts.items()):
        raise InputError(f"put: the rows begin at {dict(other.starts) or 0}, and they are put where {starts} is. Make "
                         "them with that `start=`.")  # fmt: skip
    places = places_of_both(form, state, other)
    state, other = one_set_of_scalars(state, other, "put")
    check_shared_slots(form, state, other, axis)
    for slot in form.slots:
        if axis in slot.axes:
            write_rows(state.slots[slot.name], numbers, slot.axes.index(axis), other.slots[slot.name])
    return copy_with(state, places=places)


def expand_rows(form: FusedForm, state: State, sizes: Any, of: FusedForm | None) -> State:
    """The state whose rows along some axes are all the only row that a state has: views of its slots.

    `of`: the form that the state is of, the same but for tensors that lack some of these axes; None for this form.
    """
    check_state(of or form, state, "expand")
    if of is not None:
        check_shared_tensors(form, of)
    own, known = identity(form), named_sizes(form.cascade, sizes, "expand")
    for name, size in known.items():
        axis = row_axis(form, name, "expand")
        before = state.sizes.get(name)
        if not isinstance(size, int) or size < 0 or before not in (None, 1, size):
            raise InputError(f"expand: axis {name} should become {size!r}, and the state has {before} rows along it. "
                             "One row alone becomes many.")  # fmt: skip
        if axis.size != size:
            check_resizable(axis, "expand")
        if before != size and axis in row_axes_by_place(form):
            raise InputError(f"expand: the places along axis {axis} matter, so its rows differ, and one is not many.")
    known = {**state.sizes, **known}
    slots = dict[str, Any]()
    for slot in form.slots:
        missing = [axis for axis in slot.axes if axis.name not in known and axis.size is None]
        if missing:
            raise InputError(f"expand: the state has no axis {missing[0]}. Pass its size, {{{missing[0]}: …}}.")
        shape = tuple(int(known.get(axis.name, axis.size or 0)) for axis in slot.axes)
        axes = next(one.axes for one in state.layout if one.name == slot.name)
        slots[slot.name] = repeat_rows(state.slots[slot.name], axes, slot.axes, shape)
    is_same = all(slots[name].shape == array.shape for name, array in state.slots.items())
    kept = state.slots if is_same else slots  # in their buffer, if no row is repeated
    return copy_with(state, slots=kept, sizes=known, layout=form.slots, form=own.digest, meaning=own.lines)


# ---- checks ----------------------------------------------------------------------------------------------------------


def row_axis(form: FusedForm, axis: Any, method: str) -> Axis:
    """The axis along which a state has rows, given by itself or by its name."""
    axes = {one.name: one for slot in form.slots for one in slot.axes if one not in form.places}
    found = axes.get(axis.name if isinstance(axis, Axis) else axis)
    if found is None:
        raise InputError(f"{method}: a state has no rows along axis {axis}. It has some along "
                         f"{', '.join(sorted(axes)) or 'no axis'}.")  # fmt: skip
    return found


def check_resizable(axis: Axis, method: str) -> None:
    """Refuse another number of rows along an axis that was declared with its size."""
    if axis.size is not None:
        raise InputError(f"{method}: axis {axis} was declared with {axis.size} rows, and a state has all of them.")


def row_numbers(rows: Any, size: int, axis: Axis, method: str) -> list[int]:
    """Numbers of rows as Python's: of a slice, of an array or of a sequence."""
    if isinstance(rows, slice):
        return list(range(*rows.indices(size)))
    try:
        given = rows.tolist() if hasattr(rows, "tolist") else rows
    except (RuntimeError, NotImplementedError):  # of a tensor that has no numbers, or none that Python has
        given = None
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(
            f"{method}: rows={short_text(rows)} are no rows. Give their numbers along axis {axis}, or a slice."
        )
    numbers = list(map(python_integer, given))
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < size:
            raise InputError(f"{method}: row {number!r} is not along axis {axis}, whose rows are 0 to {size - 1}.")
    return numbers


def follow_each_other(rows: Sequence[int]) -> bool:
    """Tell if each row is the next after the one before it."""
    return all(row == rows[0] + place for place, row in enumerate(rows))


def starts_of_rows(form: FusedForm, state: State, rows: list[int], axis: Axis, method: str) -> dict[str, int]:
    """The places at which some rows begin; if they matter along the axis, rows that do not follow are refused."""
    starts = dict(state.starts)
    if axis in row_axes_by_place(form) and rows:
        if not follow_each_other(rows):
            raise InputError(
                f"{method}: the places along axis {axis} matter (a mask by place, a computed index), and rows {rows} "
                "do not follow each other. Take them one after another."
            )
        starts[axis.name] = starts.get(axis.name, 0) + rows[0]
    return starts


def places_of_both(form: FusedForm, state: State, other: State) -> Boxes | None:
    """The places that a state holds once rows of another are in it.

    Where order alone matters, rows go on after what they hold, so places are those of the state, as of a clock.
    """
    if state.places == other.places:
        return state.places
    if is_of_places(form):
        raise InputError("put: the rows hold other places than the state, and the expression depends on places (a mask "
                         "by place, an index). Put rows that hold the places of the state.")  # fmt: skip
    if form.is_ordered:
        return other.places if is_empty_state(state) else state.places
    return None


def check_shared_slots(form: FusedForm, state: State, other: State, axis: Axis) -> None:
    """Refuse rows whose slots have another dtype, or that do not agree on what all rows of an axis share."""
    for slot in form.slots:
        a, b = state.slots[slot.name], other.slots[slot.name]
        if a.dtype != b.dtype:
            raise InputError(f"put: slot `{slot.name}` of the rows is {array_dtype(b)}, and that of the state is "
                             f"{array_dtype(a)}. Both should have one dtype.")  # fmt: skip
        if axis not in slot.axes and not hold_alike(a, b, state.library):
            values = f": {a.item()} in the state and {b.item()} in the rows" if a.shape == () else ""
            raise InputError(
                f"put: slot `{slot.name}` has no axis {axis}, so that all rows share it, and it differs{values}. Put "
                "rows that agree on it, such as those of as many elements."
            )


_SHARED: Remembered[dict[Hashable, bool]] = Remembered(lambda _: {})
"""Form -> the digests of forms, and whether they are it with tensors that lack axes."""


def check_shared_tensors(form: FusedForm, of: FusedForm) -> None:
    """Refuse a form that is not this one with tensors that lack some of their axes."""
    known, digest = _SHARED(form), identity(of).digest
    if digest not in known:
        ours, theirs = with_single_factors(with_tensors_of(form, of)), with_single_factors(of)
        known[digest] = identity(ours).digest == identity(theirs).digest
    axes = {slot.name: slot.axes for slot in form.slots}
    in_order = all([axis for axis in axes.get(slot.name, ()) if axis in slot.axes] == [*slot.axes] for slot in of.slots)
    if not known[digest] or not in_order:
        raise InputError(
            "expand: `of` should be this function but for tensors that lack some of their axes. Its slots hold "
            f"{'; '.join(identity(of).lines)}, and here they hold {'; '.join(identity(form).lines)}."
        )


def with_tensors_of(form: FusedForm, of: FusedForm) -> FusedForm:
    """The form with the axes of its tensors that those of another form have too."""
    axes = dict[str, set[Any]]()
    for element in of.cascade.elements():
        axes.setdefault(element.name, set()).update(element.indices)
    reads = {
        element: Element(element.args[0], *(one for one in element.indices if one in axes[element.name]))
        for element in form.cascade.elements() if element.name in axes
    }  # fmt: skip
    return map_form(form, lambda node: node.xreplace(reads))


def with_single_factors(form: FusedForm) -> FusedForm:
    """The form whose sums have one factor each: which factors make a contraction follows from the tensors' axes."""
    sums = tuple(replace(one, factors=(Mul(*one.factors),)) for one in form.accumulators)
    return replace(form, accumulators=sums)


# ---- arrays ----------------------------------------------------------------------------------------------------------


def hold_alike(a: Any, b: Any, library: str) -> bool:
    """Tell if two arrays hold equal numbers, or NaN at the places where the other does."""
    if library == "numpy":
        return np.array_equal(a, b, equal_nan=True)
    import torch

    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def select_rows(array: Any, rows: list[int], at: int) -> Any:
    """Some rows of a dimension of an array."""
    if rows and follow_each_other(rows):
        return array[(slice(None),) * at + (slice(rows[0], rows[0] + len(rows)),)]
    return array[(slice(None),) * at + (rows,)]


def write_rows(array: Any, rows: list[int], at: int, values: Any) -> None:
    """Write some rows of a dimension of an array."""
    span: Any = slice(rows[0], rows[0] + len(rows)) if rows and follow_each_other(rows) else rows
    array[(slice(None),) * at + (span,)] = values


def repeat_rows(array: Any, axes: Sequence[Axis], wanted: Sequence[Axis], shape: tuple[int, ...]) -> Any:
    """A view of an array that has further axes, or more rows along those of one row."""
    view = array[tuple(slice(None) if axis in axes else None for axis in wanted)]
    if hasattr(view, "expand"):
        return view.expand(shape)
    return np.broadcast_to(view, shape)
