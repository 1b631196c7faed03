"""The dtype in which a contraction multiplies: the narrowest matrix instruction that holds both operands' values.

    float8_e4m3fn                both operands are of that dtype, and the chip multiplies it
    float16, bfloat16            both operands' values are held exactly (of 8 bits too); a weight in [0, 1] is rounded
    the arithmetic's own dtype   otherwise: what is computed may exceed float16, and has more digits than 16 bits hold

A computed operand is rounded to bfloat16 if its partner has that dtype, whose range is the arithmetic's. A weighted
operand is not rounded if its sum moves with a sum of another operand about a centre: the two sums cancel there, and
their roundings do not. About an extremum nothing cancels, since all terms have one sign, unless an output puts the two
sums together.
"""

from __future__ import annotations

from sympy import Expr, S

from redalg.expression import Cast, Element, RunningCast, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.dtypes import is_eight_bits
from redalg.incremental.form import Accumulator, FusedForm, PivotPolicy
from redalg.strategies.binding import Binding, makes_product, product_sides
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem

HOLDS = {
    "float8_e4m3fn": {"float8_e4m3fn"},
    "float16": {"float16", "float8_e4m3fn", "float8_e5m2", "int8"},
    "bfloat16": {"bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"},
}
"""The dtypes that each dtype of matrix instructions holds exactly, the narrowest first."""
COMPUTED, BOUNDED = "computed", "bounded"
"""Operands that no dtype holds exactly: of any size, and in [0, 1]."""


def folds_pairs(form: FusedForm, binding: Binding) -> bool:
    """Tell if a producer folds a term of rows and streamed elements that is no product: no matrix unit computes it."""
    folded = (one for one in form.cascade.producers if one.cascade.reductions and not makes_product(one, binding))
    return any(binding.streamed in one.axes and binding.rows & {*one.axes} for one in folded)


def values_dtype(expr: Expr, problem: Problem) -> str:
    """The dtype that holds an operand's values: an input's (0 if a mask says so), a rounding's; else `computed`."""
    if isinstance(expr, Cast | RunningCast):
        return expr.dtype
    if isinstance(expr, Where) and expr.args[2] is S.Zero:
        return values_dtype(expr.args[1], problem)
    return problem.dtypes[expr.name] if isinstance(expr, Element) else COMPUTED


def product_dtype(left: str, right: str, problem: Problem, device: DeviceSpec) -> str:
    """The dtype in which two operands of the given dtypes are multiplied."""
    dtypes = {left, right}
    for dtype, values in HOLDS.items():
        if (
            dtypes <= values | roundable_operands(dtype, problem)
            and dtypes & values
            and (not is_eight_bits(dtype) or device.fp8)
        ):
            return dtype
    return problem.compute


def roundable_operands(dtype: str, problem: Problem) -> set[str]:
    """The operands that may be rounded to a dtype: none to 8 bits, and none if an input of the call has more bits. (The
    tensor of a stage has more bits, even if the inputs have 16.)"""
    wide = {"float32", "float64"}
    if is_eight_bits(dtype) or (problem.result in wide and wide & set(problem.dtypes.values())):
        return set()
    return {BOUNDED, COMPUTED} if dtype == "bfloat16" else {BOUNDED}


def operands_dtype(product: Accumulator, form: FusedForm, problem: Problem, device: DeviceSpec) -> str:
    """The dtype in which an accumulator of a form multiplies, if it is a contraction."""
    if product.weight and not alike(product, form):
        return problem.compute
    left = BOUNDED if product.is_bounded else COMPUTED if product.weight else values_dtype(product.factors[0], problem)
    return product_dtype(left, values_dtype(product.factors[1], problem), problem, device)


def alike(weighted: Accumulator, form: FusedForm) -> bool:
    """Tell if every sum that cancels with a weighted one has the same first operand."""
    beside = (other for other in form.accumulators if cancels(weighted, other, form))
    return all((other.weight, other.factors[:1]) == (weighted.weight, weighted.factors[:1]) for other in beside)


def cancels(first: Accumulator, other: Accumulator, form: FusedForm) -> bool:
    """Tell if two sums are put together: by a transition not about an extremum, or at the finish of the state."""
    moves = [by for value, by in first.transition if value == other.value]
    moves += [by for value, by in other.transition if value == first.value]
    extremal = {pivot.displacement for pivot in form.pivots if pivot.policy is PivotPolicy.RUNNING}
    if not moves or any(values_of(by) - extremal for by in moves):
        return bool(moves)
    return any({first.value, other.value} <= read_by(part.expr, form) for part in form.outputs)


def read_by(expr: Expr, form: FusedForm) -> frozenset[Value]:
    """The values of the state that an expression reads, directly or through the assignments that finish it."""
    made = {one.value: one.expr for one in form.assignments}
    found = values_of(expr)
    return found.union(*(read_by(made[one], form) for one in found if one in made))


def tensor_cores(form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding) -> bool:
    """Tell if contractions, of which there are some, all multiply in a dtype of matrix instructions (or TF32)."""
    if device.target == "c":
        return False
    dtypes = {operands_dtype(one, form, problem, device) for one in form.accumulators if len(one.factors) > 1}
    reductions = (part for producer in form.cascade.producers for part in producer.cascade.reductions)
    for sides in filter(None, (product_sides(part.term, binding) for part in reductions)):
        left, right = (values_dtype(side, problem) for side in sides)
        dtypes.add(product_dtype(left, right, problem, device))
    tf32 = {"float32"} if problem.precision == "tf32" else set()
    return bool(dtypes) and dtypes <= set(HOLDS) | tf32
