"""Plans whose warps have parts of their own of every product, and whose threads have registers for them."""

from __future__ import annotations

from redalg.expression import Element
from redalg.expression.contents import of_kind, values_of
from redalg.incremental.form import FusedForm
from redalg.strategies.device import REGISTERS
from redalg.strategies.plan import Plan

WARPGROUP, ROWS_OF_WARPGROUP = 128, 64
"""Threads of a warpgroup, and rows whose operand it holds in registers (TileLang 0.1.15 has no layout of more)."""


def suits_warps(plan: Plan, form: FusedForm) -> bool:
    """Tell if every warp gets its own rows, or its own columns, of each product that tensor cores make."""
    if not plan.tensor_cores:
        return True
    weighted = plan.binding.contracted and any(one.weight for one in form.accumulators)
    products = [one.factors[0] for one in form.accumulators if len(one.factors) > 1 and form.cascade.producers]
    computed = any(values_of(one) and of_kind(Element, one) for one in products)
    if plan.warps == "columns":
        return plan.block_streamed % (plan.threads // 4) == 0 and plan.block_column % (plan.threads // 4) == 0
    rows = plan.threads // WARPGROUP * ROWS_OF_WARPGROUP
    if (weighted or computed) and plan.threads > WARPGROUP and plan.block_row > rows:
        return False
    apart = plan.binding.contracted and not weighted  # operands in shared memory
    wide = plan.device.wgmma and apart and plan.block_column % (plan.threads // 8) == 0
    narrow = wide and (not form.cascade.producers or plan.block_streamed % (plan.threads // 8) == 0)
    return plan.block_row % (plan.threads // 2) == 0 or (narrow and plan.block_row % 64 == 0)


def fits_registers(plan: Plan, form: FusedForm) -> bool:
    """Tell if the sums and the part of a tile that a thread holds leave registers for the rest."""
    if plan.device.target == "c":
        return True
    if form.places and plan.splits == 1 and plan.block_row > plan.threads:
        return False  # TileLang ranks the two rows of a thread in local memory, up to five times as slowly
    columns = plan.block_column if plan.binding.contracted else 0
    wide = sum(len(one.factors) > 1 for one in form.accumulators)
    tile = plan.block_row * plan.block_streamed if form.cascade.producers else 0
    numbers = (plan.block_row * columns * wide + tile) // plan.threads
    return numbers <= min(200, REGISTERS // plan.threads - 40)
