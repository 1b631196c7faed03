"""Blocks that stay and take tiles in turn make what a block for every tile makes, to the last bit, in any order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redalg.errors import PlanError
from redalg.lower_tile.check.fit import smem_bytes
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only, compile_source
from redalg.runtime.known.stored import from_choices
from redalg.runtime.known.tuned import parse_entry
from redalg.runtime.lowered import Lowered
from redalg.runtime.lowering import space_for
from redalg.strategies.model.cost import H200, Kernel
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.schedule import choices_of, numbers_of, with_choices
from redalg.strategies.search.choice import preferred_schedule
from tests.cases.kernels import CASES, fused, problem, tensors_of, worst_error
from tests.cases.problems import Problem, levelled, problems
from tests.lower_tile.test_merging import shuffled
from tests.strategies.test_varying import drawn as of_sizes
from tests.sweeps import draws

KNOWN = {one.name: one for one in CASES}


@dataclass(frozen=True)
class Large:
    """A form with more tiles than blocks that live on a chip, and what its plan has."""

    form: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def special(self) -> bool:
        return bool(self.plan.get("warp_specialized"))

    def lowered(self, target: str, tensors: Mapping[str, torch.Tensor], blocks: int) -> Lowered:
        form = fused(self.form)
        plan = form.lower(target, **problem(form, tensors)).plan
        plan = with_choices(plan, **{"warp_specialized": False, **self.plan, "persistent": blocks})
        lowering: Lowered = form.lower(target, **problem(form, tensors), plan=plan)
        return lowering


def heads(keys: int, width: int = 64) -> dict[str, tuple[int, ...]]:
    return {"Q": (8, 16, 512, width), "K": (8, 16, keys, width), "V": (8, 16, keys, width)}


WIDE = {"stages": 2, "warp_specialized": True, "threads": 256, "block_row": 128, "block_streamed": 64}
BESIDE = 4096
"""Bytes of barriers, and of what reductions across warps take, which are no tiles."""
LARGE = {
    "rows in registers": Large("attention", heads(300), torch.float16, {"stages": 2}),
    "loading warps": Large("attention", heads(512), torch.float16, {**WIDE, "threads": 128, "block_row": 64}),
    "causal, loading warps": Large("causal", heads(512, 128), torch.bfloat16, WIDE),
    "parts": Large("causal", heads(256), torch.float16, {"stages": 1, "segments": 2}),
    "softmax": Large("softmax", {"x": (4000, 2000)}, torch.float32),
    "variance": Large("variance", {"x": (5000, 3000)}, torch.float32),
    "best of rows": Large("best of rows", {"x": (3000, 2000)}, torch.float32),
    "routing": Large("routing to one", {"x": (30000, 64), "W": (64, 32)}, torch.float16, {"splits": 1, "segments": 1}),
}


def lowered(name: str, target: str, dtype: str = "float32", **fields: Any) -> Lowered:
    """A case under its usual plan, with blocks that stay."""
    form, tensors = fused(KNOWN[name].form), tensors_of(KNOWN[name])
    known = problem(form, tensors, KNOWN[name].sizes)
    known["dtypes"] = {one: dtype if kind == "float32" else kind for one, kind in known["dtypes"].items()}
    plan = with_choices(form.lower(target, **known, empty=KNOWN[name].empty).plan, **{"persistent": 1, **fields})
    made: Lowered = form.lower(target, **known, empty=KNOWN[name].empty, plan=plan)
    return made


# ---- meaning ---------------------------------------------------------------------------------------------------------


@given(problems(), st.integers(1, 7), st.integers(0, 99))
@settings(max_examples=draws(25))
def test_blocks_that_stay_make_what_a_block_for_every_tile_makes(drawn: Problem, blocks: int, seed: int) -> None:
    """Buffers hold what the tile before left: whatever is read without being written first would show."""
    name, tensors, tile, extents = drawn
    form = fused(name)
    options = problem(form, tensors, extents)
    usual = form.lower("c", **options)
    tile = {**tile, "block_row": 1} if usual.plan.binding.row is None else tile
    plan = levelled(usual.plan, {**tile, "splits": 1}, usual.problem.sizes, form.form)
    assume(numbers_of(plan).splits == 1)
    arguments = {one: array.numpy() for one, array in tensors.items()}
    apart, staying = (
        form.lower("c", **options, plan=with_choices(plan, persistent=one)).program for one in (0, blocks)
    )
    assert [one.blocks for one in staying.kernels].count(blocks) == 1
    first, second = interpret(apart, arguments), interpret(staying, arguments, order=shuffled(seed))
    for one in form.cascade.outputs:
        assert np.array_equal(first[one.name], second[one.name], equal_nan=True)


@pytest.mark.parametrize("name", ["softmax", "variance"])
def test_rows_of_blocks_that_stay_are_added_in_the_same_order(name: str) -> None:
    """Sums of whole rows go in turns, and their loop has a name of its own beside that of the block's turns."""
    large, generator = LARGE[name], np.random.default_rng(0)
    shapes = {key: (150, shape[1]) for key, shape in large.shapes.items()}  # more rows than blocks
    known = {key: torch.empty(shape) for key, shape in shapes.items()}
    arguments = {key: generator.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    apart, staying = (large.lowered("sm_90a", known, blocks) for blocks in (0, 1))
    assert "for turn in T.unroll" in staying.source.text
    assert "for round in T.serial" in staying.source.text
    first, second = (interpret(one.program, arguments)["out"] for one in (apart, staying))
    assert np.array_equal(first, second)


ON_C: dict[str, dict[str, Any]] = {
    "ragged, d ≠ e": {"block_row": 24, "block_streamed": 16},
    "causal": {"block_row": 16, "block_streamed": 16, "segments": 2},
    "softmax": {"block_row": 1},
    "layer_norm": {"block_row": 1},
    "covariance": {"block_row": 16, "block_column": 16},
    "best of rows": {"block_row": 1},
    "routing": {"block_row": 16, "block_streamed": 16},
    "variance": {"block_row": 1},
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("blocks", [2, 5])
@pytest.mark.parametrize("name", ON_C)
def test_the_c_target_equals_the_definition(name: str, blocks: int) -> None:
    case, lowering = KNOWN[name], lowered(name, "c", **{**ON_C[name], "persistent": blocks})
    tensors, form = tensors_of(case), fused(case.form)
    out = form(**tensors, backend="tilelang", empty=case.empty, sizes=case.sizes, plan=lowering.plan)
    assert worst_error(out, form.reference(**tensors, sizes=case.sizes), case.empty) <= max(case.tolerance, 1e-6)


def test_sizes_that_change() -> None:
    """Few tiles, or many: how many a block takes is found when it starts."""
    form, sizes = fused("attention"), (1, 2, 40, 300)
    options = problem(form, of_sizes(form, *sizes))
    plan = with_choices(form.lower("c", **options, varying="bhqk").plan, persistent=3)
    lowering = form.lower("c", **options, varying="bhqk", plan=plan)
    run = compile_source(lowering.source).run
    for at in (sizes, (2, 3, 70, 65), (1, 1, 1, 7)):
        tensors = of_sizes(form, *at)
        wanted = form.reference(**tensors)
        found = interpret(lowering.program, {key: one.numpy() for key, one in tensors.items()}, order=shuffled(0))
        assert worst_error(torch.from_numpy(found["out"]), wanted) <= 2e-6
        out = torch.full(wanted.shape, torch.nan)
        run(*(tensors[name] for name in form.cascade.inputs()), out)
        assert worst_error(out, wanted) <= 2e-6


# ---- text ------------------------------------------------------------------------------------------------------------


def test_the_text_says_how_tiles_are_shared_out() -> None:
    lowering = lowered("ragged, d ≠ e", "sm_90a", "float16", persistent=2)
    text = lowering.source.text
    points = 1
    for _, extent in lowering.program.kernels[0].grid:
        points *= extent
    blocks = 2 * lowering.plan.device.multiprocessors
    assert f"with T.Kernel({blocks}, **launch) as worker:  # stream k, finish" in text
    assert f"for turn in T.serial(T.ceildiv({points} - worker, {blocks})):" in text
    assert f"block = turn * {blocks} + worker" in text
    assert f") by {blocks} blocks in turn: stream k, finish" in str(lowering.program)
    assert "Schedule: Persistent(2) Grid" in text
    assert "Persistent" not in str(with_choices(lowering.plan, persistent=0))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), [*((name, "sm_90a") for name in LARGE), ("rows in registers", "sm_80")])
def test_kernels_compile_and_take_what_was_estimated(name: str, target: str) -> None:
    """Where some warps load tiles alone, they count phases over all turns, and run ahead into the next one."""
    one = LARGE[name]
    made = one.lowered(target, {key: torch.empty(shape, dtype=one.dtype) for key, shape in one.shapes.items()}, 1)
    first, *_ = compile_only(made.source)
    assert first.spill_bytes == 0
    counted = smem_bytes(made.program.kernels[0], numbers_of(made.plan))
    assert counted <= first.smem_bytes <= counted + BESIDE
    assert "for (int turn = 0;" in first.cuda
    assert ("phase_cnt" in first.cuda) == one.special


# ---- plans -----------------------------------------------------------------------------------------------------------


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"persistent": -1}, "Persistent(blocks=-1) should be a whole number, 1 to 32."),
    ({"persistent": 33}, "Persistent(blocks=33) should be a whole number, 1 to 32."),
    ({"segments": 2, "merge": "launch", "warp_specialized": False},
     "has blocks that stay, and others that wait for all parts. Leave Persistent out."),
)  # fmt: skip


@pytest.mark.parametrize(("fields", "said"), REFUSED)
def test_a_plan_that_no_block_can_stay_for(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        lowered("one query", "sm_90a", "float16", **fields)


def test_split_contractions_have_a_block_for_every_tile() -> None:
    with pytest.raises(PlanError, match="has blocks that stay, and others that wait"):
        lowered("routing", "sm_90a", "float16", block_inner=16, splits=2)


def test_plans_with_more_tiles_than_live_together_have_a_twin_that_stays() -> None:
    form, dtypes = fused("attention"), dict.fromkeys("QKV", "float16")
    search_space = space_for(form.form, "sm_90a", {"b": 8, "h": 16, "q": 1024, "k": 1024, "d": 64, "e": 64}, dtypes)
    plans = list(search_space.plans())
    staying = [one for one in plans if numbers_of(one).persistent]
    assert staying
    assert len(set(plans)) == len(plans)
    assert [one for one in plans if not numbers_of(one).persistent] == list(search_space.plans(persistent=False))
    for one in staying:
        plan = numbers_of(one)
        kernel = Kernel(Traffic(search_space.outline, plan), H200)
        assert plan.persistent * plan.device.multiprocessors < kernel.traffic.grid
        assert kernel.resident() == plan.persistent
        assert search_space.admits(one)
        assert not search_space.admits(with_choices(one, persistent=plan.persistent + 1))
    few = space_for(form.form, "sm_90a", {"b": 1, "h": 2, "q": 64, "k": 1024, "d": 64, "e": 64}, dtypes)
    assert not any(numbers_of(one).persistent for one in few.plans())
    assert numbers_of(preferred_schedule(search_space)).persistent == 0


def test_what_was_tuned_before_has_a_block_for_every_tile() -> None:
    choices = choices_of(lowered("one query", "sm_90a", "float16").plan)
    assert choices["persistent"] == 1
    key = {"cascade": "", "dtypes": {}, "bucket": {}, "options": {}, "card": "H200", "redalg": "", "tilelang": ""}
    older = {name: one for name, one in choices.items() if name != "persistent"}
    line = {"key": key, "sizes": {}, "plan": older, "measured_us": 1.0, "predicted_us": 1.0}
    assert parse_entry(line).schedule == from_choices({**older, "persistent": 0})


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", LARGE)
def test_on_a_gpu_to_the_last_bit(name: str) -> None:
    """And again on fresh data: what a block leaves in its buffers is another tile's."""
    one, generator = LARGE[name], torch.Generator("cuda").manual_seed(0)
    form = fused(one.form)
    for _ in range(3):
        tensors = {key: torch.randn(shape, generator=generator, device="cuda").to(one.dtype)
                   for key, shape in one.shapes.items()}  # fmt: skip
        wanted, *others = (form(**tensors, plan=one.lowered("sm_90a", tensors, blocks).plan) for blocks in (0, 1, 2))
        for found in others:
            pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
            assert all(torch.equal(one, other) for one, other in pairs)
