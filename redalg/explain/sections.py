"""The content of each section of a derivation, built once from the algebra: `whole` puts them in order."""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Expr, Mul, S, Symbol

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import live_term
from redalg.decompose.verdict.conventions import extrema_with_factors, selections, ties, weights
from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.explain import extrema
from redalg.explain.cost import (
    outputs_along_axis,
    reduced_axes_prose,
)
from redalg.explain.model import (
    Equation,
    Equations,
    Line,
    Part,
    Table,
    column,
    comma_list,
    sentence,
)
from redalg.explain.moves import Moves
from redalg.explain.names import given_names, other_letters
from redalg.explain.pivots import the_pivots
from redalg.expression import Axis, Element, Label, Value
from redalg.expression.contents import values_of
from redalg.incremental.form import FusedForm, PivotPolicy

F = Symbol("F")


# ---- 1 ---------------------------------------------------------------------------------------------------------------


def the_cascade(decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """Domain, producers, reductions and outputs, each with its free axes."""
    cascade = decomposition.cascade
    lines: list[Line] = []
    if cascade.domain is not S.true:
        lines.append(
            sentence("An element counts where ", cascade.domain, ". Elsewhere every term is the identity of its ⊕.")
        )
        if not all(one.is_scalar for one in cascade.reductions):
            lines.append(sentence("A reduction that keeps places, or the order of elements, reads them all."))
    lines += the_conventions(decomposition, form)
    if cascade.producers:
        equations = [Equation(labelled_element(one.name, one.axes), one.definition) for one in cascade.producers]
        verb = " is streamed" if len(cascade.reduced_axes) == 1 else " are streamed"
        lines.append(column(("Computed on other axes, as ", *reduced_axes_prose(cascade), verb), equations))
    equations = [Equation(labelled_element(reduction.name, reduction.axes),
                          reduction.to_reduce(live(reduction, cascade), cascade.reduced_axes))
                 for reduction in cascade.reductions]  # fmt: skip
    lines.append(column(("Reductions, each of which may use those above it",), equations))
    return [*lines, *given_names(cascade), outputs_as_defined(decomposition)]


def outputs_as_defined(decomposition: Decomposition) -> Line:
    """The outputs, of the reductions and the tensors."""
    outputs = decomposition.cascade.outputs
    return column(("Outputs",), [Equation(labelled_element(one.name, one.axes), one.expr) for one in outputs])


def the_conventions(decomposition: Decomposition, form: FusedForm) -> Iterator[Line]:
    """The cases in which the result need not be what IEEE 754 makes of the definition (`decompose.conventions`)."""
    if exponents := weights(decomposition):
        product = any(one.weight and len(one.factors) > 1 for one in form.accumulators)
        warning = " In a product of matrices that must be a number." if product else ""
        yield sentence("Where ", *comma_list([*exponents], " or "), " is −∞ an element has no weight: its terms are 0, "
                       f"whatever stands beside the weight.{warning}")  # fmt: skip
    axes = reduced_axes_prose(decomposition.cascade)
    for separation in selections(decomposition):
        yield sentence(
            separation.reduction.value,
            " is selected by ",
            *separation.g,
            ". Its places are those of the definition if all that does not vary along ",
            *axes,
            " is finite and not 0, or is NaN.",
        )
    for separation, factor in extrema_with_factors(decomposition):
        g = comma_list([*dict.fromkeys(separation.g)], " and ")
        yield sentence("Where ", factor, " is 0 or infinite, ", separation.reduction.value,
                       " is the definition's if ", *g, " is finite: 0·∞ of an element is not seen.")  # fmt: skip
    for d, value in ties(decomposition):
        yield sentence(
            "Where ", d, " is not finite, what ", value, " is used for is NaN, though all may be the largest."
        )


def live(reduction: Reduction, cascade: Cascade) -> Expr:
    """The term where elements count, or all of the term if every element is read."""
    return live_term(reduction.term, cascade.domain) if reduction.is_scalar else reduction.term


def labelled_element(name: str, axes: tuple[Axis, ...]) -> Element:
    """A name with its axes."""
    return Element(Label(name), *axes)


# ---- 2 ---------------------------------------------------------------------------------------------------------------


def the_decomposition(decomposition: Decomposition) -> list[Line]:
    """F, g and h of each reduction, and the meaning of the ranks."""
    separations = decomposition.separations
    lines: list[Line] = [
        sentence(
            "In RedFuser's notation x is what varies along ",
            *reduced_axes_prose(decomposition.cascade),
            ", d what the reductions above gave. Where F(x, d) ",
            "is a ⊕ of products g(x) ⊗ h(d), and ⊗ distributes over ⊕, h moves out of the reduction and can be ",
            "exchanged for a later one.",
        )
    ]
    lines += other_letters(decomposition.cascade)
    lines += [separation_equations(one, decomposition) for one in separations]
    ends = [one for one in separations if extrema.follows_from_others(one)]
    lines += extrema.reasons(ends, decomposition)
    lines += [
        sentence(
            "In ", separation.reduction.value, ", F rises with g whatever d is, so that the same elements are selected."
        )
        for separation in separations
        if selects(separation)
    ]
    products = [one for one in separations if used_values(one) and one not in ends and not selects(one)]
    first = [one.reduction.value for one in products if one.rank == 1 and any(map(values_of, one.h))]
    higher = [one.reduction.value for one in products if one.rank > 1]
    if first:
        lines.append(
            sentence("Rank 1 (", *comma_list(first), ") is RedFuser's condition (ACRF, Eq. 23-25): one g, one h.")
        )
    if higher:
        beyond = ") lies beyond RedFuser's condition, which is rank 1: as d varies, F runs through r dimensions of "
        lines.append(
            sentence(
                "Rank r > 1 (",
                *comma_list(higher),
                beyond,
                "functions of x, so that r sums know it for every d.",
            )
        )
    why = " stands for what it is when x is met: a running value, and no d to be separated."
    lines += [
        sentence("In the g of ", separation.reduction.value, ", ", *comma_list(list(running_scales(separation))), why)
        for separation in separations
        if running_scales(separation)
    ]
    counts = {one.value for one in decomposition.cascade.reductions if one.is_count}
    if any(one.times == "^" and one.count in counts for one in separations):
        lines.append(sentence("In a product over n elements, h moves out as its n-th power."))
    lines += [
        sentence(
            "In ",
            separation.reduction.value,
            " h moves out as its power ",
            separation.count,
            ", of the elements that have it.",
        )
        for separation in separations
        if separation.count is not None and separation.count not in counts
    ]
    return lines


def used_values(separation: Separation) -> bool:
    """Tell if the term uses earlier results, even if only at their running values."""
    return any(values_of(one) for one in (*separation.h, separation.shift)) or bool(running_scales(separation))


def selects(separation: Separation) -> bool:
    """Tell if the term is an increasing function of g, among whose elements the reduction selects."""
    return separation.times == "∘" and separation.extremal is None


def running_scales(separation: Separation) -> list[Value]:
    """The earlier results that stand in g, as the scale of a rounding."""
    scales = {value for one in separation.roundings if one.scale is not None for value in values_of(one.scale)}
    return sorted(scales & {value for one in separation.g for value in values_of(one)}, key=str)


def separation_equations(separation: Separation, decomposition: Decomposition) -> Equations:
    """One reduction: F, then its pairs g and h side by side."""
    reduction = separation.reduction
    term = live(reduction, decomposition.cascade)
    if extrema.follows_from_others(separation):
        return extrema.extremum(separation, term, decomposition.cascade.reduced_axes)
    if not used_values(separation) and separation.rank == 1:
        title: tuple[Part, ...] = (reduction.value, f":  ⊕ is {reduction.monoid.sign}, no d in it")
        return column(title, [Equation(F, term)])
    times = "·" if separation.times == "^" else separation.times
    how = "F is h of g" if selects(separation) else f"⊗ is {times}, rank {separation.rank}"
    title = (reduction.value, f":  ⊕ is {reduction.monoid.sign}, {how}")
    rows: list[tuple[Equation, ...]] = [(Equation(F, term),)]
    for number, (g, h) in enumerate(zip(separation.g, separation.h, strict=True), 1):
        suffix = f"_{number}" if separation.rank > 1 else ""
        rows.append((Equation(Symbol(f"g{suffix}"), g), Equation(Symbol(f"h{suffix}"), h)))
    if separation.shift is not S.Zero:
        rows.append((Equation(Symbol("v"), separation.shift),))
    return Equations(title, tuple(rows))


# ---- 3 ---------------------------------------------------------------------------------------------------------------


def the_state(decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """Slots, pivots, the terms and factors that wait for `finish`, and the residuals that are kept."""
    lines: list[Line] = [slot_table(form)]
    lines += the_pivots(decomposition, form)
    if form.is_ordered:
        components = [value for one in form.structures if not one.monoid.commutative for value in one.values]
        why = " depend on the order of elements: pieces that adjoin are merged, the earlier before the later."
        lines.append(sentence(*comma_list(list(components)), why))
    deferred: dict[tuple[str, Expr], list[Expr]] = {}
    for separation in decomposition.separations:
        for part in deferred_parts(separation, decomposition):
            deferred.setdefault(part, []).append(separation.reduction.value)
    for (word, part), values in deferred.items():
        why = " holds no x: it waits for finish, and enters once instead of at every element."
        lines.append(sentence(f"The {word} ", part, " of ", *comma_list(list(values)), why))
    residuals = [one.value for one in form.accumulators if one.droppable]
    if residuals:
        why = " would be 0 in exact arithmetic, at the natural centre. Kept all the same: in floating point, "
        lines.append(
            sentence(
                *comma_list(list(residuals)),
                why,
                "what the rounding of the centre lost is there, and finish gives it back.",
            )
        )
    return lines


def slot_table(form: FusedForm) -> Table:
    """The table of slots: the number of each, its kind, the axes per which there is one, and the term that it holds."""
    terms = {one.value.name: one.term for one in form.accumulators}
    terms |= {one.value.name: one.term for one in form.extrema}
    kinds = {one.value.name: one.monoid.name for one in form.extrema}
    kinds |= {one.value.name: f"{one.monoid.name} (−∞: none met)" for one in form.extrema if one.term is S.Zero}
    kinds |= {one.value.name: "slope" for one in form.pivots if one.policy is PivotPolicy.SLOPE}
    bases = {one.value.name: one.base for one in form.pivots}
    whole: dict[str, Expr] = {}
    for structure in form.structures:
        for value, part in zip(structure.values, structure.monoid.components, strict=True):
            kinds[value.name] = f"{structure.monoid} {part.name}".replace("_", " ")
            whole[value.name] = structure.term
    cells = []
    for number, slot in enumerate(form.slots, 1):
        kind = kinds.get(slot.name, {"pivot": "centre", "count": "count (integer)"}.get(slot.kind, "sum"))
        term = whole.get(slot.name) or live_term(
            bases[slot.name] if slot.kind == "pivot" else terms[slot.name], form.cascade.domain
        )
        axes: tuple[Part, ...] = comma_list(list(slot.axes)) if slot.axes else ("all rows",)
        cells.append(((str(number),), (Value(Label(slot.name), *slot.axes),), (kind,), axes, (term,)))
    return Table(("", "slot", "what", "one per", "of"), tuple(cells))


def deferred_parts(separation: Separation, decomposition: Decomposition) -> Iterator[tuple[str, Expr]]:
    """The parts that need no x: an extremum's v(d), and the factor that all d-monomials share but for exponentials."""
    if separation.times == "+" and separation.h[0] is not S.Zero:
        yield "term", separation.h[0]
    if separation.extremal and separation.times == "×":
        yield from (("term", separation.shift),) if separation.shift is not S.Zero else ()
        yield from (("factor", separation.h[0]),) if not separation.h[0].is_number else ()
    atoms = decomposition.separator.atoms
    monomials = [dict(d) for _, d in separation.polynomial] if separation.times == "×" else []
    powers: list[Expr] = []
    for number, q in monomials[0].items() if monomials else ():
        exponents = [one.get(number, 0) for one in monomials]
        if all(p * q > 0 for p in exponents) and not atoms.list[number].exponential:
            powers.append(atoms.list[number].power(min(exponents) if q > 0 else max(exponents)))
    if powers:
        yield "factor", Mul(*powers)


# ---- 4 ---------------------------------------------------------------------------------------------------------------


def the_forms(form: FusedForm) -> list[Line]:
    """The forms of one segment, of many, of one more piece and of one more element; and those in exact arithmetic."""
    moves = Moves(form)
    segment = Symbol(moves.index)
    counted = sentence("Of elements where ", form.cascade.domain, "; no other changes the state.")
    lines: list[Line] = [
        *([] if form.cascade.domain is S.true else [counted]),
        column(
            ("One segment of ", *reduced_axes_prose(form.cascade), ": first level"),
            moves.first_level(),
            "RedFuser Eq. 6-8",
        ),
        column(("Many segments ", segment, " into one: the next level"), moves.level(), "RedFuser Eq. 11"),
        column(("One more piece, whose own state wears the hat: incremental",), moves.incremental(), "RedFuser Eq. 15"),
    ]
    updates = moves.exact()
    if updates:
        zero = comma_list([one.value for one in form.accumulators if one.droppable])
        lines.append(
            column(("The same in exact arithmetic, where ", *zero, " = 0"), updates, "cf. Chan, Golub, LeVeque 1979")
        )
        lines.append(column(("One more element, in exact arithmetic",), moves.exact(moves.element), "cf. Welford 1962"))
    else:
        lines.append(
            column(("One more element: incremental, level 1",), moves.incremental(moves.element), "RedFuser Eq. 16")
        )
    if moves.scales:
        verb = (
            " is 1: there is nothing to scale by."
            if len(moves.scales) == 1
            else " are 1: there is nothing to scale by."
        )
        lines.append(sentence("Of no elements, or of zeros alone, ", *comma_list(moves.scales), verb))
    if form.slot_pivots:
        free = comma_list([one.value for one in form.slot_pivots])
        lines.append(sentence("Finish is exact for any finite ", *free, ", be it rounded or lagging: hence the ≈."))
    weights = sorted({pivot.value.name: pivot.value for one in form.accumulators for pivot, _ in one.weight}.items())
    for _, value in weights:
        why = " and weight 0: a rescale is written as the exponential of a difference, and is never ∞ − ∞."
        lines.append(sentence("An empty segment has ", value, " = ", S.NegativeInfinity, why))
    return lines


# ---- 5 ---------------------------------------------------------------------------------------------------------------


def the_finish(form: FusedForm) -> list[Line]:
    """The assignments, the outputs, and the cases in which an output is empty."""
    lines: list[Line] = []
    if form.assignments:
        lines.append(column(("From the state",), [Equation(one.value, one.expr) for one in form.assignments]))
    now = [Equation(labelled_element(one.name, one.axes), one.expr) for one in form.outputs if not one.carries]
    if now:
        lines.append(column(("Outputs",), now))
    lines += extrema.guards(form)
    later = [Equation(labelled_element(one.name, one.axes), one.expr) for one in outputs_along_axis(form)]
    if later:
        lines.append(column(("Pass 2, at every element of ", *reduced_axes_prose(form.cascade)), later))
    why = " is 0/0: NaN, or 0 if the call says so."
    lines += [
        sentence(
            "Where ", extrema.absorb_terms(output.empty), ", as where no element counts, ", Label(output.name), why
        )
        for output in form.outputs
        if output.empty is not S.false
    ]
    return lines
