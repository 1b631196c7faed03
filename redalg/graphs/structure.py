"""The structure of tensor expressions: their text with numbers in the place of names.

    exp_3: float32[8, 24]    exp_3[i0, i1] = exp(mm_3[i0, i1])     →   exp(·[i0, i1]) of (mm_3), …
    exp_7: float32[8, 24]    exp_7[i0, i1] = exp(mm_7[i0, i1])     →   exp(·[i0, i1]) of (mm_7), …

Statements of one structure compute one function of other tensors. A text is put together of the texts of a term's
parts, each of which is remembered: statements of a program share most of their parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sympy import srepr
from sympy.core.basic import Basic

from redalg.expression import Element
from redalg.expression.contents import REMEMBERED, by_identity
from redalg.graphs.program import TensorExpression, TensorType

Line = tuple[str, tuple[str, ...]]
"""A statement's text without names, and the tensors that stand in their places."""


def line_of(expression: TensorExpression, types: Mapping[str, TensorType]) -> Line:
    """The text of a statement, with the types of what it reads, and its tensors: those that it reads, and its own."""
    text, names = text_and_names(expression.term)
    tensors = tuple(dict.fromkeys(names))
    order = places_of_names(names, tensors)
    lengths = ", ".join(f"{axis} < {size}" for axis, size in expression.lengths)
    of_types = ", ".join(str(types[name]) for name in tensors)
    whole = f"{expression.type} {expression.axes} {lengths}: {text} of {order}, {of_types}"
    return whole, (*tensors, expression.name)


def places_of_names(names: Sequence[str], tensors: Sequence[str]) -> tuple[int, ...]:
    """The places of names among tensors."""
    places = {name: place for place, name in enumerate(tensors)}
    return tuple(places[name] for name in names)


@by_identity
@lru_cache(REMEMBERED)
def text_and_names(node: Basic) -> Line:
    """The text of a term with a dot for every tensor's name, and the names, in order of the dots.

    >>> from redalg import tensor
    >>> text_and_names(2 * tensor("x[n]"))
    ('Mul(2, ·(n))', ('x',))
    """
    if not node.args:
        return srepr(node) if node.is_Float else str(node), ()
    parts = [text_and_names(arg) for arg in (node.indices if isinstance(node, Element) else node.args)]
    head, own = ("·", (node.name,)) if isinstance(node, Element) else (type(node).__name__, ())
    names = (*own, *(name for _, inside in parts for name in inside))
    return f"{head}({', '.join(text for text, _ in parts)})", names
