"""Finish states by kernels: the slots of a state are the inputs of a form that reduces nothing.

Such a form is planned, compiled and kept as that of a call. A state of a kind that was finished before, with tensors
alike, takes its step at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, final

from redalg.errors import BackendError, InputError, PlanError
from redalg.expression import Axis
from redalg.expression.dtypes import is_float
from redalg.incremental.combine.state_inputs import FinishForm, with_state_for_inputs
from redalg.incremental.form import FusedForm
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.arrays import output_dtype
from redalg.runtime.bind.finish import (
    Request,
    check_scalars,
    finish_by_arrays,
    finished_numbers,
    read_request,
    with_starts,
)
from redalg.runtime.bind.inputs import (
    Bound,
    array_dtype,
    check_choice,
    may_have_tangents,
    promote_dtypes,
    scalars_of,
    without_gradients,
)
from redalg.runtime.bind.options import check_places, global_starts
from redalg.runtime.bind.places import finished_axes_by_place, finished_exprs, under_two_indices
from redalg.runtime.bind.state import State, check_state, kind_of_state, reduced_names
from redalg.runtime.call.dispatch import DEFAULTS, KERNELS, start_pass, takes_kernels
from redalg.runtime.call.kernels import recipe_of_steps
from redalg.runtime.call.prepared import KINDS, Step, kind_of_tensors
from redalg.runtime.call.states import check_backend

Results = tuple[dict[str, Any], ...]
"""The outputs by name; beside them, if they are asked for, their condition numbers."""


@final
@dataclass(frozen=True)
class PreparedFinish:
    """The part of a finish by a kernel that states and tensors of one kind share.

    Attributes:
        step: runs the kernel on the slots and tensors.
        slots: the names of its inputs that are slots, and their slots.
        piece: the sizes of the axes that outputs have and a state has not.
        fixed: the axes along which outputs that start beyond 0 take no kernel.
        numbers: the axes whose places stand in arithmetic.
    """

    step: Step
    slots: Mapping[str, str]
    piece: Mapping[str, int]
    fixed: frozenset[Axis]
    numbers: frozenset[Axis]

    def run(self, state: State, inputs: Mapping[str, Any]) -> Results:
        """The outputs."""
        slots = {name: state.slots[slot] for name, slot in self.slots.items()}
        return (self.step({**state.scalars, **inputs, **slots}),)


_PREPARED: Remembered[dict[Hashable, PreparedFinish]] = Remembered(lambda _: {})
"""Form -> what is known of how it is finished, by the kind of the state and of the tensors."""
_FORMS: Remembered[dict[Hashable, FinishForm]] = Remembered(lambda _: {})
"""Form -> the forms that finish its states."""


def finish_state(form: FusedForm, state: State, inputs: Mapping[str, Any] | None, empty: str, start: Any, *,
                 condition: bool = False, backend: str | None = None) -> Results:  # fmt: skip
    """The outputs of a state, and their condition numbers if they are asked for.

    `inputs` holds the tensors and scalars that stand in the outputs themselves. Outputs that carry a reduced axis are
    made for the piece of it that `inputs` holds, which begins at `start`.
    """
    check_backend("finish", backend)
    check_choice("empty", empty, "finish: ")
    check_state(form, state, "finish")
    inputs = without_gradients(inputs or {})
    kind = kind_of_finish(state, inputs, empty, backend) if not condition else None
    known = _PREPARED(form).get(kind)
    if known is not None:
        starts = with_starts(form, state, global_starts(form.cascade, start, "finish"))
        if not any(first and axis in known.fixed for axis, first in starts.items()):
            check_scalars(form, state, inputs)
            check_places(starts, known.piece, known.numbers, "finish")
            return known.run(state, inputs)
        kind = None
    request = read_request(form, state, inputs, start)
    reason = "condition numbers are asked for" if condition else obstacle_to_finish(form, state, request)
    if not reason and takes_kernels(bound_of(state, {}), backend):
        try:
            return new_finish(form, state, request, empty, kind)
        except (PlanError, InputError) as error:  # of planning: the tensors fit the outputs
            reason = str(error)
    if backend == KERNELS:
        raise BackendError(f'finish: no kernel finishes this state: {reason} Leave backend="{KERNELS}" out.')
    return finish_by_arrays(form, state, request, empty, condition=condition)


def prepared_finish(
    form: FusedForm, state: State, inputs: Mapping[str, Any], empty: str, backend: str | None
) -> PreparedFinish | None:  # fmt: skip
    """The finish of states of this kind by one kernel, if it is all that is needed, and there was one before."""
    known = _PREPARED(form).get(kind_of_finish(state, inputs, empty, backend))
    return known if known is not None and recipe_of_steps((known.step,)) is not None else None


def kind_of_finish(state: State, inputs: Mapping[str, Any], empty: str, backend: str | None) -> Hashable:
    """The kind of a state and of tensors; None if a glance does not tell it."""
    of_state, of_tensors = kind_of_state(state), kind_of_tensors(inputs)
    if of_state is None or of_tensors is None or may_have_tangents():
        return None
    return of_state, tuple(of_tensors), empty, backend


def obstacle_to_finish(form: FusedForm, state: State, request: Request) -> str:
    """The reason why no kernel finishes a state; empty if one may."""
    exprs = finished_exprs(form)
    moved = {axis for axis, first in request.start.items() if first} & finished_axes_by_place(form)
    if moved:
        return f"the places along axis {min(map(str, moved))} matter, and kernels count from 0."
    if {*form.cascade.extents()} & {*reduced_names(form)}:
        return "the outputs hold the total of a reduced axis, which a kernel takes from its piece."
    if any(under_two_indices(exprs, form.cascade.reduced_axes)):
        return "a tensor stands under two indices in the outputs."
    if 0 in (*state.sizes.values(), *request.piece.values()):
        return "the outputs have no elements."
    devices = {str(getattr(array, "device", state.device)) for array in request.inputs.values()}
    if state.library == "torch" and devices - {state.device}:
        return f"the tensors lie on {', '.join(sorted(devices))}, and the state on {state.device}."
    return ""


def new_finish(form: FusedForm, state: State, request: Request, empty: str, kind: Hashable) -> Results:
    """The outputs of a state of a kind that was not met before, by a kernel that is kept for the next.

    Raises:
        PlanError: no kernel makes them.
    """
    given = bound_of(state, request.inputs)
    finishing = finish_form(form, given.compute, state.result, empty)
    own = finishing.form.cascade
    known = {name: state.slots[slot] for name, slot in finishing.slots.items()}
    arrays = {name: known[name] if name in known else request.inputs[name] for name in own.inputs()}
    scalars = scalars_of(own, {**state.scalars, **request.inputs})
    known_sizes = {axis.name: axis.size or 0 for axis in own.axes()} | {**state.sizes, **request.piece}
    sizes = {axis.name: known_sizes[axis.name] for axis in own.axes()}
    dtypes = {name: array_dtype(array) for name, array in arrays.items()}
    bound = Bound(arrays, scalars, sizes, dtypes, state.library, state.device, given.compute, state.result)
    step, outputs = start_pass(finishing.form, bound, {**arrays, **scalars}, KERNELS, DEFAULTS)
    if kind is not None:
        prepared = _PREPARED(form)
        if len(prepared) >= KINDS:
            prepared.clear()
        slots = {name: slot for name, slot in finishing.slots.items() if name in arrays}
        placed, numbers = finished_axes_by_place(form), finished_numbers(form)
        prepared[kind] = PreparedFinish(step, slots, request.piece, placed, numbers)
    return (outputs,)


def bound_of(state: State, inputs: Mapping[str, Any]) -> Bound:
    """The binding of a state's slots and of tensors beside them, without sizes."""
    arrays = [one for one in (*state.slots.values(), *inputs.values()) if hasattr(one, "dtype")]
    compute, _ = promote_dtypes([dtype for one in arrays if is_float(dtype := array_dtype(one))])
    return Bound({}, {}, {}, {}, state.library, state.device, compute, state.result)


def finish_form(form: FusedForm, compute: str, result: str, empty: str) -> FinishForm:
    """The form that finishes the states of a form, for a dtype of arithmetic and one of outputs."""
    known, key = _FORMS(form), (compute, result, empty)
    if key not in known:
        dtypes = {one.name: output_dtype(one, form, result) for one in form.outputs}
        known[key] = with_state_for_inputs(form, compute, dtypes, empty)
    return known[key]
