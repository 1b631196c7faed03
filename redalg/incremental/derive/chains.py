"""Chained slopes: residuals of residuals, as Gram and Schmidt have them one after the other.

    r_y = y − c_y − Σ_x β_yx·r_x                 x over the generators before y, each with slopes of its own

With slopes of least squares the residuals are orthogonal in pairs: Gram matrix = L·D·Lᵀ, L unit triangular of the
slopes, D the sums of r². So a state holds the triangular factor of the columns, without the roots of a QR factor. The
source of a slope follows from its slots at any slopes; these need only be near to least squares:

    β_yx → β_yx + M_yx/M_xx + Σ_z β_yz·M_zx/M_xx                 z between y and x,  M_yx = Σ w·r_y·r_x, about means

exact for y on the first x; for each further one as soon as those before it are. A block takes as many steps as its
chain is long; states to be merged are near already if they are of like data. Any finite slope is exact.

A merge is the L·D·Lᵀ form of stacking two triangular factors and rotating (Golub and Van Loan 2013, section 6.5.3;
Chan, Golub and LeVeque 1983 for the centres): slopes move by a unit triangular factor, sums by its congruence.

In `finish` a line Σ b_x·x of slopes on plain x is one on residuals: τ_yx = b_yx − β_yx − Σ_z b_yz·τ_zx.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sympy import Expr, S

from redalg.decompose.separate import laurent
from redalg.decompose.separate.laurent import Monomial
from redalg.expression import Value
from redalg.incremental.derive.basis import FIRST_SLOPE, Pool
from redalg.incremental.form import Pivot


@final
class Chains:
    """The chains of a pool. `names` are the slots of its functions."""

    def __init__(self, pool: Pool, pivots: Mapping[int, Pivot], names: list[Value]) -> None:
        self.pool, self.pivots, self.names = pool, pivots, names
        self.keys = {pair: FIRST_SLOPE + number for number, pair in enumerate(pool.slopes)}
        self.before: dict[int, list[int]] = {}
        for y, x in pool.slopes:
            self.before.setdefault(y, []).append(x)

    def has(self, y: int) -> bool:
        """Tell if a generator is z or x of a chain y on z on x, or has a slope on one of these."""
        between = {z for key in self.keys.values() for _, link in self.pool.links(key) for z in self.pool.slopes[
            link - FIRST_SLOPE]}  # fmt: skip
        return y in between or any(x in between for x in self.before.get(y, ()))

    def source(self, key: int) -> Expr | None:
        """The distance of a slope or a generator's shift from least squares, by the slots; None outside of chains."""
        pair = self.pool.slope(key)
        y = key if pair is None else pair[0]
        if y not in self.before or not self.has(y):
            return None
        for function in self.pool.functions:
            weight = function.square_weight(y)
            if weight is not None and (distance := self._distance(y, pair, weight, function.grade)) is not None:
                return distance
        return S.Zero

    def _distance(self, y: int, pair: tuple[int, int] | None, weight: Monomial, grade: Monomial) -> Expr | None:
        def total(*powers: int) -> Value | None:
            monomial = weight
            for atom in powers:
                monomial = laurent.multiply_monomials(monomial, ((atom, 1),))
            number = self.pool.find(grade, monomial)
            return None if number is None else self.names[number]

        def gram(generator: int, other: int) -> Expr | None:
            product, sums, n = total(generator, other), (total(generator), total(other)), total()
            if product is None or not {generator, other} <= set(self.pool.pivoted):
                return product
            return None if None in (*sums, n) else product - sums[0] * sums[1] / n  # type: ignore[operator]

        def fit(x: int) -> Expr | None:
            along = gram(x, x)
            terms = [(S.One, gram(y, x))]
            terms += [(self.pivots[self.keys[y, z]].value, gram(z, x)) for z in self.before[y]
                      if (z, x) in self.keys]  # fmt: skip
            if along is None or any(one is None for _, one in terms):
                return None
            return sum((c * one for c, one in terms if one is not None), S.Zero) / along

        if pair is not None:
            return fit(pair[1])
        [root, *others] = sorted(self.before[y], key=lambda one: len(self.before.get(one, ())))
        turn, n = fit(root), total()
        sums = {one: total(one) for one in (y, root, *others)}
        if turn is None or n is None or None in sums.values():
            return None
        means = [sums[y] / n, -turn * sums[root] / n]
        means += [self.pivots[self.keys[y, one]].value * sums[one] / n for one in others]
        return sum(means, S.Zero)
