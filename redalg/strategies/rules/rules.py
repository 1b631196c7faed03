"""The fixed rules that choose a schedule without search, by what a form does.

    elementwise     no state is kept (`elementwise`)
    rows            elementwise terms are reduced (`rows`, `narrow`); rows that are written again (`long_rows`,
                    `wide_rows`), or begin anywhere (`adjoining_rows`)
    pairs           elements of different tensors meet (`pairs`)
    contractions    products are summed, or make scores (`contractions`)

Where the blocks of a schedule leave the chip idle, they take parts of an axis (`parts`). The figures behind the rules
were measured on an H200, if no other card is named, and are kept as data in `benchmarks/`. Search and tuning come
later, and replace no rule silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding, bind_axes
from redalg.strategies.device import DeviceSpec
from redalg.strategies.plan import Problem
from redalg.strategies.rules.adjoining_rows import adjoining_rows_rule
from redalg.strategies.rules.bulk_rows import bulk_rows_rule
from redalg.strategies.rules.cluster_rows import cluster_rows_rule
from redalg.strategies.rules.contractions import contraction_rule
from redalg.strategies.rules.elementwise import elementwise_rule
from redalg.strategies.rules.long_rows import long_rows_rule
from redalg.strategies.rules.pairs import pairs_rule, pairwise_binding
from redalg.strategies.rules.parts import with_parts
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.rows import rows_rule
from redalg.strategies.rules.wide_rows import wide_rows_rule
from redalg.strategies.schedule import Schedule, numbers_of, with_choices

RuleOfRows = Callable[[FusedForm, Problem, DeviceSpec, Binding], Schedule | None]
RULES_OF_ROWS: tuple[RuleOfRows, ...] = (
    long_rows_rule,
    bulk_rows_rule,
    cluster_rows_rule,
    wide_rows_rule,
    adjoining_rows_rule,
)
"""The rules of rows that are written again, or begin anywhere, ahead of that of all other rows."""
RULES_IN_REGISTERS = tuple(one for one in RULES_OF_ROWS if one not in (bulk_rows_rule, cluster_rows_rule))
"""Those of them of which every kernel has a program."""
CUTS = (128, 64, 32, 16)
"""Tiles of inner axes that no tile holds whole."""


def choose_schedule(
    form: FusedForm, problem: Problem, device: DeviceSpec, rules_of_rows: Sequence[RuleOfRows] = RULES_OF_ROWS
) -> Schedule:
    """Choose the schedule of a form for a device; it serves the run-time sizes up to the next power of two."""
    bounds = {name: power_of_two(problem.sizes[name]) for name in problem.varying}
    problem = replace(problem, sizes={**problem.sizes, **bounds})
    binding = bind_axes(form, problem.sizes)
    problem = replace(problem, sizes=binding.all_sizes(problem.sizes))
    if form.is_elementwise:
        return elementwise_rule(form, problem, device, binding)
    multiplies = binding.contracted or form.cascade.producers
    pairwise = pairwise_binding(form, problem, device, binding)
    rule = pairs_rule if pairwise is not None else contraction_rule if multiplies else rows_rule
    schedule = None
    if rule is rows_rule:
        own = (rule_of_rows(form, problem, device, binding) for rule_of_rows in rules_of_rows)
        schedule = next((one for one in own if one is not None), None)
    if schedule is None:
        schedule = with_parts(rule(form, problem, device, pairwise or binding), form, problem)
    numbers_of(schedule).verify(problem)
    return schedule


def smaller(schedule: Schedule, *, cut: bool = True) -> Iterator[Schedule]:
    """Yield the schedule, then some with fewer stages, streamed elements, rows, and at last inner elements.

    Inner axes that a tile holds whole are cut last of all, if they may be `cut` and are not free elsewhere in the form:
    a schedule names an axis once. Rows that a kernel can't load as one array are reduced in powers of two.
    """
    plan = numbers_of(schedule)
    if plan.level == "row":
        yield schedule
        if plan.block_row > 1 and plan.block_streamed != power_of_two(plan.block_streamed):
            yield with_choices(schedule, block_streamed=power_of_two(plan.block_streamed))
        return
    fewer = (64, 32) if plan.threads > 256 else (plan.block_row // 2, plan.block_row // 4)
    for row in (plan.block_row, *fewer):
        lengths = (plan.block_streamed, plan.block_streamed // 2, plan.block_streamed // 4)
        for streamed in lengths if plan.warps == "rows" else lengths[:1]:  # which warps by columns share out
            for stages in range(plan.stages, -1, -1):
                if (streamed >= 16 and row >= 16) or (row, streamed) == (plan.block_row, plan.block_streamed):
                    threads = plan.threads if row == plan.block_row else 128
                    special = plan.warp_specialized and stages > 0
                    yield with_choices(schedule, block_row=row, block_streamed=streamed, stages=stages, threads=threads,
                                  warp_specialized=special)  # fmt: skip
    least = {"block_row": min(plan.block_row, 16), "block_streamed": min(plan.block_streamed, 16), "stages": 0}
    inside, outside = {*plan.binding.inner}, {*plan.binding.grid, plan.binding.row, plan.binding.column}
    whole = cut and plan.block_inner == 0 and bool(inside) and not inside & outside
    for inner in CUTS if whole else (plan.block_inner // 2, plan.block_inner // 4):
        if inner >= 16 and inner % 16 == 0 and plan.warps == "rows":
            threads = min(plan.threads, 128)
            yield with_choices(schedule, **least, block_inner=inner, threads=threads, warp_specialized=False)
