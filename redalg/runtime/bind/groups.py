"""States by group: one pass over the data makes the state of every key, by the operations of the tensors' library.

    block of elements   a leaf of every group that has elements in it, at the group's own pivots
    blocks              each is merged into the groups from its least key to its largest

Keys in ascending order touch few groups in a block. Where there are more groups than elements in a block, and the keys
are in any order, elements are taken in that of their keys; if their places count, a block is as long as there are
groups, and is merged into all of them. Elements of one group are merged in the order of the axis, whatever the order of
the keys. Where a pivot lies on a line, a group's elements are cut further: residuals are rounded as the line is, and so
runs of them are short.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from numbers import Integral
from typing import Any, final

from redalg.errors import BackendError, InputError
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
from redalg.runtime.bind.places import axes_by_place
from redalg.runtime.bind.state import State, new_state

BLOCK_ELEMENTS = {"cpu": 1 << 18, "gpu": 1 << 22}
"""Elements of the largest array of a block: on a CPU a few of them stay in a core's cache."""


@final
@dataclass(frozen=True)
class Keys:
    """The groups of a piece's elements, checked.

    Attributes:
        numbers: the group of every element (64-bit integers).
        groups: how many there are.
        caller: what was called with them, for messages.
    """

    numbers: Any
    groups: int
    caller: str

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
        InputError: they do not fit the tensors (`check_key_array`), or lie beyond the groups.
    """
    by = native(by)
    where = check_key_array(by, bound, axis, method)
    numbers = ops_for(bound, bound.library).integer(by)
    check_range(numbers, int(groups), where)
    return Keys(numbers, int(groups), method)


def check_key_array(by: Any, bound: Bound, axis: Axis, method: str) -> str:
    """Refuse keys that do not fit the tensors; return the words with which a message about them begins.

    Raises:
        InputError: they are no integers of the tensors' library and device, or of another length than the axis.
    """
    size, where = bound.sizes[axis.name], f"{method}: by= holds the group of every element along {axis}"
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
    return where


def without_kernels(caller: str, reason: str) -> BackendError:
    """The error that no kernel makes states by group, for a reason."""
    return BackendError(f'{caller}: no kernel makes these states by group: {reason}. Leave backend="tilelang" out: the '
                        "tensors' library makes them.")  # fmt: skip


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
    length, order, numbers = block_length(form, bound), None, keys.numbers
    running, size = Running(states), bound.sizes[form.cascade.axis.name]
    with states.scope.ops.quiet():
        if keys.groups > length and not keys.is_sorted:
            if reads_places(form):
                length = keys.groups
            else:
                order = states.ops.order(numbers, 0, descending=False)
                numbers = states.ops.pick(numbers, order, 0)
        for start in range(0, size, length):
            stop = min(start + length, size)
            running.take(*states.leaf(numbers[start:stop], states.elements(start, stop, order)))
        slots = states.identity(keys.groups) if running.slots is None else running.slots
    grouped, sizes = states.executor.form, {**bound.sizes, states.axis.name: keys.groups}
    values = values_of_slots(grouped)
    arrays = {slot.name: to_axes(slots[values[slot.name]], slot.axes, states.merging) for slot in grouped.slots}
    return piece.complete(new_state(grouped, arrays, replace(bound, sizes={**sizes, **piece.extents})), form)


def block_length(form: FusedForm, bound: Bound) -> int:
    """The number of elements along the streamed axis at which no array of a block is too large."""
    axis = form.cascade.axis
    others = ({one for one in axes if one != axis and one.name in bound.sizes} for axes in axes_of_arrays(form))
    width = max(prod(bound.sizes[one.name] for one in axes) for axes in others)
    return max(1, BLOCK_ELEMENTS["cpu" if bound.device == "cpu" else "gpu"] // max(width, 1))


def reads_places(form: FusedForm) -> bool:
    """Tell if elements may not be taken in another order: their places are read, or a slot has several components."""
    axis = form.cascade.axis
    twice = any(element.indices.count(axis) > 1 for element in form.cascade.elements())
    return twice or bool(form.structures) or axis in axes_by_place(form)


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

    def elements(self, start: int, stop: int, order: Any = None) -> Scope:
        """The scope over a block of elements; in another order than they have, if one is given."""
        streamed = self.form.cascade.axis
        if order is None:
            return self.scope.over({streamed: (self.start + start, self.start + stop)})
        tensors = dict(self.scope.tensors)
        for element in self.form.cascade.elements():
            if streamed in element.indices:
                dim = element.indices.index(streamed)
                tensors[element.name] = self.ops.pick(self.scope.tensors[element.name], order[start:stop], dim)
        block = self.scope.over({streamed: (0, stop - start)})
        return replace(block, tensors=tensors, offsets={**block.offsets, streamed: 0})

    def leaf(self, keys: Any, elements: Scope) -> tuple[int, Slots]:
        """The least key of a block, and the states of the groups from there to its largest."""
        first, last = int(keys.min()), int(keys.max())
        groups = Groups(self.form.cascade.axis, keys - first, last + 1 - first, self.ops)
        in_runs = any(pivot.slopes for pivot in self.form.pivots)
        return first, self.leaf_of_runs(groups, elements) if in_runs else self.leaf_of(groups, elements)

    def leaf_of(self, groups: Groups, elements: Scope) -> Slots:
        """The states of all groups of a block."""
        found = run_by_groups(programs(self.form).of(group_program), elements, {}, groups)
        streamed, values = groups.axis, values_of_slots(self.executor.form)
        lengths, merging = elements.over({streamed: (0, groups.number)}), self.over(groups.number)
        arrays = {
            values[value.name]: to_axes(array, (streamed, *value.indices), lengths) for value, array in found.items()
        }
        return {value: from_axes(array, value.indices, merging) for value, array in arrays.items()}

    def leaf_of_runs(self, groups: Groups, elements: Scope) -> Slots:
        """The same, where every run of a group's elements has a state of its own first."""
        ops = self.ops
        owner = ops.pick(groups.keys, groups.order, 0)
        rank = ops.arange(0, owner.shape[0]) - ops.pick(groups.counts.cumsum(0) - groups.counts, owner, 0)
        counts = -(-groups.counts // SMALLEST_BLOCK)
        run = ops.pick(counts.cumsum(0) - counts, owner, 0) + rank // SMALLEST_BLOCK
        keys = ops.pick(run, ops.order(groups.order, 0, descending=False), 0)
        state = self.leaf_of(Groups(groups.axis, keys, int(counts.sum()), ops), elements)
        values = tuple(state)

        def join(a: Any, b: Any) -> Any:
            sides = (dict(zip(values, side, strict=True)) for side in (a, b))
            joined = self.executor.merge(self.over(a[0].shape[self.place]), *sides)
            return tuple(map(joined.__getitem__, values))

        nothing = self.identity(1)
        owners = Owners(owner[rank % SMALLEST_BLOCK == 0], counts, ops, self.place)
        folded = fold_sorted(join, tuple(state.values()), owners, tuple(map(nothing.__getitem__, values)))
        return dict(zip(values, folded, strict=True))


@final
class Running:
    """The states of all groups, into which blocks are merged.

    Attributes:
        states: what makes and merges them.
        slots: their arrays; None before the first block.
    """

    def __init__(self, states: GroupStates) -> None:
        self.states = states
        self.slots: Slots | None = None
        self._are_own = False

    def take(self, first: int, block: Slots) -> None:
        """Merge the states of a block, which begin at a group; what they touch is written where it lies."""
        ops, place, states = self.states.ops, self.states.place, self.states
        number, groups = next(iter(block.values())).shape[place], states.merging.length(states.axis)
        if self.slots is None and number == groups:
            self.slots = block
            return
        running = states.identity(groups) if self.slots is None else self.slots
        part = {value: ops.cut(array, place, first, first + number) for value, array in running.items()}
        joined = states.executor.merge(states.over(number), part, block)
        if number == groups:
            self.slots, self._are_own = joined, False
            return
        if not self._are_own:  # the arrays of a merge may be views
            running, self._are_own = {value: ops.concat([array], place) for value, array in running.items()}, True
        for value, array in joined.items():
            if array.dtype != running[value].dtype:  # of far places numbers are wider
                running[value] = ops.wide(running[value])
            ops.cut(running[value], place, first, first + number)[...] = array
        self.slots = running
