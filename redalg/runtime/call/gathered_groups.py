"""States by group by kernels: elements are put into the order of their keys, and a group is a row of its own.

Keys in ascending order move nothing. A group may have any number of elements: the kernel is that of the next power of
two above the largest group, and its loops end with each group's own elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sympy import S

from redalg.errors import InputError, PlanError
from redalg.expression.contents import elements_of
from redalg.expression.parts import reads_in_parts
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.groups import Groups, lay_along
from redalg.incremental.form import FusedForm
from redalg.incremental.gathered import GatheredForm, with_gathered_groups
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.moved_places import MovedForm, with_moved_places
from redalg.incremental.passes import Passes
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import with_state_for_outputs
from redalg.runtime.bind.backends import ops_for
from redalg.runtime.bind.far_places import FARTHEST, MOST_COUNTED, axes_of_pieces, farthest_place, integer_for
from redalg.runtime.bind.groups import Keys, without_kernels
from redalg.runtime.bind.inputs import Bound, native
from redalg.runtime.bind.leaf import Piece
from redalg.runtime.bind.places import axes_by_place, leaf_exprs
from redalg.runtime.bind.state import State, new_state
from redalg.runtime.call.dispatch import DEFAULTS, KERNELS, call


def _gathered_passes(form: FusedForm) -> dict[str, tuple[MovedForm, GatheredForm, Passes]]:
    axes, passes = axes_of_pieces(form), {}
    for dtype in ("float32", "float64"):
        moved = with_moved_places(with_state_for_outputs(form, dtype), axes)
        gathered = with_gathered_groups(moved.form)
        passes[dtype] = moved, gathered, Passes((gathered.form,))
    return passes


gathered_passes = Remembered(_gathered_passes)
"""Form -> its places as inputs, its groups gathered, and the pass that makes states of these, by the slots' dtype."""


def obstacle_to_gathering(form: FusedForm, piece: Piece) -> str:
    """The reason why no kernel gathers the groups of a piece; empty if one does."""
    axis = form.cascade.axis
    if form.cascade.producers:
        return "the expression holds sums within its terms"
    if form.structures:
        return "a slot has several components (an index, an order, a product)"
    if 0 in piece.bound.sizes.values():
        return "the piece has no elements"
    if not all(reads_in_parts(one, {axis}) for expr in leaf_exprs(form) for one in elements_of(expr)):
        return f"a tensor is read at a place computed of axis {axis}"
    farthest = farthest_place(form, piece.bound) if axis in axes_by_place(form) else FARTHEST
    if piece.start.get(axis, 0) + piece.bound.sizes[axis.name] > farthest:
        return f"places beyond {farthest} matter, which kernels do not tell apart"
    return ""


def leaf_by_gathering(form: FusedForm, piece: Piece, keys: Keys) -> State:
    """The state of a piece for every group, by a kernel that gathers.

    Raises:
        BackendError: no kernel makes it.
    """
    reason = obstacle_to_gathering(form, piece)
    if not reason:
        try:
            return gathered_state(form, piece, keys)
        except (PlanError, InputError) as error:  # of planning: the tensors were checked
            reason = str(error).rstrip(".")
    raise without_kernels(keys.caller, reason)


def gathered_state(form: FusedForm, piece: Piece, keys: Keys, backend: str = KERNELS) -> State:
    """The state of a piece for every group, by a pass over elements in the order of their keys."""
    bound = piece.bound
    groups = Groups(form.cascade.axis, keys.numbers, keys.groups, ops_for(bound, bound.library))
    longest = int(groups.counts.max())
    if longest > MOST_COUNTED and form.cascade.domain is not S.true:
        raise PlanError(f"a mask counts among more than {MOST_COUNTED} elements of a group")
    *_, passes = gathered_passes(form)[bound.compute]
    sizes = {**piece.extents, groups.axis.name: 1 << (longest - 1).bit_length()}
    options = {**DEFAULTS, "packed": True} if backend == KERNELS else DEFAULTS
    slots = call(passes, gathered_inputs(form, piece, groups, keys.is_sorted), backend, sizes, options)
    write_counts(form, groups, slots)
    sizes = {**bound.sizes, group_axis(form).name: keys.groups, **piece.extents}
    return piece.complete(new_state(grouped_form(form), slots, replace(bound, sizes=sizes)), form)


def gathered_inputs(form: FusedForm, piece: Piece, groups: Groups, is_sorted: bool) -> dict[str, Any]:
    """The tensors and scalars that the pass reads."""
    bound, ops, counts = piece.bound, groups.ops, groups.counts
    moved, gathered, _ = gathered_passes(form)[bound.compute]
    length = bound.sizes[groups.axis.name]
    first = counts.cumsum(0) - counts
    last = (first + counts - 1).clip(0, length - 1)
    order = ops.arange(0, length) if is_sorted else groups.order
    integers = {gathered.order: order, gathered.first: first, gathered.last: last, gathered.counts: counts}
    inputs = {
        **inputs_by_key(form, piece.inputs, None if is_sorted else order, ops),
        **{name: as_int32(array, bound) for name, array in integers.items()},
        **{name: integer_for(bound, number) for name, number in moved.firsts(piece.start).items()},
        **moved.scalars(piece.start, {**bound.sizes, **piece.extents}),
    }
    cascade = gathered.form.cascade
    read = {*cascade.inputs(), *(str(one.name) for one in cascade.scalars())}
    return {name: one for name, one in inputs.items() if name in read}


def inputs_by_key(form: FusedForm, inputs: Mapping[str, Any], order: Any, ops: ArrayOps) -> dict[str, Any]:
    """Tensors of which those with the streamed axis have their elements in another order; None keeps them."""
    axis = form.cascade.axis
    dims = {one.name: one.indices.index(axis) for one in form.cascade.elements() if axis in one.indices}
    if order is None:
        return dict(inputs)
    return {name: ops.pick(native(tensor), order, dims[name]) if name in dims else tensor
            for name, tensor in inputs.items()}  # fmt: skip


def write_counts(form: FusedForm, groups: Groups, slots: Mapping[str, Any]) -> None:
    """Write exact counts of elements, of which no mask excludes any."""
    for accumulator in form.accumulators if form.cascade.domain is S.true else ():
        if accumulator.is_count:
            count = slots[accumulator.value.name]
            count[...] = lay_along(groups.counts, count.ndim, 0)


def as_int32(array: Any, bound: Bound) -> Any:
    """An array of integers with 32 bits each."""
    if bound.library == "torch":
        return array.int()
    return array.astype("int32")
