"""Check gathers before a kernel runs: a kernel reads 0 if an index leaves its tensor, and says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sympy import And, Not, Or, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Cascade
from redalg.expression import Element, Where
from redalg.expression.contents import guards_and_guarded
from redalg.incremental.arrays.evaluate import Scope


def gathers_any(cascade: Cascade) -> bool:
    """Tell if any element is indexed by anything but axes and numbers."""
    return not all(one.is_plain for one in cascade.elements())


def check_gathers(cascade: Cascade, scope: Scope) -> None:
    """Raise `InputError` for the first index that leaves its tensor where an element counts."""
    for expr in cascade.expressions():
        for element, condition in gathered_elements(expr, cascade.domain):
            inner = scope if condition is S.true else scope.under(scope.evaluate(condition))
            inner.checked_indices(scope.tensors[element.name], element)


def gathered_elements(node: Basic, condition: Boolean) -> Iterator[tuple[Element, Boolean]]:
    """Elements indexed by anything but axes and numbers, each with the condition under which it is read."""
    if isinstance(node, Element) and not node.is_plain:
        yield node, condition
    if isinstance(node, Where):
        holds, a, b = node.args
        yield from gathered_elements(holds, condition)
        yield from gathered_elements(a, And(condition, holds))
        yield from gathered_elements(b, And(condition, Not(holds)))
    elif isinstance(node, And | Or):
        guards, guarded = guards_and_guarded(node)
        known = And(*guards) if isinstance(node, And) else Not(Or(*guards))
        for arg in (*guards, *guarded):
            yield from gathered_elements(arg, And(condition, known) if arg in guarded else condition)
    else:
        for arg in node.args:
            yield from gathered_elements(arg, condition)
