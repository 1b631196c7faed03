"""What one block of a plan loads, keeps and computes: read off the memory-access DAG of its chain.

A plan's nest is grid(streamed(inner)): the grid's loops are bound to blocks, so what counts for a block is the trips of
the streamed loop and of a producer's own loop around each statement. Where producers are whole, that loop is dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import final

from redalg.incremental.form import FusedForm
from redalg.strategies.chain import Block, Chain, Tensor, chain_of
from redalg.strategies.dag import COMPUTE, LOAD, Placed, place
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.products import operands_dtype
from redalg.strategies.rules import BYTES, blocks
from redalg.strategies.tiles import padded
from redalg.strategies.tiling import Nest

ACCUMULATED = 4
"""Bytes of a number of the state."""


@final
@dataclass(frozen=True)
class Traffic:
    """A form under a plan for a problem whose sizes hold packed axes too."""

    form: FusedForm
    plan: Plan
    problem: Problem

    @cached_property
    def chain(self) -> Chain:
        """The form's blocks."""
        return chain_of(self.form)

    # ---- loops -------------------------------------------------------------------------------------------------------

    @cached_property
    def streamed(self) -> str:
        """The loop over the streamed axis."""
        return str(self.plan.binding.streamed)

    @cached_property
    def column(self) -> str:
        """The loop over columns; `None` where there is none."""
        return str(self.plan.binding.column)

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """The producers' own loops."""
        return tuple(dict.fromkeys(str(one.cascade.axis) for one in self.form.cascade.producers))

    @cached_property
    def rows(self) -> frozenset[str]:
        """The axes along which rows of a tile differ, and along which a tensor may (not by the grid's groups alone)."""
        packing = self.plan.binding.packing
        grouped = {packing.grouped} if packing is not None else set()
        return frozenset(map(str, self.plan.binding.rows - grouped))

    @cached_property
    def trips(self) -> dict[str, int]:
        """Trips of every loop within a block: of the grid's, one."""
        found = dict.fromkeys(self.chain.loops, 1)
        found[self.streamed] = self.steps
        found |= {loop: -(-self.problem.sizes[loop] // (self.deep(loop) * self.plan.splits)) for loop in self.inner}
        return found

    @cached_property
    def steps(self) -> int:
        """Tiles of the streamed axis that one block takes, where no mask rules out any."""
        tiles = -(-max(1, self.problem.sizes[self.streamed]) // self.plan.block_streamed)
        return -(-tiles // self.plan.segments) if self.plan.splits == 1 else 1

    def deep(self, loop: str) -> int:
        """Elements of a producer's own axis that a tile holds."""
        whole = padded(self.problem.sizes[loop], 16)
        return min(self.plan.block_inner or whole, whole)

    @cached_property
    def nest(self) -> Nest:
        """The plan's tiling expression: blocks, rows and columns, then the streamed loop, then the producers' own."""
        grid = [str(axis) for axis in self.plan.binding.grid]
        column = self.plan.binding.column
        tiles = [str(axis) for axis in (self.plan.binding.row, column) if axis is not None]
        within = [loop for loop in self.inner if loop not in tiles]
        return Nest((*grid, *tiles, self.streamed), tuple(Nest((loop,)) for loop in within)).without(())

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """Every statement in its place."""
        loops = (self.streamed, *self.inner)
        return place(self.chain, Nest((self.streamed,), tuple(Nest((one,)) for one in self.inner)).without(
            set(self.chain.loops) - set(loops)), self.trips)  # fmt: skip

    # ---- tiles -------------------------------------------------------------------------------------------------------

    def length(self, loop: str) -> int:
        """Elements of a tile along a loop; rows together count once (see `elements`)."""
        if loop == self.streamed:
            return self.plan.block_streamed
        if loop == self.column:
            return self.plan.block_column
        if loop in self.inner:
            return self.deep(loop)
        return 1

    def elements(self, tensor: Tensor) -> int:
        """Elements of a tensor's tile."""
        own = prod(self.length(loop) for loop in tensor.loops if loop not in self.rows)
        return own * (self.plan.block_row if self.rows & set(tensor.loops) else 1)

    def width(self, tensor: Tensor) -> int:
        """Bytes of an element of an input."""
        return BYTES.get(self.problem.dtypes.get(tensor.name, ""), ACCUMULATED)

    def staged(self, tensor: Tensor) -> bool:
        """Whether a tile of it lies in shared memory: it has two dimensions, and enters a product."""
        along = [loop for loop in tensor.loops if loop not in self.rows and self.length(loop) > 1]
        return self.plan.multiplies and len(along) + bool(self.rows & set(tensor.loops)) > 1

    @cached_property
    def loads(self) -> tuple[Placed, ...]:
        """The loads."""
        return tuple(one for one in self.placed if one.statement.kind == LOAD)

    @cached_property
    def loaded_bytes(self) -> int:
        """Bytes that one block reads."""
        return sum(self.elements(one.statement.tensor) * self.width(one.statement.tensor) * one.trips(self.trips)
                   for one in self.loads)  # fmt: skip

    @cached_property
    def smem_bytes(self) -> int:
        """Shared memory of a block: staged tiles, those of the pipelined loop once a stage, and computed operands."""
        deepest = next((loop for loop in self.inner if self.trips[loop] > 1), self.streamed)
        total = 0
        for one in self.loads:
            tensor = one.statement.tensor
            if self.staged(tensor):
                ahead = max(1, self.plan.stages) if one.around and one.around[-1] == deepest else 1
                total += self.elements(tensor) * self.width(tensor) * ahead
        return total + self.operand_bytes

    @property
    def operand_bytes(self) -> int:
        """Tiles of rows and streamed elements that a product takes from shared memory after they were computed."""
        if not self.plan.binding.contracted or self.plan.warps == "rows":
            return 0
        found = {operands_dtype(one, self.problem, self.plan.device) for one in self.form.accumulators
                 if len(one.factors) > 1 and self.form.cascade.producers}  # fmt: skip
        return sum(self.plan.block_row * self.plan.block_streamed * BYTES.get(dtype, 4) for dtype in found)

    # ---- work --------------------------------------------------------------------------------------------------------

    @cached_property
    def products(self) -> tuple[tuple[Block, Placed], ...]:
        """The computations that are matrix products, with their places."""
        made = {one.statement.tensor.name: one for one in self.placed if one.statement.kind == COMPUTE}
        return tuple((block, made[block.output.name]) for block in self.chain.blocks if self.multiplies(block))

    def multiplies(self, block: Block) -> bool:
        """Whether a block multiplies tiles: it reduces over what it takes two operands of, rows and columns apart."""
        if not self.plan.multiplies or not block.reduced:
            return False
        if set(block.reduced) <= set(self.inner):
            return True
        return self.plan.binding.column is not None and str(self.plan.binding.column) in block.output.loops

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of one block's matrix products, on whole tiles."""
        return sum(2 * self.plan.block_row * prod(self.length(loop) for loop in dict.fromkeys(block.loops)
                                                  if loop not in self.rows) * one.trips(self.trips)
                   for block, one in self.products)  # fmt: skip

    @cached_property
    def grid(self) -> int:
        """Blocks of the kernel."""
        parts = self.plan.segments
        if self.plan.splits > 1:
            parts = self.plan.splits * -(-self.problem.sizes[self.streamed] // self.plan.block_streamed)
        return parts * blocks(self.plan.binding, self.problem, self.plan.block_row, self.plan.block_column)
