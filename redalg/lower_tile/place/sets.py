"""The best elements of a row as a set in no order, to which a loop joins tiles or other states.

    empty       set[p] = less than every element, and different for each p
    join        while a tile or another state holds an element above the least of the set, the largest takes its place
    sort        once, after the loop: the state holds its elements in order

A tile of T elements, m after the first, holds k·T/m that are among the best k so far, if the data is in no order; so a
row of n takes about k·(1 + log n/k) rounds, and not k for every tile. Data that rises takes k a tile, as many as a tile
that is merged in order (`selection`). A block has one row, so that all its threads take as many rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sympy import Eq, Max, Min, S

from redalg.expression import Value, Where
from redalg.incremental.form import Structure
from redalg.lower_tile.ir.program import NO_ELEMENT, Fill, Loop, ReduceTile, Statement
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.frames import Job
from redalg.lower_tile.place.selection import (
    NTH,
    best_buffers,
    fill_buffer,
    in_two,
    ranked_structures,
    remove_best,
    row_width,
    take_best,
    take_in_turn,
)
from redalg.lower_tile.place.space import PLACE, I, J
from redalg.strategies.plan import Plan, Problem


def is_set(structure: Structure, plan: Plan, problem: Problem) -> bool:
    """Tell if a loop keeps several elements of the block's only row."""
    return plan.block_row == 1 and row_width(structure, problem) > 0 and not in_two(problem)


def with_sets(
    job: Job, assembly: Assembly, loads: Mapping[Value, Load], empty: Iterable[Statement], loop: Iterable[Statement]
) -> list[Statement]:
    """The empty state and a loop that joins others to it: its sets are filled before, and sorted after."""
    ranked = [(one, loads[one.values[0]]) for one in ranked_structures(job.form, assembly.plan)]
    sets = [(one, best) for one, best in ranked if is_set(one, assembly.plan, job.problem)]
    names = {best.name for _, best in sets}
    fills = [fill_buffer(assembly, best.name, NO_ELEMENT + PLACE) for _, best in sets]
    sort = [line for structure, best in sets for line in sort_set(structure, assembly, job.problem, best)]
    return [*without_fills(empty, names), *fills, *loop, *sort]


def join_best(
    structure: Structure, assembly: Assembly, problem: Problem, state: Sequence[Load], other: Sequence[Load]
) -> list[Statement]:
    """state := state ⊕ the elements of a tile or of another state, whose buffers it overwrites."""
    if not is_set(structure, assembly.plan, problem):
        return take_best(structure, assembly, problem, state, other)
    [best], [element] = state, other
    shape = assembly.shape(element.name)
    top, least = (Load(assembly.buffer(name, "fragment", shape[:1], "int64"), I) for name in ("top", "least"))
    above = assembly.buffer("above", "fragment", shape, "int32")
    count = assembly.buffer("number_above", "fragment", shape[:1], "int32")
    find_least = ReduceTile("min", best.name, least.name, clear=True)
    rounds = (
        ReduceTile("max", element.name, top.name, clear=True),
        fill_buffer(assembly, best.name, Where(Eq(best, least), Max(top, least), best)),
        find_least,
        remove_best(assembly, (element.name,), (top,)),
    )
    number = Min(row_width(structure, problem), Load(count, S.Zero))
    is_above = Where(Load(element.name, I, J) > least, S.One, S.Zero)
    return [
        find_least,
        fill_buffer(assembly, above, is_above, J),
        ReduceTile("sum", above, count, clear=True),
        Loop(NTH, number, 0, rounds, pipelined=False),
    ]


def sort_set(structure: Structure, assembly: Assembly, problem: Problem, best: Load) -> list[Statement]:
    """best := its elements in order, and no element at the places that are left."""
    [old] = best_buffers(structure, assembly, problem, "old")
    element = Where(Eq(best, NO_ELEMENT + PLACE), NO_ELEMENT, best)
    move = assembly.stores((Load(old, I, PLACE), element), (best, NO_ELEMENT))
    return [move, take_in_turn(structure, assembly, problem, (best.name,), [(old,)])]


def without_fills(body: Iterable[Statement], buffers: Collection[str]) -> list[Statement]:
    """The statements but those that fill these buffers."""
    return [one for one in body if not (isinstance(one, Fill) and one.buffer in buffers)]
