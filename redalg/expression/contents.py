"""The contents of an expression, remembered node by node: a derivation asks the same of the same parts many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from sympy import Add, And, Function, Mul, Or, Pow, Rational, S, floor
from sympy.core.basic import Basic
from sympy.core.operations import LatticeOp

from redalg.expression.axis import Axis
from redalg.expression.nodes import Where
from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Element, Value

REMEMBERED = 1 << 15
"""Nodes for which the answer to each question is remembered."""
WHOLE = 1 << 10
"""Expressions of which all nodes are remembered."""
RECENT = 1 << 12
"""Nodes of which each answer is found by the object, before any equal one is looked for."""
N = TypeVar("N", bound=Basic)
T = TypeVar("T")


def by_identity(function: Callable[[Basic], T]) -> Callable[[Basic], T]:
    """The function with its last results found by the object: to find one by an equal tree compares all its nodes.

    The object is kept beside the result, so that no other has its `id`.
    """
    recent = dict[int, tuple[Basic, T]]()

    @wraps(function)
    def answer(node: Basic) -> T:
        pair = recent.get(id(node))
        if pair is None:
            pair = node, function(node)
            if len(recent) >= RECENT:
                recent.clear()
            recent[id(node)] = pair
        return pair[1]

    return answer


@by_identity
@lru_cache(WHOLE)
def nodes_of(expr: Basic) -> frozenset[Basic]:
    """Every node of an expression, once: a cascade is a graph, and its tree is many times larger.

    >>> from redalg import tensor
    >>> x = tensor("x[n]")
    >>> len(nodes_of(x + x**2)), len(list((x + x**2).atoms()))
    (6, 3)
    """
    nodes, todo = set[Basic](), [expr]
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes.add(node)
            todo += node.args
    return frozenset(nodes)


def of_kind(kind: type[N], *exprs: Basic) -> set[N]:
    """The nodes of a kind that stand in expressions."""
    return {node for expr in exprs for node in _kinds_of(expr, kind)}


_KINDS = dict[tuple[int, Any], tuple[Basic, frozenset[Any]]]()


def _kinds_of(expr: Basic, kind: type[N]) -> frozenset[N]:
    """The nodes of a kind that stand in one expression, found by the object as in `by_identity`."""
    pair = _KINDS.get((id(expr), kind))
    if pair is None:
        pair = expr, frozenset(node for node in nodes_of(expr) if isinstance(node, kind))
        if len(_KINDS) >= RECENT:
            _KINDS.clear()
        _KINDS[id(expr), kind] = pair
    return pair[1]


@by_identity
@lru_cache(REMEMBERED)
def sympy_text(expr: Basic) -> str:
    """An expression as SymPy prints it, by which things are put in order."""
    return str(expr)


@by_identity
@lru_cache(REMEMBERED)
def operations_of(node: Basic) -> int:
    """The number of operations of an expression, about as many as SymPy's `count_ops` finds in the whole tree.

    >>> from sympy import Symbol, exp
    >>> x, y = Symbol("x"), Symbol("y")
    >>> operations_of(exp(x) - x * y / 2), (exp(x) - x * y / 2).count_ops()
    (4, 4)
    """
    if isinstance(node, Rational):
        return int(node.p < 0) + int(node.q != 1)
    if isinstance(node, Mul):
        return _of_product(node)
    if isinstance(node, Add):
        leads = [one.args[0] if one.is_Mul else one for one in node.args]
        minus = [bool(one.is_Rational and one.p < 0) for one in leads]
        return len(minus) - 1 - sum(minus) + all(minus) + sum(map(operations_of, node.args))
    if isinstance(node, Pow) and node.exp is S.NegativeOne:
        return 1 + operations_of(node.base)
    own = len(node.args) - 1 if isinstance(node, LatticeOp) else int(isinstance(node, Pow | Function))
    return own + sum(map(operations_of, node.args))


@by_identity
@lru_cache(REMEMBERED)
def tree_size(node: Basic) -> float:
    """The number of nodes of an expression's tree, as SymPy counts them to put arguments in order.

    >>> from sympy import Symbol
    >>> tree_size(1 + Symbol("x") ** 2)
    5
    """
    return 0.5 if node.is_Float else 1 + sum(map(tree_size, node.args))


def _of_product(node: Mul) -> int:
    """The operations of a product: its sign, its division, and the products above and below."""
    coefficient, rest = node.as_coeff_Mul(rational=True)
    factors = Mul.make_args(rest)
    below = [one for one in factors if one.is_Pow and one.exp.is_Rational and one.exp.is_negative]
    above = [one for one in factors if one not in below]
    number = sum(map(operations_of, above)) + sum(operations_of(Pow(one.base, -one.exp)) for one in below)
    for side, own in ((above, abs(coefficient.p)), (below, coefficient.q)):
        number += max(len(side) + int(own != 1) - 1, 0)
    return number + int(coefficient.p < 0) + int(bool(below) or coefficient.q != 1)


@by_identity
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


@by_identity
@lru_cache(REMEMBERED)
def elements_of(node: Basic) -> frozenset[Element]:
    """The tensor elements that stand in an expression, in indices too."""
    own = frozenset((node,)) if isinstance(node, Element) else frozenset()
    return own.union(*map(elements_of, node.args))


@by_identity
@lru_cache(REMEMBERED)
def reductions_of(node: Basic) -> frozenset[Reduce]:
    """The reductions that stand in an expression, nested ones too."""
    own = frozenset((node,)) if isinstance(node, Reduce) else frozenset()
    return own.union(*map(reductions_of, node.args))


def inner_reductions(expr: Basic) -> set[Reduce]:
    """The reductions of an expression that others hold."""
    return {inner for outer in reductions_of(expr) for inner in reductions_of(outer.expr)}


def bound_axes(node: Basic) -> frozenset[Axis]:
    """The axes that an expression's reductions bind."""
    return frozenset(axis for one in reductions_of(node) for axis in one.bound)


@by_identity
@lru_cache(REMEMBERED)
def free_axes(node: Basic) -> frozenset[Axis]:
    """The axes on which an expression depends."""
    if isinstance(node, Axis):
        return frozenset((node,))
    if isinstance(node, Reduce):
        place = frozenset() if node.place is None else frozenset((node.place,))
        return (free_axes(node.expr) - frozenset(node.bound)) | place
    return frozenset().union(*map(free_axes, node.args))


def axes_by_name(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Axes in order of name: a canonical order if nothing else gives one."""
    return tuple(sorted(axes, key=lambda axis: str(axis.name)))


def is_plainly_indexed(element: Element) -> bool:
    """Tell if an element's indices are axes, each once."""
    return all(isinstance(one, Axis) for one in element.indices) and len({*element.indices}) == len(element.indices)


def guards_and_guarded(node: And | Or) -> tuple[tuple[Basic, ...], tuple[Basic, ...]]:
    """The conditions of a conjunction or disjunction that read no tensor at a computed place, and those that do.

    The second are read only where the first leave them open, as by the conditions of a mask within a mask:

    >>> import redalg as ra
    >>> n, x = ra.axes("n"), ra.Tensor("x")
    >>> guards_and_guarded(ra.logical_and(x[n] > x[n - 1], n >= 1))
    ((n >= 1,), (x[n] > x[n - 1],))
    """
    guarded = tuple(one for one in node.args if not all(element.is_plain for element in elements_of(one)))
    return tuple(one for one in node.args if one not in guarded), guarded


def quotient_of(index: Basic, axis: Axis) -> int:
    """Return g of an index ⌊axis / g⌋; 1 of any other index."""
    if isinstance(index, floor):
        above, below = index.args[0].as_numer_denom()
        if above == axis and below.is_Integer:
            return int(below)
    return 1


def is_indicator(node: Basic) -> bool:
    """Tell if a node is 1 where a condition holds and 0 elsewhere, or 0 where it holds and 1 elsewhere."""
    return isinstance(node, Where) and node.args[1:] in ((S.One, S.Zero), (S.Zero, S.One))
