"""Operands as a caller gives them: numbers and expressions; text, arrays, lists and None are none."""

from __future__ import annotations

from typing import Any

from sympy import Expr, SympifyError, sympify
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression.arguments import short_text


def expression_of(value: Any) -> Any:
    """The expression or the condition that a value stands for; None if it stands for none. Text is not read.

    >>> expression_of(2), expression_of("x"), expression_of([1, 2]), expression_of(None)
    (2, None, None, None)
    """
    try:
        found = None if isinstance(value, str) else sympify(value)
    except (SympifyError, ValueError, TypeError, AttributeError):
        return None
    return found if isinstance(found, Expr | Boolean) else None


def as_operand(caller: str, value: Any, written: str) -> Any:
    """A value as an expression.

    Args:
        caller: the function that takes it.
        value: what is given.
        written: a call as it should be.

    Raises:
        ExpressionError: it stands for no expression.

    >>> as_operand("eq", "a", "ra.eq(a, b)")
    Traceback (most recent call last):
    redalg.errors.ExpressionError: eq: 'a' is no expression. Write tensor elements and numbers, as in `ra.eq(a, b)`, ...
    """
    found = expression_of(value)
    if found is None:
        raise ExpressionError(
            f"{caller}: {short_text(value)} is no expression. Write tensor elements and numbers, as in `{written}`, "
            "and pass arrays at the call."
        )
    return found
