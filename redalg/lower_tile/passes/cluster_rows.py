"""Share out a long row among the blocks of a cluster, which fetch a part each.

    block b:        x_tile[:L] <- x[b, :L] in bulk;  v = Σ_j f(x_tile[j]);          out[b, j] = g(x_tile[j], v)
    →   block z of C, b:
                    x_tile[:P] <- x[b, z·P:+P] in bulk;  v = Σ_j f(x_tile[j]), of all blocks;  out[b, z·P + j] = …

The terms are the same, in another order: the sums of all warps of all blocks meet in a table that each block has
(`whole_row_sums`). Parts are of whole vectors; the last one may be shorter. What is one number for a row, the first
block stores. The ends of a row that begins anywhere (`aligned_rows`) all blocks add up, and the first one stores.

A row that no block holds is read once so, and not twice (`rules.cluster_rows` has times).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import And, Eq, Expr, Integer, Lt, Min, S, floor
from sympy.core.basic import Basic

from redalg.errors import PlanError
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import free_names, tiles_in_bulk
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Copy,
    Kernel,
    Parallel,
    Parameter,
    Region,
    Statement,
    Store,
    TileProgram,
    index,
)
from redalg.lower_tile.ir.row_pieces import J
from redalg.lower_tile.ir.row_places import conditions_of
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.bulk_rows import parameters_in_bulk
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.levels import CLUSTER
from redalg.strategies.plan import Plan
from redalg.strategies.rules.tiles import round_up

PART = index("part")
"""A block's place in its cluster."""
OWN = index("own")
"""Stands for the index of a loop over a part, while that of the row gives way."""


def share_rows_in_clusters(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose kernels share out their rows among blocks, where the plan has clusters.

    Raises:
        PlanError: fewer parts hold the rows, rows differ, or the axis ends ahead of them.
    """
    if plan.merge != CLUSTER:
        return program
    parameters, names = {one.name: one for one in program.parameters}, free_names(program)
    kernels = (_in_kernel(one, plan, parameters, names) if tiles_in_bulk(one) else one for one in program.kernels)
    return replace(program, kernels=tuple(kernels))


def _in_kernel(kernel: Kernel, plan: Plan, parameters: Mapping[str, Parameter], names: Names) -> Kernel:
    """A kernel whose blocks take a part of a row each."""
    lengths = fetched_lengths(kernel)
    if len(lengths) > 1:
        raise PlanError(f"schedule `{plan}` shares out rows of {sorted(lengths)} elements, which differ. Use a Loop.")
    (length,), sources = lengths, parameters_in_bulk(kernel, parameters)
    wide = LOAD_BYTES // min(DTYPES[one.dtype].bytes for one in sources)
    part = round_up(-(-length // plan.segments), wide)
    if part * (plan.segments - 1) >= length:
        raise PlanError(
            f"schedule `{plan}` shares out rows of {length} elements, of which {plan.segments - 1} blocks take all, in "
            f"vectors of {wide}. Use fewer blocks."
        )
    whole = plan.segments * plan.block_streamed
    loops = (one for one in kernel.body if isinstance(one, Parallel) and dict(one.indices).get(J) == whole)
    count = Bind(names.fresh("length"), Min(part, length - PART * part), "int32")
    ends = dict(zip(row_ends(Integer(length), wide, J), row_ends(Load(count.name), wide, OWN), strict=True))
    if whole != length and not all(ends.keys() & conditions_of([one]) for one in loops):
        raise PlanError(
            f"schedule `{plan}` shares out rows of {length} elements among blocks, and axis {plan.binding.streamed} "
            "ends ahead of them. Use a Loop."
        )
    tiles = frozenset(one.name for one in kernel.buffers if one.shape[-1] == whole)
    split = Split(part, length, whole, plan.block_streamed, Load(count.name), ends, tiles, frozenset(parameters))
    body = (*(() if whole == length else (count,)), *map(split.statement, kernel.body))
    grid, buffers = ((PART, plan.segments), *kernel.grid), tuple(map(split.buffer, kernel.buffers))
    return replace(kernel, grid=grid, buffers=buffers, body=body, cluster=plan.segments)


def fetched_lengths(kernel: Kernel) -> set[int]:
    """The elements of each row that a kernel fetches: all, or those in its whole vectors."""
    sources = (one.source for one in kernel.body if isinstance(one, Copy) and one.in_bulk)
    spans = (one.place[-1] for one in sources if isinstance(one, Region))
    return {int(span[1]) for span in spans if isinstance(span, tuple)}


def row_ends(length: Expr, wide: int, place: Expr) -> list[Basic]:
    """The conditions that a place lies in a row of so many elements: by elements, and by vectors of up to `wide`."""
    vectors = (2**power for power in range(1, wide.bit_length()))
    return [Lt(place, length), *(Lt(floor(place / size), floor(length / size)) for size in vectors)]


@final
@dataclass(frozen=True)
class Split:
    """The places of a row's elements in the parts that blocks have.

    Attributes:
        part: elements of a part.
        length: of a row.
        whole, tile: of the tile of a row, and of a part.
        count: of the block's own part.
        ends: the conditions that a row has an element -> that the block's part has it, at OWN.
        tiles: the buffers that hold a number for every element.
        parameters: those of the program.
    """

    part: int
    length: int
    whole: int
    tile: int
    count: Expr
    ends: Mapping[Basic, Basic]
    tiles: frozenset[str]
    parameters: frozenset[str]

    @property
    def is_ragged(self) -> bool:
        """True if the last part is shorter."""
        return self.length % self.part != 0

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer of a part of a row in place of that of a row; another one as it is."""
        return replace(buffer, shape=(*buffer.shape[:-1], self.tile)) if buffer.name in self.tiles else buffer

    def statement(self, statement: Statement) -> Statement:
        """A statement about a row as one about a part of it; one about numbers stores them in the first block."""
        if isinstance(statement, Copy):
            return self.copy(statement)
        if isinstance(statement, Parallel) and dict(statement.indices).get(J) == self.whole:
            indices = tuple((name, self.tile if name == J else extent) for name, extent in statement.indices)
            return replace(statement, indices=indices, body=tuple(map(self.store, statement.body)))
        if isinstance(statement, Parallel) and any(store.target in self.parameters for store in statement.body):
            return replace(statement, guard=And(statement.guard, Eq(PART, 0)))
        return statement

    def copy(self, copy: Copy) -> Copy:
        """The copy of a part of a row; another copy as it is."""
        if not isinstance(copy.source, Region) or not isinstance(copy.target, Region):
            return copy
        *row, (first, _) = copy.source.place
        source = replace(copy.source, place=(*row, (first + PART * self.part, self.part)))
        target = replace(copy.target, place=(S.Zero, (S.Zero, self.part)))
        return replace(copy, source=source, target=target, count=self.count if self.is_ragged else None)

    def store(self, store: Store) -> Store:
        """A store of an element of a part."""
        indices = store.indices if store.target in self.tiles else tuple(map(self.of_part, store.indices))
        return replace(store, indices=indices, expr=self.of_part(store.expr), guard=self.of_part(store.guard))

    def of_part(self, node: Any) -> Any:
        """An expression of an element of a row as one of an element of a part; tiles hold the part's own."""
        reads = (read for read in node.atoms(Load) if read.name in self.tiles)
        own = {read: Load(read.name, *(one.xreplace({J: OWN}) for one in read.indices)) for read in reads}
        return node.xreplace(own).xreplace(self.ends).xreplace({J: PART * self.part + J}).xreplace({OWN: J})
