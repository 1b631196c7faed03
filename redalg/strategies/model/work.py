"""Count the arithmetic of an element in the loop for the cost model, from the form alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from sympy import Add, Basic, Expr, Mul, Pow, count_ops, exp, preorder_traversal

from redalg.expression import Element
from redalg.expression.contents import elements_of, free_axes
from redalg.incremental.form import FusedForm


@final
@dataclass(frozen=True)
class Work:
    """The counts of the arithmetic in the loop.

    Attributes:
        operations: plain operations on an element of a row: those of the terms, and one for every ⊕.
        distinct: the operations, each that several terms share counted once.
        exponentials: special functions on it; rescaling: those of a merge of an element into a lane's state.
        merging: operations of a merge of two states of a row, which lanes do for every element.
        rescaled: accumulators with columns that an exponential rescales in every step.
        reductions: reductions along a tile.
        slots, wide: numbers of the state of a row; accumulators with columns.
        reads: the inputs' elements that an element of a row reads: (name, True if neighbours lie side by side).
    """

    operations: int
    distinct: int
    exponentials: int
    rescaling: int
    merging: int
    rescaled: int
    reductions: int
    slots: int
    wide: int
    reads: tuple[tuple[str, bool], ...]


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
    inner = {part for term in terms for part in term.atoms(exp)}
    streamed = form.cascade.axis
    elements = {one for term in terms for one in elements_of(term) if streamed in free_axes(one)}
    transitions = [coefficient for one in form.accumulators for _, coefficient in one.transition]
    return Work(
        operations=sum(1 + int(count_ops(term)) for term in terms),
        distinct=len(terms) + arithmetic_of({node for term in terms for node in preorder_traversal(term)}),
        exponentials=len(weights) or len(inner),
        rescaling=len(weights),
        merging=sum(2 + int(count_ops(one)) for one in transitions) + 4 * len(form.pivots),
        rescaled=sum(bool(one.weight) for one in wide),
        reductions=len(form.extrema) + len(form.structures) + len(narrow) + len(form.slot_pivots),
        slots=len(form.slots) - len(wide),
        wide=len(wide),
        reads=tuple((one.name, one.indices[-1] == streamed) for one in sorted(elements, key=str)),
    )


def arithmetic_of(nodes: Iterable[Basic]) -> int:
    """The operations on numbers of nodes, without those within them: a + b + c has two, and a square one."""
    counts = (len(node.args) - 1 for node in nodes if isinstance(node, Add | Mul | Pow) and node.has(Element))
    return sum(counts)
