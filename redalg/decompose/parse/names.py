"""The names that `ra.let` gives: they are taken off an expression, and those are kept that stand for no reduction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sympy import Add, Expr, Mul, Pow
from sympy.core.basic import Basic

from redalg.errors import ExpressionError, Text
from redalg.expression import Element, Label, Let, Value
from redalg.expression.contents import axes_by_name, free_axes, nodes_of, of_kind
from redalg.expression.rebuild import with_args


def without_names(node: Basic) -> Any:
    """The expression with every `let` replaced by the expression that it names."""
    if not of_kind(Let, node):
        return node
    memo: dict[Basic, Basic] = {}

    def visit(part: Basic) -> Basic:
        if part not in memo:
            memo[part] = visit(part.expr) if isinstance(part, Let) else with_args(part, list(map(visit, part.args)))
        return memo[part]

    return visit(node)


def display_names(exprs: list[Expr]) -> dict[Expr, str]:
    """Map each expression to the name that a `let` gives it, wherever else it stands."""
    names: dict[Expr, str] = {}
    for let in sorted(of_kind(Let, *exprs), key=str):
        named = without_names(let)
        other = next((expr for expr, name in names.items() if name == let.name and expr != named), None)
        if other is not None:
            raise ExpressionError(
                f'let: the name "{let.name}" is given to `{other}` and to `{named}`. Give each a name of its own.'
            )
        names.setdefault(named, let.name)
    return names


def names_of_values(
    names: Mapping[Expr, str], used: Collection[str], *meanings: Mapping[Any, Any]
) -> tuple[tuple[str, Expr], ...]:
    """The names that are not used yet, each with its expression, in which the meanings stand for reductions."""
    values = {node: value for one in meanings for node, value in one.items() if value is not None}

    def with_values(node: Basic) -> Any:
        if node in values:
            return values[node]
        if not node.args or isinstance(node, Element):
            return node
        return with_args(node, [with_values(arg) for arg in node.args])

    return tuple((name, with_values(expr)) for expr, name in names.items() if name not in used)


def put_name(node: Any, pattern: Expr, value: Value) -> Any:
    """An expression with a name in the place of what it stands for, within sums, products and powers too.

    >>> from sympy.abc import s, n, x
    >>> put_name(x**2 - 2 * x * s / n + s**2 / n**2, s / n, Value(Label("mu")))
    x**2 - 2*x*mu + mu**2
    """
    if node == pattern:
        return value
    if isinstance(node, Let):
        return put_name(node.expr, pattern, value)
    if not isinstance(node, Basic) or not node.args or isinstance(node, Element | Value):
        return node
    args = [put_name(one, pattern, value) for one in node.args]
    if any(a is not b for a, b in zip(args, node.args, strict=True)):
        node = with_args(node, args)
    if isinstance(node, Add | Mul | Pow) and isinstance(pattern, Add | Mul | Pow):
        node = node._eval_subs(pattern, value) or node
    return node


def in_given_names(said: Any, names: tuple[tuple[str, Expr], ...]) -> Any:
    """A text of a verdict, with its expressions in the names that were given; anything but a `Text` stays as it is."""

    def change(part: Any) -> Any:
        for name, expr in sorted(names, key=lambda pair: len(nodes_of(pair[1]))):
            part = put_name(part, expr, Value(Label(name), *axes_by_name(free_axes(expr))))
        return part

    return said.map(change) if isinstance(said, Text) and names else said
