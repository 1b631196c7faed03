"""Slopes that are no regression's: y − b·x with any b(d), summed about a line of slope β that the block gives.

    y − b·x → (y − β·x) − τ·x        τ = b − β, exact for every finite β

    β  the slope of least squares, Σ w·y·x / Σ w·x², or that with an intercept where y is shifted: found again, from the
       slots, of a block and of a merged state; w a weight that the basis holds
    b  stands in a sum of values as β + τ, so that the line cancels there: Σ (y − b·x) → Σ (y − β·x) − τ·Σ x

If b = a/h and the sum is of h²·(y − b·x)², h²·τ² is (h·τ)²: τ is held as a − β·h, and h may be 0, as in sin²(x − d).

A regression's slope is such a least-squares slope itself, and its τ is written by the slots (`resolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import final

from sympy import Expr, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial, Polynomial, Ratio
from redalg.decompose.separate.separate import Separator
from redalg.expression import Label, Value
from redalg.expression.contents import elements_of, free_axes, values_of
from redalg.incremental.derive.basis import FIRST_SLOPE, Function, Pool
from redalg.incremental.derive.centre import Centred, is_count, is_regression
from redalg.incremental.form import Pivot


@final
@dataclass(frozen=True)
class Line:
    """The line of one reduction.

    Attributes:
        key: that of its slope.
        slope, b: b as a polynomial and as an expression.
        turn: the symbol of τ, or of τ·h if b divides by h and the reduction multiplies by it again.
        below: h as a monomial of d; () for 1.
        scale: the factor for b, as E_x/E_y if y and x are scaled by E.
    """

    key: int
    slope: Polynomial
    b: Expr
    turn: Value
    below: Monomial = ()
    scale: Polynomial | None = None


@final
class Lines:
    """The lines of a form whose slopes are no regression's. `known` are those whose τ is assigned."""

    def __init__(
        self, separator: Separator, pool: Pool, pivots: Mapping[int, Pivot], centred: Mapping[str, Centred],
        scales: Callable[[Mapping[int, Ratio]], Polynomial],
    ) -> None:  # fmt: skip
        self.separator, self.pool, self.pivots, self.scales = separator, pool, pivots, scales
        self.lines = list[Line]()
        self.known = list[Line]()
        for name, centred_sum in centred.items():
            self.lines += self._of(name, centred_sum)

    def _of(self, name: str, centred: Centred) -> Iterator[Line]:
        for number, (y, x) in enumerate(self.pool.slopes):
            slope = centred.slopes(y).get(x)
            if slope is None or self.pool.is_chained(y):
                continue
            through_origin = y in self.pool.pivoted and sums_raw_products(slope, self.separator)
            if regresses(y, x, slope, self.separator) and not through_origin:
                continue
            if self.at(FIRST_SLOPE + number, slope):
                continue
            b = self.separator.atoms.polynomial_expr(slope)
            beta = self.pivots[FIRST_SLOPE + number].value
            yield Line(
                FIRST_SLOPE + number,
                slope,
                b,
                Value(Label(f"delta_{name}_{beta.name}"), *beta.indices),
                centred.slope_divisor(y),
                self.scale(y, x),
            )

    def scale(self, y: int, x: int) -> Polynomial | None:
        """E_x/E_y of a slope of y on x, if any of these is whole, and so scaled by E before it is shifted."""
        wholes = {atom: q for atom, q in ((x, 1), (y, -1)) if atom in self.pool.wholes}
        return self.scales(wholes) if wholes else None

    def to_scale(self, slope: Polynomial, y: int, x: int) -> Polynomial:
        """A slope of y on x, times E_x/E_y."""
        scale = self.scale(y, x)
        return slope if scale is None else laurent.multiply(slope, scale)

    def at(self, key: int, slope: Polynomial) -> Line | None:
        """The line of that slope, None if it is a regression's."""
        return next((one for one in self.lines if (one.key, one.slope) == (key, slope)), None)

    def ready(
        self, resolved: AbstractSet[Value], polynomial_expr: Callable[[Polynomial], Expr]
    ) -> Iterator[tuple[Value, Expr]]:
        """Yield τ := b − β of every line whose b is known by now; `polynomial_expr` cancels exponents."""
        for line in self.lines:
            if line not in self.known and values_of(line.b) <= resolved:
                self.known.append(line)
                h = self.separator.atoms.expr(line.below)
                above = laurent.multiply(line.slope, {((), line.below): 1})
                b = self.separator.atoms.polynomial_expr(above) if line.scale is None else \
                    polynomial_expr(laurent.multiply(above, line.scale))  # fmt: skip
                yield line.turn, b - h * self.pivots[line.key].value

    def turn(self, line: Line) -> Expr:
        """τ of a line."""
        return line.turn / self.separator.atoms.expr(line.below)

    def about(self, poly: Polynomial) -> Polynomial:
        """A polynomial of values with β + τ in place of every factor b."""
        for line in self.known:
            if len(line.slope) != 1 or line.below or line.scale is not None:
                continue
            [((_, b), c)] = line.slope.items()
            if not b:
                continue
            slope = laurent.add(*map(self.separator.atoms.value_polynomial, (self.pivots[line.key].value, line.turn)))
            multiples = {key: value for key, value in poly.items() if _divides(b, key[1])}
            rest = {key: value for key, value in poly.items() if key not in multiples}
            inverse: Polynomial = {((), laurent.power_monomial(b, -1)): laurent.ratio(1, c)}
            poly = laurent.add(rest, laurent.multiply_all((multiples, inverse, slope))) if multiples else poly
        return poly

    def source(self, key: int, names: list[Value]) -> Expr | None:
        """The distance of a slope's pivot, or of that of y's shift on its line, from least squares, by the slots."""
        for number, (y, x) in enumerate(self.pool.slopes):
            alone = sum(other == y for other, _ in self.pool.slopes) == 1
            regressions = (one for one in self.lines if one.key == FIRST_SLOPE + number)
            if key in (y, FIRST_SLOPE + number) and alone and next(regressions, None) is not None:
                fits = (self._fit(y, x, function, names) for function in self.pool.functions)
                slope, shift = next((one for one in fits if one is not None), (None, None))
                return shift if key == y else slope
        return None

    def _fit(self, y: int, x: int, function: Function, names: list[Value]) -> tuple[Expr, Expr] | None:
        """The slope and the intercept of least squares with the weight w of a basis function w·x²."""
        if (weight := function.square_weight(x)) is None:
            return None

        def total(*powers: tuple[int, int]) -> Value | None:
            product = laurent.multiply_monomials(weight, tuple(sorted(powers)))
            number = self.pool.find(function.grade, product)
            return None if number is None else names[number]

        xx, xy, sx, sy, s1 = total((x, 2)), total((x, 1), (y, 1)), total((x, 1)), total((y, 1)), total()
        if xx is None or xy is None or not {*xx.indices, *xy.indices} <= free_axes(self.separator.atoms.list[y].base):
            return None
        if y not in self.pool.pivoted:
            return xy / xx, S.Zero
        if sx is None or sy is None or s1 is None:
            return None
        slope = (xy - sx * sy / s1) / (xx - sx**2 / s1)
        return slope, sy / s1 - slope * sx / s1


def regresses(y: int, x: int, slope: Polynomial, separator: Separator) -> bool:
    """Tell if a slope of y on x is that of a regression."""
    both = elements_of(separator.atoms.list[y].base) | elements_of(separator.atoms.list[x].base)
    return is_regression(slope, both, separator)


def sums_raw_products(slope: Polynomial, separator: Separator) -> bool:
    """Tell if the sums above a slope's divisors are about no centre, as those of least squares through the origin.

    A number of elements is none: (n − 1)/2 is the centre of all elements' places, and of no block's.
    """
    bases = {separator.atoms.list[number].base for _, d in slope for number, q in d if q > 0}
    about = (values_of(separator.facts[base][1]) for base in bases if base in separator.facts)
    return all(is_count(value, separator) for values in about for value in values)


def _divides(b: Monomial, d: Monomial) -> bool:
    """Tell if d holds every power of b, with the same sign and at least the same size."""
    powers = dict(d)
    return all(powers.get(atom, 0) / q >= 1 for atom, q in b)
