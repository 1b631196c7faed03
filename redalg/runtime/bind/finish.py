"""Finish a state: make its outputs from the slots and the tensors that stand in the outputs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from redalg.errors import InputError
from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.arrays.interpret import Executor
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.arrays import assemble_chunks, output_dtype
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.blocks import Ranges, block_lengths, pieces
from redalg.runtime.bind.inputs import library_name, native, without_gradients
from redalg.runtime.bind.leaf import check_piece_indices
from redalg.runtime.bind.options import check_places, check_tensor_names, global_starts
from redalg.runtime.bind.places import computed_axes, finished_exprs, finished_producers
from redalg.runtime.bind.state import State, check_state, reduced_names, unpack, unpacked_scope


@final
@dataclass(frozen=True)
class Request:
    """The tensors of a `finish`, checked.

    Attributes:
        inputs: the tensors and scalars that stand in the outputs themselves.
        piece: the sizes of the reduced axes that outputs carry, and of axes that these tensors alone have.
        start: the global number of the first element, by axis.
    """

    inputs: Mapping[str, Any]
    piece: Mapping[str, int]
    start: Mapping[Axis, int]


def read_request(form: FusedForm, state: State, inputs: Mapping[str, Any] | None, start: Any) -> Request:
    """The tensors and scalars that stand in the outputs themselves, and the places at which their piece begins."""
    check_state(form, state, "finish")
    return read_finished(form, state, inputs or {}, start, {})


def read_finished(
    form: FusedForm, state: State, inputs: Mapping[str, Any], start: Any, sizes: Mapping[str, int]
) -> Request:  # fmt: skip
    """Check the arrays for the outputs of a state; `sizes` are known of their piece.

    Raises:
        InputError: one is missing, unknown, or does not fit.
    """
    inputs = without_gradients(inputs)
    start = with_starts(form, state, global_starts(form.cascade, start, "finish"))
    elements = {one.name: one for expr in finished_exprs(form) for one in elements_of(expr)}
    absent = sorted(str(one) for name, one in elements.items() if name not in inputs)
    if absent:
        raise InputError(
            f"finish: the outputs hold {', '.join(absent)}, which a state does not. Pass them as tensors: "
            f'`finish(state, {{"{absent[0].split("[")[0]}": …}})`.'
        )
    scalars = [one.name for one in form.cascade.scalars()]
    check_tensor_names(inputs, (*form.cascade.inputs(), *scalars), "finish", "tensors")
    known = {name: inputs[name] for name in inputs if name in elements or name in scalars}
    inputs = {name: native(one) if name in elements else one for name, one in known.items()}
    check_scalars(form, state, inputs)
    piece = {**piece_sizes(form, state, {name: inputs[name] for name in elements}), **sizes}
    for axis, (first, stop) in summed_boxes(form, state, piece).items():
        piece[axis.name], start = stop - first, {axis: first} | start
    check_places(start, piece, finished_numbers(form), "finish")
    check_whole(form, state, piece, start)
    for name, element in elements.items():
        check_output_tensor(inputs[name], element, state.library, {**state.sizes, **piece})
        check_kind(inputs[name], element, name in form.cascade.value_tensors())
    return Request(inputs, piece, start)


def finished_numbers(form: FusedForm) -> frozenset[Axis]:
    """The axes whose places stand in arithmetic in what `finish` evaluates."""
    return frozenset[Axis]().union(*map(computed_axes, finished_exprs(form)))


@without_autocast()
def finish_by_arrays(form: FusedForm, state: State, request: Request, empty: str, *,
                     condition: bool = False) -> tuple[dict[str, Any], ...]:  # fmt: skip
    """The outputs of a state by the operations of its library, and their condition numbers if they are asked for.

    Outputs that carry a reduced axis are made for the piece of it that the request holds.
    """
    inputs, piece, start = request.inputs, request.piece, request.start
    scope, executor = unpacked_scope(form, state, inputs, empty, piece=piece, start=start)
    results = []
    with scope.ops.quiet():
        values = executor.finish_values(scope, unpack(form, state, scope))
        for of in (executor.outputs, executor.conditions) if condition else (executor.outputs,):
            kinds = {output.name: (output.axes, condition_dtype(state.result) if of == executor.conditions else
                                   output_dtype(output, form, state.result)) for output in form.outputs}  # fmt: skip
            chunks = results_by_block(form, executor, scope, partial(of, values=values), piece)
            results.append(assemble_chunks(chunks, kinds, scope, state.library))
    return tuple(results)


def condition_dtype(result: str) -> str:
    """float64 beside float64, float32 beside all others."""
    return result if result == "float64" else "float32"


def with_starts(form: FusedForm, state: State, start: Mapping[Axis, int]) -> dict[Axis, int]:
    """The places at which the rows of `finish` begin: those of the state. Places that are given must agree."""
    starts = dict(start)
    for axis in form.cascade.axes():
        first = state.starts.get(axis.name)
        if first is not None and starts.setdefault(axis, first) != first:
            raise InputError(f"finish: start={{{axis}: {starts[axis]}}}, and the state was made with start="
                             f"{{{axis}: {first}}}. Leave it out: rows are those of the state.")  # fmt: skip
    return starts


def check_whole(form: FusedForm, state: State, piece: Mapping[str, int], start: Mapping[Axis, int]) -> None:
    """Refuse a piece of a tensor that stands under two indices in the outputs, unless it is the whole."""
    edges = ((start.get(axis, 0), start.get(axis, 0) + piece.get(axis.name, 0)) for axis in form.cascade.reduced_axes)
    if state.places != (tuple(edges),) or any(start.get(axis, 0) for axis in form.cascade.reduced_axes):
        check_piece_indices(finished_exprs(form), form, "finish")


def check_scalars(form: FusedForm, state: State, inputs: Mapping[str, Any]) -> None:
    """Refuse other scalars than the state was made with; an empty state takes them from the call, and needs them."""
    for scalar in form.cascade.scalars():
        name, value = scalar.name, state.scalars.get(scalar.name)
        if value is not None and name in inputs and float(inputs[name]) != value:
            raise InputError(f"finish: scalar `{name}` is {inputs[name]}, and the state was made with {value}. Leave "
                             "it out, or make the state with the other.")  # fmt: skip
        is_used = any(scalar in expr.free_symbols for expr in finished_exprs(form))
        if value is None and is_used and name not in inputs:
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


def piece_sizes(form: FusedForm, state: State, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of axes that the tensors of `finish` have and a state has not: those of the piece."""
    exprs = finished_exprs(form)
    sizes: dict[str, int] = {}
    for element in sorted({one for expr in exprs for one in elements_of(expr)}, key=str):
        for index, size in zip(element.indices, inputs[element.name].shape, strict=False):
            if isinstance(index, Axis) and (index.name in reduced_names(form) or index.name not in state.sizes):
                sizes.setdefault(index.name, int(size))
    return sizes


def summed_boxes(form: FusedForm, state: State, piece: Mapping[str, int]) -> dict[Axis, tuple[int, int]]:
    """(first, stop) of the reduced axes that outputs sum over and no tensor of `finish` has: those of the state."""
    axes = {axis for one in finished_producers(form) for axis in one.cascade.axes()} & set(form.cascade.reduced_axes)
    absent = sorted((axis for axis in axes if axis.name not in piece), key=str)
    if absent and (state.places is None or len(state.places) > 1):
        raise InputError(
            f"finish: an output sums over axis {absent[0]} itself, and the state does not know which places of it it "
            "holds: its pieces do not adjoin. Merge pieces that adjoin."
        )
    boxes = dict(zip(form.cascade.reduced_axes, state.places[0], strict=True)) if state.places else {}
    return {axis: boxes.get(axis, (0, 0)) for axis in absent}


def check_output_tensor(array: Any, element: Element, library: str, sizes: Mapping[str, int]) -> None:
    """Refuse a tensor that does not fit an output's own element: one of another library, rank or size."""
    name = element.name
    if library_name(array) != library:
        raise InputError(f"finish: tensor `{name}` is a {type(array).__name__}, and the state is of {library}.")
    shape = [sizes.get(str(index), size) for index, size in zip(element.indices, array.shape, strict=False)]
    if len(array.shape) != len(element.indices) or list(array.shape) != shape:
        raise InputError(f"finish: tensor `{name}` has shape {tuple(array.shape)}; `{element}` needs {tuple(shape)}.")


def check_kind(array: Any, element: Element, is_value: bool) -> None:
    """Refuse a gradient, and integers or booleans where they stand in arithmetic."""
    if getattr(array, "requires_grad", False) or (is_value and "float" not in str(array.dtype)):
        raise InputError(f"finish: tensor `{element.name}` should hold floating-point numbers without a gradient.")
