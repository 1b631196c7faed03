"""Compute an output in its row's place in shared memory, and store it in bulk, where its rows begin anywhere.

    x_tile <- x[first:+n] in bulk;  …;  for j: out[first + j] = g(x_tile[j], w[begin + j])
    →   x_tile <- x[first:+n] in bulk;  …;  for turn: for w, l: x_tile[at] = g(x_tile[at], w[begin + at])
        out[first:+n] <- x_tile in bulk                                                          at(turn, w, l) < n

Exact: each element is the same, of the same operands, and nothing reads the row any more. Threads that store vectors of
an output read its weights one by one, each thread at another line of the cache: weights begin elsewhere among vectors
than the row does. Here neighbours read neighbours. H200, bfloat16, the share of the time: root mean squares of 16384 x
4095 0.91, of 4096 x 16383 0.90, of 4096 x 32003 0.87, of 2048 x 50257 0.98, of 1024 x 128257 in clusters 0.95; layer
norms of the first four lengths 0.93, 0.90, 0.82, 0.90, in clusters 1.00. Rows that begin at vectors would take 1.05
(layer norms of 2048 x 50264), rows without weights 1.04 (softmaxes of 2048 x 50257).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Integer, Lt, S
from sympy.core.basic import Basic
from sympy.logic.boolalg import BooleanTrue

from redalg.expression import Where
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import names_in
from redalg.lower_tile.ir.program import (
    Copy,
    Kernel,
    Loop,
    Parallel,
    Parameter,
    Region,
    Statement,
    Store,
    TileProgram,
)
from redalg.lower_tile.ir.row_pieces import I, J
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.whole_row_sums import IN_BLOCK, IN_WARP, TURN
from redalg.lower_tile.passes.whole_turns import at_turn, least_numbers, turns_of
from redalg.strategies.device import LOAD_BYTES, WARP
from redalg.strategies.plan import Plan

LANE_BYTES = 4
"""Bytes of neighbouring elements that a lane takes: those of one bank of shared memory. Float32 gains nothing (layer
norms of 1024 x 20001 in 1.06 of the time, of 512 x 128257 in clusters 1.10)."""


def store_rows_in_bulk(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose kernels store rows that begin anywhere in bulk, where weights of all rows scale them."""
    parameters = {one.name: one for one in program.parameters}
    kernels = (with_rows_in_bulk(one, one.plan or plan, parameters) for one in program.kernels)
    return replace(program, kernels=tuple(kernels))


def with_rows_in_bulk(kernel: Kernel, plan: Plan, parameters: Mapping[str, Parameter]) -> Kernel:
    """A kernel whose output is computed in the place of the row that it is of."""
    fetched = [one for one in kernel.body if isinstance(one, Copy) and one.in_bulk]
    body = list(kernel.body)
    for place, statement in enumerate(kernel.body):
        later = {name for one in kernel.body[place + 1 :] for name in names_in(one)}
        rows = (row_stored(statement, one, plan, parameters) for one in fetched)
        row = next((one for one in rows if one is not None and one.tile not in later), None)
        if row is not None:
            body[place : place + 1] = row.statements(least_numbers(kernel))
            return replace(kernel, body=tuple(body))
    return kernel


def row_stored(statement: Statement, fetch: Copy, plan: Plan, parameters: Mapping[str, Parameter]) -> StoredRow | None:
    """The row that a loop stores where another one was fetched; None if it stores something else."""
    source, target = fetch.source, fetch.target
    if not isinstance(statement, Parallel) or not isinstance(source, Region) or not isinstance(target, Region):
        return None
    if [name for name, _ in statement.indices] != [I, J] or len(statement.body) != 1 or len(source.place) != 1:
        return None
    [store], [(_, rows), (_, width)], [place] = statement.body, statement.indices, source.place
    if store.target not in parameters or not isinstance(place, tuple) or store.indices != (place[0] + J,):
        return None
    dtype = parameters[source.name].dtype
    size, reads = DTYPES[dtype].bytes, store.expr.atoms(Load)
    narrow = size < LANE_BYTES and width * size % (plan.threads * LOAD_BYTES) == 0
    places = {read.indices[-1] for read in reads if read.name == target.name}
    weights = frozenset(read.name for read in reads if read.name in parameters and read.has(J))
    alike = parameters[store.target].dtype == dtype and rows == 1 and statement.guard == S.true
    is_whole = isinstance(store.guard, Lt | BooleanTrue)
    if not weights or not narrow or places != {J} or not alike or not is_whole or place[0] == 0:
        return None
    return StoredRow(fetch, store, width, plan.threads, size, weights)


@final
@dataclass(frozen=True)
class StoredRow:
    """An output's row, which has the memory of the row that was fetched.

    Attributes:
        fetch: the copy that fetched the row to its tile in shared memory.
        store: the store of an element of the output.
        width: elements of the tile.
        threads: of the block.
        bytes: of an element.
        weights: the parameters that it reads along the row.
    """

    fetch: Copy
    store: Store
    width: int
    threads: int
    bytes: int
    weights: frozenset[str]

    @property
    def tile(self) -> str:
        """The tile of the row."""
        return region(self.fetch.target).name

    def statements(self, least: Mapping[Basic, Basic]) -> Iterator[Statement]:
        """Yield the turns in which all elements are the row's, each of the others, and the copy to memory.

        What lies behind the row in a turn that has elements of it is computed, too: threads that went apart could not
        wait for each other.
        `least`: numbers of the kernel -> the least that they are.
        """
        warps, length = self.threads // WARP, WARP * LOAD_BYTES // self.bytes
        step = warps * length
        at: dict[Basic, Basic] = {I: S.Zero, J: IN_BLOCK * length + TURN * step + IN_WARP}
        guard = self.store.guard.xreplace(at)
        lanes = ((IN_BLOCK, warps), (IN_WARP, length))
        turns = Loop(TURN, Integer(self.width // step), 0, (), pipelined=False)
        whole = turns_of(guard.xreplace(least), turns, {name: Integer(extent - 1) for name, extent in lanes})
        element = Store(self.tile, (S.Zero, at[J]), self.store.expr.xreplace(at))
        each = Parallel(lanes, (element,), adjacent=LANE_BYTES // self.bytes, lanes=WARP)
        if whole:
            yield replace(turns, stop=Integer(whole), body=(each,))
        weights = (one for one in element.expr.atoms(Load) if one.name in self.weights and one.has(IN_WARP))
        within = element.expr.xreplace({one: Where(guard, one, S.Zero) for one in weights})
        rest = replace(each, body=(replace(element, expr=within),))
        for turn in range(whole, int(turns.stop)):
            if guard.xreplace({TURN: Integer(turn)}) != S.false:
                yield at_turn(rest, TURN, turn)
        source, tile = region(self.fetch.source), region(self.fetch.target)
        yield replace(self.fetch, source=tile, target=replace(source, name=self.store.target))


def region(side: Region | str) -> Region:
    """One side of a copy that fetches a row."""
    if not isinstance(side, Region):
        raise AssertionError(f"`{side}` is no part of a row")
    return side
