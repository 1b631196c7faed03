"""Decomposition and form -> Derivation: what it is about, its result in a sentence, and the sections in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sympy import Mul

from redalg.decompose.verdict.passes import passes_in_words
from redalg.decompose.verdict.verdict import Decomposition, decompose
from redalg.explain.condition import the_condition
from redalg.explain.cost import (
    cost,
    definition_passes,
    elementwise_cost,
    outputs_along_axis,
    reduced_axes_prose,
    state_size,
)
from redalg.explain.model import Derivation, Line, Part, Section, Sentence, comma_list, sentence
from redalg.explain.names import given_names, in_users_words
from redalg.explain.rounding import the_roundings
from redalg.explain.sections import (
    labelled_element,
    outputs_as_defined,
    the_cascade,
    the_decomposition,
    the_finish,
    the_forms,
    the_state,
)
from redalg.expression import Cast
from redalg.expression.contents import of_kind
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes

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


def derivation(
    decomposition: Decomposition, passes: Passes, names: Collection[str] | None = None
) -> Derivation:  # fmt: skip
    """Everything that an explanation says, in the order of the stages, pass after pass; or the sections of `names`."""
    if passes.earlier:
        return derivation_of_passes(decomposition, passes, names)
    form = passes.last
    outputs = comma_list([labelled_element(one.name, one.axes) for one in decomposition.cascade.outputs])
    how = " in two passes over " if outputs_along_axis(form) else " in one pass over "
    over: tuple[Part, ...] = (how, *reduced_axes_prose(decomposition.cascade))
    heading = (*outputs, ", element by element") if form.is_elementwise else (*outputs, *over)
    return Derivation(heading, _summary(decomposition, form), tuple(stages(decomposition, form, names)))


def stages(
    decomposition: Decomposition, form: FusedForm, names: Collection[str] | None = None, prefix: str = ""
) -> Iterator[Section]:  # fmt: skip
    """The sections of one pass."""
    for name, title in TITLES.items():
        if names is not None and name not in names:
            continue
        if lines := section_lines(name, decomposition, form):
            titled = Section(prefix + (title[0].lower() + title[1:] if prefix else title), tuple(lines), name)
            yield in_users_words(titled, decomposition.cascade)


def section_lines(name: str, decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """The lines of a section; none if the form has no such section."""
    if form.is_elementwise:
        outputs = [*given_names(decomposition.cascade), outputs_as_defined(decomposition)]
        return {"outputs": outputs, "cost": elementwise_cost(form)}.get(name, [])
    return SECTIONS[name](decomposition, form) if name in SECTIONS else []


def names_of_sections(decomposition: Decomposition, form: FusedForm) -> tuple[str, ...]:
    """The names of the sections of one pass."""
    if form.is_elementwise:
        return ("outputs", "cost")
    return tuple(name for name in SECTIONS if name != "rounding" or decomposition.roundings)


def derivation_of_passes(decomposition: Decomposition, passes: Passes, names: Collection[str] | None) -> Derivation:
    """The derivation pass after pass: the outputs of an earlier pass are tensors to those after it."""
    number = len(passes)
    outputs = comma_list([labelled_element(one.name, one.axes) for one in decomposition.cascade.outputs])
    parts: list[Part] = [passes_in_words(number).capitalize(), ": "]
    for place, form in enumerate(passes.earlier, 1):
        values = comma_list([labelled_element(each.name, each.axes) for each in form.outputs])
        parts += [f"pass {place} makes ", *values, ", with a state of ", *state_size(form), "; "]
    tensors = "it as a tensor" if len(passes.intermediates) == 1 else "them as tensors"
    parts += [f"pass {number} takes {tensors} and makes all else, with a state of ", *state_size(passes.last), "."]
    parts += [rounding_summary(decomposition, passes)]
    sections = (section for place, (own, form) in enumerate(pairs_of(decomposition, passes), 1)
                for section in stages(own, form, names, f"Pass {place}: "))  # fmt: skip
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
