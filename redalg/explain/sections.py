"""Decomposition and form -> Derivation: the content of each stage, built once from the algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sympy import Expr, Mul, S, Symbol

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import live_term
from redalg.decompose.verdict.conventions import extrema_with_factors, selections, ties, weights
from redalg.decompose.verdict.passes import passes_in_words
from redalg.decompose.verdict.verdict import Decomposition, Separation, decompose
from redalg.explain import extrema
from redalg.explain.condition import the_condition
from redalg.explain.cost import (
    cost,
    definition_passes,
    elementwise_cost,
    outputs_along_axis,
    reduced_axes_prose,
    state_size,
)
from redalg.explain.model import (
    Derivation,
    Equation,
    Equations,
    Line,
    Part,
    Section,
    Sentence,
    Table,
    column,
    comma_list,
    sentence,
)
from redalg.explain.moves import Moves
from redalg.explain.pivots import the_pivots
from redalg.explain.rounding import the_roundings
from redalg.expression import Axis, Cast, Element, Label, Value
from redalg.expression.contents import of_kind, values_of
from redalg.incremental.form import FusedForm, PivotPolicy
from redalg.incremental.passes import Passes

F = Symbol("F")


def derivation(decomposition: Decomposition, passes: Passes) -> Derivation:
    """Everything that an explanation says, in the order of the stages, pass after pass."""
    if passes.earlier:
        return derivation_of_passes(decomposition, passes)
    form = passes.last
    outputs = comma_list([_labelled_element(one.name, one.axes) for one in decomposition.cascade.outputs])
    how = " in two passes over " if outputs_along_axis(form) else " in one pass over "
    over: tuple[Part, ...] = (how, *reduced_axes_prose(decomposition.cascade))
    heading = (*outputs, ", element by element") if form.is_elementwise else (*outputs, *over)
    return Derivation(heading, _summary(decomposition, form), tuple(stages(decomposition, form)))


def stages(decomposition: Decomposition, form: FusedForm, prefix: str = "") -> Iterator[Section]:
    """The sections of one pass."""
    for name, title in TITLES.items():
        if lines := lines_of(name, decomposition, form):
            yield Section(prefix + (title[0].lower() + title[1:] if prefix else title), tuple(lines), name)


def lines_of(name: str, decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """The lines of a section; none if the form has no such section."""
    if form.is_elementwise:
        return {"outputs": [outputs_as_defined(decomposition)], "cost": elementwise_cost(form)}.get(name, [])
    return SECTIONS[name](decomposition, form) if name in SECTIONS else []


def derivation_of_passes(decomposition: Decomposition, passes: Passes) -> Derivation:
    """The derivation pass after pass: the outputs of an earlier pass are tensors to those after it."""
    number = len(passes)
    outputs = comma_list([_labelled_element(one.name, one.axes) for one in decomposition.cascade.outputs])
    parts: list[Part] = [passes_in_words(number).capitalize(), ": "]
    for place, form in enumerate(passes.earlier, 1):
        values = comma_list([_labelled_element(each.name, each.axes) for each in form.outputs])
        parts += [f"pass {place} makes ", *values, ", with a state of ", *state_size(form), "; "]
    tensors = "it as a tensor" if len(passes.intermediates) == 1 else "them as tensors"
    parts += [f"pass {number} takes {tensors} and makes all else, with a state of ", *state_size(passes.last), "."]
    parts += [rounding_summary(decomposition, passes)]
    sections = (section for place, (own, form) in enumerate(pairs_of(decomposition, passes), 1)
                for section in stages(own, form, f"Pass {place}: "))  # fmt: skip
    return Derivation((*outputs, f" in {passes_in_words(number)} over ", *reduced_axes_prose(decomposition.cascade)),
                      sentence(*parts), tuple(sections))  # fmt: skip


def pairs_of(decomposition: Decomposition, passes: Passes) -> list[tuple[Decomposition, FusedForm]]:
    """The decomposition and the form of every pass, in order."""
    return [(decompose(one.cascade), one) for one in passes.earlier] + [(decomposition, passes.last)]


def rounding_summary(decomposition: Decomposition, passes: Passes) -> str:
    """The sentence that tells if the passes round as the definition does; empty if it rounds nothing."""
    if decomposition.roundings:
        return f" Approximate: what pass {len(passes)} rounds otherwise than the definition is told there."
    cascades = (decomposition.cascade, *(one.cascade for one in passes.earlier))
    casts = of_kind(Cast, *(expr for one in cascades for expr in one.expressions()))
    return " Every rounding is then the definition's own, of tensors and parameters alone." if casts else ""


def _summary(decomposition: Decomposition, form: FusedForm) -> Sentence:
    if form.is_elementwise:
        return sentence("One pass without a state: nothing is reduced, and no element needs another.")
    passes, extents = definition_passes(form.cascade), [axis.extent for axis in form.cascade.reduced_axes]
    size = Mul(*extents, evaluate=False) if len(extents) > 1 else extents[0]
    state: tuple[Part, ...] = ("with a state of ", *state_size(form), ", whatever ", size, " is.")
    approximate = (" Approximate: section 3 says what is rounded otherwise.",) if decomposition.roundings else ()
    later = outputs_along_axis(form)
    if later:
        instead = f" instead of {passes + 1}" if passes > 1 else ""
        which = "the outputs that carry " if len(later) > 1 else "the output that carries "
        again = ". Where a row fits on chip, it is read once."
        return sentence(f"Two passes{instead}: pass 1 for the state, pass 2 for {which}",
                        *reduced_axes_prose(form.cascade), "; ", *state[:-1], " is", again, *approximate)  # fmt: skip
    instead = f"One pass instead of {passes}" if passes > 1 else "One pass"
    return sentence(f"{instead}, ", *state, *approximate)


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
        equations = [Equation(_labelled_element(one.name, one.axes), one.definition) for one in cascade.producers]
        verb = " is streamed" if len(cascade.reduced_axes) == 1 else " are streamed"
        lines.append(column(("Computed on other axes, as ", *reduced_axes_prose(cascade), verb), equations))
    equations = [Equation(_labelled_element(reduction.name, reduction.axes),
                          reduction.to_reduce(live(reduction, cascade), cascade.reduced_axes))
                 for reduction in cascade.reductions]  # fmt: skip
    lines.append(column(("Reductions, each of which may use those above it",), equations))
    return [*lines, outputs_as_defined(decomposition)]


def outputs_as_defined(decomposition: Decomposition) -> Line:
    """The outputs, of the reductions and the tensors."""
    outputs = decomposition.cascade.outputs
    return column(("Outputs",), [Equation(_labelled_element(one.name, one.axes), one.expr) for one in outputs])


def the_conventions(decomposition: Decomposition, form: FusedForm) -> Iterator[Line]:
    """The cases in which the result need not be what IEEE 754 makes of the definition (`decompose.conventions`)."""
    if exponents := weights(decomposition):
        product = any(one.weight and len(one.factors) > 1 for one in form.accumulators)
        warning = " In a product of matrices that must be a number." if product else ""
        yield sentence("Where ", *comma_list([*exponents], " or "), " is −∞ an element has no weight: its terms are 0, "
                       f"whatever stands beside the weight.{warning}")  # fmt: skip
    axes = reduced_axes_prose(decomposition.cascade)
    for separation in selections(decomposition):
        of_u = (" are those of ", *separation.g, ": the definition's where what ")
        yield sentence(
            "The places of ", separation.reduction.value, *of_u, *axes, " does not vary is finite and not 0, or NaN."
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


def _labelled_element(name: str, axes: tuple[Axis, ...]) -> Element:
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
    lines: list[Line] = [
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
    now = [Equation(_labelled_element(one.name, one.axes), one.expr) for one in form.outputs if not one.carries]
    if now:
        lines.append(column(("Outputs",), now))
    lines += extrema.guards(form)
    later = [Equation(_labelled_element(one.name, one.axes), one.expr) for one in outputs_along_axis(form)]
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


TITLES = {
    "outputs": "The outputs, as defined",
    "cascade": "The cascade, as defined",
    "decomposition": "The decomposition of each reduction",
    "rounding": "What is rounded otherwise than in the definition",
    "state": "The state, and what is placed where",
    "forms": "The fused and incremental forms",
    "finish": "Finish",
    "cost": "Cost",
    "condition": "Condition",
}
"""Name of a section -> its title, in order; the first is of forms that reduce nothing."""
SECTIONS: dict[str, Callable[[Decomposition, FusedForm], list[Line]]] = {
    "cascade": the_cascade,
    "decomposition": lambda decomposition, _: the_decomposition(decomposition),
    "rounding": lambda decomposition, _: the_roundings(decomposition) if decomposition.roundings else [],
    "state": the_state,
    "forms": lambda _, form: the_forms(form),
    "finish": lambda _, form: the_finish(form),
    "cost": lambda _, form: cost(form),
    "condition": the_condition,
}
"""Name of a section of a form that reduces -> what writes its lines."""
