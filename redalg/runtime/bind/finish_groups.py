"""Finish a state by group: outputs of every group, and those of every element, which read its group's by the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from redalg.errors import InputError
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.groups import Groups, run_by_groups
from redalg.incremental.arrays.interpret import Executor, Slots
from redalg.incremental.combine.finish import finish_program, output_program
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.state_outputs import values_of_slots
from redalg.runtime.bind.arrays import assemble_chunks, from_axes, output_dtype
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.blocks import Ranges, block_lengths, pieces
from redalg.runtime.bind.finish import finish_by_arrays, read_finished, read_request
from redalg.runtime.bind.groups import read_keys
from redalg.runtime.bind.inputs import Bound
from redalg.runtime.bind.state import State, unpacked_scope


def finish_by_groups(form: FusedForm, state: State, inputs: Mapping[str, Any] | None, empty: str, start: Any, *,
                     by: Any, condition: bool) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """The outputs of a state by group, and their condition numbers if they are asked for."""
    kept = [one for one in form.outputs if one.carries]
    axis = form.cascade.axis
    if kept and by is None:
        raise InputError(f"finish: output `{kept[0].name}` keeps axis {axis}, and each of its elements reads values of "
                         "its group. Pass `by=`, the keys of these elements.")  # fmt: skip
    if not kept and by is not None:
        raise InputError(f"finish: no output keeps axis {axis}, and so none reads a key. Leave `by=` out.")
    if kept and condition:
        raise InputError(f"finish: κ is known of the groups' own values, and output `{kept[0].name}` keeps axis "
                         f"{axis}. Leave `condition=` out, or finish a function without that output.")  # fmt: skip
    grouped = grouped_form(form)
    request = read_request(grouped, state, inputs, start)
    results = finish_by_arrays(grouped, state, request, empty, condition=condition)
    if not kept:
        return results
    of_elements = replace(form, outputs=tuple(kept))
    found = results[0] | finish_elements(of_elements, state, inputs or {}, empty, start=start, by=by)
    return ({output.name: found[output.name] for output in form.outputs},)


@without_autocast()
def finish_elements(
    form: FusedForm, state: State, inputs: Mapping[str, Any], empty: str, *, start: Any, by: Any
) -> dict[str, Any]:  # fmt: skip
    """The outputs that keep the streamed axis, of the elements that have the keys `by`."""
    axis, number = form.cascade.axis, state.sizes[group_axis(form).name]
    size = int(by.shape[0]) if getattr(by, "shape", ()) else 0
    given = read_finished(form, state, inputs, start, {axis.name: size})
    bound = Bound({}, {}, given.piece, {}, state.library, state.device, state.result, state.result)
    keys = read_keys(by, number, bound, axis, "finish")
    scope, executor = unpacked_scope(form, state, given.inputs, empty, piece=given.piece, start=given.start)
    kinds = {one.name: (one.axes, output_dtype(one, form, state.result)) for one in form.outputs}
    with scope.ops.quiet():
        of_part = partial(elements_of_part, executor, values_by_group(form, state, scope, executor))
        chunks = results_by_part(form, scope, Groups(axis, keys.numbers, number, scope.ops), of_part)
        return assemble_chunks(chunks, kinds, scope, state.library)


def values_by_group(form: FusedForm, state: State, scope: Scope, executor: Executor) -> Slots:
    """The values that `finish` knows of every group, along the dimension of the streamed axis."""
    axis, values = form.cascade.axis, values_of_slots(form)
    number = state.sizes[group_axis(form).name]
    nothing = Groups(axis, scope.ops.arange(0, number), number, scope.ops)
    slots = {
        values[slot.name]: from_axes(state.slots[slot.name], (axis, *slot.axes[1:]), scope) for slot in state.layout
    }
    return run_by_groups(executor.programs.of(finish_program), scope, slots, nothing)


def elements_of_part(executor: Executor, values: Slots, scope: Scope, groups: Groups) -> dict[str, Any]:
    """The outputs over a scope's range of the streamed axis."""
    program = executor.programs.of(output_program, carries=True, empty=executor.policy)
    known = {value: values[value] for value in program.inputs}
    return {value.name: array for value, array in run_by_groups(program, scope, known, groups, of_each=True).items()}


def results_by_part(
    form: FusedForm, scope: Scope, groups: Groups, of_part: Any
) -> Iterator[tuple[Ranges, dict[str, Any]]]:  # fmt: skip
    """The outputs block after block of the streamed axis."""
    sizes = {str(axis.name): scope.length(axis) for axis in form.cascade.axes()}
    begin, _ = scope.ranges[groups.axis]
    for part in pieces((groups.axis,), scope, block_lengths(form, sizes)):
        start, stop = part[groups.axis]
        yield part, of_part(scope.over(part), replace(groups, keys=groups.keys[start - begin : stop - begin]))
