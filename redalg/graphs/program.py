"""A program of tensor expressions: every tensor by its definition, in order.

    program    = input …; statement …; outputs
    statement  = out[i0, i1, …] = term                 for every place of out (a tensor expression: SOUFFLE, section 4)
               | outs = operator(tensors)              what the framework computes, with the reason why

A term reads elements of earlier tensors at any indices, which may be computed, and reduces over axes of its own. A size
is an integer, or an expression in the symbols of the inputs' shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

from sympy import Expr
from sympy.core.basic import Basic

from redalg.errors import GraphError
from redalg.expression import Axis, Reduce
from redalg.expression.contents import elements_of, free_axes, of_kind

Shape = tuple[Expr, ...]


@final
@dataclass(frozen=True)
class TensorType:
    """The sizes of a tensor's dimensions, and its dtype by PyTorch's name (`float32`, `int64`, `bool`)."""

    shape: Shape
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@final
@dataclass(frozen=True)
class TensorExpression:
    """A tensor by its element at every place.

    Attributes:
        name: of the tensor.
        type: its shape and dtype; elements are rounded to it.
        axes: one for each dimension, in order.
        term: the element at the place that the axes say: a number, or a truth value where the dtype is `bool`.
        lengths: axis that the term reduces over -> its extent.
        origin: the operator that it was, and the line of the user's program, if they are known.
    """

    name: str
    type: TensorType
    axes: tuple[Axis, ...]
    term: Basic
    lengths: tuple[tuple[Axis, Expr], ...] = ()
    origin: str = ""

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The tensors that the term reads, in order of their names."""
        return tuple(sorted({one.name for one in elements_of(self.term)}))

    @cached_property
    def results(self) -> Mapping[str, TensorType]:
        """The tensor, by its name."""
        return {self.name: self.type}

    @property
    def relies_on_many(self) -> bool:
        """Tell if an element relies on many elements of what it reads: if the term reduces (SOUFFLE, section 5.1)."""
        return bool(of_kind(Reduce, self.term))

    def sizes(self) -> dict[str, Expr]:
        """The extent of every axis, by its name."""
        own = zip(self.axes, self.type.shape, strict=True)
        return {axis.name: size for axis, size in (*own, *self.lengths)}

    def __str__(self) -> str:
        place = f"[{', '.join(axis.name for axis in self.axes)}]" if self.axes else ""
        over = "".join(f", {axis} < {size}" for axis, size in self.lengths)
        return f"{self.name}: {self.type}{over}\n    {self.name}{place} = {self.term}"


@final
@dataclass(frozen=True)
class External:
    """Tensors that the framework computes.

    Attributes:
        names, types: of the results.
        reads: the tensors that the operator reads.
        operator: its name.
        reason: why it is no tensor expression, in a few words.
        origin: as of a tensor expression.
    """

    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    reads: tuple[str, ...]
    operator: str
    reason: str
    origin: str = ""

    @cached_property
    def results(self) -> Mapping[str, TensorType]:
        """The results, by their names."""
        return dict(zip(self.names, self.types, strict=True))

    def __str__(self) -> str:
        made = ", ".join(f"{name}: {each}" for name, each in self.results.items())
        return f"{made}\n    by {self.operator}({', '.join(self.reads)}): {self.reason}"


Statement = TensorExpression | External


@final
@dataclass(frozen=True)
class TensorProgram:
    """Inputs, statements in an order in which they can be computed, and the outputs by name.

    A program is checked where it is made: see `verify`.
    """

    inputs: Mapping[str, TensorType]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        self.verify()

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """The type of every tensor, by its name."""
        return dict(self.inputs) | {name: each for one in self.statements for name, each in one.results.items()}

    @cached_property
    def definitions(self) -> Mapping[str, TensorExpression]:
        """The tensor expressions, by their names."""
        return {one.name: one for one in self.expressions()}

    def readers(self) -> dict[str, list[Statement]]:
        """The statements that read each tensor, in order."""
        found = dict[str, list[Statement]]({name: [] for name in self.types})
        for statement in self.statements:
            for name in statement.reads:
                found[name].append(statement)
        return found

    def expressions(self) -> Iterator[TensorExpression]:
        """Yield the statements that are tensor expressions."""
        yield from (one for one in self.statements if isinstance(one, TensorExpression))

    def externals(self) -> Iterator[External]:
        """Yield the statements that the framework computes."""
        yield from (one for one in self.statements if isinstance(one, External))

    def live(self) -> TensorProgram:
        """The program without the tensor expressions that nothing reads and that are no output."""
        wanted, kept = {*self.outputs}, list[Statement]()
        for statement in reversed(self.statements):
            if isinstance(statement, External) or wanted & {*statement.results}:
                kept.append(statement)
                wanted |= {*statement.reads}
        return TensorProgram(self.inputs, tuple(reversed(kept)), self.outputs)

    def verify(self) -> None:
        """Raise `GraphError` if a tensor is defined twice, read before it is, or at too few indices, or if an axis of a
        term is neither a dimension's nor reduced."""
        types = dict(self.inputs)
        for statement in self.statements:
            for name in statement.reads:
                if name not in types:
                    raise GraphError(
                        f"tensor `{name}` is read by `{', '.join(statement.results)}`, and nothing before it defines "
                        "`" + name + "`. Order the statements so that each follows what it reads."
                    )
            if isinstance(statement, TensorExpression):
                verify_expression(statement, types)
            for name, each in statement.results.items():
                if name in types:
                    raise GraphError(f"tensor `{name}` is defined twice. Give every result a name of its own.")
                types[name] = each
        for name in self.outputs:
            if name not in types:
                raise GraphError(f"output `{name}` is defined by no statement, and is no input.")

    def __str__(self) -> str:
        head = [f"input {name}: {each}" for name, each in self.inputs.items()]
        return "\n".join([*head, *map(str, self.statements), f"output {', '.join(self.outputs)}"])


def verify_expression(expression: TensorExpression, types: Mapping[str, TensorType]) -> None:
    """Raise `GraphError` if the axes of an expression do not fit its shape, its term or the tensors that it reads."""
    name = expression.name
    if len(expression.axes) != len(expression.type.shape):
        raise GraphError(
            f"`{name}` has {len(expression.axes)} axes and {len(expression.type.shape)} dimensions. Name one axis for "
            "each dimension."
        )
    if free := free_axes(expression.term) - {*expression.axes}:
        axes = ", ".join(sorted(axis.name for axis in free))
        raise GraphError(f"`{name}`: axes {axes} of its term are neither its dimensions' nor reduced over.")
    for element in elements_of(expression.term):
        rank = len(types[element.name].shape)
        if len(element.indices) != rank:
            raise GraphError(
                f"`{name}` reads `{element}`, and `{element.name}` has {rank} dimensions: index each once."
            )
    known = expression.sizes()
    for reduction in of_kind(Reduce, expression.term):
        for axis in reduction.bound:
            if axis.name not in known:
                raise GraphError(f"`{name}` reduces over `{axis}`, whose length nothing says. Put it into `lengths`.")
