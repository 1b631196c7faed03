"""The rules for products of products: sums whose operands are computed of other products, as in gradients.

Two tiles of scores and the sums of all columns share the registers: a block has 128 rows of them if they fit, else 64.
"""

from __future__ import annotations

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Loop, TensorCores
from redalg.strategies.live import Live
from redalg.strategies.plan import Problem
from redalg.strategies.rules.loop_tiles import LARGE_TILE, TileFacts
from redalg.strategies.rules.parts import blocks
from redalg.strategies.rules.scores import INNER_STAGES, WIDE
from redalg.strategies.rules.tiles import product_schedule, round_up
from redalg.strategies.schedule import Schedule

GRADIENT_COLUMNS = 256
"""Columns of all sums together that leave registers for two tiles of 128 x 64 scores, 32 numbers a thread each."""
NARROW_COLUMNS, SHORT_LOOP = 64, 2048
"""Columns of all sums, and a streamed axis, up to which small tiles are faster (H100, dQ of 512, 1024 and 2048 keys at
d 64: 0.84, 0.92 and 0.97 of the time; at d 128 1.17 to 1.21)."""


def gradient_tile(
    form: FusedForm, problem: Problem, device: DeviceSpec, binding: Binding, facts: TileFacts
) -> tuple[int, int] | None:
    """The streamed elements and stages of sums whose operands are computed of two products or more: tiles of 128 rows.

    None if their sums and scores do not fit in registers, or if there are too few rows. (H100, the gradients of
    4 x 16 x 4096² scores at d 128 and 64: 0.8 to 0.9 of the time of tiles of 64 x 64, where causal 0.6 to 0.8.)
    """
    rows, products = LARGE_TILE[0], sum(len(one.factors) > 1 for one in form.accumulators)
    columns = round_up(problem.sizes[binding.column.name] if binding.column else 1, 16)
    few = facts.rows < rows or blocks(binding, problem, rows, columns) < device.multiprocessors
    if len(form.cascade.producers) < 2 or few or facts.biased or not facts.aligned:
        return None
    short = columns * products <= NARROW_COLUMNS and problem.sizes[binding.streamed.name] <= SHORT_LOOP
    edges = products == 1 and facts.trims and loses_to_edges(form, problem, binding)
    if columns * products > GRADIENT_COLUMNS or short or edges:
        return None
    return 128 if columns * products <= GRADIENT_COLUMNS // 2 else 64, 2 * products


LARGE_EDGES = 1 / 16
"""The share of elements that tiles of 128 x 128 take beyond those of 64 x 64, from which these are faster (H200, a band
of 512 keys among 4096: 0.11 of them; dQ at d 128 and 64 in 0.85 and 0.73 of the time; causal, 1024 keys: 0.06, 0.98;
2048 keys: 0.03, 1.01; two products, dK and dV, in 0.99 and, causal, 512 keys, 1.02)."""


def loses_to_edges(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if much of large tiles lies outside a mask of places."""
    live = Live(form, binding, problem.sizes)
    large, small = (side * live.tiles(side, side) for side in (128, 64))
    return large - small > LARGE_EDGES * large


def chain_rule(
    form: FusedForm, problem: Problem, binding: Binding, facts: TileFacts, *, device: DeviceSpec, columns: int, cut: int
) -> Schedule:  # fmt: skip
    """The schedule of products of products: tiles of 128 rows if they fit, else small ones.

    If the number of tiles varies from block to block, the pipeline of small tiles has one stage (see `lint`). Few
    blocks of small tiles share out the columns if inner axes are short.
    """
    tile = gradient_tile(form, problem, device, binding, facts) if device.wgmma and not cut else None
    if tile is not None:
        loop = Loop(binding.streamed.name, *tile, True)
        return product_schedule(device, binding, (LARGE_TILE[0], columns), loop, TensorCores(256))
    few = 2 * blocks(binding, problem, 64, columns) < device.multiprocessors
    width = min(columns, 64 if few and not cut else WIDE)
    stages = INNER_STAGES if cut else 1 if facts.trims else 2
    loop = Loop(binding.streamed.name, 64 if device.wgmma else 32, stages)
    return product_schedule(device, binding, (64, width), loop, TensorCores(128), inner=cut)
