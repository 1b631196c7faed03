"""Decomposition: every reduction of a cascade separated, or the verdict that says why one is not.

    sum          F = Σ_k h_k(d)·g_k(x)          separable rank r = dim span of the columns
    max, min     F = φ_d(g(x))                  then max F is φ_d at an end of g's range, or at both (`extremal`)
    prod         F = g(x)·h(d)                  Π F = (Π g)·h^n

Rank 1 is no special case: it is the list of one.

The structural route comes first, and a yes is its certificate. If it fails, the rank test decides. A theorem about the
offending node and a rank that grows are a no with a certificate. A rank that grows in 120 digits is a no to separations
of a small rank. A rank that stands still sends the term back under other spellings; if none separates, the term is
undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import final

from sympy import Abs, Add, Dummy, Expr, Pow, S, log

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import live_term
from redalg.decompose.extrema.deciding import decides
from redalg.decompose.extrema.extremal import GENERATOR, LATTICE, Extremal, Slot, extremal, increasing_form
from redalg.decompose.extrema.truth import truth_extremum
from redalg.decompose.parse.merged import merge_reductions
from redalg.decompose.parse.totals import with_known_total
from redalg.decompose.samples.conditions import speaks
from redalg.decompose.samples.memberships import MEMBERS, apply_memberships
from redalg.decompose.samples.needs import needs, output_rank_test
from redalg.decompose.samples.rank import SMALL, Audit, RankTest, Setting, equal_on_samples
from redalg.decompose.samples.winners import apply_winners
from redalg.decompose.separate import laurent, poles, products
from redalg.decompose.separate.absorbing import absorb_factors
from redalg.decompose.separate.choices import of_either_branch
from redalg.decompose.separate.finite import CASES_LIMIT, by_cases
from redalg.decompose.separate.guarded import hides, parts_by_guard
from redalg.decompose.separate.identities import REWRITES, Rewrite, spellings
from redalg.decompose.separate.laurent import Atoms, Polynomial
from redalg.decompose.separate.rounding import Rounding
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.span import Span
from redalg.decompose.separate.theorems import D, NotSeparable, X, is_analytic
from redalg.decompose.separate.whole import Whole
from redalg.decompose.verdict.refusal import GENERAL, verdict_of_finding
from redalg.display import Displayed
from redalg.errors import NotDecided, NotFusible, Text
from redalg.expression import Value, Where
from redalg.expression.contents import values_of

MIXED = X | D


@final
@dataclass(frozen=True)
class Written:
    """Σ_k h_k(d) ⊗ g_k(x) as a person reads it.

    Attributes:
        g, h: the parts of x and of d, in the same order.
        times: the sign of ⊗.
        shift: the x-free part of an extremum, v(d); 0 otherwise.
    """

    g: tuple[Expr, ...]
    h: tuple[Expr, ...]
    times: str
    shift: Expr = S.Zero


@final
@dataclass(frozen=True)
class Separation:
    """F(x, d) = Σ_k h_k(d) ⊗ g_k(x) of one reduction.

    Attributes:
        reduction: what is separated.
        polynomial: F as a Laurent polynomial in the decomposition's atoms.
        given: g and h; None if they follow from the polynomial of a sum or from an extremum's form.
        shifts: pairs (u(x), v(d)) that stood together in a sum: candidates for centring.
        roundings: casts that mix x and d, which make the form approximate.
        extremal: of a max or min, the extrema of x alone that the state holds, and its value from them.
        guarded: of a sum, (indicator, part of the polynomial) of what counts only where an element has the indicator.
        wholes: the generators that it keeps whole, which are in the polynomial's atoms (`whole`).
        atoms: those of the polynomial.
        count: of a product Π g·h = h^count·Π g, how many elements have the factor h.
    """

    reduction: Reduction
    polynomial: Polynomial
    given: Written | None
    shifts: tuple[tuple[Expr, Expr], ...] = ()
    roundings: tuple[Rounding, ...] = ()
    extremal: Extremal | None = None
    guarded: tuple[tuple[Expr, Polynomial], ...] = ()
    wholes: tuple[Whole, ...] = ()
    atoms: Atoms = field(default_factory=Atoms, compare=False, repr=False)
    count: Value | None = None

    @cached_property
    def factors(self) -> Written:
        """The factors of F, which are written out when they are first read."""
        if self.given is not None:
            return self.given
        return minimal(self.polynomial, self.atoms) if self.extremal is None else of_extrema(self.extremal)

    @property
    def g(self) -> tuple[Expr, ...]:
        """The parts of x, as SymPy expressions: minimal factors, `rank` of them."""
        return self.factors.g

    @property
    def h(self) -> tuple[Expr, ...]:
        """The parts of d, in the order of `g`."""
        return self.factors.h

    @property
    def times(self) -> str:
        """The sign of ⊗."""
        return self.factors.times

    @property
    def shift(self) -> Expr:
        """The x-free part of an extremum, v(d); 0 otherwise."""
        return self.factors.shift

    @property
    def rank(self) -> int:
        """Separable rank of F: the number of accumulators that it needs before centring."""
        return len(self.g)


@final
@dataclass(frozen=True, repr=False)
class Decomposition(Displayed):
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
        for separated in self.separations:
            terms = [f"{g} {separated.times} {h}" for g, h in zip(separated.g, separated.h, strict=True)]
            tail = "" if separated.shift is S.Zero else f" + ({separated.shift})"
            lines.append(f"{separated.reduction.name}: rank {separated.rank}: {'  +  '.join(terms)}{tail}")
        return "\n".join(lines)

    def verify(self) -> None:
        """Check that Σ h·g gives back each polynomial (the certificate of every yes)."""
        for separated in self.separations:
            if separated.reduction.monoid.name == "sum":
                rebuilt = Add(*(g * h for g, h in zip(separated.g, separated.h, strict=True)))
                original = self.separator.atoms.polynomial_expr(separated.polynomial)
                if (rebuilt - original).expand() != 0:
                    raise AssertionError(f"separation of {separated.reduction.name} does not give back its term")


def decompose(cascade: Cascade, *, trial: bool = False) -> Decomposition:
    """Separate every reduction, in order; raise `NotFusible` or `NotDecided` at the first that does not separate.

    The cascade may be `trial` in place of another of the same value: then a no is said without evidence, and without a
    look at what cancels in the outputs, which is left to the other cascade.
    """
    separator = Separator(cascade.reduced_axes, cascade.values, {}, cascade.domain)
    separator.keep_products(one.term for one in cascade.reductions if one.monoid.name == "sum" and values_of(one.term))
    separations = []
    for reduction in cascade.reductions:
        if (other := products.with_counts(cascade, reduction, separator)) is not None:
            return decompose(other, trial=trial)
        term = live_term(reduction.term, cascade.domain) if reduction.is_scalar else reduction.term
        try:
            separations.append(separation(reduction, term, separator))
        except NotSeparable as finding:
            if (other := with_known_total(cascade, reduction)) is not None:
                return decompose(other, trial=trial)
            if (other := of_either_branch(cascade, reduction, finding.node, separator)) is not None:
                with suppress(NotFusible, NotDecided):
                    return decompose(other, trial=True)
            result = settle_by_rank(reduction, term, finding, separator, cascade, trial=trial)
            if isinstance(result, Decomposition):
                return result
            separations.append(result)
        if reduction.is_scalar:
            separator.facts[reduction.value] = (reduction.monoid.name, term)
        else:
            separator.others[reduction.value] = reduction
    return Decomposition(cascade, tuple(separations), separator)


def separation(reduction: Reduction, term: Expr, separator: Separator, opened: int = 0) -> Separation:
    """The structural route: the reduction's separation, or `NotSeparable`; `opened` counts the splits into cases."""
    separator.shifts, separator.roundings = [], []
    try:
        separated = SEPARATE.get(reduction.monoid.name, separate_other)(reduction, term, separator)
        if separator.roundings and not separated.roundings:
            cast, kind = separator.roundings[0].cast, reduction.monoid.name
            raise NotSeparable(cast, f"rounds what mixes x with d under a {kind}, for which redalg knows no running "
                               "form", certain=False)  # fmt: skip
        return separated
    except NotSeparable as finding:
        summed = reduction.monoid.name == "sum"
        cases = by_cases(term, finding.node, separator, summed=summed) if opened < CASES_LIMIT else None
        if cases is None:
            raise
    return separation(reduction, cases, separator, opened + 1)


def settle_by_rank(
    reduction: Reduction, term: Expr, finding: NotSeparable, separator: Separator, cascade: Cascade, *, trial: bool
) -> Separation | Decomposition:
    """Settle a finding by the rank test: return a separation found after rewriting, or raise the verdict.

    If reductions without a state cancel in the outputs, return the decomposition of the cascade in which they do.
    """
    if trial:
        rewrites = rewrites_for(finding, term, separator)
        if (result := separate_rewritten(rewrites, reduction, term, separator, cascade)) is None:
            raise NotDecided(reduction.name, finding.text, "")
        return result
    audit = rank_audit(reduction, term, separator, cascade)
    if audit.test.settles and finding.certain:  # a kink may lie beside all samples
        audit = audit.again(rank_summand(reduction, term))
    test = audit.test
    rewrites = rewrites_for(finding, term, separator, test)
    if (result := separate_rewritten(rewrites, reduction, term, separator, cascade)) is not None:
        return result
    if test.grows and reduction.monoid.name == "sum":
        test = of_node(finding, audit)
        test = of_rest(finding, audit, term, separator) if test.grows else test
    kind, node = reduction.monoid.name, finding.node
    stated = partial(decides, node, term, kind) if kind in LATTICE else partial(speaks, node)
    if finding.certain and (kind in MEMBERS or not stated(separator)):
        finding = NotSeparable(finding.node, Text(finding.reason, GENERAL), certain=False, hint=finding.hint)
    if not finding.certain:
        here = setting_of(separator, cascade)
        finding = apply_memberships(apply_winners(finding, reduction, term, here), reduction, term, here)
    if test.grows and not finding.certain:
        test = audit.in_digits(rank_summand(reduction, term))
    refusal = verdict_of_finding(reduction, finding, test, cascade)
    later = cascade.reductions[cascade.reductions.index(reduction) + 1 :]
    if isinstance(refusal, NotFusible) and not needs(cascade, reduction, later):
        terms = without_state(reduction, term, separator, cascade)
        setting = audit.setting or setting_of(separator, cascade)
        spared = None if needs(cascade, reduction, terms) else output_rank_test(cascade, terms, setting)
        if spared is not None and spared.settles:
            if (other := merge_reductions(cascade, [*terms])) is not None:
                with suppress(NotFusible, NotDecided):
                    return decompose(other)
            refusal = verdict_of_finding(reduction, finding, spared, cascade, whole=False)
    raise refusal from None


def rewrites_for(
    finding: NotSeparable, term: Expr, separator: Separator, test: RankTest | None = None
) -> Sequence[Rewrite]:
    """The rewrites that may separate a term: all if its rank stands still, those of poles if one may cancel."""
    divides = isinstance(finding.node, Pow) and (test is None or bool(test.ranks))  # a pole cancels in any rank
    keeps_pole = divides and poles.keeps_pole(term, separator)
    return REWRITES[keeps_pole:] if test is not None and test.settles else REWRITES[keeps_pole or not divides : 2]


def without_state(reduction: Reduction, term: Expr, separator: Separator, cascade: Cascade) -> Mapping[Reduction, Expr]:
    """The reductions without a separation, each with its term; the given one is the first."""
    later = cascade.reductions[cascade.reductions.index(reduction) + 1 :]
    separator.facts.update({one.value: (one.monoid.name, one.term) for one in later if one.is_scalar})
    terms = {reduction: term}
    for candidate in later:
        other = live_term(candidate.term, cascade.domain) if candidate.is_scalar else candidate.term
        try:
            separation(candidate, other, separator)
        except NotSeparable:
            terms[candidate] = other
    return terms


def of_node(finding: NotSeparable, audit: Audit) -> RankTest:
    """The test of the offending node if its rank stands still: then only its product with the rest grew past N."""
    node = finding.node if isinstance(finding.node, Expr) else Where(finding.node, S.One, S.Zero)
    alone = audit.of_part(node)
    return alone if alone.settles else audit.test


def of_rest(finding: NotSeparable, audit: Audit, term: Expr, separator: Separator) -> RankTest:
    """The test of a term less the part that separates, which may have a large rank beside nodes that cancel."""
    rest = term
    for _ in range(NODES_LIMIT):
        node = finding.node
        rest = rest.xreplace({node: S.Zero if isinstance(node, Expr) else S.false})
        try:
            columns = laurent.columns(separator.separate(rest))
        except NotSeparable as other:
            if other.node == node:
                break
            finding = other
            continue
        enough = audit.test.ranks[1] > SMALL + len(columns)
        return audit.test if enough else audit.of_part(Add(term, -rest, evaluate=False))
    return audit.test


def rank_audit(reduction: Reduction, term: Expr, separator: Separator, cascade: Cascade) -> Audit:
    """The rank test of a sum's term, or of the logarithm of a product's term, since Π F = exp(Σ log F)."""
    if reduction.monoid.name not in ("sum", "prod"):
        return Audit(RankTest((), f"it is about sums and products, not about `{reduction.monoid.name}`"))
    return setting_of(separator, cascade).audit(rank_summand(reduction, term))


def rank_summand(reduction: Reduction, term: Expr) -> Expr:
    """The summand of a sum, or the logarithm of a product's factor."""
    return term if reduction.monoid.name == "sum" else log(Abs(term, evaluate=False), evaluate=False)


def setting_of(separator: Separator, cascade: Cascade) -> Setting:
    """The setting of a cascade's samples."""
    others = {one.value: one for one in cascade.reductions if not one.is_scalar}
    return Setting(cascade.reduced_axes, cascade.values, separator.facts, others, nodes=separator.sampled)


NODES_LIMIT = 8
"""Nodes that are taken out of a term to find what separates."""


def separate_rewritten(
    rewrites: Sequence[Rewrite], reduction: Reduction, term: Expr, separator: Separator, cascade: Cascade
) -> Separation | None:
    """The separation of another spelling of the term, certified: both agree at every sample to 90 digits."""
    for other in spellings(term, rewrites):
        try:
            result = separation(reduction, other, separator)
        except NotSeparable:
            continue
        if equal_on_samples(term, other, cascade.reduced_axes, cascade.values, separator.facts):
            return result
    return None


def separate_sum(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """Separate a sum: its term as a polynomial."""
    domain = separator.domain
    masked = reduction.term if live_term(reduction.term, domain) == term else term
    by_guard = parts_by_guard(masked, separator) if separator.side(term) & D or masked != term else {S.One: term}
    if by_guard.keys() == {S.One}:
        by_guard = {S.One: term}
    polynomials = {some: absorb_factors(separator.separate(live_term(part, domain)), separator.atoms)
                   for some, part in by_guard.items()}  # fmt: skip
    parts = tuple((some, one) for some, one in polynomials.items() if hides(some, one, separator))
    return Separation(reduction, laurent.add(*polynomials.values()), None, shifts=tuple(separator.shifts),
                      roundings=tuple(separator.roundings), guarded=parts, atoms=separator.atoms)  # fmt: skip


def minimal(polynomial: Polynomial, atoms: Atoms) -> Written:
    """g and h of a sum: a basis of its polynomial's columns, and each d-monomial's coordinates in it."""
    span, h = Span(), dict[int, list[Expr]]()
    columns = laurent.columns(polynomial)
    for column in columns.values():
        span.add(column)
    for d, column in columns.items():
        for index, c in (span.coordinates(column) or {}).items():
            h.setdefault(index, []).append(laurent.fraction(c) * atoms.expr(d))
    g = tuple(map(atoms.vector_expr, span.basis))
    return Written(g, tuple(Add(*h[index]) for index in range(len(g))), "×")


def separate_extremum(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """The extrema of x alone from which the value follows."""
    kind = reduction.monoid.name
    if not separator.side(term) & D:
        slot = Slot(kind, term, Dummy("slot", extended_real=True))
        return Separation(reduction, {}, of_x(term), extremal=Extremal((slot,), slot.symbol, (), ()))
    extremum = extremal(kind, term, separator)
    return Separation(reduction, {}, None, extremal=extremum)


def of_x(term: Expr) -> Written:
    """A term that holds no d."""
    return Written((term,), (S.Zero,), "+")


def of_extrema(extremum: Extremal) -> Written:
    """g ⊗ h if h is a term or a factor; else h as a function of g."""
    if len(extremum.h) == 1:
        [phi] = extremum.h
        factor, rest = phi.expand().coeff(GENERATOR, 1), phi.expand().coeff(GENERATOR, 0)
        if (phi - factor * GENERATOR - rest).expand() is S.Zero:
            return Written(extremum.g, (rest,), "+") if factor is S.One else Written(extremum.g, (factor,), "×", rest)
    return Written(extremum.g, extremum.h, "∘")


def separate_truth(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """The extrema of x alone from which the truth of a condition follows."""
    if not separator.side(term) & D:
        return separate_other(reduction, term, separator)
    extremum = truth_extremum(reduction.monoid.name, term, separator)
    return Separation(reduction, {}, Written(extremum.g, extremum.h, "∘"), extremal=extremum)


def separate_product(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """One monomial, so that Π g·h = (Π g)·h^n; a parameter or a value may not stand beside x in a sum."""
    if not separator.side(term) & D:
        return separate_other(reduction, term, separator)
    polynomial = separator.separate(term)
    columns = laurent.columns(polynomial)
    if len(columns) != 1:
        if (factors := products.product_factors(term, separator)) is not None:
            g, h, count = factors
            return Separation(reduction, {}, Written((g,), (h,), "^"), count=count)
        reason = "is a product over sums that mix x with d: its expansion has as many terms as there are elements"
        separator.rank_one(term, term, reason, certain=is_analytic(term, separator.side))
        raise NotSeparable(reduction.term, reason, certain=False)
    [(d, column)] = columns.items()
    form = Written((separator.atoms.vector_expr(column),), (separator.atoms.expr(d),), "^")
    return Separation(reduction, polynomial, form, count=products.count_of(S.One, separator))


def separate_other(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """Separate any other monoid: a term of x alone is its own part of x; a term that holds d is not decided."""
    if not separator.side(term) & D:
        return Separation(reduction, {}, of_x(term))
    reason = f"holds d under {reduction.monoid}, for which redalg knows no ⊗ that distributes"
    raise NotSeparable(term, reason, certain=False)


def separate_selection(reduction: Reduction, term: Expr, separator: Separator) -> Separation:
    """Separate a selection: u(x) tells which elements are selected, and their values follow from those of u."""
    if not separator.side(term) & D:
        return separate_other(reduction, term, separator)
    u, phi = increasing_form(term, separator)
    return Separation(reduction, {}, Written((u,), (phi,), "∘"))


SEPARATE: dict[str, Callable[[Reduction, Expr, Separator], Separation]] = {
    "sum": separate_sum, "max": separate_extremum, "min": separate_extremum, "prod": separate_product,
    "argmax": separate_selection, "argmin": separate_selection, "topk": separate_selection,
    "any": separate_truth, "all": separate_truth,
}  # fmt: skip
"""The separation of a term that holds d, by monoid (of a sum's term always); the others: `separate_other`."""
