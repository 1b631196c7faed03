"""Programs that TileLang compiles into wrong code, or fails on without a word that helps.

They are refused before they are emitted. Seen in TileLang 0.1.15, or reported on its tracker (by number).

registers            a tile in registers is read at the indices that its loop sweeps, whole: one that is read at a
                     serial variable, shifted, or at two places at once is wrong or not compiled (#2396, #2957)
loaded ahead         what a pipelined loop loads ahead is written by nothing else in it (#2668)
turned to shared     registers that enter a contraction are not copied to shared memory as well (#2954)
trip count           bounds that vary from block to block go with one stage where loads are not a warp's own
late                 what some warps load alone ahead of a loop that may take no step is waited for by nobody (`tma`)
quotients            a number of tiles is no quotient of a minimum or maximum, which is taken for a constant: seen with
                     ⌊min(99, 64·q + 63) / 64⌋ + 1, q < 2, which became 2
filled               shared memory is not filled where warps are specialised
few columns          warpgroups that share out a product's columns take 32 each at least: of 16, two tiles of a pipeline
                     were summed wrongly, every time and by one of the texts that say the same (nvcc 13.0, an H200)
reduced width        without a contraction, a power of two or a multiple of four elements for every thread
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sympy import Max, Min, Symbol, floor

from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Contract,
    Copy,
    Fill,
    Loop,
    Parallel,
    ReduceTile,
    Region,
    Store,
    statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.subject import Subject
from redalg.lower_tile.workarounds.tma import arriving_late

WARPGROUP, GROUP_ROWS = 128, 64
"""Threads that multiply matrices together on sm_90, and the rows that they take."""
LEAST_SHARE = 32
"""Columns that a warpgroup takes at least where several share out those of the same rows."""


def registers(one: Subject) -> Iterator[str]:
    """Tiles in registers are read where the loop stands."""
    for loop in one.each(Parallel):
        swept = dict(loop.indices)
        for store in loop.body:
            for read in sorted(reads(store), key=str):
                if one.scope(read.name) == "fragment" and not whole(read, one.buffers[read.name], swept):
                    yield (
                        f"`{read}` reads a tile in registers elsewhere than where its loop stands, which TileLang gets "
                        "wrong. Stage the tile in shared memory."
                    )


def reads(store: Store) -> set[Load]:
    """What a store reads."""
    found = set(store.expr.atoms(Load)) | {read for one in store.indices for read in one.atoms(Load)}
    return found | set(store.guard.atoms(Load))


def whole(read: Load, buffer: Buffer, swept: Mapping[Symbol, int]) -> bool:
    """Tell if a read is at distinct variables of its loop, each of which sweeps the buffer's whole dimension."""
    places = [swept.get(index) if isinstance(index, Symbol) else None for index in read.indices]
    return tuple(places) == buffer.shape and len(set(read.indices)) == len(read.indices)


def loaded_ahead(one: Subject) -> Iterator[str]:
    """What a pipeline fetches is not overwritten."""
    for loop in one.each(Loop):
        body = list(statements(loop.body)) if loop.pipelined else []
        ahead = {inner.target for inner in body if isinstance(inner, Copy) and isinstance(inner.source, Region)}
        written = [inner.buffer for inner in body if isinstance(inner, Fill)]
        written += [inner.target for inner in body if isinstance(inner, Copy) and isinstance(inner.source, str)
                    and isinstance(inner.target, str)]  # fmt: skip
        written += [store.target for inner in body if isinstance(inner, Parallel) for store in inner.body]
        yield from (
            f"`{name}` is loaded ahead by the loop over {loop.variable} and overwritten in it. Use another tile."
            for name in written
            if name in ahead
        )


def turned_to_shared(one: Subject) -> Iterator[str]:
    """Operands in registers stay there."""
    operands = {contract.a for contract in one.each(Contract) if one.scope(contract.a) == "fragment"}
    for copy in one.each(Copy):
        if copy.source in operands and one.scope(copy.target) == "shared":
            yield f"`{copy.source}` enters a contraction from registers and is copied to shared memory: use another."


def trip_count(one: Subject) -> Iterator[str]:
    """A pipeline of several stages over a varying number of tiles needs a loading warp."""
    for loop in one.each(Loop):
        varies = not (loop.start.is_Integer and loop.stop.is_Integer)
        if loop.pipelined and varies and loop.stages > 1 and not one.plan.warp_specialized:
            yield (
                f"the loop over {loop.variable} runs from {loop.start} to {loop.stop} in {loop.stages} stages, and "
                "TileLang pipelines a varying number of tiles in one stage only. Use stages=1, or specialise warps."
            )


def late(one: Subject) -> Iterator[str]:
    """Copies by TMA are waited for in the loop alone."""
    for copy in arriving_late(one.kernel, one.plan):
        yield (
            f"`{copy.target}` is loaded ahead of a loop that may take no step, and would arrive when its memory holds "
            "something else. Let the threads copy it (by_threads=True), or specialise no warps."
        )


def quotients(one: Subject) -> Iterator[str]:
    """Minima are taken of quotients, not the other way round."""
    bounds = [bind.value for bind in one.each(Bind)]
    bounds += [end for loop in one.each(Loop) for end in (loop.start, loop.stop)]
    for found in sorted({part for bound in bounds for part in bound.atoms(floor)}, key=str):
        if found.has(Min, Max):
            yield f"`{found}` divides a minimum or maximum, which TileLang may take for a constant. Divide its parts."


def filled(one: Subject) -> Iterator[str]:
    """Shared memory is filled by copies alone where warps have roles."""
    if one.plan.warp_specialized:
        shared = [fill.buffer for fill in one.each(Fill) if one.scope(fill.buffer) == "shared"]
        yield from (f"`{name}` lies in shared memory and is filled. Turn warp specialisation off." for name in shared)


def few_columns(one: Subject) -> Iterator[str]:
    """Warpgroups that share out the columns of few rows take more than 16 each."""
    groups = one.plan.threads // WARPGROUP
    if not (one.plan.tensor_cores and one.plan.device.wgmma and one.plan.warps == "rows"):
        return
    for contract in one.each(Contract):
        rows, columns = one.buffers[contract.c].shape
        if rows < GROUP_ROWS * groups and columns * rows < LEAST_SHARE * GROUP_ROWS * groups:
            yield (
                f"`{contract}` makes {rows} x {columns} by {groups} warpgroups, which share out its columns; two tiles "
                f"of so few were seen summed wrongly. Use {WARPGROUP} threads, or wider tiles."
            )


def reduced_width(one: Subject) -> Iterator[str]:
    """Widths that reductions of plain tiles take on CUDA."""
    if one.plan.multiplies or one.plan.device.target == "c":
        return
    for reduction in one.each(ReduceTile):
        width = one.buffers[reduction.source].shape[-1]
        if width & (width - 1) and width % (4 * one.plan.threads):
            yield (
                f"`{reduction}` is over {width} elements; {one.plan.threads} threads reduce a power of two or a "
                f"multiple of {4 * one.plan.threads}. Use such a block_streamed."
            )
