"""Tiles in registers beside a product, which TileLang lays out only where they are computed of its result.

    x[i, j] = f(w[j])   →   x[i, j] = c[i, j]; x[i, j] = f(w[j])        c of the same shape: the result of a product

The lanes of a product lie in a pattern of their own. A tile that reads shared memory alone, and is then summed into the
rows that the product's tiles are summed into, has "no available layout". The first store gives it the product's, and
is dropped by nvcc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redalg.lower_tile.ir.program import Contract, Kernel, Parallel, Statement, Store, innermost, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.workarounds.rules import loads_in_store
from redalg.strategies.plan import Plan


def lay_as_product(kernel: Kernel, plan: Plan) -> Kernel:
    """Give the tiles that read no other tile in registers the layout of a product of their shape."""
    if not plan.tensor_cores:
        return kernel
    tiles = {one.name: one.shape for one in kernel.buffers if one.scope == "fragment" and len(one.shape) > 1}
    contracts = (one for one in nested_statements(kernel.body) if isinstance(one, Contract) and one.c in tiles)
    products = {tiles[one.c]: one.c for one in contracts}

    def lay(statement: Statement) -> Statement:
        if not isinstance(statement, Parallel):
            return statement
        stores = (part for store in statement.body for part in _after_product(store, tiles, products))
        return replace(statement, body=tuple(stores))

    return replace(kernel, body=tuple(innermost(one, lay) for one in kernel.body))


def _after_product(store: Store, tiles: Mapping[str, tuple[int, ...]],
                   products: Mapping[tuple[int, ...], str]) -> tuple[Store, ...]:  # fmt: skip
    """A store, after one of a product's result if it is to a tile of that shape and reads no tile."""
    product = products.get(tiles.get(store.target, ()))
    read = {load.name for load in loads_in_store(store)}
    if product is None or product == store.target or read & tiles.keys():
        return (store,)
    return Store(store.target, store.indices, Load(product, *store.indices)), store
