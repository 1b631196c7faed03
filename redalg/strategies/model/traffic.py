"""The loads, the tiles and the computations of one block of a plan, read off the memory-access DAG of its chain.

A plan's nest is grid(streamed(inner)), and the grid's loops are bound to blocks. So a block's count takes the trips of
the streamed loop, and of a producer's own loop, around each statement. If producers are whole, their loop is dead.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, prod
from typing import final

from redalg.expression.dtypes import DTYPES, is_eight_bits
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, makes_product
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import CLUSTER
from redalg.strategies.live import Live
from redalg.strategies.model.chain import Block, Tensor, chain_of
from redalg.strategies.model.dag import COMPUTE, LOAD, Placed, place
from redalg.strategies.model.tiling import Nest
from redalg.strategies.model.work import work_of
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.products import operands_dtype
from redalg.strategies.rules.tiles import round_up

VECTOR = 16
"""Bytes of the widest load."""
ACCUMULATED = 4
"""Bytes of a number of the state."""


@final
class Outline:
    """The facts that all plans of a form share: its chain, the names of loops under a binding, sizes, dtypes, work.

    Attributes:
        chain: the form's blocks; streamed, inner, rows, column: the loop over the streamed axis, the producers' own,
            those along which rows of a tile differ (without the axis whose groups the grid numbers), and the columns'.
        sizes: extents by loop, with those that packing makes.
        widths: bytes of an element, by tensor.
        moved_bytes: every input and output once; read_bytes: the inputs.
        products: the names of the producers that are matrix products.
        carried: True if an output carries the streamed axis, and is written after the whole axis was read.
        live: the tiles that a mask of places leaves.
        work: arithmetic of an element; loads: load instructions for it, of 16 bytes if neighbours lie side by side.
    """

    def __init__(self, form: FusedForm, binding: Binding, problem: Problem, device: DeviceSpec) -> None:
        self.form, self.problem, self.device = form, problem, device
        self.binding, self.sizes = binding, binding.all_sizes(problem.sizes)
        self.live = Live(form, binding, self.sizes, problem.scalars)
        self.chain, self.work = chain_of(form), work_of(form)
        self.streamed = str(binding.streamed)
        self.inner = tuple(dict.fromkeys(str(one.cascade.axis) for one in form.cascade.producers))
        by_group = {binding.packing.grouped} if binding.packing is not None else set()
        self.rows = frozenset(map(str, binding.rows - by_group))
        self.products = frozenset(one.name for one in form.cascade.producers if makes_product(one, binding))
        self.column = "" if binding.column is None else str(binding.column)
        self.contracted = binding.contracted
        self.tiled = [str(axis) for axis in (*binding.grid, binding.row, binding.column) if axis is not None]
        self.takers = {tensor: place for place, block in reversed(list(enumerate(self.chain.blocks)))
                       for tensor in block.inputs}  # fmt: skip
        self.sides = {tensor: self.by_row(tensor) for block in self.chain.blocks
                      for tensor in (*block.inputs, block.output)}  # fmt: skip
        self.widths = {name: DTYPES[dtype].bytes for name, dtype in problem.dtypes.items()}
        wide = [one for one in form.accumulators if len(one.factors) > 1]
        self.weighted = any(one.weight for one in wide)
        dtypes = {operands_dtype(one, form, problem, device) for one in wide}
        self.eight_bits = any(map(is_eight_bits, dtypes))
        self.operand_width = sum(DTYPES[dtype].bytes for dtype in dtypes) if form.cascade.producers else 0
        self.loads = sum(self.widths[one.name] / VECTOR if one.beside else 1.0 for one in self.work.reads)
        output_bytes = sum(DTYPES[problem.result].bytes * prod(self.sizes.get(str(axis), 1) for axis in output.axes)
                           for output in form.outputs)  # fmt: skip
        inputs = [one for one in self.chain.tensors() if one.name in problem.dtypes]
        self.read_bytes = sum(self.width(one) * self.elements_read(one, problem) for one in inputs)
        self.moved_bytes = output_bytes + self.read_bytes
        self.stored_width = sum(DTYPES[problem.result].bytes for one in form.outputs if binding.column in one.axes)
        self.carried = not form.is_elementwise and any(binding.streamed in one.axes for one in form.outputs)

    def under(self, binding: Binding) -> Outline:
        """The facts under a plan's own binding: pairwise terms have other columns than products."""
        if binding is self.binding or binding == self.binding:
            return self
        if binding not in self._others:
            form, problem, device = self.form, self.problem, self.device
            self._others[binding] = Outline(form, binding, problem, device)
        return self._others[binding]

    def by_row(self, tensor: Tensor) -> tuple[tuple[str, ...], bool]:
        """Return the loops of a tensor that are not rows, and True if some are."""
        return tuple(loop for loop in tensor.loops if loop not in self.rows), bool(self.rows & set(tensor.loops))

    def elements_read(self, tensor: Tensor, problem: Problem) -> int:
        """The elements that are read of an input: one for every point of its loops, or fewer if points share one."""
        points = prod(self.sizes.get(loop, 1) for loop in tensor.loops)
        shape = problem.shapes.get(tensor.name, ())
        return min(points, prod(shape)) if shape and all(isinstance(one, int) for one in shape) else points

    def width(self, tensor: Tensor) -> int:
        """The bytes of an element of a tensor."""
        return self.widths.get(tensor.name, ACCUMULATED)

    @cached_property
    def nest(self) -> Nest:
        """The loops within a block: the streamed one, and in it the producers'."""
        return Nest((self.streamed,), tuple(Nest((one,)) for one in self.inner)).without(())

    def placement(self, live: frozenset[str]) -> tuple[Placed, ...]:
        """Every statement in its place, if the loops in `live` run more than once and the others once."""
        if live not in self._placements:
            trips = {loop: 2 if loop in live else 1 for loop in self.chain.loops}
            self._placements[live] = place(self.chain, self.nest, trips)
        return self._placements[live]

    def tiles(self, plan: Plan) -> Tiles:
        """The tiles that plans of one shape share."""
        shape = shape_of_tiles(plan)
        if shape not in self._tiles:
            self._tiles[shape] = Tiles(self, plan)
        return self._tiles[shape]

    @cached_property
    def _tiles(self) -> dict[tuple[int, ...], Tiles]:
        return {}

    @cached_property
    def _others(self) -> dict[Binding, Outline]:
        return {}

    @cached_property
    def _placements(self) -> dict[frozenset[str], tuple[Placed, ...]]:
        return {}


def shape_of_tiles(plan: Plan) -> tuple[int, ...]:
    """The choices of a plan that its tiles and their number follow from."""
    lengths = plan.block_row, plan.block_streamed, plan.block_column, plan.block_inner
    return (*lengths, plan.segments, plan.splits, plan.multiplies, plan.loads_within, plan.is_serial)


@final
class Tiles:
    """The tiles of a block and what it moves and multiplies, which plans of the same tiles share (`Outline.tiles`)."""

    def __init__(self, outline: Outline, plan: Plan) -> None:
        """`plan` is any of those plans: only what `shape_of_tiles` names is read of it."""
        self.outline, self.multiplies, self.serial = outline, plan.multiplies, plan.is_serial
        self.splits, self.segments, self.rows = plan.splits, plan.segments, plan.block_row
        self.inner = plan.block_inner
        self.mean_steps = self._steps(plan)
        self.steps = ceil(self.mean_steps)
        self.trips = dict.fromkeys(outline.chain.loops, 1)
        self.trips[outline.streamed] = self.steps
        self.trips |= {loop: -(-outline.sizes[loop] // (self.deep(loop) * plan.splits)) for loop in outline.inner}
        self.lengths = dict.fromkeys(outline.chain.loops, 1)
        self.lengths |= {loop: self.deep(loop) for loop in outline.inner}
        self.lengths[outline.column] = plan.block_column
        self.lengths[outline.streamed] = plan.block_streamed
        self.placed = outline.placement(frozenset(loop for loop, count in self.trips.items() if count > 1))
        self.loads = self._loads()

    def _steps(self, plan: Plan) -> float:
        if plan.splits > 1 or plan.loads_within:  # a part is one tile, whether it is needed or not
            return 1
        return self.outline.live.tiles(plan.block_row, plan.block_streamed) / plan.segments

    def deep(self, loop: str) -> int:
        """The number of elements of a producer's own axis that a tile holds."""
        whole = round_up(self.outline.sizes[loop], 16)
        return min(self.inner or whole, whole)

    def elements(self, tensor: Tensor) -> int:
        """The number of elements in a tensor's tile."""
        loops, by_row = self.outline.sides[tensor]
        return prod([self.lengths[loop] for loop in loops]) * (self.rows if by_row else 1)

    def is_staged(self, tensor: Tensor) -> bool:
        """Tell if a tile of a tensor lies in shared memory: it has two dimensions, and enters a product.

        Lanes with rows of their own take all streamed elements from there.
        """
        loops, by_row = self.outline.sides[tensor]
        if self.serial:
            return self.outline.streamed in loops
        return self.multiplies and sum(self.lengths[loop] > 1 for loop in loops) + by_row > 1

    @cached_property
    def instructions(self) -> tuple[float, float]:
        """The plain and the special instructions of a step's terms; products have units of their own."""
        counts = self.outline.work.counts
        if self.multiplies:
            counts = tuple(one for one in counts if not one.is_product and one.producer not in self.outline.products)
        points = [self.points(one.axes) for one in counts]
        plain = sum(one.plain * times for one, times in zip(counts, points, strict=True))
        return plain, sum(one.special * times for one, times in zip(counts, points, strict=True))

    def points(self, axes: frozenset[str]) -> int:
        """The points of some axes in one step of a block; along a producer's own, all of them."""
        outline = self.outline
        lengths = [outline.sizes[loop] for loop in outline.inner if loop in axes]
        lengths += [self.lengths[loop] for loop in (outline.streamed, outline.column) if loop in axes]
        return prod(lengths) * (self.rows if outline.rows & axes else 1)

    def _loads(self) -> tuple[Placed, ...]:
        """The loads; parts of a tensor that form one tile in one place count as one load."""
        loads: dict[tuple[str, int, tuple[str, ...]], Placed] = {}
        for load in self.placed:
            tensor = load.statement.tensor
            if load.statement.kind == LOAD:
                loads.setdefault((tensor.name, self.elements(tensor), load.around), load)
        return tuple(loads.values())

    @cached_property
    def loaded_bytes(self) -> int:
        """The bytes that one block reads."""
        loads = ((load.statement.tensor, load.trips(self.trips)) for load in self.loads)
        return sum(self.elements(tensor) * self.outline.width(tensor) * times for tensor, times in loads)

    @cached_property
    def staged_loads(self) -> tuple[tuple[int, int, bool], ...]:
        """For every tile in shared memory: the computation that takes it, its bytes, and if the loop pipelines it."""
        loops = (*self.outline.inner, self.outline.streamed)
        deepest = next((loop for loop in loops if self.trips[loop] > 1), self.outline.streamed)
        tiles = []
        for load in self.loads:
            tensor = load.statement.tensor
            if self.is_staged(tensor):
                size = self.elements(tensor) * self.outline.width(tensor)
                tiles.append((self.outline.takers[tensor], size, load.around[-1:] == (deepest,)))
        return tuple(tiles)

    @cached_property
    def products(self) -> tuple[tuple[Block, Placed], ...]:
        """The computations that are matrix products, with their places."""
        computations = {one.statement.tensor.name: one for one in self.placed if one.statement.kind == COMPUTE}
        blocks = (block for block in self.outline.chain.blocks if self.is_product(block))
        return tuple((block, computations[block.output.name]) for block in blocks)

    def is_product(self, block: Block) -> bool:
        """Tell if a block multiplies tiles: it reduces an axis of two operands, with rows and columns apart."""
        if not self.multiplies or not block.reduced:
            return False
        of_producer = set(block.reduced) <= set(self.outline.inner)
        return block.output.name in self.outline.products if of_producer else self.outline.column in block.output.loops

    @cached_property
    def flops(self) -> int:
        """The multiplications and additions of one block's matrix products, on whole tiles."""
        return sum(2 * self.rows * prod(self.lengths[loop] for loop in dict.fromkeys(block.loops)
                                        if loop not in self.outline.rows) * placed.trips(self.trips)
                   for block, placed in self.products)  # fmt: skip


@final
class Traffic:
    """The traffic of a plan, for the form that an outline describes.

    Attributes:
        outline: of the form under the plan's binding.
        plan: as given.
        tiles: what plans of the same tiles share.
        trips: the trips of every loop within a block; a loop of the grid has one.
        steps: the number of tiles of the streamed axis that one block takes, of those that a mask of places leaves:
            `mean_steps` rounded up.
        loads, loaded_bytes: the loads of a block, and the bytes that they read.
        flops: the multiplications and additions of one block's matrix products, on whole tiles.
        passes: the number of times the streamed axis is read: two for outputs that carry it, unless one tile holds it.
    """

    def __init__(self, outline: Outline, plan: Plan) -> None:
        self.outline, self.plan = outline.under(plan.binding), plan
        self.tiles = self.outline.tiles(plan)
        self.trips, self.steps, self.loads = self.tiles.trips, self.tiles.steps, self.tiles.loads
        self.mean_steps = self.tiles.mean_steps
        self.loaded_bytes, self.flops = self.tiles.loaded_bytes, self.tiles.flops
        again = outline.carried and self.steps * plan.segments > 1 and plan.merge != CLUSTER
        self.passes = 2 if again else 1

    @cached_property
    def nest(self) -> Nest:
        """The plan's tiling expression: blocks, rows and columns, then the streamed loop, then the producers' own.

        Loops of one trip are left out, as the paper does.
        """
        tiles, trips = self.outline.tiled, self.trips
        columns = self.plan.block_column >= self.outline.sizes.get(self.outline.column, 0)
        dead = {loop for loop in (self.outline.streamed, *self.outline.inner) if trips[loop] == 1}
        dead |= {self.outline.column} if columns else set()
        within = tuple(Nest((loop,)) for loop in self.outline.inner if loop not in tiles)
        return Nest((*tiles, self.outline.streamed), within).without(dead)

    @cached_property
    def smem_bytes(self) -> int:
        """The shared memory of a block: staged tiles (those of the pipelined loop once a stage) and computed operands.

        If the streamed loop runs once, there is no loop, and the tiles of a computation make room for those of the
        next. The tiles of results take the room of operands, unless the block goes on to the next tile.
        """
        ahead, sizes = max(1, self.plan.stages), [0] * max(1, len(self.outline.chain.blocks))
        for taker, size, pipelined in self.tiles.staged_loads:
            sizes[taker] += size * ahead if pipelined else size
        sizes[-1] += self.operand_bytes
        if self.plan.persistent and self.outline.contracted and self.plan.segments == 1:
            sizes[-1] += self.plan.block_row * self.plan.block_column * self.outline.stored_width
        return sum(sizes) if self.steps > 1 else max(sizes)

    @property
    def operand_bytes(self) -> int:
        """The bytes of computed tiles, of rows and streamed elements, that a product takes from shared memory."""
        if not self.outline.contracted or (self.outline.weighted and self.plan.warps == "rows"):
            return 0  # weights stay in registers
        return self.plan.block_row * self.plan.block_streamed * self.outline.operand_width

    @cached_property
    def grid(self) -> int:
        """The number of blocks of the kernel."""
        plan, sizes, parts = self.plan, self.outline.sizes, self.plan.segments
        if plan.splits > 1:
            parts = plan.splits * -(-sizes[self.outline.streamed] // plan.block_streamed)
        row = plan.binding.row
        tiles = -(-max(1, sizes[row.name]) // plan.block_row) if row is not None else 1
        tiles *= -(-sizes[self.outline.column] // plan.block_column) if self.outline.column else 1
        return parts * tiles * prod([max(1, sizes[axis.name]) for axis in plan.binding.grid])
