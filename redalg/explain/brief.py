"""The brief form of a derivation, which a screen of 80 columns shows: verdict, state, update, cost, condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sympy import Expr, S

from redalg.decompose.verdict.verdict import Decomposition
from redalg.display import SCREEN
from redalg.explain import text
from redalg.explain.condition import Cancellation, Conditions
from redalg.explain.cost import arithmetic, contractions, exponentials, tensor_reads
from redalg.explain.model import (
    Derivation,
    Equation,
    Line,
    Part,
    Section,
    Sentence,
    Table,
    column,
    comma_list,
    sentence,
)
from redalg.explain.moves import CLOSED_FORM_OPERATIONS, Moves, largest_coefficient
from redalg.explain.names import in_users_words, spelled_names
from redalg.explain.sections import outputs_as_defined
from redalg.explain.whole import derivation, pairs_of
from redalg.expression import Element, Label
from redalg.incremental.form import FusedForm
from redalg.incremental.passes import Passes

MOST = {"Counts": 2, "Names": 4, "State": 3, "Update": 7, "Finish": 3, "Cost": 3, "Condition": 2, "Output": 4}
"""Title of a part of the brief form -> the most lines that it takes in text."""
WORDS = {"read once": "read once ", "read twice": "read twice ", "stays at hand": "at hand ", "arithmetic": "",
         "exponentials": "exponentials "}  # fmt: skip
"""Label of a cost -> the words for it in the brief form."""
LEAST = {"Names": 2, "Update": 3, "Finish": 2, "Cost": 2, "State": 2}
"""Title of a part -> the lines that it keeps where the screen has no room, the part that is cut first before others."""
MARGIN = 11
"""Columns of the titles."""
LARGEST = 9
"""Slots of the largest state whose update is written out."""
MORE = "`.explain()` gives all of it, `.explain(section=…)` a part: "


def brief_derivation(decomposition: Decomposition, passes: Passes) -> Derivation:
    """The brief form: of several passes the last one's update, with the others in the summary."""
    whole = derivation(decomposition, passes, ())
    exact = "Approximate. " if decomposition.roundings else "Exact. "
    section = " Approximate: section 3 says what is rounded otherwise."
    said = tuple("" if one == section else one for one in whole.summary.parts)
    own, form = pairs_of(decomposition, passes)[-1]
    parts = (in_users_words(part, own.cascade) for part in brief_parts(own, form))
    return Derivation(whole.heading, Sentence((exact, *said)), tuple(parts))


def brief_parts(decomposition: Decomposition, form: FusedForm) -> Iterator[Section]:
    """The parts of the brief form, each one's name that of the section that says more."""
    if names := list(spelled_names(decomposition.cascade)):
        yield Section("Names", tuple(names), "outputs" if form.is_elementwise else "cascade")
    if form.is_elementwise:
        yield Section("Output", (outputs_as_defined(decomposition),), "outputs")
        yield Section("Cost", (costs(Table((), (*tensor_reads(form),))),), "cost")
        return
    if form.cascade.domain is not S.true:
        yield Section("Counts", (sentence("an element where ", form.cascade.domain, ", and no other."),), "cascade")
    yield Section("State", (state(form),), "state")
    yield Section("Update", (update_rule(form),), "forms")
    yield Section("Finish", (finish(form),), "finish")
    rows = (*tensor_reads(form), *arithmetic(form), *exponentials(form), *contractions(form))
    yield Section("Cost", (costs(Table((), rows)),), "cost")
    yield Section("Condition", (cancelling_sums(decomposition, form),), "condition")


def state(form: FusedForm) -> Line:
    """The slots with the kind of each."""
    kinds = {one.value.name: one.monoid.name for one in form.extrema}
    kinds |= {value.name: str(one.monoid) for one in form.structures for value in one.values}
    words = {"pivot": "centre", "count": ""}
    said: list[Part] = []
    for slot in form.slots:
        kind = kinds.get(slot.name, words.get(slot.kind, "sum")).replace("_", " ")
        said += [", ", Element(Label(slot.name), *slot.axes), f" ({kind})" if kind else ""]
    return sentence(*said[1:])


def update_rule(form: FusedForm) -> Line:
    """The state after one more element."""
    largest = max(map(largest_coefficient, form.accumulators), default=0)
    if len(form.slots) > LARGEST or largest > CLOSED_FORM_OPERATIONS:
        return sentence(f'{len(form.slots)} slots, each by a rule of its own: `.explain(section="forms")`.')
    moves = Moves(form)
    exact = moves.exact(moves.element)
    title = "One more element, in exact arithmetic" if exact else "One more element"
    return column((title,), exact or moves.incremental(moves.element))


def finish(form: FusedForm) -> Line:
    """The outputs by the state."""
    steps = [Equation(one.value, one.expr) for one in form.assignments]
    outputs = [Equation(Label(one.name), one.expr) for one in form.outputs]
    return column(("From the state",), [*steps, *outputs])


def costs(table: Table) -> Line:
    """The table of costs as one sentence, products by their number alone."""
    rows = [(str(name[0]), value) for name, value in table.cells]
    words: list[Part] = []
    for label, value in rows:
        if label in WORDS:
            words += ["; ", WORDS[label], *value]
    if products := sum(label == "matrix product" for label, _ in rows):
        words += ["; ", f"{products} matrix product{'s' if products > 1 else ''}"]
    return sentence(*words[1:])


def cancelling_sums(decomposition: Decomposition, form: FusedForm) -> Line:
    """The sums that may cancel, by name: digits are lost there."""
    conditions = Conditions(decomposition, form)
    found: list[Cancellation] = list(dict.fromkeys(one for output in form.outputs for one in conditions.of(output)))
    unknown = [one.name for one in form.outputs if conditions.dependencies(one) & conditions.unfollowed]
    zeros = scales_of_zeros(form)
    if not found:
        why = "not followed through a monoid of several components" if unknown else "1: no difference is taken"
        return sentence(f"{why}.", *zeros)
    names: list[Expr] = [one.value for one in found]
    return sentence("digits are lost where ", *comma_list(list(names), " or "),
                    " is small beside the terms that it is made of.", *zeros)  # fmt: skip


def scales_of_zeros(form: FusedForm) -> list[Part]:
    """The words on scales of which the update rule would divide by 0."""
    scales = Moves(form).scales
    return [" Of zeros alone ", *comma_list(scales), f" {'is' if len(scales) == 1 else 'are'} 1."] if scales else []


# ---- as text ---------------------------------------------------------------------------------------------------------


def render_brief(content: Derivation, names: tuple[str, ...]) -> str:
    """The brief form as text: titles in the margin, every part cut to its share of a screen."""
    headings = list(text.wrap_text(text.prose_text(content.heading), ""))
    top = [*headings, "═" * max(map(text.text_width, headings))]
    top += [*text.wrap_text(text.prose_text(content.summary.parts), ""), ""]
    more = ["", *text.wrap_text(text.prose_text(sentence(MORE + ", ".join(names) + ".").parts), "")]
    written = {section: list(part_text(section)) for section in content.sections}
    most = shares(written, SCREEN - 1 - len(top) - len(more))
    body = [line for section, lines in written.items() for line in cut(section, lines, most[section.title])]
    return "\n".join(line.rstrip() for line in [*top, *body, *more])


def shares(written: Mapping[Section, Sequence[str]], room: int) -> dict[str, int]:
    """The most lines of every part: less than `MOST` for those that can be cut, if the screen has no room."""
    most = {section.title: min(len(lines), MOST[section.title]) for section, lines in written.items()}
    for title, least in LEAST.items():
        excess = sum(most.values()) - room
        if title in most and excess > 0:
            most[title] = max(min(most[title], least), most[title] - excess)
    return most


def part_text(section: Section) -> Iterator[str]:
    """A part under its title in the margin."""
    margin = f"{section.title:<{MARGIN}}"
    for line in section.lines:
        for written in body_text(line):
            yield margin + written
            margin = " " * len(margin)


def body_text(line: Line) -> Iterator[str]:
    """A line of the model without its title, in the columns beside the margin."""
    with text.at_most(text.COLUMNS.get() - MARGIN):
        if isinstance(line, Sentence):
            yield from text.wrap_text(text.prose_text(line.parts), "")
        else:
            _, *rows = text.line_text(line, "")
            yield from (row.removeprefix("     ") for row in rows)


def cut(section: Section, lines: list[str], most: int) -> list[str]:
    """The first lines of a part; the last says that more is in its section."""
    if len(lines) <= most:
        return lines
    more = f'… {len(lines) - most + 1} more lines: .explain(section="{section.name}")'
    return [*lines[: most - 1], f"{'':<{MARGIN}}{more}"]
