"""Count the arithmetic of an element in the loop for the cost model, from the form alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from sympy import Expr, count_ops

from redalg.expression import Axis
from redalg.expression.contents import elements_of, free_axes
from redalg.incremental.form import FusedForm
from redalg.strategies.model.instructions import Count, counts_of, names


@final
@dataclass(frozen=True)
class Read:
    """A read of an input: its name, True if neighbours along the streamed axis lie side by side, its axes' names."""

    name: str
    beside: bool
    axes: frozenset[str]


@final
@dataclass(frozen=True)
class Work:
    """The counts of the arithmetic in the loop.

    Attributes:
        counts: instructions, by the axes along which each is given anew.
        rescaling: special functions of a merge of an element into a lane's state.
        merging: operations of a merge of two states of a row, which lanes do for every element.
        rescaled: accumulators with columns that an exponential rescales in every step.
        reductions: reductions along a tile.
        slots, wide: numbers of the state of a row; accumulators with columns.
        reads: the inputs' elements that an element of a row reads.
        kept: the axis that numbers the elements which a structure keeps of a row; None if none keeps several.
    """

    counts: tuple[Count, ...]
    rescaling: int
    merging: int
    rescaled: int
    reductions: int
    slots: int
    wide: int
    reads: tuple[Read, ...]
    kept: Axis | None


@lru_cache(maxsize=256)
def work_of(form: FusedForm) -> Work:
    """The counts of a form."""
    terms: list[Expr] = [one.term for one in form.extrema]
    for structure in form.structures:
        terms += structure.operands
    narrow = [one for one in form.accumulators if len(one.factors) == 1]
    wide = [one for one in form.accumulators if len(one.factors) > 1]
    terms += [one.term for one in narrow] + [one.factors[0] for one in wide]
    weights = {(pivot.value, q) for one in form.accumulators for pivot, q in one.weight}
    streamed = form.cascade.axis
    elements = {one for term in terms for one in elements_of(term) if streamed in free_axes(one)}
    transitions = [coefficient for one in form.accumulators for _, coefficient in one.transition]
    return Work(
        counts=counts_of(form),
        rescaling=len(weights),
        merging=sum(2 + int(count_ops(one)) for one in transitions) + 4 * len(form.pivots),
        rescaled=sum(bool(one.weight) for one in wide),
        reductions=len(form.extrema) + len(form.structures) + len(narrow) + len(form.slot_pivots),
        slots=len(form.slots) - len(wide),
        wide=len(wide),
        reads=tuple(Read(one.name, one.indices[-1] == streamed, names(one)) for one in sorted(elements, key=str)),
        kept=next((one.place for one in form.structures if one.place is not None), None),
    )
