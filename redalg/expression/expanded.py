"""Sums of products written out, node by node: of a graph each node is expanded once, and what it gives is remembered.

SymPy's `expand` goes through the whole tree several times, once for each of its hints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from math import comb, prod
from typing import Any

from sympy import Add, Expr, Mul, Pow, Symbol, exp, log
from sympy.core.basic import Basic

from redalg.expression.contents import REMEMBERED, of_kind
from redalg.expression.rebuild import with_args
from redalg.expression.tensor import Element, Value

HINTS = {"deep": True, "basic": True, "log": True, "mul": True, "multinomial": True, "power_base": True,
         "power_exp": True}  # fmt: skip
ORDERED = ("log", "multinomial", "power_base", "power_exp", "mul")
"""The hints in the order in which SymPy follows them."""


def expansion(expr: Expr) -> Expr:
    """The expression as `expr.expand()` writes it.

    >>> from sympy import Symbol
    >>> x, y = Symbol("x"), Symbol("y")
    >>> expansion((x + y) ** 2 - y**2)
    x**2 + 2*x*y
    """
    result: Expr = _expand_node(expr)
    return result


@lru_cache(REMEMBERED)
def _expand_node(node: Basic) -> Any:
    if not node.args or isinstance(node, Element | Value):
        return node
    args = [_expand_node(arg) for arg in node.args]
    whole = with_args(node, args)
    head = _at_head(whole)
    return whole if head == whole else _expand_node(head)


def _at_head(node: Basic) -> Basic:
    """A node whose arguments are written out, written out itself."""
    if not isinstance(node, Mul | Pow | exp | log) or (isinstance(node, Mul) and not holds_sum(node)):
        return node
    for name in ORDERED:
        rule = getattr(node, f"_eval_expand_{name}", None) if isinstance(node, Mul | Pow | exp | log) else None
        node = rule(**HINTS) if rule is not None else node
    return node


def holds_sum(node: Basic) -> bool:
    """Tells if a product or power has a sum for a factor, or for the base of one."""
    return any(one.is_Add or (one.is_Pow and one.base.is_Add) for one in node.args)


@lru_cache(REMEMBERED)
def addends_of(node: Basic) -> int:
    """The number of addends that products and natural powers of sums have written out, before any are collected.

    >>> from sympy import Symbol
    >>> x, y = Symbol("x"), Symbol("y")
    >>> addends_of((x + y) ** 2 * (x - 1)), addends_of(x * y)
    (6, 1)
    """
    if isinstance(node, Add):
        return sum(map(addends_of, node.args))
    if isinstance(node, Mul):
        return prod(map(addends_of, node.args))
    if isinstance(node, Pow) and node.exp.is_Integer and node.exp > 1:
        power = int(node.exp)
        return comb(addends_of(node.base) + power - 1, power)
    return 1


def evaluate_nodes(node: Expr) -> Expr:
    """Sums, products and powers that were written with `evaluate=False`, as SymPy writes them: 2·u − u → u."""
    if not isinstance(node, Add | Mul | Pow):
        return node
    return node.func(*map(evaluate_nodes, node.args))


def expand_products(expr: Expr, is_whole: Callable[[Expr], bool] = lambda _: False) -> Expr:
    """Products and natural powers of sums written out, except in arguments of functions; what is whole stays whole.

    >>> from sympy import symbols, tanh
    >>> x, y, d = symbols("x y d")
    >>> expand_products((x + y) ** 2 * (tanh((x - y) ** 2) + d), lambda node: not node.has(d))
    d*(x + y)**2 + (x + y)**2*tanh((x - y)**2)
    """
    if not any(holds_sum(node) for node in of_kind(Mul | Pow, expr)):
        return expr
    names: dict[Expr, Symbol] = {}

    def name_of(node: Any) -> Any:
        plain = not node.args or isinstance(node, Element | Value)
        return node if plain else names.setdefault(node, Symbol(f"whole_{len(names)}", extended_real=True))

    def visit(node: Any) -> Any:
        if not isinstance(node, Add | Mul | Pow):
            return name_of(node)
        if not isinstance(node, Add) and holds_sum(node) and is_whole(node):
            number, rest = node.as_coeff_Mul()
            return number * name_of(rest)
        factors = not isinstance(node, Add)
        return with_args(node, [name_of(arg) if factors and arg.is_Add and is_whole(arg) else visit(arg)
                                for arg in node.args])  # fmt: skip

    opened = visit(expr).expand(power_base=False, power_exp=False, log=False, mul=True, multinomial=True, basic=False)
    result: Expr = opened.xreplace({name: node for node, name in names.items()})
    return result


def expand_to_cancel(expr: Expr) -> Expr:
    """A sum whose terms are written out if they then share a product with others; the other terms stay as written.

    >>> from sympy import symbols
    >>> x, y, d = symbols("x y d")
    >>> expand_to_cancel((x - y) ** 2 + d * (x + 1) - d)
    d*x + (x - y)**2
    """
    opened = {term: Add.make_args(expand_products(term)) for term in Add.make_args(expr)}
    met = Counter(part.as_coeff_Mul()[1] for parts in opened.values() for part in parts)
    result = list[Expr]()
    for term, parts in opened.items():
        shares = any(met[part.as_coeff_Mul()[1]] > 1 for part in parts)
        result += parts if shares else (term,)
    return Add(*result)
