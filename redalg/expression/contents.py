"""What an expression holds, remembered node by node: a derivation asks the same of the same parts many times."""

from __future__ import annotations

from functools import lru_cache

from sympy.core.basic import Basic

from redalg.expression.axis import Axis
from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Element, Value

REMEMBERED = 1 << 15
"""Nodes of which each question is remembered."""


@lru_cache(REMEMBERED)
def values_of(node: Basic) -> frozenset[Value]:
    """The values that stand in an expression.

    >>> from redalg import tensor
    >>> values_of(tensor("x[b,n]"))
    frozenset()
    """
    if isinstance(node, Value):
        return frozenset((node,))
    return frozenset().union(*map(values_of, node.args))


@lru_cache(REMEMBERED)
def elements_of(node: Basic) -> frozenset[Element]:
    """The tensor elements that stand in an expression, in indices too."""
    own = frozenset((node,)) if isinstance(node, Element) else frozenset()
    return own.union(*map(elements_of, node.args))


@lru_cache(REMEMBERED)
def reductions_of(node: Basic) -> frozenset[Reduce]:
    """The reductions that stand in an expression, one in another too."""
    own = frozenset((node,)) if isinstance(node, Reduce) else frozenset()
    return own.union(*map(reductions_of, node.args))


@lru_cache(REMEMBERED)
def free_axes(node: Basic) -> frozenset[Axis]:
    """The axes on which an expression depends."""
    return frozenset(symbol for symbol in node.free_symbols if isinstance(symbol, Axis))
