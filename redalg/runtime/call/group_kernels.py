"""States by group by kernels on the CPU: a kernel for every sweep over the elements, lines of groups in between.

Arithmetic is float64, whatever the tensors' dtype; slots are rounded to theirs at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from sympy import Expr, Mul, log

from redalg.errors import BackendError, PlanError
from redalg.expression import Axis, Value
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
from redalg.lower_tile.place.by_group import FOUND, KEYS, KNOWN, program_of_sweep
from redalg.lower_tile.text.emit import Source, emit
from redalg.runtime.bind.arrays import scope_for
from redalg.runtime.bind.backends import ARRAY_BACKENDS, ops_of
from redalg.runtime.bind.groups import Keys
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
    """The kernel of a sweep: `launch` takes `tensors` in order, the keys, what is known of groups, what is found."""

    sweep: Sweep
    tensors: tuple[str, ...]
    launch: Callable[..., Any]


@final
@dataclass(frozen=True)
class GroupKernels:
    """The kernels that make states by group, and the lines of groups after the last."""

    kernels: tuple[SweepKernel, ...]
    after: tuple[Let, ...]


Dtypes = tuple[tuple[str, str], ...]
_KERNELS: Remembered[dict[Dtypes, GroupKernels]] = Remembered(lambda _: {})


def obstacle_to_sweeps(form: FusedForm, piece: Piece) -> str:
    """The reason why no kernel makes the states of a piece by group; empty if one does."""
    cascade, bound = form.cascade, piece.bound
    axis = cascade.axis
    if bound.device != "cpu":
        return "kernels by group are for the CPU"
    if cascade.axes() != (axis,) or any(element.indices != (axis,) for element in cascade.elements()):
        return f"a tensor has other axes or indices than {axis}"
    if cascade.scalars() or cascade.producers:
        return "the expression holds run-time scalars, or sums within its terms"
    if any(dtype not in DTYPES for dtype in bound.dtypes.values()):
        return f"a tensor is not of {' or '.join(DTYPES)}"
    sweeps = sweeps_of(programs(form).of(group_program), axis)
    if sweeps is None:
        return "a slot has several components (an index, an order, a product)"
    if any(multiplies_logarithms(line.expr) for sweep in sweeps[0] for line in sweep.lines):
        return "a logarithm is multiplied, of which 0·log 0 is 0, and kernels have none"
    if any(pivot.slopes for pivot in form.pivots):
        return "a pivot lies on a line"
    if piece.start.get(axis, 0) and axis in axes_by_place(form):
        return f"the places along axis {axis} matter, and kernels count from 0"
    if not 0 < bound.sizes[axis.name] <= MOST_ELEMENTS:
        return f"a kernel takes from 1 to {MOST_ELEMENTS} elements"
    return ""


def multiplies_logarithms(expr: Expr) -> bool:
    """Tell if an expression holds a product of a logarithm and of what is no number."""
    products = (node for node in expr.atoms(Mul) if node.has(log))
    return any(sum(not one.is_number for one in node.args) > 1 for node in products)


def leaf_by_sweeps(form: FusedForm, piece: Piece, keys: Keys) -> State:
    """The state of a piece for every group, by kernels.

    Raises:
        BackendError: no kernel makes it.
    """
    reason, bound = obstacle_to_sweeps(form, piece), piece.bound
    if not reason:
        try:
            kernels = kernels_of_sweeps(form, bound.dtypes)
        except PlanError as error:
            reason = str(error).rstrip(".")
    if reason:
        raise BackendError(f'leaf: no kernel makes these states by group: {reason}. Leave backend="tilelang" out: the '
                           "tensors' library makes them.")  # fmt: skip
    tensors = {name: shared_tensor(array) for name, array in bound.tensors.items()}
    ops = ops_of("numpy", "float64", "cpu")
    scope = scope_for(form.cascade, bound, ops, tensors, start=piece.start, extents=piece.extents)
    with ops.quiet():
        parts = number_of_parts(form, bound.sizes[form.cascade.axis.name])
        values = run_sweeps(kernels, scope, shared_tensor(keys.numbers), keys.groups, parts)
    found = programs(form).of(group_program).results
    grouped, sizes = grouped_form(form), {**bound.sizes, group_axis(form).name: keys.groups, **piece.extents}
    slots = {slot.name: value for slot, value in found.items()}
    arrays = {slot.name: slot_array(values[slots[slot.name]], slot.kind in INTEGERS, keys.groups, bound.compute)
              for slot in grouped.slots}  # fmt: skip
    arrays = {name: ARRAY_BACKENDS["numpy"].to_library(array, bound.library) for name, array in arrays.items()}
    return piece.complete(new_state(grouped, arrays, replace(bound, sizes=sizes)), form)


def run_sweeps(kernels: GroupKernels, scope: Scope, keys: Any, groups: int, parts: int) -> dict[Value, Any]:
    """The values of groups after all sweeps, each in so many parts."""
    plain = scope.over({}, {})
    for kernel in kernels.kernels:
        for let in kernel.sweep.before:
            run_let(let, plain)
        known = np.zeros((groups, max(len(kernel.sweep.reads), 1)))
        for place, value in enumerate(kernel.sweep.reads):
            known[:, place] = plain.values[value]
        tensors = [scope.tensors[name] for name in kernel.tensors]
        found = launch_in_parts(kernel, (*tensors, keys), known, parts)
        for place, fold in enumerate(kernel.sweep.folds):
            plain.values[fold.value] = results_of_fold(fold, np.ascontiguousarray(found[:, place]))
    for let in kernels.after:
        run_let(let, plain)
    return plain.values


def number_of_parts(form: FusedForm, elements: int) -> int:
    """The number of parts that threads take: as many as PyTorch has; one where a kernel counts places."""
    import torch

    places = form.cascade.axis in axes_by_place(form)
    return 1 if places else max(1, min(torch.get_num_threads(), elements // ELEMENTS_OF_A_PART))


def launch_in_parts(kernel: SweepKernel, elements: Sequence[Any], known: Any, parts: int) -> Any:
    """The results of a sweep for all groups: every part by a thread, which has results of its own, and then they join.

    `elements` are the arrays over the elements: tensors and keys.
    """
    length, identities = len(elements[-1]), [float(fold.folding.identity) for fold in kernel.sweep.folds]
    ends = [length * part // parts for part in range(parts + 1)]
    given = shared_tensor(known)

    def launch(part: int) -> Any:
        found = np.tile(np.array(identities), (len(known), 1))
        arrays = (array[ends[part] : ends[part + 1]] for array in elements)
        kernel.launch(*arrays, given, shared_tensor(found))
        return found

    if parts == 1:
        return launch(0)
    with ThreadPoolExecutor(parts) as threads:
        whole, *others = threads.map(launch, range(parts))
    for found in others:
        for place, fold in enumerate(kernel.sweep.folds):
            join = FOLDS.get(fold.folding.kind, np.add)  # counts are sums of ones
            whole[:, place] = join(whole[:, place], found[:, place])
    return whole


def results_of_fold(fold: Fold, array: Any) -> Any:
    """The results of a fold as the interpreter keeps them: counts are integers."""
    kind = fold.folding.kind
    return array.astype(np.int64) if kind == "count" else array > 0 if kind == "any" else array


def slot_array(array: Any, is_integer: bool, groups: int, compute: str) -> Any:
    """The values of every group in the dtype of their slot."""
    return np.broadcast_to(array, groups).astype(np.int64 if is_integer else compute)


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


def kernels_of_sweeps(form: FusedForm, dtypes: Mapping[str, str]) -> GroupKernels:
    """The kernels of a form for tensors of these dtypes, compiled once.

    Raises:
        PlanError: an expression is one that kernels lack.
    """
    known, key = _KERNELS(form), tuple(sorted(dtypes.items()))
    if key not in known:
        sweeps, sources = sources_of_sweeps(form, form.cascade.axis, dtypes)
        made = [SweepKernel(sweep, tensors_of(source), launch_function(compile_source(source)))
                for sweep, source in zip(sweeps[0], sources, strict=True)]  # fmt: skip
        known[key] = GroupKernels(tuple(made), sweeps[1])
    return known[key]


def sources_of_sweeps(form: FusedForm, axis: Axis, dtypes: Mapping[str, str]) -> tuple[Any, list[Source]]:
    """The sweeps of a form, and the source of each one's kernel."""
    sweeps = sweeps_of(programs(form).of(group_program), axis)
    if sweeps is None:
        raise PlanError("a slot has several components.")
    problem = problem_of(form, "c", {axis.name: ELEMENTS}, dtypes)
    plan = numbers_of(choose_schedule(form, problem, device_for("c")))
    header = f"Generated by redalg: sweep {{}} of {len(sweeps[0])} over {axis}, by group."
    return sweeps, [emit(program_of_sweep(sweep, axis, plan, problem), plan, header.format(number), "")
                    for number, sweep in enumerate(sweeps[0], 1)]  # fmt: skip


def tensors_of(source: Source) -> tuple[str, ...]:
    """The tensors that a kernel reads, by the user's names, in order."""
    return tuple(one.key for one in source.program.parameters if one.name not in (KEYS, KNOWN, FOUND))
