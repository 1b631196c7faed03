"""Which elements of a tile each thread takes is said where a step reduces rows and TileLang would share them badly."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.lower_tile.ir.program import Kernel, Parallel, nested_statements
from redalg.lower_tile.passes.side_by_side import share_of_thread
from tests.lower_tile.test_whole_rows import FUSED, lowered


def loops_of_tile(kernel: Kernel) -> list[Parallel]:
    """The loops over a kernel's whole tile."""
    loops = [one for one in nested_statements(kernel.body) if isinstance(one, Parallel)]
    most = max(prod(extent for _, extent in one.indices) for one in loops)
    return [one for one in loops if prod(extent for _, extent in one.indices) == most]


@pytest.mark.parametrize("name", sorted({*FUSED} - {"variance of columns of weights"}))
@pytest.mark.parametrize(("dtype", "wide"), [("float16", 8), ("float32", 4)])
def test_steps_of_several_rows_share_them_out(name: str, dtype: str, wide: int) -> None:
    made = lowered(FUSED[name], 1000, 256, dtype=dtype)
    loops = [one for kernel in made.program.kernels if "part of b" in kernel.title for one in loops_of_tile(kernel)]
    step = [one for one in loops if one.adjacent]
    assert {one.adjacent for one in step} == {wide}
    assert len(step) >= 2
    rows, columns = (extent for _, extent in step[0].indices)
    text = str(made.source)
    assert text.count(f"side_by_side({rows}, {columns}, {wide})") == len(step)
    assert text.count("def side_by_side(rows, columns, wide)") == 1
    assert "side_by_side" not in str(made.program.kernels[1].body)


def test_one_row_is_left_to_tilelang_where_every_loop_reads_a_tile() -> None:
    """The timed kernels of norms' gradients are such."""
    form, centred = FUSED["gradients of a norm"], FUSED["columns of centred rows"]
    assert "side_by_side" not in str(lowered(form, 4096, 4096, dtype="bfloat16").source)
    by_sums = "side_by_side(1, 4096, 4)"  # as its sums take elements
    assert by_sums in str(lowered(centred, 4096, 4096, dtype="bfloat16").source)


def test_the_text_for_the_c_target_says_nothing_of_threads() -> None:
    sizes = {"b": 100, "n": 256, "m": 256}
    text = str(FUSED["columns of centred rows"].source("c", sizes=sizes, dtypes="float32"))
    assert "parallel(" in text
    assert "side_by_side" not in text


@given(st.integers(0, 5), st.integers(1, 40), st.sampled_from([32, 128, 256]), st.sampled_from([1, 2, 4, 8]))
def test_threads_take_as_many_elements_each_and_whole_rows_or_one(
    log_rows: int, chunks: int, threads: int, most: int
) -> None:
    """By the layout that the text states; every thread's elements then have places of their own, without a gap."""
    shape = rows, columns = 1 << log_rows, 32 * chunks
    wide = share_of_thread(shape, threads, most)
    if not wide:
        assert columns % threads  # one element at a time would do
        return
    places = [(i * columns + j, i) for i in range(rows) for j in range(columns)]
    taken = {((n // wide) % threads, n // (threads * wide) * wide + n % wide): i for n, i in places}
    assert len(taken) == rows * columns
    assert {thread for thread, _ in taken} == {*range(threads)}
    assert max(place for _, place in taken) == rows * columns // threads - 1
    holders = {i: {thread for (thread, _), row in taken.items() if row == i} for i in range(rows)}
    assert {len(one) for one in holders.values()} == {min(threads, columns // wide)}
