"""The degree of an expression in some of its parts: f(λx) = λᵖ·f(x) for every positive λ.

degree(f·g) = degree f + degree g;   degree(fᵃ) = a·degree f;   degree(f + g) if both have the same;   0 of a number
0 and ±∞ have any;  where(c, f, g) as f + g, if c compares with 0 or ±∞ or holds no such part
0 of every function of what has the degree 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import final

from sympy import Abs, Add, Expr, Function, Max, Min, Mul, Pow, S, preorder_traversal
from sympy.core.basic import Basic

from redalg.expression.nodes import Where

UNMOVED = (S.Zero, S.Infinity, S.NegativeInfinity)
"""The numbers that a positive factor leaves as they are."""
ANY = S.Infinity
"""The degree of these."""
SAME = (Add, Max, Min, Abs)
"""Nodes that have the degree of their arguments."""


@final
class NoDegreeError(Exception):
    """A common factor changes an expression in another way than by a power."""


def degree_of(node: Basic, part: Callable[[Basic], Expr | None], same: tuple[type, ...] = ()) -> Expr:
    """The degree of an expression, in parts whose degrees are given.

    Args:
        node: the expression.
        part: the degree of a part; None of what is no part.
        same: further nodes that have the degree of their arguments.

    Raises:
        NoDegreeError: there is none.
    """
    known = part(node)
    if known is not None:
        return known
    if node in UNMOVED:
        return ANY
    if not any(part(inner) for inner in preorder_traversal(node)):
        return S.Zero
    if isinstance(node, Mul):
        return sum((degree_of(one, part, same) for one in node.args), S.Zero)
    if isinstance(node, Pow) and not any(part(inner) for inner in preorder_traversal(node.exp)):
        return degree_of(node.base, part, same) * node.exp
    if type(node) in (*SAME, *same):
        return _same(degree_of(one, part, same) for one in node.args if isinstance(one, Expr))
    if isinstance(node, Where) and _is_unmoved(node.args[0], part):
        return _same(degree_of(one, part, same) for one in node.args[1:])
    if isinstance(node, Function) and all(degree_of(one, part, same) == 0 for one in node.args):
        return S.Zero
    raise NoDegreeError


def _is_unmoved(condition: Basic, part: Callable[[Basic], Expr | None]) -> bool:
    """Tell if a positive factor changes no condition: it compares with 0 or ±∞."""
    if not any(part(inner) for inner in preorder_traversal(condition)):
        return True
    return len(condition.args) == 2 and condition.args[1] in UNMOVED


def _same(degrees: Iterable[Expr]) -> Expr:
    """The degree that all terms have."""
    return reduce(_both, degrees, ANY)


def _both(a: Expr, b: Expr) -> Expr:
    if ANY in (a, b):
        return b if a == ANY else a
    if a != b:
        raise NoDegreeError
    return a
