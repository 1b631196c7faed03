"""Threads reduce their own elements of a whole row in turns: the same numbers, wherever the turns come out even."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Abs, symbols

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.mentions import names_in
from redalg.lower_tile.ir.program import Buffer, Copy, Loop, Parallel, ReduceTile, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.workarounds.rules import sweeps_in_turns
from redalg.runtime.lowered import Lowered
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import outputs_of
from tests.lower_tile.test_together import is_near
from tests.sweeps import draws

n = ra.axis("n")
x, u = ra.tensors("x[b,n] u[b,n]")
FORMS = {
    "variance": ra.fuse(ra.var(x, n), axes="b"),
    "softmax": ra.fuse(ra.softmax(x, n), axes="b n"),
    "minimum and norm": ra.fuse({"low": (ra.min(x, n), "b"), "norm": (ra.norm(x * u, n), "b")}),
    "layer norm": ra.fuse(ra.layer_norm(x, n), axes="b n"),
    "share": ra.fuse(x / ra.sum(Abs(x), n), axes="b n"),
}


def lowered(name: str, rows: int, length: int, *, threads: int, dtype: str = "float32", together: int = 1) -> Lowered:
    """The program of whole rows under so many threads."""
    form = FORMS[name]
    options = {"sizes": {"b": rows, "n": length}, "dtypes": dtype}
    plan = form.lower("sm_90a", **options).plan
    choices = {"level": "row", "threads": threads, "block_row": together, "block_streamed": length, "segments": 1}
    return form.lower("sm_90a", **options, plan=with_choices(plan, **choices))


def turns_of(program: Lowered) -> list[int]:
    """The turns of every reduction that goes in turns."""
    statements = nested_statements(program.program.kernels[0].body)
    return [one.unrolled for one in statements if isinstance(one, Loop) and str(one.variable) == "turn"]


@given(
    st.sampled_from(list(FORMS)),
    st.sampled_from([1, 4, 140]),
    st.sampled_from([1, 2]),
    st.sampled_from([32, 64, 128]),
    st.sampled_from([256, 512, 1024, 2048]),
    st.integers(0, 99),
)
@settings(max_examples=draws(25), suppress_health_check=[HealthCheck.too_slow])
def test_turns_mean_the_definition(name: str, rows: int, together: int, threads: int, length: int, seed: int) -> None:
    program = lowered(name, rows, length, threads=threads, together=together)
    generator = torch.Generator().manual_seed(seed)
    tensors = {key: torch.randn(rows, length, generator=generator) for key in FORMS[name].cascade.inputs()}
    out = interpret(program.program, {key: one.numpy() for key, one in tensors.items()})
    wanted = FORMS[name].reference(**{key: one.double() for key, one in tensors.items()})
    for key, value in outputs_of(wanted).items():
        assert is_near(torch.from_numpy(out[key]).reshape(value.shape), value), key


def test_turns_are_taken_where_a_thread_has_many_elements() -> None:
    assert turns_of(lowered("variance", 4096, 1024, threads=32)) == [8, 8]  # the mean; two sums about it, in one loop
    assert turns_of(lowered("softmax", 4096, 1024, threads=32, dtype="bfloat16")) == [4, 4]
    assert turns_of(lowered("softmax", 4096, 1024, threads=128)) == []  # eight elements: two loads
    assert turns_of(lowered("softmax", 4096, 1280, threads=64, dtype="bfloat16")) == []  # a rest beside whole turns
    assert turns_of(lowered("layer norm", 4096, 1024, threads=64, dtype="bfloat16", together=2)) == []


@pytest.mark.parametrize(("together", "by_warps"), [(1, True), (2, False)])
def test_warps_meet_in_shared_memory_where_they_share_one_row(together: int, by_warps: bool) -> None:
    kernel = lowered("variance", 4096, 4096, threads=128, together=together).program.kernels[0]
    shared = [one.shape for one in kernel.buffers if one.scope == "shared"]
    assert shared == ([(3, 4)] if by_warps else [])
    shapes = {buffer.name: buffer.shape for buffer in kernel.buffers}
    widths = [shapes[one.source] for one in nested_statements(kernel.body) if isinstance(one, ReduceTile)]
    assert widths == [(4, 128) if by_warps else (2, 512)] * 3


def test_warps_of_several_rows_meet_where_a_row_has_one_sum() -> None:
    kernel = lowered("share", 4096, 1024, threads=64, dtype="bfloat16", together=2).program.kernels[0]
    [shared] = [one for one in kernel.buffers if one.scope == "shared"]
    [within] = [one for one in nested_statements(kernel.body) if isinstance(one, ReduceTile)]
    assert (shared.shape, within.dim) == ((1, 2, 2), 2)


def test_sums_that_need_each_other_less_share_a_barrier() -> None:
    """The mean by itself; then two sums of a warp, which no barrier stands between, and only then what is left."""
    kinds = {ReduceTile: "reduce", Copy: "store"}
    body = lowered("variance", 1, 8192, threads=128).program.kernels[0].body
    steps = [kinds.get(type(one), "read" if "warps" in names_in(one) else "") for one in body]
    steps = [step for step in steps[1:] if step]  # the first copy loads the row
    assert steps == ["reduce", "store", "read", "reduce", "reduce", "store", "store", "read"]


def test_terms_are_computed_where_they_are_added() -> None:
    """Of the mean and of two sums about it no tile of terms is left."""
    kernel = lowered("variance", 4096, 4096, threads=128).program.kernels[0]
    assert [one.name for one in kernel.buffers if one.scope == "fragment" and one.shape == (1, 4096)] == ["x_tile"]
    sums = [one for one in nested_statements(kernel.body) if isinstance(one, Parallel) and len(one.body) > 1]
    assert any({store.target for store in one.body} == {"sum_0_acc_turns", "sum_1_acc_turns"} for one in sums)


def test_terms_keep_their_rounding() -> None:
    """(x − c) is rounded before it is added: x + (f − c) would lose it beside a large x."""
    program = lowered("variance", 1, 4096, threads=128)
    values = torch.full((1, 4096), 1e6)
    values[0, ::2] += 1
    [out] = interpret(program.program, {"x": values.numpy()}).values()
    assert float(out.reshape(-1)[0]) == pytest.approx(0.25, rel=1e-5)


def test_only_turns_in_order_stay_within_threads() -> None:
    i, j, turn = symbols("i j turn")
    tile = Buffer("x", "fragment", (1, 2048), "float32")
    warps, row = {i: 4, j: 128}, {i: 1, j: 512}
    assert sweeps_in_turns(Load("x", 0, turn * 512 + i * 128 + j), tile, warps)
    assert sweeps_in_turns(Load("x", i, turn * 512 + j), tile, row)
    for wrong in (
        turn * 512 + j,
        turn * 512 + i * 128 + j + 1,
        turn * 256 + i * 128 + j,
        i + 4 * j,
        turn * 512 + j * 4 + i,
    ):
        assert not sweeps_in_turns(Load("x", 0, wrong), tile, warps)
    assert not sweeps_in_turns(Load("x", i, turn * 1536 + j), tile, {i: 1, j: 1536})
    assert not sweeps_in_turns(Load("x", j, turn * 512 + i), tile, row)


BESIDE = {
    "all rows at once": (2048, 2048, "float16", 16),
    "two rows a block": (4096, 1024, "float16", 16),
    "few rows": (512, 1024, "float16", 1),
    "more rows than run at once": (32768, 1024, "float16", 1),
    "rows of 32 bits": (2048, 2048, "float32", 1),
    "a row a block, 64 elements a thread": (8192, 8192, "bfloat16", 4),
    "a row a block, 128 elements a thread": (4096, 16384, "bfloat16", 3),
    "a row a block, of 512 threads": (4096, 16384, "float32", 2),
    "a block a multiprocessor": (132, 8192, "bfloat16", 1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_blocks_of_many_sums_all_run_at_once_where_they_can(name: str) -> None:
    """A multiprocessor has room for every block that it gets: ⌈blocks / 132⌉, of 1024 lanes at most.

    Of wide blocks of one row, as many as registers hold, four at most.
    """
    rows, length, dtype, wanted = BESIDE[name]
    program = FORMS["layer norm"].lower("H100", sizes={"b": rows, "n": length}, dtypes=dtype).program
    [kernel] = program.kernels
    assert kernel.beside == wanted
    source = FORMS["layer norm"].source("H100", sizes={"b": rows, "n": length}, dtypes=dtype)
    assert (f"T.annotate_min_blocks_per_sm({wanted})" in source) == (wanted > 1)
