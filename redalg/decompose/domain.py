"""The domain: the part of a cascade's masks outside which no element counts.

    where(c, a, b) → a, with `c` joined to the domain      exact where ¬c makes every term its monoid's identity

A term's value under ¬c is found in the small lattice {0, −∞, +∞, other}: exp(−∞ + anything) = 0, and 0·anything = 0
if the 0 is such a weight or a mask of 1 and 0 (`conventions`). Another 0 hides nothing: where(c, a, 0)·f is NaN
if f is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sympy import And, Expr, Max, Min, Mul, S, exp
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade
from redalg.expression import Where
from redalg.expression.contents import is_indicator, of_kind, values_of


def with_domain(cascade: Cascade) -> Cascade:
    """The cascade whose domain is the masks that rule out elements for every reduction."""
    reduced = set(cascade.values)
    scalars = [one for one in cascade.reductions if one.is_scalar]
    candidates = [node.condition for reduction in scalars for node in of_kind(Where, reduction.term)
                  if not values_of(node.condition) & reduced]  # fmt: skip
    masks = [c for c in dict.fromkeys(candidates) if all(
        collapse(reduction.term, c) == reduction.monoid.identity for reduction in scalars)]  # fmt: skip
    return replace(cascade, domain=And(*masks)) if masks else cascade


def live_term(term: Expr, domain: Boolean) -> Expr:
    """The term inside the domain, without the masks that the domain implies."""
    conditions = set(And.make_args(domain))
    masks: Mapping[Basic, Basic] = {
        node: node.args[1] for node in of_kind(Where, term) if set(And.make_args(node.condition)) <= conditions
    }
    return live_term(term.xreplace(dict(masks)), domain) if masks else term


def collapse(node: Basic, fails: Boolean) -> Expr | None:
    """0, −∞ or +∞ if the node has that value wherever `fails` is false; None if unknown."""
    memo: dict[Basic, Expr | None] = {}

    def visit(part: Basic) -> Expr | None:
        if part not in memo:
            memo[part] = _collapse(part, fails, visit)
        return memo[part]

    return visit(node)


def _collapse(node: Basic, fails: Boolean, collapsed: Callable[[Basic], Expr | None]) -> Expr | None:
    """The value of a node where `fails` is false, by that of its parts."""
    if node in (S.Zero, S.NegativeInfinity, S.Infinity):
        return node
    if isinstance(node, Where):
        a, b = map(collapsed, node.args[1:])
        return b if node.condition == fails or a == b else None
    parts = [collapsed(arg) for arg in node.args] if isinstance(node, Expr) else []
    if isinstance(node, exp):
        return S.Zero if parts[0] is S.NegativeInfinity else None
    if node.is_Mul:
        return _product(node, parts)
    if node.is_Add:
        return _sum(parts)
    if node.is_Pow:
        return S.Zero if parts[0] is S.Zero and node.exp.is_positive else None
    if isinstance(node, Max | Min):
        return parts[0] if len(set(parts)) == 1 else None
    return None


def _product(node: Mul, parts: list[Expr | None]) -> Expr | None:
    if any(part is S.Zero and _hides(arg) for arg, part in zip(node.args, parts, strict=True)):
        return S.Zero
    if S.Zero in parts:
        rest = (arg for arg, part in zip(node.args, parts, strict=True) if part is not S.Zero)
        return S.Zero if all(arg.is_number or is_indicator(arg) for arg in rest) else None
    infinite = [part for part in parts if part is not None]
    others = [arg for arg, part in zip(node.args, parts, strict=True) if part is None]
    if len(infinite) != 1 or not all(arg.is_extended_positive or arg.is_extended_negative for arg in others):
        return None
    flips = sum(bool(arg.is_extended_negative) for arg in others)
    return infinite[0] if flips % 2 == 0 else -infinite[0]


def _hides(factor: Expr) -> bool:
    """Tell if a factor that is 0 hides the factors beside it."""
    if factor.is_Mul or factor.is_Pow:
        return any(map(_hides, factor.args if factor.is_Mul else factor.args[:1]))
    return isinstance(factor, exp) or is_indicator(factor)


def _sum(parts: list[Expr | None]) -> Expr | None:
    if all(part is S.Zero for part in parts):
        return S.Zero
    infinite = {part for part in parts if part is not None and part is not S.Zero}
    return infinite.pop() if len(infinite) == 1 else None
