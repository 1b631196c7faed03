"""Load what a mask puts in place of an element, so that nothing masks it again.

x[j] = where(c, load, 0);  u[j] = where(c, x[j], z)   →   x[j] = where(c, load, z);  u[j] = x[j],  z = ±∞

Exact where every other read of x is masked by c too, or stands under a guard that asks for c. A tile's elements are
masked together, a vector at a time, when they are loaded; the second mask would choose them one by one. The tile's
dtype may round another number. Where z is 0 the mask tells other passes that u is more than x.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sympy import And, Expr, S

from redalg.expression import Where
from redalg.lower_tile.ir.mentions import names_in
from redalg.lower_tile.ir.program import Kernel, Loop, Parallel, Statement, Store, innermost, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.plan import Plan

WITH_INFINITIES = ("float16", "bfloat16", "float32", "float64")
"""Dtypes of tiles that hold an infinity."""


def load_masked(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel whose tiles are loaded as the mask leaves them that they are read under."""
    tiles = {one.name for one in kernel.buffers if one.scope == "fragment" and one.dtype in WITH_INFINITIES}
    for load in [store for store in stores(kernel) if store.target in tiles and is_masked_load(store, tiles)]:
        beside = value_beside(load, kernel)
        if beside is not None:
            change = partial(with_mask_in_load, load, beside)
            kernel = replace(kernel, body=tuple(innermost(one, change) for one in kernel.body))
    return kernel


def stores(kernel: Kernel) -> Iterator[Store]:
    """Yield the stores of a kernel's loops over tiles."""
    for statement in nested_statements(kernel.body):
        if isinstance(statement, Parallel):
            yield from statement.body


def is_masked_load(store: Store, tiles: set[str]) -> bool:
    """Tell if a store is of an element of a tensor under a mask, and of 0 elsewhere."""
    expr = store.expr
    loads = isinstance(expr, Where) and isinstance(expr.args[1], Load) and expr.args[1].name not in tiles
    return loads and expr.args[2] == 0 and store.guard == S.true and not store.once


def value_beside(load: Store, kernel: Kernel) -> Expr | None:
    """The infinity that masks put in place of the elements of a tile where its load has 0; None if there is none."""
    condition, read, found = load.expr.args[0], Load(load.target, *load.indices), set[Expr]()
    for statement in nested_statements(kernel.body):
        names_tile = load.target in names_in(statement)
        if not isinstance(statement, Parallel | Loop) and names_tile:
            return None
        for store in statement.body if isinstance(statement, Parallel) and names_tile else ():
            if store.target == load.target and store != load:
                return None
            if store.expr.func is Where and store.expr.args[:2] == (condition, read):
                found.add(store.expr.args[2])
            elif not masks_all(store, load):
                return None
    return found.pop() if found in ({S.Infinity}, {S.NegativeInfinity}) else None


def masks_all(store: Store, load: Store) -> bool:
    """Tell if a store's value holds an element of a tile only where the tile's load has one."""
    condition, expr = load.expr.args[0], store.expr
    if store == load or condition in And.make_args(store.guard):
        return True
    unmasked = expr.replace(
        lambda node: isinstance(node, Where) and node.args[0] == condition, lambda node: node.args[2]
    )
    return not any(one.name == load.target for one in unmasked.atoms(Load))


def with_mask_in_load(load: Store, beside: Expr, statement: Statement) -> Statement:
    """A statement that loads a tile as masks leave it, or that masks it no more."""
    if not isinstance(statement, Parallel):
        return statement
    condition, read = load.expr.args[0], Load(load.target, *load.indices)
    put = {load: replace(load, expr=Where(condition, load.expr.args[1], beside))}
    masked = Where(condition, read, beside)
    body = (put.get(one) or (replace(one, expr=read) if one.expr == masked else one) for one in statement.body)
    return replace(statement, body=tuple(body))
