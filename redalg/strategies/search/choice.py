"""The plan that is taken without measuring: the rules', or one that the model promises to be faster.

The model ranks plans like those that it was fitted to (`is_calibrated`, `is_known`); others keep the rules' schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.strategies.model.cost import Prediction, predict_traffic
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.plan import Plan
from redalg.strategies.rules.adjoining_rows import adjoining_rows_rule
from redalg.strategies.rules.contractions import has_few_blocks
from redalg.strategies.rules.loop_tiles import THREE
from redalg.strategies.rules.parts import blocks, has_lone_rows, is_short_row
from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.products import folds_pairs
from redalg.strategies.schedule import AnySchedule, Schedule, numbers_of
from redalg.strategies.search.space import STAGES, Space, tile_lengths_of

DOUBT, DOUBT_US = 1.05, 1.0
"""The factor and the microseconds by which a plan must promise to be faster than the rules', to be taken unmeasured.
The plan taken so is within 15 % of the fastest plan measured on 76 of the 88 rows of which both were drawn; by the
rules alone, on 65."""
DOUBT_PLAIN, DOUBT_PLAIN_US = 1.25, 1.0
"""The same margin for a form that is no kernel: the model knows its time less well."""
FITTED_TILE, FITTED_ROW, FITTED_LANE = 128, 128, 32
"""Streamed elements of the tiles of products that the model was fitted to, at most; of other tiles, at least, and of a
lane of theirs, at most."""
FEW_READS = 2
"""Inputs of a row for which the rules were measured."""
MOST_COARSE, BEST_CUTS = 100, 8
"""The first plans of few pipelines; the cuts among them that are ranked with every pipeline."""


def preferred_schedule(space: Space) -> Schedule:
    """The schedule that is taken without measuring: the rules', unless the model promises more than its error.

    The model was fitted to producers on tensor cores and to elementwise terms whose outputs do not
    carry the streamed axis. The tiles of that axis were powers of two, a kernel merged the parts, and every tile
    had a block. Other forms, and those that read by pages, keep the rules' schedule.
    """
    plan = numbers_of(space.rules_schedule)
    if not is_calibrated(space, plan):
        return space.rules_schedule
    promise, best = next(iter(rank_known(space, plan)), (space.predict(space.rules_schedule), space.rules_schedule))
    better = DOUBT * promise.time_us + DOUBT_US < space.predict(space.rules_schedule).time_us
    return replace(best, origin="model", predicted_us=promise.time_us) if better else space.rules_schedule


def rank_known(space: Space, by_rules: Plan) -> list[tuple[Prediction, Schedule]]:
    """Plans that the model ranks well, the fastest first: of products every pipeline of the best cuts alone.

    A tile and its parts are ranked by a few pipelines, so that thousands of plans are not priced for one.
    """
    merges = (by_rules.merge,)
    if not space.multiplies:
        return _rank_known(space, space.tile_schedules(merges), by_rules)
    tiles, pipelines = list(product(*space.tiles())), list(space.pipelines())
    stages = min(STAGES, max(stages for stages, *_ in pipelines))
    few = [one for one in pipelines if one[0] == stages]
    coarse = _rank_known(space, space.tile_schedules(merges, space.products(tiles, few)), by_rules)
    best = list(dict.fromkeys(cut_of(numbers_of(schedule)) for _, schedule in coarse[:MOST_COARSE]))[:BEST_CUTS]
    fine = space.tile_schedules(merges, space.products(dict.fromkeys(tile for tile, *_ in best), pipelines))
    return _rank_known(space, (one for one in fine if cut_of(numbers_of(one)) in best), by_rules)


def cut_of(plan: Plan) -> tuple[tuple[int, ...], int, int]:
    """The tile of a plan, and the parts of its axes."""
    return tile_lengths_of(plan), plan.segments, plan.splits


def _rank_known(space: Space, schedules: Iterable[Schedule], by_rules: Plan) -> list[tuple[Prediction, Schedule]]:
    """Those of the schedules that the model ranks well, the fastest first."""
    entries = list[tuple[Prediction, int, Schedule]]()
    for schedule in schedules:
        plan = numbers_of(schedule)
        if not is_known(plan, by_rules) or plan.obstacle_at(space.problem):
            continue
        traffic = Traffic(space.outline, plan)
        if traffic.smem_bytes <= space.device.smem_bytes:
            entries.append((predict_traffic(traffic), abs(plan.stages - STAGES), schedule))
    entries.sort(key=lambda one: (one[0].time_us, one[1]))
    return [(prediction, schedule) for prediction, _, schedule in entries]


def is_known(plan: Plan, by_rules: Plan) -> bool:
    """Tell if the model ranks a plan well: where warps share out other axes, it was 2.2 times off on an H100.

    It was not fitted to blocks of one tile whose inner loop has loading warps, nor to three warpgroups, and takes
    long tiles for faster than they are (H100: of 64 elements a lane by up to 1.4).
    """
    longest = FITTED_TILE if plan.multiplies else FITTED_LANE * plan.threads
    return (
        not plan.loads_within
        and plan.threads != THREE
        and plan.block_streamed <= longest
        and plan.block_streamed == power_of_two(plan.block_streamed)
        and plan.warps == by_rules.warps
    )


def is_calibrated(space: Space, plan: Plan) -> bool:
    """Tell if the model was fitted to kernels like those of a space: nothing in them is new to it."""
    return next(new_traits(space, plan), None) is None


def new_traits(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the traits of a space that the model was not fitted to, in words.

    Products whose operands are computed of several products were not among them. Long rows that fill the chip keep
    the rules' schedule too, unless they read several inputs (H100, variances of 511 x 50257 in float16: 0.79 of the
    time of the model's choice, of 256 x 200704 0.81), and so do short rows that a block reads alone, and what three
    warpgroups multiply, and pairs that arithmetic folds (H200, sums of absolute differences: 19.6 ms, not 37.8).
    """
    if folds_pairs(space.form, space.binding):
        yield "pairs that arithmetic folds"
    if is_short_row(space.form, space.sized_problem, space.device, space.binding):
        yield "short rows that a block reads alone"
    if plan.threads == THREE:
        yield "products by three warpgroups"
    if plan.warp_specialized and has_few_blocks(space.binding, space.sized_problem, space.device):
        yield "few blocks with loading warps"
    if not in_order(space.form):
        yield "reads at computed places of the streamed axis"
    if plan.along_rows:
        yield "lanes along the rows' axis"
    if space.form.is_elementwise:
        yield "what reduces nothing"
    if not space.device.wgmma:
        yield "cards before Hopper"
    yield from new_traits_of_products(space, plan) if plan.multiplies else new_traits_of_rows(space, plan)


def new_traits_of_products(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the traits of a space of matrix products that the model was not fitted to."""
    producers = space.form.cascade.producers
    if not plan.tensor_cores:
        yield "products on CUDA cores"
    if not producers:
        yield "products of tensors alone"
    elif len(producers) > 1 and not any(one.weight for one in space.form.accumulators):
        yield "operands that are computed of several products"
    if plan.block_streamed > FITTED_TILE:
        yield f"tiles of more than {FITTED_TILE} streamed elements"


def new_traits_of_rows(space: Space, plan: Plan) -> Iterator[str]:
    """Yield the traits of a space without matrix products that the model was not fitted to."""
    if space.form.places:
        yield "lists of the best elements"
    if space.form.structures and plan.level != "thread":
        yield "places of the best elements that tiles rank"
    if space.outline.carried:
        yield "outputs that keep the streamed axis"
    if space.binding.plain:
        yield "products that lanes fold"
    if adjoining_rows_rule(space.form, space.sized_problem, space.device, space.binding) is not None:
        yield "rows that a block loads as one array"
    grid = blocks(space.binding, space.sized_problem, 1, 1)
    if plan.level == "thread" and has_lone_rows(space.binding, space.sized_problem, space.device):
        yield "a few rows in many parts"
    few = 2 * grid <= space.device.multiprocessors
    if not few and plan.block_row <= 1 and len(space.outline.work.reads) <= FEW_READS:
        yield "long rows that fill the chip, on which the rules were measured to be better"
    if plan.block_streamed < FITTED_ROW:
        yield f"tiles of fewer than {FITTED_ROW} streamed elements"


ORIGINS = {"given": "as it is given", "pack": "as the fastest of those that redalg ships measurements of",
           "cache": "as the fastest that was measured on this machine"}  # fmt: skip


def reason_of_choice(space: Space, chosen: AnySchedule) -> str:
    """The reason why a plan is taken though another is predicted to be faster: the end of a sentence about it."""
    if not isinstance(chosen, Schedule):
        return "as it is no kernel, and promises to be faster than the rules' by more than the model errs"
    if chosen.origin in ORIGINS:
        return ORIGINS[chosen.origin]
    plan = numbers_of(space.rules_schedule)
    ours = space.predict(space.rules_schedule).time_us
    if chosen.origin == "model":
        return f"as the model's best of the kinds that it was fitted to (the rules' plan: {ours:.2f} µs)"
    new = next(new_traits(space, plan), None)
    if new is not None:
        return f"by the rules: the model was not fitted to {new}, and its order of such plans is a guess"
    known = rank_known(space, plan)
    best = f", of which the fastest promises {known[0][0].time_us:.2f} µs" if known else ""
    return (f"by the rules: what was not measured must promise {DOUBT - 1:.0%} and {DOUBT_US:.0f} µs more, and be of "
            f"the kinds that the model was fitted to{best}")  # fmt: skip


def loses_to(space: Space, promise_us: float) -> bool:
    """Tell if a form that is no kernel beats the plan taken without measuring, by more than the model's error."""
    plan = numbers_of(space.rules_schedule)
    promise_us = DOUBT_PLAIN * promise_us + DOUBT_PLAIN_US
    if not is_calibrated(space, plan) or promise_us >= space.predict(space.rules_schedule).time_us:
        return False
    return promise_us < space.predict(preferred_schedule(space)).time_us


def in_order(form: FusedForm) -> bool:
    """Tell if tensors are read along the streamed axis itself: none by pages, or by another index computed from it."""
    axis = form.cascade.axis
    indices = (index for one in form.cascade.elements() for index in one.indices)
    return all(index == axis or axis not in free_axes(index) for index in indices)
