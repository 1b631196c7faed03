"""Merge states: of one form, over the same rows, and of places that fit each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np

from redalg.errors import InputError
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.arrays import to_axes
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.inputs import library_name
from redalg.runtime.bind.packing import Packed, Packing
from redalg.runtime.bind.places import Box, Boxes, join_boxes, places_matter, shared_box
from redalg.runtime.bind.state import (
    State,
    check_state,
    copy_with,
    is_empty_state,
    kind_of_state,
    pack_state,
    unpack,
    unpacked_scope,
)


def merge_all(form: FusedForm, states: Sequence[State]) -> State:
    """The state of states in order, by the operations of their library, neighbours first.

    As a tree, a sum of many parts rounds for few of them.
    """
    while len(states) > 1:
        pairs = [merge(form, a, b) for a, b in zip(states[::2], states[1::2], strict=False)]
        states = [*pairs, *states[2 * len(pairs) :]]
    return states[0]


def sort_states(form: FusedForm, states: Sequence[State]) -> list[State]:
    """The states in the order of their places, if that of elements matters and they tell them."""
    for state in states:
        check_state(form, state, "merge")
    if not form.is_ordered or any(one.covers is None and not is_empty_state(one) for one in states):
        return list(states)
    return sorted(states, key=lambda state: state.covers or (0, 0))


def check_all(form: FusedForm, states: Sequence[State]) -> State:
    """The first of states in order that holds elements, with the places and scalars of all: they may be merged."""
    whole = states[0]
    if not form.is_ordered and are_alike(states):
        return copy_with(whole, places=joined_places(form, *(state.places for state in states)))
    for other in states[1:]:
        a, b, places = fit(form, whole, other)
        whole = replace(b if is_empty_state(a) else a, places=places)
    return whole


def are_alike(states: Sequence[State]) -> bool:
    """Tell if states that were checked differ in their places and numbers alone, and all hold elements."""
    first, kinds = states[0], list(map(kind_of_state, states))
    if kinds[0] is None or any(map(is_empty_state, states)):
        return False
    same_rows = all(state.starts == first.starts and state.scalars == first.scalars for state in states)
    return same_rows and all(kind == kinds[0] for kind in kinds)


def in_memory_of(state: State, made: State) -> State:
    """A state that was made of another, in the other's memory."""
    check_slot_places(state.slots, Packing.of(made.slots))
    state.buffer[...] = made.buffer
    return replace(made, slots=state.slots)


@without_autocast()
def merge_into(form: FusedForm, state: State, piece: State) -> State:
    """state ⊕ piece, whose slots are written where those of the state lie; if it is refused, nothing is.

    Raises:
        InputError: they may not be merged, or the state's memory does not hold what they give.
    """
    for each in (state, piece):
        check_state(form, each, "merge")
    a, b, places = fit(form, state, piece)
    scope, executor = unpacked_scope(form, a)
    with scope.ops.quiet():
        slots = executor.merge(scope, unpack(form, a, scope), unpack(form, b, scope))
    values = {value.name: array for value, array in slots.items()}
    made = {slot.name: to_axes(values[slot.name], slot.axes, scope) for slot in form.slots}
    check_slot_places(state.slots, Packing.of(made))
    buffer = state.buffer
    for name, array in {name: apart_from(array, buffer) for name, array in made.items()}.items():
        state.slots[name][...] = array
    return replace(b if is_empty_state(a) else a, slots=state.slots, places=places)


def check_slot_places(slots: Any, packing: Packing) -> None:
    """Refuse slots that lie in no common buffer, or that lie otherwise in it than a packing says."""
    if not isinstance(slots, Packed):
        raise InputError("update: the slots of the state lie in no common buffer. Pass a state of `leaf`, `merge`, "
                         "`empty_state` or `from_bytes`.")  # fmt: skip
    if slots.packing != packing:
        raise InputError("update: the piece asks for wider slots than the state has. Use `merge`: it makes new ones.")


def apart_from(array: Any, buffer: Any) -> Any:
    """An array that shares no memory with a buffer, which is written next: itself, or a copy."""
    if library_name(array) == "torch":
        shares = array.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
        return array.clone() if shares else array
    return array.copy() if np.may_share_memory(array, buffer) else array


@without_autocast()
def merge(form: FusedForm, a: State, b: State) -> State:
    """a ⊕ b. Both must be states of this form, over the same free axes."""
    a, b, places = fit(form, a, b)
    scope, executor = unpacked_scope(form, a)
    with scope.ops.quiet():
        slots = executor.merge(scope, unpack(form, a, scope), unpack(form, b, scope))
    return replace(pack_state(form, slots, scope, None, like=b if is_empty_state(a) else a), places=places)


def fit(form: FusedForm, a: State, b: State) -> tuple[State, State, Boxes | None]:
    """Both states in order, with the scalars of either, and the places that they hold together.

    Each by itself is a state of the form already (`sort_states`).

    Raises:
        InputError: they may not be merged.
    """
    for state in (a, b):
        check_state(form, state, "merge")
    check_tensors(a, b, "merge")
    if dict(a.sizes) != dict(b.sizes):
        raise InputError(
            f"merge: the states are of different sizes, {dict(a.sizes)} and {dict(b.sizes)}. Merge states of the same "
            "rows."
        )
    check_starts(a, b)
    places = together(form, a, b)
    return *sort_pieces(form, *one_set_of_scalars(a, b)), places


def check_tensors(a: State, b: State, method: str) -> None:
    """Refuse two states that were made from tensors of unlike libraries, devices or dtypes."""
    for what in ("library", "device", "result"):
        if getattr(a, what) != getattr(b, what):
            raise InputError(f"{method}: the states are of {getattr(a, what)} and of {getattr(b, what)}. Make both "
                             "from tensors of one library, device and dtype.")  # fmt: skip


def check_starts(a: State, b: State) -> None:
    """Refuse two states whose rows begin at different places (an empty state fits any rows)."""
    if is_empty_state(a) or is_empty_state(b):
        return
    differ = [name for name in {**a.starts, **b.starts} if a.starts.get(name, 0) != b.starts.get(name, 0)]
    if differ:
        firsts = " and ".join(str(one.starts.get(differ[0], 0)) for one in (a, b))
        raise InputError(f"merge: the states begin at different places of axis {differ[0]}, {firsts}. Merge states of "
                         "the same rows.")  # fmt: skip


def one_set_of_scalars(a: State, b: State, method: str = "merge") -> tuple[State, State]:
    """Both states with the scalars of either (an empty state has none); different values are refused."""
    if not all(scalars_agree(a.scalars[name], b.scalars[name]) for name in a.scalars.keys() & b.scalars.keys()):
        raise InputError(
            f"{method}: the states were made with different scalars, {dict(a.scalars)} and {dict(b.scalars)}. Make "
            "both with the same."
        )
    if a.scalars == b.scalars:
        return a, b
    scalars = {**a.scalars, **b.scalars}
    return replace(a, scalars=scalars), replace(b, scalars=scalars)


def scalars_agree(a: Any, b: Any) -> bool:
    """Tell if two scalars are one number, or both NaN."""
    return bool(a == b or (isnan(a) and isnan(b)))


def sort_pieces(form: FusedForm, a: State, b: State) -> tuple[State, State]:
    """Sort two pieces by their places if order matters; the second must adjoin the first."""
    if not form.is_ordered or is_empty_state(a) or is_empty_state(b):
        return a, b
    first, second = a.covers, b.covers
    if first is None or second is None:
        return a, b
    if second < first:
        a, b, first, second = b, a, second, first
    if first[1] != second[0]:
        raise InputError(misplacement_message(form, first, second))
    return a, b


def misplacement_message(form: FusedForm, a: tuple[int, int], b: tuple[int, int]) -> str:
    """The message for two pieces that do not adjoin: the elements between them, or in both."""
    axis = form.cascade.axis
    kinds = ", ".join(dict.fromkeys(str(one.monoid) for one in form.structures if not one.monoid.commutative))
    gap, start, stop = a[1] < b[0], min(a[1], b[0]), max(b[0], min(a[1], b[1]))
    verb = "is" if stop == start + 1 else "are"
    problem = f"{_elements(start, stop)} of axis {axis} {verb} {'missing between them' if gap else 'in both'}"
    return (
        f"merge: the states hold {_elements(*a)} and {_elements(*b)}, and {kinds} depends on the order of elements: "
        f"{problem}. Give every leaf its `start={{{axis}: …}}`, and merge neighbours."
    )


def _elements(start: int, stop: int) -> str:
    return f"element {start}" if stop == start + 1 else f"elements {start} to {stop - 1}"


def together(form: FusedForm, a: State, b: State) -> Boxes | None:
    """The places of two states; if places matter, those that both hold, or that one does not know, are refused."""
    if is_empty_state(a) or is_empty_state(b):
        return b.places if is_empty_state(a) else a.places
    return joined_places(form, a.places, b.places)


def joined_places(form: FusedForm, *places: Boxes | None) -> Boxes | None:
    """The places of states that hold elements; where places do not matter, those of one box or None.

    Raises:
        InputError: places matter, and two states hold one, or a state does not know its own.
    """
    known = [one for one in places if one is not None]
    if not places_matter(form):  # of parts that overlap no one box comes
        boxes = join_boxes(*known)
        return boxes if len(known) == len(places) and len(boxes) == 1 else None
    if len(known) < len(places):
        raise InputError("merge: a state does not say which places it holds, and the expression depends on places. "
                         "Make it again by `leaf`.")  # fmt: skip
    whole = known[0]
    for other in known[1:]:
        both = None if form.is_ordered else shared_box(whole, other)
        if both is not None:
            raise InputError(overlap_message(form, both))
        whole = join_boxes(whole, other)
    return whole


def overlap_message(form: FusedForm, both: Box) -> str:
    """The message for two pieces that hold the same places."""
    overlap = " × ".join(f"{_elements(*edge)} of axis {axis}"
                         for axis, edge in zip(form.cascade.reduced_axes, both, strict=True))  # fmt: skip
    starts_wanted = ", ".join(f"{axis}: …" for axis in form.cascade.reduced_axes)
    return (
        f"merge: both states hold {overlap}, and the expression depends on the places of elements (a mask by place, an "
        f"index, a shift). Give every leaf its `start={{{starts_wanted}}}`, and merge each piece once."
    )
