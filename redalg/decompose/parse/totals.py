"""Terms that read how many elements there are beside where an element stands: N is then known at the call.

    f(x, Σ1) → f(x, |n|)     f a condition, a kink, a jump, a power or a function of x and of no value but the count

Exact. The count of a stream is known last, so that it is a value, d, wherever the term separates. Where it does not, as
in n + 1 < N, |N − n| or cos(2πn/N), the total is a parameter instead: a call knows it, and a leaf is given it by
`extents=`. In what is summed or multiplied, sums and products are looked into, so that a mean beside such a condition
stays a ratio of what is summed; an extremum of n/N − x is of the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sympy import Expr, Integer, Mul, S
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import with_domain
from redalg.expression import Axis, Extent, Value
from redalg.expression.contents import free_axes, values_of
from redalg.expression.rebuild import with_args


def with_known_total(cascade: Cascade, reduction: Reduction) -> Cascade | None:
    """The cascade with the total for the count in a reduction's term (see the module); None where nothing changes."""
    count = next((one.value for one in cascade.reductions if one.is_count), None)
    if count is None or count not in values_of(reduction.term):
        return None
    known = frozenset(cascade.values)
    inside = reduction.monoid.name in ("sum", "prod")
    term = _replace_count(reduction.term, count, known, cascade.reduced_axes, inside=inside)
    if term == reduction.term:
        return None
    changed = tuple(replace(one, term=term) if one is reduction else one for one in cascade.reductions)
    used = {value for one in changed for value in values_of(one.term)}
    used |= {value for one in cascade.outputs for value in values_of(one.expr)}
    has_power = any(one.monoid.name == "prod" and values_of(one.term) for one in changed)  # Π g·h = (Π g)·h^n
    reductions = tuple(one for one in changed if one.value != count or count in used or has_power)
    return with_domain(replace(cascade, reductions=reductions, domain=S.true))


def total_of(reduced: Sequence[Axis]) -> Expr:
    """The number of elements over the reduced axes, as the product of their extents."""
    return Mul(*(Extent(axis.name) if axis.size is None else Integer(axis.size) for axis in reduced))


def _replace_count(
    node: Basic, count: Value, known: frozenset[Value], reduced: Sequence[Axis], *, inside: bool
) -> Basic:
    if count not in values_of(node):
        return node
    of_x = not free_axes(node).isdisjoint(reduced)
    opened = inside and isinstance(node, Expr) and (node.is_Add or node.is_Mul or (node.is_Pow and _is_natural(node)))
    if of_x and not opened and values_of(node) & known == {count}:
        return node.xreplace({count: total_of(reduced)})
    return with_args(node, [_replace_count(arg, count, known, reduced, inside=inside) for arg in node.args])


def _is_natural(node: Expr) -> bool:
    return bool(node.exp.is_Integer and node.exp.is_positive)
