"""Name the numbers of an element that only its later stores read, in loops that have many.

parallel i, j: a[i, j] = f; b[i, j] = g(a[i, j])   →   parallel i, j: a = f; b[i, j] = g(a)

Exact: a is stored once, and read at its own element alone, after that. TileLang finds a layout for every buffer, in a
time that grows faster than their number: the kernel of a moment of inertia, with 70 such numbers, compiles in a tenth
of the time.

These stay as they are:
    the numbers of a kernel that has few: they cost nothing
    those of a loop over one element, whose layout is plain
    those from which a tile in shared memory is made ahead of all loops: elements among which a centre is found
    a number of which another takes a part off again: TileLang looks through names, and makes (s + x) − s an x, which a
        compensated sum must not lose
    a number whose text would be long: TileLang writes out a name that reads no buffer wherever it stands, and goes
        through a condition at every turn
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import takewhile
from typing import Any

from sympy import Add, Expr, S, preorder_traversal
from sympy.core.basic import Basic

from redalg.expression.contents import of_kind
from redalg.lower_tile.ir.program import (
    Kernel,
    Last,
    Loop,
    Parallel,
    Statement,
    Store,
    map_statement,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import IsFinite, Kept, Load
from redalg.strategies.plan import Plan

MANY, MOST_TERMS, LONGEST = 16, 256, 16
"""Such numbers of a kernel from which they have names, the terms of a sum that are compared, and the numbers that a
name may stand for: names within names grow as powers do."""


def name_elements(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel with names for numbers of elements, if it has many."""
    statements = nested_statements(kernel.body)
    loops = [one for one in statements if isinstance(one, Parallel)]
    elsewhere = {name for statement in statements for name in mentions(statement)}
    owners = Counter(name for loop in loops for name in {load.name for load in loads_of(loop)} | stored_buffers(loop))
    tiles = (one for one in kernel.buffers if one.scope == "fragment" and one.shape != (1,))
    fragments = {one.name for one in tiles if one.dtype == "float32"}
    free = {name for name in fragments - elsewhere if owners[name] == 1}
    shared = {one.name for one in kernel.buffers if one.scope == "shared"}
    ahead = set(takewhile(lambda statement: not isinstance(statement, Loop), kernel.body))
    many = [loop for loop in loops if loop not in ahead or not stored_buffers(loop) & shared]
    named = {name for loop in many for name in names_of_loop(loop, free)}
    if len(named) < MANY:
        return kernel

    def without_indices(node: Basic) -> Basic:
        loads = {load: Load(load.name) for load in node.atoms(Load) if load.name in named}
        return node.xreplace(loads) if loads else node

    def rename(statement: Statement) -> Statement:
        if isinstance(statement, Loop | Last):
            return replace(statement, body=tuple(map(rename, statement.body)))
        if not isinstance(statement, Parallel):
            return statement
        loop: Any = map_statement(statement, without_indices)
        stores = (replace(one, indices=()) if one.target in named else one for one in loop.body)
        return replace(loop, body=tuple(stores))

    buffers = (replace(one, scope="element", shape=()) if one.name in named else one for one in kernel.buffers)
    return replace(kernel, body=tuple(map(rename, kernel.body)), buffers=tuple(buffers))


def names_of_loop(loop: Parallel, free: Set[str]) -> set[str]:
    """The numbers of a loop's elements that may have names: what is read alone, and no part of which is taken off."""
    named = elements_of_loop(loop) & free
    meaning = {store.target: store.expr for store in loop.body if store.target in named}
    sums = [node for store in loop.body for top in (store.expr, *(one for _, one in store.once))
            for node in top.atoms(Add)]  # fmt: skip
    named -= {name for node in sums for name in cancelled_names(node, meaning)}
    return named - long_names(loop, named)


def long_names(loop: Parallel, named: Set[str]) -> set[str]:
    """The names whose text would be long where TileLang writes them out: those that read no buffer, in each other."""
    lengths, found = dict[str, int](), set[str]()
    for store in loop.body:
        found |= {name for name in names_asked(store) if 2 * lengths.get(name, 0) > LONGEST}
        if store.target in named:
            reads = [node.name for node in preorder_traversal(store.expr) if isinstance(node, Load)]
            written_out = all(name in named - found for name in reads)
            lengths[store.target] = sum(lengths[name] for name in reads) if written_out else 1
            if lengths[store.target] > LONGEST:
                found.add(store.target)
    return found


def names_asked(store: Store) -> Iterator[str]:
    """Yield the numbers of which a store asks if they are finite: the condition has each twice."""
    for condition in store.expr.atoms(IsFinite):
        yield from (load.name for load in condition.atoms(Load))


def cancelled_names(total: Expr, meaning: Mapping[str, Basic]) -> set[str]:
    """The names through which two terms of a sum are seen to cancel."""
    through: dict[Basic, set[str]] = {}
    found = set[str]()
    for count, (term, names) in enumerate(written_terms(total, meaning)):
        if count == MOST_TERMS:  # too many to tell
            return {load.name for load in total.atoms(Load)}
        if -term in through:
            found |= names | through[-term]
        through[term] = through.get(term, set()) | names
    return found


def written_terms(total: Basic, meaning: Mapping[str, Basic]) -> Iterator[tuple[Expr, set[str]]]:
    """The terms of a sum, with sums under names written out; each with the names that it was found through."""
    todo: list[tuple[Basic, int, set[str]]] = [(total, 1, set())]
    while todo:
        node, sign, names = todo.pop()
        coefficient, rest = node.as_coeff_Mul() if isinstance(node, Expr) else (S.One, node)
        plain = coefficient in (S.One, S.NegativeOne)
        if plain and isinstance(rest, Load) and rest.name in meaning:
            inner, more = meaning[rest.name], names | {rest.name}
        else:
            inner, more = rest, names
        inner = inner.args[0] if isinstance(inner, Kept) else inner
        if plain and isinstance(inner, Add):
            todo += [(term, sign * int(coefficient), more) for term in inner.args]
        else:
            yield sign * node, names


def elements_of_loop(loop: Parallel) -> set[str]:
    """The buffers that the loop stores once, at its own element, and reads there alone and later."""
    here = tuple(variable for variable, _ in loop.indices)
    stored = Counter(store.target for store in loop.body)
    found, seen, early = set[str](), set[str](), set[str]()
    for store in loop.body:
        early |= {load.name for load in loads_of_store(store) if load.name not in seen or load.indices != here}
        seen.add(store.target)
        if stored[store.target] == 1 and store.indices == here and store.guard is S.true:
            found.add(store.target)
    return found - early


def loads_of_store(store: Store) -> Iterator[Load]:
    """Yield the reads of a store."""
    yield from of_kind(Load, store.expr, store.guard, *store.indices, *(node for _, node in store.once))


def loads_of(loop: Parallel) -> Iterator[Load]:
    """Yield the reads of a loop."""
    for store in loop.body:
        yield from loads_of_store(store)


def stored_buffers(loop: Parallel) -> set[str]:
    """The buffers that a loop stores."""
    return {store.target for store in loop.body}


def mentions(statement: Statement) -> set[str]:
    """The names in a statement that is no elementwise loop, without those in its body."""
    if isinstance(statement, Parallel):
        return set()
    if isinstance(statement, Loop):
        return {load.name for node in (statement.start, statement.stop) for load in node.atoms(Load)}
    if isinstance(statement, Last):
        return {statement.counter, statement.flag}
    return set(re.findall(r"\w+", str(statement)))
