"""The derivation as steps, each a rewrite with the condition under which it is exact; and the moves of a state.

F(x, d)  →  Σ_k h_k(d) ⊗ g_k(x)      ⊗ distributes over ⊕
Σ h ⊗ g  →  h ⊗ Σ g                  h holds no x
u        →  u − c                    any finite c: sums move with c by A(c→c′)
a, â     →  A(c→c′)·a ⊕ A(ĉ→c′)·â    the merge, which may be nested as a tree in any way
"""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Expr, Mul, S
from sympy.core.basic import Basic

from redalg.decompose.verdict.verdict import Decomposition, Separation
from redalg.explain.cost import reduced_axes_prose
from redalg.explain.model import Line, Matrices, Part, Section, comma_list, sentence
from redalg.explain.moves import Moves, hat_slot, own, prime_slot
from redalg.explain.names import in_users_words
from redalg.explain.sections import deferred_parts, live, selects, used_values
from redalg.explain.whole import pairs_of
from redalg.expression import Value
from redalg.incremental.form import Accumulator, FusedForm, Pivot, PivotPolicy, Structure
from redalg.incremental.passes import Passes

Cells = tuple[tuple[Part, ...], ...]
LARGEST = 8
"""Rows of the largest matrix that is written out."""
EXTRA = {"steps": "The derivation, step by step", "transition": "How a state moves"}
"""Sections that are made when they are asked for, and in pages that fold."""
AFFINE = "affine"
"""The monoid of maps h ↦ a·h + b."""


def extra_sections(name: str, decomposition: Decomposition, passes: Passes) -> list[Section]:
    """The steps or the moves of every pass."""
    title, pairs = EXTRA[name], pairs_of(decomposition, passes)
    sections = []
    for place, (of_pass, form) in enumerate(pairs, 1):
        heading = f"Pass {place}: {title[0].lower()}{title[1:]}" if len(pairs) > 1 else title
        lines = the_steps(of_pass, form) if name == "steps" else the_transition(form)
        sections.append(in_users_words(Section(heading, tuple(lines), name), of_pass.cascade))
    return sections


def the_steps(decomposition: Decomposition, form: FusedForm) -> list[Line]:
    """The rewrites from the definition to the form, in order: before, after, and when the rewrite is exact."""
    if form.is_elementwise:
        return [sentence("Nothing is reduced, so nothing is rewritten.")]
    rows = [*separations(decomposition), *delays(decomposition), *pivots(form), *merges(form)]
    return [sentence(f"{place}. ", *before, "  →  ", *after, ". Exact: ", *why, ".")
            for place, (before, after, why) in enumerate(rows, 1)]  # fmt: skip


def separations(decomposition: Decomposition) -> Iterator[Cells]:
    """F(x, d) → Σ h·g of every reduction that uses earlier results."""
    for found in decomposition.separations:
        if not used_values(found):
            continue
        name, term = found.reduction.value, live(found.reduction, decomposition.cascade)
        if found.extremal is not None or selects(found):
            ends = ("its term rises or falls with ", *comma_list(list(found.g)), ", whatever d is")
            yield (name, " of ", term), (name, " of ", *comma_list(list(found.g))), ends
        else:
            why = (
                found.times,
                f" distributes over {found.reduction.monoid.sign}; rank {found.rank}: that many sums give ",
            )
            yield (term,), sum_of_products(found), (*why, name, " for any earlier results")


def sum_of_products(found: Separation) -> tuple[Part, ...]:
    """g₁·h₁ + g₂·h₂ …, or names for what is too many to write."""
    if found.times != "×":
        return (*comma_list(list(found.g)), f" {found.times} ", *comma_list(list(found.h)))
    pairs = [Mul(g, h, evaluate=False) for g, h in zip(found.g, found.h, strict=True)]
    return comma_list(list[Basic](pairs), " + ")


def delays(decomposition: Decomposition) -> Iterator[Cells]:
    """Factors and terms without x, which leave the loop."""
    for found in decomposition.separations:
        for word, part in deferred_parts(found, decomposition):
            here, there = (part, f" at every element of {found.reduction.name}"), (part, " once, in finish")
            yield here, there, (f"this {word} reads no data",)


def pivots(form: FusedForm) -> Iterator[Cells]:
    """u → u − c, exp(u) → exp(u − c), u → u/c."""
    for pivot in sorted(form.pivots, key=lambda one: one.policy is not PivotPolicy.SCALE):
        if pivot.is_level:
            continue
        before, after, why = pivot_step(pivot, form)
        yield before, after, why


def pivot_step(pivot: Pivot, form: FusedForm) -> Cells:
    """The step of one pivot."""
    c, u = pivot.value, pivot.base
    if pivot.policy is PivotPolicy.SCALE:
        return (
            (u,),
            (u / c,),
            ("any ", c, " above 0 divides out in finish; the largest keeps powers in range"),
        )
    if pivot.policy is PivotPolicy.SLOPE:
        return (u,), (u, " about the line of slope ", c), ("any slope is put back in finish",)
    if pivot.value in form.scaling:
        common = ("the factor exp(", c, ") is common to all terms; where ", c, " is −∞ the weight is 0")
        return ("exp(", u, ")"), ("exp(", u - c, ")"), common
    why = ("any finite ", c, " is put back in finish; near the mean nothing cancels")
    return (pivot.generator,), (pivot.generator - c,), why


def merges(form: FusedForm) -> Iterator[Cells]:
    """Two states → one state."""
    order = "every ⊕ is associative and commutes: pieces may be merged as any tree, in any order"
    if form.is_ordered:
        order = "every ⊕ is associative: neighbours are merged as any tree, the earlier before the later"
    yield ("the states of two pieces",), ("the state of both",), (order,)


# ---- the moves of a state, as matrices -------------------------------------------------------------------------------


def the_transition(form: FusedForm) -> list[Line]:
    """a′ = A(c→c′)·a as a matrix, and the product of affine maps; none if no sum moves."""
    lines: list[Line] = []
    moves = Moves(form)
    if 0 < len(form.accumulators) <= LARGEST and any(map(moves_with_pivot, form.accumulators)):
        values = tuple(one.value for one in form.accumulators)
        rows = tuple(tuple(coefficient(moves, one, value) for value in values) for one in form.accumulators)
        title = ("The sums of a state that moves to another pivot: who goes into whom",)
        lines.append(Matrices(title, column_vector(tuple(map(prime_slot, values))), rows, column_vector(values)))
    lines += [affine_product(one) for one in form.structures if one.monoid.name == AFFINE]
    if not lines:
        lines.append(sentence("No sum depends on a pivot: two states are joined slot by slot, along ",
                              *reduced_axes_prose(form.cascade), "."))  # fmt: skip
    return lines


def moves_with_pivot(accumulator: Accumulator) -> bool:
    """Tell if a sum changes when a pivot moves."""
    return bool(accumulator.weight) or accumulator.transition != ((accumulator.value, S.One),)


def coefficient(moves: Moves, accumulator: Accumulator, value: Value) -> Expr:
    """The coefficient of a slot in the moved sum."""
    found = [one for one in accumulator.transition if one[0] == value]
    alone = Accumulator(accumulator.value, accumulator.weight, accumulator.factors, tuple(found))
    moved = moves.move_sum(alone, own, prime_slot, moves.displacements(own))
    return moved / value


def affine_product(structure: Structure) -> Matrices:
    """The maps h ↦ a·h + b of two neighbours, one after the other."""
    first, second = ([naming(value) for value in structure.values] for naming in (own, hat_slot))
    after = [prime_slot(value) for value in structure.values]
    title = ("A state is a map h ↦ a·h + b; the piece that comes later is applied to what came before",)
    return Matrices(title, affine_matrix(after), affine_matrix(second), affine_matrix(first))


def affine_matrix(parts: list[Value]) -> tuple[tuple[Basic, ...], ...]:
    """The matrix of a map h ↦ a·h + b."""
    return tuple(parts), (S.Zero, S.One)


def column_vector(entries: tuple[Basic, ...]) -> tuple[tuple[Basic, ...], ...]:
    """A vector as a matrix of one column."""
    return tuple((one,) for one in entries)
