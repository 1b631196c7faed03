"""Inputs that a definition has a value for: indices within what they index, weights and arguments of roots positive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sympy import Expr, Pow, exp, log
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, Element, Reduce, Scalar
from redalg.expression.contents import elements_of, of_kind, values_of

LEGAL = (2.0, 0.75, -0.75, -2.0, 0.0)
"""Values of a run-time scalar, the first that may be is taken: not 1, which would hide a scalar that is left out."""


def divided_weights(cascade: Cascade) -> set[str]:
    """The tensors whose sum alone divides something: a sum about 0 would be noise."""
    below = {power.base for power in of_kind(Pow, *cascade.expressions()) if power.exp.could_extract_minus_sign()}
    values = {value for base in below for value in values_of(base)}
    return {reduction.term.name for reduction in cascade.reductions if reduction.monoid.name == "sum"
            and reduction.value in values and isinstance(reduction.term, Element)}  # fmt: skip


def roots_and_logs(exprs: Iterable[Expr]) -> set[str]:
    """The tensors of whose elements a logarithm or a root is taken, where they may be negative.

    >>> from redalg import axes, sum, tensors
    >>> p, x = tensors("p[n] x[n]")
    >>> roots_and_logs([sum(p * log(p), axes("n")) + log(sum(exp(x), axes("n")))])
    {'p'}
    """
    exprs = tuple(exprs)
    roots = [one.base for one in of_kind(Pow, *exprs) if one.exp.is_number and not one.exp.is_integer]
    taken = [*roots, *(one.args[0] for one in of_kind(log, *exprs))]
    return {name for one in taken if not one.is_extended_nonnegative for name in _names_outside(one)}


def _names_outside(node: Basic) -> set[str]:
    """The tensors in an expression, but for those in exponentials and reductions."""
    if isinstance(node, Element):
        return {node.name}
    return set() if isinstance(node, exp | Reduce) else set().union(*map(_names_outside, node.args))


def integer_bound(
    name: str, elements: Iterable[Element], exprs: Iterable[Expr],
    shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int],
) -> int:  # fmt: skip
    """The bound below which a tensor's integers lie: within the dimensions that it indexes, or among axes beside it.

    Args:
        name: of the tensor.
        elements: all of an expression, or of several.
        exprs: those expressions.
        shapes, sizes: of tensors by name, of axes by name.
    """
    lengths = [shapes[element.name][place] for element in elements for place, index in enumerate(element.indices)
               if not isinstance(index, Axis) and name in {each.name for each in elements_of(index)}]  # fmt: skip
    if lengths:
        return min(lengths)
    relations = of_kind(Relational, *exprs)
    beside = [beside_elements(one) for one in relations if name in {each.name for each in elements_of(one)}]
    return 1 + max((sizes[axis.name] for each in beside for axis in each), default=1)


def beside_elements(node: Basic) -> set[Axis]:
    """The axes that stand in an expression otherwise than as an index."""
    if isinstance(node, Element):
        return set()
    return {node} if isinstance(node, Axis) else set().union(*map(beside_elements, node.args))


def scalar_value(scalar: Scalar, tests: Collection[Any] = ()) -> float:
    """A value of a run-time scalar: an integer one is 2, another 0.75 where that is legal.

    Args:
        scalar: the scalar.
        tests: functions of a number that are true where it is legal.
    """
    first = 2.0 if scalar.is_integer else 0.75
    return next((one for one in (first, *LEGAL) if all(test(one) for test in tests)), first)
