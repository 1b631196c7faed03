"""A node with other arguments, as SymPy writes it.

f(b) is not evaluated where f(a) was, b is of the same kind as a, and no sign moves out of b.

What SymPy evaluates depends on the kinds of the arguments and on their signs. A value is as unknown to it as the
reduction in whose stead it stands, or the slot, so that it would find what it found before, at a cost that grows with
the arguments.
The order of terms may differ, and with it which of u and −u SymPy takes for the plain one: such a node is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sympy import Dummy, Expr, Function, Max, Min, Pow
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression.reduce import Reduce
from redalg.expression.tensor import Value


def with_args(node: Basic, args: Sequence[Basic]) -> Any:
    """The node with other arguments; the node itself where they are its own.

    >>> from sympy import Symbol, exp, log
    >>> x = Symbol("x")
    >>> with_args(exp(x), [log(x)])
    x
    """
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return node
    if isinstance(node, Function | Pow | Max | Min | Relational) and _evaluated_alike(node, args):
        return node.func(*args, evaluate=False)
    return node.func(*args)


def renamed(expr: Basic, names: Mapping[Any, Value]) -> Any:
    """The expression with values in the stead of reductions, slots or other values."""
    made: dict[Basic, Basic] = {}

    def visit(node: Basic) -> Basic:
        if node not in made:
            made[node] = names[node] if node in names else with_args(node, [visit(arg) for arg in node.args])
        return made[node]

    return visit(expr)


def _evaluated_alike(node: Basic, args: Sequence[Basic]) -> bool:
    return len(set(args)) == len(args) and all(map(_alike, node.args, args))


def _alike(old: Basic, new: Basic) -> bool:
    """Whether SymPy, which looks at an argument's head, evaluates a function of one as it did of the other."""
    if old is new or (isinstance(old, Reduce | Value | Dummy) and isinstance(new, Value)):
        return True
    same = new.func is old.func and len(new.args) == len(old.args) > 0
    return same and not (isinstance(new, Expr) and new.could_extract_minus_sign())
