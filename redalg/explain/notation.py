"""Mathematics in writing, once for every medium: the walk over an expression, and the pieces that a `Writer` gives.

    name := base mark*        mark := ′ (the state after one more piece) | ̂ (a piece's own state) | ⱼ (of the piece j)

A writer says how a fraction, a power or a name looks; order, signs and parentheses are decided here, so that text and
LaTeX never differ in what they say. Terms and factors keep SymPy's own order, which no hash seed moves, but for two
habits of the hand: the old state comes before the piece's, and the powers of a displacement rise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from sympy import Abs, Add, And, Expr, Float, Max, Min, Mul, Not, Or, Pow, Rational, S, Symbol, Tuple, exp, floor
from sympy.core.basic import Basic
from sympy.core.function import Application
from sympy.core.relational import Relational

from redalg.expression import Cast, Element, Extent, Label, Let, Reduce, RunningCast, Value, Where
from redalg.expression.contents import values_of
from redalg.monoids.functions import Infinite, Powered, Scaled

PRIME, HAT = "′", "\N{COMBINING CIRCUMFLEX ACCENT}"
LONG_HAT = "ˆ"
"""The hat of a name of several letters, which it follows: no accent spans them."""
EACH = {"j": "ⱼ", "i": "ᵢ", "s": "ₛ", "t": "ₜ"}
LETTERS = {"F": "fΦ", "g": "Gγ", "h": "Hη", "v": "Vω", "x": "Xξ", "d": "Dθ", "r": "Rϱ", "n": "Nν", "φ": "ψϕ"}
"""A letter of the notation -> those that stand for it, the first that is free, where the user has the letter."""
DELTA, RHO = "delta_", "rho_"

SUM, PRODUCT, POWER, ATOM = range(4)
"""The binding strength of a place: an expression that binds less stands in parentheses there."""

# ---- names -----------------------------------------------------------------------------------------------------------


def mark_value(value: Value, *marks: str) -> Value:
    """The same quantity of another state: m -> m′, m̂ or m̂ⱼ."""
    return Value(Label(value.name + "".join(marks)), *value.indices)


def split_marks(name: str) -> tuple[str, str]:
    """A name as (base, marks)."""
    base = name.rstrip(PRIME + HAT + "".join(EACH.values()))
    return base, name[len(base) :]


def free_letters(taken: Collection[str]) -> dict[str, str]:
    """The letters of the notation that are names already -> the letters that stand for them.

    >>> free_letters({"d", "x", "X"})
    {'x': 'ξ', 'd': 'D'}
    """
    clashes = (letter for letter in LETTERS if letter in taken)
    return {letter: next((one for one in LETTERS[letter] if one not in taken), letter * 2) for letter in clashes}


# ---- order -----------------------------------------------------------------------------------------------------------


def ordered_terms(expr: Add) -> list[Expr]:
    """The terms in order: old state before the piece's, powers of δ rising, a positive term first if there is one."""
    terms = sorted(expr.as_ordered_terms(), key=_term_rank)
    first = next((i for i, term in enumerate(terms) if not is_negative(term)), 0)
    return [terms[first], *terms[:first], *terms[first + 1 :]]


def is_negative(expr: Expr) -> bool:
    """Tell if the numeric coefficient is negative: −(a − b) is, and (b − a) is not, unlike SymPy's canonical sign."""
    return bool(expr.as_coeff_Mul()[0].is_negative)


def _term_rank(term: Expr) -> tuple[bool, int, bool]:
    values = list(_values(term))
    piece = any(HAT in one.name for one in values_of(term)) or not values
    return piece, displacement_degree(term), not isinstance(term, Value)


def _values(expr: Basic) -> Iterator[Value]:
    """The values in an expression, without those in exponents."""
    if isinstance(expr, Value):
        yield expr
    elif not isinstance(expr, exp):
        for arg in expr.args:
            yield from _values(arg)


def displacement_degree(term: Expr) -> int:
    """The power of displacements in a term."""
    if isinstance(term, Value | Abs):
        return displacement_degree(term.args[0]) if isinstance(term, Abs) else term.name.startswith(DELTA)
    if isinstance(term, Pow):
        return displacement_degree(term.base) * (int(term.exp) if term.exp.is_Integer else 0)
    return sum(map(displacement_degree, term.args)) if term.is_Mul else 0


def _factor_rank(factor: Expr) -> int:
    """The rank of a factor in a product as written by hand: δ·state·exp(…)·data·functions·(sums)."""
    base, _ = factor.as_base_exp()
    if isinstance(factor, exp):
        return 3
    if isinstance(base, Value):
        return 1 if base.name.startswith((DELTA, RHO)) else 2
    return 6 if base.is_Add or isinstance(base, Reduce) else 4 if isinstance(base, Element | Symbol) else 5


def fraction_factors(expr: Expr) -> tuple[bool, list[Expr], list[Expr]]:
    """A product as (negative, factors above the line, factors below it)."""
    number, rest = expr.as_coeff_Mul()
    p, q = (abs(number.p), number.q) if number.is_Rational else (abs(number), S.One)
    above, below = [Rational(p) if number.is_Rational else p], [Rational(q)]
    for factor in sorted(rest.as_ordered_factors(), key=_factor_rank):
        inverse = isinstance(factor, Pow) and not isinstance(factor, exp) and is_negative(factor.exp)
        (below if inverse else above).append(1 / factor if inverse else factor)
    above, below = ([one for one in part if one is not S.One] for part in (above, below))
    return bool(number.is_negative), above or [S.One], below


# ---- writers ---------------------------------------------------------------------------------------------------------


class Writer(ABC):
    """Writes an expression in one medium: `write` walks, a medium gives the pieces."""

    comparisons: dict[str, str]
    words: dict[str, str]
    minus: str

    def write(self, expr: Basic, place: int = SUM) -> str:
        """The expression, in parentheses if the place binds more tightly than it does."""
        for kind, rule in RULES:
            if isinstance(expr, kind):
                body, binds = rule(self, expr)
                return body if binds >= place else self.parentheses(body)
        return self.foreign(expr)

    def many(self, exprs: Sequence[Basic]) -> list[str]:
        """Each expression as it stands alone."""
        return [self.write(one) for one in exprs]

    @abstractmethod
    def name(self, name: str) -> str:
        """A name with its marks."""

    @abstractmethod
    def symbol(self, name: str) -> str:
        """A symbol that only the explanation uses: F, g_1."""

    @abstractmethod
    def element(self, name: str, indices: Sequence[Basic]) -> str:
        """A name with indices."""

    @abstractmethod
    def parentheses(self, body: str) -> str:
        """A body in parentheses."""

    @abstractmethod
    def product(self, factors: Sequence[str]) -> str:
        """A product of factors."""

    @abstractmethod
    def fraction(self, above: Sequence[Expr], below: Sequence[Expr]) -> tuple[str, int]:
        """A quotient of products, and how tightly it binds."""

    @abstractmethod
    def power(self, base: Expr, exponent: Expr) -> tuple[str, int]:
        """A power, and how tightly it binds."""

    @abstractmethod
    def function(self, name: str, args: Sequence[Basic]) -> str:
        """A function of arguments."""

    @abstractmethod
    def brackets(self, kind: str, body: str) -> str:
        """A body between the fences of `abs` (an extent too) or `floor`."""

    @abstractmethod
    def reduction(self, kind: str, axes: Sequence[str], body: str) -> str:
        """A big operator over axes."""

    @abstractmethod
    def cases(self, condition: str, a: str, b: str) -> str:
        """One value where a condition holds, another elsewhere."""

    @abstractmethod
    def foreign(self, expr: Basic) -> str:
        """Infinity, and all other expressions of SymPy."""


# ---- rules: an expression's kind -> (what is written, how tightly it binds) ------------------------------------------

Rule = Callable[[Writer, Any], tuple[str, int]]


def _sum(writer: Writer, expr: Add) -> tuple[str, int]:
    body = ""
    for term in ordered_terms(expr):
        negative = is_negative(term)
        part = writer.write(-term if negative else term, PRODUCT)
        sign = f" {writer.minus} " if negative else " + "
        body += sign + part if body else (writer.minus + part if negative else part)
    return body, SUM


def _product(writer: Writer, expr: Mul) -> tuple[str, int]:
    negative, above, below = fraction_factors(expr)
    if below:
        body, binds = writer.fraction(above, below)
    elif len(above) == 1:
        body, binds = writer.write(above[0], PRODUCT), PRODUCT
    else:
        body, binds = writer.product([writer.write(one, POWER) for one in above]), PRODUCT
    return (writer.minus + body, SUM) if negative else (body, binds)


def _power(writer: Writer, expr: Pow) -> tuple[str, int]:
    return _product(writer, expr) if is_negative(expr.exp) else writer.power(expr.base, expr.exp)


def _number(writer: Writer, expr: Rational) -> tuple[str, int]:
    if expr.is_negative:
        return writer.minus + writer.write(-expr, PRODUCT), SUM
    return (str(expr), ATOM) if expr.q == 1 else writer.fraction([Rational(expr.p)], [Rational(expr.q)])


def _extremum(writer: Writer, expr: Expr) -> tuple[str, int]:
    args = sorted(expr.args, key=lambda one: (not isinstance(one, Value), str(one)))
    return writer.function(type(expr).__name__.lower(), args), ATOM


def _reduce(writer: Writer, expr: Reduce) -> tuple[str, int]:
    kind = ".".join(filter(None, (expr.kind, expr.result)))
    return writer.reduction(kind, [axis.name for axis in expr.bound], writer.write(expr.expr, PRODUCT)), PRODUCT


def _relation(writer: Writer, expr: Relational) -> tuple[str, int]:
    left, right = expr.args
    if isinstance(left, Infinite) and right != 0:
        left, right = left.args[0], right * S.Infinity
    return f"{writer.write(left)} {writer.comparisons[expr.rel_op]} {writer.write(right)}", SUM


def _connective(writer: Writer, expr: Basic) -> tuple[str, int]:
    word = writer.words[type(expr).__name__]
    places = [PRODUCT if isinstance(one, And | Or) else SUM for one in expr.args]
    parts = sorted(zip(map(str, expr.args), expr.args, places, strict=True), key=lambda one: one[0])
    return f" {word} ".join(writer.write(one, place) for _, one, place in parts), SUM


RULES: tuple[tuple[type | tuple[type, ...], Rule], ...] = (
    (Value, lambda w, e: (w.name(e.name), ATOM)),
    (Element, lambda w, e: (w.element(e.name, e.indices), ATOM)),
    (Extent, lambda w, e: (w.brackets("abs", w.name(e.name)), ATOM)),
    (type(S.NegativeInfinity), lambda w, _: (w.minus + w.write(S.Infinity), SUM)),
    (Rational, _number),
    (Float, lambda w, e: (f"{float(e):g}".replace("-", w.minus), SUM if e < 0 else ATOM)),
    (Symbol, lambda w, e: (w.symbol(e.name) if type(e) is Symbol else w.name(e.name), ATOM)),
    (Add, _sum),
    (Mul, _product),
    (exp, lambda w, e: (w.function("exp", e.args), ATOM)),
    (Pow, _power),
    ((Max, Min), _extremum),
    ((Abs, floor), lambda w, e: (w.brackets(type(e).__name__.lower(), w.write(e.args[0])), ATOM)),
    (Reduce, _reduce),
    (Tuple, lambda w, e: (w.parentheses(", ".join(w.many(e.args))), ATOM)),
    (Scaled, lambda w, e: _product(w, Mul(e.args[0], Pow(2, e.args[1])))),
    (Powered, lambda w, e: _product(w, Mul(e.args[0], Pow(2, e.args[1]), Pow(e.args[2], e.args[3])))),
    (Let, lambda w, e: (w.write(e.expr, ATOM), ATOM)),
    (Where, lambda w, e: (w.cases(*w.many(e.args)), ATOM)),
    (Cast, lambda w, e: (w.function(e.dtype, e.args[:1]), ATOM)),
    (RunningCast, lambda w, e: _product(w, e.quotient)),
    (Relational, _relation),
    ((And, Or), _connective),
    (Not, lambda w, e: (f"{w.words['Not']} {w.write(e.args[0], PRODUCT)}", SUM)),
    (Application, lambda w, e: (w.function(type(e).__name__, e.args), ATOM)),
)
