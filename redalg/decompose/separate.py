"""Separation: F(x, d) = Σ_k h_k(d)·g_k(x) as an exact Laurent polynomial, or `NotSeparable` with the offending node.

    separate(F) → polynomial        rewrites, each exact under its condition:

    a + b            → separate(a) + separate(b)
    a · b            → separate(a) · separate(b)
    a^n              → separate(a)^n                                   n natural
    (g(x)·h(d))^q    → g^q · h^q                                       rank 1; q fractional: g, h ≥ 0
    exp(u(x) + v(d)) → E[u] · E[v]
    b^(u + v)        → exp(u·log b) · exp(v·log b)                     b a positive number or parameter
    log(g(x)·h(d))   → log g + log h                                   rank 1; g, h ≥ 0
    |g(x)·h(d)|      → |g| · |h|                                       rank 1
    where(c, a, b)   → [c]·a + [¬c]·b                                  c of x alone, or of d alone
    cast(g(x)·h(d))  ≈ cast(g·h')/h' · h                               h' the running h: `rounding` has the bound
    |u − d|, max     → ±(u − d)                                        by the fact d = max u (true of every prefix)

Maximal subtrees of x alone or of d alone are opaque atoms, so masks, gathers, tanh(x) and the like cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import final

from sympy import Abs, Add, Expr, Max, Min, Mul, Not, Pow, Rational, S, exp, log
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose import laurent
from redalg.decompose.laurent import Atom, Atoms, Polynomial
from redalg.decompose.rounding import Rounding
from redalg.expression import Axis, Cast, Element, RunningCast, Value, Where

X, D = 1, 2


@final
class NotSeparable(Exception):  # noqa: N818 - a finding, turned into a verdict
    """`node` has no finite separation, for `reason`; `certain` where that is a theorem rather than ignorance."""

    def __init__(self, node: Basic, reason: str, *, certain: bool) -> None:
        super().__init__(f"`{node}` {reason}")
        self.node, self.reason, self.certain = node, reason, certain


def rational(number: Expr) -> Fraction | None:
    """A SymPy number as an exact fraction (a float is taken at the decimal value that it prints)."""
    if number.is_Rational:
        return Fraction(int(number.p), int(number.q))
    return Fraction(str(number)) if number.is_Float and number.is_finite else None


@final
class Separator:
    """Separates terms over one axis. `facts` maps a value to (`max` | `min`, u(x)) when it is that extremum of u."""

    def __init__(self, axis: Axis, values: Iterable[Value], facts: Mapping[Value, tuple[str, Expr]]) -> None:
        self.atoms = Atoms()
        self.axis, self.values, self.facts = axis, frozenset(values), facts
        self.shifts: list[tuple[Expr, Expr]] = []
        self.roundings: list[Rounding] = []
        self.signs: dict[Value, Expr] = {}  # values of known sign -> symbols that SymPy knows to have it
        self.assumed: list[Expr] = []
        self._sides: dict[Basic, int] = {}

    def side(self, node: Basic) -> int:
        """Which of x (1), d (2), both (3) or neither (0: a parameter) the node depends on."""
        if node not in self._sides:
            if node in self.values:
                found = D
            elif node == self.axis:
                found = X
            else:
                found = 0
                for child in node.args:
                    found |= self.side(child)
            self._sides[node] = found
        return self._sides[node]

    def separate(self, node: Expr) -> Polynomial:
        """The polynomial of a term."""
        if self.side(node) != X | D:
            return self.pure(node)
        for kind, rule in RULES:
            if isinstance(node, kind):
                return rule(self, node)
        raise NotSeparable(node, f"applies `{type(node).__name__}` to what mixes x and d, and has no addition theorem "
                           "known to redalg", certain=False)  # fmt: skip

    # ---- of x alone, or of d alone -------------------------------------------------------------------------------

    def pure(self, node: Expr) -> Polynomial:
        """A subtree of one side: split along products, powers and exponentials, and otherwise one opaque atom."""
        on_x = self.side(node) == X
        if node.is_Number and (value := rational(node)) is not None:
            return laurent.constant(value)
        if node.is_Mul:
            return self._product(node.args)
        if isinstance(node, exp):
            return self.exponential(node.args[0])
        if node.is_Pow and (value := rational(node.exp)) is not None:
            return self._pure_power(node.base, value, on_x)
        if node.is_Add and not on_x:
            return laurent.add(*map(self.pure, node.args))
        if node.is_Add and node.could_extract_minus_sign():
            return laurent.scale(self.atoms.polynomial(Atom(-node, on_x, exponential=False)), -1)
        return self.atoms.polynomial(Atom(node, on_x, exponential=False))

    def _pure_power(self, base: Expr, exponent: Fraction, on_x: bool) -> Polynomial:
        if exponent.denominator == 1 and not base.is_Add:
            poly = self.pure(base)
            if len(poly) == 1:
                [((x, d), c)] = poly.items()
                raised = (laurent.power_monomial(x, exponent), laurent.power_monomial(d, exponent))
                return {raised: c ** int(exponent)}
        if exponent.denominator == 1 and base.is_Add and base.could_extract_minus_sign():
            sign = (-1) ** int(exponent)
            return laurent.scale(self.atoms.polynomial(Atom(-base, on_x, exponential=False), exponent), sign)
        return self.atoms.polynomial(Atom(base, on_x, exponential=False), exponent)

    def exponential(self, argument: Expr) -> Polynomial:
        """exp(Σ pure terms) → E[u(x)] · Π E[v(d)]: the x-part is one atom, so that its maximum pivots it."""
        terms = Add.make_args(expand_products(argument) if self.side(argument) == X | D else argument)
        out, x_terms = laurent.ONE, list[Expr]()
        for term in terms:
            if self.side(term) == X | D:
                reason = (
                    f"couples x and d through the product `{term}` in an exponent: functions exp(x·d) are independent "
                    "for distinct d, so the rank is infinite"
                )
                raise NotSeparable(exp(term), reason, certain=True)
            if self.side(term) == X:
                x_terms.append(term)
            else:
                out = laurent.multiply(out, self._d_exponential(term))
        if x_terms:
            out = laurent.multiply(out, self._exponential_atom(Add(*x_terms), on_x=True))
        return out

    def _d_exponential(self, term: Expr) -> Polynomial:
        coefficient, rest = term.as_coeff_Mul()
        if isinstance(rest, log) and coefficient.is_Rational:
            return self.separate(Pow(rest.args[0], coefficient))
        if not term.free_symbols:
            return self.atoms.polynomial(Atom(exp(term), on_x=False, exponential=False))
        return self._exponential_atom(term, on_x=False)

    def _exponential_atom(self, argument: Expr, on_x: bool) -> Polynomial:
        content, rest = argument.as_content_primitive() if argument.is_Add else argument.as_coeff_Mul()
        factor = rational(content)
        if factor is None:
            factor, rest = Fraction(1), argument
        elif factor < 0 and on_x:  # E[-u] is an atom of its own: the pivot is its own maximum
            factor, rest = -factor, -rest
        return self.atoms.polynomial(Atom(rest, on_x, exponential=True), factor)

    # ---- what mixes x and d --------------------------------------------------------------------------------------

    def _sum(self, node: Expr) -> Polynomial:
        x_terms = [term for term in node.args if self.side(term) == X]
        d_terms = [term for term in node.args if not self.side(term) & X]
        mixed = [term for term in node.args if self.side(term) == X | D]
        if x_terms and d_terms and not mixed:  # keep u(x) − v(d) as one generator: it is what a pivot shifts
            self.shifts.append((Add(*x_terms), Add(*d_terms)))
            return laurent.add(self.pure(Add(*x_terms)), *map(self.pure, d_terms))
        return laurent.add(*map(self.separate, node.args))

    def _product(self, factors: Iterable[Expr]) -> Polynomial:
        out = laurent.ONE
        for factor in factors:
            out = laurent.multiply(out, self.separate(factor))
        return out

    def _power(self, node: Expr) -> Polynomial:
        base, exponent = node.base, node.exp
        if self.side(exponent):
            if self.side(base) == 0:
                return self.exponential(expand_products(exponent * log(base)))
            raise NotSeparable(node, "has an exponent and a base that move with x and d", certain=False)
        if exponent.is_Integer and exponent > 0:
            return laurent.power(self.separate(base), int(exponent))
        g, h = self.rank_one(node, base, "is a power of a sum that mixes x and d")
        if not exponent.is_Integer:
            self.assumed += [g, h]
        return laurent.multiply(self.pure(g**exponent), self.pure(h**exponent))

    def _log(self, node: Expr) -> Polynomial:
        g, h = self.rank_one(node, node.args[0], "is the logarithm of a sum that mixes x and d")
        self.assumed += [g, h]
        return laurent.add(self._pure_log(g), self._pure_log(h))

    def _pure_log(self, node: Expr) -> Polynomial:
        """log of one side: exponentials and products open, log(c·E[u]·b^q) → log c + u + q·log b."""
        [((x, d), c)] = poly.items() if len(poly := self.pure(node)) == 1 else [((None, None), Fraction(0))]
        if x is None or d is None or c <= 0:
            return self.pure(log(node))
        out = self.pure(log(Rational(c.numerator, c.denominator))) if c != 1 else {}
        for number, exponent in x + d:
            atom = self.atoms.list[number]
            part = self.pure(atom.base if atom.exponential else log(atom.base))
            out = laurent.add(out, laurent.scale(part, exponent))
        return out

    def _abs(self, node: Expr) -> Polynomial:
        if sign := self.sign(node.args[0]):
            return laurent.scale(self.separate(node.args[0]), sign)
        g, h = self.rank_one(node, node.args[0], KINK)
        return laurent.multiply(self.pure(Abs(g)), self.pure(Abs(h)))

    def _extremum(self, node: Expr) -> Polynomial:
        if len(node.args) == 2 and (sign := self.sign(node.args[0] - node.args[1])):
            first = (sign > 0) == isinstance(node, Max)
            return self.separate(node.args[0] if first else node.args[1])
        raise NotSeparable(node, "clips x at a threshold that moves with d: every element may change side, so the "
                           "rank is infinite", certain=True)  # fmt: skip

    def _where(self, node: Expr) -> Polynomial:
        condition, a, b = node.args
        if self.side(condition) == X | D:
            raise NotSeparable(condition, "compares x with d: the threshold moves with d and every element may change "
                               "side, so the rank is infinite", certain=True)  # fmt: skip
        return laurent.add(self._under(condition, a), self._under(Not(condition), b))

    def _under(self, condition: Boolean, branch: Expr) -> Polynomial:
        """[c]·branch; what the branch reads by computed indices is read only where c holds."""
        guarded: dict[Basic, Basic] = {one: Where(condition, one, S.Zero) for one in branch.atoms(Element)
                   if not all(isinstance(index, Axis) or index.is_Integer for index in one.indices)}  # fmt: skip
        return laurent.multiply(self.pure(Where(condition, S.One, S.Zero)), self.separate(branch.xreplace(guarded)))

    def _cast(self, node: Expr) -> Polynomial:
        """A rounding that mixes x and d: exact in no one-pass form (see `rounding`)."""
        made = self.separate(node.args[0])
        try:
            g, h = self.rank_one(node, node.args[0], "mixes")
            content, g = g.as_coeff_Mul()
            h *= content
        except NotSeparable:
            g, h = S.Zero, S.One
        running = set(self.facts) >= h.atoms(Value) & self.values and g is not S.Zero
        self.roundings.append(Rounding(node, h if running else None))
        if not running:
            return made
        atom = Atom(RunningCast(g, h, node.args[1]), on_x=True, exponential=False)
        return laurent.multiply(self.atoms.polynomial(atom), self.pure(h))

    # ---- helpers -------------------------------------------------------------------------------------------------

    def sign(self, difference: Expr) -> int:
        """Sign of u(x) − d known from the facts: d = max u gives −1 (every prefix has u ≤ d), min +1; 0 unknown."""
        for value, (kind, u) in self.facts.items():
            for orientation in (1, -1):
                if (difference - orientation * (u - value)).expand() == 0:
                    return (-1 if kind == "max" else 1) * orientation
        return 0

    def rank_one(self, node: Expr, factor: Expr, reason: str) -> tuple[Expr, Expr]:
        """factor = g(x)·h(d) as SymPy expressions, or NotSeparable naming `node`."""
        cols = laurent.columns(self.separate(factor))
        by_row: dict[laurent.Monomial, laurent.Vector] = {}
        for d, column in cols.items():
            for x, c in column.items():
                by_row.setdefault(x, {})[d] = c
        rows = list(by_row.items())
        first = rows[0][1]
        lead = next(iter(first))
        weights = {x: row.get(lead, Fraction(0)) / first[lead] for x, row in rows}
        if any({d: first[d] * weights[x] for d in first} != row for x, row in rows):
            raise NotSeparable(node, reason, certain=reason is KINK)
        g = Add(*(_sympy(weights[x]) * self.atoms.expr(x) for x, _ in rows))
        return g, Add(*(_sympy(c) * self.atoms.expr(d) for d, c in first.items()))


KINK = ("has a kink where its argument is 0, which moves with d: the matrix |x_i − d_j| is nonsingular for distinct "
        "points, so the rank is infinite")  # fmt: skip

RULES: tuple[tuple[type, Callable[[Separator, Expr], Polynomial]], ...] = (
    (Add, Separator._sum),
    (Mul, lambda self, node: self._product(node.args)),
    (exp, lambda self, node: self.exponential(node.args[0])),
    (Pow, Separator._power),
    (log, Separator._log),
    (Abs, Separator._abs),
    (Max, Separator._extremum),
    (Min, Separator._extremum),
    (Where, Separator._where),
    (Cast, Separator._cast),
)


def expand_products(expr: Expr) -> Expr:
    """Products and natural powers of sums written out, nothing else."""
    return expr.expand(power_base=False, power_exp=False, log=False, mul=True, multinomial=True, basic=False)


def _sympy(value: Fraction) -> Expr:
    return Rational(value.numerator, value.denominator)
