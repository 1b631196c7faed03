"""Values that cancel in what follows from an extremum: of a NaN or an infinity they do not.

    max (u − max u)        → where(max u is finite, 0, NaN)
    max exp(u − max u)     → where(max u is finite, 1, 0), and NaN of a NaN         exp(u + v) is 0 where u or v is −∞
    max u/max u            → where(max u is finite and not 0, 1, NaN)

What another value that stays is made of shows there, and is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import And, Expr, Ne, S, exp

from redalg.decompose.extremal import Extremal
from redalg.decompose.plain import is_finite, is_number
from redalg.decompose.signs import Facts
from redalg.expression import UNDEFINED, Value, Where
from redalg.expression.contents import of_kind, text_of, values_of
from redalg.expression.rebuild import renamed
from redalg.incremental.selected import read_by


def where_kept(final: Expr, found: Extremal, named: Mapping[Expr, Value], facts: Facts) -> Expr:
    """`final`, which is `found.final` with slots named, where what vanished of it is finite."""
    left = values_of(final)
    shown = frozenset().union(*(read_by(one, facts) for one in left))
    gone = (values_of(found.final) & set(named.values())) - left
    for value in sorted((one for one in gone if not read_by(one, facts) <= shown), key=text_of):
        symbols = [symbol for symbol, one in named.items() if one == value]
        divided = any(one.is_Pow and one.exp.is_negative and one.base.has(value) for one in of_kind(Expr, found.final))
        usual = And(is_finite(value), Ne(value, 0)) if divided else is_finite(value)
        final = Where(usual, final, Where(is_number(value), _at_infinity(found, symbols, named), UNDEFINED))
    return final


def _at_infinity(found: Extremal, symbols: list[Expr], named: Mapping[Expr, Value]) -> Expr:
    """What is left where exponentials of what vanished are 0; NaN where it stands elsewhere."""
    powers = {one: S.Zero for one in found.final.atoms(exp) if one.has(*symbols)}
    rest = found.final.xreplace(powers)
    return UNDEFINED if rest.has(*symbols) else renamed(rest, named)
