"""Ask of the last turn alone if a row has its elements, where a sum goes in turns over a row in shared memory.

for turn < T: f[w, l] += where(at(turn, w, l) < n, g, 0)
→   for turn < F: f[w, l] += g;   f[w, l] += where(at(F, w, l) < n, g, 0)          at(turn, …) < n for every turn < F

Exact: the same terms in the same order. The compiler unrolls the loop as it sees fit (H200, bfloat16, softmaxes of 4096
x 32000 in 256 threads in 0.87 of the time of a condition in every turn, of 2048 x 50264 in 512 threads 0.92).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sympy import Add, Expr, Integer, Lt, S, Symbol, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.lower_tile.ir.mentions import names_in, tiles_in_bulk
from redalg.lower_tile.ir.program import Bind, Kernel, Loop, Parallel, Statement, map_statement
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.lower_tile.passes.kept_terms import where_inside
from redalg.lower_tile.passes.turn_terms import loop_in_turns
from redalg.strategies.plan import Plan


def split_turns(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel whose turns over rows that are fetched in bulk ask for no element that every row has."""
    tiles = tiles_in_bulk(kernel)
    if not tiles:
        return kernel
    body, least = list[Statement](), least_numbers(kernel)
    for statement in kernel.body:
        turns = loop_in_turns(statement)
        if turns is not None and names_in(turns) & tiles:
            body += whole_and_last(turns, least)
        else:
            body.append(statement)
    return replace(kernel, body=tuple(body))


def least_numbers(kernel: Kernel) -> dict[Basic, Basic]:
    """The numbers that a kernel binds of a block's place in its cluster -> the least of all blocks: the last one's."""
    if kernel.cluster == 1:
        return {}
    last = {kernel.grid[0][0]: Integer(kernel.cluster - 1)}
    bound = {Load(one.name): one.value.xreplace(last) for one in kernel.body if isinstance(one, Bind)}
    return {name: value for name, value in bound.items() if value.is_number}


def whole_and_last(turns: Loop, least: Mapping[Basic, Basic]) -> Iterator[Statement]:
    """Yield the turns in which rows have all elements, and each of the others.

    `least`: numbers -> the least that they are.
    """
    [each] = turns.body
    if not isinstance(each, Parallel):
        raise AssertionError(f"`{turns}` is no loop of turns")
    conditions = {where.condition for store in each.body for where in store.expr.atoms(Where)}
    bounds = frozenset(one for one in conditions if grows(one.xreplace(least), turns, each))
    last = {name: Integer(extent - 1) for name, extent in each.indices}
    count = int(turns.stop)
    whole = min((turns_of(one.xreplace(least), turns, last) for one in bounds), default=count)
    if whole:
        stores = (replace(store, expr=where_inside(as_terms(store.expr), bounds)) for store in each.body)
        yield replace(turns, stop=Integer(whole), body=(replace(each, body=tuple(stores)),), unrolled=1)
    for turn in range(whole, count):
        yield at_turn(each, turns.variable, turn)


def as_terms(expr: Expr) -> Expr:
    """An expression whose masked sums stay one term each: f + (x − c) is not (f + x) − c, which rounds at x."""
    terms: Expr = expr.replace(
        lambda node: isinstance(node, Where) and isinstance(node.args[1], Add),
        lambda node: Where(node.condition, Kept(node.args[1]), node.args[2]),
    )
    return terms


def at_turn(statement: Statement, variable: Symbol, turn: int) -> Statement:
    """A statement of a loop in the turn of this number."""
    return map_statement(statement, lambda node: node.xreplace({variable: Integer(turn)}))


def turns_of(condition: Boolean, turns: Loop, last: Mapping[Symbol, Expr]) -> int:
    """The turns from the first on in which a condition that grows holds of every element."""
    count = int(turns.stop)
    fails = (turn for turn in range(count) if condition.xreplace({**last, turns.variable: Integer(turn)}) != S.true)
    return next(fails, count)


def grows(condition: Boolean, turns: Loop, each: Parallel) -> bool:
    """Tell if a condition bounds a place by a number, and the place grows with every index."""
    if not isinstance(condition, Lt) or not condition.rhs.is_number or condition.lhs.has(Load):
        return False
    own = {turns.variable, *(name for name, _ in each.indices)}
    terms = condition.lhs.as_coefficients_dict()
    plain = all(one.is_number or isinstance(one, Symbol | floor) for one in terms)
    return plain and condition.lhs.free_symbols <= own and all(one >= 0 for one in terms.values())
