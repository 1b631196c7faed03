"""The facts that SymPy knows of a kind of node, stated once for the class.

To answer a question about a node, SymPy asks some twenty others, in random order. It remembers what it did not learn,
but for that one object. If a node knows no more than its class says, all the answers are known beforehand. Every sum
and product that holds the node asks for them.
"""

from __future__ import annotations

from typing import TypeVar

from sympy import Expr
from sympy.core.assumptions import StdFactKB

FACTS = (
    "algebraic", "antihermitian", "complex", "composite", "even", "extended_negative", "extended_nonnegative",
    "extended_nonpositive", "extended_nonzero", "extended_positive", "finite", "hermitian", "imaginary", "infinite",
    "integer", "irrational", "negative", "noninteger", "nonnegative", "nonpositive", "nonzero", "odd", "positive",
    "prime", "rational", "real", "transcendental", "zero",
)  # fmt: skip
"""SymPy's facts that an extended real number may have or not have."""
E = TypeVar("E", bound=type[Expr])


def no_more_known(cls: E) -> E:
    """Declare that SymPy knows no facts of a class of nodes but those that follow from the class' own.

    >>> from redalg import tensor
    >>> x = tensor("x[n]")
    >>> x.is_extended_real, x.is_positive
    (True, None)
    """
    known: StdFactKB = cls.default_assumptions
    for fact in FACTS:
        known.setdefault(fact, None)
    return cls
