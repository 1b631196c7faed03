"""Cancelling pivots in expressions of values: a difference of large numbers becomes one of small ones.

    Q/n − (S/n)²  → Z2/n − (Z1/n)²             S = Z1 + n·c, Q = Z2 + 2c·Z1 + n·c²
    max u − S/n   → (max u − c) − Z1/n          c the pivot of u
    f·(Q/n − S²/n²) → f·(Z2/n − Z1²/n²)         f what all terms share: exponentials, values that are made of pivots
    n·Q/S² − 1 → (n·Z2 − Z1²)/S²                over what terms divide by, where that is made of pivots
    log Q − 2·log S → log(1 + (Q − S²)/S²)      where Q/S² − 1 loses its pivots; Q, S ≥ 0, else no number

Exact: values are replaced by Laurent polynomials in terms of the state, and the replacement is kept only if every
pivot that it brings in is gone again. A value written from raw moments is then as accurate as one written
about its mean, if the moments have a pivot: `vanished` are the pivots that were of use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import final

from sympy import Add, And, Expr, Ge, Mul, Pow, S, log
from sympy.codegen.cfunctions import log1p

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, X
from redalg.expression import Label, Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.derive.centre import divisor
from redalg.incremental.form import Assignment, Extremum, Pivot, PivotPolicy

TERMS_LIMIT = 6
"""Terms of a sum of which subsets are tried, if the whole does not cancel."""
SIZE_LIMIT = 200
"""Terms of a polynomial beyond which a sum is left as it is."""


@final
class Canceller:
    """Rewrites expressions of values. `meaning` gives, by atom number, a value in terms of the state."""

    def __init__(self, separator: Separator, meaning: dict[int, Polynomial], pivots: list[Pivot],
                 extrema: list[Extremum], substitute: Callable[..., Polynomial],
                 *, with_exponent: Callable[[Expr, Expr], Expr]) -> None:  # fmt: skip
        """`pivots` are those that shift a generator; `with_exponent` names exp(λ)·v."""
        self.with_exponent = with_exponent
        self.separator, self.meaning, self.substitute = separator, meaning, substitute
        self.pivots = frozenset(one.value for one in pivots)
        self.slopes = frozenset(one.value for one in pivots if one.policy is PivotPolicy.SLOPE)
        self.vanished: set[Value] = set()
        self.behind: dict[int, frozenset[Value]] = {}
        self.offsets: dict[Value, Assignment] = {}
        self._shifted = {number: poly for one in extrema for number, poly in self._offset(one, pivots)}

    def _offset(self, extremum: Extremum, pivots: list[Pivot]) -> Iterator[tuple[int, Polynomial]]:
        """max u as (max u − c) + c, for the pivot c of u; of u/m − c as m·((max u/m − c) + c)."""
        for pivot in pivots:
            if pivot.has_slot and pivot.base == extremum.term and (pivot.magnitude or not pivot.scales):
                axes = sorted({*extremum.value.indices, *pivot.value.indices}, key=str)
                offset = Value(Label(f"{extremum.value.name}_offset"), *axes)
                size = S.One if pivot.magnitude is None else pivot.magnitude.value
                self.offsets[offset] = Assignment(offset, extremum.value / size - pivot.value)
                total = laurent.add(*map(self.separator.atoms.value_polynomial, (offset, pivot.value)))
                atom = Atom(log(size), on_x=False, exponential=True)
                yield (
                    self._number(extremum.value),
                    total if size is S.One else laurent.multiply(total, self.separator.atoms.polynomial(atom)),
                )
                return

    def cancel(self, node: Expr) -> Expr:
        """The expression with pivots cancelled in every sum that allows it."""
        if not self.pivots or not node.args or isinstance(node, Value) or not self._brings(node):
            return node
        if node.is_Add:
            terms = list(node.args)
            form = self._sum(terms) or self._over_divisor(node) or (self._beside_slopes(terms) if self.slopes else None)
            if form is not None:
                return form
        if (of_logs := self._of_logs(node)) is not None:
            return of_logs
        args = [self.cancel(arg) if isinstance(arg, Expr) else arg for arg in node.args]
        return node if args == list(node.args) else node.func(*args)

    def _brings(self, node: Expr) -> bool:
        """Tell if a pivot stands in the expression, or in the meaning of one of its values."""
        return any(value in self.pivots or self._pivots_behind(value) for value in values_of(node))

    def _pivots_behind(self, value: Value) -> frozenset[Value]:
        """The pivots in the meaning of a value."""
        number = self._number(value)
        if number not in self.behind:
            meaning = self._shifted.get(number) or self.meaning.get(number)
            if meaning is None:  # not known yet
                return frozenset()
            self.behind[number] = frozenset(self._pivots_of(meaning))
        return self.behind[number]

    def _sum(self, terms: list[Expr]) -> Expr | None:
        """The sum with the most terms cancelled against each other; only those that bring a pivot can be."""
        moving = [place for place, term in enumerate(terms) if self._brings(term)]
        known = {**self.meaning, **self._shifted}
        polys = {place: self.polynomial(terms[place]) for place in moving}
        pivots = {place: self._pivots_brought(poly) for place, poly in polys.items()}
        moving = [place for place in moving if pivots[place]]  # others hide their pivots in a function
        substituted = {place: self.substitute(polys[place], known) for place in moving}
        stuck = {place: self._terms_to_cancel(poly) for place, poly in substituted.items()}
        smallest = 1 if len(moving) <= TERMS_LIMIT else len(moving)
        for size in range(len(moving), smallest - 1, -1):
            for subset in combinations(moving, size):
                total = laurent.add(*(substituted[place] for place in subset))
                gone = {value for place in subset for value in pivots[place]}
                shared: Monomial | None = ()
                if laurent.add(*(stuck[place] for place in subset)):
                    gone = {value for place in subset for value in self._pivots_of(substituted[place])}
                    shared = self._common_factors(total) if gone else None
                if shared is not None and len(total) <= SIZE_LIMIT:
                    self.vanished |= gone
                    rest = [self.cancel(term) for place, term in enumerate(terms) if place not in subset]
                    return Add(self._expr(total, shared), *rest)
        return None

    def _beside_slopes(self, terms: list[Expr]) -> Expr | None:
        """The sum with its shifts cancelled while slopes stay: Σ (x − m)·(y − k) of y on a line is Z_xy + β·Z_xx."""
        state = self.pivots, self.behind
        self.pivots, self.behind = self.pivots - self.slopes, {}
        result = self._sum(terms)
        self.pivots, self.behind = state
        return result

    def _over_divisor(self, node: Expr) -> Expr | None:
        """A sum over the common divisor of its terms, if its numerator loses every pivot; else None."""
        poly = self.polynomial(node)
        below = divisor({key: c for key, c in poly.items() if not key[0]})
        below = tuple(one for one in below if self._hides(one[0]))
        if not below or any(q.denominator != 1 for _, q in below):
            return None
        above = laurent.multiply(poly, {((), below): 1})
        numerator = self.substitute(above, {**self.meaning, **self._shifted})
        shared = self._common_factors(numerator) if numerator and len(numerator) <= SIZE_LIMIT else None
        if shared is None:
            return None
        self.vanished |= self._pivots_brought(above)
        return self._expr(numerator, shared) / self.separator.atoms.expr(below)

    def _of_logs(self, node: Expr) -> Expr | None:
        """Σ q·log a + … as log(1 + t) + …, t = Π a^q − 1, if t loses every pivot; else None."""
        terms = [(term, *term.as_coeff_Mul()) for term in Add.make_args(node)]
        logs = [(term, q, rest.args[0]) for term, q, rest in terms if isinstance(rest, log) and q.is_Rational]
        for size in range(min(len(logs), TERMS_LIMIT), 0, -1):
            for subset in combinations(logs, size):
                t = self._over_divisor(Add(Mul(*(a**q for _, q, a in subset)), S.NegativeOne))
                if t is not None:
                    known = And(*(Ge(a, 0) for _, _, a in subset))
                    beside = {term for term, _, _ in subset}
                    rest = (self.cancel(term) for term, _, _ in terms if term not in beside)
                    return Add(log1p(t) if size == 1 else Where(known, log1p(t), S.NaN), *rest)
        return None

    def _common_factors(self, poly: Polynomial) -> Monomial | None:
        """The exponentials, and the values that hide pivots, to powers that all terms share; no bare pivots."""
        factors = {tuple(one for one in d if self._sticks(one[0])) for _, d in poly}
        return factors.pop() if len(factors) == 1 and not self._pivots_of(poly) else None

    def _expr(self, poly: Polynomial, shared: Monomial) -> Expr:
        """A polynomial as an expression, with the factors that all its terms share taken out."""
        atoms, factors = self.separator.atoms, dict(shared)
        rest = atoms.polynomial_expr({(x, tuple(one for one in d if one[0] not in factors)): c
                                      for (x, d), c in poly.items()})  # fmt: skip
        exponents, values = laurent.split_monomial(shared, lambda number: atoms.list[number].exponential)
        rest = rest * atoms.expr(values) if values else rest
        scale = Add(*(atoms.list[number].base * laurent.fraction(q) for number, q in exponents))
        return self.with_exponent(scale, rest) if exponents else rest

    def _terms_to_cancel(self, poly: Polynomial) -> Polynomial:
        """The terms that must cancel: with a pivot, a value too long to replace that hides one, or an exponential."""
        numbers = {number for number in {number for _, d in poly for number, _ in d} if self._sticks(number)}
        return {key: c for key, c in poly.items() if any(number in numbers for number, _ in key[1])}

    def _sticks(self, number: int) -> bool:
        atom = self.separator.atoms.list[number]
        return atom.exponential or self._hides(number) or not self.pivots.isdisjoint(values_of(atom.base))

    def _hides(self, number: int) -> bool:
        base = self.separator.atoms.list[number].base
        return isinstance(base, Value) and bool(self._pivots_behind(base))

    def _pivots_brought(self, poly: Polynomial) -> set[Value]:
        """The pivots that a polynomial's own values bring, and those that stand in it themselves."""
        bases = [self.separator.atoms.list[number].base for number in {number for _, d in poly for number, _ in d}]
        values = {base for base in bases if isinstance(base, Value)}
        return {pivot for value in values for pivot in self._pivots_behind(value)} | (values & self.pivots)

    def polynomial(self, node: Expr) -> Polynomial:
        """An expression of values as a polynomial, with sums and their natural powers written out."""
        if node.is_Add:
            return laurent.add(*map(self.polynomial, node.args))
        if node.is_Mul:
            return laurent.multiply_all(map(self.polynomial, node.args))
        if isinstance(node, Pow) and node.exp.is_Integer and 0 < node.exp <= 8 and node.base.is_Add:
            return laurent.raise_to(self.polynomial(node.base), int(node.exp))
        if self.separator.side(node) == X | D:  # an output reduces elements and values: a number
            return self.separator.atoms.value_polynomial(node)
        return self.separator.pure(node)

    def _pivots_of(self, poly: Polynomial) -> set[Value]:
        bases = (self.separator.atoms.list[number].base for number in {number for _, d in poly for number, _ in d})
        return {value for base in bases for value in values_of(base)} & self.pivots

    def _number(self, value: Value) -> int:
        return self.separator.atoms.number(Atom(value, on_x=False, exponential=False))
