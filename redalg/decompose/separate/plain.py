"""The conditions for an expression to be a number, and to be finite, which SymPy does not decide by itself.

    u is a number      u > −∞ ∨ u < ∞, or of |a|, a², exp a and the like, which SymPy takes for less than ∞: a is one
    u is finite        u > −∞ ∧ u < ∞, or alike: a is finite; exp a: a < ∞; 1/a: a ≠ 0

Of `where(c, a, b)` the branch that is chosen decides.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import And, Eq, Expr, Ne, Or, S, exp
from sympy.logic.boolalg import Boolean

from redalg.expression import UNDEFINED, Where
from redalg.expression.contents import elements_of, values_of

Test = Callable[[Expr], Boolean]


def is_number(u: Expr) -> Boolean:
    """The condition that u is not NaN."""
    whole = Or(u > S.NegativeInfinity, u < S.Infinity)
    return whole if whole is not S.true else _of_parts(u, is_number)


def is_finite(u: Expr) -> Boolean:
    """The condition that u is a number and neither ∞ nor −∞."""
    if u.is_finite:
        return is_number(u)
    if isinstance(u, exp):
        return And(is_number(u.args[0]), u.args[0] < S.Infinity)
    if u.is_Pow and u.exp.is_number and u.exp.is_negative:
        return And(is_number(u.base), Ne(u.base, 0))
    whole = And(u > S.NegativeInfinity, u < S.Infinity)
    return whole if whole is not S.true else _of_parts(u, is_finite)


def nothing_times(u: Expr) -> Expr:
    """0·u: NaN where u is not finite, and 0 of a number."""
    return S.Zero if u.is_number else Where(is_finite(u), S.Zero, UNDEFINED)


def _of_parts(u: Expr, test: Test) -> Boolean:
    if isinstance(u, Where):
        condition, *branches = u.args
        a, b = (Where(test(one), S.One, S.Zero) for one in branches)
        return Eq(Where(condition, a, b), 1)
    return And(*(test(arg) for arg in u.args if elements_of(arg) or values_of(arg)))
