"""Separation: F(x, d) = Σ_k h_k(d)·g_k(x) as an exact Laurent polynomial, or `NotSeparable` with the offending node.

    separate(F) → polynomial        rewrites, each exact under its condition:

    a + b            → separate(a) + separate(b)
    a · b            → separate(a) · separate(b)
    a^n              → separate(a)^n                                   n natural
    (g(x)·h(d))^q    → g^q · h^q                                       rank 1; q fractional: g ≥ 0 or h ≥ 0 known
    (g·h)^q, log g·h → |g|^q·|h|^q, log|g| + log|h|                    plus NaN·([g < 0]·[h > 0] + [g > 0]·[h < 0])
    (a^2n)^q         → |a|^2nq                                         q fractional
    |a|^2n           → a^2n
    where(c, a, 0)^n → where(c, a^n, 0)                                n natural
    exp(u(x) + v(d)) → E[u] · E[v]
    b^(u + v)        → exp(u·log b) · exp(v·log b)                     b a number or parameter known to be ≥ 0
    log(g(x)·h(d))   → log g + log h                                   rank 1; g ≥ 0 or h ≥ 0 known
    expm1(u + v)     → exp(u + v) − 1                                  log1p(a) → log(1 + a)
    sin(u + v)       → sin u · cos v + cos u · sin v                   cos alike
    cosh z           → (exp z + exp(−z))/2                             z of x and d; sinh alike
    cast(g(x)·h(d))  ≈ cast(g·h')/h' · h                               h' the running h: bound in `running_rounding`

What has kinks and jumps has its rewrites in `piecewise`. Maximal subtrees of x alone or of d alone are opaque atoms, so
that masks, gathers, tanh(x) and the like cost nothing; so is a product or a power of x that stands beside a value in a
sum, as in (x² − v)²: it is what a pivot shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import Any, final

from sympy import (
    Abs,
    Add,
    Expr,
    Max,
    Min,
    Mod,
    Mul,
    Pow,
    S,
    ceiling,
    cos,
    cosh,
    exp,
    floor,
    log,
    sign,
    sin,
    sinh,
)  # fmt: skip
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.separate import laurent
from redalg.decompose.separate.exponentials import as_exponential
from redalg.decompose.separate.laurent import Atom, Atoms, Monomial, Polynomial, Ratio, rational
from redalg.decompose.separate.piecewise import abs_rule, extremum_rule, sign_rule, steps_rule, where_rule
from redalg.decompose.separate.rounding import Rounding
from redalg.decompose.separate.running import refuse_functions, running_rounding
from redalg.decompose.separate.separating import Separating
from redalg.decompose.separate.signs import STRICT, UP, Facts, KnownFacts, absolute, is_nonnegative, sign_of
from redalg.decompose.separate.theorems import (
    D,
    NotSeparable,
    X,
    coupling_reason,
    declaration_advice,
    is_analytic,
    pole,
    singular,
    singularity,
)
from redalg.errors import Text
from redalg.expression import UNDEFINED, Axis, Cast, RunningCast, Value, Where
from redalg.expression.contents import of_kind, sympy_text
from redalg.expression.expanded import evaluate_nodes, expand_products
from redalg.expression.rebuild import canonical_order


@final
class Separator(Separating):
    """Separate terms over reduced axes. `facts` says what each value is: its monoid's name and its term."""

    def __init__(
        self, axes: Axis | Iterable[Axis], values: Iterable[Value], facts: Facts, domain: Boolean = S.true
    ) -> None:
        self.atoms, self.domain = Atoms(), domain
        self.axes = frozenset((axes,) if isinstance(axes, Axis) else axes)
        self.values = frozenset(values)
        self.facts: KnownFacts = KnownFacts(facts)
        self.others: dict[Value, Reduction] = {}  # those that are no facts: their terms may be of several operands
        self.shifts: list[tuple[Expr, Expr]] = []
        self.products: dict[Expr, None] = {}
        self.roundings: list[Rounding] = []
        self.primitives: dict[Expr, Expr] = {}  # v of exponents q·v with rational q -> the q of the atom E[q·v]
        self._sides, self._pure = dict[Basic, int](), dict[Expr, Polynomial]()
        self.sampled = dict[Basic, Any]()  # what samples know of its nodes
        self._sides_of: dict[int, tuple[Basic, int]] = {}  # by identity, as to find an equal node takes longer

    def side(self, node: Basic) -> int:
        """The sides that a node depends on: x (1), d (2), both (3) or neither (0: a parameter)."""
        if (known := self._sides_of.get(id(node))) is not None:
            return known[1]
        if node not in self._sides:
            own = D if node in self.values else X if node in self.axes else 0
            self._sides[node] = own or reduce(or_, map(self.side, node.args), 0)
        self._sides_of[id(node)] = node, self._sides[node]
        return self._sides[node]

    def separate(self, node: Expr) -> Polynomial:
        """The polynomial of a term."""
        if self.side(node) != X | D:
            return self.pure(node)
        refuse_functions(self, node)
        for kind, rule in RULES:
            if isinstance(node, kind):
                return rule(self, node)
        if type(node).__name__ in BY_NAME:
            return self.separate(BY_NAME[type(node).__name__](node.args[0]))
        argument = node.args[0]
        reason, certain = singular(argument, type(node).__name__, analytic=is_analytic(argument, self.side))
        raise NotSeparable(node, reason, certain=certain)

    # ---- of x alone, or of d alone -------------------------------------------------------------------------------

    def pure(self, node: Expr) -> Polynomial:
        """A subtree of one side: split along products, powers and exponentials, and otherwise one opaque atom."""
        if node not in self._pure:
            self._pure[node] = self._split(node)
        return self._pure[node]

    def _split(self, node: Expr) -> Polynomial:
        on_x = self.side(node) == X
        if node.is_Number and (value := rational(node)) is not None:
            return laurent.constant_polynomial(value)
        if node.is_Mul:
            return self._pure_product(node)
        if isinstance(node, exp):
            return self.exponential(node.args[0])
        if node.is_Pow and (value := rational(node.exp)) is not None:
            return self._opaque(node) if node in self.products else self._pure_power(node.base, value, on_x)
        if node.is_Pow and not self.side(node.base) and self.side(node.exp) and is_nonnegative(node.base, self.facts):
            return self.exponential(node.exp * log(node.base))
        if isinstance(node, log) and not on_x:
            return self._pure_log(node.args[0])
        if node.is_Add and not on_x:
            return laurent.add(*map(self.pure, node.args))
        if node.is_Add and (collected := evaluate_nodes(node)) != node:
            return self.pure(collected)
        if (on_x or node.is_Pow) and (form := as_exponential(node)) is not None:
            return laurent.multiply(self.exponential(form[0]), self.pure(form[1]))
        if node.is_Add and node.could_extract_minus_sign():
            return laurent.scale(self.atoms.polynomial(Atom(-node, on_x, exponential=False)), -1)
        return self._opaque(node)

    def _pure_product(self, node: Expr) -> Polynomial:
        """The product of the factors; a product that is shifted somewhere stays one generator."""
        left, out = list(node.args), laurent.ONE
        for whole in (one for one in self.products if one.is_Mul):
            if all(factor in left for factor in whole.args):
                left = [factor for factor in left if factor not in whole.args]
                out = laurent.multiply(out, self._opaque(whole))
        return laurent.multiply(out, self._product(left))

    def keep_products(self, terms: Iterable[Expr]) -> None:
        """Keep products and powers of x that stand beside values in a sum, x·y − v(d), as generators of their own."""
        for term in terms:
            wholes = {node: whole for node in of_kind(Add, term) if (whole := self._whole(node)) is not None}
            self.products |= {wholes[node]: None for node in sorted(wholes, key=sympy_text)}

    def _whole(self, node: Expr) -> Expr | None:
        """The product or power of x that stands alone beside what is free of x."""
        of_x = [one for one in node.args if self.side(one) == X]
        if len(of_x) != 1 or self.side(node) != X | D or any(self.side(one) == X | D for one in node.args):
            return None
        whole = of_x[0].as_coeff_Mul()[1]
        power = whole.is_Pow and rational(whole.exp) is not None
        return whole if (power or (whole.is_Mul and len(whole.args) > 1)) and not whole.has(exp, Where) else None

    def _opaque(self, node: Expr) -> Polynomial:
        return self.atoms.polynomial(Atom(node, self.side(node) == X, exponential=False))

    def _pure_power(self, base: Expr, exponent: Ratio, on_x: bool) -> Polynomial:
        if exponent.denominator == 1 and not base.is_Add:
            poly = self.pure(base)
            if len(poly) == 1:
                [((x, d), c)] = poly.items()
                monomials = (laurent.power_monomial(x, exponent), laurent.power_monomial(d, exponent))
                return {monomials: laurent.whole_power(c, int(exponent))}
        if exponent.denominator == 1 and base.is_Add and base.could_extract_minus_sign():
            sign = -1 if exponent % 2 else 1
            return laurent.scale(self.atoms.polynomial(Atom(-base, on_x, exponential=False), exponent), sign)
        if base.is_Mul or isinstance(base, exp):
            return self._opened_power(base, exponent, on_x)
        if base.is_Pow and base.exp is S.NegativeOne and not on_x:  # (1/h)^q → h^−q, so that powers of h are one atom's
            return self._pure_power(base.base, -exponent, on_x)
        return self.atoms.polynomial(Atom(base, on_x, exponential=False), exponent)

    def _opened_power(self, base: Expr, exponent: Ratio, on_x: bool) -> Polynomial:
        """(E[u]·b·c)^q → E[u]^q · b^q · c^q if b ≥ 0 is known; the rest stays one atom."""
        opened, rest = self._split_sign(base)
        monomial = laurent.power_monomial(opened, exponent)
        polynomial: Polynomial = {(monomial, ()) if on_x else ((), monomial): 1}
        if rest is S.One:
            return polynomial
        return laurent.multiply(polynomial, self.atoms.polynomial(Atom(rest, on_x, exponential=False), exponent))

    def _split_sign(self, node: Expr) -> tuple[Monomial, Expr]:
        """A product of one side as (what is known to be ≥ 0, the rest)."""
        if len(poly := self.pure(node)) != 1:
            return (), node
        [((x, d), c)] = poly.items()
        nonnegative = [pair for pair in x + d if self.atoms.list[pair[0]].exponential
                       or is_nonnegative(self.atoms.list[pair[0]].base, self.facts)]  # fmt: skip
        rest = self.atoms.expr(tuple(one for one in x + d if one not in nonnegative))
        return tuple(nonnegative), laurent.fraction(c) * rest

    def exponential(self, argument: Expr) -> Polynomial:
        """exp(Σ pure terms) → E[u(x)] · Π E[v(d)]: the x-part is one atom, so that its maximum pivots it."""
        terms = self._addends(argument) if self.side(argument) == X | D else Add.make_args(argument)
        out, x_terms = laurent.ONE, list[Expr]()
        for term in terms:
            if self.side(term) == X | D:
                raise NotSeparable(exp(term), coupling_reason(term, "exp"), certain=True)
            if self.side(term) == X:
                x_terms.append(term)
            else:
                out = laurent.multiply(out, self._d_exponential(term))
        if (u := Add(*x_terms)) is not S.Zero:
            out = laurent.multiply(out, self._exponential_atom(u, on_x=True))
        return out

    def _addends(self, argument: Expr) -> tuple[Expr, ...]:
        """A sum that mixes x and d as terms of one side, which stay as written: (x − y)² is exact near y.

        If a mixed term is left, the mixed ones are written out, so that parts of them may cancel.
        """
        whole = [term for term in Add.make_args(argument) if self.side(term) != X | D]
        mixed = Add(*(term for term in Add.make_args(argument) if self.side(term) == X | D))
        parts = Add.make_args(expand_products(mixed, lambda node: self.side(node) != X | D))
        if any(self.side(term) == X | D for term in parts):
            parts = Add.make_args(expand_products(mixed))
        return (*whole, *parts) if mixed is not S.Zero else tuple(whole)

    def _d_exponential(self, term: Expr) -> Polynomial:
        coefficient, rest = term.as_coeff_Mul()
        if isinstance(rest, log) and coefficient.is_Rational:
            return self.separate(Pow(rest.args[0], coefficient))
        if not term.free_symbols:
            return self.atoms.value_polynomial(exp(term))
        return self._exponential_atom(term, on_x=False)

    def _exponential_atom(self, argument: Expr, on_x: bool) -> Polynomial:
        content, rest = self._primitive(argument) if argument.is_Add else argument.as_coeff_Mul()
        factor = rational(content)
        if factor is None:
            factor, rest = 1, argument
        elif factor < 0 and on_x:  # E[-u] is an atom of its own: the pivot is its own maximum
            factor, rest = -factor, -rest
        return self.atoms.polynomial(Atom(rest, on_x, exponential=True), factor)

    def _primitive(self, argument: Expr) -> tuple[Expr, Expr]:
        """A sum as q·v. No term of v is larger than as it was written: s/8 + w is not (s + 8·w)/8, which overflows."""
        content, rest = argument.as_content_primitive()
        grows = content < 1 and any(abs(term.as_coeff_Mul()[0]) > 1 for term in rest.args)
        scale = self.primitives.setdefault(rest, content if grows else S.One)
        return content / scale, rest if scale is S.One else Add(*(scale * term for term in rest.args))

    # ---- what mixes x and d --------------------------------------------------------------------------------------

    def _sum(self, node: Expr) -> Polynomial:
        x_terms = [term for term in node.args if self.side(term) == X]
        d_terms = [term for term in node.args if not self.side(term) & X]
        mixed = [term for term in node.args if self.side(term) == X | D]
        if not x_terms or not d_terms or mixed:
            return laurent.add(*map(self.separate, node.args))
        apart = self._beside_their_extrema(x_terms, d_terms) if len(x_terms) > 1 else []
        for u, v in apart:
            x_terms.remove(u)
            d_terms.remove(v)
        if x_terms:  # keep u(x) − v(d) as one generator: it is what a pivot shifts
            apart.append((Add(*x_terms), Add(*d_terms)))
            d_terms = []
        self.shifts += [(u, v) for u, v in apart if v is not S.Zero]
        of_d = (*(one for _, v in apart for one in Add.make_args(v)), *d_terms)
        return laurent.add(*(self.pure(u) for u, _ in apart), *map(self.pure, of_d))

    def _beside_their_extrema(self, x_terms: list[Expr], d_terms: list[Expr]) -> list[tuple[Expr, Expr]]:
        """Pairs q·u, −q·max u of a sum (or min u): each is a generator of its own, beside which nothing is rounded."""
        pairs = []
        for v in d_terms:
            factor, d = v.as_coeff_Mul()
            kind, term = self.facts.get(d, ("", S.NaN))
            if kind in ("max", "min") and -factor * term in x_terms:
                pairs.append((-factor * term, v))
        return pairs

    def _product(self, factors: Iterable[Expr]) -> Polynomial:
        return laurent.multiply_all(map(self.separate, factors))

    def _power(self, node: Expr) -> Polynomial:
        base, exponent = node.base, node.exp
        if self.side(exponent):
            return self._moving_power(node, base, exponent)
        if isinstance(base, Where) and S.Zero in base.args[1:] and exponent.is_Integer and exponent > 0:
            return self.separate(Where(base.args[0], *(one**exponent for one in base.args[1:])))
        if base.is_Pow and base.exp.is_Integer and base.exp.is_even and not exponent.is_Integer:
            return self.separate(Abs(base.base) ** (base.exp * exponent))
        if isinstance(base, Abs) and exponent.is_Integer and exponent.is_even:
            return self.separate(base.args[0] ** exponent)
        if exponent.is_Integer and exponent > 0:
            return laurent.raise_to(self.separate(base), int(exponent))
        analytic = is_analytic(base, self.side)
        reason, certain = (pole(base, "power", analytic=analytic) if exponent.is_Integer else
                           singularity("power", analytic=analytic))  # fmt: skip
        g, h = self.rank_one(node, base, reason, certain=certain)
        unreal: Polynomial = {}
        if not exponent.is_Integer:
            g, h, unreal = self._of_one_sign(g, h, root=bool(exponent.is_positive))
        return laurent.add(laurent.multiply(self.pure(g**exponent), self.pure(h**exponent)), unreal)

    def _moving_power(self, node: Expr, base: Expr, exponent: Expr) -> Polynomial:
        if self.side(base) or is_nonnegative(base, self.facts):
            return self.exponential(exponent * log(base))
        reason = Text("is real only where `", base, "` is not negative, which is not known")
        raise NotSeparable(node, reason, certain=False, hint=declaration_advice(base))

    def _log(self, node: Expr) -> Polynomial:
        reason, certain = singularity("logarithm", analytic=is_analytic(node.args[0], self.side))
        g, h = self.rank_one(node, node.args[0], reason, certain=certain)
        g, h, unreal = self._of_one_sign(g, h, root=False)
        return laurent.add(self._pure_log(g), self._pure_log(h), unreal)

    def _of_one_sign(self, g: Expr, h: Expr, *, root: bool) -> tuple[Expr, Expr, Polynomial]:
        """g·h ≥ 0 as a product of two that are not negative, and what is NaN where g·h < 0 (0 elsewhere).

        If one of the two has a known sign, g·h ≥ 0 fixes the sign of the other. If the other breaks that, its own power
        is NaN, and so is the product. But a `root` is 0 if the first is 0, whatever the other is.
        """
        signs = sign_of(g, self.facts), sign_of(h, self.facts)
        known = [one for one in signs if one is not None]
        if len(known) == 2 or any(one in STRICT or not root for one in known):
            return (g, h, {}) if any(one in UP for one in known) else (-g, -h, {})
        unreal = (laurent.multiply(self.pure(Where(below, UNDEFINED, S.Zero)), self.pure(Where(above, S.One, S.Zero)))
                  for (below, above), against in (((g < 0, h > 0), (-g, h)), ((g > 0, h < 0), (g, -h)))
                  if -1 not in map(self.sign, against))  # fmt: skip
        return absolute(g, self.facts), absolute(h, self.facts), laurent.add(*unreal)

    def _pure_log(self, node: Expr) -> Polynomial:
        """log of one side: exponentials and what is known to be ≥ 0 open, log(c·E[u]·b^q) → log c + u + q·log b."""
        opened, rest = self._split_sign(node)
        plain = rest.is_Add and bool(rest.free_symbols)  # SymPy would only ask whether it is 0
        out = self._opaque(log(rest, evaluate=not plain)) if rest is not S.One else {}
        for number, exponent in opened:
            atom = self.atoms.list[number]
            part = self.pure(atom.base) if atom.exponential else self._opaque(log(atom.base))
            out = laurent.add(out, laurent.scale(part, exponent))
        return out

    def _cast(self, node: Cast) -> Polynomial:
        """A rounding that mixes x and d: exact in no one-pass form (see `running_rounding`)."""
        whole = self.separate(node.args[0])
        try:
            g, h = self.rank_one(node, node.args[0], "mixes")
        except NotSeparable:
            g, h = node.args[0], S.One
        content, g = g.as_coeff_Mul()
        rounded = running_rounding(self, node, g, h * content)
        running = rounded.scale is not None and self.side(g) == X and not g.has(exp)  # e^x alone overflows
        self.roundings.append(rounded if running else replace(rounded, scale=None))
        if not running:
            return whole
        atom = Atom(RunningCast(g, rounded.scale, node.args[1]), on_x=True, exponential=False)
        return laurent.multiply(self.atoms.polynomial(atom), self.pure(rounded.scale))

    def _addition(self, node: Expr) -> Polynomial:
        """sin, cos, sinh, cosh of what mixes x and d as a sum."""
        terms = self._addends(node.args[0])
        mixed = next((term for term in terms if self.side(term) == X | D), None)
        if mixed is not None:
            raise NotSeparable(node, coupling_reason(mixed, type(node).__name__), certain=True)
        if isinstance(node, sinh | cosh):  # (e^z ± e^−z)/2: the products of the addition theorem overflow and cancel
            z, half = node.args[0], Fraction(1, 2)
            if isinstance(node, cosh):
                return laurent.scale(laurent.add(*map(self._exp, canonical_order((z, -z)))), half)
            return laurent.add(laurent.scale(self._exp(z), half), laurent.scale(self._exp(-z), -half))
        u = Add(*(term for term in terms if self.side(term) == X))
        v = Add(*(term for term in terms if self.side(term) != X))
        parts = ((self.pure(one(u)), self.pure(c * other(v))) for one, other, c in ADDITION[type(node)])
        return laurent.add(*(laurent.multiply(g, h) for g, h in parts))

    def _exp(self, exponent: Expr) -> Polynomial:
        """exp of what mixes x and d, which SymPy opens if a logarithm or an infinity stands in it."""
        opens = exponent.has(log, S.Infinity, S.NegativeInfinity)
        return self.separate(exp(exponent)) if opens else self.exponential(exponent)

    # ---- helpers -------------------------------------------------------------------------------------------------

    def sign(self, difference: Expr) -> int:
        """1 if a difference is known to be ≥ 0, −1 if ≤ 0, 0 if unknown (d = max u ≥ u of every prefix)."""
        known = sign_of(difference, self.facts)
        return 0 if known is None else 1 if known in UP else -1

    def rank_one(self, node: Expr, factor: Expr, reason: object, *, certain: bool = False) -> tuple[Expr, Expr]:
        """factor = g(x)·h(d) as SymPy expressions, or NotSeparable naming `node`."""
        cols = laurent.columns(self.separate(factor))
        by_row: dict[laurent.Monomial, laurent.Vector] = {}
        for d, column in cols.items():
            for x, c in column.items():
                by_row.setdefault(x, {})[d] = c
        rows = list(by_row.items())
        if not rows:
            raise NotSeparable(node, "is taken of what is 0 for all x and d", certain=False)
        first = rows[0][1]
        lead = next(iter(first))
        weights = {x: laurent.ratio(row.get(lead, 0), first[lead]) for x, row in rows}
        if any({d: first[d] * weights[x] for d in first} != row for x, row in rows):
            raise NotSeparable(node, reason, certain=certain)
        return self.atoms.vector_expr(weights), self.atoms.vector_expr(first)


ADDITION: Mapping[type, tuple[tuple[type, type, int], ...]] = {
    sin: ((sin, cos, 1), (cos, sin, 1)),
    cos: ((cos, cos, 1), (sin, sin, -1)),
}
"""f(u + v) = Σ c·g(u)·h(v), as (g, h, c)."""

BY_NAME: Mapping[str, Callable[[Expr], Expr]] = {"expm1": lambda u: exp(u) - 1, "log1p": lambda u: log(1 + u)}
"""Functions of SymPy's code generation, which `import sympy` does not load."""

RULES: tuple[tuple[type | tuple[type, ...], Callable[[Separator, Expr], Polynomial]], ...] = (
    (Add, Separator._sum),
    (Mul, lambda self, node: self._product(node.args)),
    (exp, lambda self, node: self.exponential(node.args[0])),
    (Pow, Separator._power),
    (log, Separator._log),
    (Abs, abs_rule),
    ((Max, Min), extremum_rule),
    (Where, where_rule),
    (Cast, Separator._cast),
    ((sin, cos, sinh, cosh), Separator._addition),
    (sign, sign_rule),
    ((floor, ceiling, Mod), steps_rule),
)
