"""Divide by a known number without the slow way of a division, where every thread has rows of its own.

v = s/3                  →   v = divided(s, 3)
n = 33;  v = s/n + c     →   n = 33;  v = divided(s, 33) + c
v = s/3;  w = f(v)       →   v = s·(1/3)                  where the slope of f is 0 at s/3, as that of 3·v² − 2·v·s

A division asks if its operands are extreme, and calls a function if they are. By a known n there is nothing to ask:
q = s·(1/n) is corrected once, to q + (s − n·q)·(1/n), where each product and sum are rounded once. That is s/n to its
last digit, for every float32 s whose quotient is no less than 2^-100 and every whole n below 2^24 − 1. Infinities stay
what they are, and a zero has no sign. (P. Markstein, Computation of elementary functions on the IBM RISC System/6000
processor, IBM Journal of Research and Development 34, 1990.)

Of rows of three elements (262144 of them, in float32) a variance takes 0.95 of the time (H200). Rows that several
threads share divide once each, beside loads that take longer. A power of two is its reciprocal already.

A mean that squares are moved to is read where the slope is 0: any centre gives the same sum, and an error ε of the mean
is one of n·ε² there. That one is not corrected, if n·(1/n) is 1 in float32: equal numbers keep a variance of exactly 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from numpy import float32
from sympy import Dummy, Expr, Float, Integer, Mul, Pow, Rational, S

from redalg.lower_tile.ir.mentions import names_stored_by, names_stored_once
from redalg.lower_tile.ir.program import (
    Kernel,
    Last,
    Loop,
    Parallel,
    Statement,
    Store,
    TileProgram,
    innermost,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Divided, Load
from redalg.lower_tile.passes.instructions import WHOLE
from redalg.strategies.plan import Plan

LIMIT = 2**24 - 1
"""The first whole number whose reciprocal in float32 does not suffice."""


def divide_by_known(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose rows are divided by known numbers without a slow way."""
    if program.compute != "float32" or plan.device.target == "c":
        return program
    kernels = (_in_kernel(one) if has_rows_of_threads(one.plan or plan) else one for one in program.kernels)
    return replace(program, kernels=tuple(kernels))


def has_rows_of_threads(plan: Plan) -> bool:
    """Tell if every thread of a block has whole rows of its own."""
    return plan.binding.column is None and (plan.is_serial or (plan.level == "row" and plan.block_row >= plan.threads))


def _in_kernel(kernel: Kernel) -> Kernel:
    numbers = known_numbers(kernel)
    flat = read_where_flat(kernel, numbers)

    def expr_of(store: Store) -> Expr:
        expr = by_known(store.expr, numbers)
        return expr.replace(Divided, lambda above, below: above * Float(1 / below)) if store.target in flat else expr

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        return replace(statement, body=tuple(replace(one, expr=expr_of(one)) for one in statement.body))

    return replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))


def read_where_flat(kernel: Kernel, numbers: Mapping[str, int]) -> frozenset[str]:
    """The buffers of quotients by known numbers that are read where the slope of all that reads them is 0."""
    loops = (one for one in nested_statements(kernel.body) if isinstance(one, Parallel))
    stores = [store for one in loops for store in one.body]
    guards = {read.name for store in stores for read in store.guard.atoms(Load)}
    once, found = names_stored_once(kernel) - guards, set[str]()
    alone = [one for one in stores if one.target in once]
    for store in (one for one in alone if divides_plainly(one.expr, numbers)):
        at = Load(store.target, *store.indices)
        readers = [one.expr for one in stores if any(read.name == at.name for read in one.expr.atoms(Load))]
        if readers and all(is_flat(one, at, store.expr, numbers) for one in readers):
            found.add(at.name)
    return frozenset(found)


def is_flat(expr: Expr, at: Load, value: Expr, numbers: Mapping[str, int]) -> bool:
    """Tell if an expression is a polynomial in the read of a buffer, of slope 0 where that is the value."""
    x = Dummy()
    known = {one: Integer(numbers[one.name]) for one in (expr + value).atoms(Load) if one.name in numbers}
    polynomial = expr.xreplace({**known, at: x})
    if not polynomial.is_polynomial(x) or any(one.name == at.name for one in polynomial.atoms(Load)):
        return False
    return bool(polynomial.diff(x).xreplace({x: value.xreplace(known)}).expand() == 0)


def known_numbers(kernel: Kernel) -> dict[str, int]:
    """The buffers that hold one whole number wherever they are read: the kernel stores it, and nothing else there."""
    times, found = Counter[str](), dict[str, int]()
    for statement in nested_statements(kernel.body):
        if isinstance(statement, Parallel):
            times.update(store.target for store in statement.body)
        elif not isinstance(statement, Loop | Last):
            times.update(names_stored_by(statement))
    for loop in (one for one in kernel.body if isinstance(one, Parallel) and one.guard == S.true):
        for store in loop.body:
            if store.guard == S.true and store.expr.is_Number and store.expr.is_finite and store.expr % 1 == 0:
                found[store.target] = int(store.expr)
    return {name: number for name, number in found.items() if times[name] == 1}


def divides_plainly(expr: Expr, numbers: Mapping[str, int]) -> bool:
    """Tell if an expression is a quotient by a known number whose reciprocal makes 1 of it."""
    divisors = [divisor_of(one, numbers) for one in Mul.make_args(expr)]
    return any(one is not None and float32(one) * float32(1 / one) == 1 for one in divisors)


def by_known(node: Expr, numbers: Mapping[str, int]) -> Expr:
    """An expression whose quotients by numbers, and by buffers of a known number, are `Divided`."""
    if isinstance(node, WHOLE) or not node.args or isinstance(node, Load):
        return node
    inner = tuple(by_known(one, numbers) if isinstance(one, Expr) else one for one in node.args)
    changed = node if inner == node.args else node.func(*inner)
    if not isinstance(changed, Mul):
        return changed
    divisors = {one: number for one in changed.args if (number := divisor_of(one, numbers))}
    above = [one for one in changed.args if one not in divisors]
    if len(divisors) != 1 or not any(one.has(Load) for one in above):
        return changed
    [(factor, number)] = divisors.items()
    return Mul(-1 if factor.is_negative else 1, Divided(Mul(*above), Integer(number)))


def divisor_of(factor: Expr, numbers: Mapping[str, int]) -> int | None:
    """The number that a factor divides by, if it is one of those that `Divided` takes."""
    number = None
    if isinstance(factor, Rational) and abs(factor.p) == 1:
        number = int(factor.q)
    elif isinstance(factor, Pow) and factor.exp == -1 and isinstance(factor.base, Load):
        number = numbers.get(factor.base.name)
    return number if number is not None and 0 < number < LIMIT and number & (number - 1) else None
