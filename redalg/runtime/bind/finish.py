"""Finish a state: make its outputs from the slots and the tensors that stand in the outputs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sympy import Expr

from redalg.decompose.cascade import Producer
from redalg.errors import InputError
from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, values_of
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.arrays import assemble_chunks, output_dtype
from redalg.runtime.bind.blocks import Ranges, block_lengths, pieces
from redalg.runtime.bind.inputs import check_choice, library_name, without_gradients
from redalg.runtime.bind.options import check_places, global_starts
from redalg.runtime.bind.places import computed_axes
from redalg.runtime.bind.state import State, check_piece_indices, check_state, reduced_names, unpack, unpacked_scope


def finish(form: FusedForm, state: State, given: Mapping[str, Any] | None, empty: str, start: Any, *,
           condition: bool = False) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """The outputs of a state, and their condition numbers if they are asked for.

    `given` holds the tensors and scalars that stand in the outputs themselves. Outputs that carry a reduced axis are
    made for the piece of it that `given` holds, which begins at `start`.
    """
    check_state(form, state, "finish")
    given = without_gradients(given or {})
    start = with_starts(form, state, global_starts(form.cascade, start, "finish"))
    needed = {one.name: one for expr in finished_exprs(form) for one in elements_of(expr)}
    missing = sorted(str(one) for name, one in needed.items() if name not in given)
    if missing:
        raise InputError(
            f"finish: the outputs hold {', '.join(missing)}, which a state does not. Pass them as tensors: "
            f'`finish(state, {{"{missing[0].split("[")[0]}": …}})`.'
        )
    check_choice("empty", empty, "finish: ")
    known = {*form.cascade.inputs(), *(one.name for one in form.cascade.scalars())}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"finish: the expression holds no tensor `{unknown[0]}`. It holds {', '.join(sorted(known))}.")
    check_scalars(form, state, given)
    piece = piece_sizes(form, state, {name: given[name] for name in needed})
    for axis, (first, stop) in summed_boxes(form, state, piece).items():
        piece[axis.name], start = stop - first, {axis: first} | start
    check_places(start, piece, frozenset().union(*map(computed_axes, finished_exprs(form))), "finish")
    check_whole(form, state, piece, start)
    for name, element in needed.items():
        check_output_tensor(given[name], element, state.library, {**state.sizes, **piece})
        check_kind(given[name], element, name in form.cascade.value_tensors())
    scope, executor = unpacked_scope(form, state, given, empty, piece=piece, start=start)
    made = []
    with scope.ops.quiet():
        values = executor.finish_values(scope, unpack(form, state, scope))
        for of in (executor.outputs, executor.conditions) if condition else (executor.outputs,):
            dtypes = {output.name: condition_dtype(state.result) if of == executor.conditions else
                      output_dtype(output, form, state.result) for output in form.outputs}  # fmt: skip
            chunks = results_by_block(form, executor, scope, partial(of, values=values), piece)
            made.append(assemble_chunks(chunks, {one.name: (one.axes, dtypes[one.name]) for one in form.outputs}, scope,
                                  state.library))  # fmt: skip
    return tuple(made)


def condition_dtype(result: str) -> str:
    """float64 beside float64, float32 beside all others."""
    return result if result == "float64" else "float32"


def with_starts(form: FusedForm, state: State, start: Mapping[Axis, int]) -> dict[Axis, int]:
    """The places at which the rows of `finish` begin: those of the state. Places that are given must agree."""
    made = dict(start)
    for axis in form.cascade.axes():
        first = state.starts.get(axis.name)
        if first is not None and made.setdefault(axis, first) != first:
            raise InputError(f"finish: start={{{axis}: {made[axis]}}}, and the state was made with start="
                             f"{{{axis}: {first}}}. Leave it out: rows are those of the state.")  # fmt: skip
    return made


def check_whole(form: FusedForm, state: State, piece: Mapping[str, int], start: Mapping[Axis, int]) -> None:
    """Refuse a piece of a tensor that stands under two indices in the outputs, unless it is the whole."""
    edges = ((start.get(axis, 0), start.get(axis, 0) + piece.get(axis.name, 0)) for axis in form.cascade.reduced_axes)
    if state.places != (tuple(edges),) or any(start.get(axis, 0) for axis in form.cascade.reduced_axes):
        check_piece_indices(finished_exprs(form), form, "finish")


def check_scalars(form: FusedForm, state: State, given: Mapping[str, Any]) -> None:
    """Refuse other scalars than the state was made with; an empty state takes them from the call, and needs them."""
    for scalar in form.cascade.scalars():
        name, held = scalar.name, state.scalars.get(scalar.name)
        if held is not None and name in given and float(given[name]) != held:
            raise InputError(f"finish: scalar `{name}` is {given[name]}, and the state was made with {held}. Leave it "
                             "out, or make the state with the other.")  # fmt: skip
        used = any(scalar in expr.free_symbols for expr in finished_exprs(form))
        if held is None and used and name not in given:
            raise InputError(f"finish: the outputs hold the scalar `{name}`, which an empty state has not. Pass it: "
                             f'`finish(state, {{"{name}": …}})`.')  # fmt: skip


def results_by_block(
    form: FusedForm, executor: Executor, scope: Scope, of: Callable[..., dict[str, Any]], piece: Mapping[str, int]
) -> Iterator[tuple[Ranges, dict[str, Any]]]:
    """The results of `of`: the outputs without a reduced axis, then block after block of those with one."""
    yield {}, of(scope, carries=False)
    if any(one.carries for one in form.outputs):
        sizes = {str(axis.name): scope.length(axis) for axis in form.cascade.axes()} | dict(piece)
        for part in pieces(executor.reduced, scope, block_lengths(form, sizes)):
            yield part, of(scope.over(part), carries=True)


def finished_exprs(form: FusedForm) -> list[Expr]:
    """The expressions that `finish` evaluates: outputs, assignments, and the producers that stand in them."""
    produced = (expr for one in finished_producers(form) for expr in one.cascade.expressions())
    return [*assigned_exprs(form), *produced]


def assigned_exprs(form: FusedForm) -> list[Expr]:
    """The expressions of outputs and of assignments."""
    return [one.expr for one in form.outputs] + [one.expr for one in form.assignments]


def finished_producers(form: FusedForm) -> list[Producer]:
    """The producers that stand in outputs and assignments."""
    used = {value for expr in assigned_exprs(form) for value in values_of(expr)}
    return [one for one in form.cascade.producers if one.value in used]


def piece_sizes(form: FusedForm, state: State, given: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of axes that the tensors of `finish` have and a state has not: those of the piece."""
    exprs = finished_exprs(form)
    sizes: dict[str, int] = {}
    for element in sorted({one for expr in exprs for one in elements_of(expr)}, key=str):
        for index, size in zip(element.indices, given[element.name].shape, strict=False):
            if isinstance(index, Axis) and (index.name in reduced_names(form) or index.name not in state.sizes):
                sizes.setdefault(index.name, int(size))
    return sizes


def summed_boxes(form: FusedForm, state: State, piece: Mapping[str, int]) -> dict[Axis, tuple[int, int]]:
    """(first, stop) of the reduced axes that outputs sum over and no tensor of `finish` has: those of the state."""
    axes = {axis for one in finished_producers(form) for axis in one.cascade.axes()} & set(form.cascade.reduced_axes)
    missing = sorted((axis for axis in axes if axis.name not in piece), key=str)
    if missing and (state.places is None or len(state.places) > 1):
        raise InputError(
            f"finish: an output sums over axis {missing[0]} itself, and the state does not know which places of it it "
            "holds: its pieces do not adjoin. Merge pieces that adjoin."
        )
    boxes = dict(zip(form.cascade.reduced_axes, state.places[0], strict=True)) if state.places else {}
    return {axis: boxes.get(axis, (0, 0)) for axis in missing}


def check_output_tensor(array: Any, element: Element, library: str, sizes: Mapping[str, int]) -> None:
    """Refuse a tensor that does not fit an output's own element: one of another library, rank or size."""
    name = element.name
    if library_name(array) != library:
        raise InputError(f"finish: tensor `{name}` is a {type(array).__name__}, and the state is of {library}.")
    wanted = [sizes.get(str(index), size) for index, size in zip(element.indices, array.shape, strict=False)]
    if len(array.shape) != len(element.indices) or list(array.shape) != wanted:
        raise InputError(f"finish: tensor `{name}` has shape {tuple(array.shape)}; `{element}` needs {tuple(wanted)}.")


def check_kind(array: Any, element: Element, is_value: bool) -> None:
    """Refuse a gradient, and integers or booleans where they stand in arithmetic."""
    if getattr(array, "requires_grad", False) or (is_value and "float" not in str(array.dtype)):
        raise InputError(f"finish: tensor `{element.name}` should hold floating-point numbers without a gradient.")
