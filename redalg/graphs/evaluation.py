"""Terms as SymPy evaluates them, without the questions that it asks at length where the answer is plain."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sympy import Add, Float, Mul, Pow, exp, log, tanh
from sympy.core.basic import Basic

from redalg.expression import Element, Reduce, Where
from redalg.expression.contents import REMEMBERED, by_identity, nodes_of


@by_identity
@lru_cache(REMEMBERED)
def computes_floats(index: Basic) -> bool:
    """Tell if an index has a floating-point number, or a function that gives such numbers."""
    return any(isinstance(node, Float | log | exp) or (isinstance(node, Pow) and is_fraction(node.exp))
               for node in nodes_of(index))  # fmt: skip


def is_fraction(number: Basic) -> bool:
    """Tell if a number is rational and not whole."""
    return bool(number.is_Rational and not number.is_Integer)


@lru_cache(REMEMBERED)
def evaluate_once(function: Callable[..., Basic], args: tuple[Basic, ...]) -> Basic:
    """A function of arguments, as SymPy writes it: patterns of a program hold the same terms, as one object each."""
    if function in (exp, tanh) and stays_plain(function, args[0]):
        return function(*args, evaluate=False)
    return function(*args)


def stays_plain(function: Callable[..., Basic], arg: Any) -> bool:
    """Tell if exp or tanh of an argument is nothing simpler: SymPy asks for the signs of all of its terms to find out.

    There are no numbers, logarithms or inverse functions among its terms, and no sign moves out of it.
    """
    factors = (factor for term in Add.make_args(arg) for factor in Mul.make_args(term.as_coeff_Mul()[1]))
    plain = all(isinstance(factor, Element | Reduce | Where | Pow | exp | tanh) for factor in factors)
    return plain and (function is exp or not arg.could_extract_minus_sign())
