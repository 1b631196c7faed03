"""Rules of operators that make each element of the elements at its place: arithmetic, comparisons, choices, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sympy import (
    Abs,
    And,
    Eq,
    Expr,
    Ge,
    Gt,
    Integer,
    Le,
    Lt,
    Max,
    Min,
    Mod,
    Ne,
    Not,
    Or,
    Pow,
    S,
    ceiling,
    cos,
    cosh,
    erf,
    exp,
    floor,
    log,
    pi,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.torch.site import Operand, Site, Unwritten, is_condition, rules_by_name

HALF_ROOT = sqrt(2 / pi)
GELU_CUBE = Integer(44715) / 1_000_000


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e^−x)."""
    return 1 / (1 + exp(-x))


def positive_part(x: Expr) -> Expr:
    """0 where x is at most 0, else x: NaN, of which no comparison holds, stays."""
    return Where(x <= 0, S.Zero, x)


UNARY: Mapping[str, Callable[[Expr], Basic]] = {
    "abs": Abs, "ceil": ceiling, "cos": cos, "cosh": cosh, "erf": erf, "exp": exp, "exp2": lambda x: 2**x,
    "expm1": lambda x: exp(x) - 1, "floor": floor, "log": log, "log10": lambda x: log(x) / log(10),
    "log1p": lambda x: log(1 + x), "log2": lambda x: log(x) / log(2), "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / x, "relu": positive_part, "rsqrt": lambda x: 1 / sqrt(x), "sigmoid": sigmoid,
    "sign": sign, "silu": lambda x: x * sigmoid(x), "sin": sin, "sinh": sinh, "sqrt": sqrt, "square": lambda x: x**2,
    "tan": tan, "tanh": tanh,
}  # fmt: skip
"""Operators of one number."""
BINARY: Mapping[str, Callable[[Expr, Expr], Basic]] = {
    "eq": Eq, "ge": Ge, "gt": Gt, "le": Le, "lt": Lt, "maximum": Max, "minimum": Min, "mul": lambda a, b: a * b,
    "ne": Ne,
}  # fmt: skip
"""Operators of two numbers, the second of which may be no tensor."""
LOGIC: Mapping[str, Callable[..., Basic]] = {
    "bitwise_and": And, "bitwise_or": Or, "logical_and": And, "logical_or": Or,
    "bitwise_xor": lambda a, b: Ne(Where(a, S.One, S.Zero), Where(b, S.One, S.Zero)),
    "logical_xor": lambda a, b: Ne(Where(a, S.One, S.Zero), Where(b, S.One, S.Zero)),
}  # fmt: skip


def unary_rule(function: Callable[[Expr], Basic], at: Site) -> Basic:
    """A function of one number."""
    return function(at.value(at["self"]))


def same_rule(at: Site) -> Basic:
    """The element itself."""
    return at.read(at["self"])


def second_operand(at: Site) -> object:
    """The second operand of a call, by the names that schemas give it."""
    return at["other"] if at["other"] is not None else at["value"]


def binary_rule(function: Callable[[Expr, Expr], Basic], at: Site) -> Basic:
    """A function of two numbers; of two conditions, equality is that of truth values."""
    return function(at.value(at["self"]), at.value(second_operand(at)))


def logic_rule(function: Callable[..., Basic], at: Site) -> Basic:
    """A function of truth values; `bitwise_…` of integers has no expression."""
    operands = [one for one in (at["self"], second_operand(at)) if isinstance(one, Operand)]
    if at.operator.startswith("bitwise") and any(one.type.dtype != "bool" for one in operands):
        raise Unwritten("bits of integers have no expression")
    return function(at.truth(at["self"]), at.truth(second_operand(at)))


def not_rule(at: Site) -> Basic:
    """The other truth value; `bitwise_not` of integers has no expression."""
    if at.operator == "bitwise_not" and at["self"].type.dtype != "bool":
        raise Unwritten("bits of integers have no expression")
    return Not(at.truth(at["self"]))


def add_rule(signed: int, at: Site) -> Basic:
    """a ± α·b, or b − α·a of a reversed difference."""
    alpha = at.value(1 if at["alpha"] is None else at["alpha"])
    a, b = at.value(at["self"]), at.value(second_operand(at))
    return b - alpha * a if at.operator == "rsub" else a + signed * alpha * b


def div_rule(at: Site) -> Basic:
    """a/b; rounded down or towards 0 if a mode says so."""
    exact = at.value(at["self"]) / at.value(second_operand(at))
    return round_quotient(exact, at["rounding_mode"])


def round_quotient(exact: Expr, mode: str | None) -> Expr:
    """A quotient by a rounding mode of PyTorch's."""
    if mode is None:
        return exact
    return floor(exact) if mode == "floor" else Where(exact < 0, ceiling(exact), floor(exact))


def floor_divide_rule(at: Site) -> Basic:
    """⌊a/b⌋."""
    return floor(at.value(at["self"]) / at.value(second_operand(at)))


def copy_rule(at: Site) -> Basic:
    """The element of what is copied."""
    return at.read(at["src"])


def remainder_rule(at: Site) -> Basic:
    """a − b·⌊a/b⌋, of the sign of b; `fmod` has the sign of a."""
    a, b = at.value(at["self"]), at.value(second_operand(at))
    if at.operator == "fmod":
        return a - b * round_quotient(a / b, "trunc")
    return Mod(a, b) if b.is_positive else a - b * floor(a / b)


def pow_rule(at: Site) -> Basic:
    """a^b."""
    raised = at["exponent"]
    return Pow(at.value(at["self"]), at.value(raised))


def clamp_rule(at: Site) -> Basic:
    """A number within two bounds, of which one may be missing."""
    value = at.value(at["self"])
    least, most = at["min"], at["max"]
    value = value if least is None else Max(value, at.value(least))
    return value if most is None else Min(value, at.value(most))


def choice_rule(at: Site) -> Basic:
    """The first where a condition holds, else the second."""
    condition, a, b = at.truth(at["condition"]), at.read(at["self"]), at.read(at["other"])
    if is_condition(a) and is_condition(b):
        return Or(And(condition, a), And(Not(condition), b))
    return Where(condition, at.value(at["self"]), at.value(at["other"]))


def masked_fill_rule(at: Site) -> Basic:
    """A number where a mask holds, else the element."""
    return Where(at.truth(at["mask"]), at.value(at["value"]), at.value(at["self"]))


def cast_rule(at: Site) -> Basic:
    """The same number in the result's dtype; a fraction is cut off. Prims call the operand `a`."""
    read, to = at["a"] if at["self"] is None else at["self"], at.results[0].dtype
    if to == "bool":
        return at.truth(read)
    value = at.value(read)
    floating = isinstance(read, Operand) and read.type.dtype.startswith(("float", "bfloat"))
    return round_quotient(value, "trunc") if floating and "int" in to else value


def gelu_rule(at: Site) -> Basic:
    """x·Φ(x), or its approximation by a hyperbolic tangent."""
    x = at.value(at["self"])
    if at["approximate"] == "tanh":
        return x * (1 + tanh(HALF_ROOT * (x + GELU_CUBE * x**3))) / 2
    return x * (1 + erf(x / sqrt(2))) / 2


def elu_rule(at: Site) -> Basic:
    """x where it is positive, else α·(e^(βx) − 1), both scaled."""
    x, alpha = at.value(at["self"]), at.value(at["alpha"])
    scale, inner = at.value(at["scale"]), at.value(at["input_scale"])
    return scale * Where(x > 0, x, alpha * (exp(inner * x) - 1))


def leaky_rule(at: Site) -> Basic:
    """x where it is positive, else a part of it."""
    x = at.value(at["self"])
    return Where(x > 0, x, at.value(at["negative_slope"]) * x)


def hard_rule(at: Site) -> Basic:
    """Straight lines in the place of sigmoids: `hardtanh`, `hardsigmoid`, `hardswish`."""
    x = at.value(at["self"])
    if at.operator == "hardtanh":
        return Min(Max(x, at.value(at["min_val"])), at.value(at["max_val"]))
    step = Min(Max(x + 3, S.Zero), Integer(6)) / 6
    return step if at.operator == "hardsigmoid" else x * step


def softplus_rule(at: Site) -> Basic:
    """log(1 + e^(βx))/β; x itself above a threshold."""
    x, beta = at.value(at["self"]), at.value(at["beta"])
    return Where(beta * x > at.value(at["threshold"]), x, log(1 + exp(beta * x)) / beta)


def addcmul_rule(at: Site) -> Basic:
    """a + v·b·c, or a + v·b/c."""
    b, c = at.value(at["tensor1"]), at.value(at["tensor2"])
    return at.value(at["self"]) + at.value(at["value"]) * (b * c if at.operator == "addcmul" else b / c)


def triangle_rule(at: Site) -> Basic:
    """The elements on one side of a diagonal of the last two dimensions, and 0 on the other."""
    *_, row, column = at.axes()
    shift = column - row - at.value(at["diagonal"])
    return Where(shift <= 0 if at.operator == "tril" else shift >= 0, at.value(at["self"]), S.Zero)


ELEMENTWISE = rules_by_name({
    **{name: partial(unary_rule, function) for name, function in UNARY.items()},
    **{name: partial(binary_rule, function) for name, function in BINARY.items()},
    **{name: partial(logic_rule, function) for name, function in LOGIC.items()},
    "alias clone contiguous detach lift_fresh_copy positive": same_rule,
    "add": partial(add_rule, 1), "sub rsub": partial(add_rule, -1), "div": div_rule, "floor_divide": floor_divide_rule,
    "fmod remainder": remainder_rule, "pow": pow_rule, "clamp clamp_min clamp_max": clamp_rule,
    "where": choice_rule, "masked_fill": masked_fill_rule, "_to_copy convert_element_type to": cast_rule,
    "copy": copy_rule, "logical_not bitwise_not": not_rule, "gelu": gelu_rule, "elu": elu_rule,
    "leaky_relu": leaky_rule, "hardtanh hardsigmoid hardswish": hard_rule, "softplus": softplus_rule,
    "addcmul addcdiv": addcmul_rule, "tril triu": triangle_rule,
})  # fmt: skip
"""Operator -> its rule."""
