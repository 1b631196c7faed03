"""The tensors that meet in a product of matrices, as it is written.

Σ_k A[i, k]·B[k, j]·f    A and B: each has the summed axis, and an axis that the other factors lack
Σ_n x[b, n]·w[n]         none: a weighted sum of rows
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Add, Expr, Mul
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression.axis import Axis
from redalg.expression.contents import free_axes
from redalg.expression.nodes import Let, Where
from redalg.expression.reduce import Reduce
from redalg.expression.straight_through import StraightThrough
from redalg.expression.tensor import Element


def multiplied_tensors(exprs: Iterable[Expr]) -> frozenset[str]:
    """The names of the tensors that stand as operands of products of matrices, and nowhere else.

    >>> from redalg import axes, sum, tensors
    >>> from sympy import exp
    >>> d, k = axes("d k")
    >>> Q, K, V, bias = tensors("Q[q,d] K[k,d] V[k,e] bias[q,k]")
    >>> sorted(multiplied_tensors([sum(exp(sum(Q * K, d) + bias) * V, k)]))
    ['K', 'Q', 'V']
    >>> x, w = tensors("x[b,n] w[n]")
    >>> sorted(multiplied_tensors([sum(x * w, axes("n"))]))
    []
    """
    operands, others = set[str](), set[str]()
    visited = set[tuple[Basic, frozenset[Axis]]]()

    def visit(node: Basic, summed: frozenset[Axis]) -> None:
        """Note the elements of a node; `summed` are the axes of the sum whose term it is, if it is one."""
        if (node, summed) in visited:
            return
        visited.add((node, summed))
        if isinstance(node, Element):
            others.add(node.name)
        if isinstance(node, StraightThrough):
            visit(node.value, summed)
        elif isinstance(node, Reduce) and node.kind == "sum":
            visit(node.expr, frozenset(node.bound))
        elif summed and isinstance(node, Add | Let | Where):
            for arg in node.args:
                visit(arg, NONE if isinstance(arg, Boolean) else summed)
        else:
            factors = Mul.make_args(node) if summed else ()
            found = {place for place in range(len(factors)) if _is_operand(factors, place, summed)}
            operands.update(factors[place].name for place in found)
            for part in [one for place, one in enumerate(factors or node.args) if place not in found]:
                visit(part, NONE)

    for expr in exprs:
        visit(expr, NONE)
    return frozenset(operands - others)


NONE = frozenset[Axis]()


def _is_operand(factors: tuple[Expr, ...], place: int, summed: frozenset[Axis]) -> bool:
    """Tell if a factor is an element whose sum of products with the others is a product of matrices."""
    factor, others = factors[place], factors[:place] + factors[place + 1 :]
    if not isinstance(factor, Element):
        return False
    own, rest = free_axes(factor), NONE.union(*map(free_axes, others))
    return bool(own & rest & summed) and not own <= rest and not rest <= own
