"""The order in which the terms of a sum are added: elements and places, then values, then numbers.

Of a kind, added terms come before subtracted ones. Of x + v − m, an element, a value beside it and a stored number of
its row, m comes last: if m is the rounded maximum of x + v, the difference is 0 there, and not what m lost. Kernels add
in this order too.
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Expr

from redalg.expression import Axis, Element, Value
from redalg.expression.contents import free_axes


def addition_order(addends: Iterable[Expr]) -> list[Expr]:
    """The terms of a sum in the order in which they are added."""
    terms = sorted(addends, key=_kind_and_sign)
    values = [term for term in terms if term.has(Value)]
    axes = {axis for term in terms for axis in free_axes(term)}
    rows = [term for term in terms if isinstance(-term, Element) and free_axes(term) < axes]
    others = [term for term in terms if term not in rows]
    if len(rows) != 1 or others == values or any(term.could_extract_minus_sign() for term in values):
        return terms
    return [*others, *rows]


def _kind_and_sign(term: Expr) -> tuple[int, bool]:
    kind = 0 if term.has(Element, Axis) and not term.has(Value) else 1 if term.has(Value) else 2
    return kind, term.could_extract_minus_sign()
