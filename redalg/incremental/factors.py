"""Find the accumulators that are contractions: factors are grouped by the axes on which they depend.

A sum Σ_k f(q,k)·g(k,e) whose factors share no more than the reduced axis is a matrix product; the groups say so, to the
array backends and to lowering alike. A factor joins a group whose axes include its own.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from sympy import Expr, Mul, S

from redalg.expression import Axis
from redalg.expression.contents import free_axes, sympy_text, values_of
from redalg.incremental.form import Pivot

Group = tuple[AbstractSet[Axis], list[Expr]]


def group_factors(summand: Expr, weight: tuple[tuple[Pivot, Expr], ...]) -> tuple[Expr, ...]:
    """The summand's factors in groups, the first of which stands beside the weight (1 when it stands alone)."""
    if not summand.is_Mul and not weight:
        return (summand,)
    groups: list[Group] = [({a for pivot, _ in weight for a in free_axes(pivot.base)}, [S.One])] if weight else []
    factors = Mul.make_args(summand)
    for factor in sorted(factors, key=_order) if len(factors) > 1 else factors:
        axes = free_axes(factor)
        for others, group in groups:
            if axes <= others:
                group.append(factor)
                break
        else:
            groups.append((axes, [factor]))
    if weight:
        groups = _merge_weight(groups)
    return tuple(Mul(*factors) for _, factors in groups)


def _order(factor: Expr) -> tuple[bool, int, str]:
    """Sort key: computed factors before read ones, then the widest first; a later group is the one only loaded."""
    return not values_of(factor), -len(free_axes(factor)), sympy_text(factor)


def _merge_weight(groups: list[Group]) -> list[Group]:
    """Merge the weight into a group whose axes include its axes: together they are one elementwise tile."""
    axes, factors = groups[0]
    for other, extra in groups[1:]:
        if axes <= other:
            rest = [group for group in groups[1:] if group[0] is not other]
            return [(other, factors + extra), *rest]
    return groups
