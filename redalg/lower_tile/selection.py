"""The best elements with their places: one integer an element, which orders as the monoid does.

    (x, n) as an integer     order of x's bits, then not n: NaN first, larger x, then lower n; no element is the least
    argmax, k = 1            best = max(best, max_j (x, n)[i, j])
    k places                 for nth < k: top = the largest of tile and old places; best[nth] = top; both lose it

Different elements are different integers, since their places are: removing one removes no other, and merging is a
maximum, in any order of merging.
"""

from __future__ import annotations

from sympy import Eq, Expr, Integer, Max, S

from redalg.errors import PlanError
from redalg.expression import Where
from redalg.incremental.form import FusedForm, Structure
from redalg.incremental.structured import lifted
from redalg.lower_tile.assembly import Assembly, masked
from redalg.lower_tile.program import NO_ELEMENT, Copy, Fill, Loop, Parallel, ReduceTile, Statement, Store, index
from redalg.lower_tile.scalars import Load, Ranked, RankedIndex, RankedValue
from redalg.lower_tile.space import PLACE, I, J, Space
from redalg.strategies import Plan, Problem
from redalg.strategies.rules import power_of_two

NTH = index("nth")


def ranked(form: FusedForm, plan: Plan) -> list[Structure]:
    """The structures whose elements are ranked, of a form under a plan; those of others are joined (`folds`)."""
    return [one for one in form.structures if plan.level != "thread" and one.ranked]


def check_selections(form: FusedForm, plan: Plan, problem: Problem) -> None:
    """Refuse what a level does not hold: of lanes, several places; of ranks, 64 bits."""
    for one in form.structures:
        name, lanes = f"`{one.values[0]}` is a component of {one.monoid}", plan.level == "thread"
        if lanes and one.place is not None:
            raise PlanError(f"{name}, which keeps several elements, and the plan is `{plan}`. Use level 'block'.")
        if one in ranked(form, plan) and problem.compute != "float32":
            raise PlanError(
                f"{name}, which selects elements in {problem.compute}; kernels rank elements of 32 bits and less with "
                'their places. Pass tensors of float32 or narrower, or run it with backend="torch".'
            )


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


def held(one: Structure, assembly: Assembly, problem: Problem, wanted: str = "best") -> str:
    """A buffer for the best elements of every row."""
    shape = [assembly.plan.block_row] + ([width(one, problem)] if width(one, problem) else [])
    return assembly.buffer(wanted, "fragment", shape, "int64", note=f"{one.monoid} {one.term}")


def read(one: Structure, name: str, problem: Problem) -> tuple[Expr, Expr]:
    """(value, place) of the best elements at row i (and place)."""
    load = Load(name, I, PLACE) if width(one, problem) else Load(name, I)
    return RankedValue(load), RankedIndex(load)


def candidates(one: Structure, assembly: Assembly, space: Space, read_term: Expr, body: list[Statement]) -> str:
    """The tile's elements as integers; none where the streamed axis has ended."""
    number = space.read(lifted(one.monoid, one.operands, space.plan.binding.streamed)[1])
    name = assembly.buffer("ranked", "fragment", (space.plan.block_row, space.plan.block_streamed), "int64")
    body.append(assembly.over_tile(name, masked(space.live(S.true), Ranked(read_term, number), NO_ELEMENT)))
    return name


def selected(
    one: Structure, assembly: Assembly, problem: Problem, best: str, tile: str, *, alone: bool
) -> list[Statement]:
    """best ⊕ the elements of a tile, which it uses up; `alone` where best is empty so far."""
    if not width(one, problem):
        return [ReduceTile("max", tile, best, clear=False)]
    top = assembly.buffer("top", "fragment", (assembly.plan.block_row,), "int64")
    body: list[Statement] = []
    rounds: list[Statement] = [ReduceTile("max", tile, top, clear=True)]
    old = best
    if not alone:
        old = held(one, assembly, problem, "old")
        body.append(Copy(best, old))
        rounds.append(ReduceTile("max", old, top, clear=False))
    here = Load(top, I)
    rounds.append(over(assembly, best, Where(Eq(PLACE, NTH), here, Load(best, I, PLACE))))
    rounds += [lost(assembly, name, here) for name in ([tile] if alone else [tile, old])]
    body.append(Loop(NTH, Integer(places(one, problem)), 0, tuple(rounds), pipelined=False))
    return body


def part_of(one: Structure, assembly: Assembly, problem: Problem, source: Expr) -> tuple[str, Statement]:
    """A buffer with the best elements of a part, which `source` reads."""
    part = held(one, assembly, problem, "best_part")
    return part, over(assembly, part, source) if width(one, problem) else assembly.over_rows((part, source))


def selected_part(one: Structure, assembly: Assembly, problem: Problem, best: str, part: str) -> list[Statement]:
    """best ⊕ a part in a buffer, which it uses up."""
    if not width(one, problem):
        return [assembly.over_rows((best, Max(Load(best, I), Load(part, I))))]
    return selected(one, assembly, problem, best, part, alone=False)


def over(assembly: Assembly, name: str, expr: Expr) -> Parallel:
    """A buffer of places := an expression in i and place."""
    rows, length = shape_of(assembly, name)
    return Parallel(((I, rows), (PLACE, length)), (Store(name, (I, PLACE), expr),))


def lost(assembly: Assembly, name: str, top: Expr) -> Parallel:
    """A tile without the element that was taken."""
    rows, length = shape_of(assembly, name)
    load = Load(name, I, J)
    return Parallel(((I, rows), (J, length)), (Store(name, (I, J), Where(Eq(load, top), NO_ELEMENT, load)),))


def shape_of(assembly: Assembly, name: str) -> tuple[int, ...]:
    """The shape of a buffer."""
    return next(one.shape for one in assembly.buffers if one.name == name)


def emptied(name: str) -> Fill:
    """A buffer without elements."""
    return Fill(name, NO_ELEMENT)
