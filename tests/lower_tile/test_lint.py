"""Every rule of `lower_tile/lint`: a program that keeps it passes, and the same one broken in one place does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from sympy import Integer, Min, floor

from redalg.errors import PlanError
from redalg.library import chained_product
from redalg.lower_tile.check.lint import lint
from redalg.lower_tile.ir.program import (
    Buffer,
    Copy,
    Fill,
    Kernel,
    Loop,
    Parallel,
    Region,
    Statement,
    Store,
    TileProgram,
    index,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.schedule import Schedule, numbers_of, with_choices
from tests.cases.kernels import fused

SIZES = {"b": 8, "h": 16, "q": 256, "k": 512, "d": 128, "e": 128, "n": 4096}


def lowered(form: str, dtype: str = "float16") -> tuple[TileProgram, Schedule]:
    """A form's program and default plan for sm_90a."""
    fused_form = fused(form)
    one = fused_form.lower("sm_90a", {axis.name: SIZES[axis.name] for axis in fused_form.cascade.axes()},
                           dict.fromkeys(fused_form.cascade.inputs(), dtype))  # fmt: skip
    return one.program, one.plan


def with_change(program: TileProgram, change: Callable[[Kernel], Kernel]) -> TileProgram:
    return replace(program, kernels=(change(program.kernels[0]), *program.kernels[1:]))


def in_loop(kernel: Kernel, *more: Statement, **fields: Any) -> Kernel:
    """The kernel with more statements in its loop, and other fields of the loop."""
    body = [
        replace(one, body=(*one.body, *more), **fields) if isinstance(one, Loop) and one.pipelined else one
        for one in kernel.body
    ]
    return replace(kernel, body=tuple(body))


def with_buffer(kernel: Kernel, name: str, **fields: Any) -> Kernel:
    """The kernel with other fields of one buffer."""
    buffers = [replace(one, **fields) if one.name == name else one for one in kernel.buffers]
    return replace(kernel, buffers=tuple(buffers))


i, j, e, t = index("i"), index("j"), index("e"), index("t")
TILE = ((i, 128), (j, 128))


def stored(*read: Any) -> Parallel:
    return Parallel(TILE, (Store("u_tile", (i, j), Load("sum_d_0", *read)),))


def spared(kernel: Kernel) -> Kernel:
    """The kernel with one more tile in shared memory."""
    return replace(kernel, buffers=(*kernel.buffers, Buffer("spare", "shared", (128, 128), "float16")))


BREAKS: dict[str, tuple[str, Callable[[Kernel], Kernel]]] = {
    "shifted": ("elsewhere than where its loop stands", lambda k: in_loop(k, stored(i, j + 1))),
    "at a serial variable": ("elsewhere than where its loop stands", lambda k: in_loop(k, stored(i, t))),
    "turned round": ("elsewhere than where its loop stands", lambda k: in_loop(k, stored(i, i))),
    "overwritten by a loop": (
        "is loaded ahead",
        lambda k: in_loop(k, Parallel(TILE, (Store("V_tile", (i, j), Integer(0)),))),
    ),
    "overwritten by a fill": ("is loaded ahead", lambda k: in_loop(k, Fill("K_tile", Integer(0)))),
    "overwritten by a copy": ("is loaded ahead", lambda k: in_loop(k, Copy("operand", "V_tile"))),
    "turned to shared": ("is copied to shared memory", lambda k: spared(in_loop(k, Copy("operand", "spare")))),
    "divided minimum": (
        "divides a minimum or maximum",
        lambda k: in_loop(k, stop=floor(Min(Integer(99), 64 * k.grid[0][0] + 63) / 64) + 1),
    ),
    "filled": ("lies in shared memory and is filled", lambda k: replace(k, body=(Fill("Q_tile", Integer(0)), *k.body))),
    "16-bit sums": ("sums a contraction in bfloat16", lambda k: with_buffer(k, "sum_d_0", dtype="bfloat16")),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", BREAKS)
def test_a_program_that_breaks_a_rule_is_refused(name: str) -> None:
    program, plan = lowered("attention")
    assert numbers_of(plan).warp_specialized
    lint(program, numbers_of(plan))
    said, change = BREAKS[name]
    with pytest.raises(PlanError, match=said):
        lint(with_change(program, change), numbers_of(plan))


def test_a_varying_number_of_tiles_takes_one_stage_without_loading_warps() -> None:
    program, plan = lowered("causal")
    assert numbers_of(plan).warp_specialized
    assert numbers_of(plan).stages == 2
    with pytest.raises(PlanError, match="one stage only"):
        lint(program, numbers_of(with_choices(plan, warp_specialized=False)))


def copied(name: str, sizes: Mapping[str, int], **options: Any) -> tuple[TileProgram, Schedule]:
    """A program whose warps load alone."""
    one = fused(name)
    dtypes = {key: "int32" if key in ("begin", "length") else "float16" for key in one.cascade.inputs()}
    plan = with_choices(one.lower("sm_90a", sizes, dtypes).plan, stages=2, warp_specialized=True,
                   block_row=64, block_streamed=64, threads=128, segments=options.pop("segments", 1))  # fmt: skip
    lowering = one.lower("sm_90a", sizes, dtypes, plan=plan, **options)
    return lowering.program, lowering.plan


LONG = {"b": 2, "h": 2, "q": 512, "k": 512, "d": 64, "e": 64}


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("name", "sizes", "options", "late"),
    [
        ("attention", LONG, {}, False),
        ("attention", LONG, {"varying": "bhqk"}, False),
        ("causal", LONG, {}, False),
        ("causal", LONG, {"varying": "bhqk"}, False),
        ("window", LONG, {}, False),
        ("window", LONG | {"q": 900}, {}, True),  # queries beyond every key's window
        ("window", LONG, {"varying": "bhqk"}, True),
        ("lengths", LONG, {}, False),  # a block without an element reads one tile
        ("spans", LONG, {}, False),
        ("causal", LONG, {"segments": 4}, True),  # parts without a tile
    ],
)
def test_what_may_arrive_late_is_copied_by_threads(
    name: str, sizes: dict[str, int], options: dict[str, Any], late: bool
) -> None:
    """Nobody waits for the load unit where the loop takes no step."""
    program, plan = copied(name, sizes, **options)
    ahead = [one for one in program.kernels[0].body if isinstance(one, Copy) and isinstance(one.source, Region)]
    assert ahead
    assert all(one.by_threads == late for one in ahead)
    if late:
        hasty = with_change(program, lambda k: replace(k, body=tuple(
            replace(one, by_threads=False) if isinstance(one, Copy) else one for one in k.body)))  # fmt: skip
        with pytest.raises(PlanError, match="`Q_tile` is loaded ahead of a loop that may take no step"):
            lint(hasty, numbers_of(plan))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"block_row": 64, "threads": 256, "warp_specialized": False}, "256 threads take a multiple of 128 rows"),
        ({"block_streamed": 72, "warp_specialized": False}, "of 16 columns, and of 16 deep"),
    ],
)
def test_tiles_that_tensor_cores_do_not_take(fields: dict[str, Any], said: str) -> None:
    form = fused("attention")
    sizes = {name: SIZES[name] for name in "bhqkde"}
    plan = with_choices(lowered("attention")[1], **fields)
    with pytest.raises(PlanError, match=said):
        form.lower("sm_90a", sizes, dict.fromkeys("QKV", "float16"), plan=plan)


def test_a_width_that_reductions_do_not_take() -> None:
    plan = with_choices(lowered("rows", "float32")[1], block_streamed=96)
    with pytest.raises(PlanError, match=f"reduce a power of two or a multiple of {4 * numbers_of(plan).threads}"):
        fused("rows").lower("sm_90a", {"b": 2, "n": 4096}, {"x": "float32"}, plan=plan)


def test_warpgroups_share_out_no_few_columns() -> None:
    """A plan of a chain of products that was wrong on an H200 with every input."""
    sizes, dtypes = {"b": 1, "m": 512, "n": 256, "k": 64, "h": 64}, dict.fromkeys("ABD", "bfloat16")
    by_rules = chained_product().lower("sm_90a", sizes, dtypes).plan
    tile = {"block_row": 64, "block_streamed": 32, "block_column": 64, "stages": 2, "segments": 4}
    plan = with_choices(by_rules, threads=256, warp_specialized=False, merge="kernel", **tile)
    with pytest.raises(PlanError, match="makes 64 x 32 by 2 warpgroups, which share out its columns"):
        chained_product().lower("sm_90a", sizes, dtypes, plan=plan)
    for right in ({"threads": 128}, {"block_row": 128}, {"block_streamed": 64}):
        chained_product().lower("sm_90a", sizes, dtypes, plan=with_choices(plan, **right))
