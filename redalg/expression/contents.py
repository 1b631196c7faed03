"""What an expression holds, remembered node by node: a derivation asks the same of the same parts many times."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from sympy import S
from sympy.core.basic import Basic

from redalg.expression.axis import Axis
from redalg.expression.nodes import Where
from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Element, Value

REMEMBERED = 1 << 15
"""Nodes of which each question is remembered."""
WHOLE = 1 << 10
"""Expressions of which all nodes are remembered."""
N = TypeVar("N", bound=Basic)


@lru_cache(WHOLE)
def nodes_of(expr: Basic) -> frozenset[Basic]:
    """Every node of an expression, once: a cascade is a graph, of which the tree is many times larger.

    >>> from redalg import tensor
    >>> x = tensor("x[n]")
    >>> len(nodes_of(x + x**2)), len(list((x + x**2).atoms()))
    (6, 3)
    """
    found, todo = set[Basic](), [expr]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.args
    return frozenset(found)


def of_kind(kind: type[N], *exprs: Basic) -> set[N]:
    """The nodes of a kind that stand in expressions."""
    return {node for expr in exprs for node in nodes_of(expr) if isinstance(node, kind)}


@lru_cache(REMEMBERED)
def text_of(expr: Basic) -> str:
    """An expression as SymPy prints it, by which things are put in order."""
    return str(expr)


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


def bound_axes(node: Basic) -> frozenset[Axis]:
    """The axes that an expression's reductions bind."""
    return frozenset(axis for one in reductions_of(node) for axis in one.bound)


@lru_cache(REMEMBERED)
def free_axes(node: Basic) -> frozenset[Axis]:
    """The axes on which an expression depends."""
    if isinstance(node, Axis):
        return frozenset((node,))
    if isinstance(node, Reduce):
        place = frozenset() if node.place is None else frozenset((node.place,))
        return (free_axes(node.expr) - frozenset(node.bound)) | place
    return frozenset().union(*map(free_axes, node.args))


def is_indicator(node: Basic) -> bool:
    """Whether a node is 1 where a condition holds and 0 elsewhere, or 0 where it holds and 1 elsewhere."""
    return isinstance(node, Where) and node.args[1:] in ((S.One, S.Zero), (S.Zero, S.One))
