"""Write functions of a thread's own elements as the one instruction that the hardware has of them.

s += exp(e)·x       →   s += 2^(log₂e·e)·x               e is computed, so that it is rounded as log₂e·e is
exp(q·(u − c))      →   2^((u − c)·(q·log₂e))
a/bⁿ, b^(−1/2), √b  →   a·reciprocal_of(bⁿ), inverse_root_of(b), root_of(b)

In float32, where a thread takes one element after another: there these functions are what it does. So is an
exponential in a kernel that reduces nothing and stores 16 bits, which have fewer digits than an instruction is right to
(H200: gradients of cross entropies over 4096 x 128256 in bfloat16 in 0.90 of the time). `exp`, `exp2` and a
division take eight, four and nine instructions, of which one is the function itself: the others round the last digit,
and keep what is below 2^-126, which is 0 here. An instruction is off by two units of the last digit. So is a division
of Triton's. Sums of a Gaussian kernel over 30000 × 30000 points in space take 0.62 of the time (H100).

Conditions and whole numbers keep their arithmetic: ⌊6/3⌋ is 2. So does the `exp` of a datum, which nothing has rounded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sympy import Expr, Float, Mod, Mul, Pow, Rational, S, ceiling, exp, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression.dtypes import DTYPES, is_float
from redalg.lower_tile.ir.mentions import reduces_nothing, stored_names
from redalg.lower_tile.ir.powers import above_and_below
from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, Statement, TileProgram, innermost
from redalg.lower_tile.ir.scalars import LOG2_E, Instruction, Kept, Load, Ranked, ScaledExp
from redalg.lower_tile.passes.reciprocals import HALF
from redalg.strategies.plan import Plan

WHOLE = (floor, ceiling, Mod, Ranked, Boolean)
"""What is decided by the last digit of its arguments."""
NARROW_BYTES = 2
"""Of a float that has fewer digits than an instruction is right to."""


def use_instructions(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose loops over a thread's elements have such instructions."""
    if program.compute != "float32":
        return program
    narrow = {one.name for one in program.parameters if DTYPES[one.dtype].bytes <= NARROW_BYTES and is_float(one.dtype)}

    def change(kernel: Kernel) -> Kernel:
        own = kernel.plan or plan
        if has_rows_alone(own):
            return _in_loops(kernel)
        if own.device.target == "c" or not reduces_nothing(kernel) or not parameters_stored(kernel, program) <= narrow:
            return kernel
        return replace(kernel, body=tuple(innermost(one, _change_exponentials) for one in kernel.body))

    return replace(program, kernels=tuple(map(change, program.kernels)))


def parameters_stored(kernel: Kernel, program: TileProgram) -> set[str]:
    """The parameters of a program that a kernel stores to."""
    return {one.name for one in program.parameters} & stored_names(kernel)


def has_rows_alone(plan: Plan) -> bool:
    """Tell if a thread takes elements in turn for rows that have no columns.

    Tiles of rows and columns keep `exp2` (H100: products in the log domain take 1.05 of the time with instructions).
    """
    return plan.is_serial and plan.binding.column is None


def _in_loops(kernel: Kernel) -> Kernel:
    body = tuple(innermost(loop, _change) if isinstance(loop, Loop) else loop for loop in kernel.body)
    return replace(kernel, body=body)


def _change(statement: Statement, *, powers: bool = True) -> Statement:
    if not isinstance(statement, Parallel):
        return statement
    body = tuple(replace(one, expr=in_instructions(one.expr, powers=powers)) for one in statement.body)
    return replace(statement, body=body)


_change_exponentials = partial(_change, powers=False)


def in_instructions(node: Expr, *, powers: bool = True) -> Expr:
    """An expression with instructions for its functions of what is read from buffers; without `powers`, for `exp`."""
    if isinstance(node, WHOLE) or not node.args or isinstance(node, Load):
        return node
    if isinstance(node, ScaledExp):
        u, c, q = node.args
        return weight(u if c is S.Zero else Kept(u - c), q)
    inner = [in_instructions(one, powers=powers) if isinstance(one, Expr) else one for one in node.args]
    changed: Basic = node if tuple(inner) == node.args else node.func(*inner)
    if isinstance(changed, exp) and is_computed(changed.args[0]):
        return weight(Kept(changed.args[0]), S.One)
    if powers and isinstance(changed, Pow) and changed.base.has(Load):
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
