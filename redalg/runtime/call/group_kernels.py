"""States by group by kernels on the CPU: a kernel for every sweep over the elements, lines of groups in between.

Arithmetic is float64, whatever the tensors' dtype; slots are rounded to theirs at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from redalg.errors import PlanError
from redalg.expression import Axis, Element, Value
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import run_let
from redalg.incremental.arrays.numpy_ops import FOLDS
from redalg.incremental.combine.let import Fold, Let
from redalg.incremental.combine.programs import group_program, programs
from redalg.incremental.combine.sweeps import Sweep, sweeps_of
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.remembered import Remembered
from redalg.incremental.state_outputs import INTEGERS
from redalg.lower_tile.place.by_group import KEYS, Sides, program_of_sweep
from redalg.lower_tile.text.emit import Source, emit
from redalg.runtime.bind.arrays import from_axes, scope_for, to_axes
from redalg.runtime.bind.backends import ARRAY_BACKENDS, ops_of
from redalg.runtime.bind.groups import Keys, without_kernels
from redalg.runtime.bind.inputs import native
from redalg.runtime.bind.leaf import Piece
from redalg.runtime.bind.places import axes_by_place
from redalg.runtime.bind.state import State, new_state
from redalg.runtime.compile.compile import compile_source, launch_function
from redalg.runtime.lowering import problem_of
from redalg.strategies.device import device_for
from redalg.strategies.rules.rules import choose_schedule
from redalg.strategies.schedule import numbers_of

DTYPES = ("float64", "float32")
"""Of tensors that kernels read."""
MOST_ELEMENTS = 2**31 - 1
ELEMENTS_OF_A_PART = 1 << 20
"""That a thread takes at least."""
ELEMENTS = 64
"""Elements of an axis, by which a schedule is chosen: the kernel has one loop."""


@final
@dataclass(frozen=True)
class SweepKernel:
    """The kernel of a sweep.

    Attributes:
        sweep, sides: what it makes, and the arrays of groups that it reads and writes.
        parameters: the keys of its arguments, in order: tensors by the user's names, then those of groups.
        launch: takes these.
    """

    sweep: Sweep
    sides: Sides
    parameters: tuple[str, ...]
    launch: Callable[..., Any]


@final
@dataclass(frozen=True)
class GroupKernels:
    """The kernels that make states by group, and the lines of groups after the last."""

    kernels: tuple[SweepKernel, ...]
    after: tuple[Let, ...]


_KERNELS: Remembered[dict[Any, GroupKernels]] = Remembered(lambda _: {})
"""Form -> its kernels, by the dtypes of tensors and the number of columns."""


def column_of(form: FusedForm) -> Axis | None:
    """The axis beside the streamed one, if there is one."""
    return next((axis for axis in form.cascade.axes() if axis != form.cascade.axis), None)


def obstacle_to_sweeps(form: FusedForm, piece: Piece) -> str:
    """The reason why no kernel makes the states of a piece by group; empty if one does."""
    cascade, bound = form.cascade, piece.bound
    axis = cascade.axis
    if len(cascade.axes()) > 2 or not all(map(is_read_plainly, cascade.elements())):
        return f"a tensor has other axes or indices than {axis} and one more"
    if cascade.scalars() or cascade.producers:
        return "the expression holds run-time scalars, or sums within its terms"
    if any(dtype not in DTYPES for dtype in bound.dtypes.values()):
        return f"a tensor is not of {' or '.join(DTYPES)}"
    sweeps = sweeps_of(programs(form).of(group_program), axis)
    if sweeps is None:
        return "a slot has several components (an index, an order, a product)"
    if any(pivot.slopes for pivot in form.pivots):
        return "a pivot lies on a line"
    if piece.start.get(axis, 0) and axis in axes_by_place(form):
        return f"the places along axis {axis} matter, and kernels count from 0"
    if not 0 < bound.sizes[axis.name] <= MOST_ELEMENTS or 0 in bound.sizes.values():
        return f"a kernel takes from 1 to {MOST_ELEMENTS} elements, and one row at least"
    return ""


def is_read_plainly(element: Element) -> bool:
    """Tell if an element is indexed by axes, by each once, and by no expression or number."""
    axes = {index for index in element.indices if isinstance(index, Axis)}
    return len(axes) == len(element.indices) > 0


def leaf_by_sweeps(form: FusedForm, piece: Piece, keys: Keys) -> State:
    """The state of a piece for every group, by kernels.

    Raises:
        BackendError: no kernel makes it.
    """
    reason, bound = obstacle_to_sweeps(form, piece), piece.bound
    if not reason:
        try:
            kernels = kernels_of_sweeps(form, bound.dtypes, bound.sizes)
        except PlanError as error:
            reason = str(error).rstrip(".")
    if reason:
        raise without_kernels(keys.caller, reason)
    tensors = {name: shared_tensor(array) for name, array in bound.tensors.items()}
    ops = ops_of("numpy", "float64", "cpu")
    scope = scope_for(form.cascade, bound, ops, tensors, start=piece.start, extents=piece.extents)
    with ops.quiet():
        parts = number_of_parts(form, bound.sizes[form.cascade.axis.name])
        axis = form.cascade.axis
        dims = {one.name: one.indices.index(axis) for one in form.cascade.elements() if axis in one.indices}
        run = Sweeping(axis, column_of(form), scope, shared_tensor(keys.numbers), keys.groups, parts, dims)
        values = run.run(kernels)
    found = programs(form).of(group_program).results
    grouped, sizes = grouped_form(form), {**bound.sizes, group_axis(form).name: keys.groups, **piece.extents}
    slots = {slot.name: value for slot, value in found.items()}
    arrays = {slot.name: run.of_groups(values[slots[slot.name]], slot.axes[1:]).astype(
                  np.int64 if slot.kind in INTEGERS else bound.compute)
              for slot in grouped.slots}  # fmt: skip
    arrays = {name: ARRAY_BACKENDS["numpy"].to_library(array, bound.library) for name, array in arrays.items()}
    return piece.complete(new_state(grouped, arrays, replace(bound, sizes=sizes)), form)


@final
@dataclass(frozen=True)
class Sweeping:
    """A run of kernels over the elements of a piece.

    Attributes:
        axis, column: the streamed axis, and that of columns.
        scope: over the piece, in float64.
        keys: the group of every element.
        groups, parts: the numbers of groups, and of parts that threads take.
        dims: tensor -> its dimension along the streamed axis, of those that lie along it.
    """

    axis: Axis
    column: Axis | None
    scope: Scope
    keys: Any
    groups: int
    parts: int
    dims: Mapping[str, int]

    def run(self, kernels: GroupKernels) -> dict[Value, Any]:
        """The values of groups after all sweeps."""
        plain = self.scope.over({}, {})
        for kernel in kernels.kernels:
            for let in kernel.sweep.before:
                run_let(let, plain)
            arrays = {name: self.side_by_side([self.of_groups(plain.values[value], value.indices) for value in side])
                      for name, side in kernel.sides.reads.items()}  # fmt: skip
            found = self.launch(kernel, {name: shared_tensor(array) for name, array in arrays.items()})
            for name, folds in kernel.sides.makes.items():
                for place, fold in enumerate(folds):
                    array = results_of_fold(fold, np.ascontiguousarray(found[name][:, place]))
                    plain.values[fold.value] = from_axes(array, (self.axis, *fold.value.indices), self.scope)
        for let in kernels.after:
            run_let(let, plain)
        return plain.values

    def of_groups(self, array: Any, axes: tuple[Axis, ...]) -> Any:
        """A value of groups as an array over the groups and its own axes."""
        return to_axes(array, (self.axis, *axes), self.scope.over({self.axis: (0, self.groups)}))

    def side_by_side(self, arrays: Sequence[Any]) -> Any:
        """Arrays over the groups in one, group by group."""
        return np.stack([np.asarray(array, np.float64) for array in arrays], axis=1)

    def launch(self, kernel: SweepKernel, known: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays that a sweep finds: every part by a thread, which has arrays of its own, and then they join."""
        if self.parts == 1:
            return self.launch_part(kernel, known, 0)
        with ThreadPoolExecutor(self.parts) as threads:
            whole, *others = threads.map(partial(self.launch_part, kernel, known), range(self.parts))
        for found in others:
            for name, folds in kernel.sides.makes.items():
                for place, fold in enumerate(folds):
                    join = FOLDS.get(fold.folding.kind, np.add)  # counts are sums of ones
                    whole[name][:, place] = join(whole[name][:, place], found[name][:, place])
        return whole

    def launch_part(self, kernel: SweepKernel, known: Mapping[str, Any], part: int) -> dict[str, Any]:
        """The arrays that a sweep finds in a part of the elements."""
        start, stop = (len(self.keys) * end // self.parts for end in (part, part + 1))
        found = {name: self.nothing(folds) for name, folds in kernel.sides.makes.items()}
        arrays = {**known, **{name: shared_tensor(array) for name, array in found.items()}, KEYS: self.keys[start:stop]}
        for name in kernel.parameters:
            if name in self.dims:
                arrays[name] = self.scope.tensors[name].narrow(self.dims[name], start, stop - start).contiguous()
            elif name not in arrays:
                arrays[name] = self.scope.tensors[name]
        kernel.launch(*map(arrays.__getitem__, kernel.parameters))
        return found

    def nothing(self, folds: Sequence[Fold]) -> Any:
        """The results of folds of no elements, side by side."""
        identities = np.array([float(fold.folding.identity) for fold in folds])
        columns = () if self.column is None or not folds[0].value.indices else (self.scope.length(self.column),)
        shape = (self.groups, len(folds), *columns)
        return np.ascontiguousarray(np.broadcast_to(identities.reshape(1, -1, *(1 for _ in columns)), shape))


def number_of_parts(form: FusedForm, elements: int) -> int:
    """The number of parts that threads take: as many as PyTorch has; one where a kernel counts places."""
    import torch

    places = form.cascade.axis in axes_by_place(form)
    return 1 if places else max(1, min(torch.get_num_threads(), elements // ELEMENTS_OF_A_PART))


def results_of_fold(fold: Fold, array: Any) -> Any:
    """The results of a fold as the interpreter keeps them: counts are integers."""
    kind = fold.folding.kind
    return array.astype(np.int64) if kind == "count" else array > 0 if kind == "any" else array


def shared_tensor(array: Any) -> Any:
    """An array as a contiguous tensor, on the same memory where torch can read it.

    Columns of Arrow are read-only, of which PyTorch would warn: kernels do not write to them.
    """
    import torch

    if isinstance(array, torch.Tensor):
        return array.contiguous()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(native(array)))


def kernels_of_sweeps(form: FusedForm, dtypes: Mapping[str, str], sizes: Mapping[str, int]) -> GroupKernels:
    """The kernels of a form for tensors of these dtypes, compiled once.

    Raises:
        PlanError: an expression is one that kernels lack.
    """
    column = column_of(form)
    width = 1 if column is None else sizes[column.name]
    known, key = _KERNELS(form), (width, tuple(sorted(dtypes.items())))
    if key not in known:
        sweeps, after, sources = sources_of_sweeps(form, dtypes, width)
        made = []
        for sweep, source in zip(sweeps, sources, strict=True):
            parameters = tuple(one.key for one in source.program.parameters)
            launch = launch_function(compile_source(source))
            made.append(SweepKernel(sweep, Sides.of_sweep(sweep), parameters, launch))
        known[key] = GroupKernels(tuple(made), after)
    return known[key]


def sources_of_sweeps(
    form: FusedForm, dtypes: Mapping[str, str], width: int = 1
) -> tuple[tuple[Sweep, ...], tuple[Let, ...], list[Source]]:
    """The sweeps of a form, the lines of groups after the last, and the source of each sweep's kernel."""
    axis, column = form.cascade.axis, column_of(form)
    found = sweeps_of(programs(form).of(group_program), axis)
    if found is None:
        raise PlanError("a slot has several components.")
    sweeps, after = found
    lengths = {axis.name: ELEMENTS} | ({} if column is None else {column.name: width})
    problem = problem_of(form, "c", lengths, dtypes)
    plan = numbers_of(choose_schedule(form, problem, device_for("c")))
    programs_of_sweeps = (program_of_sweep(sweep, axis, column, plan, problem=problem, elements=form.cascade.elements())
                          for sweep in sweeps)  # fmt: skip
    header = f"Generated by redalg: sweep {{}} of {len(sweeps)} over {axis}, by group."
    sources = [emit(program, plan, header.format(number), "") for number, program in enumerate(programs_of_sweeps, 1)]
    return sweeps, after, sources
