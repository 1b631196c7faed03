"""Write functions of a thread's own elements as the one instruction that the hardware has of them.

s += exp(e)·x       →   s += 2^(log₂e·e)·x               e is computed, so that it is rounded as log₂e·e is
exp(q·(u − c))      →   2^((u − c)·(q·log₂e))
a/bⁿ, b^(−1/2), √b  →   a·reciprocal_of(bⁿ), inverse_root_of(b), root_of(b)

In float32, where a thread takes one element after another: there these functions are what it does. `exp`, `exp2` and a
division take eight, four and nine instructions, of which one is the function itself: the others round the last digit,
and keep what is below 2^-126, which is 0 here. An instruction is off by two units of the last digit. So is a division
of Triton's. Sums of a Gaussian kernel over 30000 × 30000 points in space take 0.62 of the time (H100).

Conditions and whole numbers keep their arithmetic: ⌊6/3⌋ is 2. So does the `exp` of a datum, which nothing has rounded.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import Expr, Float, Mod, Mul, Pow, Rational, S, ceiling, exp, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.lower_tile.ir.powers import above_and_below
from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, Statement, TileProgram, innermost
from redalg.lower_tile.ir.scalars import LOG2_E, Instruction, Kept, Load, Ranked, ScaledExp
from redalg.lower_tile.passes.reciprocals import HALF
from redalg.strategies.plan import Plan

WHOLE = (floor, ceiling, Mod, Ranked, Boolean)
"""What is decided by the last digit of its arguments."""


def use_instructions(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose loops over a thread's elements have such instructions."""
    if program.compute != "float32":
        return program
    kernels = tuple(_in_loops(one) if has_rows_alone(one.plan or plan) else one for one in program.kernels)
    return replace(program, kernels=kernels)


def has_rows_alone(plan: Plan) -> bool:
    """Tell if a thread takes elements in turn for rows that have no columns.

    Tiles of rows and columns keep `exp2` (H100: products in the log domain take 1.05 of the time with instructions).
    """
    return plan.is_serial and plan.binding.column is None


def _in_loops(kernel: Kernel) -> Kernel:
    body = tuple(innermost(loop, _change) if isinstance(loop, Loop) else loop for loop in kernel.body)
    return replace(kernel, body=body)


def _change(statement: Statement) -> Statement:
    if not isinstance(statement, Parallel):
        return statement
    return replace(statement, body=tuple(replace(one, expr=in_instructions(one.expr)) for one in statement.body))


def in_instructions(node: Expr) -> Expr:
    """An expression with instructions for its functions of what is read from buffers."""
    if isinstance(node, WHOLE) or not node.args or isinstance(node, Load):
        return node
    if isinstance(node, ScaledExp):
        u, c, q = node.args
        return weight(u if c is S.Zero else Kept(u - c), q)
    inner = [in_instructions(one) if isinstance(one, Expr) else one for one in node.args]
    changed: Basic = node if tuple(inner) == node.args else node.func(*inner)
    if isinstance(changed, exp) and is_computed(changed.args[0]):
        return weight(Kept(changed.args[0]), S.One)
    if isinstance(changed, Pow) and changed.base.has(Load):
        return of_power(changed)
    return changed


def is_computed(exponent: Expr) -> bool:
    """Tell if an exponent is rounded already: it is no number, no datum and no datum with another sign."""
    return bool(exponent.has(Load)) and not isinstance(exponent.as_coeff_Mul()[1], Load)


def weight(difference: Expr, rate: Expr) -> Expr:
    """exp(rate·difference): the difference first, whose rounding is relative to it."""
    number, scalars = rate.as_independent(Load, as_Add=False)
    return Instruction("power_of_two", difference * Float(float(number) * LOG2_E) * scalars)


def of_power(power: Pow) -> Expr:
    """A negative power, or one of a whole and a half, by a reciprocal and a root; any other power as it is."""
    base, exponent = power.args
    if not isinstance(exponent, Rational) or exponent.q > HALF:
        return power
    if not exponent.is_negative:
        return power if exponent.is_Integer else Mul(Pow(base, int(exponent)), Instruction("root_of", base))
    above, below = above_and_below((power,))
    return Mul(
        *(Instruction("inverse_root_of", base) for _ in above), *(Instruction("reciprocal_of", one) for one in below)
    )
