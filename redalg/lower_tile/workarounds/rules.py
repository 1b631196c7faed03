"""Programs that TileLang compiles into wrong code, or fails on without a helpful message.

They are refused before they are emitted. Seen in TileLang 0.1.15, or reported on its tracker (by number).

registers            a tile in registers is read at the indices that its loop sweeps, whole: one that is read at a
                     serial variable, shifted, or at two places at once is wrong or not compiled (#2396, #2957); but
                     turns that take what all threads load at once are right, on GPUs and in the code that we read
prefetch overwrites  what a pipelined loop loads ahead is written by nothing else in it (#2668)
operand copies       registers that enter a contraction are not copied to shared memory as well (#2954)
trip count           bounds that vary from block to block go with one stage where loads are not a warp's own
late                 what some warps load alone ahead of a loop that may take no step is waited for by nobody (`tma`)
quotients            a number of tiles is no quotient of a minimum or maximum, which is taken for a constant: seen with
                     ⌊min(99, 64·q + 63) / 64⌋ + 1, q < 2, which became 2
shared fills         shared memory is not filled where warps are specialised
few columns          warpgroups that share out a product's columns take 32 each at least: of 16, two tiles of a pipeline
                     were summed wrongly, every time and by one of the texts that say the same (nvcc 13.0, an H200)
reduced width        without a contraction, a power of two or a multiple of four elements for every thread
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from sympy import Max, Min, S, Symbol, expand, floor

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
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.subject import Subject
from redalg.lower_tile.workarounds.tma import arriving_late

WARPGROUP, GROUP_ROWS = 128, 64
"""Threads that multiply matrices together on sm_90, and the rows that they take."""
LEAST_SHARE = 32
"""The least columns of a warpgroup, if several share out the columns of the same rows."""


def registers(subject: Subject) -> Iterator[str]:
    """Refuse reads of a tile in registers at other indices than those of the loop; all threads hold a tile of one."""
    for loop in subject.each(Parallel):
        extents = dict(loop.indices)
        for store in loop.body:
            for read in sorted(loads_in_store(store), key=str):
                if subject.scope(read.name) != "fragment":
                    continue
                buffer = subject.buffers[read.name]
                if prod(buffer.shape) > 1 and not sweeps_whole_buffer(read, buffer, extents):
                    yield (
                        f"`{read}` reads a tile in registers elsewhere than where its loop stands, which TileLang gets "
                        "wrong. Stage the tile in shared memory."
                    )


def loads_in_store(store: Store) -> set[Load]:
    """The elements that a store reads."""
    loads = set(store.expr.atoms(Load)) | {read for one in store.indices for read in one.atoms(Load)}
    return loads | set(store.guard.atoms(Load))


def sweeps_whole_buffer(read: Load, buffer: Buffer, extents: Mapping[Symbol, int]) -> bool:
    """Tell if a read is at distinct variables of its loop, each of which sweeps the buffer's whole dimension."""
    places = [extents.get(index) if isinstance(index, Symbol) else None for index in read.indices]
    whole = tuple(places) == buffer.shape and len(set(read.indices)) == len(read.indices)
    return whole or sweeps_in_turns(read, buffer, extents)


def sweeps_in_turns(read: Load, buffer: Buffer, extents: Mapping[Symbol, int]) -> bool:
    """Tell if a read is at turn·W + (variables of its loop in order), of W values: the last dimension, in turns.

    Such turns stay within threads where each of them takes what all threads load at once (`passes.whole_row_sums`).
    """
    *rows, last = read.indices
    own, order = {index: extent for index, extent in extents.items() if index not in rows}, S.Zero
    for index, extent in own.items():
        order = order * extent + index
    width = prod(own.values())
    places = [extents.get(row, 0) if isinstance(row, Symbol) else 1 - row for row in rows]
    in_turns = isinstance(expand(last - order) / width, Symbol) and buffer.shape[-1] % width == 0
    return in_turns and tuple(places) == buffer.shape[:-1]


def prefetch_overwrites(subject: Subject) -> Iterator[str]:
    """Refuse loops that overwrite a tile which their pipeline fetches."""
    for loop in subject.each(Loop):
        body = list(nested_statements(loop.body)) if loop.pipelined else []
        ahead = {inner.target for inner in body if isinstance(inner, Copy) and isinstance(inner.source, Region)}
        targets = [inner.buffer for inner in body if isinstance(inner, Fill)]
        targets += [inner.target for inner in body if isinstance(inner, Copy) and isinstance(inner.source, str)
                    and isinstance(inner.target, str)]  # fmt: skip
        targets += [store.target for inner in body if isinstance(inner, Parallel) for store in inner.body]
        yield from (
            f"`{name}` is loaded ahead by the loop over {loop.variable} and overwritten in it. Use another tile."
            for name in targets
            if name in ahead
        )


def operand_copies(subject: Subject) -> Iterator[str]:
    """Refuse copies of operands in registers to shared memory: they stay in registers."""
    operands = {contract.a for contract in subject.each(Contract) if subject.scope(contract.a) == "fragment"}
    for copy in subject.each(Copy):
        if copy.source in operands and subject.scope(copy.target) == "shared":
            yield f"`{copy.source}` enters a contraction from registers and is copied to shared memory: use another."


def trip_count(subject: Subject) -> Iterator[str]:
    """Refuse pipelines of several stages over a varying number of tiles, unless they have a loading warp."""
    for loop in subject.each(Loop):
        varies = not (loop.start.is_Integer and loop.stop.is_Integer)
        if loop.pipelined and varies and loop.stages > 1 and not subject.plan.warp_specialized:
            yield (
                f"the loop over {loop.variable} runs from {loop.start} to {loop.stop} in {loop.stages} stages, and "
                "TileLang pipelines a varying number of tiles in one stage only. Use stages=1, or specialise warps."
            )


def late(subject: Subject) -> Iterator[str]:
    """Refuse copies by TMA ahead of a loop that may take no step: the loop alone waits for them."""
    for copy in arriving_late(subject.kernel, subject.plan):
        yield (
            f"`{copy.target}` is loaded ahead of a loop that may take no step, and would arrive when its memory holds "
            "something else. Let the threads copy it (by_threads=True), or specialise no warps."
        )


def quotients(subject: Subject) -> Iterator[str]:
    """Refuse quotients of a minimum or maximum: minima are taken of quotients, not the other way round."""
    bounds = [bind.value for bind in subject.each(Bind)]
    bounds += [end for loop in subject.each(Loop) for end in (loop.start, loop.stop)]
    for node in sorted({part for bound in bounds for part in bound.atoms(floor)}, key=str):
        if node.has(Min, Max):
            yield f"`{node}` divides a minimum or maximum, which TileLang may take for a constant. Divide its parts."


def shared_fills(subject: Subject) -> Iterator[str]:
    """Refuse fills of shared memory if warps have roles: copies alone may fill it."""
    if subject.plan.warp_specialized:
        names = [fill.buffer for fill in subject.each(Fill) if subject.scope(fill.buffer) == "shared"]
        yield from (f"`{name}` lies in shared memory and is filled. Turn warp specialisation off." for name in names)


def few_columns(subject: Subject) -> Iterator[str]:
    """Refuse products of few rows if warpgroups share out the columns and take 16 each: they must take more."""
    groups = subject.plan.threads // WARPGROUP
    if not (subject.plan.tensor_cores and subject.plan.device.wgmma and subject.plan.warps == "rows"):
        return
    for contract in subject.each(Contract):
        rows, columns = subject.buffers[contract.c].shape
        if rows < GROUP_ROWS * groups and columns * rows < LEAST_SHARE * GROUP_ROWS * groups:
            yield (
                f"`{contract}` makes {rows} x {columns} by {groups} warpgroups, which share out its columns; two tiles "
                f"of so few were seen summed wrongly. Use {WARPGROUP} threads, or wider tiles."
            )


def reduced_width(subject: Subject) -> Iterator[str]:
    """Refuse widths that reductions of plain tiles do not take on CUDA, unless their loops say who takes an element."""
    if subject.plan.multiplies or subject.plan.device.target == "c":
        return
    laid_out = {store.target for loop in subject.each(Parallel) if loop.lanes for store in loop.body}
    for reduction in subject.each(ReduceTile):
        width = subject.buffers[reduction.source].shape[reduction.dim]
        if width & (width - 1) and width % (4 * subject.plan.threads) and reduction.source not in laid_out:
            yield (
                f"`{reduction}` is over {width} elements; {subject.plan.threads} threads reduce a power of two or a "
                f"multiple of {4 * subject.plan.threads}. Give the loop such a tile."
            )
