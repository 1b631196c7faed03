"""Compute the terms of a sum that goes in turns where they are added, and sums of the same turns in one loop.

t[0, j] = g(x[0, j]);  for turn: f[w, l] += t[0, W·turn + L·w + l]   →   for turn: f[w, l] += g(x[0, W·turn + L·w + l])
for turn: f += g;  r = Σ_l f;  for turn: h += k                      →   for turn: (f += g; h += k);  r = Σ_l f

Exact: the same terms in the same order, each rounded as it was before it is added. The first where nothing else reads
t, and g reads registers alone; the second where k reads no r. A thread then keeps the elements of its row as they were
loaded, and not their terms beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sympy import Add, Expr, S

from redalg.lower_tile.ir.mentions import names_in, names_stored_by, tiles_in_bulk
from redalg.lower_tile.ir.program import Copy, Fill, Kernel, Loop, Parallel, ReduceTile, Statement
from redalg.lower_tile.ir.scalars import Kept, Load
from redalg.strategies.plan import Plan

STORED_AND_READ = 2
"""The statements that name a tile which one of them alone reads."""


def terms_in_turns(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel whose sums in turns compute their terms, and share a loop."""
    registers = frozenset(one.name for one in kernel.buffers if one.scope == "fragment")
    used = Counter(name for statement in kernel.body for name in names_in(statement))
    if tiles := tiles_in_bulk(kernel):
        registers |= tiles | used.keys() - {one.name for one in kernel.buffers}
    body = list[Statement]()
    for statement in kernel.body:
        turns = loop_in_turns(statement)
        place = None if turns is None else _place_of_terms(turns, body, registers, used)
        if turns is not None and place is not None:
            turns = _with_terms(turns, body.pop(place))
        body.append(statement if turns is None else turns)
        if turns is not None:
            _join_last(body)
    left = {name for statement in body for name in names_in(statement)}
    gone = {name for name in used if name not in left}
    buffers = tuple(one for one in kernel.buffers if one.name not in gone)
    return replace(kernel, buffers=buffers, body=tuple(body))


def loop_in_turns(statement: Statement) -> Loop | None:
    """The loop over turns of a thread's own elements, unrolled, with one loop over the narrower tile in it."""
    is_turns = isinstance(statement, Loop) and statement.unrolled > 1 and not statement.pipelined
    if not is_turns or not isinstance(statement, Loop) or len(statement.body) != 1:
        return None
    return statement if isinstance(statement.body[0], Parallel) and len(statement.body[0].indices) > 1 else None


def _place_of_terms(
    turns: Loop, body: Sequence[Statement], registers: frozenset[str], used: Counter[str]
) -> int | None:
    """The place of the loop that computes the terms for these turns alone, of registers that nothing stores since."""
    stored = set[str]()
    for place in range(len(body) - 1, -1, -1):
        before = body[place]
        if isinstance(before, Parallel) and len(before.body) == 1 and len(before.indices) > 1:
            [store] = before.body
            reads = {load.name for load in store.expr.atoms(Load)}
            if store.target in names_in(turns):
                own = store.guard == S.true and before.guard == S.true
                alone = used[store.target] == STORED_AND_READ and store.target not in reads
                return place if own and alone and reads <= registers and not reads & stored else None
        stored |= names_stored_by(before)
    return None


def _with_terms(turns: Loop, terms: Statement) -> Loop:
    """The turns with the terms of a tile in the place of its elements."""
    if not isinstance(terms, Parallel) or not isinstance(turns.body[0], Parallel):
        raise AssertionError(f"`{terms}` computes no terms")
    [store], each = terms.body, turns.body[0]

    def term(read: Load) -> Expr:
        found: Expr = store.expr.xreplace(dict(zip(store.indices, read.indices, strict=True)))
        return Kept(found) if isinstance(found, Add) else found

    def with_terms(expr: Expr) -> Expr:
        reads = (read for read in expr.atoms(Load) if read.name == store.target)
        found: Expr = expr.xreplace({read: term(read) for read in reads})
        return found

    stores = tuple(replace(added, expr=with_terms(added.expr)) for added in each.body)
    return replace(turns, body=(replace(each, body=stores),))


def _join_last(body: list[Statement]) -> None:
    """Join the last loop over turns with one before it, if nothing between stores what it reads."""
    last, empty = body[-1], body[-2] if len(body) > 1 else None
    if not isinstance(last, Loop) or not isinstance(empty, Fill):
        return
    stored = set[str]()
    for place in range(len(body) - 3, -1, -1):
        before = body[place]
        first = loop_in_turns(before)
        if first is not None:
            joined = _in_one_loop(first, last) if not stored & names_in(last) else None
            if joined is not None:
                body[place : place + 1] = [empty, joined]
                del body[-2:]
            return
        if not isinstance(before, ReduceTile | Copy | Fill | Parallel):
            return
        stored |= names_stored_by(before)


def _in_one_loop(first: Loop, second: Loop) -> Loop | None:
    """One loop for two over the same turns of the same tile."""
    each, other = first.body[0], second.body[0]
    alike = (first.variable, first.start, first.stop) == (second.variable, second.start, second.stop)
    if not isinstance(each, Parallel) or not isinstance(other, Parallel) or not alike or each.indices != other.indices:
        return None
    return replace(first, body=(replace(each, body=(*each.body, *other.body)),))
