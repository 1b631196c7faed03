"""Values kept as exp(λ)·v, with λ cancelled where values meet: in products, powers, roots, ratios and logarithms.

exp(λ)·v · exp(μ)·w → exp(λ + μ)·v·w        log(exp(λ)·v) → λ + log v
Σ exp(λ)·v          → exp(m)·Σ exp(λ − m)·v    m the largest λ, under a root, a ratio or a logarithm
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sympy import Add, And, Expr, Mul, Pow, S, exp, log
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.theorems import X
from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.expression.expanded import expand_to_cancel
from redalg.incremental.derive.doubtful import where_finite
from redalg.incremental.derive.exponents import as_shares, gather_exponent, largest_of, power_of_scales, with_exponents
from redalg.incremental.derive.placement import Placement
from redalg.incremental.derive.scales import is_root


@final
class ScaledValues:
    """The values of a finish that are kept as exp(λ)·v.

    Attributes:
        exponents: λ, and the value v, by value.
        guards: where any element counts, by value; elsewhere the value is 0.
        bounded: values of at most 1 in size.
    """

    def __init__(
        self, placement: Placement, named: Callable[[str, Expr], Expr], *, composite: bool, level: bool
    ) -> None:
        self._placement, self._named, self._composite, self._level = placement, named, composite, level
        self.exponents: dict[Value, tuple[Expr, Value]] = {}
        self.guards: dict[Expr, Boolean] = {}
        self.bounded = set[Value]()

    def split_exponent(self, expr: Expr, *, divided: bool = False) -> tuple[Expr, Expr]:
        """An expression of values as (λ, v) with expr = exp(λ)·v; `divided` if it may leave the range without harm."""
        if expr in self.exponents:
            return self.exponents[expr]
        of_x = self._carries(expr)
        if not any(value in self.exponents for value in values_of(expr)) and not (of_x and expr.has(exp)):
            return S.Zero, expr
        if isinstance(expr, exp) and of_x:
            return self.safe(expr.args[0]), S.One
        if isinstance(expr, Mul):
            divided = divided or any(isinstance(arg, Pow) and is_root(arg.exp) for arg in expr.args)
            parts = [self.split_exponent(arg, divided=divided) for arg in expr.args]
            exponent = self._exponent(*(scale for scale, _ in parts))
            finite = where_finite((scale for scale, _ in parts), exponent, self._placement)
            return exponent, Mul(*(v for _, v in parts), finite)
        if isinstance(expr, Pow) and expr.exp.is_Rational:
            scale, v = self.split_exponent(expr.base, divided=divided or is_root(expr.exp))
            return self._exponent(scale * expr.exp), v**expr.exp
        if isinstance(expr, log):
            scale, v = self.split_exponent(expr.args[0], divided=True)
            inverse = v.is_Pow and v.exp is S.NegativeOne
            return S.Zero, scale - log(v.base) if inverse else scale + log(v)
        if isinstance(expr, Add):
            parts = [self.split_exponent(arg, divided=divided) for arg in expr.args]
            if len({scale for scale, _ in parts}) == 1:
                return parts[0][0], Add(*(v for _, v in parts))
            power = power_of_scales(scale for scale, _ in parts)
            beside = divided and (self._level or all(scale is not S.Zero for scale, _ in parts))
            if power is not None and not of_x and (power <= 1 or beside):
                return self._about_size(parts, power)
            if divided and not of_x:
                return self._about_largest([with_exponents(*part) for part in parts])
        return S.Zero, expr.func(*(self.safe(arg) for arg in expr.args))

    def _about_largest(self, parts: list[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """Σ exp(λ)·v of pairs (λ, v) as one such pair, whose λ is the largest, under a name of its own."""
        largest = largest_of(scale for scale, _ in parts)
        top = self._named("scale", largest)
        return top, Add(*(exp(scale - top) * v for scale, v in parts))

    def _about_size(self, parts: list[tuple[Expr, Expr]], power: Expr) -> tuple[Expr, Expr]:
        """Σ m^k·v of pairs (k·log m, v); beyond a power of 1, its terms are shares of the largest."""
        if power <= 1:
            return S.Zero, Add(*(exp(scale) * v for scale, v in parts))
        unit, total = as_shares(parts, power, self._named, self.bounded)
        return power * log(unit), total

    def safe(self, expr: Expr) -> Expr:
        """The expression with exponents cancelled as far as they go."""
        if expr in self.guards:
            return expr
        scale, v = self.split_exponent(expr)
        if scale is S.Zero:
            return v
        guards = [self.guards[one] for one in Mul.make_args(expr) if one in self.guards]
        if guards:  # an exponent of no element may be anything
            return Where(And(*guards), exp(scale), S.One) * v
        return self.times(scale, v)

    def times(self, scale: Expr, v: Expr) -> Expr:
        """exp(λ)·v; exp(k·m)·v as exp(m)·(…·(exp(m)·v)), named: v may be tiny if scaled and shifted."""
        k, m = scale.as_content_primitive()
        if not (k.is_Integer and self._composite) or self._carries(v):
            return exp(scale) * v
        for _ in range(int(k) - 1):
            v = self._named("part", exp(m) * v)
        return exp(m) * v

    def _exponent(self, *scales: Expr) -> Expr:
        """The sum of exponents: terms of d alone are expanded to cancel, terms with x stay as they were written."""
        terms = [term for scale in scales for term in Add.make_args(scale)]
        of_d = expand_to_cancel(Add(*(term for term in terms if not self._carries(term))))
        return Add(*(term for term in terms if self._carries(term)), gather_exponent(of_d))

    def _carries(self, expr: Expr) -> bool:
        return bool(self._placement.decomposition.separator.side(expr) & X)
