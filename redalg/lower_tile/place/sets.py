"""The best elements of a row, to which a loop joins whole tiles and other states (`JoinBest`).

    empty       best[p] = less than every element, in order, and different for each p
    join        the elements above the least of the best find their places among them, by the number of those above each
    finish      no element at the places that are left

A block has one row, so that all its threads take as many rounds. A tile without an element above the least costs one
count. Parts of a row are elements again: a tile holds the best of many parts, and is joined as a tile of the row is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sympy import Expr, Integer, Lt, Min, Mod, S, floor

from redalg.expression import Value
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.program import Fill, JoinBest, Loop, Statement, index
from redalg.lower_tile.ir.scalars import NO_ELEMENT, Load
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.frames import Job
from redalg.lower_tile.place.selection import begin_set, finish_set, is_set, ranked_structures, row_width, take_best
from redalg.lower_tile.place.space import PLACE, I, J
from redalg.strategies.plan import Plan, Problem

PARTS_OF_TILE = index("parts_of_tile")
MERGED_TOGETHER = 4096
"""Elements of parts that are joined at once."""


def with_sets(
    job: Job, assembly: Assembly, loads: Mapping[Value, Load], empty: Iterable[Statement], loop: Iterable[Statement]
) -> list[Statement]:
    """The empty state and a loop that joins others to it: its sets are begun before, and finished after."""
    ranked = [(one, loads[one.values[0]]) for one in ranked_structures(job.form, assembly.plan)]
    sets = [(best, row_width(one, job.problem)) for one, best in ranked if is_set(one, assembly.plan, job.problem)]
    names = {best.name for best, _ in sets}
    begin = [begin_set(assembly, best, width) for best, width in sets]
    finish = [finish_set(assembly, best, width) for best, width in sets]
    return [*without_fills(empty, names), *begin, *loop, *finish]


def join_best(
    structure: Structure, assembly: Assembly, problem: Problem, state: Sequence[Load], other: Sequence[Load]
) -> list[Statement]:
    """state := state ⊕ the elements of a tile or of another state, whose buffers it may overwrite."""
    if not is_set(structure, assembly.plan, problem):
        return take_best(structure, assembly, problem, state, other)
    [best], [element] = state, other
    return [JoinBest(best.name, element.name)]


def is_of_sets(form: FusedForm, plan: Plan, problem: Problem) -> bool:
    """Tell if a state is sets of elements alone, so that states are elements again."""
    slots = (*form.accumulators, *form.extrema, *form.slot_pivots)
    return not slots and bool(form.structures) and all(is_set(one, plan, problem) for one in form.structures)


def merge_sets(
    job: Job, assembly: Assembly, loads: Mapping[Value, Load],
    places: Callable[[Expr], Mapping[Value, tuple[str, tuple[Any, ...]]]],
) -> Loop:  # fmt: skip
    """The loop that joins the elements of all parts, those of many parts at once; `places` tells where a part lies."""
    width = max(row_width(one, job.problem) for one in job.form.structures)
    together = max(1, MERGED_TOGETHER // width)
    body, segments = list[Statement](), job.plan.segments
    for structure in job.form.structures:
        best, own = loads[structure.values[0]], row_width(structure, job.problem)
        part = together * PARTS_OF_TILE + floor(J / own)
        inside = S.true if segments % together == 0 else Lt(part, segments)
        workspace, where = places(part if inside is S.true else Min(part, segments - 1))[structure.values[0]]
        at = tuple(one.xreplace({PLACE: Mod(J, own)}) for one in where)
        rank = Load(assembly.buffer("best_part", "fragment", (1, together * own), "int64"), I, J)
        body.append(assembly.stores((rank, mask_dead(inside, Load(workspace, *at), NO_ELEMENT))))
        body.append(JoinBest(best.name, rank.name))
    return Loop(PARTS_OF_TILE, Integer(-(-segments // together)), 0, tuple(body), pipelined=False)


def without_fills(body: Iterable[Statement], buffers: Collection[str]) -> list[Statement]:
    """The statements but those that fill these buffers."""
    return [one for one in body if not (isinstance(one, Fill) and one.buffer in buffers)]
