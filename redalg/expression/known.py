"""What SymPy knows of a kind of node, said once for the class.

SymPy answers a question of a node by asking some twenty others, in random order, and remembers for that one object what
it did not learn. Of a node that knows no more than its class says, all the answers are known beforehand; they are what
every sum and product that holds the node asks for.
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
    """Declare of a class of nodes that SymPy knows no facts of them but those that follow from the class' own.

    >>> from redalg import tensor
    >>> x = tensor("x[n]")
    >>> x.is_extended_real, x.is_positive
    (True, None)
    """
    known: StdFactKB = cls.default_assumptions
    for fact in FACTS:
        known.setdefault(fact, None)
    return cls
