"""One merge: the state of all sources together, as a straight line. Everything that makes a state is a call of it.

leaf of a block                    combine(Elements)
merge                              combine(States a, States b)
a step of a loop                   combine(States running, Elements)
lanes, segments or ranks at once   combine(States along an axis)

extrema and structures    ⊕ over the sources
pivots                    those of extrema follow; a shift starts where the first source that is not empty has it,
                          and is found anew from the sums there
accumulators              Σ over the sources, at those pivots
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sympy import Add, Expr, Max, Min, fraction

from redalg.expression import Value, Where
from redalg.expression.contents import values_of
from redalg.incremental.combine.let import Precision
from redalg.incremental.combine.lines import Lines, is_below_all, is_finite_number
from redalg.incremental.combine.sources import Source, Target, finite_pivot
from redalg.incremental.form import Accumulator, Extremum, FusedForm, Pivot, PivotPolicy, Structure

JOINS = {"max": Max, "min": Min, "sum": Add}
"""⊕ of two numbers, by the array libraries' word for it."""


def combine(
    form: FusedForm, sources: Sequence[Source], lines: Lines, steps: int | None = None, still: Collection[Value] = (),
    *, extrema: Mapping[Expr, Value] | None = None,
) -> dict[Value, Value]:  # fmt: skip
    """Add the lines that make one state of the sources; returns slot -> the value that holds it.

    Args:
        form, sources, lines: the form; the sources of the state, in order; what takes the lines.
        steps: number of moves to the natural pivots; None for as many as the sources need.
        still: pivots that are not found anew.
        extrema: those of the state, if they are known.
    """
    elements = dict[Expr, Value]()
    for structure in form.structures:
        elements |= zip(structure.values, _structure(structure, sources, form, lines), strict=True)
    found = {one.value: _extremum(one, sources, lines) for one in form.extrema} if extrema is None else extrema
    state: dict[Expr, Value] = {**found, **elements}
    running = dict[Expr, Value]()
    for pivot in form.pivots:
        if not pivot.has_slot:
            c = lines.assign(pivot.value.name, pivot.source.xreplace(state), Precision.EXACT_PLACES)
            running[pivot.value] = lines.assign(
                f"{pivot.value}_safe", finite_pivot(pivot, c, form), Precision.EXACT_PLACES
            )
    for pivot in form.slot_pivots:
        state[pivot.value] = _start(pivot, sources, running, lines)
    target = _target(form, state, running, lines, full=any(source.full for source in sources))
    pivots = [pivot for pivot in form.slot_pivots if pivot.is_found and pivot.value not in still]
    for _ in range(max(source.steps for source in sources) if steps is None else steps) if pivots else ():
        target = _recentre(form, pivots, sources, target, lines)
    state |= target.state
    sums = _sums(form.accumulators, sources, target, lines)
    return {value: content for value, content in (state | sums).items() if isinstance(value, Value)}


def _start(pivot: Pivot, sources: Sequence[Source], running: Mapping[Expr, Value], lines: Lines) -> Value:
    """The start of a pivot: that of the first source which is not empty."""
    *earlier, start = (source.start(pivot, running, lines) for source in sources)
    for source, c in reversed(list(zip(sources, earlier, strict=False))):
        first = Where(is_below_all(c), start, c)
        start = c if source.full else lines.assign(f"{pivot.value}_start", first, Precision.EXACT_PLACES)
    return start


def _extremum(extremum: Extremum, sources: Sequence[Source], lines: Lines) -> Value:
    first, *others = (source.extremum(extremum, lines) for source in sources)
    for other in others:
        both = JOINS[extremum.monoid.reduction](first, other, evaluate=False)
        first = lines.assign(extremum.value.name, both, Precision.EXACT_PLACES)
    return first


def _structure(structure: Structure, sources: Sequence[Source], form: FusedForm, lines: Lines) -> tuple[Value, ...]:
    first, *others = (source.structure(structure, lines) for source in sources)
    for other in others:
        first = lines.join(structure, first, other, form.cascade.axis)
    return first


def _target(
    form: FusedForm, state: Mapping[Expr, Value], running: Mapping[Expr, Value], lines: Lines, *, full: bool
) -> Target:
    """The pivots of a state, as they are and as they are subtracted. If one of the sources is full, they are alike."""
    shifted = dict[Expr, Value]()
    for pivot in form.slot_pivots:
        c = state[pivot.value] if full else finite_pivot(pivot, state[pivot.value], form)
        shifted[pivot.value] = lines.assign(f"{pivot.value}_safe", c, Precision.EXACT_PLACES)
    stays = frozenset(pivot.value for pivot in form.slot_pivots if not _starts_anew(pivot))
    return Target(state, {**running, **shifted}, stays)


def _starts_anew(pivot: Pivot) -> bool:
    """Tell if a pivot starts at 0 whenever the scales of its generators move."""
    return pivot.policy is PivotPolicy.SLOPE and bool(pivot.scales or pivot.onto)


def _recentre(form: FusedForm, pivots: Sequence[Pivot], sources: Sequence[Source], at: Target, lines: Lines) -> Target:
    """c + δ for every pivot that is found from sums; the old c if that is not finite."""
    needed = frozenset[Value]().union(*(values_of(pivot.source) for pivot in pivots))
    asked = [one for one in form.accumulators if one.value in needed]
    known = {**at.values_in_terms, **_sums(asked, sources, at, lines, "_there")}
    state, safe = dict(at.state), dict(at.safe)
    quotients = _quotients(pivots) if any(source.of_elements for source in sources) else {}
    for pivot in pivots:
        c, name = at.state[pivot.value], f"{pivot.value}_moved"
        source = pivot.source.xreplace(known)
        if pivot.value in quotients:
            above, below = (part.xreplace(known) for part in quotients[pivot.value])
            source = above * lines.assign("inverse", 1 / below)
        step = lines.assign(f"{pivot.value}_step", source)
        there = lines.assign(name, c + step, Precision.EXACT_PLACES)
        moves = is_finite_number(there)
        state[pivot.value] = lines.assign(name, Where(moves, there, c), Precision.EXACT_PLACES)
        safe[pivot.value] = lines.assign(
            f"{pivot.value}_safe", Where(moves, there, at.safe[pivot.value]), Precision.EXACT_PLACES
        )
    return Target(state, safe, at.stays - {pivot.value for pivot in pivots})


def _quotients(pivots: Sequence[Pivot]) -> dict[Value, tuple[Expr, Expr]]:
    """Numerator and denominator of displacements that share theirs: any centre is exact, so that one reciprocal serves.

    It pays for every element. Of states, quotients that do not wait for each other are sooner done (inertia I3).
    """
    quotients = {pivot.value: fraction(pivot.source.together()) for pivot in pivots}
    divisors = Counter(below for _, below in quotients.values() if not below.is_number)
    return {value: (above, below) for value, (above, below) in quotients.items() if divisors[below] > 1}


def _sums(
    asked: Sequence[Accumulator], sources: Sequence[Source], at: Target, lines: Lines, suffix: str = ""
) -> dict[Expr, Value]:
    """Accumulators of all sources at the target's pivots."""
    sums = dict[Expr, Value]()
    for accumulator in asked:
        name, precision = accumulator.value.name + suffix, Precision.OWN if accumulator.is_count else Precision.COMPUTE
        later = replace(at, stays=frozenset())
        parts = [source.accumulator(accumulator, later if place else at, lines, name)
                 for place, source in enumerate(sources)]  # fmt: skip
        sums[accumulator.value] = lines.total(name, parts, precision) if len(parts) > 1 else parts[0]
    return sums
