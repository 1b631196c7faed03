"""Derivatives of what ⊕ joins at the maximum of u, below it, or beside the first place of it.

    joined where             u = max_B u of ⊕_at_max, u ≠ max_B u of ⊕_below_max, n ≠ argmax_B u of ⊕_beside_argmax
    d = Σ of w               w̄ = where(joined, d̄, 0)                  ḋ = Σ of ẇ, and so of at_argmax
    d = max of w             w̄ = where(joined and w = d, d̄ / ties, 0)  ḋ = Σ_{joined, w = d} ẇ / ties;  min alike

Where an element is joined is constant nearly everywhere: u has no derivative. If max u is NaN, nothing is at it and all
is below it, as PyTorch compares.
"""

from __future__ import annotations

from sympy import And, Eq, Expr, Max, Ne, S, Tuple, oo
from sympy.logic.boolalg import Boolean

from redalg.expression import Reduce, Where, sum_at_max
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.gradient.rules import times
from redalg.monoids.attained import ATTAINED

CHOSEN = {one.name for one in ATTAINED}
"""Kinds whose elements are chosen by a threshold of u."""


def threshold_of(node: Reduce) -> Reduce:
    """max u or argmax u, by which the elements that are joined are told."""
    value, _ = node.operands
    return Reduce("argmax", value, node.args[2]) if node.kind.endswith("_argmax") else max_over(value, *node.bound)


def adjoint_of_weight(node: Reduce, g: Expr) -> Expr:
    """The adjoint of w at an element, of that of the reduction."""
    joined, [_, weight] = _joins(node), node.operands
    if not _is_extremum(node):
        return Where(joined, g, S.Zero)
    met = And(joined, Eq(weight, node))
    ties = sum_over(Where(met, S.One, S.Zero), *node.bound)
    return Where(met, times(g, 1 / Max(ties, 1)), S.Zero)


def tangent_of_weight(node: Reduce, own: Expr) -> Expr:
    """The tangent of the reduction, of that of w.

    One reduction finds the extremum and its terms: if they were computed apart, roundings would decide where it is.
    """
    value, weight = node.operands
    if not _is_extremum(node):
        return node.rebuilt(Tuple(value, own), node.bound)
    joined = _joins(node)
    key = Where(joined, -weight if node.kind.startswith("min") else weight, -oo)
    total, ties = (sum_at_max(key, Where(joined, one, S.Zero), *node.bound) for one in (own, S.One))
    return total / Max(ties, 1)


def _is_extremum(node: Reduce) -> bool:
    return node.kind.startswith(("max_", "min_"))


def _joins(node: Reduce) -> Boolean:
    """The condition under which an element is joined."""
    threshold = threshold_of(node)
    own = node.bound[0] if threshold.kind == "argmax" else node.operands[0]
    return (Ne if "_below_" in node.kind or "_beside_" in node.kind else Eq)(own, threshold)
