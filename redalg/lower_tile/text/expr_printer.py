"""Scalar expressions as TileLang text.

exp(q·(u − c))   T.exp2((u - c) * (q·log2 e))       the difference first: its rounding is relative to the difference
a·k + c          multiply_add(a, k, c)              rounded once; rounded_product(c, k) joins no sum; divided(a, n)
|x|              T.max(x, -x)                       T.abs does not exist on the C target
isfinite(x)      is_finite(x)                       a function of the text: T.isfinite does not exist there either
a + b + eps      what is read first, in order, then numbers: (b − a) + eps keeps its digits
x = y + x        x = x + y                          exact: the first two terms change places
x^q              as `powers` has it
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import final

from sympy import (
    Abs,
    Add,
    And,
    Expr,
    Float,
    Integer,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Pow,
    Rational,
    S,
    Symbol,
    ceiling,
    exp,
    floor,
    log,
    sign,
)
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.errors import PlanError
from redalg.expression import UNDEFINED, Cast, Reduce, Where
from redalg.expression.dtypes import is_emulated
from redalg.expression.operators import operator_of
from redalg.lower_tile.ir.powers import above_and_below, factors_of_power, is_negative_power, is_rsqrt
from redalg.lower_tile.ir.program import Bind, TileProgram, nested_statements
from redalg.lower_tile.ir.scalars import (
    FAR,
    LOG2_E,
    NO_ELEMENT,
    Divided,
    Fma,
    Instruction,
    Is,
    IsFinite,
    IsNaN,
    Kept,
    Load,
    Ordered,
    OrderedValue,
    Places,
    Ranked,
    RankedIndex,
    RankedValue,
    Rate,
    Rounded,
    ScaledExp,
    TwoTo,
    Wide,
    terms_in_order,
)
from redalg.lower_tile.text.branches import choice_text
from redalg.monoids.functions import Mantissa, Powered, Scaled

ROUNDED_ONCE: dict[type, str] = {Fma: "multiply_add", Rounded: "rounded_product", Divided: "divided"}
"""The functions of the header that no compiler joins with what stands beside them, or takes apart."""
INT32 = 1 << 31
"""What int32 stays below. Integers so near the least of 64 bits are printed as their distance from it."""
FEW = 8  # arguments of calls that stand one in another; of more, halves stand side by side
SHORT = (2, 4)
"""Numbers that are not divided by: their reciprocals are short."""


def dtypes_of(program: TileProgram) -> dict[str, str]:
    """The dtypes of a program's names: parameters, buffers, bound numbers."""
    found = {one.name: one.dtype for one in program.parameters}
    for kernel in program.kernels:
        found |= {one.name: one.dtype for one in kernel.buffers}
        found |= {one.name: one.dtype for one in nested_statements(kernel.body) if isinstance(one, Bind)}
    return found


@final
class Printer:
    """A printer for buffers and parameters of the given dtypes; a number that has a name is printed as that name."""

    def __init__(self, dtypes: Mapping[str, str], compute: str, named: Mapping[Basic, str] | None = None) -> None:
        self.dtypes, self.compute, self.named = dtypes, compute, named or {}

    def with_name(self, node: Basic, name: str) -> Printer:
        """The printer with a name for one more number."""
        return Printer(self.dtypes, self.compute, {**self.named, node: name})

    # ---- integers ----------------------------------------------------------------------------------------------------

    def integer(self, node: Basic) -> str:
        """The text of an index expression."""
        if isinstance(node, Symbol | Integer):
            above = int(node) - int(NO_ELEMENT) if isinstance(node, Integer) else INT32
            return 'T.min_value("int64")' + f" + {above}" * (above > 0) if above < INT32 else str(node)
        if isinstance(node, Load):
            return self.named.get(node) or self.load(node)
        if isinstance(node, Ranked):
            return f"ranked({self.number(node.args[0])}, {self.integer(node.args[1])})"
        if isinstance(node, Ordered):
            return f"ordered({self.number(node.args[0])})"
        if isinstance(node, Places | RankedIndex | TwoTo):
            return self.own_integer(node)
        if isinstance(node, Where):
            condition, a, b = node.args
            return f"T.if_then_else({self.condition(condition)}, {self.integer(a)}, {self.integer(b)})"
        if isinstance(node, Add):
            terms = sorted(node.args, key=lambda one: (one.is_Number, str(one)))
            return _join_terms([self.integer(term) for term in terms])
        if isinstance(node, Mul):
            factors = sorted(node.args, key=lambda one: (one.is_Number, str(one)))
            if factors[-1] == -1:
                return f"-{self.factor(Mul(*factors[:-1]))}"
            return " * ".join(self.factor(one) for one in factors)
        if isinstance(node, Max | Min):
            return _nest_calls("T.max" if isinstance(node, Max) else "T.min", [self.integer(one) for one in node.args])
        if isinstance(node, Mod):
            return f"{self.factor(node.args[0])} % {self.factor(node.args[1])}"
        if isinstance(node, floor):
            above, below = node.args[0].as_numer_denom()
            return f"{self.factor(above)} // {self.factor(below)}"
        if isinstance(node, ceiling):
            above, below = node.args[0].as_numer_denom()
            return f"T.ceildiv({self.integer(above)}, {self.integer(below)})"
        if type(node).__name__ == "Exponent":
            return f"exponent({self.number(node.args[0])})"
        raise PlanError(f"`{node}` cannot be printed as an index. Write it by + - * // % min and max of axes.")

    def own_integer(self, node: Places | RankedIndex | TwoTo) -> str:
        """The text of an integer made of a rank, or of a scalar; or a power of 2."""
        if isinstance(node, TwoTo):
            return f"(1 << {self.integer(node.args[0])})"
        if isinstance(node, RankedIndex):
            return f"ranked_index({self.integer(node.args[0])})"
        exact = Printer(self.dtypes, "float64").number(node.args[0])
        near = f'T.cast(T.max(T.min(T.floor({exact}), {FAR}.0), -{FAR}.0), "int32")'
        return f"T.if_then_else(T.isnan({exact}), {node.args[1]}, {near})"

    def factor(self, node: Basic) -> str:
        """The text of an index expression as a factor: in parentheses unless it is one name or number."""
        text = self.integer(node)
        return text if node.is_Atom or isinstance(node, Load | Places | ceiling | Max | Min) else f"({text})"

    # ---- conditions --------------------------------------------------------------------------------------------------

    def condition(self, node: Basic) -> str:
        """The text of a Boolean."""
        if node in self.named:
            return self.named[node]
        if (infinite := of_infinity(node)) is not None:
            return f"is_infinite({self.number(infinite)})"
        if (finite := between_infinities(node)) is not None and not self.is_integer(finite):
            return f"is_finite({self.number(finite)})"
        if isinstance(node, And | Or):
            sign_of = " & " if isinstance(node, And) else " | "
            return sign_of.join(f"({self.condition(one)})" for one in sorted(node.args, key=_length))
        if isinstance(node, Not):
            return f"T.Not({self.condition(node.args[0])})"
        if isinstance(node, IsFinite):
            return f"is_finite({self.number(node.args[0])})"
        if isinstance(node, Is):
            return f"{self.number(node.args[0])} == {self.number(node.args[1])}"
        if isinstance(node, IsNaN):
            return f"T.isnan({self.number(node.args[0])})"
        if isinstance(node, Relational):
            both = self.is_integer(node.lhs) and self.is_integer(node.rhs)
            exact = self.compute != "float64" and is_of_places(node)
            show = self.integer if both else Printer(self.dtypes, "float64").number if exact else self.number
            return f"{show(node.lhs)} {node.rel_op} {show(node.rhs)}"
        if node in (S.true, S.false):
            return "1 == 1" if node == S.true else "1 == 0"
        raise PlanError(f"`{node}` cannot be printed as a condition.")

    def is_integer(self, node: Basic) -> bool:
        """Tell if an expression is computed on integers alone."""
        if isinstance(node, Load):
            return "int" in self.dtypes[node.name]
        if isinstance(node, Symbol | Integer | Places | Ranked | RankedIndex | Ordered | TwoTo):
            return True
        if isinstance(node, Where):
            return all(self.is_integer(one) for one in node.args[1:])
        if type(node).__name__ == "Exponent":
            return True
        args = node.args[0].as_numer_denom() if isinstance(node, floor | ceiling) else node.args
        return isinstance(node, Add | Mul | Max | Min | Mod | floor | ceiling) and all(map(self.is_integer, args))

    def stored_value(self, node: Basic, dtype: str, old: Load | None = None) -> str:
        """The text of a value stored as a dtype: unchanged if it is only moved (or 0, or infinite), else a number.

        `old` is the element that is overwritten; of a sum that begins with another and it, it comes first.
        """
        element = self.bare_element(node, dtype)
        if element is not None and element is node:
            return self.load(element)
        if element is not None:
            other = f'T.cast(0, "{dtype}")' if node.args[2] == 0 else Printer(self.dtypes, dtype).number(node.args[2])
            return f"T.if_then_else({self.condition(node.args[0])}, {self.load(element)}, {other})"
        if dtype.startswith("int") and self.is_integer(node):
            text = self.integer(node)
            return f'T.cast({text}, "{dtype}")' if isinstance(node, Load) else text
        text = self._sum(node, old) if isinstance(node, Add) and node not in self.named else self.number(node)
        return f'T.cast({text}, "{dtype}")' if dtype == "uint8" else text

    def bare_element(self, node: Basic, dtype: str) -> Load | None:
        """The element that a store as a dtype only moves, by itself or where a condition holds; elsewhere 0, or ±∞."""
        if isinstance(node, Load) and self.dtypes[node.name] == dtype:
            return node
        if dtype != self.compute and isinstance(node, Where):
            _, a, b = node.args
            is_plain = b is S.Zero or (b.is_infinite and dtype.endswith("float16"))
            return a if isinstance(a, Load) and self.dtypes[a.name] == dtype and is_plain else None
        return None

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def number(self, node: Basic) -> str:
        """The text of a floating-point expression."""
        if node in self.named:
            return self.named[node]
        if node.is_Mul and node.args[0] == -1 and (positive := Mul(*node.args[1:])) in self.named:
            return f"-{self.named[positive]}"
        if node.is_Number or (isinstance(node, Expr) and node.is_number):
            return self._constant(node)
        if isinstance(node, Load):
            name = self.dtypes[node.name]
            return self.load(node) if name == self.compute else f'T.cast({self.load(node)}, "{self.compute}")'
        if isinstance(node, Where):
            condition, *branches = node.args
            texts = [*map(self.number, branches)]
            return choice_text(self.condition(condition), branches, texts, self.named, self.compute)
        if self.is_integer(node):
            return f'T.cast({self.integer(node)}, "{self.compute}")'
        if isinstance(node, ScaledExp):
            return self._scaled_exp(node)
        if isinstance(node, Mantissa | Scaled | Powered):
            return self._of_parts(*node.args, name=type(node).__name__.lower())
        if isinstance(node, RankedValue | OrderedValue):
            name = "ranked_value" if isinstance(node, RankedValue) else "ordered_value"
            return f"{name}({self.integer(node.args[0])})"
        if isinstance(node, Wide):
            made = Printer(self.dtypes, "float64").number(node.args[0])
            return made if self.compute == "float64" else f'T.cast({made}, "{self.compute}")'
        if isinstance(node, Kept):
            return f"({self.number(node.args[0])})"
        if isinstance(node, Fma | Rounded | Divided | Rate | Instruction):
            return self._of_header(node)
        if isinstance(node, Mul):
            return self._product(node.args)
        if isinstance(node, Add | Pow):
            return self._sum(node) if isinstance(node, Add) else self._power(node)
        return self._function(node)

    def _of_parts(self, m: Expr, e: Expr = S.Zero, h: Expr = S.One, n: Expr = S.Zero, *, name: str) -> str:
        """A call of the header's functions of mantissas and exponents."""
        times = self.integer(n) if self.is_integer(n) else self.number(n)
        args = {"mantissa": (), "scaled": (self.integer(e),), "powered": (self.integer(e), self.number(h), times)}[name]
        return f"{name}({', '.join((self.number(m), *args))})"

    def _of_header(self, node: Fma | Rounded | Divided | Rate | Instruction) -> str:
        """A call of the header's instructions and arithmetic that is rounded once; `rate` takes Python's numbers."""
        if isinstance(node, Instruction):
            return f"{node.name}({self.number(node.args[1])})"
        if isinstance(node, Rate):
            c, *numbers = node.args
            return f"rate({self.number(c)}, {', '.join(repr(float(one)) for one in numbers)})"
        return f"{ROUNDED_ONCE[type(node)]}({', '.join(map(self.number, node.args))})"

    def load(self, node: Load) -> str:
        """A read of a buffer or parameter."""
        return f"{node.name}[{', '.join(map(self.integer, node.indices))}]" if node.indices else node.name

    def _constant(self, node: Basic) -> str:
        if node in (S.NaN, UNDEFINED):
            return "float('nan')"
        if node in (S.Infinity, S.NegativeInfinity):
            return f'{"" if node is S.Infinity else "-"}T.infinity("{self.compute}")'
        return self._decimal(float(node))

    def _decimal(self, value: float) -> str:
        """A literal; TileLang's C target prints literals with seven digits, so longer ones are bound by their bits.

        A literal that stands alone, as either branch of a choice, is a float32 unless it says that it is none.
        """
        short = float(f"{value:.6e}")
        exact = short == value if self.compute == "float64" else _as_float32(short) == _as_float32(value)
        if exact and self.compute == "float64" and _as_float32(value) != value:
            return f"T.float64({value!r})"
        return repr(value) if exact else f"constant({value!r})"

    def _scaled_exp(self, node: ScaledExp) -> str:
        u, c, q = node.args
        number, scalars = q.as_independent(Load, as_Add=False)
        rate = self._decimal(float(number) * LOG2_E)
        rate += "" if scalars is S.One else f" * {self._factor(scalars)}"
        difference = self.number(u) if c is S.Zero else f"({self.number(u)} - {self._factor(c)})"
        return f"T.exp2({difference} * {rate})"

    def _sum(self, node: Add, old: Load | None = None) -> str:
        terms = terms_in_order(node.args)
        if terms[1] == old and not terms[0].could_extract_minus_sign():
            terms[:2] = terms[1::-1]
        return _join_terms([self.number(one) for one in terms])

    def _product(self, args: Iterable[Expr]) -> str:
        args = tuple(args)
        logs = [one for one in args if isinstance(one, log) and not one.is_number]
        if logs and 1 / log(2) in args:  # exact where u is a power of 2
            rest = Mul(*(one for one in args if one not in (logs[0], 1 / log(2))))
            text = f"T.log2({self.number(logs[0].args[0])})"
            return text if rest is S.One else f"{text} * {self._factor(rest)}"
        above, below = above_and_below(args)
        number = Mul(*(one for one in above if one.is_Number))
        above = sorted((one for one in above if not one.is_Number), key=_place_in_product)
        sign_of, size = ("-" if number < 0 else ""), abs(number)
        part = isinstance(size, Rational) and size.p == 1 and size.q not in (1, *SHORT)
        if part:  # a/3 is rounded once, a·(1/3) twice
            below, size = [Float(int(size.q)), *below], S.One
        if size != 1 or not above:
            above = [size, *above]
        top = sign_of + " * ".join(map(self._factor, above))
        if not below:
            return top
        bottom = " * ".join(map(self._factor, below))
        return f"{top} / {bottom if len(below) == 1 else f'({bottom})'}"

    def _factor(self, node: Expr) -> str:
        text = self.number(node)
        word = text.replace(".", "").replace("_", "").isalnum()
        plain = word or isinstance(node, Load | ScaledExp | Instruction | Divided | Where | Kept)
        return text if plain or (text.startswith("T.") and text.endswith(")") and text.count("(") == 1) else f"({text})"

    def _power(self, node: Pow) -> str:
        base, exponent = node.base, node.exp
        if factors := factors_of_power(node):
            return " * ".join(map(self._factor, factors))
        if is_rsqrt(node):
            return f"T.rsqrt({self.number(base)})"
        if is_negative_power(node):
            return self._product((node,))
        if exponent.is_negative:
            return f"1.0 / {self._factor(Pow(base, -exponent))}"
        if exponent == S.Half:
            return f"T.sqrt({self.number(base)})"
        if base == 2:
            return f"T.exp2({self.number(exponent)})"
        return f"T.pow({self.number(base)}, {self.number(exponent)})"

    def _function(self, node: Basic) -> str:
        if isinstance(node, Reduce):
            raise PlanError(f'`{node}` reduces values after the pass, which no kernel holds. Use backend="torch".')
        args = [self.number(one) for one in node.args if not isinstance(node, Cast) or one is node.args[0]]
        if isinstance(node, exp) and log(2) in (factors := Mul.make_args(node.args[0])):
            power = Mul(*(one for one in factors if one != log(2)))
            return f"T.exp2({self.number(power)})"  # of integers an exact power of 2
        if isinstance(node, exp | log):
            return f"T.{'exp' if isinstance(node, exp) else 'log'}({args[0]})"
        if isinstance(node, Max | Min):
            return _nest_calls("T.max" if isinstance(node, Max) else "T.min", args)
        if isinstance(node, Abs):
            return f"T.max({args[0]}, -{self._factor(node.args[0])})"
        if isinstance(node, Cast) and node.dtype.startswith("int"):
            limit = 2 ** (int(node.dtype[3:]) - 1)
            return f"T.max({-limit}.0, T.min({limit - 1}.0, T.nearbyint({args[0]})))"
        if isinstance(node, Cast) and is_emulated(node.dtype):
            return f"{node.dtype}({args[0]})"
        if isinstance(node, Cast):
            return f'T.cast(T.cast({args[0]}, "{node.dtype}"), "{self.compute}")'
        if isinstance(node, floor | ceiling):
            return f"T.{'floor' if isinstance(node, floor) else 'ceil'}({args[0]})"
        if isinstance(node, sign):
            return f"T.if_then_else({args[0]} > 0.0, 1.0, T.if_then_else({args[0]} < 0.0, -1.0, 0.0))"
        if isinstance(node, Mod):
            return f"modulo({args[0]}, {args[1]})"
        operator = operator_of(node)
        if operator is not None and operator.is_external:
            function = operator.kernel if self.compute == "float64" else f"{operator.kernel}f"
            return f'T.call_extern("{self.compute}", "{function}", {", ".join(args)})'
        if operator is not None and operator.kernel:
            return f"{operator.kernel}({', '.join(args)})"
        raise PlanError(f'`{node}`: kernels have no function `{type(node).__name__}` yet. Run it with backend="torch".')


def of_infinity(node: Basic) -> Basic | None:
    """The number that a condition asks to be ∞ or −∞; None of any other condition."""
    pairs = [one.args for one in node.args if isinstance(one, Is)] if isinstance(node, Or) else []
    numbers, ends = {x for x, _ in pairs}, {end for _, end in pairs}
    found = len(pairs) == len(node.args) and len(numbers) == 1 and ends == {S.Infinity, S.NegativeInfinity}
    return numbers.pop() if found else None


def between_infinities(node: Basic) -> Basic | None:
    """The number that a condition asks to be above −∞ and below ∞; None of any other condition."""
    if not isinstance(node, And) or any(not isinstance(one, Relational) or is_of_places(one) for one in node.args):
        return None
    numbers = {one.lhs for one in node.args}
    asked = {(one.rel_op, one.rhs) for one in node.args} == {("<", S.Infinity), (">", S.NegativeInfinity)}
    return numbers.pop() if asked and len(numbers) == 1 else None


def is_of_places(relation: Relational) -> bool:
    """Tell if only places and scalars are compared, for which float64 is exact."""
    loads = relation.atoms(Load)
    return bool(loads) and not any(one.indices for one in loads)


def _as_float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value
    return rounded


def _join_terms(terms: list[str]) -> str:
    out = terms[0]
    for term in terms[1:]:
        out += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return out


def _nest_calls(name: str, args: list[str]) -> str:
    first = 1 if len(args) <= FEW else len(args) // 2
    return f"{name}({_nest_calls(name, args[:first])}, {_nest_calls(name, args[first:])})" if args[1:] else args[0]


def _length(node: Basic) -> tuple[int, str]:
    return len(str(node)), str(node)


def _place_in_product(factor: Expr) -> tuple[bool, str]:
    """The key that orders factors: reciprocals of roots come last."""
    return is_rsqrt(factor), str(factor)
