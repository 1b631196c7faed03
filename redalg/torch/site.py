"""One call of an operator, as its rule sees it: arguments by name, elements of tensors at places, numbers.

A rule knows no framework: tensors are `Operand`s, sizes and numbers are SymPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from sympy import Expr, Float, Integer, Ne, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Where
from redalg.expression.tensor import Tensor
from redalg.graphs.program import TensorType
from redalg.graphs.views import broadcast, from_end

EXACT = 2**53
"""Whole numbers below it are themselves in float64."""


@final
class Unwritten(Exception):  # noqa: N818 - no error: the operator stays with the framework
    """An operator is no tensor expression; the message says why, in a few words."""


@final
@dataclass(frozen=True)
class Operand:
    """A tensor that a call reads.

    Attributes:
        name, type: its own.
        is_whole: true if its numbers are known to be whole.
        distinct: the dimension along which no number of its stands twice, if one is known.
    """

    name: str
    type: TensorType
    is_whole: bool = False
    distinct: int | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.type.shape)


@final
@dataclass(frozen=True)
class Site:
    """A call.

    Attributes:
        operator: its name, without the overload.
        arguments: the schema's names -> operands, numbers, lists of them, None.
        results: the types of the tensors that it makes.
        names: those of the tensors.
        readers: number of one of several results -> the operators that read it, "output" for the caller.
        lengths: axes that terms reduce over, with their extents; `bound` adds to them.
        counts: dimension of the results that numbers what a reduction selects -> its size; `numbering_axis` adds to
            them.
    """

    operator: str
    arguments: Mapping[str, Any]
    results: tuple[TensorType, ...]
    names: tuple[str, ...]
    readers: Mapping[int, frozenset[str]] = field(default_factory=dict)
    lengths: dict[Axis, Expr] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """An argument by its name; None if the call has none of that name."""
        return self.arguments.get(name)

    def axes(self, result: int = 0) -> tuple[Axis, ...]:
        """The axes of a result: i0, i1, …"""
        return tuple(Axis(f"i{one}", self.counts.get(one)) for one in range(len(self.results[result].shape)))

    def result(self, number: int) -> Expr:
        """The element of a result at its axes: a later one of the same call may be computed from it."""
        element: Expr = Tensor(self.names[number])[self.axes(number)]
        return element

    def bound(self, size: Expr) -> Axis:
        """A new axis for terms to reduce over, of an extent."""
        axis = Axis(f"r{len(self.lengths)}")
        self.lengths[axis] = size
        return axis

    def numbering_axis(self, dim: int) -> Axis:
        """The axis of a dimension of the results, which numbers the elements that a reduction selects."""
        self.counts[dim] = int(self.results[0].shape[dim])
        return self.axes()[dim]

    # ---- elements ----------------------------------------------------------------------------------------------------

    def read(self, argument: Any, place: Sequence[Expr] | None = None) -> Basic:
        """A number, or a tensor's element at a place; if none is given, at the first result's, by broadcasting.

        An element of a tensor of truth values is a condition.
        """
        if not isinstance(argument, Operand):
            return number(argument)
        place = broadcast(argument.type.shape, self.axes()) if place is None else place
        element = Tensor(argument.name)[tuple(place)]
        return Ne(element, 0) if argument.type.dtype == "bool" else element

    def value(self, argument: Any, place: Sequence[Expr] | None = None) -> Expr:
        """As `read`; 1 and 0 for a condition."""
        return to_number(self.read(argument, place))

    def truth(self, argument: Any, place: Sequence[Expr] | None = None) -> Boolean:
        """As `read`; a number is true unless it is 0."""
        return to_truth(self.read(argument, place))

    # ---- dimensions --------------------------------------------------------------------------------------------------

    def dimension(self, operand: Operand, name: str = "dim", default: int = 0) -> int:
        """The dimension of an operand that an argument names; of a call that leaves it out, `default`."""
        given = default if self[name] is None else int(self[name])
        return given % max(operand.rank, 1)

    def dimensions(self, operand: Operand, name: str = "dim") -> tuple[int, ...]:
        """The dimensions that an argument lists; all of them if it lists none."""
        given = self[name]
        given = [] if given is None else [given] if isinstance(given, int | Integer) else given
        return tuple(sorted({int(one) % operand.rank for one in given})) or tuple(range(operand.rank))

    def across(self, operand: Operand, dims: Sequence[int], *, result: int = 0) -> tuple[list[Expr], list[Axis]]:
        """The place of an operand's elements that a result's element reduces, and the axes that are reduced over.

        The result has the other dimensions, and the reduced ones with one element, or not at all.
        """
        kept = iter(self.axes(result))
        stay = len(self.results[result].shape) == operand.rank
        place, over = list[Expr](), list[Axis]()
        for dim, size in enumerate(operand.type.shape):
            if dim in dims:
                place.append(axis := self.bound(size))
                over.append(axis)
                if stay:
                    next(kept)
            else:
                place.append(next(kept))
        return place, over

    def start(self, name: str, size: Expr, default: int | Expr) -> Expr:
        """A bound of a slice along a dimension of a size: counted from its end if negative, and within it."""
        given = default if self[name] is None else self[name]
        index = from_end(given, size)
        if index.is_Integer and size.is_Integer:
            return Integer(max(0, min(int(index), int(size))))
        return size if index.is_Integer and int(index) >= EXACT else index


Rule = Callable[[Site], Basic | tuple[Basic, ...]]
"""Call -> the element of its result at its axes, or of each of its results."""


def rules_by_name(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Operator -> its rule, of rules by the names that share one, apart by blanks."""
    return {name: rule for names, rule in rules.items() for name in names.split()}


def number(given: Any) -> Basic:
    """A number as SymPy's; whole floats are integers."""
    if isinstance(given, Basic):
        return given
    if isinstance(given, bool):
        return S.true if given else S.false
    if isinstance(given, int):
        return Integer(given)
    if isinstance(given, float):
        if math.isnan(given):
            raise Unwritten("a constant is NaN")
        if math.isinf(given):
            return S.Infinity if given > 0 else S.NegativeInfinity
        return Integer(int(given)) if given.is_integer() and abs(given) < EXACT else Float(given)
    raise Unwritten(f"an argument is a {type(given).__name__}")


def to_number(read: Basic) -> Expr:
    """A condition as 1 and 0; a number as it is."""
    if not is_condition(read):
        return read
    return S.One if read is S.true else S.Zero if read is S.false else Where(read, S.One, S.Zero)


def to_truth(read: Basic) -> Boolean:
    """A number as the condition that it is not 0; a condition as it is."""
    return read if is_condition(read) else Ne(read, 0)


def is_condition(read: Basic) -> bool:
    """Tell if it is a condition. SymPy's symbols, and so axes, are of the class of Boolean expressions too."""
    return isinstance(read, Boolean) and not isinstance(read, Expr)
