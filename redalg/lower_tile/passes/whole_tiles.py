"""Mask a tile only where its mask excludes some of its elements.

s += a·b;  u = where(c, s, z)   →   u += a·b;  if not (c for the whole tile): u = where(c, u, z)
w = where(c, v, z);  o += p·w   →   if (c for the whole tile): o += p·v;  if not: w = where(c, v, z);  o += p·w
u = where(c, f(s, …), z)        →   u = f(s, …);  if not (c for the whole tile): u = where(c, u, z)

Exact: where c holds for every element, the branches are equal. For a block it is known of causal masks, windows,
lengths and the end of an axis (`intervals`). Of a mask by an element's own data a list of tiles tells it (`Within`,
which ends here). The third is of what is computed of tiles alone: no read leaves a tensor where c excludes it.

A product that is read unmasked too keeps its mask in every tile: two copies of the masked tile took more registers
than the mask was worth (10 % longer on an H100, of a product over 32,000 columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from sympy import S
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.lower_tile.ir.intervals import holds_for_all, index_ranges, opposite
from redalg.lower_tile.ir.mentions import bound_names, names_in, product_names
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Fill,
    Kernel,
    Last,
    Loop,
    Parallel,
    Statement,
    Store,
    TileProgram,
    map_statement,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load, Within
from redalg.strategies.plan import Plan

MATRIX = 2
"""Dimensions of a tile that a product reads or makes."""


def mask_where_needed(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose loops of matrix products mask the tiles that need it."""
    inputs = {one.name for one in program.parameters if "int" in one.dtype}
    return replace(program, kernels=tuple(in_kernel(one, one.plan or plan, inputs) for one in program.kernels))


def in_kernel(kernel: Kernel, plan: Plan, inputs: set[str]) -> Kernel:
    """A kernel whose loops mask the tiles that need it; `inputs` are the parameters of integers."""
    body = kernel.body
    if plan.multiplies:
        bound = {one.name for one in nested_statements(body) if isinstance(one, Bind) and "int" in one.dtype}
        integers = inputs | bound | {one.name for one in kernel.buffers if "int" in one.dtype}
        body = tuple(in_loop(one, kernel, integers) if multiplies_tiles(one) else one for one in body)
    body = tuple(map_statement(one, without_hints) for one in body)
    replaced = {name for one in kernel.body for name in names_in(one)}.difference(*map(names_in, body))
    return replace(kernel, body=body, buffers=tuple(one for one in kernel.buffers if one.name not in replaced))


def without_hints(node: Basic) -> Basic:
    """An expression whose conditions no longer tell when they hold for a whole tile."""
    return node.replace(Within, lambda condition, _: condition) if node.has(Within) else node


def multiplies_tiles(statement: Statement) -> TypeGuard[Loop]:
    """Tell if a statement is a loop that multiplies tile after tile."""
    inner = nested_statements((statement,))
    return isinstance(statement, Loop) and any(isinstance(one, Contract) for one in inner)


def in_loop(loop: Loop, kernel: Kernel, integers: set[str]) -> Loop:
    """A loop with its masked tiles in two cases, as a whole and masked."""
    body, operands = list[Statement](), dict[str, tuple[str, Boolean]]()
    for statement in loop.body:
        if isinstance(statement, Contract) and statement.b in operands:
            unmasked, whole = operands[statement.b]
            body += [replace(statement, b=unmasked, guard=whole), replace(statement, guard=opposite(whole))]
            continue
        case = masked_tile(statement, integers)
        if case is None:
            body.append(in_loop(statement, kernel, integers) if multiplies_tiles(statement) else statement)
            continue
        tile, store, mask, whole = case
        if (product := masked_product(store, mask, kernel, body)) is not None:
            body = [with_product_in(store.target, product, one) for one in body]
            store = replace(store, expr=Where(mask.condition, Load(store.target, *store.indices), mask.args[2]))
        elif (operand := operand_of(store, mask, kernel, loop)) is not None:
            operands[store.target] = operand, whole
        elif reads_tiles_alone(store, mask, kernel):
            body.append(replace(tile, body=(replace(store, expr=mask.args[1]),)))
            store = replace(store, expr=Where(mask.condition, Load(store.target, *store.indices), mask.args[2]))
        else:
            body.append(statement)
            continue
        body.append(Parallel(tile.indices, (store,), opposite(whole)))
    return replace(loop, body=tuple(body))


def masked_tile(statement: Statement, integers: set[str]) -> tuple[Parallel, Store, Where, Boolean] | None:
    """An elementwise loop that masks a tile, its store, the masked number, and where the mask excludes nothing."""
    if not isinstance(statement, Parallel) or len(statement.body) != 1 or statement.guard != S.true:
        return None
    [store] = statement.body
    if len(store.indices) < MATRIX or store.guard != S.true or store.once or not isinstance(store.expr, Where):
        return None
    whole = holds_for_all(store.expr.condition, index_ranges(dict(statement.indices)), integers)
    return None if whole is None or whole in (S.true, S.false) else (statement, store, store.expr, whole)


def masked_product(store: Store, mask: Where, kernel: Kernel, before: Sequence[Statement]) -> str | None:
    """The matrix product that a store masks, if nothing else reads it: then the target may hold it."""
    product = unmasked_buffer(store, mask, kernel)
    if product is None or statements_naming(store.target, before):
        return None
    makes = statements_naming(product, before)
    accumulates = all(isinstance(one, Fill) or (isinstance(one, Contract) and one.c == product) for one in makes)
    starts = bool(makes) and (isinstance(makes[0], Fill) or (isinstance(makes[0], Contract) and makes[0].clear))
    alone = len(statements_naming(product, kernel.body)) == len(makes) + 1
    return product if accumulates and starts and alone else None


def reads_tiles_alone(store: Store, mask: Where, kernel: Kernel) -> bool:
    """Tell if a store in registers computes what it masks of the block's buffers and numbers alone.

    A product is none that it computes.
    """
    buffers = {one.name: one for one in kernel.buffers}
    target, reads = buffers.get(store.target), mask.args[1].atoms(Load)
    computed = bool(reads) and not (isinstance(mask.args[1], Load) and mask.args[1].name in product_names(kernel))
    alone = {one.name for one in reads} <= {*buffers, *bound_names(kernel)} - {store.target}
    return computed and alone and target is not None and target.scope == "fragment" and target.dtype == "float32"


def operand_of(store: Store, mask: Where, kernel: Kernel, loop: Loop) -> str | None:
    """The shared tile that a store masks for matrix products of the loop, and for nothing else."""
    products = [one for one in loop.body if isinstance(one, Contract) and one.b == store.target]
    alone = len(statements_naming(store.target, kernel.body)) == len(products) + 1
    return unmasked_buffer(store, mask, kernel) if products and alone else None


def unmasked_buffer(store: Store, mask: Where, kernel: Kernel) -> str | None:
    """The buffer that a store copies where the mask holds, if it is alike in all but the name."""
    value, buffers = mask.args[1], {one.name: (one.shape, one.dtype, one.scope) for one in kernel.buffers}
    if not isinstance(value, Load) or value.indices != store.indices or value.name not in buffers:
        return None
    return value.name if buffers[value.name] == buffers.get(store.target) else None


def statements_naming(name: str, body: Sequence[Statement]) -> list[Statement]:
    """The statements that name a buffer, within loops too."""
    inner = (one for one in nested_statements(tuple(body)) if not isinstance(one, Loop | Last))
    return [one for one in inner if name in names_in(one)]


def with_product_in(target: str, product: str, statement: Statement) -> Statement:
    """A statement that accumulates a product, with another buffer in its place."""
    if isinstance(statement, Loop):
        return replace(statement, body=tuple(with_product_in(target, product, one) for one in statement.body))
    if isinstance(statement, Fill) and statement.buffer == product:
        return replace(statement, buffer=target)
    return replace(statement, c=target) if isinstance(statement, Contract) and statement.c == product else statement
