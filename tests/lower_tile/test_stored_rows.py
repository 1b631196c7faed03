"""Outputs of rows that begin anywhere, under weights of all rows, are computed in place and stored in bulk."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.fused import Fused
from redalg.lower_tile.ir.program import Copy, Loop, Parallel, Region, TileProgram
from redalg.runtime.compile.compile import compile_only
from tests.cases.whole_rows import FORMS, check_near, drawn, interpreted, lowered, n, w, x, y
from tests.lower_tile.test_bulk_rows import bulk_copies, fetched
from tests.lower_tile.test_cluster_rows import in_cluster
from tests.sweeps import draws

WEIGHED = ("root mean square", "weights of all rows")
OVER_WEIGHTS = ra.fuse(x / w / ra.norm(x, n), axes="b h n")


def stored_in_bulk(program: TileProgram) -> list[Copy]:
    """The copies of rows from shared memory to an output."""
    return [one for one in bulk_copies(program) if isinstance(one.target, Region) and one.target.name == "out"]


@given(
    st.sampled_from(WEIGHED),
    st.integers(1, 3),
    st.integers(512, 2100).filter(lambda elements: elements % 8 != 0),
    st.sampled_from([32, 64, 128]),
    st.sampled_from(["bfloat16", "float16"]),
    st.integers(0, 99),
)
@settings(max_examples=draws(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_they_mean_the_definition(name: str, rows: int, elements: int, threads: int, dtype: str, seed: int) -> None:
    form, shape = FORMS[name], (rows, 2, elements)
    tensors = drawn(form, shape, dtype, seed)
    program = fetched(name, shape, dtype, threads).program
    assert len(stored_in_bulk(program)) == 1
    check_near(interpreted(program, tensors), form, tensors, dtype)


@pytest.mark.parametrize(("threads", "elements"), [(64, 1030), (32, 525), (64, 513), (128, 2049)])
@pytest.mark.parametrize("form", [FORMS["root mean square"], OVER_WEIGHTS], ids=["product", "quotient"])
def test_turns_behind_the_vectors_of_a_row_are_none(form: Fused, threads: int, elements: int) -> None:
    """A last turn has none of them where the row is a few elements longer than the turns before."""
    shape, turn = (3, 2, elements), 8 * threads
    tensors = drawn(form, shape, "bfloat16", 0)
    width = -(-elements // turn) * turn
    program = lowered(form, shape, "bfloat16", level="row", threads=threads, block_streamed=width, stages=1).program
    assert len(stored_in_bulk(program)) == 1
    check_near(interpreted(program, tensors), form, tensors, "bfloat16")


def test_rows_that_the_output_does_not_read_keep_their_place() -> None:
    """Of two tensors the output takes the place of the one that it reads; a row that sums alone read is no place."""
    for term, places in ((w * y - ra.max(x, n), ["y_tile"]), (w * ra.logsumexp(x, n), [])):
        form, shape = ra.fuse(term, axes="b h n"), (2, 2, 2043)
        tensors = drawn(form, shape, "bfloat16", 0)
        program = lowered(form, shape, "bfloat16", level="row", threads=64, stages=1).program
        assert [one.source.name for one in stored_in_bulk(program) if isinstance(one.source, Region)] == places
        check_near(interpreted(program, tensors), form, tensors, "bfloat16")


@pytest.mark.parametrize("blocks", [2, 4, 8])
@pytest.mark.parametrize("name", WEIGHED)
def test_a_block_of_a_cluster_stores_its_own_part(name: str, blocks: int) -> None:
    """The last part is shorter than the others, and what lies behind it is the next row."""
    form, shape = FORMS[name], (2, 2, blocks * 1024 - 61)
    tensors = drawn(form, shape, "bfloat16", 0)
    program = in_cluster(form, shape, "bfloat16", blocks).program
    [copy] = stored_in_bulk(program)
    assert copy.count is not None
    check_near(interpreted(program, tensors), form, tensors, "bfloat16")


@pytest.mark.parametrize(("name", "elements", "dtype"), [
    ("root mean square", 2048, "bfloat16"), ("root mean square", 2043, "float32"), ("softmax", 2043, "bfloat16"),
    ("a number beside", 2043, "bfloat16"),
])  # fmt: skip
def test_others_are_stored_by_threads(name: str, elements: int, dtype: str) -> None:
    """Rows that begin at vectors, elements of four bytes, and rows without weights, would gain nothing."""
    program = fetched(name, (3, 1, elements), dtype).program
    assert bulk_copies(program)
    assert not stored_in_bulk(program)


def test_a_row_that_something_reads_later_keeps_its_place() -> None:
    n = ra.axis("n")
    x, w = ra.tensors("x[b,n] w[n]")
    form = ra.fuse({"p": (ra.softmax(x, n) * w, "b n"), "q": (w * x - ra.max(x, n), "b n")})
    plan = ra.Schedule(ra.Grid("b"), ra.Whole("n", 2048, memory="shared"), ra.Lanes("n", 64))
    program = form.lower("sm_90a", {"b": 3, "n": 2043}, "bfloat16", plan=plan).program
    [copy] = [one for one in bulk_copies(program) if isinstance(one.target, Region) and one.target.name in ("p", "q")]
    [*_, last] = [one for one in program.kernels[0].body if isinstance(one, Copy)]
    assert copy is last


def test_every_lane_takes_two_neighbours() -> None:
    [kernel] = fetched("root mean square", (3, 1, 2043), "bfloat16").program.kernels
    loops = [one.body[0] if isinstance(one, Loop) else one for one in kernel.body]
    stores = [one for one in loops if isinstance(one, Parallel) and one.body[0].target == "x_tile"]
    assert stores
    assert {(one.adjacent, one.lanes) for one in stores} == {(2, 32)}


@pytest.mark.sweep(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("elements", [20501, 21001])
def test_no_thread_waits_within_a_branch(elements: int) -> None:
    """Of the last turn of 256 threads' vectors two warps have elements, or one and a part of another."""
    [compiled] = compile_only(fetched("weights of all rows", (300, 1, elements), "bfloat16", 256).source)
    assert "tl::tma_store" in compiled.cuda
    assert "__sync_thread_partial" not in compiled.cuda
    assert compiled.spill_bytes == 0
