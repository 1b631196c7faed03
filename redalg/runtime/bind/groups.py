"""States by group: one pass over the data makes the state of every key, by the operations of the tensors' library.

    block of elements   a leaf of every group that has elements in it, at the group's own pivots
    blocks              each is merged into the groups from its least key to its largest

Keys in ascending order touch few groups in a block, and then blocks may be short. Elements of one group are merged in
the order of the axis, whatever the order of the keys. Where a pivot lies on a line, a group's elements are cut further:
residuals are rounded as the line is, and so runs of them are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral
from typing import Any, final

from redalg.errors import InputError
from redalg.expression import Axis
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.groups import Groups, Owners, fold_sorted, run_by_groups
from redalg.incremental.arrays.interpret import Executor, Slots
from redalg.incremental.combine.programs import group_program, programs
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.state_outputs import values_of_slots
from redalg.runtime.bind.arrays import from_axes, scope_for, to_axes
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.backends import ops_for, tensors_for
from redalg.runtime.bind.blocks import SMALLEST_BLOCK, axes_of_arrays
from redalg.runtime.bind.inputs import Bound, array_dtype, library_name, native
from redalg.runtime.bind.leaf import Piece
from redalg.runtime.bind.state import State, new_state

BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 22}
"""Elements of the largest array of a block, by device: on a CPU a few of them stay in a core's cache."""


@final
@dataclass(frozen=True)
class Keys:
    """The groups of a piece's elements, checked.

    Attributes:
        numbers: the group of every element (64-bit integers).
        groups: how many there are.
    """

    numbers: Any
    groups: int

    @property
    def is_sorted(self) -> bool:
        """Tell if no key is less than the one before."""
        return bool((self.numbers[1:] >= self.numbers[:-1]).all())


def check_by(by: Any, groups: Any, method: str) -> None:
    """Refuse keys without a number of groups, and one without keys."""
    if by is None and groups is not None:
        raise InputError(f"{method}: groups={groups!r} stands without keys. Pass `by=`, the group of every element.")
    if by is not None and groups is None:
        raise InputError(f"{method}: `by=` needs the number of groups, which pieces share: keys are 0 to groups - 1. "
                         "Pass `groups=`, such as `groups=int(by.max()) + 1`.")  # fmt: skip
    if by is not None:
        check_groups(groups, method)


def check_groups(groups: Any, method: str) -> None:
    """Refuse what is no number of groups."""
    if isinstance(groups, bool) or not isinstance(groups, Integral) or groups < 1:
        raise InputError(f"{method}: groups={groups!r} is no number of groups. Pass an int from 1 on.")


def check_grouped(form: FusedForm, method: str) -> None:
    """Refuse a form that has no states by group."""
    axes = form.cascade.reduced_axes
    if not form.slots:
        raise InputError(f"{method}: by= groups the elements that are reduced, and the expression reduces nothing.")
    if len(axes) > 1:
        raise InputError(
            f"{method}: by= gives the elements of one reduced axis their groups, and the expression reduces over "
            f"{' and '.join(map(str, axes))} together. Reduce over {axes[0]} alone by groups, and over the others "
            "after it."
        )
    inner = [one for one in form.cascade.producers if axes[0] in one.cascade.reduced_axes]
    if inner:
        raise InputError(
            f"{method}: by= groups the elements along {axes[0]}, and `{inner[0].name}`, which it reads, is itself "
            f"reduced over all of {axes[0]}. Compute it first, and pass it as a tensor."
        )


def read_keys(by: Any, groups: Any, bound: Bound, axis: Axis, method: str) -> Keys:
    """The keys of the elements along an axis.

    Raises:
        InputError: they are no integers of the tensors' library and device, of another length than the axis, or beyond
            the groups.
    """
    by, size = native(by), bound.sizes[axis.name]
    where = f"{method}: by= holds the group of every element along {axis}"
    if library_name(by) != bound.library:
        raise InputError(f"{where}, and is a {type(by).__name__}; the tensors are of {bound.library}. Pass keys of it.")
    device = str(by.device) if bound.library == "torch" else "cpu"
    if device != bound.device:
        raise InputError(f"{where}, and lies on {device}; the tensors lie on {bound.device}. Move it there.")
    if not array_dtype(by).startswith(("int", "uint")):
        raise InputError(f"{where} as an integer, and is {array_dtype(by)}. Number the groups 0, 1, 2, …, such as by "
                         "`np.unique(values, return_inverse=True)`.")  # fmt: skip
    if tuple(by.shape) != (size,):
        raise InputError(f"{where}; it should have shape ({size},), and has {tuple(by.shape)}.")
    numbers = ops_for(bound, bound.library).integer(by)
    check_range(numbers, int(groups), where)
    return Keys(numbers, int(groups))


def check_range(numbers: Any, groups: int, where: str) -> None:
    """Refuse keys that are no group."""
    if not numbers.shape[0] or (int(numbers.min()) >= 0 and int(numbers.max()) < groups):
        return
    outside = (numbers < 0) | (numbers >= groups)
    at = int(outside.argmax() if library_name(outside) == "numpy" else outside.int().argmax())
    raise InputError(f"{where}, a number from 0 to {groups - 1} as groups={groups}; of element {at} it is "
                     f"{int(numbers[at])}. Leave such elements out, or pass more groups.")  # fmt: skip


@without_autocast()
def leaf_by_groups(form: FusedForm, piece: Piece, keys: Keys) -> State:
    """The state of a piece for every group."""
    bound, states = piece.bound, GroupStates.of_piece(form, piece, keys.groups)
    running: Slots | None = None
    with states.scope.ops.quiet():
        for start, stop in blocks_of_keys(form, bound, keys):
            first, block = states.leaf(keys.numbers[start:stop], start)
            running = states.put(running, first, block)
        slots = states.identity(keys.groups) if running is None else running
    grouped, sizes = states.executor.form, {**bound.sizes, states.axis.name: keys.groups}
    values = values_of_slots(grouped)
    arrays = {slot.name: to_axes(slots[values[slot.name]], slot.axes, states.merging) for slot in grouped.slots}
    return piece.complete(new_state(grouped, arrays, replace(bound, sizes={**sizes, **piece.extents})), form)


def blocks_of_keys(form: FusedForm, bound: Bound, keys: Keys) -> Iterator[tuple[int, int]]:
    """The first element of every block, and that after its last.

    Where keys ascend no array has more elements than a block may; else a block is as long as there are groups: it is
    merged into all of them.
    """
    axis, size = form.cascade.axis, bound.sizes[form.cascade.axis.name]
    others = ({one for one in axes if one != axis and one.name in bound.sizes} for axes in axes_of_arrays(form))
    width = max(prod(bound.sizes[one.name] for one in axes) for axes in others)
    length = max(1, BLOCK_ELEMENTS[bound.device.split(":")[0]] // max(width, 1))
    length = length if keys.is_sorted else max(length, keys.groups)
    for start in range(0, size, length):
        yield start, min(start + length, size)


@final
@dataclass(frozen=True)
class GroupStates:
    """The states of groups while a piece is read: a slot has the groups along a dimension of its own.

    Attributes:
        form: of a state without groups.
        axis: the groups'.
        scope: over the whole piece, in which a leaf is made.
        merging: over the free axes and all groups, in which states are merged.
        executor: of the form by group.
        start: global number of the piece's first element.
    """

    form: FusedForm
    axis: Axis
    scope: Scope
    merging: Scope
    executor: Executor
    start: int

    @classmethod
    def of_piece(cls, form: FusedForm, piece: Piece, groups: int) -> GroupStates:
        """The states of a piece that has so many groups."""
        bound, grouped, axis = piece.bound, grouped_form(form), group_axis(form)
        ops, tensors = ops_for(bound, bound.library), tensors_for(bound, bound.library)
        scope = scope_for(form.cascade, bound, ops, tensors, start=piece.start, extents=piece.extents)
        whole = replace(bound, sizes={**bound.sizes, axis.name: groups})
        merging = scope_for(grouped.cascade, whole, ops, tensors, start=piece.start, extents=piece.extents)
        executor = Executor(grouped, ops)
        return cls(form, axis, scope, merging, executor, piece.start.get(form.cascade.axis, 0))

    @property
    def ops(self) -> ArrayOps:
        """The array library."""
        return self.scope.ops

    @property
    def place(self) -> int:
        """The dimension of the groups."""
        return self.merging.place(self.axis)

    def identity(self, groups: int) -> Slots:
        """The states of so many groups without elements."""
        scope = self.over(groups)
        return {value: from_axes(to_axes(array, value.indices, scope), value.indices, scope)
                for value, array in self.executor.identity(scope).items()}  # fmt: skip

    def over(self, groups: int) -> Scope:
        """The scope in which states of so many groups are merged."""
        return self.merging.over({self.axis: (0, groups)})

    def leaf(self, keys: Any, start: int) -> tuple[int, Slots]:
        """The states of a block from its least key to its largest, and the least key."""
        first, last = int(keys.min()), int(keys.max())
        groups = Groups(self.form.cascade.axis, keys - first, last + 1 - first, self.ops)
        if any(pivot.slopes for pivot in self.form.pivots):
            return first, self.leaf_of_runs(groups, start)
        return first, self.leaf_of(groups, start)

    def leaf_of(self, groups: Groups, start: int) -> Slots:
        """The states of all groups of a block."""
        streamed, begin = self.form.cascade.axis, self.start + start
        scope = self.scope.over({streamed: (begin, begin + groups.keys.shape[0])})
        found = run_by_groups(programs(self.form).of(group_program), scope, {}, groups)
        values, lengths = values_of_slots(self.executor.form), scope.over({streamed: (0, groups.number)})
        arrays = {
            values[value.name]: to_axes(array, (streamed, *value.indices), lengths) for value, array in found.items()
        }
        merging = self.over(groups.number)
        return {value: from_axes(array, value.indices, merging) for value, array in arrays.items()}

    def leaf_of_runs(self, groups: Groups, start: int) -> Slots:
        """The same, where every run of a group's elements has a state of its own first."""
        ops = self.ops
        owner = ops.pick(groups.keys, groups.order, 0)
        rank = ops.arange(0, owner.shape[0]) - ops.pick(groups.counts.cumsum(0) - groups.counts, owner, 0)
        counts = -(-groups.counts // SMALLEST_BLOCK)
        run = ops.pick(counts.cumsum(0) - counts, owner, 0) + rank // SMALLEST_BLOCK
        keys = ops.pick(run, ops.order(groups.order, 0, descending=False), 0)
        state = self.leaf_of(Groups(groups.axis, keys, int(counts.sum()), ops), start)
        values = tuple(state)

        def join(a: Any, b: Any) -> Any:
            sides = (dict(zip(values, side, strict=True)) for side in (a, b))
            joined = self.executor.merge(self.over(a[0].shape[self.place]), *sides)
            return tuple(map(joined.__getitem__, values))

        nothing = self.identity(1)
        owners = Owners(owner[rank % SMALLEST_BLOCK == 0], counts, ops, self.place)
        folded = fold_sorted(join, tuple(state.values()), owners, tuple(map(nothing.__getitem__, values)))
        return dict(zip(values, folded, strict=True))

    def put(self, running: Slots | None, first: int, block: Slots) -> Slots:
        """The states of all groups with those of a block, which begin at a group."""
        ops, place = self.ops, self.place
        number, groups = next(iter(block.values())).shape[place], self.merging.length(self.axis)
        if running is None and number == groups:
            return block
        known = self.identity(groups) if running is None else running
        part = {value: ops.cut(array, place, first, first + number) for value, array in known.items()}
        joined = self.executor.merge(self.over(number), part, block)
        if number == groups:
            return joined
        return {
            value: ops.concat([ops.cut(known[value], place, 0, first), array,
                               ops.cut(known[value], place, first + number)], place)
            for value, array in joined.items()
        }  # fmt: skip
