"""Read in an output what a sum's terms were made of, where one tile holds the row.

t[i, j] = exp(x[i, j] − m[i]);  s[i] = Σ_j t[i, j];  out[i, j] = exp(x[i, j] − r[i])/s[i],  r = m
→   t[i, j] = exp(x[i, j] − m[i]);  s[i] = Σ_j t[i, j];  out[i, j] = t[i, j]/s[i]

u[i, j] = where(c, x[i, j], −∞);  m = max of u;  s of u;  out[i, j] = x[i, j] − r[i] if c
→   u[i, j] = where(c, x[i, j], −∞);  m = max of u;  s of u;  out[i, j] = u[i, j] − r[i] if c

Exact: names that are stored once stand for what they are stored as, and nothing that either reads is stored between the
two. A mask that the output's guard implies holds in the terms too. A thread keeps a register for each element, of the
exponentials or of what it takes their sum of, and none of the elements beside them; where it has more than `MOST_KEPT`
exponentials, the compiler would keep them in memory (H200, bfloat16, softmaxes: 4096 x 1024 in 0.86 of the time, 8192 x
8192 0.94, 4096 x 16384 0.90).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import final

from sympy import And, Expr, S, exp
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.expression.dtypes import DTYPES, is_float
from redalg.lower_tile.ir.mentions import names_in, names_stored_by, names_with_one_store, tiles_in_bulk
from redalg.lower_tile.ir.program import Kernel, Parallel, Statement, Store, nested_statements
from redalg.lower_tile.ir.scalars import Load, ScaledExp
from redalg.strategies.plan import Plan

MOST_KEPT = 64
"""Elements of a row that a thread keeps in float32."""
MAXIMUM_AND_SUM = 2
"""Statements beside the one that stores a tile which read it: then it is kept until the last of them."""


def keep_terms(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel whose outputs read the exponentials of its only tile."""
    if plan.level != "row" or tiles_in_bulk(kernel):
        return kernel
    kept, body = Terms(kernel, plan), list[Statement]()
    for statement in kernel.body:
        body.append(kept.with_terms(statement) if isinstance(statement, Parallel) else statement)
        kept.note(statement)
    return without_unread(kernel, body) if kept.is_read else kernel


@final
class Terms:
    """The exponentials that tiles in registers hold, as the statements so far leave them.

    Attributes:
        values: what buffers in registers were stored as, of names that are not stored so; and the names read.
        terms: those of the buffers that hold an exponential of every element, or the element for several statements.
        is_read: True once an output reads a term.
    """

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self.buffers = {one.name: one for one in kernel.buffers}
        self.most = MOST_KEPT * plan.threads if plan.device.target != "c" else None
        self.once = names_with_one_store(kernel)
        named = Counter(name for one in nested_statements(kernel.body) for name in names_in(one))
        self.reread = {name for name, count in named.items() if count > MAXIMUM_AND_SUM}
        self.values = dict[str, tuple[Store, frozenset[str]]]()
        self.terms = set[str]()
        self.is_read = False

    def note(self, statement: Statement) -> None:
        """Take in a statement: what it stores, and the values that it changes."""
        stored = names_stored_by(statement)
        self.values = {name: pair for name, pair in self.values.items() if not stored & {name, *pair[1]}}
        self.terms &= {*self.values}
        if not isinstance(statement, Parallel) or statement.guard != S.true:
            return
        extents = dict(statement.indices)
        for store in statement.body:
            is_whole = store.target in self.once and store.guard == S.true and not store.once
            if not is_whole or store.indices != tuple(extents) or not self._is_in_registers(store.target):
                continue
            value = replace(store, expr=self.resolve(store.expr))
            reads = frozenset(one.name for one in value.expr.atoms(Load))
            if reads & stored:  # which the same loop may change afterwards
                continue
            self.values[store.target] = value, reads
            is_term = isinstance(value.expr, ScaledExp | exp) and self._has_room(extents.values())
            if len(extents) > 1 and (is_term or (store.target in self.reread and self._is_element(value))):
                self.terms.add(store.target)

    def with_terms(self, loop: Parallel) -> Parallel:
        """A loop that stores outside registers, with the terms in place of what is alike."""
        registers = {name for name, one in self.buffers.items() if one.scope != "shared"}
        stores = (one if one.target in registers or one.once else self._with_terms(one, loop) for one in loop.body)
        return replace(loop, body=tuple(stores))

    def _with_terms(self, store: Store, loop: Parallel) -> Store:
        """A store that reads the terms which its exponentials and elements are alike."""
        inside, places = frozenset(And.make_args(And(store.guard, loop.guard))), tuple(name for name, _ in loop.indices)
        alike = {
            where_inside(self.resolve(Load(name, *places)), inside): Load(name, *places)
            for name in sorted(self.terms)
            if self.buffers[name].shape == tuple(extent for _, extent in loop.indices)
        }
        found = dict[Basic, Basic]()
        for node in sorted(store.expr.atoms(ScaledExp, exp, Load), key=str):
            term = alike.get(where_inside(self.resolve(node), inside))
            if term is not None and term != node:
                found[node] = term
        self.is_read |= bool(found)
        return replace(store, expr=store.expr.xreplace(found))

    def resolve(self, expr: Expr) -> Expr:
        """An expression with the values of names that are stored once."""
        found = dict[Basic, Basic]()
        for read in expr.atoms(Load):
            if read.name in self.values:
                value, _ = self.values[read.name]
                found[read] = value.expr.xreplace(dict(zip(value.indices, read.indices, strict=True)))
        resolved: Expr = expr.xreplace(found)
        return resolved

    def _is_in_registers(self, name: str) -> bool:
        """Tell if a name is a tile that a store does not round."""
        tile = self.buffers.get(name)
        return tile is not None and tile.scope == "fragment" and tile.dtype in ("float32", "float64")

    def _is_element(self, store: Store) -> bool:
        """Tell if a store is of one element of another tile, masked or as it is, all of whose digits it has."""
        element = store.expr.args[1] if isinstance(store.expr, Where) else store.expr
        if not isinstance(element, Load) or element.indices != store.indices or element.name not in self.buffers:
            return False
        source, target = (DTYPES[self.buffers[name].dtype] for name in (element.name, store.target))
        return is_float(self.buffers[element.name].dtype) and source.bytes <= target.bytes

    def _has_room(self, extents: Iterable[int]) -> bool:
        """Tell if threads have registers for a tile."""
        return self.most is None or prod(extents) <= self.most


def where_inside(expr: Expr, conditions: frozenset[Boolean]) -> Expr:
    """An expression without the masks that conditions imply, those within others too."""

    def is_implied(node: Basic) -> bool:
        return isinstance(node, Where) and frozenset(And.make_args(node.condition)) <= conditions

    inside: Expr = expr.replace(is_implied, lambda mask: mask.args[1])
    return inside


def without_unread(kernel: Kernel, body: Sequence[Statement]) -> Kernel:
    """The kernel with a body, less the buffers that loops over rows store and nothing reads now."""
    buffers = {one.name for one in kernel.buffers}
    read = {name for one in body for name in names_in(one) - names_only_stored(one)}
    gone = {store.target for one in body if isinstance(one, Parallel) for store in one.body} & buffers - read
    left = list[Statement]()
    for statement in body:
        if isinstance(statement, Parallel):
            stores = tuple(one for one in statement.body if one.target not in gone)
            left += [replace(statement, body=stores)] if stores else []
        else:
            left.append(statement)
    return replace(kernel, buffers=tuple(one for one in kernel.buffers if one.name not in gone), body=tuple(left))


def names_only_stored(statement: Statement) -> set[str]:
    """The names that a loop over a tile stores and does not read; none of any other statement."""
    if not isinstance(statement, Parallel):
        return set()
    reads = {load.name for store in statement.body for load in store.expr.atoms(Load)}
    return names_stored_by(statement) - reads
