"""A call within a graph that PyTorch traces: one operator (`operators.py`), told by the text of its function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import assume_constant_result

from redalg.errors import GradientError, InputError
from redalg.gradient.operators import Call
from redalg.runtime.bind.autocast import cast_as_autocast, multiplied_names
from redalg.runtime.bind.functions import FUNCTIONS, text_of
from redalg.runtime.bind.inputs import words_on_scalars
from redalg.runtime.bind.private import is_in_forward_mode

FIELD, NAME = ";", ","
TANGENTS = ("`torch.func.jvp`, `jacfwd`, `hessian` and `forward_ad` do not reach a call within `torch.compile`: "
            "PyTorch drops the tangents of an operator. Take them outside of the graph.")  # fmt: skip


def traced_call(
    fused: Any, positional: Sequence[Any], tensors: Mapping[str, Any], sizes: Mapping[Any, Any],
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The outputs of a call that is traced: Dynamo follows these lines, and no other of redalg."""
    if options["plan"] is not None or options["memory"] is not None or options["check"]:
        raise InputError("plan=, memory= and check= are no options of a call within `torch.compile`. Leave them out, "
                         "or call outside of the graph.")  # fmt: skip
    if is_in_forward_mode():
        raise GradientError(TANGENTS)
    given = {**dict(zip(fused.inputs, positional, strict=False)), **tensors}
    names = [name for name in given if isinstance(given[name], Tensor)]
    scalars = [name for name in given if not isinstance(given[name], Tensor)]
    required = [name for name in names if given[name].requires_grad] if torch.is_grad_enabled() else []
    if refusal := refusal_of_scalars(fused.number, NAME.join(required)):
        raise GradientError(refusal)
    in_products = names_in_products(fused.number).split(NAME)
    arrays = [cast_as_autocast(given[name]) if name in in_products else given[name] for name in names]
    training = len(required) > 0
    lists = FIELD.join([NAME.join(one) for one in (names, scalars, [str(axis) for axis in sizes])])
    choices = FIELD.join([options["empty"], options["precision"], options["backend"] or ""])
    text = call_text(fused.number, lists, choices, training)
    made = torch.ops.redalg.run(text, arrays, [float(given[name]) for name in scalars], list(sizes.values()))
    return made[0] if fused.single else fused.result(*made[: len(fused.result._fields)])


def call_in_trace(
    fused: Any, positional: Sequence[Any], tensors: Mapping[str, Any], sizes: Mapping[Any, Any],
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The outputs of a call that `torch.jit.trace` records: one operator, for any sizes, with a backward."""
    with torch.no_grad():
        return traced_call(fused, positional, tensors, sizes, options)


@assume_constant_result
def call_text(number: str, lists: str, choices: str, training: bool) -> str:
    """The text of a call, for a tracer a constant: nothing of SymPy is traced.

    Args:
        number: of the function.
        lists: names of tensors, scalars and axes.
        choices: the options `empty`, `precision` and `backend`.
        training: if row values are made.
    """
    names, scalars, sizes = (tuple(one.split(NAME)) if one else () for one in lists.split(FIELD))
    empty, precision, backend = choices.split(FIELD)
    sizes = tuple(FUNCTIONS[number].cascade.names_of_axis(name)[0] for name in sizes)
    return Call(text_of(number), names, scalars, sizes, empty, precision, backend, training).text


@assume_constant_result
def refusal_of_scalars(number: str, required: str) -> str:
    """The refusal of gradients by run-time scalars, among names joined by commas; empty if none is a scalar."""
    scalars = {one.name for one in FUNCTIONS[number].passes.scalars}.intersection(required.split(NAME))
    return words_on_scalars(sorted(scalars)) if scalars else ""


@assume_constant_result
def names_in_products(number: str) -> str:
    """The names of the tensors that autocast casts, joined by commas."""
    return NAME.join(sorted(multiplied_names(FUNCTIONS[number])))
