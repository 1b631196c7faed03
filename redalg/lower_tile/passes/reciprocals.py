"""Divide once by a number of which a loop needs several negative powers.

s += a/b³ − a/b⁶             →   r = 1/b;  s += a·r³ − a·r⁶
s += a·b^(−3/2) − c/b        →   r = b^(−1/2);  s += a·r³ − c·r²

Each power has a rounding more for every factor, and r³ is finite where b³ is. A quotient costs as much as ten products.
Terms of potentials and of kernels are such powers. What stands after the loop is computed once a row, and keeps its
quotients. The pass after it gives r a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sympy import Expr, Pow, Rational
from sympy.core.basic import Basic

from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, Statement, innermost, map_statement
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.strategies.plan import Plan

HALF = 2
"""The denominator of the exponents of roots."""


def share_reciprocals(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel whose loops divide once by a number."""
    body = (innermost(one, with_units) if isinstance(one, Loop) else one for one in kernel.body)
    return replace(kernel, body=tuple(body))


def with_units(statement: Statement) -> Statement:
    """An elementwise loop with one reciprocal, or inverse root, of each number that has several negative powers."""
    if not isinstance(statement, Parallel):
        return statement
    units = units_of(store.expr for store in statement.body)

    def in_units(node: Basic) -> Basic:
        powers = {power: units[power.base] for power in inverse_powers(node) if power.base in units}
        return node.xreplace({power: Kept(power.base**-unit) ** (-power.exp / unit) for power, unit in powers.items()})

    return map_statement(statement, in_units) if units else statement


def units_of(exprs: Iterable[Expr]) -> dict[Expr, Rational]:
    """The numbers that are divided by several powers of, each with the power that all of them are made of: 1 or 1/2."""
    exponents = dict[Expr, set[Rational]]()
    for power in (power for expr in exprs for power in inverse_powers(expr)):
        exponents.setdefault(power.base, set()).add(power.exp)
    several = {base: found for base, found in exponents.items() if len(found) > 1}
    return {base: Rational(1, max(one.q for one in found)) for base, found in several.items()}


def inverse_powers(node: Basic) -> Iterator[Pow]:
    """Yield the negative powers, of a whole or half exponent, of what is read from buffers."""
    for power in node.atoms(Pow):
        if power.exp.is_Rational and power.exp.is_negative and power.exp.q <= HALF and power.base.has(Load):
            yield power
