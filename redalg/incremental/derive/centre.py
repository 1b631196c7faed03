"""Centring: the generators X that are better written as Z + v(d).

    P(X, …) → P(Z + v(d), …)       exact for every v; taken only where the number of terms strictly drops, or where it
                                   stays and the user wrote X − v beside another deviation: (Y − w)·(X − v)·X

Candidates v are the d-parts that the user wrote beside X, then Tschirnhaus: with P = a_p X^p + a_{p-1} X^{p-1} + …,
v = −a_{p-1}/(p·a_p), if that quotient depends on d alone; or, for p ≥ 2, on d and on other generators X' linearly:

    P(Y, X', …) → P(Z + v(d) + Σ b_j(d)·X'_j, X', …)        the slopes b_j: Z is the residual of Y on the lines b_j·X'_j
    h²·(Y − a/h·X')² → h²·Z²                                 h may be 0: the line's turn is held times h (`is_cleared`)

A slope may be any function of d, as that of a regression, N/D, or the ratio that (Y/‖Y‖ − X'/‖X'‖)² has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from sympy import Dummy, Expr, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial, Polynomial, Ratio, fraction
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import NotSeparable
from redalg.decompose.separate.whole import rewrite_wholes
from redalg.decompose.verdict.verdict import Separation
from redalg.expression import Element, Value, Where
from redalg.expression.contents import elements_of, free_axes, values_of


@final
@dataclass(frozen=True)
class Offset:
    """V = v(d) + Σ a_i(d)·c_i of a factor v + Σ a_i·X_i: its value where every generator is at its pivot c_i."""

    value: Value
    factor: Polynomial


@final
@dataclass(frozen=True)
class Centred:
    """A polynomial in centred generators: atom number -> v, so that the atom now stands for X − v.

    v is of d alone, or v(d) + Σ b_j(d)·X'_j with other generators, which are centred themselves if they have a v.
    Beside offsets v is the pivot, whatever it is, and `centres` has 0.
    """

    polynomial: Polynomial
    centres: dict[int, Polynomial]
    guarded: tuple[tuple[Expr, Polynomial], ...] = ()
    offsets: tuple[Offset, ...] = ()

    @property
    def parts(self) -> list[tuple[Expr, Polynomial]]:
        """The part of the polynomial without a guard, under 1, and the part that each indicator guards."""
        rest = laurent.add(self.polynomial, *(laurent.scale(part, -1) for _, part in self.guarded))
        return [(S.One, rest), *self.guarded] if rest else list(self.guarded)

    def shift(self, atom: int) -> Polynomial:
        """The part of v that depends on d alone (0 for a generator that is not centred)."""
        return {key: c for key, c in self.centres.get(atom, {}).items() if not key[0]}

    def slope_divisor(self, atom: int) -> Monomial:
        """The divisor of a line's slope if the polynomial multiplies by it again, else ()."""
        v = self.centres.get(atom, {})
        alone = len(v) == 1 and bool(self.slopes(atom)) and not self.guarded
        return divisor(v) if alone and is_cleared(self.polynomial, atom, v) else ()

    def slopes(self, atom: int) -> dict[int, Polynomial]:
        """The slopes b_j by the number of X'_j."""
        slopes: dict[int, Polynomial] = {}
        for (x, d), c in self.centres.get(atom, {}).items():
            if x:
                slopes.setdefault(x[0][0], {})[(), d] = c
        return slopes


def centre(separation: Separation, separator: Separator, *, lines: bool = True) -> Centred:
    """The centred form of one reduction's polynomial; without `lines`, none is centred on other generators."""
    polynomial, centres = separation.polynomial, dict[int, Polynomial]()
    again = True
    while again and not _is_unweighted(polynomial):
        again = False
        own = list(_user_centres(separation, separator))
        for place, (atom, v) in enumerate([*own, *_tschirnhaus(polynomial, separation, separator, lines=lines)]):
            linear = all(dict(x).get(atom, 0) <= 1 for x, _ in polynomial)
            if linear and _is_no_mean(v, separator.atoms.list[atom].base, separator):
                continue
            generator = separator.atoms.polynomial(separator.atoms.list[atom])
            other = laurent.substitute(polynomial, atom, laurent.add(generator, v)) if atom not in centres else None
            most = len(polynomial) if centres and place < len(own) else len(polynomial) - 1
            if other is not None and not _written_reciprocals(v, polynomial) and place >= len(own):
                other = other if not separation.guarded and is_cleared(other, atom, v) else None
            if other is not None and len(other) <= most:
                polynomial, again = other, True
                centres = {one: _centre_line(line, atom, laurent.add(generator, v)) for one, line in centres.items()}
                centres[atom] = v
                break
    return Centred(polynomial, centres, tuple(
        (some, _centre_part(part, centres, separator)) for some, part in separation.guarded))  # fmt: skip


def _centre_line(line: Polynomial, atom: int, centred: Polynomial) -> Polynomial:
    """A line v(d) + Σ b_j·X'_j, of which one X'_j is centred after it: it turns about that centre."""
    return line if atom not in laurent.atoms_of(line) else laurent.substitute(line, atom, centred) or {}


def _centre_part(polynomial: Polynomial, centres: dict[int, Polynomial], separator: Separator) -> Polynomial:
    """A part of a polynomial, with every generator centred as in the whole polynomial."""
    for atom, v in centres.items():
        generator = separator.atoms.polynomial(separator.atoms.list[atom])
        polynomial = laurent.substitute(polynomial, atom, laurent.add(generator, v)) or {}
    return polynomial


def _user_centres(separation: Separation, separator: Separator) -> Iterator[tuple[int, Polynomial]]:
    """Yield the centres that the user wrote: from u(x) + v(d) in one sum, X = u is centred at −v."""
    for u, v in separation.shifts:
        poly = rewrite_wholes(separator.pure(u), separation.wholes, separator.atoms)
        if len(poly) != 1:
            continue
        [((x, d), c)] = poly.items()
        if len(x) == 1 and x[0][1] == 1 and not d and not separator.atoms.list[x[0][0]].exponential:
            parts = [separator.pure(term) for term in v.as_ordered_terms()]
            yield x[0][0], laurent.scale(laurent.add(*parts), laurent.ratio(-1, c))


def _tschirnhaus(
    polynomial: Polynomial, separation: Separation, separator: Separator, *, lines: bool
) -> Iterator[tuple[int, Polynomial]]:
    dividing = list[tuple[int, Polynomial]]()
    for atom in laurent.atoms_of(polynomial):
        by_degree: dict[Ratio, Polynomial] = {}
        for (x, d), c in polynomial.items():
            by_degree.setdefault(dict(x).get(atom, 0), {})[laurent.without_atom(x, atom), d] = c
        degree = max(by_degree)
        lead, below = by_degree[degree], by_degree.get(degree - 1)
        if separator.atoms.list[atom].exponential or degree < 1 or below is None or len(lead) != 1:
            continue
        [((x, d), c)] = lead.items()
        inverse, inverse_x = laurent.power_monomial(d, -1), laurent.power_monomial(x, -1)
        v: Polynomial = {
            (laurent.multiply_monomials(x_below, inverse_x), laurent.multiply_monomials(d_below, inverse)):
            laurent.ratio(-c_below, degree * c) for (x_below, d_below), c_below in below.items()
        }  # fmt: skip
        plain = all(not x for x, _ in v)
        on_line = lines and degree > 1 and _slopes_of(v, atom, separation, separator)
        if (plain or on_line) and _written_reciprocals(v, polynomial):
            yield atom, v
        elif on_line and len(v) == 1:  # it divides by what the term does not
            dividing.append((atom, v))
    yield from dividing


def _slopes_of(v: Polynomial, atom: int, separation: Separation, separator: Separator) -> bool:
    """Tell if v is a line in other generators, with slopes that the state gives.

    A state holds no tensors, so that v may hold no parameter. An exponential's reciprocal may overflow, except beside
    the scales of whole generators. And v varies along no axis that the generator lacks. A slope of an exponential is
    that of a regression: divided by the exponential's scale, any other may overflow.
    """
    atoms = separator.atoms
    linear = all(len(x) <= 1 and all(q == 1 and not atoms.list[number].exponential for number, q in x) for x, _ in v)
    of_d = [atoms.list[number] for _, d in v for number, _ in d]
    exponentials = {whole.atom for whole in separation.wholes if whole.exponentials}
    if atom in exponentials and not _scales_with(v, atom, exponentials, separator):
        return False
    scaled = bool(exponentials & {atom, *laurent.atoms_of(v)})
    of_slots = all((scaled or not one.exponential) and of_state(one.base, separator) for one in of_d)
    return linear and of_slots and free_axes(atoms.polynomial_expr(v)) <= free_axes(atoms.list[atom].base)


def _scales_with(v: Polynomial, atom: int, exponentials: Set[int], separator: Separator) -> bool:
    """Tell if a line of an exponential lies on others alone, or with the slope of its regression."""
    own = elements_of(separator.atoms.list[atom].base)
    slopes = ((x[0][0], d, c) for (x, d), c in v.items() if x)
    return all(
        other in exponentials
        or is_regression({((), d): c}, own | elements_of(separator.atoms.list[other].base), separator)
        for other, d, c in slopes
    )


def is_regression(slope: Polynomial, both: Set[Element], separator: Separator) -> bool:
    """Tell if a slope is made of ratios N/D in whole powers, N a sum whose term holds both generators' elements."""
    return all(_is_ratio(d, both, separator) for _, d in slope)


def _is_ratio(d: Monomial, both: Set[Element], separator: Separator) -> bool:
    bases = [(separator.atoms.list[number].base, q) for number, q in d]
    if any(q.denominator != 1 for _, q in bases):
        return False
    above = [separator.facts[base] for base, q in bases if q > 0 and base in separator.facts]
    divided = any(q < 0 and not is_count(base, separator) for base, q in bases)
    return divided and any(kind == "sum" and both <= elements_of(term) for kind, term in above)


def is_cleared(polynomial: Polynomial, atom: int, v: Polynomial) -> bool:
    """Tell if every term has at least as many factors of v's divisor as it has of the generator less v.

    A turn τ/h of such a line is as good if h = 0, as no power of h is left to divide by: h²·(z − τ/h·x)².
    """
    below = divisor(v)
    return bool(below) and all(
        dict(d).get(number, 0) >= q * dict(x).get(atom, 0) for x, d in polynomial for number, q in below
    )


def divisor(v: Polynomial) -> Monomial:
    """The divisors of v."""
    lowest: dict[int, Ratio] = {}
    for _, d in v:
        for number, q in d:
            lowest[number] = min(q, lowest.get(number, 0))
    return tuple(sorted((number, -q) for number, q in lowest.items() if q < 0))


def of_state(expr: Expr, separator: Separator) -> bool:
    """Tell if an expression holds only what a state gives: values of reductions, scalars and numbers.

    A state holds no tensor, so that Σ a·x is none of its values where a is a parameter: `finish` multiplies Σ x by it.
    """
    values = values_of(expr)
    if elements_of(expr) or not values <= separator.values:
        return False
    return not any(_reads_tensors(one, separator) for one in values & separator.facts.keys())


def _reads_tensors(value: Value, separator: Separator) -> bool:
    """Tell if a reduction's value follows from its slots and tensors: of a sum, if a factor outside of it holds one."""
    kind, term = separator.facts[value]
    if not values_of(term) <= separator.values:
        return True
    outside: Iterable[Expr] = [one for one in elements_of(term) if not separator.side(one)]
    if kind == "sum":
        with suppress(NotSeparable):
            outside = map(separator.atoms.expr, laurent.columns(separator.separate(term)))
    return not all(of_state(one, separator) for one in outside)


def is_count(expr: Expr, separator: Separator) -> bool:
    """Tell if a value is a number of elements."""
    return separator.facts.get(expr, ("", None))[1] is S.One


def _is_unweighted(polynomial: Polynomial) -> bool:
    """Tell if a term is Σ a·X + v: Σ X and the number of elements give its sum, and a pivot saves no digit of it."""
    return all(not x or (len(x) == 1 and x[0][1] == 1) for x, _ in polynomial)


def _is_no_mean(v: Polynomial, base: Expr, separator: Separator) -> bool:
    """Tell if v is a multiple of a sum near which no element lies: of other powers than X, or of the other sign.

    Σ w·X is a mean of X if the weights add up to 1. Σ w·X², N·Σ w·X and −Σ w·X are not, and a pivot there would follow
    them far from the elements: the digits of X are lost where an outlier makes such a sum large for a while.
    """
    if len(v) != 1:
        return False
    [((x, d), c)] = v.items()
    if x or not _grows_with_data(d, separator):
        return False
    if len(d) != 1 or d[0][1] != 1:
        return True
    kind, term = separator.facts.get(separator.atoms.list[d[0][0]].base, ("", None))
    if kind != "sum" or term is None or term.has(Where):
        return False
    generator = Dummy()
    slope = term.xreplace({base: generator}).diff(generator).expand()
    linear = not slope.has(generator) and not elements_of(slope) & elements_of(base)
    return not linear or bool((slope.as_coeff_Mul()[0] * fraction(c)).is_nonpositive)


def _grows_with_data(d: Monomial, separator: Separator) -> bool:
    """Tell if a product of sums and counts is another one when every element stands twice; a mean is not."""
    bases = [(separator.atoms.list[number].base, q) for number, q in d]
    return all(separator.facts.get(base, ("", None))[0] == "sum" for base, _ in bases) and sum(q for _, q in bases) != 0


def _written_reciprocals(v: Polynomial, polynomial: Polynomial) -> bool:
    """Tell if v divides only by divisors of the term: x·d + 1 is not centred at −1/d, which is infinite if d = 0."""
    lowest: dict[int, Ratio] = {}
    for _, d in polynomial:
        for atom, q in d:
            lowest[atom] = min(q, lowest.get(atom, q))
    return all(q >= 0 or lowest.get(atom, 0) <= q for _, d in v for atom, q in d)
