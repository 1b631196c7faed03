"""The best elements with their places: one integer for each, ordered as the monoid orders; of 64 bits, two.

    (x, n) as an integer     order of x's bits, then not n: NaN first, larger x, then lower n; no element is the least
    argmax, k = 1            best = max(best, max_j (x, n)[i, j])
    k places                 for nth < k: top = the largest of tile and old places; best[nth] = top; both lose it
    x of 64 bits             order of x's bits, and −n beside it;  top = (the largest order, the largest −n of those)

Different elements are different integers, since their places differ. So removing one removes no other, and merging is
a maximum, in any order of merging.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import And, Eq, Expr, Integer, Max, Or, S, Symbol

from redalg.errors import PlanError
from redalg.expression import Where
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.program import Copy, JoinBest, Loop, Parallel, ReduceTile, Statement, index
from redalg.lower_tile.ir.scalars import NO_ELEMENT, Load, Ordered, OrderedValue, Ranked, RankedIndex, RankedValue
from redalg.lower_tile.place.assembly import Assembly, mask_dead
from redalg.lower_tile.place.space import PLACE, I, J, Space
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.powers import power_of_two

NTH = index("nth")
MOST_PLACES = 1024
"""Places of a set, at most: each is compared with all others."""
Best = tuple[str, ...]
"""The buffers of elements: one of their ranks; or two, of the order of their values and of their negated places."""


def ranked_structures(form: FusedForm, plan: Plan) -> list[Structure]:
    """The structures of a form whose elements are ranked under a plan; elements of others are joined (`joins`)."""
    return [one for one in form.structures if one.is_ranked and not plan.keeps_states]


def check_selections(form: FusedForm, plan: Plan) -> None:
    """Refuse what a kernel cannot hold: several places in a lane, or elements along an axis that no output has."""
    known = {axis for output in form.outputs for axis in output.axes}
    for structure in form.structures:
        if loose := sorted(str(axis) for axis in {*structure.values[0].indices} - known):
            raise PlanError(
                f"`{structure.values[0]}` is kept for every {', '.join(loose)}, which no output has: it is reduced "
                "after the pass, for which a kernel has no buffer. Give it out and reduce it by another call, or use "
                "backend='torch'."
            )
        if plan.keeps_states and structure.place is not None:
            raise PlanError(
                f"`{structure.values[0]}` is a component of {structure.monoid}, which keeps several elements, and the "
                f"plan is `{plan}`. Use level 'block'."
            )


def in_two(problem: Problem) -> bool:
    """Tell if an element takes two integers: one for its value and one for its place."""
    return problem.compute == "float64"


def places(structure: Structure, problem: Problem) -> int:
    """The number of elements that a structure holds."""
    return 1 if structure.place is None else problem.sizes[structure.place.name]


def row_width(structure: Structure, problem: Problem) -> int:
    """The number of elements in a row of its buffer, padded for tile reductions; 0 if a row holds a single number."""
    return padded_places(places(structure, problem)) if places(structure, problem) > 1 else 0


def padded_places(k: int) -> int:
    """The least power of two that is at least k, and at least the 16 threads that a row has on CUDA cores.

    >>> padded_places(6), padded_places(17)
    (16, 32)
    """
    return max(16, power_of_two(k))


def is_set(structure: Structure, plan: Plan, problem: Problem) -> bool:
    """Tell if a loop keeps several elements of the block's only row, to which it joins whole tiles (`sets`)."""
    several = plan.block_row == 1 and 0 < row_width(structure, problem) <= MOST_PLACES
    return several and plan.level == "block" and not in_two(problem)


def best_buffers(
    structure: Structure, assembly: Assembly, problem: Problem, wanted: str = "best", scope: str = "fragment"
) -> Best:  # fmt: skip
    """Allocate the buffers for the best elements of every row."""
    shape = [assembly.plan.block_row] + ([row_width(structure, problem)] if row_width(structure, problem) else [])
    return tuple(assembly.buffer(name, scope, shape, "int64", f"{structure.monoid} {structure.term}",
                                 slot=structure.values[0].name)
                 for name in names_of_best(problem, wanted))  # fmt: skip


def names_of_best(problem: Problem, wanted: str) -> tuple[str, ...]:
    """The names of the buffers for elements."""
    return (wanted, f"{wanted}_place") if in_two(problem) else (wanted,)


def buffers(assembly: Assembly, shape: Sequence[int], problem: Problem, wanted: str) -> Best:
    """Allocate the buffers for elements."""
    return tuple(assembly.buffer(name, "fragment", shape, "int64") for name in names_of_best(problem, wanted))


def read_best(structure: Structure, names: Best, problem: Problem) -> tuple[Expr, Expr]:
    """(value, place) of the best elements, read at row i (and at index `place`)."""
    rank, *place = (Load(name, I, PLACE) if row_width(structure, problem) else Load(name, I) for name in names)
    if not place:
        return RankedValue(rank), RankedIndex(rank)
    return OrderedValue(rank), Where(Eq(rank, NO_ELEMENT), Integer(-1), -place[0])


def tile_elements(assembly: Assembly, space: Space, parts: Sequence[Expr], body: list[Statement]) -> list[Load]:
    """The buffers of a tile's elements (value, place) as integers; `NO_ELEMENT` past the end of the streamed axis."""
    read_term, number = parts
    shape = (space.plan.block_row, space.plan.block_streamed)
    names = buffers(assembly, shape, space.problem, "ranked")
    elements = (Ordered(read_term), -number) if in_two(space.problem) else (Ranked(read_term, number),)
    loads = [Load(name, I, J) for name in names]
    for load, element in zip(loads, elements, strict=True):
        body.append(assembly.stores((load, mask_dead(space.live(S.true), element, NO_ELEMENT))))
    return loads


def select_best(
    structure: Structure, assembly: Assembly, problem: Problem, best: Best, tile: Best, *, alone: bool
) -> list[Statement]:
    """best := best ⊕ the elements of a tile, whose buffers it overwrites; `alone` if best is empty so far."""
    single = not row_width(structure, problem)
    if single and not in_two(problem):
        return [ReduceTile("max", tile[0], best[0], clear=False)]
    if single:
        rounds, here = take_top([tile], assembly, problem)
        return [*rounds, keep_larger(assembly, best, here)]
    if alone and is_set(structure, assembly.plan, problem):
        state, width = Load(best[0], I, PLACE), row_width(structure, problem)
        joined = JoinBest(best[0], tile[0])
        return [begin_set(assembly, state, width), joined, finish_set(assembly, state, width)]
    if alone:
        return [take_in_turn(structure, assembly, problem, best, [tile])]
    old = best_buffers(structure, assembly, problem, "old")
    copies = [Copy(*pair) for pair in zip(best, old, strict=True)]
    return [*copies, take_in_turn(structure, assembly, problem, best, [tile, old])]


def begin_set(assembly: Assembly, best: Load, width: int) -> Statement:
    """best := `width` different integers in order, less than every element and more than none."""
    return fill_buffer(assembly, best.name, NO_ELEMENT + (width - PLACE))


def finish_set(assembly: Assembly, best: Load, width: int) -> Statement:
    """best := itself, and no element at the places that are left."""
    return fill_buffer(assembly, best.name, Where(best > NO_ELEMENT + width, best, NO_ELEMENT))


def take_in_turn(
    structure: Structure, assembly: Assembly, problem: Problem, best: Best, sources: Sequence[Best]
) -> Loop:
    """best := the best elements of all sources, one a round and in order; a source loses what is taken."""
    rounds, here = take_top(sources, assembly, problem)
    rounds += [fill_buffer(assembly, name, Where(Eq(PLACE, NTH), element, Load(name, I, PLACE)))
               for name, element in zip(best, here, strict=True)]  # fmt: skip
    rounds += [remove_best(assembly, source, here) for source in sources]
    return Loop(NTH, Integer(places(structure, problem)), 0, tuple(rounds), pipelined=False)


def take_top(sources: Sequence[Best], assembly: Assembly, problem: Problem) -> tuple[list[Statement], tuple[Load, ...]]:
    """The statements that find the best element of all sources, and where it lies then."""
    top = buffers(assembly, (assembly.plan.block_row,), problem, "top")
    here = tuple(Load(name, I) for name in top)
    rounds = largest([source[0] for source in sources], top[0])
    if in_two(problem):
        among = [among_equal(assembly, source, here[0], rounds) for source in sources]
        rounds += largest(among, top[1])
    return rounds, here


def keep_larger(assembly: Assembly, best: Best, other: Sequence[Expr]) -> Parallel:
    """best := the larger of itself and another element, for every row.

    The place is stored first, since the old value decides it.
    """
    first, *place = (Load(name, I) for name in best)
    whole = (first, Max(first, other[0]))
    if not place:
        return assembly.stores(whole)
    follows = Or(other[0] > first, And(Eq(other[0], first), other[1] > place[0]))
    return assembly.stores((place[0], Where(follows, other[1], place[0])), whole)


def largest(sources: Sequence[str], into: str) -> list[Statement]:
    """One number for every row of `into` := the largest number in that row of all `sources`."""
    return [ReduceTile("max", name, into, clear=number == 0) for number, name in enumerate(sources)]


def among_equal(assembly: Assembly, source: Best, top: Expr, body: list[Statement]) -> str:
    """A buffer of the places of the elements with the largest value; `NO_ELEMENT` for all others."""
    order, place = source
    name = assembly.buffer(f"{place}_of_top", "fragment", assembly.shape(place), "int64")
    places_of_top = Where(Eq(Load(order, I, J), top), Load(place, I, J), NO_ELEMENT)
    body.append(fill_buffer(assembly, name, places_of_top, J))
    return name


def take_best(
    structure: Structure, assembly: Assembly, problem: Problem, best: Sequence[Load], other: Sequence[Load], *,
    alone: bool = False,
) -> list[Statement]:  # fmt: skip
    """best := best ⊕ the elements of a tile or of another state, whose buffers it overwrites.

    `alone`: best is empty so far.
    """
    names = tuple(load.name for load in best)
    if other[0].indices == (I,):
        return [keep_larger(assembly, names, other)]
    return select_best(structure, assembly, problem, names, tuple(load.name for load in other), alone=alone)


def fill_buffer(assembly: Assembly, name: str, expr: Expr, along: Symbol = PLACE) -> Parallel:
    """A buffer := an expression in i and place (or j)."""
    return assembly.stores((Load(name, I, along), expr))


def remove_best(assembly: Assembly, names: Best, top: tuple[Expr, ...]) -> Parallel:
    """The statement that removes the taken element, `top`, from a tile."""
    loads = [Load(name, I, J) for name in names]
    is_top = And(*(Eq(load, one) for load, one in zip(loads, top, strict=True)))
    return fill_buffer(assembly, names[0], Where(is_top, NO_ELEMENT, loads[0]), J)
