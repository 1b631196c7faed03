"""The meaning of a program on arrays, statement after statement: elements in float64, then in their tensor's dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sympy import Basic, Expr, Symbol, sympify

from redalg.definition.evaluate import Evaluator
from redalg.definition.outputs import array_library, whole_output
from redalg.errors import GraphError
from redalg.graphs.program import External, TensorExpression, TensorProgram, TensorType

Framework = Callable[[External, Sequence[Any]], Sequence[Any]]


def interpret_program(
    program: TensorProgram, inputs: Mapping[str, Any], framework: Framework | None = None
) -> dict[str, Any]:
    """The outputs of a program, by name.

    Args:
        program: the program.
        inputs: arrays by name, all of NumPy or all of torch.
        framework: what computes external statements, from the arrays that they read; its results in order.

    Raises:
        GraphError: an input is missing or of another shape; a statement is external, and no framework is given.
    """
    symbols = symbols_of(program.inputs, inputs)
    known: dict[str, Any] = {name: inputs[name] for name in program.inputs}
    for statement in program.statements:
        if isinstance(statement, TensorExpression):
            known[statement.name] = value_of(statement, known, symbols)
        elif framework is None:
            raise GraphError(
                f"`{', '.join(statement.names)}` is computed by {statement.operator}, which is no tensor expression "
                f"({statement.reason}). Give `framework`, a function that computes it."
            )
        else:
            made = framework(statement, [known[name] for name in statement.reads])
            known |= dict(zip(statement.names, made, strict=True))
    return {name: known[name] for name in program.outputs}


def symbols_of(types: Mapping[str, TensorType], inputs: Mapping[str, Any]) -> dict[Basic, Expr]:
    """The sizes that the symbols of shapes stand for; `GraphError` where arrays do not fit them."""
    symbols = dict[Basic, Expr]()
    for name, each in types.items():
        if name not in inputs:
            raise GraphError(f"input `{name}` is not given. The program reads {', '.join(types)}: pass each.")
        for size, length in zip(each.shape, inputs[name].shape, strict=False):  # ranks are compared below
            if isinstance(size, Symbol):
                symbols.setdefault(size, sympify(length))
    for name, each in types.items():
        wanted = tuple(size.xreplace(symbols) for size in each.shape)
        if wanted != tuple(map(sympify, inputs[name].shape)):
            raise GraphError(f"input `{name}` has shape {tuple(inputs[name].shape)}, where the program has {wanted}.")
    return symbols


def value_of(expression: TensorExpression, known: Mapping[str, Any], symbols: Mapping[Basic, Expr]) -> Any:
    """The tensor of an expression."""
    sizes = {name: int(size.xreplace(dict(symbols))) for name, size in expression.sizes().items()}
    tensors = {name: known[name] for name in expression.reads}
    library = array_library(tensors or known)
    at = Evaluator(library, tuple(sorted(sizes)), {name: (0, size) for name, size in sizes.items()}, sizes, tensors, {})
    with np.errstate(all="ignore"):
        found = whole_output(at, expression.term.xreplace(dict(symbols)), expression.axes)
    return library.copy(found, expression.type.dtype)
