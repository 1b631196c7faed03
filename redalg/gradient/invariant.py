"""Extrema on which no output depends: pivots, which have no gradient.

    o[m := π] is fused, and holds no π any more   ⇒   o is the same for every π, so that ∂o/∂m = 0
    o[m := π] holds π in e^(u + c·π) = e^u·Tᶜ alone, and has the degree 0 in T = e^π   ⇒   the same
    o holds m in Max(m, t) alone, and is the same for every π in its place             ⇒   the same

The engine derives forms by ring identities, e^u·e^v = e^(u + v) and log(e^u·r) = u + log r. A form without π is a proof
of them. The degree proves what a form does not cancel: a ratio whose denominator has terms beside a sum, as in
Σ e^(s − π)·v / (Σ e^(s − π) + e^(t − π)); and the largest shares of a row, whose order a positive factor leaves:
topk(T·u) = T·topk(u), at the same places. Where neither proves it, the extremum is differentiated. So is one within
`straight_through`, whose derivative is none of what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sympy import Add, Dummy, Expr, Max, Min, Mul, S, exp
from sympy.core.basic import Basic

from redalg.decompose.parse.axes import outermost_reductions
from redalg.errors import RedalgError
from redalg.expression import Reduce, Scalar, StraightThrough
from redalg.expression.contents import axes_by_name, free_axes, nodes_of, of_kind, reductions_of
from redalg.expression.degrees import NoDegreeError, degree_of
from redalg.expression.rebuild import replace_nodes, with_args
from redalg.gradient.stage import axes_text

PIVOT = Scalar("pivot_of_the_proof", real=True)
POWER = Scalar("power_of_the_proof", positive=True)
"""T = e^π."""
EXTREMA = ("max", "min")
CHOICES = ("topk", "argmax", "argmin")
"""Kinds that select elements by their order: of a positive multiple of them the multiples, at the same places."""
INVARIANT = "No output depends on it: their forms are the same with any number in its place."


def pivots_among(reductions: Iterable[Reduce], outputs: Sequence[tuple[Expr, str]],
                 fuse: Callable[..., Any]) -> tuple[Reduce, ...]:  # fmt: skip
    """The extrema that are proved to have no derivative, of outputs (expression, axes)."""
    return tuple(one for one in reductions if one.kind in EXTREMA and is_invariant(one, outputs, fuse))


def is_invariant(extremum: Reduce, outputs: Iterable[tuple[Expr, str]], fuse: Callable[..., Any]) -> bool:
    """Tell if outputs (expression, axes) are proved not to depend on an extremum."""
    holding = [part for expr, axes in outputs if extremum in nodes_of(expr) for part in _of_rows(extremum, expr, axes)]
    if any(extremum in nodes_of(one) for expr, _ in holding for one in of_kind(StraightThrough, expr)):
        return False
    told = ((replace_nodes(expr, {_with_neighbours(extremum, expr): PIVOT}), axes) for expr, axes in holding)
    return all(_has_no_degree(expr) or _is_free(expr, axes, fuse) for expr, axes in told)


def _with_neighbours(extremum: Reduce, expr: Expr) -> Expr:
    """Max(m, t) if an expression holds the extremum m in it alone, as it is where t is a term beside a sum; else m."""
    around = {node for node in of_kind(Max, expr) | of_kind(Min, expr) if extremum in node.args}
    if len(around) != 1:
        return extremum
    [whole] = around
    rows = free_axes(whole) <= free_axes(extremum)
    return whole if rows and extremum not in nodes_of(replace_nodes(expr, {whole: PIVOT})) else extremum


def _of_rows(extremum: Reduce, expr: Expr, axes: str) -> Iterator[tuple[Expr, str]]:
    """Yield the expressions, with their axes, on which an expression depends through an extremum.

    A sum over rows, of which each has an extremum of its own, depends on it through what it sums.
    """
    tops = {top: Dummy() for top in outermost_reductions(expr) if extremum in nodes_of(top)}
    rows = all({*top.bound} <= free_axes(extremum) for top in tops)
    if not rows or extremum in nodes_of(replace_nodes(expr, tops)):
        yield expr, axes
        return
    for top in tops:
        yield from _of_rows(extremum, top.expr, axes_text(axes_by_name(free_axes(top.expr))))


def _has_no_degree(expr: Expr) -> bool:
    """Tell if an expression has the degree 0 in e^π, and holds π nowhere else."""
    told = _with_powers(expr)
    within = (one for one in reductions_of(told) if POWER in nodes_of(one))
    if PIVOT in nodes_of(told) or any(one.kind not in ("sum", "max", "min", *CHOICES) for one in within):
        return False
    try:
        return degree_of(told, _degree_of_part, (Reduce,)) == 0
    except NoDegreeError:
        return False


def _degree_of_part(node: Basic) -> Expr | None:
    """The degree of e^π, of elements that are selected by their order, and of their places."""
    if not isinstance(node, Reduce) or node.kind not in CHOICES:
        return S.One if node == POWER else None
    degree = degree_of(node.expr, _degree_of_part, (Reduce,))
    return degree if node.kind == "topk" and node.result != "indices" else S.Zero


def _with_powers(node: Basic) -> Expr:
    """An expression with e^u·Tᶜ for e^(u + c·π), for every number c."""
    if PIVOT not in nodes_of(node) or not node.args:
        return node
    args = [_with_powers(one) for one in node.args]
    if not isinstance(node, exp):
        return with_args(node, args)
    terms = [term.as_coeff_Mul() for term in Add.make_args(args[0])]
    rest = Add(*(Mul(*term) for term in terms if term[1] != PIVOT))
    return exp(rest) * POWER ** Add(*(factor for factor, term in terms if term == PIVOT))


def _is_free(expr: Expr, axes: str, fuse: Callable[..., Any]) -> bool:
    """Tell if the fused form of an expression lost the scalar that stands for a pivot.

    Producers are reduced as they are written: nothing cancels in them.
    """
    try:
        form = fuse(expr, axes, None).form
    except RedalgError:
        return False
    shown: list[Basic] = [*(one.expr for one in form.outputs), *(one.expr for one in form.assignments)]
    shown += [one.definition for one in form.cascade.producers]
    shown += [one.term for one in (*form.accumulators, *form.extrema, *form.structures)]
    shown += [part for pivot in form.pivots for part in (pivot.base, pivot.source)]
    return not any(PIVOT in nodes_of(one) for one in shown)
