"""States of pieces of data, by kernels on CUDA and where they are asked for, else by the operations of a library.

The kernel of a leaf gives the slots of a state as outputs, and has the plans of a call. It numbers elements from 0: a
piece that starts elsewhere takes the operations of its library, if the places of elements matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from sympy import S

from redalg.errors import BackendError, InputError, PlanError
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.passes import Passes
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.runtime.bind.finish import finish
from redalg.runtime.bind.finish_groups import finish_by_groups
from redalg.runtime.bind.groups import check_by, check_grouped, check_groups, leaf_by_groups, read_keys
from redalg.runtime.bind.leaf import Piece, empty_state, leaf_by_arrays, read_piece
from redalg.runtime.bind.merge import check_all, in_memory_of, merge_all, sort_states
from redalg.runtime.bind.options import named_sizes
from redalg.runtime.bind.places import axes_by_place
from redalg.runtime.bind.state import State, check_state, new_state, reduced_names
from redalg.runtime.call.dispatch import DEFAULTS, KERNELS, call, default_backend
from redalg.runtime.call.group_kernels import leaf_by_sweeps
from redalg.runtime.call.merge_kernels import merge_of

BACKENDS = (KERNELS, "library")
MOST_COUNTED = 1 << 24
"""Elements that kernels count exactly: they count in float32."""


def _passes_of_states(form: FusedForm) -> dict[str, Passes]:
    return {dtype: Passes((with_state_for_outputs(form, dtype),)) for dtype in ("float32", "float64")}


passes_of_states = Remembered(_passes_of_states)
"""Form -> the pass that makes its states, by the dtype of their slots."""


def leaf(form: FusedForm, inputs: Mapping[str, Any], start: Any, extents: Any, backend: str | None = None, *,
         by: Any = None, groups: Any = None) -> State:  # fmt: skip
    """The state of a piece of the data whose first element along the streamed axis has the global number `start`."""
    check_by(by, groups, "leaf")
    piece = read_piece(form, inputs, start, extents)
    check_backend("leaf", backend)
    if by is not None:
        return leaf_of_keys(form, piece, backend, by, groups)
    reason = obstacle_to_kernels(form, piece)
    if backend == KERNELS and reason:
        raise BackendError(f'leaf: {reason}. Leave backend="{KERNELS}" out: the tensors\' library makes the state.')
    if reason or (backend or default_backend(piece.bound)) != KERNELS:
        return leaf_by_arrays(form, piece)
    passes = passes_of_states(form)[piece.bound.compute]
    slots = call(passes, piece.inputs, KERNELS, piece.extents, {**DEFAULTS, "packed": True})
    if elements_of_piece(form, piece) > MOST_COUNTED:
        for accumulator in form.accumulators:
            if accumulator.is_count:
                slots[accumulator.value.name][...] = elements_of_piece(form, piece)
    return piece.complete(new_state(form, slots, piece.bound), form)


def leaf_of_keys(form: FusedForm, piece: Piece, backend: str | None, by: Any, groups: Any) -> State:
    """The state of a piece for every key."""
    check_grouped(form, "leaf")
    keys = read_keys(by, groups, piece.bound, form.cascade.axis, "leaf")
    return leaf_by_sweeps(form, piece, keys) if backend == KERNELS else leaf_by_groups(form, piece, keys)


def form_of_states(form: FusedForm, *states: Any) -> FusedForm:
    """The form of states: by group, if they are.

    Raises:
        InputError: some are by group, and others not.
    """
    name = group_axis(form).name
    by_group = {isinstance(state, State) and name in state.sizes for state in states}
    if len(by_group) > 1:
        raise InputError("merge: some of the states are by group, and others are not. Make all by `leaf(…, by=)`.")
    return grouped_form(form) if True in by_group else form


def check_backend(method: str, backend: str | None) -> None:
    """Refuse a backend that is none."""
    if backend not in (None, *BACKENDS):
        raise BackendError(f"{method}: backend={backend!r} is not known. Use {' or '.join(map(repr, BACKENDS))}.")


def obstacle_to_kernels(form: FusedForm, piece: Piece) -> str:
    """The reason why no kernel makes the state of a piece; empty if one does."""
    moved = {axis for axis, first in piece.start.items() if first}
    places = axes_by_place(form)
    if any(one.has_place_component for one in form.structures):
        places |= set(form.cascade.reduced_axes)
    if moved & places:
        return f"the places along axis {min(map(str, moved & places))} matter, and kernels count from 0"
    if {*form.cascade.extents()} & {*reduced_names(form)}:
        return "the expression holds the total of a reduced axis, which a kernel takes from its piece"
    if 0 in piece.bound.sizes.values():
        return "the piece has no elements"
    counts = any(one.is_count for one in form.accumulators) and form.cascade.domain is not S.true
    if counts and elements_of_piece(form, piece) > MOST_COUNTED:
        return f"a mask counts among more than {MOST_COUNTED} elements, which float32 does not tell apart"
    return ""


def elements_of_piece(form: FusedForm, piece: Piece) -> int:
    """The number of elements that a piece has for every row."""
    return prod(piece.bound.sizes[axis.name] for axis in form.cascade.reduced_axes)


def update(form: FusedForm, state: State, inputs: Mapping[str, Any], start: Any, extents: Any, *,
           by: Any) -> State:  # fmt: skip
    """The state of what a state holds and of a piece after it, in the memory of the former."""
    merged = form_of_states(form, state)
    check_state(merged, state, "update")
    groups = state.sizes.get(group_axis(form).name)
    if (by is None) != (groups is None):
        raise InputError(
            f"update: the state is {'' if groups else 'not '}by group, and the piece comes "
            f"{'with' if groups is None else 'without'} keys. {'Pass' if groups else 'Leave out'} `by=`."
        )
    if start is None:
        start = {} if state.covers is None else {form.cascade.axis: state.covers[1]}
    piece = leaf(form, inputs, start, extents, by=by, groups=groups)
    return in_memory_of(state, merge_any(merged, (state, piece)))


def merge_any(form: FusedForm, states: Sequence[State], backend: str | None = None) -> State:
    """The state of all states together."""
    check_backend("merge", backend)
    states = sort_states(form, states)
    on_cuda = states[0].device.startswith("cuda")
    if len(states) == 1 or backend == "library" or (backend is None and not on_cuda):
        return merge_all(form, states)
    whole = check_all(form, states)
    try:
        if states[0].library != "torch" or 0 in states[0].buffer.shape:
            raise PlanError("kernels merge states of torch that have rows.")
        if len({tuple(one.dtype for one in state.slots.values()) for state in states}) > 1:
            raise PlanError("kernels merge slots of one dtype, and those of far places are wider.")
        slots = merge_of(form, states)(states)
    except (PlanError, InputError) as error:  # of planning: the states fit each other
        if backend == KERNELS:
            raise BackendError(
                f'merge: no kernel merges these states: {error} Leave backend="{KERNELS}" out.'
            ) from None
        return merge_all(form, states)
    return replace(whole, slots=slots)


def finish_any(form: FusedForm, state: State, inputs: Mapping[str, Any] | None, empty: str, start: Any, *,
               condition: bool, by: Any) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """The outputs of a state, by group or not, and their condition numbers if they are asked for."""
    if form_of_states(form, state) is form:
        if by is not None:
            raise InputError("finish: the state is not by group, and `by=` is given. Make it by `leaf(…, by=)`.")
        return finish(form, state, inputs, empty, start, condition=condition)
    return finish_by_groups(form, state, inputs, empty, start, by=by, condition=condition)


def nothing_of(form: FusedForm, sizes: Any, dtypes: Any, device: str, library: str, *, groups: Any) -> State:
    """The state of no elements, of every group or without groups."""
    if groups is None:
        return empty_state(form, sizes, dtypes, device, library)
    check_grouped(form, "empty_state")
    check_groups(groups, "empty_state")
    sizes = {**named_sizes(sizes, "empty_state"), group_axis(form).name: groups}
    return empty_state(grouped_form(form), sizes, dtypes, device, library)
