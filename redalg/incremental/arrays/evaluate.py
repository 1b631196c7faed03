"""Evaluation of SymPy expressions on arrays that have one dimension per axis.

Conventions of THEORY section 4: exp of a sum in which an element is −∞ is 0, whatever the rest (an element of zero
weight does not count). Sums add terms that vary first and parameters last, so that (b − a) + eps keeps its digits.
Sums of several reduced values carry the digits that rounding loses.

Places along an axis are 64-bit integers, and so is every expression of places and integers alone. If the compute dtype
does not hold them all (`Scope.far`), an expression that mixes them with numbers is evaluated in float64, n − c from
exact integers. The result is rounded once, to the compute dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import chain
from math import prod
from operator import and_, or_
from typing import Any, final

from sympy import Add, And, Expr, Integer, Mod, Mul, Not, Or, Pow, S, ceiling, exp, floor, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.errors import InputError
from redalg.expression import Axis, Cast, Element, Extent, Let, Reduce, RunningCast, Scalar, Value, Where
from redalg.expression.contents import elements_of, guards_and_guarded, is_indicator
from redalg.expression.infinite import divisors_that_may_be_zero, infinite_terms
from redalg.incremental.arrays.addends import addition_order
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.view import View, checked_index
from redalg.incremental.combine.let import Precision
from redalg.monoids import MONOIDS
from redalg.monoids.functions import Powered

RELATIONS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Scope:
    """The context that expressions are evaluated in. Its fields stay; evaluation fills `values` and `memo`.

    Attributes:
        ops: the array library.
        axes: the fixed order of dimensions.
        ranges: axis -> (start, stop) in global numbering.
        offsets: axis -> global number of the first element that the tensors hold (0 unless given).
        tensors: name -> array, dimensions as indexed in the expressions.
        scalars, extents: name -> number.
        values: `Value` -> array with one dimension per axis.
        live: the elements at which a gather must stay in range (None: all).
        memo: node -> its value, for these ranges.
        exact: True if numbers beside places are in float64, even if the places are small.
    """

    ops: ArrayOps
    axes: tuple[Axis, ...]
    ranges: Mapping[Axis, tuple[int, int]]
    tensors: Mapping[str, Any]
    scalars: Mapping[str, Any]
    extents: Mapping[str, int]
    offsets: Mapping[Axis, int] = field(default_factory=dict)
    values: dict[Value, Any] = field(default_factory=dict)
    live: Any = None
    memo: dict[Basic, Any] = field(default_factory=dict)
    exact: bool = False

    def over(self, ranges: Mapping[Axis, tuple[int, int]], values: dict[Value, Any] | None = None) -> Scope:
        """The same scope over other ranges, with fresh values."""
        return replace(self, ranges={**self.ranges, **ranges}, values=values or {}, memo={}, live=None)

    def with_values(self, values: dict[Value, Any]) -> Scope:
        """The same scope with more values and a copy of the memo: results that read new values stay in the copy."""
        return replace(self, values={**self.values, **values}, memo=dict(self.memo))

    def place(self, axis: Axis) -> int:
        """The dimension of an axis."""
        return self.axes.index(axis)

    def dims(self, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        """The dimensions of axes, the last first."""
        return tuple(sorted(map(self.axes.index, axes), reverse=True))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of elements in range, dimension by dimension."""
        return tuple([stop - start for start, stop in map(self.ranges.__getitem__, self.axes)])

    def length(self, axis: Axis) -> int:
        """Number of elements of an axis in range."""
        start, stop = self.ranges[axis]
        return stop - start

    # ---- evaluation --------------------------------------------------------------------------------------------------

    def evaluate(self, node: Basic) -> Any:
        """The value of a node: an array with one dimension per axis."""
        if isinstance(node, Value):
            return self.values[node]
        if node not in self.memo:
            self.memo[node] = self._evaluate(node)
        return self.memo[node]

    def number(self, node: Expr) -> Any:
        """The value of a node in the compute dtype."""
        array = self.evaluate(node)
        return array if self.ops.is_float(array) and not self.far else self.ops.to_compute(array)

    def number_before_rounding(self, node: Expr) -> Any:
        """The value of a node as a number; if it is made of far places, it is not yet rounded to the compute dtype."""
        return self._float(self.evaluate(node))

    def at(self, node: Basic, precision: Precision) -> Any:
        """The value of a node, kept at a precision."""
        array = self.evaluate(node)
        if precision is Precision.COMPUTE:
            return self.ops.to_compute(array)
        if precision is Precision.OWN:
            return array
        array = self._float(array)
        return self.ops.wide(array) if precision is Precision.DOUBLE else array

    @property
    def far(self) -> bool:
        """Tell if places lie beyond the integers that the compute dtype holds."""
        if self.exact:
            return True
        return max((0, *chain(*self.ranges.values()), *self.extents.values())) > self.ops.integers

    def rate(self, q: Expr) -> Any:
        """The value of `q`: a float if it is a number, else an array made of scalars."""
        return float(q) if q.is_number else self.number(q)

    def _evaluate(self, node: Basic) -> Any:
        for kind, rule in RULES:
            if isinstance(node, kind):
                return rule(self, node)
        raise InputError(f"`{node}` is a {type(node).__name__}, which redalg cannot evaluate.")

    def _constant(self, node: Expr) -> Any:
        shape = [1] * len(self.axes)
        if node.is_Integer and abs(int(node)) < 2**62:
            return (self.ops.arange(0, 1) + int(node)).reshape(shape)
        return self._full(shape, float(node))

    def _axis(self, node: Axis) -> Any:
        return self.ops.apply(Scope._places, self, node)

    def _places(self, node: Axis) -> Any:
        start, stop = self.ranges[node]
        return self.ops.arange(start, stop).reshape([stop - start if one == node else 1 for one in self.axes])

    def _extent(self, node: Extent) -> Any:
        return self.ops.apply(Scope._size, self, node)

    def _size(self, node: Extent) -> Any:
        return (self.ops.arange(0, 1) + self.extents[node.name]).reshape([1] * len(self.axes))

    def _scalar(self, node: Scalar) -> Any:
        return self.ops.apply(Scope._scalar_value, self, node)

    def _scalar_value(self, node: Scalar) -> Any:
        value = self.scalars[node.name]
        if node.is_integer and is_whole(value):
            return self._constant(Integer(int(value)))
        return self._full([1] * len(self.axes), value)

    def _full(self, shape: list[int], value: float) -> Any:
        """An array that holds one number, in float64 if places are far."""
        if self.far:
            return (self.ops.wide(self.ops.arange(0, 1)) + value).reshape(shape)
        return self.ops.full(shape, value)

    def _add(self, node: Add) -> Any:
        terms = addition_order(node.args)
        if len(terms) > 2 and not node.has(Element) and sum(one.has(Value) for one in terms) > 2:
            return self._compensated_sum(terms)
        return self._placed_sum(terms) if self.far else self._fold(lambda a, b: a + b, terms)

    def _placed_sum(self, terms: Sequence[Expr]) -> Any:
        """n + u → (n + ⌊u⌋) + (u − ⌊u⌋): integers are added exactly, and u may be as large as they are."""
        arrays = [self.evaluate(one) for one in terms]
        numbers = [self.ops.wide(one) for one in arrays if self.ops.is_float(one)]
        places = [self.ops.integer(one) for one in arrays if not self.ops.is_float(one)]
        whole, rest = sum(places[1:], places[0]) if places else None, sum(numbers[1:], numbers[0]) if numbers else None
        if whole is None or rest is None:
            return whole if rest is None else rest
        floor_of = self.ops.functions["floor"](rest)
        fits = self.ops.functions["Abs"](floor_of) <= 2.0**62  # else, and of NaN, the integers lie below its digits
        floor_of = self.ops.where(fits, floor_of, self.ops.wide(self.ops.scalar(0.0)))
        return self.ops.wide(whole + self.ops.integer(floor_of)) + (rest - floor_of)

    def _compensated_sum(self, terms: Sequence[Expr]) -> Any:
        """Add reduced values and the digits that each addition loses: large values may cancel beside a small one.

        Source: Neumaier (1974).
        """
        total, *rest = (self._float(self.evaluate(one)) for one in terms)
        absolute, lost = self.ops.functions["Abs"], self.ops.scalar(0.0)
        for term in rest:
            after = total + term
            lost = lost + self.ops.where(
                absolute(total) >= absolute(term), (total - after) + term, (term - after) + total
            )
            total = after
        return self.ops.where(self.ops.isfinite(lost), total + lost, total)

    def _mul(self, node: Mul) -> Any:
        above = [arg for arg in node.args if not _is_reciprocal(arg)]
        below = [Pow(arg.base, -arg.exp) for arg in node.args if _is_reciprocal(arg)]
        if above and above[0].is_Rational and not above[0].is_Integer:
            below, above = [S(above[0].q), *below], [*([S(above[0].p)] if above[0].p != 1 else []), *above[1:]]
        guards = [arg for arg in above if is_indicator(arg)]
        plain = [arg for arg in above if arg not in guards]
        top = self._times(plain) if plain else self._constant(S.One)
        top = self._drop_zero_weights(top, plain)
        product = self._float(top) / self._float(self._fold(lambda a, b: a * b, below)) if below else top
        for guard in guards:  # 0 where the mask is off, whatever lies there
            product = self.ops.where(self.passes(guard), self._float(product), self.ops.scalar(0.0))
        return product

    def _times(self, factors: Sequence[Expr]) -> Any:
        """The product of factors; if its integers may leave the range of 64 bits, it is rounded."""
        if self.far and len(factors) > 1:
            arrays = [self.evaluate(one) for one in factors]
            largest = [max(1, abs(int(array.max())), abs(int(array.min()))) for array in arrays
                       if not self.ops.is_float(array) and 0 not in array.shape]  # fmt: skip
            if prod(largest) >= 2**63:
                product = self._float(arrays[0])
                for array in arrays[1:]:
                    product = product * self._float(array)
                return product
        return self._fold(lambda a, b: a * b, factors)

    def passes(self, indicator: Where) -> Any:
        """Boolean array: true at the elements where an indicator is 1."""
        holds = self.evaluate(indicator.condition)
        return holds if indicator.args[1] is S.One else ~holds

    def _drop_zero_weights(self, product: Any, factors: Sequence[Expr]) -> Any:
        """Set a product to 0 where a factor is 0 beside log 0, or beside a sum that holds log 0: it does not count."""
        result = product
        for log_factor in (one for one in factors if one.has(log) and one.has(Element, Value)):
            infinite = self.number(log_factor) == -float("inf")
            for other in factors:
                if other is not log_factor and other.has(Element, Value):
                    nothing = (self.number(other) == 0) & infinite
                    result = self.ops.where(nothing, self.ops.scalar(0.0), result)
        return result

    def _fold(self, operation: Any, nodes: Sequence[Expr]) -> Any:
        arrays = [self.evaluate(node) for node in nodes]
        if any(self.ops.is_float(one) for one in arrays):
            arrays = [self._float(one) for one in arrays]
        elif len(arrays) > 1:
            arrays = [self.ops.integer(one) for one in arrays]
        total = arrays[0]
        for array in arrays[1:]:
            total = operation(total, array)
        return total

    def _float(self, array: Any) -> Any:
        if self.ops.is_float(array):
            return array
        return self.ops.wide(array) if self.far else self.ops.to_compute(array)

    def _pow(self, node: Pow) -> Any:
        base, exponent = self.number_before_rounding(node.base), node.exp
        if exponent.is_Integer and 0 < abs(int(exponent)) <= 8:
            power = base
            for _ in range(abs(int(exponent)) - 1):
                power = power * base
            return power if exponent > 0 else 1 / power
        if exponent in (S.Half, -S.Half):
            root = self.ops.functions["sqrt"](base)
            return root if exponent > 0 else 1 / root
        return self.ops.functions["pow"](base, self.number_before_rounding(exponent))

    def _floor(self, node: floor) -> Any:
        above, below = map(self.evaluate, node.args[0].as_numer_denom())
        if self.ops.is_float(above) or self.ops.is_float(below):
            return self.ops.functions["floor"](self.number_before_rounding(node.args[0]))
        return above // below

    def _mod(self, node: Mod) -> Any:
        return self._fold(lambda a, b: a % b, node.args)

    def _exp(self, node: exp) -> Any:
        factor = node.args[0].coeff(log(2)) if node.args[0].is_Mul else S.Zero
        if factor != 0 and factor.has(floor, ceiling):  # an exact power of 2 of an integer
            return self.ops.functions["pow"](self.ops.scalar(2.0), self.number(factor))
        power = self.ops.exp(self.number_before_rounding(node.args[0]))
        terms = infinite_terms(node.args[0])
        for term in terms if node.args[0].is_Add or len(terms) > 1 else ():
            divided = [self.number(one) != 0 for one in divisors_that_may_be_zero(term)]
            masked = reduce(and_, divided, self.number(term) == -float("inf"))
            power = self.ops.where(masked, self.ops.scalar(0.0), power)
        return power

    def _where(self, node: Where) -> Any:
        condition = self.evaluate(node.condition)
        guarded = any(_gathers(branch) for branch in node.args[1:])
        first, second = (self.under(condition), self.under(~condition)) if guarded else (self, self)
        a, b = first.evaluate(node.args[1]), second.evaluate(node.args[2])
        if self.ops.is_float(a) or self.ops.is_float(b):  # of integers alone it is an integer: an index stays exact
            a, b = self._float(a), self._float(b)
        return self.ops.where(condition, a, b)

    def under(self, condition: Any) -> Scope:
        """The same scope under a condition: indices must lie within their tensors only where it holds."""
        return replace(self, memo={}, live=condition if self.live is None else self.live & condition)

    def _relation(self, node: Relational) -> Any:
        if node.has(Scalar) and not node.has(Element, Value):
            return self.ops.apply(Scope._of_places, self, node)
        return self._compare(node)

    def _of_places(self, node: Relational) -> Any:
        """A relation of places and scalars alone, in float64."""
        return replace(self, memo={}, exact=True)._compare(node)

    def _compare(self, node: Relational) -> Any:
        left, right = self.evaluate(node.lhs), self.evaluate(node.rhs)
        if self.ops.is_float(left) != self.ops.is_float(right):
            left, right = self._float(left), self._float(right)
        return RELATIONS[node.rel_op](left, right)

    def _boolean(self, node: Boolean) -> Any:
        if isinstance(node, Not):
            return ~self.evaluate(node.args[0])
        join = and_ if isinstance(node, And) else or_
        guards, guarded = guards_and_guarded(node)
        if not guards or not guarded:
            return reduce(join, map(self.evaluate, node.args))
        known = reduce(join, map(self.evaluate, guards))
        inner = self.under(known if join is and_ else ~known)
        return reduce(join, map(inner.evaluate, guarded), known)

    def _truth(self, node: Boolean) -> Any:
        zero = self.ops.arange(0, 1).reshape([1] * len(self.axes))
        return zero == 0 if node == S.true else zero != 0

    def _cast(self, node: Cast) -> Any:
        array = self.evaluate(node.args[0])
        if node.dtype == "int64" and not self.ops.is_float(array):
            return array
        return self.ops.round_to(self._float(array), node.dtype)

    def _running_cast(self, node: RunningCast) -> Any:
        g, h = (self.number(one) for one in node.args[:2])
        usable = self.ops.isfinite(h) & (h != 0)
        h = self.ops.where(usable, h, self.ops.scalar(1.0))
        return self.ops.round_to(g * h, node.dtype) / h

    def _times_power(self, node: Powered) -> Any:
        mantissa, exponent, h, n = node.args  # of the integers large ones cancel
        return self.ops.times_power(self.number(mantissa), self.evaluate(exponent), self.number(h), self.evaluate(n))

    def _let(self, node: Let) -> Any:
        return self.evaluate(node.expr)

    def _reduce(self, node: Reduce) -> Any:
        return self.ops.apply(partial(Scope._over_bound, node=node), self, self.number(node.expr))

    def _over_bound(self, array: Any, node: Reduce) -> Any:
        for axis in node.bound:
            place = self.place(axis)
            shape = [self.length(axis) if one == place else size for one, size in enumerate(array.shape)]
            if self.length(axis) == 0:
                shape[place] = 1
                array = self.ops.full(shape, float(MONOIDS[node.kind].identity))
            else:
                array = self.ops.reduce(node.kind, self.ops.expand(array, shape), place)
        return array

    # ---- elements ----------------------------------------------------------------------------------------------------

    def _element(self, node: Element) -> Any:
        plain = [index for index in node.indices if isinstance(index, Axis)]
        if len(set(plain)) == len(plain) and node.is_plain:
            return self.ops.apply(View(node, self.axes), self)
        indices = map(self.evaluate, node.indices)
        return self.ops.apply(partial(Scope._gather, node), self, self.live, *indices)

    @staticmethod
    def _gather(node: Element, scope: Scope, live: Any, *indices: Any) -> Any:
        """The elements of a tensor at computed indices."""
        tensor = scope.tensors[node.name]
        places = replace(scope, live=live).checked_indices(tensor, node, indices)
        array = tensor[tuple(places)] if places else tensor.reshape([1] * len(scope.axes))
        return scope.ops.to_compute(array) if scope.ops.is_float(array) else array

    def checked_indices(self, tensor: Any, node: Element, places: Sequence[Any] | None = None) -> list[Any]:
        """Clipped index arrays of a gather; the index of an element that counts must not leave its dimension.

        `places` are the values of the index expressions, if they are known.
        """
        places = list(map(self.evaluate, node.indices)) if places is None else places
        sizes = tensor.shape[: len(places)]
        return [
            checked_index(node, dim, at, size, self) for dim, (at, size) in enumerate(zip(places, sizes, strict=True))
        ]


def is_whole(number: Any) -> bool:
    """Tell if a scalar is a number that 64-bit integers hold."""
    return float(number).is_integer() and abs(number) < 2**62


def _gathers(node: Basic) -> bool:
    return any(not isinstance(index, Axis) for one in elements_of(node) for index in one.indices)


def _is_reciprocal(node: Expr) -> bool:
    return bool(node.is_Pow and node.exp.is_Rational and node.exp.is_negative)


RULES: tuple[tuple[Any, Any], ...] = (
    (Axis, Scope._axis), (Extent, Scope._extent), (Scalar, Scope._scalar), (Element, Scope._element),
    (Add, Scope._add), (Mul, Scope._mul), (exp, Scope._exp), (Pow, Scope._pow), (Where, Scope._where),
    (Relational, Scope._relation), ((And, Or, Not), Scope._boolean), (type(S.true), Scope._truth),
    (type(S.false), Scope._truth), (Cast, Scope._cast), (Let, Scope._let), (Reduce, Scope._reduce),
    (RunningCast, Scope._running_cast),
    (Powered, Scope._times_power),
    (floor, Scope._floor), (Mod, Scope._mod),
    (Expr, lambda scope, node: scope._constant(node) if node.is_number else _function(scope, node)),
)  # fmt: skip


def _function(scope: Scope, node: Expr) -> Any:
    name = type(node).__name__
    if name in ("Max", "Min"):
        return scope._fold(scope.ops.functions[name], node.args)
    if name not in scope.ops.functions:
        raise InputError(
            f"`{node}`: redalg cannot evaluate `{name}`. Write it by exp, log, sqrt, tanh, Abs and the like."
        )
    array = scope.ops.functions[name](*(scope.number_before_rounding(arg) for arg in node.args))
    return array if scope.ops.is_float(array) or name == "Exponent" else scope.ops.to_compute(array)
