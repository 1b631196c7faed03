"""The reason for each pivot, its choice and its moves, read off the form and the terms as written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from sympy import Expr, Mul, S, exp
from sympy.core.basic import Basic

from redalg.decompose.domain import live_term
from redalg.decompose.separate.whole import DEGREES
from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain.model import Line, Part, comma_list, sentence
from redalg.explain.notation import HAT, mark_value
from redalg.expression import Element, Value
from redalg.expression.contents import free_axes
from redalg.incremental.derive.centre import centre
from redalg.incremental.form import FusedForm, Pivot, PivotPolicy

Parts = tuple[Part, ...]
PLAIN_IN_KERNELS = """A number is added to what is scaled under a root, so that the scale serves large data alone. \
States, NumPy and torch have it. Generated kernels take the sums without it, which leave the range where squares of \
the data do."""
WIDE_IN_KERNELS = """States, NumPy and torch divide by the scale. Generated kernels do so with `precision="wide"`. \
Without it they take the sums as they are, which leave the range where powers of the data do."""


def the_pivots(decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """A sentence for every role of every pivot."""
    reasons = Reasons(decomposition, form)
    plain: list[Parts] = [(PLAIN_IN_KERNELS if form.level else WIDE_IN_KERNELS,)] if form.unscaled else []
    return [sentence(*one) for one in (*(one for pivot in form.pivots for one in reasons.of(pivot)), *plain)]


@final
class Reasons:
    """The sentences on the pivots of one form."""

    def __init__(self, decomposition: Decomposition, form: FusedForm) -> None:
        self.form = form
        self.written = written_beside(decomposition) | written_centres(decomposition)
        self.parameters = {one.value for one in decomposition.cascade.parameters}

    def of(self, pivot: Pivot) -> Iterator[Parts]:
        """The sentences on the terms that a pivot scales, divides, tilts or shifts."""
        base = self._live(pivot.base)
        if pivot.value in self.form.scaling:
            extra = ", a maximum that the definition lacks" if self._is_added(pivot) else ""
            why = ". Running: the largest so far, so that no exponential exceeds 1 and none overflows."
            yield "Pivot ", pivot.value, f"{extra}: scales the exponential of ", base, why
        if pivot.policy is PivotPolicy.SCALE:
            yield from self._scale(pivot)
        elif pivot.policy is PivotPolicy.SLOPE:
            yield from self._slope(pivot)
        elif self._shifts(pivot) and not pivot.is_level:
            yield ("Pivot ", pivot.value, ": shifts ", base, ". ", *self._policy(pivot), *self._why(pivot))
        if pivot.scales and pivot.policy is not PivotPolicy.SLOPE:
            yield from self._generator_scale(pivot)

    def _live(self, expr: Expr) -> Expr:
        return live_term(expr, self.form.cascade.domain)

    def _is_added(self, pivot: Pivot) -> bool:
        return pivot.value in {*self.form.independent_values} - set(self.form.cascade.values)

    def _shifts(self, pivot: Pivot) -> bool:
        within = {
            other.generator**k: S.One for other in self.form.pivots if other.scales for k in range(1, DEGREES + 1)
        }  # what scales there shifts nothing
        factors = (factor.xreplace(within) for one in self.form.accumulators for factor in one.factors)
        return any(pivot.value in factor.atoms(Value) for factor in factors)

    # ---- by kind -----------------------------------------------------------------------------------------------------

    def _scale(self, pivot: Pivot) -> Iterator[Parts]:
        delta = pivot.displacement
        near = "" if isinstance(pivot.source, Value) else "a power of 2 near "
        chosen = f". It is {near}the largest magnitude so far, so that no power overflows and none vanishes."
        yield "Pivot ", pivot.value, ": divides ", self._live(pivot.base), chosen
        if any(c.has(delta) for one in self.form.accumulators for _, c in one.transition):
            yield ("A scale moves by a ratio, not by a difference: ", delta, " is the old ", pivot.value,
                   " over the new one, and a sum of p-th powers is multiplied by its p-th power.")  # fmt: skip

    def _generator_scale(self, pivot: Pivot) -> Iterator[Parts]:
        if (m := pivot.magnitude) is not None:
            yield ("What it shifts is divided by ", m.value, " first. A merge multiplies it by ", pivot.ratio, " = ",
                   mark_value(m.value, HAT) / m.value, " ≤ 1, and then ",
                   "shifts it by ", pivot.displacement, ".")  # fmt: skip
            return
        rho: list[Basic] = [exp(q * (mark_value(m.value, HAT) - m.value)) for m, q in pivot.scales]
        above = comma_list([m.value for m, _ in pivot.scales])
        what: Parts = (pivot.base,) if pivot.is_level else ("What it shifts",)
        then: Parts = (".",) if pivot.is_level else (", and then shifts it by ", pivot.displacement, ".")
        yield (*what, " is scaled by the exponential of ", *above, " first, so that it does not overflow. A ",
               "merge scales it anew, by ", pivot.ratio, " = ", Mul(*rho), " ≤ 1", *then)  # fmt: skip

    def _slope(self, pivot: Pivot) -> Iterator[Parts]:
        shifts = (one for one in self.form.pivots if one.policy is not PivotPolicy.SLOPE)
        tilted: list[Basic] = [one.base for one in shifts if pivot.value in dict(one.slopes)]
        on: Parts = (": a slope of ", *comma_list(tilted), " on ") if tilted else (": a slope on ",)
        taken = ", found from each block. What is summed is the residual, which is small; the two products that it is "
        yield ("Pivot ", pivot.value, *on, pivot.base, taken, "the difference of are not.")

    # ---- shifts ------------------------------------------------------------------------------------------------------

    def _policy(self, pivot: Pivot) -> Parts:
        if pivot.policy is PivotPolicy.RUNNING:
            return ("Running: it is ", pivot.source, ", known before the sums are.")
        if pivot.policy is PivotPolicy.TILE_LOCAL:
            return ("Tile-local: every block is taken about its own centre, and a merge finds the common one.",)
        if pivot.policy is PivotPolicy.MEMBER:
            along = " It then follows the line about which residuals have mean 0." if pivot.is_found else ""
            return ("An element of the first block: however far an outlier lies, the others keep their digits.", along)
        return (f"Block mean: {self._not_the_centre(pivot)} Any value near the data will do.",)

    def _not_the_centre(self, pivot: Pivot) -> str:
        """The reason why the mean of the first block stands for the natural centre."""
        centres = self.written.get(pivot.base)
        if centres is None:
            return "the state holds no sum of weights of one sign by which a centre could be found anew."
        if any(free_axes(one) - free_axes(pivot.base) for one in centres):
            return "the centre proper has more axes, and to shift by it would destroy a matrix product."
        if all(one.atoms(Element) or one.atoms(Value) & self.parameters for one in centres):
            return "the centre as written is made of tensors, which a state does not hold."
        return "the centre as written is no mean of the data, and may lie far from them."

    def _why(self, pivot: Pivot) -> Parts:
        base = self._live(pivot.base)
        if pivot.base in self.written:
            return (" Without it, sums of ", base, " grow large and cancel in finish.")
        return (" No term was written about a centre: ", base, " is shifted because finish loses ", pivot.value,
                " again, where raw sums of ", base, " would grow large and cancel.")  # fmt: skip


def written_beside(decomposition: Decomposition) -> dict[Expr, list[Expr]]:
    """Terms that stand in a sum beside values: u of u(x) − v(d), with its v."""
    shifts: dict[Expr, list[Expr]] = {}
    for separation in decomposition.separations:
        for u, v in separation.shifts:
            shifts.setdefault(u.as_coeff_Mul()[1], []).append(-v)
    return shifts


def written_centres(decomposition: Decomposition) -> dict[Expr, list[Expr]]:
    """The generators of terms that are written about a centre, each with its centres."""
    separator, shifts = decomposition.separator, dict[Expr, list[Expr]]()
    for separation in decomposition.separations:
        if separation.reduction.monoid.name != "sum":
            continue
        found = centre(separation, separator)
        for atom in found.centres:
            shift = separator.atoms.polynomial_expr(found.shift(atom)) if found.shift(atom) else S.Zero
            shifts.setdefault(separator.atoms.list[atom].base, []).append(shift)
    return shifts
