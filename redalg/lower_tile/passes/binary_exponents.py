"""Write the exponential of a matrix product as a power of 2 of one multiply-add.

w[i, j] = exp(a·s[i, j] + r)   →   w[i, j] = 2^((a·log₂e)·s[i, j] + log₂e·r)        s a product on tensor cores

r is a number of a row or column. Exact but for the exponent's rounding, which is relative to the larger of both terms,
as it was: s is itself a sum that is rounded so.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import isclose

from sympy import Add, Expr, Float, Integer, Pow, exp
from sympy.core.basic import Basic

from redalg.lower_tile.ir.mentions import product_names
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, innermost
from redalg.lower_tile.ir.scalars import LOG2_E, Fma, Load
from redalg.lower_tile.passes.exponents import variables
from redalg.strategies.plan import Plan

EPSILON = 2 * sys.float_info.epsilon
"""The rounding of a product of two numbers that are rounded themselves."""


def with_powers_of_two(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel with such exponentials as powers of 2."""
    if not plan.tensor_cores:
        return kernel
    products = product_names(kernel)

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        stores = tuple(replace(one, expr=in_expression(one.expr, products)) for one in statement.body)
        return replace(statement, body=stores)

    return replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))


def in_expression(expr: Expr, products: frozenset[str]) -> Expr:
    """An expression with powers of 2 for the exponentials of products."""
    powers: dict[Basic, Expr] = {}
    for node in expr.atoms(exp):
        terms = Add.make_args(node.args[0])
        of_product = [one for one in terms if reads_product(one.as_independent(Load, as_Add=False)[1], products)]
        rest = Add(*(one for one in terms if one not in of_product))
        factor, product = Add(*of_product).as_independent(Load, as_Add=False)
        if len(of_product) == 1 and factor.is_number and variables(rest) < variables(node):
            powers[node] = Pow(2, Fma(product, Float(float(factor) * LOG2_E), in_units(rest)), evaluate=False)
    return expr.xreplace(powers) if powers else expr


def reads_product(node: Expr, products: frozenset[str]) -> bool:
    """Tell if an expression reads a product, and is no more."""
    return isinstance(node, Load) and node.name in products


def in_units(rest: Expr) -> Expr:
    """The rest of an exponent, of a power of 2."""
    return Add(*map(_in_units, Add.make_args(rest)))


def _in_units(term: Expr) -> Expr:
    """A term of an exponent, of a power of 2; log 2·log₂e is 1, not a number near it."""
    number, read = term.as_independent(Load, as_Add=False)
    if not number.is_number:
        return Float(LOG2_E) * term
    rate = float(number) * LOG2_E
    return (Integer(round(rate)) if isclose(rate, round(rate), rel_tol=EPSILON) else Float(rate)) * read
