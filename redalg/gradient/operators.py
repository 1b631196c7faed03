"""The operators of calls in a graph that PyTorch traces, which no tracer looks into.

    redalg::run(call, tensors, scalars, sizes) → outputs, and row values beside them where a gradient is asked for
    redalg::gradients(call, tensors, scalars, sizes) → the gradients of some tensors: its backward
    redalg::compute(call, tensors, scalars, sizes) → as `run`, in a graph whose backward is derived already: PyTorch's
                                                     autograd is not asked, which takes it as long as a call

`call` is the text of a `Call`: the function's definition, and the names of what is passed. A process that has only the
graph derives the function of it. The fakes know the shapes and dtypes of what is returned, of symbolic sizes too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor

from redalg.decompose.cascade import Cascade
from redalg.decompose.verdict.passes import prune_cascade
from redalg.errors import ExpressionError
from redalg.expression.portable import as_literal, compact_json, of_literal, parse_json
from redalg.gradient.again import outputs_of
from redalg.gradient.backward import Backward
from redalg.gradient.first_only import first_only
from redalg.gradient.recorded import backward_of
from redalg.gradient.stage import lengths_of
from redalg.gradient.within_operator import within_operator
from redalg.runtime.bind.arrays import output_dtypes
from redalg.runtime.bind.autocast import without_autocast
from redalg.runtime.bind.functions import MOST_TEXTS, function_of_text
from redalg.runtime.bind.inputs import array_dtype, dtypes_of_floats
from redalg.runtime.bind.operators import LIBRARY, define_operator, define_operators


@final
@dataclass(frozen=True)
class Call:
    """The function, names and options that an operator is told beside tensors and numbers.

    Attributes:
        function: the text of its definition.
        names, scalars, sizes: of what is passed, in order.
        empty, precision, backend: options of the call; a backend of "" is chosen.
        training: true if row values are made for a gradient.
        cotangents, wanted: of a backward: the outputs that have cotangents, and the tensors whose gradients are made.
    """

    function: str
    names: tuple[str, ...]
    scalars: tuple[str, ...]
    sizes: tuple[str, ...]
    empty: str
    precision: str
    backend: str
    training: bool
    cotangents: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Its fields as JSON, written as a literal: Inductor puts it between double quotes into C++."""
        others = compact_json({name: one for name, one in asdict(self).items() if name != "function"})
        return as_literal(f'{{"function":{self.function},{others[1:]}')

    def backward(self, tensors: Mapping[str, Any]) -> Backward:
        """The backward of the function, for tensors of their dtypes."""
        return backward_of(function_of_text(self.function)).for_tensors(tensors)

    def forward(self, tensors: Mapping[str, Any]) -> Any:
        """The function that runs: with row values beside its outputs if it is training."""
        return self.backward(tensors).forward if self.training else function_of_text(self.function)


@lru_cache(4 * MOST_TEXTS)
def read_call(text: str) -> Call:
    """The call of a text, which may be plain JSON.

    Raises:
        ExpressionError: it is none.
    """
    found = parse_json(of_literal(text), "redalg::run")
    names = [one.name for one in fields(Call)]
    kinds = (dict, list, list, list, str, str, str, bool, list, list)
    if not isinstance(found, dict) or [*found] != names or [*map(type, found.values())] != [*kinds]:
        listed = ", ".join(found) if isinstance(found, dict) else repr(found)
        raise ExpressionError(f"redalg::run: the text of the call has {listed}, and this version of redalg reads "
                              f"{', '.join(names)}. Export the graph anew, with this version.")  # fmt: skip
    values: dict[str, Any] = {**found, "function": compact_json(found["function"])}
    values |= {name: tuple(map(str, one)) for name, one in values.items() if isinstance(one, list)}
    return Call(**values)


def _arguments(call: Call, scalars: Sequence[float], sizes: Sequence[int]) -> dict[str, Any]:
    return {**dict(zip(call.scalars, scalars, strict=True)), "sizes": dict(zip(call.sizes, sizes, strict=True))}


def run_function(call: str, tensors: list[Tensor], scalars: list[float], sizes: list[int]) -> list[Tensor]:
    """The outputs of a function, and its row values if it is training."""
    told = read_call(call)
    given = dict(zip(told.names, tensors, strict=True))
    numbers = _arguments(told, scalars, sizes)
    lengths = numbers.pop("sizes")
    with torch.no_grad(), without_autocast(), within_operator():
        made = outputs_of(told.forward(given), {**given, **numbers}, lengths, told.backend or None, empty=told.empty,
                          precision=told.precision)  # fmt: skip
    return [one.contiguous() for one in made]


def _fake_outputs(call: str, tensors: list[Tensor], scalars: list[float], sizes: list[int]) -> list[Tensor]:
    told = read_call(call)
    given = dict(zip(told.names, tensors, strict=True))
    function = told.forward(given)
    lengths: dict[str, Any] = {axis.name: axis.size for axis in function.cascade.axes() if axis.size is not None}
    lengths |= lengths_of(function.cascade, given) | _arguments(told, scalars, sizes)["sizes"]
    dtypes = output_dtypes(function, dtypes_of_floats({name: array_dtype(one) for name, one in given.items()}))
    outputs = function.cascade.outputs
    shapes = {output.name: [lengths[axis.name] for axis in output.axes] for output in outputs}
    return [tensors[0].new_empty(shape, dtype=getattr(torch, dtypes[name])) for name, shape in shapes.items()]


def gradients(call: str, tensors: list[Tensor], scalars: list[float], sizes: list[int]) -> list[Tensor]:
    """The gradients of the wanted tensors; after a call's tensors come what it made, and cotangents."""
    told = read_call(call)
    own, cotangents = len(told.names), len(tensors) - len(told.cotangents)
    given = dict(zip(told.names, tensors[:own], strict=True))
    backward, arguments = told.backward(given), _arguments(told, scalars, sizes)
    made = dict(zip((*backward.outputs, *backward.saved), tensors[own:cotangents], strict=True))
    lengths = arguments.pop("sizes")
    with torch.no_grad(), without_autocast(), within_operator():
        found = backward.from_saved(dict(zip(told.cotangents, tensors[cotangents:], strict=True)), made,
                                    given | arguments, lengths, told.wanted)  # fmt: skip
    return [found[name].to(given[name].dtype).contiguous() if name in found else torch.zeros_like(given[name])
            for name in told.wanted]  # fmt: skip


def _fake_gradients(call: str, tensors: list[Tensor], *_: Any) -> list[Tensor]:
    told = read_call(call)
    given = dict(zip(told.names, tensors, strict=False))
    return [given[name].new_empty(given[name].shape) for name in told.wanted]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    call, tensors, ctx.scalars, ctx.sizes = inputs
    ctx.call = read_call(call)
    given = dict(zip(ctx.call.names, tensors, strict=True))
    ctx.wanted = tuple(name for name, one in given.items() if one.requires_grad)
    sources = tensors_in_outputs(ctx.call.forward(given).cascade)
    ctx.mark_non_differentiable(*(one for one, own in zip(output, sources, strict=True) if own.isdisjoint(ctx.wanted)))
    ctx.save_for_backward(*tensors, *output)


@lru_cache(4 * MOST_TEXTS)
def tensors_in_outputs(cascade: Cascade) -> list[frozenset[str]]:
    """The tensors in the arithmetic of each output of a cascade: by no other it has a gradient."""
    return [prune_cascade(replace(cascade, outputs=(one,))).value_tensors() for one in cascade.outputs]


@lru_cache(4 * MOST_TEXTS)
def text_of_backward(call: Call, cotangents: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """The text of a call's backward: of the outputs that have cotangents, for some tensors."""
    return replace(call, cotangents=cotangents, wanted=wanted).text


def _hand_back(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    saved, call = [*ctx.saved_tensors], ctx.call
    given = dict(zip(call.names, saved, strict=False))
    if not call.training:  # as in a graph that was made for inference: row values are computed now
        call = replace(call, training=True)
        saved = [*given.values(), *torch.ops.redalg.run(call.text, [*given.values()], ctx.scalars, ctx.sizes)]
    backward = call.backward(given)
    by_name = {name: g for name, g in zip(backward.outputs, grads, strict=False) if g is not None}
    text = text_of_backward(call, tuple(by_name), ctx.wanted)
    found = torch.ops.redalg.gradients(text, [*saved, *by_name.values()], ctx.scalars, ctx.sizes)
    by_tensor = dict(zip(ctx.wanted, found, strict=True))
    if backward.once and torch.is_grad_enabled():
        by_tensor = first_only(by_tensor, [*saved, *by_name.values()])
    nothing: list[Any] = [
        None if numbers else [] for numbers in (ctx.scalars, ctx.sizes)
    ]  # PyTorch's structure of them
    return None, [by_tensor.get(name) for name in call.names], *nothing


PARAMETERS = "str call, Tensor[] tensors, float[] scalars, SymInt[] sizes"
define_operator("run", PARAMETERS, run_function, _fake_outputs)
define_operators("compute", PARAMETERS, run_function, _fake_outputs)
define_operators("gradients", PARAMETERS, gradients, _fake_gradients)
torch.library.register_autograd("redalg::run", _hand_back, setup_context=_keep, lib=LIBRARY)
