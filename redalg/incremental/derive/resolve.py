"""Resolve: every d from the state, with pivots cancelled symbolically.

A value is kept as exp(λ)·v: λ collects the rest of the pivots in exponents, v is a part that is safe to compute. Terms
whose exponents agree share λ; log(exp(λ)·v) = λ + log v; a ratio of two values subtracts their λ. So Σe^s·v / Σe^s,
written without a maximum, never computes e^s, and exp(s − m) with its own m has λ = 0.

    d_i = Σ_d-monomials H(d) · Σ_k coordinates · [A(c → v_i(d)) a]_k · exp(grade · c)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import final

from sympy import Add, Eq, Expr, Or, Rational, S, exp
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Atom, Monomial, Polynomial, Ratio, fraction
from redalg.decompose.separate.theorems import X
from redalg.decompose.verdict.verdict import Separation
from redalg.expression import Extent, Label, Scalar, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.expanded import expand_to_cancel
from redalg.incremental.derive.basis import FIRST_SLOPE, Pool
from redalg.incremental.derive.cancel import Canceller
from redalg.incremental.derive.centre import Centred
from redalg.incremental.derive.chains import Chains
from redalg.incremental.derive.crossings import crossings, without_centres
from redalg.incremental.derive.doubtful import keep_rows, where_finite
from redalg.incremental.derive.exponents import gather_exponent
from redalg.incremental.derive.grades import Grades
from redalg.incremental.derive.lines import Lines
from redalg.incremental.derive.placement import Placement
from redalg.incremental.derive.scaled import ScaledValues
from redalg.incremental.derive.some import guard, somewhere, value_axes
from redalg.incremental.derive.turns import over_divisor, slope_difference, whole_slope
from redalg.incremental.derive.units import Unit, unit_of
from redalg.incremental.form import Assignment, Pivot

EXPANSION_LIMIT = 24
"""Terms beyond which a displacement is left as it is instead of being expanded to cancel its pivot."""


@final
class Resolver:
    """Builds the assignments of `finish`, one by one; with `level`, a number may stand beside scaled sums in a root."""

    def __init__(
        self, placement: Placement, pool: Pool, accumulators: list[Value], centred: dict[str, Centred], *, level: bool
    ) -> None:
        self.placement, self.pool, self.accumulators = placement, pool, accumulators
        self.grades, self.chains = Grades(placement, pool), Chains(pool, placement.pivots, accumulators)
        self.lines = Lines(placement.decomposition.separator, pool, placement.pivots, centred, self.grades.scales)
        self.assignments: list[Assignment] = []
        self.resolved = set[Value]()
        self.scaled = ScaledValues(placement, self._named_value, composite=bool(pool.composite), level=level)
        self.maxima = self.grades.derived_maxima()
        self.known = dict(self.maxima)
        self.deltas: dict[int, list[Expr]] = {}
        shifting = [one for key, one in placement.pivots.items() if one.has_slot or key in pool.auxiliary]
        self.canceller = Canceller(placement.decomposition.separator, self.known, shifting, placement.extrema,
                                   self._substitute, with_exponent=self._with_exponent)  # fmt: skip

    # ---- one reduction -----------------------------------------------------------------------------------------------

    def resolve(self, separation: Separation, centred: Centred | None) -> None:
        """Assign the reduction's value."""
        value = separation.reduction.value
        for turn, expr in self.lines.ready(self.resolved, self._polynomial_expr):
            self.assignments.append(Assignment(turn, expr))
        self.resolved.add(value)
        if centred is None:
            if value in self.placement.finals:
                self._assign_plain(value, self.placement.finals[value])
            return
        turns = dict[int, Expr]()
        for key in sorted(filter(self.pool.slope, self.pool.keys), key=lambda one: len(self.pool.links(one))):
            turns[key] = self._turn(separation, centred, key, turns)
        self._assign_factors_at_pivots(centred)
        units = self._units(centred, turns)
        pivoted = [atom for atom in self.pool.pivoted if atom not in units]
        shifts = {atom: self._displacement(separation, centred, atom, turns) for atom in pivoted} | turns
        moves = {atom: self._symbol_polynomial(delta) for atom, delta in shifts.items()}
        moves |= {atom: self._in_unit(unit.displacement, unit, -1) for atom, unit in units.items()}
        if self.pool.keys and not centred.guarded:  # without pivots that shift there is nothing to cancel
            exact = {key: self._symbol_polynomial(turns[key]) if key in turns else
                     self._exact_displacement(centred, key, turns) for key in moves}  # fmt: skip
            powers = self.pool.powers(centred.polynomial)
            with suppress(laurent.TooLongError):
                if laurent.are_short(powers, exact):
                    self.known[self._number(value)] = laurent.add(*self._terms(centred.polynomial, exact, self.known))
        meetings = crossings(centred, moves, self.placement.pivots, self._symbol_polynomial)
        parts = list[tuple[Boolean, list[Polynomial]]]()
        for indicator, part in centred.parts:
            some = somewhere(indicator, self.placement, self.pool, self.accumulators)
            parts.append((some, without_centres(self._terms(part, moves, {}, units), meetings)))
        self._assign(value, parts)
        self._keep_zero_scales(value, centred)

    def _keep_zero_scales(self, value: Value, centred: Centred) -> None:
        """Make the value NaN if a scale is 0: c^p/A^p → 1 as c is A, but of zeros alone the definition is 0/0."""
        used = {atom for x, _ in centred.polynomial for atom, _ in x} & (self.pool.scaled - self.pool.rooted)
        if scales := [self.placement.pivots[atom].source for atom in sorted(used)]:
            [index] = [place for place, one in enumerate(self.assignments) if one.value == value]
            expr = Where(Or(*(Eq(one, 0) for one in scales)), S.NaN, self.assignments[index].expr)
            self.assignments[index] = Assignment(value, expr)

    def _terms(
        self, polynomial: Polynomial, shifts: dict[int, Polynomial], known: dict[int, Polynomial],
        units: Mapping[int, Unit] | None = None,
    ) -> list[Polynomial]:  # fmt: skip
        """The terms of d_i as polynomials of d, one for each function of the basis that it uses."""
        terms, powers, product = [], dict[Monomial, Polynomial](), laurent.short_product if known else laurent.multiply
        for d, column in laurent.columns(polynomial).items():
            alone: Polynomial = {((), d): 1}
            outer = self._substitute(self.lines.about(alone) if known else alone, known or self.maxima)
            for grade, vector in self.pool.by_grade(column).items():
                for k, c in self.pool.coordinates(grade, vector).items():
                    row = laurent.scale(self._row(k, shifts, powers), c)
                    scale = laurent.multiply(self.grades.of(grade), self._scales(self.pool.degrees(k), units or {}))
                    term = laurent.multiply(product(outer, row), scale)
                    terms.append(term if known else keep_rows(d, term, self.placement))
        return terms

    def _row(self, number: int, shifts: dict[int, Polynomial], powers: dict[Monomial, Polynomial]) -> Polynomial:
        terms = []
        for other, row in self.pool.transition(number).items():
            accumulator = self._symbol_polynomial(self.accumulators[other])
            for shift, c in row.items():
                if shift not in powers:
                    powers[shift] = laurent.multiply_all(laurent.raise_to(shifts[atom], int(n)) for atom, n in shift)
                terms.append(laurent.multiply(laurent.scale(accumulator, c), powers[shift]))
        return laurent.add(*terms)

    # ---- displacements -----------------------------------------------------------------------------------------------

    def _assign_factors_at_pivots(self, centred: Centred) -> None:
        """Assign every offset V = v + Σ a_i·c_i."""
        pivots = self.placement.pivots
        for offset in centred.offsets:
            terms = (laurent.multiply({((), d): c}, self._at_pivot(x, pivots)) for (x, d), c in offset.factor.items())
            total = laurent.add(*terms)
            with suppress(laurent.TooLongError):
                self.known[self._number(offset.value)] = self._substitute(total, self.known)
            self._assign_plain(offset.value, self.placement.decomposition.separator.atoms.polynomial_expr(total))

    def _at_pivot(self, x: Monomial, pivots: Mapping[int, Pivot]) -> Polynomial:
        """The generator at its pivot: m·c if it is divided by m before c is taken off."""
        values = (self._symbol_polynomial(pivots[atom].value) for atom, _ in x)
        return laurent.multiply(laurent.multiply_all(values), self.grades.scales({atom: 1 for atom, _ in x}))

    def _displacement(self, separation: Separation, centred: Centred, atom: int, turns: dict[int, Expr]) -> Expr:
        """δ = v(d) − c under a name of its own, never expanded where it is used."""
        pivot = self.placement.pivots[atom]
        if centred.offsets and atom in centred.centres:
            return S.Zero
        if atom not in centred.centres:
            return -pivot.value
        expr, exact = self._displacement_expr(centred, atom, turns)
        if isinstance(delta := self._name_displacement(separation, centred, pivot, expr), Value):
            self.known.setdefault(self._number(delta), exact)
        if centred.slopes(atom):
            self.deltas.setdefault(atom, []).append(delta)
        return delta

    def _displacement_expr(self, centred: Centred, atom: int, turns: dict[int, Expr]) -> tuple[Expr, Polynomial]:
        """δ as it is computed, and as a polynomial with every value written out."""
        exact, pivot = self._exact_displacement(centred, atom, turns), self.placement.pivots[atom]
        inside = {value for _, d in exact for number, _ in d for value in values_of(self._atom(number).base)}
        cancelled = not inside & ({pivot.value} | (self.canceller.pivots if pivot.slopes else frozenset()))
        atoms = self.placement.decomposition.separator.atoms
        shift = self._substitute(laurent.multiply(centred.shift(atom), self.grades.scales({atom: -1})), self.maxima)
        raw = atoms.polynomial_expr(shift) - (pivot.value if pivot.has_slot else self.grades.of_maxima(pivot.source))
        shown = atoms.polynomial_expr(exact) if (cancelled and pivot.has_slot) or pivot.slopes else raw
        return self.scaled.safe(shown), exact

    def _units(self, centred: Centred, turns: dict[int, Expr]) -> dict[int, Unit]:
        """The units of generators about centres that do not cancel their scale, by their atoms."""
        units = dict[int, Unit]()
        for atom in self.pool.pivoted:
            pivot = self.placement.pivots[atom]
            on_line = pivot.slopes or centred.slopes(atom)
            exponential = pivot.scales and pivot.magnitude is None
            if on_line or not exponential or atom not in centred.centres:
                continue
            if self._displacement_expr(centred, atom, turns)[0].has(exp):
                centre = self._graded_terms(self._substitute(centred.shift(atom), self.maxima))
                units[atom] = unit_of(pivot, centre, self._named_value)
        return units

    def _in_unit(self, expr: Expr, unit: Unit, k: Ratio) -> Polynomial:
        """w^k·expr."""
        share = ((), ((self._number(unit.share), k),))
        return laurent.multiply(self._symbol_polynomial(expr), {share: 1})

    def _scales(self, degrees: Mapping[int, Ratio], units: Mapping[int, Unit]) -> Polynomial:
        """The factor that slots of these degrees in the scaled generators leave out."""
        plain = {atom: k for atom, k in degrees.items() if atom not in units}
        factors = [self.grades.scales(plain)]
        for atom in sorted(degrees.keys() & units.keys()):
            unit, k = units[atom], degrees[atom]
            factors.append(self._in_unit(exp(unit.exponent * fraction(k)), unit, k))
        return laurent.multiply_all(factors)

    def _name_displacement(self, separation: Separation, centred: Centred, pivot: Pivot, expr: Expr) -> Expr:
        """A displacement as a value, unless it is a number."""
        if not values_of(expr):
            return expr
        for assignment in self.assignments:
            if assignment.expr == expr:
                return assignment.value
        name = f"delta_{separation.reduction.name}"
        if len(centred.centres) > 1 or any(one.value.name == name for one in self.assignments):
            name += f"_{pivot.value.name}"
        return self._assign_name(name, expr)

    def _assign_name(self, name: str, expr: Expr) -> Value:
        value = Value(Label(name), *self.placement.symbol(name, value_axes(expr)).indices)
        self._assign_plain(value, expr)
        return value

    def _named_value(self, prefix: str, expr: Expr) -> Value:
        """The value of an expression; a new one, under the next name with a prefix, unless it has one."""
        number = sum(one.value.name.startswith(f"{prefix}_") for one in self.assignments)
        value = next((one.value for one in self.assignments if one.expr == expr), None)
        return value or self._assign_name(f"{prefix}_{number}", expr)

    def carried_displacement(self, pivot: Pivot, factor: Rational, v: Expr) -> Expr | None:
        """v(d)/m + factor·c under a name of its own, m the scale of u; None if c or m does not cancel."""
        separator = self.placement.decomposition.separator
        here = laurent.scale(self._symbol_polynomial(pivot.value), laurent.as_ratio(factor))
        there = (self._substitute(separator.pure(term), self.known) for term in Add.make_args(v))
        exact = laurent.add(laurent.multiply(laurent.add(*there), self.grades.scale(pivot, -1)), here)
        left = {pivot.value, *(m.value for m, _ in pivot.scales)}
        if any(left & values_of(self._atom(number).base) for _, d in exact for number, _ in d):
            return None
        expr = separator.atoms.polynomial_expr(exact)
        self.canceller.vanished.add(pivot.value)
        for assignment in self.assignments:
            if assignment.expr in (expr, -expr):
                return assignment.value if assignment.expr == expr else -assignment.value
        return self._named_value("offset", expr) if values_of(expr) else expr

    def _exact_displacement(self, centred: Centred, atom: int, turns: dict[int, Expr]) -> Polynomial:
        """v − c; on a line of slope b = β + turn, v + Σ b·(how far x is moved) − c."""
        if centred.offsets and atom in centred.centres:
            return {}
        pivot = self.placement.pivots[atom]
        here = self._symbol_polynomial(pivot.value if pivot.has_slot else self.grades.of_maxima(pivot.source))
        there = self._substitute(self.lines.about(centred.shift(atom)), self.known)
        total = laurent.add(laurent.multiply(there, self.grades.scales({atom: -1})), laurent.scale(here, -1))
        slopes = centred.slopes(atom)
        for key in turns:
            y, x = self.pool.slopes[key - FIRST_SLOPE]
            if y == atom and x in slopes and x in self.placement.pivots:
                symbols = {one: self._symbol_polynomial(turn) for one, turn in turns.items()}
                b = whole_slope(
                    key, symbols, self.pool, lambda one: self._symbol_polynomial(self.placement.pivots[one].value)
                )
                move = self._exact_displacement(centred, x, turns)
                total = laurent.add(total, laurent.scale(laurent.multiply(b, move), -1))
        return total

    def _polynomial_expr(self, poly: Polynomial) -> Expr:
        """A polynomial of values with exponents cancelled."""
        return Add(*(v * exp(exponent) for exponent, v in self._graded_terms(poly)))

    # ---- slopes ------------------------------------------------------------------------------------------------------

    def _turn(self, separation: Separation, centred: Centred, key: int, turns: dict[int, Expr]) -> Expr:
        """b(d) − β, the slope of y on x less the pivot's; along a chain, less Σ b·τ of the slopes between too."""
        y, x = self.pool.slopes[key - FIRST_SLOPE]
        pivot, slope = self.placement.pivots[key], centred.slopes(y).get(x)
        beta = self._symbol_polynomial(pivot.value)
        between = {along: self.pool.slopes[by - FIRST_SLOPE][1] for by, along in self.pool.links(key)}
        if self.pool.is_chained(y) and {x, *between.values()} & centred.slopes(y).keys():
            terms = [slope or {}, laurent.scale(beta, -1)]
            for along, z in between.items():
                b = laurent.scale(centred.slopes(y).get(z, {}), -1)
                terms.append(laurent.multiply(b, self._symbol_polynomial(turns[along])))
            expr = over_divisor(laurent.add(*terms), self.canceller)
            value = self.placement.symbol(f"delta_{separation.reduction.name}_{pivot.value.name}", value_axes(expr))
            self.assignments.append(Assignment(value, expr))
            return value
        if slope is None:
            return -pivot.value
        if (line := self.lines.at(key, slope)) is not None:
            if not line.below:
                self.deltas.setdefault(key, []).append(line.turn)
            return self.lines.turn(line)
        apart = slope_difference(self.lines.to_scale(slope, y, x), beta, self.canceller)
        self.deltas.setdefault(key, []).append(turn := self._name_displacement(separation, centred, pivot, apart))
        return turn

    def source(self, key: int) -> Expr:
        """The displacement of a slope, or of the shift on its line, to the natural one, in terms of the slots."""
        if (fitted := self.chains.source(key) or self.lines.source(key, self.accumulators)) is not None:
            return fitted
        assigned = {one.value: one.expr for one in self.assignments}
        meaning: dict[Basic, Expr] = {}

        def write_out(expr: Expr) -> Expr:
            for value in values_of(expr) & assigned.keys() - meaning.keys():
                meaning[value] = write_out(assigned[value])
            return expr.xreplace(meaning)

        sources = [write_out(value) for value in self.deltas.get(key, ()) if value in assigned]
        slots = {*self.accumulators, *(one.value for one in self.placement.pivots.values())}
        return next((one for one in sources if values_of(one) <= slots), S.Zero)

    def move(self, pivot: Pivot) -> Expr:
        """Displacement of a tile-local pivot to its natural centre, in terms of the slots."""
        separator = self.placement.decomposition.separator
        centre = (self._substitute(separator.pure(term), self.known) for term in pivot.source.as_ordered_terms())
        scale = self.grades.scale(pivot, -1)
        displacement = laurent.add(laurent.multiply(laurent.add(*centre), scale), self._expr_polynomial(-pivot.value))
        return separator.atoms.polynomial_expr(displacement)

    def _substitute(self, poly: Polynomial, known: dict[int, Polynomial]) -> Polynomial:
        """The polynomial with earlier values written out, if that stays short."""
        if not any(number in known for x, d in poly for number, _ in x + d):
            return {((), tuple(sorted(x + d))): c for (x, d), c in poly.items()}
        terms = []
        for (x, d), c in poly.items():
            powers = (self._power(known.get(number), number, q) for number, q in x + d)
            terms.append(laurent.scale(laurent.multiply_all(powers), c))
        return laurent.add(*terms)

    def _power(self, meaning: Polynomial | None, number: int, q: Ratio) -> Polynomial:
        if meaning is not None and q > 0 and q.denominator == 1 and len(meaning) * q <= EXPANSION_LIMIT:
            return laurent.raise_to(meaning, int(q))
        if meaning is not None and len(meaning) == 1 and q.denominator == 1:
            [((_, d), c)] = meaning.items()
            return {((), laurent.power_monomial(d, q)): laurent.whole_power(c, int(q))}
        return {((), ((number, q),)): 1}

    # ---- values as exp(λ)·v ------------------------------------------------------------------------------------------

    def _assign(self, value: Value, parts: list[tuple[Boolean, list[Polynomial]]]) -> None:
        """Assign value = Σ terms with a shared exponent kept apart; the terms of a part without elements are 0."""
        graded = [(some, [one for poly in polys for one in self._graded_terms(poly)]) for some, polys in parts]
        exponents = list(dict.fromkeys(exponent for _, terms in graded for exponent, _ in terms)) or [S.Zero]
        alone = len(exponents) == 1 and exponents[0] is not S.Zero
        total = Add(*(guard(some, Add(*(v if alone else v * exp(exponent) for exponent, v in terms)))
                      for some, terms in graded))  # fmt: skip
        if not alone:
            self._assign_plain(value, total)
            return
        safe = Value(Label(f"{value.name}_scaled"), *value.indices)
        self.scaled.exponents[value] = (exponents[0], safe)
        self._assign_plain(safe, total)
        somewhere = Or(*(some for some, _ in graded))
        self.assignments.append(Assignment(value, guard(somewhere, self.scaled.times(exponents[0], safe))))
        if somewhere is not S.true:
            self.scaled.guards[value] = somewhere

    def _assign_plain(self, value: Value, expr: Expr) -> None:
        if expr != value:
            self.assignments.append(Assignment(value, self.cancel(expr)))

    def cancel(self, expr: Expr) -> Expr:
        """The expression with pivots cancelled; the offsets in it are assigned first."""
        result = self.canceller.cancel(expr)
        if result is not expr:
            self._assign_offsets(result)
        return result

    def _assign_offsets(self, expr: Expr) -> None:
        """Assign the distances between extrema and pivots that an expression holds."""
        assigned = {one.value for one in self.assignments}
        for value in sorted(values_of(expr) - assigned, key=str):
            if value in self.canceller.offsets:
                self.assignments.append(self.canceller.offsets[value])

    def _with_exponent(self, exponent: Expr, v: Expr) -> Expr:
        """exp(λ)·v under a name, so that other values may cancel its λ."""
        self._assign_offsets(v)
        pair = gather_exponent(expand_to_cancel(exponent)), self._named_value("difference", v)
        if same := next((value for value, other in self.scaled.exponents.items() if other == pair), None):
            return same
        value = self.placement.symbol(f"{pair[1].name}_times_{len(self.scaled.exponents)}", value_axes(v, exponent))
        self.scaled.exponents[value] = pair
        self.assignments.append(Assignment(value, self.scaled.times(*pair)))
        return value

    def output_expr(self, expr: Expr) -> Expr:
        """An output's expression: pivots and exponents cancelled as far as they go."""
        return self.scaled.safe(self.cancel(expr))

    def _graded_terms(self, poly: Polynomial) -> list[tuple[Expr, Expr]]:
        out = []
        for (_, d), c in poly.items():
            exponents, factor = list[Expr](), fraction(c)
            for number, q in d:
                atom, power = self._atom(number), fraction(q)
                if atom.exponential:
                    exponents.append(atom.base * power)
                    continue
                scale, safe = self.scaled.exponents.get(atom.base, (None, S.One))
                scale, safe = (
                    self.scaled.split_exponent(atom.power(q)) if scale is None else (scale * power, safe**power)
                )
                exponents.append(scale)
                factor *= safe
            exponent = gather_exponent(expand_to_cancel(Add(*exponents)))
            out.append((exponent, factor * where_finite(exponents, exponent, self.placement)))
        return out

    def side(self, expr: Expr) -> int:
        """The sides, x or d, that an expression depends on (`separate`)."""
        return self.placement.decomposition.separator.side(expr)

    def carries(self, expr: Expr) -> bool:
        """Tell if an expression depends on x."""
        return bool(self.side(expr) & X)

    # ---- atoms -------------------------------------------------------------------------------------------------------

    def _atom(self, number: int) -> Atom:
        return self.placement.decomposition.separator.atoms.list[number]

    def _number(self, value: Expr) -> int:
        return self.placement.decomposition.separator.atoms.number(Atom(value, on_x=False, exponential=False))

    def _symbol_polynomial(self, expr: Expr) -> Polynomial:
        coefficient, rest = expr.as_coeff_Mul()
        if isinstance(rest, Value | Scalar | Extent):
            return {((), ((self._number(rest), 1),)): laurent.as_ratio(Rational(coefficient))}
        return self._expr_polynomial(expr)

    def _expr_polynomial(self, expr: Expr) -> Polynomial:
        return self.placement.decomposition.separator.pure(expr)
