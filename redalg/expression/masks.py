"""Masks: conditions over axes and data, and `where`."""

from __future__ import annotations

from typing import Any

from sympy import And, Eq, Expr, Ne, Not, Or
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments
from redalg.expression.nodes import Where
from redalg.expression.operand import as_operand


@answer_arguments(ExpressionError, "Write `ra.where(condition, a, b)`.")
def where(condition: Any, a: Any = None, b: Any = None) -> Expr:
    """`a` where `condition` holds, else `b`: the mask.

    Args:
        condition: a relation of axes (`k <= q`), a boolean tensor's element (`M[q, k]`), or a combination of them
            by `logical_and`, `logical_or`, `logical_not`. A Python bool is refused.
        a: the value where it holds.
        b: the value elsewhere, often `-oo`.

    >>> from redalg import axes, tensor
    >>> from sympy import oo
    >>> q, k = axes("q k")
    >>> where(k <= q, tensor("s[q,k]"), -oo)
    where(k <= q, s[q, k], -oo)
    """
    if a is None or b is None:
        raise ExpressionError("where: it takes a condition and two values, one where it holds and one elsewhere. Write "
                              "`ra.where(k <= q, x, 0)`.")  # fmt: skip
    written = "ra.where(k <= q, x, 0)"
    return Where(as_condition(condition, "where"), as_operand("where", a, written), as_operand("where", b, written))


def as_condition(condition: Any, caller: str) -> Boolean:
    """A SymPy condition; an element of a boolean tensor stands for `element != 0`."""
    if isinstance(condition, bool):
        raise ExpressionError(
            f"{caller}: the condition is the Python bool {condition}, which Python made before redalg saw it "
            "(`==` and `!=` compare expressions as written). Write `ra.eq(a, b)` or `ra.ne(a, b)`."
        )
    found = as_operand(caller, condition, "k <= q")
    return found if isinstance(found, Boolean) else Ne(found, 0)


@answer_arguments(ExpressionError, "Write `ra.eq(a, b)`.")
def eq(a: Any, b: Any) -> Boolean:
    """`a == b`, element by element (Python's `==` compares expressions as written).

    >>> from redalg import tensors
    >>> a, b = tensors("a[n] b[n]")
    >>> eq(a, b), a == b
    (Eq(a[n], b[n]), False)
    """
    return Eq(*(as_operand("eq", one, "ra.eq(a, b)") for one in (a, b)))


@answer_arguments(ExpressionError, "Write `ra.ne(a, b)`.")
def ne(a: Any, b: Any) -> Boolean:
    """`a != b`, element by element.

    >>> from redalg import tensors
    >>> a, b = tensors("a[n] b[n]")
    >>> ne(a, b), a != b
    (Ne(a[n], b[n]), True)
    """
    return Ne(*(as_operand("ne", one, "ra.ne(a, b)") for one in (a, b)))


@answer_arguments(ExpressionError, "Write `ra.logical_and(a, b)`.")
def logical_and(*conditions: Any) -> Boolean:
    """All of the conditions.

    >>> from redalg import axes
    >>> q, k = axes("q k")
    >>> logical_and(k <= q, q < k + 4)
    (k <= q) & (q < k + 4)
    """
    return And(*(as_condition(one, "logical_and") for one in conditions))


@answer_arguments(ExpressionError, "Write `ra.logical_or(a, b)`.")
def logical_or(*conditions: Any) -> Boolean:
    """Any of the conditions.

    >>> from redalg import axes, tensor
    >>> q, k = axes("q k")
    >>> logical_or(k <= q, tensor("M[q,k]"))
    (k <= q) | Ne(M[q, k], 0)
    """
    return Or(*(as_condition(one, "logical_or") for one in conditions))


@answer_arguments(ExpressionError, "Write `ra.logical_not(condition)`.")
def logical_not(condition: Any) -> Boolean:
    """The negation of the condition. Of `x > m` it is `x <= m`, as SymPy writes it: a NaN fulfils neither.

    `where(condition, b, a)` has b where the condition holds and a elsewhere, NaN among them.

    >>> from redalg import axes
    >>> q, k = axes("q k")
    >>> logical_not(k <= q)
    k > q
    """
    return Not(as_condition(condition, "logical_not"))
