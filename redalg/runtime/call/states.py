"""States of pieces of data, by kernels on CUDA and where they are asked for, else by the operations of a library.

The kernel of a leaf gives the slots of a state as outputs, and has the plans of a call. If the places of elements
matter, a piece that starts beyond 0 has a kernel of its own, which takes the start as an input (`moved_places`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

from sympy import S

from redalg.errors import BackendError, InputError, PlanError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.expression.parts import reads_in_parts
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.moved_places import MovedForm, with_moved_places
from redalg.incremental.passes import Passes
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.runtime.bind.far_places import MOST_COUNTED, axes_of_pieces, farthest_place, integer_for
from redalg.runtime.bind.groups import Keys, check_by, check_grouped, check_groups, leaf_by_groups, read_keys
from redalg.runtime.bind.inputs import may_have_tangents, scalars_of, without_gradients
from redalg.runtime.bind.leaf import Piece, empty_state, leaf_by_arrays, read_piece
from redalg.runtime.bind.merge import check_all, in_memory_of, merge_all, merge_into, sort_states
from redalg.runtime.bind.options import check_places, global_starts, named_sizes
from redalg.runtime.bind.packing import Packed, Packing, common_buffer
from redalg.runtime.bind.places import axes_by_place, axes_in_arithmetic, leaf_exprs
from redalg.runtime.bind.state import State, check_state, copy_with, new_state, reduced_names
from redalg.runtime.call.dispatch import DEFAULTS, KERNELS, call, takes_kernels
from redalg.runtime.call.gathered_groups import leaf_by_gathering
from redalg.runtime.call.group_kernels import leaf_by_sweeps
from redalg.runtime.call.kernels import OneBuffer, Recipe, recipe_of_steps
from redalg.runtime.call.merge_kernels import Merge, merge_of, slot_packing
from redalg.runtime.call.prepared import KINDS, find_prepared, kind_of, without_tensors

BACKENDS = (KERNELS, "library")


def _passes_of_states(form: FusedForm) -> dict[str, Passes]:
    return {dtype: Passes((with_state_for_outputs(form, dtype),)) for dtype in ("float32", "float64")}


def _moved_passes(form: FusedForm) -> dict[str, tuple[MovedForm, Passes]]:
    axes = axes_of_pieces(form)
    moved = {dtype: with_moved_places(with_state_for_outputs(form, dtype), axes) for dtype in ("float32", "float64")}
    return {dtype: (one, Passes((one.form,))) for dtype, one in moved.items()}


passes_of_states = Remembered(_passes_of_states)
"""Form -> the pass that makes its states, by the dtype of their slots."""
moved_passes = Remembered(_moved_passes)
"""Form -> the same of a piece that starts beyond 0."""


@final
@dataclass(frozen=True)
class PreparedLeaf:
    """The part of a leaf by a kernel that leaves of tensors alike share.

    Attributes:
        piece: without tensors.
        moved: its first places are inputs of the kernel.
        placed: the axes whose places matter.
        farthest: the place up to which the kernel tells elements apart.
        numbers: the axes whose places stand in arithmetic.
        state: without slots; it tells no places.
        packing: of the slots, if the kernel writes them into one buffer; else None.
    """

    piece: Piece
    moved: bool
    placed: frozenset[Axis]
    farthest: int
    numbers: frozenset[Axis]
    state: State
    packing: Packing | None


_PREPARED: Remembered[dict[Hashable, PreparedLeaf]] = Remembered(lambda _: {})
"""Form -> what is known of its leaves, by the kind of their tensors."""


def leaf(form: FusedForm, inputs: Mapping[str, Any], start: Any, extents: Any, backend: str | None = None, *,
         by: Any = None, groups: Any = None, caller: str = "leaf") -> State:  # fmt: skip
    """The state of a piece of the data whose first element along the streamed axis has the global number `start`.

    Errors of keys name the `caller`.
    """
    check_by(by, groups, caller)
    check_backend("leaf", backend)
    if by is not None:
        check_grouped(form, caller)
        piece = read_piece(form, inputs, start, extents)
        return leaf_of_keys(form, piece, backend, read_keys(by, groups, piece.bound, form.cascade.axis, caller))
    if backend == "library":
        return leaf_by_arrays(form, read_piece(form, inputs, start, extents))
    inputs, extents = without_gradients(inputs), named_sizes(form.cascade, extents, "leaf", "extents")
    plain = not may_have_tangents() and all(isinstance(size, int) for size in extents.values())
    starts = global_starts(form.cascade, start, "leaf")
    kind = None
    if plain:
        moved = frozenset(axis for axis, first in starts.items() if first) & axes_by_place(form)
        kind = moved, kind_of(passes_of_states(form)["float32"], inputs, backend, extents, DEFAULTS)
    known = _PREPARED(form).get(kind)
    if known is None:
        return new_leaf(form, read_piece(form, inputs, start, extents), backend, kind)
    sizes = known.piece.bound.sizes
    check_places(starts, sizes, known.numbers, "leaf")
    if any(first + sizes.get(axis.name, 0) > known.farthest for axis, first in starts.items() if axis in known.placed):
        return new_leaf(form, read_piece(form, inputs, start, extents), backend, None)
    state = copy_with(known.state, scalars=scalars_of(form.cascade, inputs))
    return leaf_by_kernel(form, replace(known.piece, inputs=inputs, start=starts), state, known)


def new_leaf(form: FusedForm, piece: Piece, backend: str | None, kind: Hashable) -> State:
    """The state of a piece, of a kind that was not met before; if a kernel makes it, the next one may be as quick."""
    if not takes_kernels(piece.bound, backend):
        return leaf_by_arrays(form, piece)
    if reason := obstacle_to_kernels(form, piece):
        if backend == KERNELS:
            raise BackendError(f'leaf: {reason}. Leave backend="{KERNELS}" out: the tensors\' library makes the state.')
        return leaf_by_arrays(form, piece)
    moved = is_moved(form, piece)
    slots = slots_by_kernel(form, piece, moved=moved)
    state = new_state(form, slots, piece.whole)
    if kind is not None:
        known = _PREPARED(form)
        if len(known) >= KINDS:
            known.clear()
        plain = replace(piece, inputs={}, bound=without_tensors(piece.bound))
        farthest, numbers = farthest_place(form, piece.bound), axes_in_arithmetic(form)
        known[kind] = PreparedLeaf(plain, moved, axes_by_place(form), farthest, numbers, copy_with(state, slots={}),
                                   view_packing(slots))  # fmt: skip
    return piece.complete(state, form)


def leaf_by_kernel(form: FusedForm, piece: Piece, state: State, known: PreparedLeaf) -> State:
    """The state of a piece by its kernel, with the fields of a state without slots."""
    slots, packing = slots_by_kernel(form, piece, moved=known.moved), known.packing
    packed = Packed.of(slots, state.library, state.device) if packing is None else Packed.around(slots, packing)
    return piece.complete(copy_with(state, slots=packed), form)


def slots_by_kernel(form: FusedForm, piece: Piece, *, moved: bool) -> dict[str, Any]:
    """The slots of a piece's state; `moved`: its first places are inputs of the kernel."""
    passes, inputs, extents = passes_of_states(form)[piece.bound.compute], piece.inputs, piece.extents
    if moved:
        of_places, passes = moved_passes(form)[piece.bound.compute]
        firsts = {name: integer_for(piece.bound, first) for name, first in of_places.firsts(piece.start).items()}
        inputs = {**inputs, **firsts, **of_places.scalars(piece.start, {**piece.bound.sizes, **piece.extents})}
        extents = {name: size for name, size in extents.items() if piece.bound.sizes.get(name) == size}
    slots = call(passes, inputs, KERNELS, extents, {**DEFAULTS, "packed": True})
    add_starts(form, piece, slots)
    if elements_of_piece(form, piece) > MOST_COUNTED:
        for accumulator in form.accumulators:
            if accumulator.is_count:
                fill_with(slots[accumulator.value.name], elements_of_piece(form, piece))
    return slots


def prepared_recipe(
    form: FusedForm, inputs: Mapping[str, Any], extents: Mapping[str, int], backend: str | None
) -> Recipe | None:  # fmt: skip
    """The recipe by which a kernel writes the states of tensors like these into one buffer, from places 0 on.

    None if no such state was made before, or one needs more than the kernel: numbers of places, a check, scalars.
    """
    kind = kind_of(passes_of_states(form)["float32"], inputs, backend, extents, DEFAULTS)
    known = _PREPARED(form).get((frozenset(), kind))
    if kind is None or known is None or known.packing is None or known.moved:
        return None
    bound = known.piece.bound
    if elements_of_piece(form, known.piece) > MOST_COUNTED:
        return None
    found = find_prepared(kind_of(passes_of_states(form)[bound.compute], inputs, KERNELS, extents, DEFAULTS))
    recipe = None if found is None else recipe_of_steps(found.steps)
    if recipe is None or not isinstance(recipe.allocate, OneBuffer):
        return None
    return recipe if recipe.allocate.packing.offsets == known.packing.offsets else None


def fill_with(array: Any, number: int) -> None:
    """Write a number everywhere in an array; the host does not wait, as it would if the number were assigned."""
    fill = array.fill_ if hasattr(array, "fill_") else array.fill
    fill(number)


def view_packing(arrays: Mapping[str, Any]) -> Packing | None:
    """The packing of arrays that are views of one buffer of torch, which has no more; else None."""
    packing = Packing.of(arrays)
    return packing if common_buffer(arrays, packing) is not None else None


def leaf_of_keys(form: FusedForm, piece: Piece, backend: str | None, keys: Keys) -> State:
    """The state of a piece for every key."""
    if backend != KERNELS:
        return leaf_by_groups(form, piece, keys)
    return leaf_by_sweeps(form, piece, keys) if piece.bound.device == "cpu" else leaf_by_gathering(form, piece, keys)


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
    beyond = {axis for axis, first in piece.start.items() if first}
    places, reduced = axes_by_place(form), set(form.cascade.reduced_axes)
    if len(reduced) > 1 and beyond & reduced and any(one.has_place_component for one in form.structures):
        return "a place is that of several axes, along which kernels count from 0"
    read = {element for expr in leaf_exprs(form) for element in elements_of(expr)}
    if beyond & places and not all(reads_in_parts(one, beyond) for one in read):
        return (
            f"a tensor is read at a place computed of axis {min(map(str, beyond & places))}, of which this is a piece"
        )
    farthest = farthest_place(form, piece.bound)
    if any(piece.start[axis] + piece.bound.sizes.get(axis.name, 0) > farthest for axis in beyond & places):
        return f"places beyond {farthest} matter, which kernels do not tell apart"
    if 0 in piece.bound.sizes.values():
        return "the piece has no elements"
    counts = any(one.is_count for one in form.accumulators) and form.cascade.domain is not S.true
    if counts and elements_of_piece(form, piece) > MOST_COUNTED:
        return f"a mask counts among more than {MOST_COUNTED} elements, which float32 does not tell apart"
    return ""


def is_moved(form: FusedForm, piece: Piece) -> bool:
    """Tell if a piece starts beyond 0 where places matter, or is a part of an axis whose length matters."""
    beyond = {axis for axis, first in piece.start.items() if first}
    return bool(beyond & axes_by_place(form) or {*form.cascade.extents()} & {*reduced_names(form)})


def add_starts(form: FusedForm, piece: Piece, slots: Mapping[str, Any]) -> None:
    """Number the elements that structures found from the start of the piece; −1 says that there is none."""
    first = piece.start.get(form.cascade.axis, 0)
    for value in (one for structure in form.structures if structure.has_place_component for one in structure.integers):
        if first:
            slots[value.name][...] += first * (slots[value.name] >= 0)


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
    piece = leaf(form, inputs, start, extents, by=by, groups=groups, caller="update")
    if state.device.startswith("cuda"):
        return in_memory_of(state, merge_any(merged, (state, piece)))
    return merge_into(merged, state, piece)


def merge_any(form: FusedForm, states: Sequence[State], backend: str | None = None) -> State:
    """The state of all states together."""
    check_backend("merge", backend)
    states = sort_states(form, states)
    on_cuda = states[0].device.startswith("cuda")
    if len(states) == 1 or backend == "library" or (backend is None and not on_cuda):
        return merge_all(form, states)
    whole = check_all(form, states)
    try:
        slots = merging_kernel(form, states)(states)
    except (PlanError, InputError) as error:  # of planning: the states fit each other
        if backend == KERNELS:
            raise BackendError(
                f'merge: no kernel merges these states: {error} Leave backend="{KERNELS}" out.'
            ) from None
        return merge_all(form, states)
    return copy_with(whole, slots=slots)


def merging_kernel(form: FusedForm, states: Sequence[State]) -> Merge:
    """The kernel that merges states, which fit each other.

    Raises:
        PlanError, InputError: no kernel does.
    """
    if states[0].library != "torch" or not slot_packing(states[0]).nbytes:
        raise PlanError("kernels merge states of torch that have rows.")
    floats = {dtype for dtype in slot_packing(states[0]).dtypes.values() if dtype.startswith("float")}
    if len(floats) > 1 or any(slot_packing(one).key != slot_packing(states[0]).key for one in states[1:]):
        raise PlanError("kernels merge slots of one dtype, and those of far places are wider.")
    return merge_of(form, states)


def nothing_of(form: FusedForm, sizes: Any, dtypes: Any, device: str, library: str, *, groups: Any) -> State:
    """The state of no elements, of every group or without groups."""
    if groups is None:
        return empty_state(form, sizes, dtypes, device, library)
    check_grouped(form, "empty_state")
    check_groups(groups, "empty_state")
    sizes = {**named_sizes(form.cascade, sizes, "empty_state"), group_axis(form).name: groups}
    return empty_state(grouped_form(form), sizes, dtypes, device, library)
