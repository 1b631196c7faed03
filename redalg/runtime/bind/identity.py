"""The identity of a state: a digest of what its slots hold, the same in every process, and the version of its format.

    text    := every slot with what it is the reduction of, how it moves with its pivot, the mask, the producers
    digest  := of that text, operands of + and · in order of their text: no order of SymPy's or of a hash is in it

Axes, tensors and scalars stand in it by their names. How a state is finished does not: two expressions that hold the
same slots (a mean, a total) may finish each other's states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import Expr, S, Tuple

from redalg.decompose.cascade import Cascade
from redalg.incremental.form import Accumulator, FusedForm, Pivot
from redalg.incremental.remembered import Remembered
from redalg.runtime.known.naming import Writer, text_digest

VERSION = 2
"""Version of the format of states; it changes when a slot's meaning or a state's fields do."""


@final
class AsTheyAre(dict[str, str]):
    """Names that stand for themselves."""

    def __missing__(self, name: str) -> str:
        return name


@final
@dataclass(frozen=True)
class Identity:
    """The contents of a state's slots: `digest`, and a line for each part, for people."""

    digest: str
    lines: tuple[str, ...]


def _identity(form: FusedForm) -> Identity:
    writer = Writer(AsTheyAre(), AsTheyAre())
    writer.values = AsTheyAre()
    text = "\n".join(
        [*shared_parts(form.cascade, writer), *(f"{name} {line}" for name, line in slot_definitions(form, writer))]
    )
    return Identity(text_digest(text)[:16], description_lines(form))


identity: Remembered[Identity] = Remembered(_identity)
"""Form -> the identity of its states: writing it out takes longer than a merge.

>>> import redalg as ra
>>> x, n = ra.tensor("x[n]"), ra.axes("n")
>>> identity(ra.fuse(ra.sum(x**3, n)).form).lines
('over n', 'sum_0 = sum x[n]**3')
"""


def shared_parts(cascade: Cascade, writer: Writer) -> list[str]:
    """The parts that all slots of a state share: the reduced axes, the mask, the producers."""
    producers = (f"{producer.name} over {writer.free(producer.axes)}: {producer_text(producer.cascade, writer)}"
                 for producer in cascade.producers)  # fmt: skip
    return [f"over {writer.several(cascade.reduced_axes)} where {writer.text(cascade.domain)}", *producers]


def producer_text(cascade: Cascade, writer: Writer) -> str:
    """The text of a producer's cascade: its parts and its outputs."""
    reductions = (f"{one.name} {one.monoid.name} {one.result} {writer.text(one.term)}" for one in cascade.reductions)
    return "; ".join([*shared_parts(cascade, writer), *reductions, *(writer.text(one.expr) for one in cascade.outputs)])


def slot_definitions(form: FusedForm, writer: Writer) -> list[tuple[str, str]]:
    """Every slot's name and definition."""
    found = [(one.value.name, f"{one.monoid.name} {writer.text(one.term)}") for one in form.extrema]
    for structure in form.structures:
        names = " ".join(value.name for value in structure.values)
        found.append((names, f"{structure.monoid.name} {writer.text(structure.term)} {structure.place}"))
    found += [(one.value.name, pivot(one, writer)) for one in form.pivots]
    return found + [(one.value.name, accumulator_text(one, writer)) for one in form.accumulators]


def pivot(slot: Pivot, writer: Writer) -> str:
    """The text of a pivot: its base, and how it is chosen."""
    slopes = "".join(f" {writer.text(slope)} {writer.text(S(centre))}" for slope, centre in slot.slopes)
    return f"{slot.policy.value} {writer.text(slot.base)} {writer.text(slot.source)}{slopes}"


def accumulator_text(slot: Accumulator, writer: Writer) -> str:
    """The text of an accumulator: its summand, and how it moves."""
    weight = " ".join(f"{about.value.name}*{writer.text(S(q))}" for about, q in slot.weight)
    transition = " ".join(f"{value.name}*{writer.text(S(coefficient))}" for value, coefficient in slot.transition)
    return f"{weight} of {writer.text(Tuple(*slot.factors))} moves as {transition}"


def description_lines(form: FusedForm) -> tuple[str, ...]:
    """A line for each part, as people read it."""
    cascade = form.cascade
    lines = [f"over {', '.join(map(str, cascade.reduced_axes))}"]
    lines += [] if cascade.domain is S.true else [f"where {cascade.domain}"]
    lines += [f"{one.name} = {one.definition}" for one in cascade.producers]
    lines += [f"{one.value} = {one.monoid} {one.term}" for one in form.extrema]
    lines += [f"{', '.join(map(str, one.values))} = {one.monoid} {_several(one.term)}" for one in form.structures]
    lines += [f"{one.value} = {one.policy.value} pivot of {one.base}" for one in form.pivots]
    return (*lines, *(f"{one.value} = sum {one.term}" for one in form.accumulators))


def _several(term: Expr) -> str:
    return ", ".join(map(str, term.args if isinstance(term, Tuple) else (term,)))


def first_difference(state: tuple[str, ...], form: tuple[str, ...]) -> str:
    """The first lines in which a state and a form differ; empty if none does."""
    of_state, of_form = ([one for one in a if one not in b] for a, b in ((state, form), (form, state)))
    parts = [f"there `{one}`" for one in of_state[:1]] + [f"here `{one}`" for one in of_form[:1]]
    return ", ".join(parts)
