"""The names that `ra.let` gives: they are taken off an expression, and those are kept that stand for no reduction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from sympy import Add, Expr, Mul, Pow
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
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


def put_names(node: Any, pairs: Iterable[tuple[Expr, Value]]) -> Any:
    """An expression with names in the places of what they stand for; the pairs are those of `name_pairs`."""
    for pattern, value in pairs:
        node = put_name(node, pattern, value)
    return node


def name_pairs(names: Iterable[tuple[str, Expr]]) -> tuple[tuple[Expr, Value], ...]:
    """The expressions that names stand for, the short ones first, each with the name as a value.

    An expression holds the names before it.

    >>> from sympy import sqrt
    >>> from sympy.abc import s, n
    >>> name_pairs([("sigma", sqrt(1 + s**2 / n**2)), ("mu", s / n)])
    ((s/n, mu), (sqrt(mu**2 + 1), sigma))
    """
    pairs = list[tuple[Expr, Value]]()
    for name, expr in sorted(names, key=lambda pair: (len(nodes_of(pair[1])), pair[0])):
        pairs.append((put_names(expr, pairs), Value(Label(name), *axes_by_name(free_axes(expr)))))
    return tuple(pairs)


@lru_cache(maxsize=64)
def given_pairs(cascade: Cascade) -> tuple[tuple[Expr, Value], ...]:
    """The expressions that the user named, with the names: `name_pairs`. Another name of a reduction is none of them.

    A term of a later pass has the extent in the place of the count, so both spellings are there.
    """
    number = Mul(*(axis.extent for axis in cascade.reduced_axes))
    counted = {one.value: number for one in cascade.reductions if one.is_count}
    pairs = name_pairs(pair for pair in cascade.known_names if not isinstance(pair[1], Value))
    return tuple((spelling, name) for expr, name in pairs for spelling in dict.fromkeys([expr, expr.xreplace(counted)]))


def in_given_names(said: Any, names: tuple[tuple[str, Expr], ...]) -> Any:
    """A text of a verdict, with its expressions in the names that were given; anything but a `Text` stays as it is."""
    if not isinstance(said, Text) or not names:
        return said
    pairs = name_pairs(names)
    return said.map(lambda part: put_names(part, pairs))
