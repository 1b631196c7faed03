"""A straight-line program: lines that define values in order, each once, and the values that are its results.

    Assign    value := expression, read at a precision
    Fold      value := ⊕ over axes of an element, or Σ of a product of factors (a contraction: a matrix product)
    Gather    values := ⊕ over axes of elements of several components
    Join      values := a ⊕ b of two such elements, a before b

A line says nothing of arrays, tiles, lanes or kernels. Where it runs follows from the axes that its values carry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import final

from sympy import Expr, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Value
from redalg.expression.contents import free_axes, values_of
from redalg.incremental.form import Structure


@final
class Precision(Enum):
    """The type in which the value of an expression is kept."""

    COMPUTE = "compute"
    """The dtype of arithmetic."""
    EXACT_PLACES = "exact places"
    """The dtype of arithmetic; float64 where the expression holds places too far for it."""
    DOUBLE = "double"
    """float64."""
    OWN = "own"
    """What the expression is: an integer or a truth value stays one."""


class Let(ABC):
    """One line of a program."""

    @property
    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """The values that the line defines."""

    @property
    @abstractmethod
    def exprs(self) -> tuple[Basic, ...]:
        """The expressions that it reads."""

    @property
    def over(self) -> tuple[Axis, ...]:
        """The axes that it reduces over."""
        return ()

    @cached_property
    def reads(self) -> frozenset[Value]:
        """The values that it reads."""
        return frozenset[Value]().union(*map(values_of, self.exprs))


Move = tuple[Expr, Expr, Expr]
"""(q, u, c) of a factor exp(q·(u − c))."""


@final
@dataclass(frozen=True)
class Assign(Let):
    """value := expr, kept at a precision; `moves` tells the factors of an expr that is Π exp(q·(u − c))."""

    value: Value
    expr: Expr
    precision: Precision = Precision.COMPUTE
    moves: tuple[Move, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def exprs(self) -> tuple[Basic, ...]:
        return (self.expr,)

    def __str__(self) -> str:
        return f"{_text(self.value)} := {self.expr}"


@final
@dataclass(frozen=True)
class Folding:
    """kind over axes of Π factors.

    Attributes:
        kind: `sum`, `prod`, `max` or `min` of numbers, `count` or `any` of a condition.
        factors: what is folded; several are summed as a contraction.
        axes: those that the result does not carry.
        precision: that at which the factors are read.
        identity: the result if one of the axes has no elements.
        of: the accumulator whose product of two factors it is, if a kernel places it.
    """

    kind: str
    factors: tuple[Basic, ...]
    axes: tuple[Axis, ...]
    precision: Precision = Precision.COMPUTE
    identity: Expr = S.Zero
    of: Value | None = None


@final
@dataclass(frozen=True)
class Fold(Let):
    """value := a folding."""

    value: Value
    folding: Folding

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def exprs(self) -> tuple[Basic, ...]:
        return self.folding.factors

    @property
    def over(self) -> tuple[Axis, ...]:
        return self.folding.axes

    def __str__(self) -> str:
        over, factors = ", ".join(map(str, self.over)), " * ".join(f"({one})" for one in self.exprs)
        return f"{_text(self.value)} := {self.folding.kind} over {over} of {factors}"


@final
@dataclass(frozen=True)
class Gather(Let):
    """values := ⊕ over axes of elements, in the order of the axes; `parts` are an element's components.

    `lifted` says that an element stands for one place, as a monoid's `lift` gives it: a list holds one member. Then
    `axis` is the first of the axes; else the axis along which the elements' own places lie.
    """

    structure: Structure
    symbols: tuple[Value, ...]
    parts: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    axis: Axis
    lifted: bool = True

    @property
    def values(self) -> tuple[Value, ...]:
        return self.symbols

    @property
    def exprs(self) -> tuple[Basic, ...]:
        return self.parts

    @property
    def over(self) -> tuple[Axis, ...]:
        return self.axes

    def __str__(self) -> str:
        symbols, over, parts = map(", ".join, (map(_text, self.symbols), map(str, self.axes), map(str, self.parts)))
        return f"{symbols} := {self.structure.monoid} over {over} of ({parts})"


@final
@dataclass(frozen=True)
class Join(Let):
    """values := a ⊕ b, a before b along an axis that neither carries."""

    structure: Structure
    symbols: tuple[Value, ...]
    first: tuple[Value, ...]
    second: tuple[Value, ...]
    axis: Axis

    @property
    def values(self) -> tuple[Value, ...]:
        return self.symbols

    @property
    def exprs(self) -> tuple[Basic, ...]:
        return (*self.first, *self.second)

    def __str__(self) -> str:
        first, second = (f"({', '.join(map(str, side))})" for side in (self.first, self.second))
        return f"{', '.join(map(_text, self.symbols))} := {first} {self.structure.monoid} {second}"


@final
@dataclass(frozen=True)
class Program:
    """Lines in order, and what they give.

    Attributes:
        name: what the program does, for people.
        inputs: the values that a caller gives.
        lets: the lines.
        results: what is asked for -> the value that holds it at the end.
        domain: the elements at which a computed index must lie within its tensor.
    """

    name: str
    inputs: tuple[Value, ...]
    lets: tuple[Let, ...]
    results: Mapping[Value, Value]
    domain: Boolean = S.true

    def __str__(self) -> str:
        lines = [f"{self.name}({', '.join(map(_text, self.inputs))})"]
        lines += [f"  {let}" for let in self.lets]
        return "\n".join([*lines, *(f"  -> {slot} = {value}" for slot, value in self.results.items())])

    def verify(self) -> None:
        """Check that every value is defined once and before it is read, and that no axis that is reduced stays."""
        known = set(self.inputs)
        if len(known) != len(self.inputs):
            raise AssertionError(f"{self.name}: an input stands twice in {self.inputs}")
        for let in self.lets:
            unknown = let.reads - known
            if unknown:
                raise AssertionError(f"{self.name}: `{let}` reads {sorted(map(str, unknown))} before they are defined")
            again = known & set(let.values)
            if again:
                raise AssertionError(f"{self.name}: `{let}` defines {sorted(map(str, again))} a second time")
            for value in let.values:
                _check_axes(self.name, let, value)
            known |= set(let.values)
        missing = {*self.results.values(), *values_of(self.domain)} - known
        if missing:
            raise AssertionError(f"{self.name}: no line defines the results {sorted(map(str, missing))}")

    def only(self, wanted: Iterable[Value]) -> Program:
        """The program without the results that are not wanted, and without the lines that these alone need."""
        return replace(self, results={value: self.results[value] for value in wanted}).prune()

    def with_inputs(self, values: Collection[Value]) -> Program:
        """The program of which a caller gives values that lines define, without the lines that these alone need."""
        inputs, lets = (*self.inputs, *values), tuple(let for let in self.lets if not {*let.values} & {*values})
        return replace(self, inputs=inputs, lets=lets).prune()

    def prune(self) -> Program:
        """The program without the lines that no result needs."""
        needed, kept = {*self.results.values(), *values_of(self.domain)}, list[Let]()
        for let in reversed(self.lets):
            if needed & set(let.values):
                needed |= let.reads
                kept.append(let)
        inputs = tuple(value for value in self.inputs if value in needed)
        return Program(self.name, inputs, tuple(reversed(kept)), self.results, self.domain)


def _check_axes(program: str, let: Let, value: Value) -> None:
    """Refuse a value that carries an axis which its line reduces over, or lacks one that it depends on."""
    carried = set(value.indices)
    read = frozenset[Axis]().union(*map(free_axes, let.exprs))
    if carried & set(let.over) or (isinstance(let, Assign | Fold) and not read - set(let.over) <= carried):
        raise AssertionError(f"{program}: `{let}` defines {_text(value)}, and depends on {sorted(map(str, read))}")


def _text(value: Value) -> str:
    """A value with its axes."""
    return f"{value}[{', '.join(map(str, value.indices))}]" if value.indices else str(value)
