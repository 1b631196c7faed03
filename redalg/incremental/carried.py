"""Outputs that carry a reduced axis: x beside the finished values, without what a second pass would lose in rounding.

    log(exp(u)·v) → u + log v                  exact; exp(u) may be 0 or overflow where u is finite
    exp(u(x))·exp(λ)·v → exp(u + λ)·v          exact; λ is what a value kept back of its pivots (`resolve`)
    q·u(x) + v(d) → q·(u − c) + δ              c the pivot that u has in the state; δ = v + q·c, from which c cancels

The last one is why (x − mean)·rsqrt(var) has digits where x is far from 0: x − c is exact near c, and δ is the sum of
residuals that the state holds, whereas the mean itself is rounded at the size of x.
"""

from __future__ import annotations

from typing import Any

from sympy import Add, Expr, S

from redalg.decompose.separate import X
from redalg.expression import Let, Value
from redalg.incremental.form import Pivot
from redalg.incremental.resolve import Resolver


def carried(expr: Expr, resolver: Resolver) -> Expr:
    """The expression of an output that carries a reduced axis, as the second pass evaluates it."""
    return resolver.finished(shifted(expr, resolver))


def shifted(node: Any, resolver: Resolver) -> Any:
    """Every sum of a pivoted u(x) and of values, taken about the pivot (see the module)."""
    if not resolver.carries(node) or isinstance(node, Value) or not node.args:
        return node
    if isinstance(node, Add) and (made := _about_pivot(node, resolver)) is not None:
        return made
    args = [shifted(arg, resolver) for arg in node.args]
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)


def _about_pivot(node: Add, resolver: Resolver) -> Expr | None:
    of_x = [term for term in node.args if resolver.side(term) == X]
    of_d = [term for term in node.args if not resolver.carries(term)]
    if not of_x or not of_d or len(of_x) + len(of_d) < len(node.args):
        return None
    u, v = Add(*of_x), Add(*of_d)
    for pivot in resolver.placement.pivots.values():
        factor = u / pivot.base
        if pivot.has_slot and not pivot.slopes and factor.is_Rational and (delta := resolver.displaced(pivot, factor, v)) is not None:
            return factor * about(pivot) + delta
    return None


def about(pivot: Pivot) -> Expr:
    """u − c under one node, so that nothing else is added before it."""
    return Let(f"{pivot.value.name}_shifted", pivot.base - pivot.value) if pivot.base is not S.Zero else S.Zero
