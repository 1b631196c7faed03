"""States of pieces of data, by kernels on CUDA and where they are asked for, else by the operations of a library.

The kernel of a leaf gives the slots of a state as outputs, and has the plans of a call. It numbers elements from 0: a
piece that starts elsewhere takes the operations of its library, if the places of elements matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

from sympy import S

from redalg.errors import BackendError, InputError, PlanError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.runtime.bind.inputs import may_have_tangents, scalars_of, without_gradients
from redalg.runtime.bind.leaf import Piece, leaf_by_arrays, read_piece
from redalg.runtime.bind.merge import check_all, in_memory_of, merge_all, sort_states
from redalg.runtime.bind.options import check_places, global_starts, named_sizes
from redalg.runtime.bind.packing import Packed, Packing, common_buffer
from redalg.runtime.bind.places import axes_by_place, computed_axes, leaf_exprs
from redalg.runtime.bind.state import State, check_state, copy_with, new_state, reduced_names
from redalg.runtime.call.dispatch import DEFAULTS, KERNELS, call, default_backend
from redalg.runtime.call.merge_kernels import merge_of, slot_packing
from redalg.runtime.call.prepared import KINDS, kind_of, without_tensors

BACKENDS = (KERNELS, "library")
MOST_COUNTED = 1 << 24
"""Elements that kernels count exactly: they count in float32."""


def _passes_of_states(form: FusedForm) -> dict[str, Passes]:
    return {dtype: Passes((with_state_for_outputs(form, dtype),)) for dtype in ("float32", "float64")}


passes_of_states = Remembered(_passes_of_states)
"""Form -> the pass that makes its states, by the dtype of their slots."""


@final
@dataclass(frozen=True)
class PreparedLeaf:
    """The part of a leaf by a kernel that leaves of tensors alike share.

    Attributes:
        piece: without tensors.
        fixed: the axes along which a piece that starts beyond 0 takes no kernel.
        numbers: the axes whose places stand in arithmetic.
        state: without slots; it tells no places.
        packing: of the slots, if the kernel writes them into one buffer; else None.
    """

    piece: Piece
    fixed: frozenset[Axis]
    numbers: frozenset[Axis]
    state: State
    packing: Packing | None


_PREPARED: Remembered[dict[Hashable, PreparedLeaf]] = Remembered(lambda _: {})
"""Form -> what is known of its leaves, by the kind of their tensors."""


def leaf(form: FusedForm, inputs: Mapping[str, Any], start: Any, extents: Any, backend: str | None = None) -> State:
    """The state of a piece of the data whose first element along the streamed axis has the global number `start`."""
    check_backend("leaf", backend)
    inputs, extents = without_gradients(inputs), named_sizes(extents, "leaf", "extents")
    plain = not may_have_tangents() and all(isinstance(size, int) for size in extents.values())
    kind = kind_of(passes_of_states(form)["float32"], inputs, backend, extents, DEFAULTS) if plain else None
    known = _PREPARED(form).get(kind)
    if known is None:
        return new_leaf(form, read_piece(form, inputs, start, extents), backend, kind)
    starts = global_starts(form.cascade, start, "leaf")
    if any(first and axis in known.fixed for axis, first in starts.items()):
        return new_leaf(form, read_piece(form, inputs, start, extents), backend, None)
    check_places(starts, known.piece.bound.sizes, known.numbers, "leaf")
    state = copy_with(known.state, scalars=scalars_of(form.cascade, inputs))
    return leaf_by_kernel(form, replace(known.piece, inputs=inputs, start=starts), state, known.packing)


def new_leaf(form: FusedForm, piece: Piece, backend: str | None, kind: Hashable) -> State:
    """The state of a piece, of a kind that was not met before; if a kernel makes it, the next one may be as quick."""
    reason = obstacle_to_kernels(form, piece)
    if backend == KERNELS and reason:
        raise BackendError(f'leaf: {reason}. Leave backend="{KERNELS}" out: the tensors\' library makes the state.')
    if reason or (backend or default_backend(piece.bound)) != KERNELS:
        return leaf_by_arrays(form, piece)
    slots = slots_by_kernel(form, piece)
    state = new_state(form, slots, piece.bound)
    if kind is not None:
        known = _PREPARED(form)
        if len(known) >= KINDS:
            known.clear()
        plain = replace(piece, inputs={}, bound=without_tensors(piece.bound))
        numbers, packing = frozenset[Axis]().union(*map(computed_axes, leaf_exprs(form))), view_packing(slots)
        known[kind] = PreparedLeaf(plain, fixed_axes(form), numbers, copy_with(state, slots={}), packing)
    return piece.complete(state, form)


def leaf_by_kernel(form: FusedForm, piece: Piece, state: State, packing: Packing | None) -> State:
    """The state of a piece by its kernel, with the fields of a state without slots."""
    slots = slots_by_kernel(form, piece)
    packed = Packed.of(slots, state.library, state.device) if packing is None else Packed.around(slots, packing)
    return piece.complete(copy_with(state, slots=packed), form)


def slots_by_kernel(form: FusedForm, piece: Piece) -> dict[str, Any]:
    """The slots of a piece's state."""
    passes = passes_of_states(form)[piece.bound.compute]
    slots = call(passes, piece.inputs, KERNELS, piece.extents, {**DEFAULTS, "packed": True})
    if elements_of_piece(form, piece) > MOST_COUNTED:
        for accumulator in form.accumulators:
            if accumulator.is_count:
                slots[accumulator.value.name][...] = elements_of_piece(form, piece)
    return slots


def view_packing(arrays: Mapping[str, Any]) -> Packing | None:
    """The packing of arrays that are views of one buffer of torch, which has no more; else None."""
    packing = Packing.of(arrays)
    return packing if common_buffer(arrays, packing) is not None else None


def check_backend(method: str, backend: str | None) -> None:
    """Refuse a backend that is none."""
    if backend not in (None, *BACKENDS):
        raise BackendError(f"{method}: backend={backend!r} is not known. Use {' or '.join(map(repr, BACKENDS))}.")


def obstacle_to_kernels(form: FusedForm, piece: Piece) -> str:
    """The reason why no kernel makes the state of a piece; empty if one does."""
    moved = {axis for axis, first in piece.start.items() if first} & fixed_axes(form)
    if moved:
        return f"the places along axis {min(map(str, moved))} matter, and kernels count from 0"
    if {*form.cascade.extents()} & {*reduced_names(form)}:
        return "the expression holds the total of a reduced axis, which a kernel takes from its piece"
    if 0 in piece.bound.sizes.values():
        return "the piece has no elements"
    counts = any(one.is_count for one in form.accumulators) and form.cascade.domain is not S.true
    if counts and elements_of_piece(form, piece) > MOST_COUNTED:
        return f"a mask counts among more than {MOST_COUNTED} elements, which float32 does not tell apart"
    return ""


def fixed_axes(form: FusedForm) -> frozenset[Axis]:
    """The axes whose places matter in a state."""
    places = axes_by_place(form)
    has_places = any(one.has_place_component for one in form.structures)
    return places | {*form.cascade.reduced_axes} if has_places else places


def elements_of_piece(form: FusedForm, piece: Piece) -> int:
    """The number of elements that a piece has for every row."""
    return prod(piece.bound.sizes[axis.name] for axis in form.cascade.reduced_axes)


def update(form: FusedForm, state: State, inputs: Mapping[str, Any], start: Any, extents: Any) -> State:
    """The state of what a state holds and of a piece after it, in the memory of the former."""
    check_state(form, state, "update")
    if start is None:
        start = {} if state.covers is None else {form.cascade.axis: state.covers[1]}
    return in_memory_of(state, merge_any(form, (state, leaf(form, inputs, start, extents))))


def merge_any(form: FusedForm, states: Sequence[State], backend: str | None = None) -> State:
    """The state of all states together."""
    check_backend("merge", backend)
    states = sort_states(form, states)
    on_cuda = states[0].device.startswith("cuda")
    if len(states) == 1 or backend == "library" or (backend is None and not on_cuda):
        return merge_all(form, states)
    whole = check_all(form, states)
    try:
        if states[0].library != "torch" or not slot_packing(states[0]).nbytes:
            raise PlanError("kernels merge states of torch that have rows.")
        if any(slot_packing(one).key != slot_packing(states[0]).key for one in states[1:]):
            raise PlanError("kernels merge slots of one dtype, and those of far places are wider.")
        slots = merge_of(form, states)(states)
    except (PlanError, InputError) as error:  # of planning: the states fit each other
        if backend == KERNELS:
            raise BackendError(
                f'merge: no kernel merges these states: {error} Leave backend="{KERNELS}" out.'
            ) from None
        return merge_all(form, states)
    return copy_with(whole, slots=slots)
