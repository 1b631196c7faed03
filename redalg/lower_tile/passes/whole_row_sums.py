"""Reduce a row that one tile holds: first the elements of a thread in turns, then the threads.

    v[i] = Σ_j x[i, j]   →   f[i, j] = Σ_turn x[i, W·turn + j]        W elements, which all threads load at once
                             v[i] = Σ_j f[i, j]

    of a row by several warps:
                             f[i, w, l] = Σ_turn x[i, W·turn + L·w + l]   L elements, which a warp loads at once
                             p[i, w] = Σ_l f[i, w, l];  s = p             within a warp, no barrier; to shared memory
                             v[i] = s[i, 0] + s[i, 1] + …                 ahead of the first statement that reads v

The terms are the same, in another order; maxima and minima go the same way. TileLang's own reduction adds the elements
of a thread one after another, and each addition waits for the one before. Here a thread has as many sums as elements of
a 16-byte load, which do not wait for each other; each has fewer terms, and so smaller errors.

Between threads, TileLang's reduction halves their number step by step, with two barriers for every step down to a warp.
Sums of warps meet in shared memory at one barrier, and reductions that do not need each other share it (H200, bfloat16:
layer norms of 4096 x 16384 in 0.95 of the time, softmaxes of 8192 x 8192 in 0.93; gradients of layer norms of 8192 x
4096, whose blocks take row after row, in 0.94). So do those of several rows at once, if a row has one sum (root mean
squares of 16384 x 1024, two rows at once, in 0.96; layer norms, of three sums, would take 1.02).

The element j lies in thread ⌊j / (elements of a load)⌋ mod threads: so TileLang lays out a row that is loaded 16 bytes
at a time, and the tiles computed of it. A row of which that is not known stays as it is, and so does one with a
rest beside whole turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import final

from sympy import Add, Expr, Max, Min, S, Symbol

from redalg.errors import PlanError
from redalg.expression.dtypes import DTYPES, is_float
from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.mentions import free_names, names_in
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Buffer,
    Copy,
    Fill,
    Kernel,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    index,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.aligned_rows import vectors_loaded
from redalg.strategies.device import LOAD_BYTES, WARP
from redalg.strategies.plan import Plan

LEAST_CHAIN = 16
"""Terms that a thread adds one after another, from which sums that do not wait for each other are faster: whole rows of
1024 elements take 11 % less with 32 terms, 7 % less with 16, and two rows at once 2 % more with 8 (H100)."""
I, J, TURN, BLOCK, IN_BLOCK, IN_WARP = map(index, ("i", "j", "turn", "block", "warp", "lane"))
COMBINED = {"sum": (Add, S.Zero), "max": (Max, S.NegativeInfinity), "min": (Min, S.Infinity)}
"""Kind of a reduction -> how two terms are combined, and the term that changes nothing."""


@final
@dataclass(frozen=True)
class Lanes:
    """The layout of a kernel's whole rows in its threads.

    Attributes:
        threads: those that share every row.
        elements: those of one load.
        tiles: the tiles in registers that lie so.
        by_warps: True if warps leave their sums of a row in shared memory.
        is_shared: True if the rows lie in shared memory: a thread keeps no element of a tile that is computed of them.
        part, blocks: the block's place among the blocks of a cluster, which have a part of each row; their number.
    """

    threads: int
    elements: int
    tiles: frozenset[str]
    by_warps: bool
    is_shared: bool = False
    part: Expr = S.Zero
    blocks: int = 1

    @property
    def width(self) -> int:
        """Elements of a row that all threads load at once."""
        return self.threads * self.elements


def reduce_in_turns(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose threads reduce their own elements of a row in turns, before they meet."""
    parameters = {one.name: one for one in program.parameters}
    names = free_names(program)
    kernels = (_in_kernel(one, one.plan or plan, parameters, names) for one in program.kernels)
    return replace(program, kernels=tuple(kernels))


def _in_kernel(kernel: Kernel, plan: Plan, parameters: dict[str, Parameter], names: Names) -> Kernel:
    """A kernel whose reductions of whole rows go in turns: those of its tile, or those of each tile of its loops."""
    tiles = {one.name: one for one in kernel.buffers}
    lanes = lanes_of(kernel, plan, parameters)
    if kernel.cluster > 1:
        check_cluster(kernel, plan, tiles, lanes)
    if lanes is not None:
        added, body = _in_statements(kernel.body, tiles, lanes, names)
        return replace(kernel, buffers=(*kernel.buffers, *added), body=body)
    buffers, statements = list(kernel.buffers), list[Statement]()
    for statement in kernel.body:
        within = lanes_of_loop(statement, kernel, plan, parameters) if isinstance(statement, Loop) else None
        if not isinstance(statement, Loop) or within is None:
            statements.append(statement)
            continue
        added, body = _in_statements(statement.body, tiles, within, names)
        buffers += added
        statements.append(replace(statement, body=body))
    return replace(kernel, buffers=tuple(buffers), body=tuple(statements))


def check_cluster(kernel: Kernel, plan: Plan, tiles: dict[str, Buffer], lanes: Lanes | None) -> None:
    """Raise `PlanError` if blocks of a cluster would not exchange a sum."""
    every = [one for one in kernel.body if isinstance(one, ReduceTile)]
    sums = [one for one in every if tiles[one.source].shape[-1] == plan.block_streamed]  # each block takes all ends
    apart = [one for one in sums if lanes is None or not lanes.by_warps or not _has_long_chain(one, tiles, lanes)]
    if apart or not sums:
        raise PlanError(
            f"schedule `{plan}` has sums that blocks of a cluster do not exchange: a thread adds up {LEAST_CHAIN} "
            "floating-point elements of a row or more, of one dtype, in blocks of two warps or more. Use a Loop."
        )


def _in_statements(
    statements: Sequence[Statement], tiles: dict[str, Buffer], lanes: Lanes, names: Names
) -> tuple[list[Buffer], tuple[Statement, ...]]:
    """Statements whose reductions of whole rows go in turns, and the buffers that these add.

    What warps leave of several reductions is stored and read together: the warps' own sums do not wait for a barrier.
    """
    buffers, body, stores = list[Buffer](), list[Statement](), list[Statement]()
    waiting = dict[str, tuple[Statement, ...]]()
    tables = dict[str, Buffer]()
    for statement in statements:
        read = [name for name in waiting if name in names_in(statement)]
        if read:
            body += with_exchanges(stores, lanes, body)
            body += (each for name in read for each in waiting.pop(name))
            stores = []
        if not isinstance(statement, ReduceTile) or not _has_long_chain(statement, tiles, lanes):
            body.append(statement)
            continue
        if not lanes.by_warps:
            fold, reduced = _among_threads(statement, tiles, lanes, names)
            buffers.append(fold)
            body += reduced
            continue
        added, reduced, store, waiting[statement.target] = _among_warps(statement, tiles, lanes, names, tables)
        buffers += added
        body += reduced
        stores.append(store)
    body += with_exchanges(stores, lanes, body)
    if lanes.blocks > 1:
        buffers += [of_blocks(one, lanes.blocks) for one in tables.values()]
    return [*buffers, *tables.values()], (*body, *(each for last in waiting.values() for each in last))


def table_of_blocks(table: str) -> str:
    """The name of the table to which all blocks of a cluster copy theirs."""
    return f"{table}_of_blocks"


def of_blocks(table: Buffer, blocks: int) -> Buffer:
    """The table to which all blocks of a cluster copy theirs."""
    shape = (table.shape[0], blocks, *table.shape[1:])
    return replace(table, name=table_of_blocks(table.name), shape=shape, note="reduction, block, warp")


def with_exchanges(stores: Sequence[Statement], lanes: Lanes, before: Sequence[Statement]) -> list[Statement]:
    """The stores of warps in tables; then the blocks of a cluster exchange it, of each dtype. `before`: the statements
    ahead, of which none exchanges anything if this is the first time."""
    rows = dict[str, list[int]]()
    for store in stores if lanes.blocks > 1 else ():
        if isinstance(store, Copy) and isinstance(store.target, Region):
            row = store.target.place[0]
            rows.setdefault(store.target.name, []).append(int(row) if isinstance(row, Expr) else 0)
    statements = list(stores)
    for table, own in rows.items():
        is_first = not any(isinstance(one, Exchange) for one in (*before, *statements))
        statements.append(Exchange(table, table_of_blocks(table), tuple(own), lanes.part, lanes.blocks, is_first))
    return statements


Indices = tuple[tuple[Symbol, int], ...]


def _among_threads(
    reduction: ReduceTile, tiles: dict[str, Buffer], lanes: Lanes, names: Names
) -> tuple[Buffer, list[Statement]]:
    """Reduce in turns, then all threads: the buffer that this adds, and the statements."""
    tile = tiles[reduction.source]
    fold = Buffer(
        names.fresh(f"{reduction.target}_turns"), "fragment", (tile.shape[0], lanes.width), tile.dtype, "i, j"
    )
    read = Load(tile.name, I, TURN * lanes.width + J)
    turns = _turns(reduction, fold, tile, read, ((I, tile.shape[0]), (J, lanes.width)))
    return fold, [*turns, replace(reduction, source=fold.name)]


def _among_warps(
    reduction: ReduceTile, tiles: dict[str, Buffer], lanes: Lanes, names: Names, tables: dict[str, Buffer]
) -> tuple[list[Buffer], list[Statement], Statement, tuple[Statement, ...]]:
    """Reduce in turns, then each warp, then what the warps leave in a row of a table in shared memory.

    All reductions of a dtype have one table: another one might lie where the first is still read, behind a barrier.

    Returns:
        Buffers, the statements that reduce, and those that stand ahead of the first read of the result: one stores what
        warps leave, the others read it.
    """
    tile, warps, length = tiles[reduction.source], lanes.threads // WARP, WARP * lanes.elements
    several = tile.shape[0] > 1
    rows, row = ((tile.shape[0],), (I,)) if several else ((), ())
    fold, part = (names.fresh(f"{reduction.target}_{part}") for part in ("turns", "warp"))
    buffers = [
        Buffer(fold, "fragment", (*rows, warps, length), tile.dtype, "i, warp, lane" if several else "warp, lane"),
        Buffer(part, "fragment", (*rows, warps), tile.dtype, f"{reduction.kind} of a warp"),
    ]
    before = tables.get(tile.dtype) or Buffer(
        names.fresh("warps"), "shared", (0, *rows, warps), tile.dtype, "reduction, warp"
    )
    place, shared = before.shape[0], before.name
    tables[tile.dtype] = replace(before, shape=(place + 1, *before.shape[1:]))
    read = Load(tile.name, I, TURN * lanes.width + IN_BLOCK * length + IN_WARP)
    indices = ((I, tile.shape[0]), (IN_BLOCK, warps), (IN_WARP, length))
    turns = _turns(reduction, buffers[0], tile, read, indices)
    within = ReduceTile(reduction.kind, fold, part, dim=len(row) + 1, clear=True)
    store = Copy(part, Region(shared, (S(place), *((S.Zero, length) for length in (*rows, warps)))))
    in_cluster = lanes.blocks > 1
    table = (table_of_blocks(shared), S(place), BLOCK) if in_cluster else (shared, S(place))
    before_all = () if reduction.clear and not in_cluster else (Load(reduction.target, I),)
    total = _combine(reduction.kind, *before_all, *(Load(*table, *row, S(warp)) for warp in range(warps)))
    last: tuple[Statement, ...] = (Parallel(((I, tile.shape[0]),), (Store(reduction.target, (I,), total),)),)
    if in_cluster:
        every = Loop(BLOCK, S(lanes.blocks), 0, last, pipelined=False, unrolled=lanes.blocks)
        empty = (Fill(reduction.target, COMBINED[reduction.kind][1]),) if reduction.clear else ()
        last = (*empty, every)
    return buffers, [*turns, within], store, last


def _turns(
    reduction: ReduceTile, fold: Buffer, tile: Buffer, read: Load, indices: Indices
) -> tuple[Statement, ...]:  # fmt: skip
    """The elements of every thread, combined into those of the narrower tile `fold`, at the last of the indices."""
    turns = tile.shape[1] * tile.shape[0] // prod(fold.shape)
    place = tuple(name for name, _ in indices[-len(fold.shape) :])
    store = Store(fold.name, place, _combine(reduction.kind, Load(fold.name, *place), read))
    each = Parallel(indices, (store,))
    loop = Loop(TURN, S(turns), 0, (each,), pipelined=False, unrolled=turns)
    return Fill(fold.name, COMBINED[reduction.kind][1]), loop


def _combine(kind: str, *terms: Expr) -> Expr:
    """Terms under the operation of a reduction; SymPy would compare every two for the largest of them."""
    operation, _ = COMBINED[kind]
    combined: Expr = Add(*terms) if operation is Add else operation(*terms, evaluate=False)
    return combined


def _has_long_chain(reduction: ReduceTile, tiles: dict[str, Buffer], lanes: Lanes) -> bool:
    """Tell if a thread would reduce many elements of whole rows one after another, in at least two whole turns."""
    tile = tiles[reduction.source]
    if reduction.source not in lanes.tiles or reduction.dim != 1 or not is_float(tile.dtype):
        return False
    if not reduction.clear and not (lanes.is_shared and lanes.by_warps):
        return False
    rows, length = tile.shape
    turns, rest = divmod(length, lanes.width)
    return not rest and turns > 1 and turns * lanes.elements >= LEAST_CHAIN * (1 if lanes.by_warps else rows)


def lanes_of(kernel: Kernel, plan: Plan, parameters: dict[str, Parameter]) -> Lanes | None:
    """The layout of a kernel's whole rows in its threads; None if that is not known."""
    loaded = list(_loads(kernel, parameters))
    if plan.level != "row" or plan.device.target == "c" or not loaded:
        return None
    tiles, vectors = zip(*loaded, strict=True)
    [wide, *others] = {*vectors}
    [shape, *shapes] = {one.shape for one in tiles}
    if others or shapes or len(shape) != 2 or wide < 2:
        return None
    like = tiles_like({one.name for one in tiles}, kernel.body)
    alone = shape[0] == 1 or sum(isinstance(one, ReduceTile) for one in kernel.body) == 1
    is_shared = any(one.scope == "shared" for one in tiles)
    part = kernel.grid[0][0] if kernel.cluster > 1 else S.Zero
    return Lanes(plan.threads, wide, like, alone and plan.threads > WARP, is_shared, part, kernel.cluster)


def lanes_of_loop(loop: Loop, kernel: Kernel, plan: Plan, parameters: dict[str, Parameter]) -> Lanes | None:
    """The layout of the whole rows that a loop takes one after another, of those in shared memory; None otherwise.

    The block waits at each barrier of a row: nothing else fills that time. A thread holds as many neighbours of a tile
    that is computed as 16 bytes hold of the widest dtype there: of float32, if arithmetic is, whatever the data are.
    """
    shared = {one.name: one for one in kernel.buffers if one.scope == "shared"}
    copied = [one for one in loop.body if isinstance(one, Copy) and isinstance(one.source, Region)]
    tiles = [shared[str(one.target)] for one in copied if str(one.target) in shared]
    if plan.device.target == "c" or kernel.blocks or plan.threads <= WARP or len({one.shape for one in tiles}) != 1:
        return None
    like = tiles_like({one.name for one in tiles}, loop.body)
    computed = (one.dtype for one in kernel.buffers if one.name in like)
    wide = LOAD_BYTES // max(DTYPES[one].bytes for one in (*computed, *read_along(loop.body, like, shared, parameters)))
    shape = tiles[0].shape
    plain = len(shape) == 2 and shape[0] == 1 and shape[1] % wide == 0
    return Lanes(plan.threads, wide, like, by_warps=True) if plain else None


def elements_in_turns(step: Sequence[Statement]) -> int:
    """The elements side by side that a thread adds to its sums of a row at each turn; 0 if no sums go in turns."""
    turns = (one.body[0] for one in step if isinstance(one, Loop) and one.variable == TURN)
    lengths = [dict(one.indices).get(IN_WARP, 0) for one in turns if isinstance(one, Parallel)]
    return max(lengths, default=0) // WARP


def read_along(
    body: Sequence[Statement], tiles: Collection[str], shared: dict[str, Buffer], parameters: dict[str, Parameter]
) -> Iterator[str]:
    """Yield the dtypes of memory that the computed tiles are read from along a row: the widest sets the lanes."""
    stores = (store for one in body if isinstance(one, Parallel) for store in one.body if store.target in tiles)
    for store in stores:
        for read in store.expr.atoms(Load):
            source = shared.get(read.name) or parameters.get(read.name)
            if source is not None and any(one.has(store.indices[-1]) for one in read.indices):
                yield source.dtype


def _loads(kernel: Kernel, parameters: dict[str, Parameter]) -> Iterator[tuple[Buffer, int]]:
    """The tiles that a kernel loads from parameters, and the elements of a load; 0: not known. They are in registers,
    or fetched in bulk to shared memory, from where threads load them alike."""
    tiles = {one.name: one for one in kernel.buffers if one.scope == "fragment"}
    shared = {one.name: one for one in kernel.buffers if one.scope == "shared"}
    for statement in kernel.body:
        if isinstance(statement, Copy) and statement.in_bulk and isinstance(statement.target, Region):
            tile = shared[statement.target.name]
            yield tile, LOAD_BYTES // DTYPES[tile.dtype].bytes
        elif isinstance(statement, Copy) and isinstance(statement.source, Region) and statement.target in tiles:
            source = parameters[statement.source.name]
            wide, length = LOAD_BYTES // DTYPES[source.dtype].bytes, source.shape[-1]
            yield tiles[str(statement.target)], wide if isinstance(length, int) and length % wide == 0 else 0
        elif isinstance(statement, Parallel) and (found := vectors_loaded(statement, tiles)) is not None:
            yield tiles[found[0]], found[1]


def tiles_like(tiles: set[str], body: Sequence[Statement]) -> frozenset[str]:
    """Tiles, and those whose every element is computed of theirs at the same place: threads hold the same of each."""
    for statement in body:
        stores = statement.body if isinstance(statement, Parallel) else ()
        places = {store.indices for store in stores if any(
            read.name in tiles and read.indices == store.indices for read in store.expr.atoms(Load))}  # fmt: skip
        tiles = tiles | {store.target for store in stores if store.indices in places and len(store.indices) == 2}
    return frozenset(tiles)
