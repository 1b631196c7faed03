"""The rule for whole rows: a tile of columns that holds rows from end to end makes the numbers of these rows too.

    v[b] = ⊕_m g(x[b, m]);  s[n] = Σ_b f(x[b, n], v[b]);  out[b, n] = h(x[b, n], v[b])

As stages, v is made ahead of the loop over b that sums columns, and out in the loop: x is read twice. A block whose
tile holds whole rows, where n is as long as m, makes v of the tile as well: x is read once. Blocks take parts of b.
"""

from __future__ import annotations

from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.plan import Plan, Problem
from redalg.strategies.rules.powers import power_of_two, power_within
from redalg.strategies.rules.rows import WIDE_LOAD, lies_in_columns, vector
from redalg.strategies.rules.tiles import round_up
from redalg.strategies.schedule import Schedule
from redalg.strategies.varying import tiles_of

LOADS, MOST_NUMBERS = 2, 64
"""The 16-byte loads that a thread makes of a tile, and the numbers of state that it keeps for its columns, at most."""
LEAST_THREADS = 128
"""Threads of a block at least. It has half as many as its loads ask for if rows of 16 bits have several sums, at which
fewer warps meet sooner, and if so many keep the numbers of its columns (H200, gradients of layer norms of 8192 x 4096
in bfloat16: 0.88 of the time)."""
THREADS_OF_CHIP, STAGES, TILES_OF_PART = 512, 2, 4
"""Threads of a multiprocessor's blocks, which each take a part of the rows; the stages of their loads; and the tiles of
rows that a part has, at least (H100, gradients of layer norms of 8192 x 4096 in bfloat16: 0.60 of the time of 512
threads a row, which make one load each without a pipeline)."""


def whole_rows_schedule(stages: Stages, problem: Problem, device: DeviceSpec, binding: Binding) -> Schedule | None:
    """The schedule of tiles of whole rows; None if no stage ahead is made of them, or if they are too long."""
    loop, row, streamed = stages.loop, binding.row, binding.streamed
    if device.target == "c" or row is None or not lies_in_columns(loop, problem, binding):
        return None
    within = stages_within(stages, problem, binding)
    if loop.structures or not loop.is_lanewise or not within:
        return None
    wide, length = vector(problem), problem.sizes[row.name]
    most = min(1024, max(LEAST_THREADS, power_of_two(length) // (LOADS * wide)))
    threads = min((most, max(LEAST_THREADS, most // 2)), key=lambda count: padded_columns(length, count))
    blocks = device.multiprocessors * max(1, THREADS_OF_CHIP // threads)
    several = sum(not one.is_count for form in within for one in form.accumulators) > 1
    if several and wide > WIDE_LOAD and 2 * len(loop.slots) * padded_columns(length, threads) <= MOST_NUMBERS * threads:
        threads = max(LEAST_THREADS, threads // 2)
    columns = padded_columns(length, threads)
    rows = max(1, LOADS * threads * wide // columns)
    if len(loop.slots) * columns * rows > MOST_NUMBERS * threads:
        return None
    tiles = tiles_of(problem.sizes[streamed.name], rows)
    parts = power_within(max(1, min(blocks, tiles // TILES_OF_PART)))
    grid = (*(Grid(axis.name) for axis in binding.grid), Grid(row.name, columns))
    divided = (Parts(streamed.name, parts),) if parts > 1 else ()
    return Schedule.of_levels(
        (*grid, *divided, Lanes(row.name, threads), Loop(streamed.name, rows, STAGES)), binding, device
    )


def padded_columns(length: int, threads: int) -> int:
    """The columns of a tile of whole rows: a number that so many threads reduce."""
    return min(power_of_two(length), round_up(length, 4 * threads))


def forms_within(stages: Stages, plan: Plan, problem: Problem) -> tuple[FusedForm, ...]:
    """The forms ahead of the loop that a plan's tiles make themselves: the tiles must hold whole rows."""
    binding = plan.binding
    if plan.level != "thread" or not plan.along_rows or binding.row is None or binding.packing is not None:
        return ()
    length = problem.sizes[binding.row.name]
    return stages_within(stages, problem, binding) if plan.block_row >= length else ()


def stages_within(stages: Stages, problem: Problem, binding: Binding) -> tuple[FusedForm, ...]:
    """The stages ahead that only the loop reads, and that reduce the rows of a tensor whose columns it sums."""
    others = {one.name for form in stages.forms if form is not stages.loop for one in form.cascade.elements()}
    returned = {one.name for one in stages.outputs}
    apart = {one.name for one in stages.intermediates} - others - returned
    known = not {one.name for one in (binding.row, binding.streamed) if one is not None} & problem.varying
    return tuple(
        form for form in stages.ahead
        if known and {one.name for one in form.outputs} <= apart and _is_of_rows(form, stages.loop, problem, binding)
    )  # fmt: skip


def _is_of_rows(form: FusedForm, loop: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if a form reduces, for every streamed element of the loop, a row as long as the loop has columns."""
    if form.structures or form.places or form.cascade.producers or form.is_ordered or form.is_elementwise:
        return False
    own = bind_axes(form, problem.sizes)
    plain = not own.contracted and own.packing is None and own.streamed.name not in problem.varying
    along = own.row == binding.streamed and {*own.grid} <= {*binding.grid}
    axes = {axis for one in form.outputs for axis in one.axes}
    if not plain or not along or axes - {*binding.grid} != {binding.streamed} or binding.row is None:
        return False
    read = {one for one in form.cascade.elements() if own.streamed in free_axes(one)}
    alike = {one.xreplace({own.streamed: binding.row}) for one in read}
    same_length = bool(problem.sizes[own.streamed.name] == problem.sizes[binding.row.name])
    return same_length and bool(alike & {*loop.cascade.elements()})
