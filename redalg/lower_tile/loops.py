"""Loops of one step, which are no loops.

for t < 1: A   →   A with t := 0        exact: the body runs once, at 0 (MCFuser's dead loops)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sympy import Expr, S, Symbol

from redalg.lower_tile.program import Copy, Loop, Parallel, Region, Statement, Store


def without_single_steps(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements with the body of every loop of one step in its place, within loops too."""
    out: list[Statement] = []
    for one in body:
        if not isinstance(one, Loop):
            out.append(one)
            continue
        inner = without_single_steps(one.body)
        if one.stop == 1:
            out += [at(statement, one.variable, S.Zero) for statement in inner]
        else:
            out.append(replace(one, body=inner))
    return tuple(out)


def at(one: Statement, variable: Symbol, value: Expr) -> Statement:
    """A statement with a loop's variable replaced by a value."""
    if isinstance(one, Copy):
        return Copy(*(_region(side, variable, value) for side in (one.source, one.target)))
    if isinstance(one, Parallel):
        return replace(one, body=tuple(_store(store, variable, value) for store in one.body))
    if isinstance(one, Loop):
        stop = one.stop.xreplace({variable: value})
        return replace(one, stop=stop, body=tuple(at(inner, variable, value) for inner in one.body))
    return one


def _region(side: Region | str, variable: Symbol, value: Expr) -> Any:
    if isinstance(side, str):
        return side
    put = {variable: value}
    place = ((p[0].xreplace(put), p[1]) if isinstance(p, tuple) else p.xreplace(put) for p in side.place)
    return Region(side.name, tuple(place))


def _store(store: Store, variable: Symbol, value: Expr) -> Store:
    put = {variable: value}
    guard = None if store.guard is None else store.guard.xreplace(put)
    indices = tuple(index.xreplace(put) for index in store.indices)
    return Store(store.target, indices, store.expr.xreplace(put), None if guard == S.true else guard)
