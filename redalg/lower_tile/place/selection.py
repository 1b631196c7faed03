"""The best elements with their places: one integer an element, which orders as the monoid does; of 64 bits, two.

    (x, n) as an integer     order of x's bits, then not n: NaN first, larger x, then lower n; no element is the least
    argmax, k = 1            best = max(best, max_j (x, n)[i, j])
    k places                 for nth < k: top = the largest of tile and old places; best[nth] = top; both lose it
    x of 64 bits             order of x's bits, and −n beside it;  top = (the largest order, the largest −n of those)

Different elements are different integers, since their places are: removing one removes no other, and merging is a
maximum, in any order of merging.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import And, Eq, Expr, Integer, Max, Or, S, Symbol

from redalg.errors import PlanError
from redalg.expression import Where
from redalg.incremental.arrays.structured import lifted
from redalg.incremental.form import FusedForm, Structure
from redalg.lower_tile.ir.program import NO_ELEMENT, Copy, Fill, Loop, Parallel, ReduceTile, Statement, Store, index
from redalg.lower_tile.ir.scalars import Load, Ordered, OrderedValue, Ranked, RankedIndex, RankedValue
from redalg.lower_tile.place.assembly import Assembly, masked
from redalg.lower_tile.place.space import PLACE, I, J, Space
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.rules import power_of_two

NTH = index("nth")
Best = tuple[str, ...]
"""The buffers of elements: of their ranks; or of the order of their values, and of their places less than 0."""


def ranked(form: FusedForm, plan: Plan) -> list[Structure]:
    """The structures whose elements are ranked, of a form under a plan; those of others are joined (`folds`)."""
    return [one for one in form.structures if plan.level != "thread" and one.ranked]


def check_selections(form: FusedForm, plan: Plan) -> None:
    """Refuse what a kernel does not hold: several places in a lane, elements along an axis that no output has."""
    known = {axis for output in form.outputs for axis in output.axes}
    for one in form.structures:
        if loose := sorted(str(axis) for axis in {*one.values[0].indices} - known):
            raise PlanError(
                f"`{one.values[0]}` is kept for every {', '.join(loose)}, which no output has: it is reduced after the "
                "pass, for which a kernel has no buffer. Give it out and reduce it by another call, or use "
                "backend='torch'."
            )
        if plan.level == "thread" and one.place is not None:
            raise PlanError(
                f"`{one.values[0]}` is a component of {one.monoid}, which keeps several elements, and the plan is "
                f"`{plan}`. Use level 'block'."
            )


def in_two(problem: Problem) -> bool:
    """Whether a value and its place are an integer each."""
    return problem.compute == "float64"


def places(one: Structure, problem: Problem) -> int:
    """How many elements a structure holds."""
    return 1 if one.place is None else problem.sizes[one.place.name]


def width(one: Structure, problem: Problem) -> int:
    """How many elements its buffer holds, as wide as tile reductions take; 0 where it is a number for every row."""
    return padded_places(places(one, problem)) if places(one, problem) > 1 else 0


def padded_places(k: int) -> int:
    """A power of two, of at least the 16 threads that a row has on CUDA cores.

    >>> padded_places(6), padded_places(17)
    (16, 32)
    """
    return max(16, power_of_two(k))


def held(one: Structure, assembly: Assembly, problem: Problem, wanted: str = "best") -> Best:
    """Buffers for the best elements of every row."""
    shape = [assembly.plan.block_row] + ([width(one, problem)] if width(one, problem) else [])
    return buffers(assembly, shape, problem, wanted, note=f"{one.monoid} {one.term}")


def buffers(assembly: Assembly, shape: Sequence[int], problem: Problem, wanted: str, note: str = "") -> Best:
    """Buffers for elements."""
    wanted_all = (wanted, f"{wanted}_place") if in_two(problem) else (wanted,)
    return tuple(assembly.buffer(name, "fragment", shape, "int64", note) for name in wanted_all)


def read(one: Structure, names: Best, problem: Problem) -> tuple[Expr, Expr]:
    """(value, place) of the best elements at row i (and place)."""
    rank, *place = (Load(name, I, PLACE) if width(one, problem) else Load(name, I) for name in names)
    if not place:
        return RankedValue(rank), RankedIndex(rank)
    return OrderedValue(rank), Where(Eq(rank, NO_ELEMENT), Integer(-1), -place[0])


def candidates(one: Structure, assembly: Assembly, space: Space, read_term: Expr, body: list[Statement]) -> Best:
    """The tile's elements as integers; none where the streamed axis has ended."""
    number = space.read(lifted(one.monoid, one.operands, space.plan.binding.streamed)[1])
    shape = (space.plan.block_row, space.plan.block_streamed)
    made = buffers(assembly, shape, space.problem, "ranked")
    elements = (Ordered(read_term), -number) if in_two(space.problem) else (Ranked(read_term, number),)
    for name, element in zip(made, elements, strict=True):
        body.append(assembly.over_tile(name, masked(space.live(S.true), element, NO_ELEMENT)))
    return made


def selected(
    one: Structure, assembly: Assembly, problem: Problem, best: Best, tile: Best, *, alone: bool
) -> list[Statement]:
    """best ⊕ the elements of a tile, which it uses up; `alone` where best is empty so far."""
    single = not width(one, problem)
    if single and not in_two(problem):
        return [ReduceTile("max", tile[0], best[0], clear=False)]
    body, sources = list[Statement](), [tile]
    top = buffers(assembly, (assembly.plan.block_row,), problem, "top")
    if not alone and not single:
        sources.append(held(one, assembly, problem, "old"))
        body += [Copy(*pair) for pair in zip(best, sources[1], strict=True)]
    rounds = largest([source[0] for source in sources], top[0])
    here = tuple(Load(name, I) for name in top)
    if in_two(problem):
        among = [among_equal(assembly, source, here[0], rounds) for source in sources]
        rounds += largest(among, top[1])
    if single:
        return [*body, *rounds, larger(assembly, best, here)]
    rounds += [over(assembly, name, Where(Eq(PLACE, NTH), found, Load(name, I, PLACE)))
               for name, found in zip(best, here, strict=True)]  # fmt: skip
    rounds += [lost(assembly, source, here) for source in sources]
    body.append(Loop(NTH, Integer(places(one, problem)), 0, tuple(rounds), pipelined=False))
    return body


def larger(assembly: Assembly, best: Best, other: Sequence[Expr]) -> Parallel:
    """best := the larger of itself and another element, of every row; the place first, which the old value decides."""
    held, *place = (Load(name, I) for name in best)
    whole = (best[0], Max(held, other[0]))
    if not place:
        return assembly.over_rows(whole)
    follows = Or(other[0] > held, And(Eq(other[0], held), other[1] > place[0]))
    return assembly.over_rows((best[1], Where(follows, other[1], place[0])), whole)


def largest(sources: Sequence[str], into: str) -> list[Statement]:
    """A number a row := the largest of buffers."""
    return [ReduceTile("max", name, into, clear=number == 0) for number, name in enumerate(sources)]


def among_equal(assembly: Assembly, source: Best, top: Expr, body: list[Statement]) -> str:
    """A buffer of the places of those elements alone whose values are the largest."""
    order, place = source
    made = assembly.buffer(f"{place}_of_top", "fragment", shape_of(assembly, place), "int64")
    found = Where(Eq(Load(order, I, J), top), Load(place, I, J), NO_ELEMENT)
    body.append(over(assembly, made, found, J))
    return made


def part_of(
    one: Structure, assembly: Assembly, problem: Problem, sources: Sequence[Expr]
) -> tuple[Best, list[Statement]]:
    """Buffers with the best elements of a part, which `sources` read."""
    part = held(one, assembly, problem, "best_part")
    pairs = zip(part, sources, strict=True)
    if not width(one, problem):
        return part, [assembly.over_rows(*pairs)]
    return part, [over(assembly, *pair) for pair in pairs]


def selected_part(one: Structure, assembly: Assembly, problem: Problem, best: Best, part: Best) -> list[Statement]:
    """best ⊕ a part in buffers, which it uses up."""
    if not width(one, problem):
        return [larger(assembly, best, [Load(name, I) for name in part])]
    return selected(one, assembly, problem, best, part, alone=False)


def over(assembly: Assembly, name: str, expr: Expr, along: Symbol = PLACE) -> Parallel:
    """A buffer := an expression in i and place (or j)."""
    rows, length = shape_of(assembly, name)
    return Parallel(((I, rows), (along, length)), (Store(name, (I, along), expr),))


def lost(assembly: Assembly, names: Best, top: tuple[Expr, ...]) -> Parallel:
    """A tile without the element that was taken."""
    loads = [Load(name, I, J) for name in names]
    taken = And(*(Eq(load, one) for load, one in zip(loads, top, strict=True)))
    return over(assembly, names[0], Where(taken, NO_ELEMENT, loads[0]), J)


def shape_of(assembly: Assembly, name: str) -> tuple[int, ...]:
    """The shape of a buffer."""
    return next(one.shape for one in assembly.buffers if one.name == name)


def emptied(names: Best) -> list[Statement]:
    """Buffers without elements."""
    return [Fill(name, NO_ELEMENT) for name in names]
