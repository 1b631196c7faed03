"""Decomposition: every reduction of a cascade separated, or the verdict that says why one is not.

    sum          F = Σ_k h_k(d)·g_k(x)          separable rank r = dim span of the columns
    max, min     F = φ_d(g(x))                  then max F is φ_d at an end of g's range, or at both (`extremal`)
    prod         F = g(x)·h(d)                  Π F = (Π g)·h^n

Rank 1 is no special case: it is the list of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

from sympy import Add, Dummy, Expr, Mul, Rational, S

from redalg.decompose import laurent
from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import live_term
from redalg.decompose.extremal import GENERATOR, Extremal, Slot, extremal
from redalg.decompose.laurent import Monomial, Polynomial
from redalg.decompose.rounding import Rounding
from redalg.decompose.separate import D, NotSeparable, Separator, X
from redalg.decompose.span import Span
from redalg.errors import NotFusible, Undecided
from redalg.expression import Value

MIXED = X | D


@final
@dataclass(frozen=True)
class Separation:
    """F(x, d) = Σ_k h_k(d) ⊗ g_k(x) of one reduction.

    Attributes:
        reduction: what is separated.
        polynomial: F as a Laurent polynomial in the decomposition's atoms.
        g, h: minimal factors, as SymPy expressions (length `rank`).
        times: the sign of ⊗.
        shift: the x-free part of an extremum, v(d); 0 otherwise.
        shifts: pairs (u(x), v(d)) that stood together in a sum: candidates for centring.
        roundings: casts that mix x and d, which make the form approximate.
        extremal: of a max or min, the extrema of x alone that the state holds, and its value from them.
    """

    reduction: Reduction
    polynomial: Polynomial
    g: tuple[Expr, ...]
    h: tuple[Expr, ...]
    times: str
    shift: Expr = S.Zero
    shifts: tuple[tuple[Expr, Expr], ...] = ()
    roundings: tuple[Rounding, ...] = ()
    extremal: Extremal | None = None

    @property
    def rank(self) -> int:
        """Separable rank of F: the number of accumulators that it needs before centring."""
        return len(self.g)


@final
@dataclass(frozen=True)
class Decomposition:
    """A cascade with every reduction separated, over one pool of atoms."""

    cascade: Cascade
    separations: tuple[Separation, ...]
    separator: Separator = field(compare=False)  # its atoms' numbers stand in the separations

    @property
    def roundings(self) -> tuple[tuple[Reduction, Rounding], ...]:
        """The roundings that one pass only approximates, each with its reduction (none: the form is exact)."""
        return tuple((one.reduction, rounding) for one in self.separations for rounding in one.roundings)

    def __str__(self) -> str:
        lines = []
        for one in self.separations:
            terms = [f"{g} {one.times} {h}" for g, h in zip(one.g, one.h, strict=True)]
            tail = "" if one.shift is S.Zero else f" + ({one.shift})"
            lines.append(f"{one.reduction.name}: rank {one.rank}: {'  +  '.join(terms)}{tail}")
        return "\n".join(lines)

    def verify(self) -> None:
        """Check that Σ h·g gives back each polynomial (the certificate of every yes)."""
        for one in self.separations:
            if one.reduction.monoid.name == "sum":
                rebuilt = Add(*(g * h for g, h in zip(one.g, one.h, strict=True)))
                given = self.separator.atoms.polynomial_expr(one.polynomial)
                if (rebuilt - given).expand() != 0:
                    raise AssertionError(f"separation of {one.reduction.name} does not give back its term")


def decompose(cascade: Cascade) -> Decomposition:
    """Separate every reduction, in order; raises `NotFusible` or `Undecided` at the first that does not."""
    facts: dict[Value, tuple[str, Expr]] = {}
    separator = Separator(cascade.axis, cascade.values, facts)
    made = []
    for reduction in cascade.reductions:
        term = live_term(reduction.term, cascade.domain) if reduction.is_scalar else reduction.term
        separator.shifts, separator.roundings = [], []
        try:
            made.append(SEPARATE.get(reduction.monoid.name, separate_other)(reduction, term, separator))
        except NotSeparable as finding:
            raise verdict(reduction, finding, cascade) from None
        if reduction.monoid.name in ("max", "min") and separator.side(term) == X:
            facts[reduction.value] = (reduction.monoid.name, term)
        if reduction.is_scalar:
            note_sign(reduction, term, separator.signs)
    return Decomposition(cascade, tuple(made), separator)


def verdict(reduction: Reduction, finding: NotSeparable, cascade: Cascade) -> NotFusible | Undecided:
    """The exception for a finding: a refusal where it is a theorem, `Undecided` where it is ignorance."""
    known = {one.value for one in cascade.reductions if one.term == S.One}  # a count is known beforehand
    used = sorted(str(one) for one in reduction.term.atoms(Value) & set(cascade.values) - known)
    values, them = " and ".join(used), "them as tensors" if len(used) > 1 else "it as a tensor"
    reason = f"`{finding.node}` {finding.reason}."
    if finding.certain:
        reason += f" No state of fixed size holds what a later {values} would need of the elements already read."
        hint = f"Run two passes: compute {values} first, pass {them}, and fuse the rest."
        return NotFusible(reduction.name, reason, hint, (f"term: {reduction.term}", str(finding)))
    hint = "Write the term as a sum of products g(x)·h(d), or compute the values that it uses in a first pass."
    return Undecided(reduction.name, reason, hint, (f"term: {reduction.term}", str(finding)))


def note_sign(reduction: Reduction, term: Expr, signs: dict[Value, Expr]) -> None:
    """A value whose terms all have a known sign has it too (over no element the guards of `extremal` hold)."""
    known = term.xreplace(signs)
    if known.is_extended_positive:
        signs[reduction.value] = Dummy(reduction.name, extended_positive=True)
    elif known.is_extended_nonnegative:
        signs[reduction.value] = Dummy(reduction.name, extended_nonnegative=True)


def separate_sum(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """Minimal factors of the polynomial: a basis of the columns, and each d-monomial's coordinates in it."""
    polynomial = separator.separate(term)
    span, h = Span(), dict[int, list[Expr]]()
    columns = laurent.columns(polynomial)
    for column in columns.values():
        span.add(column)
    for d, column in columns.items():
        for index, c in (span.coordinates(column) or {}).items():
            h.setdefault(index, []).append(fraction(c) * separator.atoms.expr(d))
    g = [vector_expr(vector, separator) for vector in span.basis]
    factors = tuple(Add(*h[index]) for index in range(len(g)))
    return Separation(reduction, polynomial, tuple(g), factors, "×", shifts=tuple(separator.shifts),
                      roundings=tuple(separator.roundings))  # fmt: skip


def separate_extremum(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """The extrema of x alone from which the value follows; written as g ⊗ h where h is a term or a factor."""
    kind = reduction.monoid.name
    if not separator.side(term) & D:
        slot = Slot(kind, term, Dummy("slot", extended_real=True))
        return Separation(reduction, {}, (term,), (S.Zero,), "+", extremal=Extremal((slot,), slot.symbol, (), ()))
    found = extremal(kind, term, separator)
    if len(found.h) == 1:
        [phi] = found.h
        factor, rest = phi.expand().coeff(GENERATOR, 1), phi.expand().coeff(GENERATOR, 0)
        if (phi - factor * GENERATOR - rest).expand() is S.Zero:
            plain = factor is S.One
            h, shift, sign = (rest, S.Zero, "+") if plain else (factor, rest, "×")
            return Separation(reduction, {}, found.g, (h,), sign, shift=shift, extremal=found)
    return Separation(reduction, {}, found.g, found.h, "∘", extremal=found)


def separate_product(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """One monomial, so that Π g·h = (Π g)·h^n; a parameter or a value may not stand beside x in a sum."""
    if not separator.side(term) & D:
        return separate_other(reduction, term, separator)
    polynomial = separator.separate(term)
    columns = laurent.columns(polynomial)
    if len(columns) != 1:
        reason = "is a product over sums that mix x and d: its expansion has as many terms as there are elements"
        raise NotSeparable(reduction.term, reason, certain=False)
    [(d, column)] = columns.items()
    return Separation(reduction, polynomial, (vector_expr(column, separator),), (separator.atoms.expr(d),), "^")


def separate_other(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """Any other monoid: of x alone it is its own part of x; of a term that holds d it is not decided."""
    if not separator.side(term) & D:
        return Separation(reduction, {}, (term,), (S.Zero,), "+")
    reason = f"holds d under {reduction.monoid}, for which redalg knows no ⊗ that distributes"
    raise NotSeparable(term, reason, certain=False)


SEPARATE: dict[str, Callable[[Reduction, Expr, Separator], Separation]] = {
    "sum": separate_sum, "max": separate_extremum, "min": separate_extremum, "prod": separate_product,
}  # fmt: skip
"""How a term that holds d is separated, by monoid (a sum's always); the others: `separate_other`."""


def fraction(value: Fraction) -> Expr:
    """A fraction as SymPy writes it."""
    return Rational(value.numerator, value.denominator)


def vector_expr(vector: dict[Monomial, Fraction], separator: Separator) -> Expr:
    """Σ coefficient · x-monomial as a SymPy expression."""
    return Add(*(Mul(fraction(c), separator.atoms.expr(x)) for x, c in vector.items()))
