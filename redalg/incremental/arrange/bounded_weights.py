"""Weights that are at most 1 without a pivot: their exponents have a known sign.

    out = exp(q·m)·a, a = Σ exp(q·(u − m))·f, m = max u     →     out = a, a = Σ exp(q·u)·f        where q·u ≤ 0

Exact, since a sum may have any pivot. Nothing overflows about 0. A result below the range is lost either way, since the
pivot multiplies it: so each such sum stands beside exp(q·m) alone. In a ratio of sums, or a logarithm, the pivot stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sympy import Expr, Mul, S, exp, preorder_traversal

from redalg.decompose.separate.signs import sign_of
from redalg.expression import Let, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.infinite import may_mask
from redalg.incremental.combine.lines import is_below_all
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy
from redalg.incremental.mapped import mapped_output

AT_MOST_ZERO = ("nonpositive", "negative")


def drop_bounded_pivots(form: FusedForm) -> FusedForm:
    """The form without the pivots whose weights are at most 1 about 0, if its results do not need them."""
    for pivot in form.pivots:
        if is_bounded(pivot, form) and (finished := without_pivot(pivot, form)) is not None:
            return drop_bounded_pivots(finished)
    return form


def is_bounded(pivot: Pivot, form: FusedForm) -> bool:
    """Tell if a pivot scales exponentials of at most 0, and nothing else is found from it."""
    if pivot.policy is not PivotPolicy.RUNNING or pivot.scales or pivot.onto or values_of(pivot.base):
        return False
    powers = {q for one in form.accumulators for other, q in one.weight if other == pivot}
    others = any(pivot.value in values_of(other.source) for other in form.pivots if other != pivot)
    within = any(pivot.value in values_of(factor) for one in form.accumulators for factor in one.factors)
    moves = any(values_of(c) for one in form.accumulators if has_weight(one, pivot) for _, c in one.transition)
    if not powers or others or within or moves or pivot.magnitude is not None:
        return False
    return all(sign_of(q * pivot.base, {}) in AT_MOST_ZERO for q in powers)


def has_weight(accumulator: Accumulator, pivot: Pivot) -> bool:
    """Tell if a sum's terms are scaled by a pivot."""
    return any(other == pivot for other, _ in accumulator.weight)


def without_pivot(pivot: Pivot, form: FusedForm) -> FusedForm | None:
    """The form with a pivot's weights taken about 0; None if a result needs the pivot."""
    powers = {one.value: q for one in form.accumulators for other, q in one.weight if other == pivot}
    exprs = [*(one.expr for one in form.assignments), *(one.expr for one in form.outputs)]
    changes = {node: other for expr in exprs for node, other in scaled_sums(expr, pivot, powers)}
    nothing = dict.fromkeys(changes, S.Zero)
    if any(values_of(expr.xreplace(nothing)) & {*powers, pivot.source} for expr in exprs):
        return None
    return replace(
        form,
        pivots=tuple(one for one in form.pivots if one != pivot),
        accumulators=tuple(without_weight(one, pivot) for one in form.accumulators),
        assignments=tuple(replace(one, expr=one.expr.xreplace(changes)) for one in form.assignments),
        outputs=tuple(mapped_output(one, lambda node: node.xreplace(changes)) for one in form.outputs),
    )


def scaled_sums(expr: Expr, pivot: Pivot, powers: Mapping[Value, Expr]) -> Iterator[tuple[Expr, Expr]]:
    """Yield the products exp(q·m)·a·… of an expression, and each without exp(q·m)."""
    for node in preorder_traversal(expr):
        if not isinstance(node, Mul):
            continue
        for value, q in powers.items():
            scale = exp(q * pivot.source)
            if value not in node.args or scale not in node.args:
                continue
            if not values_of(node / (scale * value)) & {*powers, pivot.source}:
                yield node, node / scale


def without_weight(accumulator: Accumulator, pivot: Pivot) -> Accumulator:
    """A sum whose terms have the weight exp(q·u) as a factor, in place of a weight about a pivot."""
    if not has_weight(accumulator, pivot):
        return accumulator
    [q] = [q for other, q in accumulator.weight if other == pivot]
    rest = tuple((other, power) for other, power in accumulator.weight if other != pivot)
    first, *others = accumulator.factors
    exponent = Let("exponent", q * pivot.base)  # one number, which SymPy does not take for −∞
    if first is not S.One and may_mask(pivot.base):
        first = Where(is_below_all(exponent), S.Zero, first)  # 0 · f is 0, whatever the factor is
    return replace(accumulator, weight=rest, factors=(exp(exponent) * first, *others))
