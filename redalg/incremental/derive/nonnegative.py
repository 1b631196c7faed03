"""Values of at least 0 that `finish` computes as differences, which rounding may leave below 0.

    d = Σ t, t ≥ 0, finished as a sum of several terms   → max(0, d)
    Q·N − S²,  Q/N − S²/N²,  Q − S²/N                    → max(0, ·)     Q = Σ w·z², N = Σ w, S = Σ w·z, w ≥ 0

The second is Cauchy's and Schwarz's inequality; the three are summed at the same pivots. A maximum keeps NaN.

Q − S²/n stays as it is if n is a count and S = Σ (u − c), which is 0 at the natural c but for rounding. If all elements
are equal, u − c is a small multiple of a unit in the last place, so that its sums are exact and the difference is 0.
Else Q is larger than S²/n by more than rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Add, Expr, Max, S

from redalg.decompose.separate.signs import Facts, is_nonnegative
from redalg.expression import Label, Value
from redalg.expression.contents import is_indicator, of_kind, operations_of, values_of
from redalg.expression.expanded import expansion
from redalg.incremental.derive.some import value_axes
from redalg.incremental.form import Accumulator, Assignment, FusedForm

WRITTEN_LIMIT = 64
"""Operations beyond which a difference, with its values written out, counts as one that may fall below 0."""

AT_LEAST_0 = ("sum", S.One)
"""The fact about a marked value: its sign is that of a count."""


@final
@dataclass(frozen=True)
class GramDifference:
    """factor·(q·n − s²), each a sum of the state."""

    factor: Expr
    q: Accumulator
    n: Accumulator
    s: Accumulator

    @property
    def is_exact(self) -> bool:
        """Tell if it is exactly 0 for equal elements: n or q is a count, and s is about the natural centre."""
        return self.s.droppable and (_counts(self.n) or _counts(self.q))

    def is_nonnegative(self, facts: Facts) -> bool:
        """Tell if the inequality makes it at least 0: the terms are w·z², w and w·z."""
        matches = (self.q.term * self.n.term / self.s.term**2).expand() == 1
        return matches and is_nonnegative(self.n.term, facts) and is_nonnegative(self.factor, facts)


def kept_nonnegative(form: FusedForm) -> FusedForm:
    """The form whose nonnegative values stay so in rounded arithmetic."""
    clips = _Clips(form)
    assignments = tuple(step for one in form.assignments for step in clips.steps(one))
    outputs = tuple(replace(one, expr=clips.of(one.expr)) for one in form.outputs)
    return replace(form, assignments=(*assignments, *clips.flush()), outputs=outputs)


@final
class _Clips:
    """Clips differences in expressions of values; each gets a name, which `flush` assigns before its use."""

    def __init__(self, form: FusedForm) -> None:
        self.sums = {one.value: one for one in form.accumulators}
        self.facts = {one.value: (one.monoid.name, one.term) for one in form.cascade.reductions}
        self.facts |= {one.value: ("sum", one.term) for one in form.accumulators}
        self.meaning: dict[Value, Expr] = {one.value: one.expr for one in form.assignments}
        self.names: dict[Expr, Value] = {}
        self.pending: list[Assignment] = []

    def flush(self) -> list[Assignment]:
        """The assignments that wait to stand before their use."""
        assignments, self.pending = self.pending, []
        return assignments

    def steps(self, assignment: Assignment) -> Iterator[Assignment]:
        """Yield an assignment, after those of the differences that are clipped in it."""
        may_fall = assignment.nonnegative and self._may_fall_below(assignment.expr)
        if assignment.nonnegative:
            self.facts[assignment.value] = AT_LEAST_0
        if may_fall:
            name = Value(Label(f"{assignment.value.name}_rounded"), *assignment.value.indices)
            yield Assignment(name, assignment.expr)
            yield replace(assignment, expr=Max(0, name))
            return
        expr = self.of(assignment.expr)
        yield from self.flush()
        yield replace(assignment, expr=expr)

    def of(self, expr: Expr) -> Expr:
        """An expression with the differences of the inequality clipped."""
        differences = sorted((one for one in of_kind(Add, expr) if self._is_clipped(one)), key=str)
        return expr.xreplace({one: Max(0, self._value(one)) for one in differences}) if differences else expr

    def _value(self, difference: Expr) -> Value:
        if difference not in self.names:
            axes = sorted(value_axes(difference), key=str)
            self.names[difference] = Value(Label(f"rounded_{len(self.names)}"), *axes)
            self.pending.append(Assignment(self.names[difference], difference))
        return self.names[difference]

    def _may_fall_below(self, expr: Expr) -> bool:
        """Tell if rounding may leave an expression of a nonnegative sum below 0."""
        if not of_kind(Add, expr) or is_nonnegative(expr, self.facts):
            return False
        if not expr.is_Add or len(expr.args) > 3:
            return True
        meant = expr.xreplace({value: self.meaning[value] for value in values_of(expr) & self.meaning.keys()})
        if operations_of(meant) > WRITTEN_LIMIT:
            return True
        form = gram_difference(expansion(meant), self.sums)
        return form is None or not form.is_exact

    def _is_clipped(self, difference: Expr) -> bool:
        form = gram_difference(difference, self.sums)
        return form is not None and not form.is_exact and form.is_nonnegative(self.facts)


def _counts(accumulator: Accumulator) -> bool:
    return accumulator.is_count or (not accumulator.weight and all(map(is_indicator, accumulator.factors)))


def gram_difference(difference: Expr, sums: Mapping[Value, Accumulator]) -> GramDifference | None:
    """The parts of factor·(q·n − s²); None if it is no such difference."""
    if not difference.is_Add or len(difference.args) != 2 or not values_of(difference) & sums.keys():
        return None
    for above, below in (difference.args, difference.args[::-1]):
        powers = (-below / above).as_powers_dict()
        squares = [base for base, power in powers.items() if power == 2]
        inverse = sorted((base for base, power in powers.items() if power == -1), key=str)
        if len(powers) == 3 and len(squares) == 1 and len(inverse) == 2 and {*squares, *inverse} <= sums.keys():
            q, n, s = (sums[value] for value in (*inverse, *squares))
            return GramDifference(above / (q.value * n.value), q, n, s)
    return None
