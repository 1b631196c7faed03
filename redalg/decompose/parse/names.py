"""The names that `ra.let` gives: they are taken off an expression, and those are kept that stand for no reduction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sympy import Expr
from sympy.core.basic import Basic

from redalg.errors import ExpressionError
from redalg.expression import Element, Let
from redalg.expression.contents import of_kind
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
