"""Evaluation of an expression over named axes, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import and_, gt, or_
from typing import Any, final

from sympy import Add, And, Expr, Max, Min, Mod, Mul, Not, Or, Pow, S, exp, expand_mul, floor, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import Piecewise

from redalg.definition.arrays import Library
from redalg.errors import InputError
from redalg.expression import Axis, Cast, Element, Extent, Let, Reduce, Scalar, StraightThrough, Where
from redalg.expression.contents import elements_of, guards_and_guarded

RELATIONS = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "==": "__eq__", "!=": "__ne__"}
INFINITY = float("inf")
WHOLE = 2**62


@final
@dataclass(frozen=True, eq=False)
class Evaluator:
    """The values of nodes, each computed once.

    Attributes:
        library: the array library.
        axes: names of the axes, one for each dimension.
        ranges: axis -> its first place and that after its last.
        sizes: axis -> its extent.
        tensors, scalars: name -> array, number.
        live: where indices must lie within their tensors (None: everywhere).
        known: node -> its value.
    """

    library: Library
    axes: tuple[str, ...]
    ranges: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    tensors: Mapping[str, Any]
    scalars: Mapping[str, float]
    live: Any = None
    known: dict[Basic, Any] = field(default_factory=dict)

    def __call__(self, node: Basic) -> Any:
        """The value of a node."""
        if node not in self.known:
            rule = next((rule for kind, rule in RULES if isinstance(node, kind)), None)
            if rule is None:
                raise InputError(f"`{node}` is a {type(node).__name__}, which redalg cannot evaluate.")
            self.known[node] = rule(self, node)
        return self.known[node]

    def number(self, node: Basic) -> Any:
        """The value of a node, as numbers."""
        return self.library.float(self(node))

    def constant(self, value: float | bool) -> Any:
        """An array of one number."""
        return self.library.full([1] * len(self.axes), value)

    def place(self, axis: Axis) -> int:
        """The dimension of an axis."""
        return self.axes.index(axis.name)

    def length(self, axis: Axis) -> int:
        """Number of places of an axis in range."""
        first, stop = self.ranges[axis.name]
        return stop - first

    # ---- atoms -------------------------------------------------------------------------------------------------------

    def numeral(self, node: Expr) -> Any:
        """A number."""
        return self.constant(int(node) if node.is_Integer and abs(int(node)) < WHOLE else float(node))

    def axis(self, node: Axis) -> Any:
        return self.along(self.library.arange(*self.ranges[node.name]), [node])

    def along(self, array: Any, axes: Sequence[Axis]) -> Any:
        """An array whose dimensions are distinct axes, in one dimension per axis."""
        places = [self.place(one) for one in axes]
        turned = self.library.transpose(array, sorted(range(len(places)), key=lambda one: places[one]))
        lengths = {place: array.shape[number] for number, place in enumerate(places)}
        return turned.reshape([lengths.get(place, 1) for place in range(len(self.axes))])

    def element(self, node: Element) -> Any:
        if node.name not in self.tensors:
            raise InputError(f"tensor `{node.name}` is not given, and `{node}` stands in the definition. Pass it.")
        axes = [index for index in node.indices if isinstance(index, Axis)]
        if not self.is_gathered(node):
            window = tuple(slice(*self.ranges[one.name]) for one in axes)
            return self.read(self.along(self.tensors[node.name][window], axes))
        return self.read(self.gather(node))

    def read(self, array: Any) -> Any:
        """The elements of a tensor: floats as numbers, integers in int64, truth values as they are."""
        if "bool" in str(array.dtype):
            return array
        return self.library.whole(array) if "int" in str(array.dtype) else self.library.float(array)

    def is_gathered(self, node: Basic) -> bool:
        """Tell if an expression reads a tensor at computed places, or beyond the end of a dimension of it."""
        return is_gather(node) or any(map(self.is_beyond, elements_of(node)))

    def is_beyond(self, node: Element) -> bool:
        """Tell if an element's axes are not distinct, or run beyond its tensor, of which then a part alone counts."""
        stops = [self.ranges[one.name][1] if isinstance(one, Axis) else 0 for one in node.indices]
        shape = self.tensors[node.name].shape if node.name in self.tensors else stops
        return len(set(node.indices)) < len(stops) or any(map(gt, stops, shape))

    def gather(self, node: Element) -> Any:
        """A tensor's elements at computed places, each of which must exist where it is live."""
        tensor, places = self.tensors[node.name], []
        for number, index in enumerate(node.indices):
            at, size = self(index), tensor.shape[number]
            if self.library.is_float(at):
                raise InputError(f"`{node}`: index `{index}` is a floating-point number. Index by integers.")
            outside = (at < 0) | (at >= size)
            if bool((outside if self.live is None else outside & self.live).any()):
                raise InputError(f"`{node}`: index `{index}` leaves the range of dimension {number}, which has {size} "
                                 "elements. Mask it by `ra.where`, or mend the indices.")  # fmt: skip
            places.append(at.clip(0, max(size - 1, 0)))
        if 0 in tensor.shape and places:  # nothing is live
            return self.constant(0.0)
        return tensor[tuple(places)] if places else tensor.reshape([1] * len(self.axes))

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    def alike(self, nodes: Sequence[Basic]) -> list[Any]:
        """Values of one kind: integers if all are."""
        return self.one_kind([self(one) for one in nodes])

    def one_kind(self, arrays: Sequence[Any]) -> list[Any]:
        """Arrays of integers if all are, else of numbers."""
        mixed = any(self.library.is_float(one) for one in arrays)
        return [self.library.float(one) if mixed else self.library.whole(one) for one in arrays]

    def add(self, node: Add) -> Any:
        """Σ of the terms: data first, then reduced values, then parameters, so that (x − mean) + ε keeps ε."""
        first, *rest = self.alike(sorted(node.args, key=sum_place))
        for term in rest:
            first = first + term
        return first

    def mul(self, node: Mul) -> Any:
        top, bottom = numerator_and_denominator(node)
        value = self.mask_product(top, self.product(top))
        return self.library.float(value) / self.library.float(self.product(bottom)) if bottom else value

    def factors(self, nodes: Sequence[Expr]) -> list[Any]:
        """The values of factors; a gather counts where no weight of exp(−∞) and no indicator of 0 hides it."""
        weights = [one for one in nodes if isinstance(one, exp) or indicator_mask(one) is not None]
        if len(weights) == len(nodes) or not any(self.is_gathered(one) for one in nodes if one not in weights):
            return [self(one) for one in nodes]
        hidden = self.hiding_masks(weights)
        rest = self.under(~reduce(or_, hidden)) if hidden else self
        return [self(one) if one in weights else rest(one) for one in nodes]

    def product(self, factors: Sequence[Expr]) -> Any:
        first, *rest = self.one_kind(self.factors(factors)) if factors else [self.constant(1)]
        for factor in rest:
            first = first * factor
        return first

    def mask_product(self, factors: Sequence[Expr], value: Any) -> Any:
        """A product, 0 where a factor hides the others."""
        for nothing in self.hiding_masks(factors):
            value = self.library.where(nothing, self.constant(0.0), value)
        return value

    def hiding_masks(self, factors: Sequence[Expr]) -> list[Any]:
        """Masks, true where a factor hides the others: an indicator, an exponential of −∞, or 0 beside log 0."""
        masks = [self.indicator_mask(one) for one in factors if indicator_mask(one) is not None]
        masks += [one for factor in factors if isinstance(factor, exp) for one in self.infinite(factor)]
        for factor in (factor for factor in factors if factor.has(log) and factor.has(Element)):
            endless = self.number(factor) == -INFINITY
            others = (other for other in factors if other is not factor and other.has(Element))
            masks += [endless & (self.number(other) == 0) for other in others]
        return masks

    def indicator_mask(self, factor: Expr) -> Any:
        """The mask that is true where an indicator is 0."""
        mask = indicator_mask(factor)
        assert mask is not None
        return self(mask.condition) if mask.args[1] is S.Zero else ~self(mask.condition)

    def infinite(self, node: exp) -> list[Any]:
        """Masks, true where a term of the exponent is −∞, and not by a division by 0."""
        terms = [one for one in terms_of(node.args[0]) if one.has(Element)]
        return [reduce(and_, (self.number(below) != 0 for below in divisors(term)), self.number(term) == -INFINITY)
                for term in terms]  # fmt: skip

    def exponential(self, node: exp) -> Any:
        value = self.library.functions["exp"](self.number(node.args[0]))
        for nothing in self.infinite(node):
            value = self.library.where(nothing, self.constant(0.0), value)
        return value

    def power(self, node: Pow) -> Any:
        base = self.number(node.base)
        if node.exp in (S.Half, -S.Half):
            root = self.library.functions["sqrt"](base)
            return root if node.exp is S.Half else 1 / root
        if node.exp.is_Integer and 0 < abs(int(node.exp)) <= 4:
            value = base
            for _ in range(abs(int(node.exp)) - 1):
                value = value * base
            return value if node.exp.is_positive else 1 / value
        return self.library.functions["pow"](base, self.number(node.exp))

    def floor_of(self, node: floor) -> Any:
        above, below = self.alike(node.args[0].as_numer_denom())
        if self.library.is_float(above):
            return self.library.call("floor", [self(node.args[0])], node)
        return above // below

    def modulo(self, node: Mod) -> Any:
        value, divisor = self.alike(node.args)
        return value % divisor

    def extremum(self, node: Max | Min) -> Any:
        first, *rest = self.alike(node.args)
        for value in rest:
            first = self.library.functions[type(node).__name__](first, value)
        return first

    def function(self, node: Expr) -> Any:
        if node.is_number:
            return self.numeral(node)
        return self.library.call(type(node).__name__, [self(one) for one in node.args], node)

    def cast(self, node: Cast) -> Any:
        value = self(node.args[0])
        if node.dtype == "int64" and not self.library.is_float(value):
            return value
        return self.library.round_to(self.library.float(value), node.dtype)

    # ---- conditions --------------------------------------------------------------------------------------------------

    def choose(self, node: Where) -> Any:
        return self.choice([(self(node.condition), node.args[1])], node.args[2])

    def cases(self, node: Piecewise) -> Any:
        *cases, (last, _) = node.args
        return self.choice([(self(condition), value) for value, condition in cases], last)

    def choice(self, cases: Sequence[tuple[Any, Expr]], other: Expr) -> Any:
        """The first value whose condition holds, else another."""
        if not cases:
            return self(other)
        (condition, value), *rest = cases
        guarded = self.is_gathered(value) or self.is_gathered(other) or any(self.is_gathered(one) for _, one in rest)
        here, there = (self.under(condition), self.under(~condition)) if guarded else (self, self)
        return self.library.where(condition, here(value), there.choice(rest, other))

    def under(self, condition: Any) -> Evaluator:
        """The evaluator of what counts under a condition alone."""
        return replace(self, live=condition if self.live is None else self.live & condition, known={})

    def relation(self, node: Relational) -> Any:
        left, right = (self(one) for one in node.args)
        if self.library.is_float(left) != self.library.is_float(right):
            left, right = self.library.float(left), self.library.float(right)
        return getattr(left, RELATIONS[node.rel_op])(right)

    def all_of(self, node: And | Or) -> Any:
        join = and_ if isinstance(node, And) else or_
        guards, guarded = guards_and_guarded(node)
        if not guards or not guarded:
            return reduce(join, map(self, node.args))
        known = reduce(join, map(self, guards))
        return reduce(join, map(self.under(known if join is and_ else ~known), guarded), known)


def sum_place(term: Expr) -> tuple[int, bool]:
    """The place of a term in a sum; within a kind, what is added stands before what is subtracted."""
    return (1 if term.has(Reduce) else 0 if term.has(Element) else 2), term.could_extract_minus_sign()


@lru_cache(1 << 10)
def terms_of(exponent: Expr) -> tuple[Expr, ...]:
    """The terms of an exponent, products of sums multiplied out."""
    return tuple(Add.make_args(expand_mul(exponent)))


@lru_cache(1 << 10)
def divisors(term: Expr) -> tuple[Expr, ...]:
    """The divisors of a term that hold data."""
    powers = [one for one in Mul.make_args(term) if one.is_Pow and one.exp.could_extract_minus_sign()]
    return tuple(one.base for one in powers if one.base.has(Element))


@lru_cache(1 << 10)
def numerator_and_denominator(node: Mul) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The factors of a numerator and those of a denominator."""
    top, bottom = list[Expr](), list[Expr]()
    for factor in node.args:
        if factor.is_Pow and factor.exp.is_Rational and factor.exp.is_negative:
            bottom.append(Pow(factor.base, -factor.exp))
        elif factor.is_Rational and not factor.is_Integer:
            top, bottom = [*top, *([S(factor.p)] if factor.p != 1 else [])], [*bottom, S(factor.q)]
        else:
            top.append(factor)
    return tuple(top), tuple(bottom)


@lru_cache(1 << 12)
def is_gather(node: Basic) -> bool:
    """Tell if a tensor is indexed by more than axes."""
    if isinstance(node, Element):
        return not all(isinstance(index, Axis) for index in node.indices)
    return any(map(is_gather, node.args))


def indicator_mask(factor: Expr) -> Where | None:
    """The mask of 1 and 0 that a factor is, or is a power of; else None."""
    base = factor.base if factor.is_Pow and factor.exp.is_positive else factor
    return base if isinstance(base, Where) and set(base.args[1:]) == {S.Zero, S.One} else None


def _reduce(self: Evaluator, node: Reduce) -> Any:
    from redalg.definition.reductions import reduction_value

    return reduction_value(self, node)


RULES: tuple[tuple[Any, Any], ...] = (
    (Axis, Evaluator.axis),
    (Extent, lambda self, node: self.constant(int(self.sizes[node.name]))),
    (Scalar, lambda self, node: self.constant(float(self.scalars[node.name]))),
    (Element, Evaluator.element), (Reduce, _reduce), (Add, Evaluator.add), (Mul, Evaluator.mul),
    (exp, Evaluator.exponential), (Pow, Evaluator.power), (Where, Evaluator.choose), (Piecewise, Evaluator.cases),
    (Relational, Evaluator.relation), ((And, Or), Evaluator.all_of),
    (Not, lambda self, node: ~self(node.args[0])),
    ((type(S.true), type(S.false)), lambda self, node: self.constant(bool(node))),
    (Cast, Evaluator.cast), (Let, lambda self, node: self(node.expr)), (floor, Evaluator.floor_of),
    (StraightThrough, lambda self, node: self.library.through(self(node.value), self(node.source))),
    (Mod, Evaluator.modulo), ((Max, Min), Evaluator.extremum), (Expr, Evaluator.function),
)  # fmt: skip
