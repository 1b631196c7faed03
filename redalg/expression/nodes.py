"""Nodes that SymPy lacks: `Where` (a mask that is never rewritten), `Cast` (a rounding) and `Let` (a name).

The engine alone makes `RunningCast`: it stands for a rounding of g(x)·h(d) while d is still running.
"""

from __future__ import annotations

from typing import Any, final

from mpmath.libmp import fnan
from sympy import Expr, NumberSymbol, S, sympify
from sympy.core.singleton import Singleton
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean
from sympy.printing.precedence import PRECEDENCE

from redalg.errors import ExpressionError
from redalg.expression.arguments import answer_arguments
from redalg.expression.dtypes import DTYPES, dtype_as_spelled
from redalg.expression.known import no_more_known
from redalg.expression.node import Node
from redalg.expression.operand import as_operand


@final
@no_more_known
class Where(Node):
    """`a` where the condition holds, else `b`. Unlike `Piecewise`, SymPy never folds or reorders it."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, condition: Any, a: Any, b: Any) -> Any:
        condition, a, b = sympify(condition), sympify(a), sympify(b)
        if condition is S.true or a == b:
            return a
        return b if condition is S.false else Expr.__new__(cls, condition, a, b)

    @property
    def condition(self) -> Boolean:
        """The condition under which the first branch holds."""
        return self.args[0]

    def _eval_power(self, exponent: Expr) -> Expr | None:
        """A power of 1, of 0 or of no number at all is what it is a power of: an indicator stays one."""
        plain = all(one in (S.Zero, S.One, UNDEFINED) for one in self.args[1:])
        return self if plain and exponent.is_extended_positive else None

    def _eval_derivative(self, symbol: Expr) -> Expr:
        condition, a, b = self.args
        return Where(condition, a.diff(symbol), b.diff(symbol))

    def _sympystr(self, printer: Any) -> str:
        return f"where({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        condition, a, b = map(printer._print, self.args)
        body = rf"\begin{{cases}} {a} & {condition} \\ {b} & \text{{otherwise}} \end{{cases}}"
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


@final
class Undefined(NumberSymbol, metaclass=Singleton):
    """A value that is no real number, such as √(−1): NaN for terms that SymPy sorts (its own compares with nothing)."""

    is_commutative = True
    is_number = True
    is_finite = None
    is_real = is_extended_real = is_irrational = None

    def _as_mpf_val(self, prec: int) -> Any:
        return fnan

    def _sympystr(self, printer: Any) -> str:
        return "nan"

    def _latex(self, printer: Any) -> str:
        return r"\mathrm{NaN}"


UNDEFINED = Undefined()


@final
@no_more_known
class Cast(Node):
    """`expr` rounded to `dtype` (saturating for integers and 8-bit floats)."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, expr: Any, dtype: Any) -> Cast:
        node: Cast = Expr.__new__(cls, sympify(expr), dtype if isinstance(dtype, Str) else Str(dtype))
        return node

    @property
    def dtype(self) -> str:
        """The dtype's name, such as `"float16"`."""
        return str(self.args[1].name)

    def _sympystr(self, printer: Any) -> str:
        return f"cast({printer._print(self.args[0])}, {self.dtype})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = rf"\operatorname{{{self.dtype.replace('_', chr(92) + '_')}}}\left({printer._print(self.args[0])}\right)"
        return body if exp is None else f"{body}^{{{exp}}}"


@final
@no_more_known
class RunningCast(Node):
    """g rounded to `dtype` at the scale h: cast(g·h)/h, and cast(g) where h is 0 or not finite (nothing met yet)."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, g: Any, h: Any, dtype: Any) -> RunningCast:
        node: RunningCast = Expr.__new__(cls, sympify(g), sympify(h), dtype if isinstance(dtype, Str) else Str(dtype))
        return node

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return str(self.args[2].name)

    @property
    def quotient(self) -> Expr:
        """cast(g·h)/h, as mathematics writes it."""
        return Cast(self.args[0] * self.args[1], self.args[2]) / self.args[1]

    def _sympystr(self, printer: Any) -> str:
        return str(printer._print(self.quotient))

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = str(printer._print(self.quotient))
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


@final
@no_more_known
class Let(Node):
    """`expr`, under a name that appears in the derivation and in the kernel. Its value is that of `expr`."""

    is_extended_real = True
    is_commutative = True

    def __new__(cls, name: Any, expr: Any) -> Let:
        node: Let = Expr.__new__(cls, name if isinstance(name, Str) else Str(name), sympify(expr))
        return node

    @property
    def name(self) -> str:
        """The display name."""
        return str(self.args[0].name)

    @property
    def expr(self) -> Expr:
        """The expression that it names."""
        return self.args[1]

    def _eval_derivative(self, symbol: Expr) -> Expr:
        return self.expr.diff(symbol)

    def _eval_evalf(self, prec: int) -> Any:
        return self.expr._eval_evalf(prec)

    def __float__(self) -> float:
        return float(self.expr)

    def _sympystr(self, printer: Any) -> str:
        return str(printer.parenthesize(self.expr, PRECEDENCE["Pow"]))

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = str(printer._print(self.expr))
        return body if exp is None else rf"\left({body}\right)^{{{exp}}}"


@answer_arguments(ExpressionError, 'Write `ra.cast(x, "float16")`.')
def cast(expr: Any, dtype: Any) -> Cast:
    """Round `expr` to `dtype` (saturating for integers and 8-bit floats): a name, or a dtype of torch or NumPy.

    A cast that mixes data and reduced values does not commute with a later rescaling: the verdict is `Approximate`.
    The cast of an element of an integer tensor reads it as a float, if the float and the arithmetic hold each of its
    integers (of 8 bits float16 does, of 16 bits float32); a call with wider integers is refused.

    >>> from sympy import Symbol
    >>> cast(Symbol("x"), "float16")
    cast(x, float16)
    """
    known = [name for name, one in DTYPES.items() if one.rounds]
    name = dtype_as_spelled(dtype)
    if name not in known:
        raise ExpressionError(f"cast: unknown dtype {dtype!r}. Use one of {', '.join(known)}.")
    return Cast(as_operand("cast", expr, f'ra.cast(x, "{name}")'), name)


@answer_arguments(ExpressionError, 'Write `ra.let("name", expression)`.')
def let(name: str, expr: Any) -> Let:
    r"""Name an expression: a derivation calls it so wherever it stands, and its value is unchanged.

    Kernels, `Fused.g` and states have the names of reductions and of what is computed on other axes, such as scores; a
    mean, an output or a scalar is named in derivations alone, since kernels hold the sums that it is made of.

    Args:
        name: an identifier that no tensor, scalar or other expression bears.
        expr: any expression, reductions or data.

    Raises:
        ExpressionError: it is no identifier. `fuse` refuses a name that is given twice, or to an input.

    >>> import redalg as ra
    >>> n, x = ra.axes("n"), ra.tensor("x[b,n]")
    >>> mu = ra.let("mu", ra.mean(x, n))
    >>> text = ra.fuse(ra.mean((x - mu) ** 2, n)).explain()
    >>> print(*(line.strip() for line in text.splitlines() if "mu" in line), sep="\n")
    sum_1[b] = Σ_n (x[b,n] − mu)²
    mu[b] = sum_0/count
    F  = (x[b,n] − mu)²
    g₂ = −2·x[b,n]    h₂ = mu
    g₃ = 1            h₃ = mu²
    """
    if isinstance(expr, str) and not isinstance(name, str):
        raise ExpressionError(f'let: the name comes first. Write `ra.let("{expr}", {name})`.')
    if not isinstance(name, str) or not name.isidentifier():
        raise ExpressionError(f"let: {name!r} is not a name. Write an identifier, as in `let('m', ra.max(x, n))`.")
    return Let(name, as_operand("let", expr, f'ra.let("{name}", ra.max(x, n))'))
