"""Divide by a known number without the slow way of a division, where every thread has rows of its own.

v = s/3                  →   v = divided(s, 3)
n = 33;  v = s/n + c     →   n = 33;  v = divided(s, 33) + c

A division asks if its operands are extreme, and calls a function if they are. By a known n there is nothing to ask:
q = s·(1/n) is corrected once, to q + (s − n·q)·(1/n), where each product and sum are rounded once. That is s/n to its
last digit, for every float32 s whose quotient is no less than 2^-100 and every whole n below 2^24 − 1. Infinities stay
what they are, and a zero has no sign. (P. Markstein, Computation of elementary functions on the IBM RISC System/6000
processor, IBM Journal of Research and Development 34, 1990.)

Of rows of three elements (262144 of them, in float32) a variance takes 0.95 of the time (H200). Rows that several
threads share divide once each, beside loads that take longer. A power of two is its reciprocal already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from sympy import Expr, Integer, Mul, Pow, Rational, S

from redalg.lower_tile.ir.mentions import names_stored_by
from redalg.lower_tile.ir.program import (
    Kernel,
    Last,
    Loop,
    Parallel,
    Statement,
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

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        return replace(statement, body=tuple(replace(one, expr=by_known(one.expr, numbers)) for one in statement.body))

    return replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))


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
