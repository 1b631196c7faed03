"""Values that cancel in a result of an extremum, or in a finished sum: a NaN or an infinity does not cancel.

    max (u − max u)        → where(max u is finite, 0, NaN)
    max exp(u − max u)     → where(max u is finite, 1, 0), and NaN of a NaN         exp(u + v) is 0 where u or v is −∞
    max u/max u            → where(max u is finite and not 0, 1, NaN)
    Σ (w/Σ w)·v(d)         → where(Σ w is finite and not 0, v(d), NaN)
    Σ max(u − max u, 0)    → where(max u is finite, 0, NaN)

No condition is asked of a value that shows in another value that stays, or that a sum still divides by, or that stands
in exponents, conditions and choices alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sympy import Abs, Add, And, Expr, Max, Min, Mul, Ne, Pow, S, exp, log
from sympy.logic.boolalg import Boolean

from redalg.decompose.extrema.extremal import Extremal
from redalg.decompose.separate.plain import is_finite, is_number
from redalg.decompose.separate.signs import Facts
from redalg.expression import UNDEFINED, Element, Value, Where
from redalg.expression.contents import elements_of, is_indicator, of_kind, sympy_text, values_of
from redalg.expression.rebuild import replace_nodes
from redalg.incremental.derive.selected import operands_of
from redalg.incremental.form import Assignment, FusedForm


def where_kept(final: Expr, form: Extremal, named: Mapping[Expr, Value], facts: Facts) -> Expr:
    """`final`, which is `form.final` with slots named, if the values that vanished from it are finite."""
    left = values_of(final)
    elements = frozenset().union(*(operands_of(one, facts) for one in left))
    gone = (values_of(form.final) & set(named.values())) - left
    for value in sorted((one for one in gone if not operands_of(one, facts) <= elements), key=sympy_text):
        symbols = [symbol for symbol, one in named.items() if one == value]
        divided = any(one.is_Pow and one.exp.is_negative and one.base.has(value) for one in of_kind(Expr, form.final))
        usual = And(is_finite(value), Ne(value, 0)) if divided else is_finite(value)
        final = Where(usual, final, Where(is_number(value), _at_infinity(form, symbols, named), UNDEFINED))
    return final


def _at_infinity(form: Extremal, symbols: list[Expr], named: Mapping[Expr, Value]) -> Expr:
    """The result with exponentials of vanished values at 0; NaN if these values stand elsewhere too."""
    powers = {one: S.Zero for one in form.final.atoms(exp) if one.has(*symbols)}
    rest = form.final.xreplace(powers)
    return UNDEFINED if rest.has(*symbols) else replace_nodes(rest, named)


# ---- finished sums ---------------------------------------------------------------------------------------------------


def sums_kept(
    assignments: Sequence[Assignment], form: FusedForm, facts: Facts, safe: Mapping[Value, Value]
) -> tuple[Assignment, ...]:
    """The assignments of `finish`, of which a sum is NaN if a value that it lost is not finite, or is 0 as a divisor.

    Args:
        assignments: in order.
        form: the form whose reductions they finish from its slots.
        facts: what each value is.
        safe: v of the values that are exp(λ)·v: v is in range, while they need not be.
    """
    kinds = {one.value: one.monoid.name for one in form.cascade.reductions}
    terms = {one.value: one.term for one in form.cascade.reductions if one.monoid.name == "sum"}
    counts = {one.value for one in form.cascade.reductions if one.is_count}
    elements = {one.value: elements_of(one.term) for one in form.accumulators}
    elements |= {one.value: elements_of(one.term) for one in form.extrema}
    slots = {one.value: one.expr for one in assignments if isinstance(one.expr, Value)}
    read, below, result = dict[Value, frozenset[Value]](), dict[Value, frozenset[Value]](), list[Assignment]()
    for assignment in assignments:
        expr = assignment.expr.xreplace(slots)
        divisors = [node.args[0] for node in of_kind(Pow, expr) if node.exp.is_negative]
        divisors += [node.args[0] for node in of_kind(log, expr)]
        read[assignment.value] = _slots(expr, read)
        below[assignment.value] = frozenset().union(
            *(_slots(node, read) for node in divisors), *(below.get(value, ()) for value in values_of(expr))
        )
        conditions = list[Boolean]()
        is_asked = isinstance(assignment.expr, Where) and assignment.expr.args[1] is S.NaN  # of a scale that is 0
        for value, divides in () if is_asked else sorted(_operands(terms.get(assignment.value, S.Zero)), key=str):
            if divides:
                is_lost = _slots(value, read).isdisjoint(below[assignment.value])
            else:
                own = frozenset().union(*(elements.get(slot, ()) for slot in read[assignment.value]))
                is_lost = not of_kind(Element, *operands_of(value, facts)) <= own
            if is_lost and value in kinds.keys() - counts:
                conditions.append(_usual(safe.get(value, value), kinds[value], divides=divides))
        result.append(replace(assignment, expr=_where(And(*conditions), assignment.expr)) if conditions else assignment)
    return tuple(result)


def _usual(value: Value, kind: str, *, divides: bool) -> Boolean:
    """The condition that a value cancels; the extremum of no element does, as a sum of no element is 0."""
    if divides:
        return And(is_finite(value), Ne(value, 0))
    return value < S.Infinity if kind == "max" else value > S.NegativeInfinity if kind == "min" else is_finite(value)


def _slots(expr: Expr, read: Mapping[Value, frozenset[Value]]) -> frozenset[Value]:
    """The slots that an expression is made of."""
    return frozenset().union(*(read.get(value, {value}) for value in values_of(expr)))


def _where(condition: Boolean, expr: Expr) -> Expr:
    """The expression, NaN if a condition fails; its value for no element stays as it is."""
    if isinstance(expr, Where) and expr.args[2] is S.Zero:
        return Where(expr.condition, _where(condition, expr.args[1]), S.Zero)
    return Where(condition, expr, UNDEFINED)


def _operands(term: Expr) -> Iterator[tuple[Value, bool]]:
    """The values that every summand is computed with, and if it divides by them; none under a mask."""
    for part in Add.make_args(term):
        factors = Mul.make_args(part)
        for factor in factors if not any(map(is_indicator, factors)) else ():
            base = factor.args[0] if isinstance(factor, Pow) else factor
            if isinstance(factor, Pow) and factor.exp.is_negative:
                yield from ((base, True) for _ in range(isinstance(base, Value)))
            elif isinstance(base, Value):
                yield base, False
            elif isinstance(base, Max | Min | Abs | Add):
                yield from (one for arg in base.args for one in _operands(arg) if not one[1])
