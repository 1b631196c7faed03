"""Outputs that carry a reduced axis: x beside the finished values, without what a second pass would lose in rounding.

    log(exp(u)·v) → u + log v                  exact; exp(u) may be 0 or overflow where u is finite
    exp(u(x))·exp(λ)·v → exp(u + λ)·v          exact; λ is what a value kept back of its pivots (`resolve`)
    q·u(x) + v(d) → q·(u − c) + δ              c the pivot that u has in the state; δ = v + q·c, from which c cancels
                  → m·(q·(u/m − c) + δ)        of u that is divided by a magnitude m first; δ = v/m + q·c

    q·u − q·m + … → q·(u − m) + …              exact; m the extremum of u; the difference is rounded at its own size

The third is why (x − mean)·rsqrt(var) has digits where x is far from 0: x − c is exact near c, and δ is the sum of
residuals that the state holds, whereas the mean itself is rounded at the size of x.
"""

from __future__ import annotations

from typing import Any

from sympy import Add, Expr, Mul

from redalg.decompose.separate.theorems import X
from redalg.expression import Let, Value
from redalg.expression.rebuild import with_args
from redalg.incremental.derive.resolve import Resolver


def second_pass_expression(expr: Expr, resolver: Resolver) -> Expr:
    """The expression of an output that carries a reduced axis, as the second pass evaluates it."""
    return pair_with_pivots(resolver.output_expr(shift_sums(expr, resolver)), resolver)


def shift_sums(node: Any, resolver: Resolver) -> Any:
    """Every sum of a pivoted u(x) and of values, taken about the pivot (see the module)."""
    if not resolver.carries(node) or isinstance(node, Value) or not node.args:
        return node
    if isinstance(node, Add) and (shift := _about_pivot(node, resolver)) is not None:
        return shift
    args = [shift_sums(arg, resolver) for arg in node.args]
    return with_args(node, args)


def _about_pivot(node: Add, resolver: Resolver) -> Expr | None:
    of_x = [term for term in node.args if resolver.side(term) == X]
    of_d = [term for term in node.args if not resolver.carries(term)]
    if not of_x or not of_d or len(of_x) + len(of_d) < len(node.args):
        return None
    u, v = Add(*of_x), Add(*of_d)
    for pivot in resolver.placement.pivots.values():
        factor = u / pivot.base
        composite = bool(pivot.scales) and pivot.magnitude is None
        if not pivot.has_slot or pivot.slopes or composite or not factor.is_Rational:
            continue
        if (delta := resolver.carried_displacement(pivot, factor, v)) is not None:
            result = factor * pivot.about(pivot.value) + delta
            return result if pivot.magnitude is None else Mul(pivot.magnitude.value, result)
    return None


def pair_with_pivots(node: Any, resolver: Resolver) -> Any:
    """q·u − q·m + … → q·(u − m) + …, m the extremum that pivots u: their difference is rounded at its own size."""
    if not resolver.carries(node) or isinstance(node, Value | Let) or not node.args:
        return node
    args = [pair_with_pivots(arg, resolver) for arg in node.args]
    node = with_args(node, args)
    if not isinstance(node, Add) or len(node.args) < 3:
        return node
    u = Add(*(term for term in node.args if resolver.side(term) == X))
    for pivot in resolver.placement.pivots.values():
        factor = u / pivot.base
        if not pivot.has_slot and factor.is_Rational and -factor * pivot.source in node.args:
            rest = [term for term in node.args if resolver.side(term) != X and term != -factor * pivot.source]
            return Add(factor * pivot.about(pivot.source), *rest)
    return node
