"""The lines of a program while it is written: names that no other line has, and no line twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import final

from sympy import Abs, Add, Eq, Expr, Lt, Mul, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Label, Value, Where
from redalg.expression.contents import free_axes
from redalg.incremental.combine.let import Assign, Fold, Folding, Gather, Join, Let, Move, Precision
from redalg.incremental.form import Structure
from redalg.monoids import Monoid

OO = S.Infinity
ALIKE = {(kept, kept) for kept in Precision} | {(Precision.COMPUTE, Precision.EXACT_PLACES)}
"""(kept, asked): a value that is kept so serves where it is asked for so."""


@final
class Lines:
    """A list of lines that grows. Every method that adds a line returns the value that the line defines."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        """`reserved`: names that lines get only if they are asked for by `named`."""
        self.lets = list[Let]()
        self._taken = set(reserved)
        self._kept = dict[Value, Precision]()
        self._known = dict[object, Value]()

    def add_inputs(self, values: Iterable[Value]) -> None:
        """Tell that a caller gives values: slots, which are kept as they were made."""
        self._kept |= dict.fromkeys(values, Precision.EXACT_PLACES)
        self._taken |= {value.name for value in self._kept}

    def assign(
        self, name: str, expr: Expr, precision: Precision = Precision.COMPUTE, named: Value | None = None,
        moves: tuple[Move, ...] = (),
    ) -> Value:  # fmt: skip
        """Add value := expr, unless a line says so already, or it is a value that is kept so."""
        if named is None and (kept := self._kept.get(expr)) and (kept, precision) in ALIKE:
            return expr
        key = (expr, precision)
        if key not in self._known or named is not None:
            self._known[key] = self._add(Assign(self._value(name, (expr,), (), named), expr, precision, moves))
        return self._known[key]

    def sum(
        self, name: str, factors: Sequence[Expr], over: tuple[Axis, ...], precision: Precision = Precision.COMPUTE,
        of: Value | None = None,
    ) -> Value:  # fmt: skip
        """Add value := Σ over axes of a product, unless a line says so already.

        `of`: the accumulator that the product is, for a kernel.
        """
        return self._fold(name, Folding("sum", tuple(factors), over, precision, of=of))

    def reduce(
        self, name: str, monoid: Monoid, term: Expr, over: tuple[Axis, ...],
        precision: Precision = Precision.COMPUTE,
    ) -> Value:  # fmt: skip
        """Add value := ⊕ over axes of a term, by a monoid whose elements are numbers, unless a line says so already."""
        return self._fold(name, Folding(monoid.reduction, (term,), over, precision, monoid.identity))

    def count(self, name: str, condition: Boolean, over: tuple[Axis, ...]) -> Value:
        """Add value := number of elements at which a condition holds, unless a line says so already."""
        return self._fold(name, Folding("count", (condition,), over, Precision.OWN))

    def some(self, name: str, condition: Boolean, over: tuple[Axis, ...]) -> Value:
        """Add value := a condition holds at any element of axes, unless a line says so already."""
        return self._fold(name, Folding("any", (condition,), over, Precision.OWN))

    def _fold(self, name: str, folding: Folding) -> Value:
        if not folding.axes:
            return self.assign(name, _element(folding), folding.precision)
        if folding not in self._known:
            value = self._value(name, folding.factors, folding.axes, None)
            self._known[folding] = self._add(Fold(value, folding))
        return self._known[folding]

    def total(self, name: str, terms: Sequence[Expr], precision: Precision = Precision.COMPUTE) -> Value:
        """Add terms one to the next, a line for each: an evaluator would compensate a long sum."""
        [first, *others] = terms
        if not others:
            return self.assign(name, first, precision)
        for term in others:
            first = self.assign(name, Add(first, term), precision)
        return first

    def gather(
        self, structure: Structure, parts: tuple[Expr, ...], over: tuple[Axis, ...], axis: Axis | None = None
    ) -> tuple[Value, ...]:
        """Add ⊕ over axes of elements: of each place as it is lifted, or of elements whose places lie along `axis`."""
        symbols = tuple(map(self.fresh, structure.values))
        self._add(Gather(structure, symbols, parts, over, axis or over[0], lifted=axis is None))
        return symbols

    def join(
        self, structure: Structure, first: tuple[Value, ...], second: tuple[Value, ...], axis: Axis
    ) -> tuple[Value, ...]:
        """Add a ⊕ b, two parts of an axis."""
        symbols = tuple(map(self.fresh, structure.values))
        self._add(Join(structure, symbols, first, second, axis))
        return symbols

    def fresh(self, value: Value) -> Value:
        """A value of the same axes whose name no line has: the given one if its name is free."""
        return Value(Label(self._free(value.name)), *value.indices)

    def _value(self, name: str, exprs: Iterable[Basic], over: tuple[Axis, ...], named: Value | None) -> Value:
        if named is not None:
            return named if named not in self._kept else self.fresh(named)
        axes = frozenset[Axis]().union(*map(free_axes, exprs)) - set(over)
        return Value(Label(self._free(name)), *sorted(axes, key=str))

    def _free(self, name: str) -> str:
        tried = (name if not number else f"{name}_{number}" for number in count())
        return next(free for free in tried if free not in self._taken)

    def _add(self, let: Let) -> Value:
        self.lets.append(let)
        self._kept |= dict.fromkeys(let.values, _precision_of(let))
        self._taken |= {value.name for value in let.values}
        return let.values[0]


def _precision_of(let: Let) -> Precision:
    if isinstance(let, Assign):
        return let.precision
    return let.folding.precision if isinstance(let, Fold) else Precision.OWN


def _element(folding: Folding) -> Expr:
    """The folding of one element: the element."""
    if folding.kind in ("count", "any"):
        return Where(folding.factors[0], S.One, S.Zero)
    return Mul(*folding.factors)


# ---- conditions on one number ----------------------------------------------------------------------------------------


def is_below_all(number: Expr) -> Boolean:
    """Tell if a number is −∞, unevaluated: SymPy takes reduced values to be finite here and there."""
    return Eq(number, -OO, evaluate=False)


def is_infinite(number: Expr) -> Boolean:
    """Tell if a number is ±∞."""
    return Eq(Abs(number), OO, evaluate=False)


def is_finite_number(number: Expr) -> Boolean:
    """Tell if a number is neither ±∞ nor NaN."""
    return Lt(Abs(number), OO, evaluate=False)


def is_zero(number: Expr) -> Boolean:
    """Tell if a number is 0."""
    return Eq(number, S.Zero, evaluate=False)
