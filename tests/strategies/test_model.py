"""Counts of the cost model: instructions of a form, live tiles of a plan, joins of the best elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, And, Eq, Expr, exp, floor, oo, sqrt
from sympy.logic.boolalg import Boolean

import redalg as ra
from benchmarks.families import FAMILIES
from benchmarks.spaces import space_of
from redalg.runtime.lowering import lower_passes, space_for
from redalg.strategies.binding import bind_axes
from redalg.strategies.live import Live
from redalg.strategies.model.cost import predict
from redalg.strategies.model.instructions import counts_of
from redalg.strategies.model.selection import joins_of, joins_of_parts
from redalg.strategies.model.traffic import Traffic
from redalg.strategies.schedule import numbers_of, with_choices
from redalg.strategies.search.space import Space

b, h, i, j, q, k, d, e = ra.axes("b h i j q k d e")
x, y, w = ra.Tensor("x"), ra.Tensor("y"), ra.tensor("w[j]")


def counts(expression: Expr, axes: str) -> dict[str, tuple[float, float]]:
    """Plain and special instructions of a form, by the names of their axes."""
    found = dict[str, tuple[float, float]]()
    for one in counts_of(ra.fuse(expression, axes=axes).form):
        name = "".join(sorted(one.axes)) + ("*" if one.is_product else "")
        plain, special = found.get(name, (0.0, 0.0))
        found[name] = plain + one.plain, special + one.special
    return {name: count for name, count in found.items() if any(count)}


@pytest.mark.parametrize(
    ("term", "wanted"),
    [
        (exp(x[i, 0] * y[j, 0]), (3, 1)),  # a maximum, a sum, and one for the product less the maximum
        (exp(x[i, 0]) * Abs(x[i, 0] - y[j, 0]), (2, 0)),  # the exponential stands outside the loop
        ((x[i, 0] - y[j, 0]) ** 2, (2, 0)),  # a fused multiply-add
        (sqrt(x[i, 0] - y[j, 0]), (3, 1)),
        ((x[i, 0] - y[j, 0]) ** 4, (3, 0)),
        (1 / (x[i, 0] - y[j, 0]), (2, 1)),
        (ra.where(y[j, 0] > x[i, 0], w, 0), (2, 0)),
    ],
    ids=str,
)
def test_instructions_of_pairs(term: Expr, wanted: tuple[float, float]) -> None:
    assert counts(ra.sum(term, j), "i")["ij"] == wanted


def test_what_two_sums_share_is_counted_once() -> None:
    distance = sqrt(sum((x[i, c] - y[j, c]) ** 2 for c in range(3)))
    terms = [distance * w, distance * exp(-y[j, 1])]
    apart = [counts(ra.sum(term, j), "i")["ij"] for term in terms]
    both = counts_of(ra.fuse({f"out_{n}": (ra.sum(term, j), "i") for n, term in enumerate(terms)}).form)
    shared = sum(one.special for one in both if one.axes == {"i", "j"})
    assert shared == apart[0][1] == apart[1][1] == 1
    assert sum(one.plain for one in both if one.axes == {"i", "j"}) < apart[0][0] + apart[1][0] - 5


def test_a_product_of_matrices_is_one_instruction_for_all_its_axes() -> None:
    values = ra.Tensor("v")[j, e]
    assert counts(ra.sum(ra.softmax(x[i, 0] * y[j, 0], j) * values, j), "i e")["eij*"] == (1, 0)


SLOPES = {k <= q: lambda m, n: n <= m, k < q + 7: lambda m, n: n < m + 7, k >= q - 3: lambda m, n: n >= m - 3,
          q > k + 2: lambda m, n: m > n + 2}  # fmt: skip
Holds = Callable[[int, int], bool]


def live_tiles(holds: Holds, sizes: tuple[int, int], rows: int, streamed: int) -> float:
    """Tiles that hold an element of a mask, for each tile of rows, by trying every element."""
    every = product(*map(range, sizes))
    lives = {(m // rows, n // streamed) for m, n in every if holds(m, n)}
    return max(1.0, len(lives) / -(-sizes[0] // rows))


def found_tiles(mask: Boolean, sizes: tuple[int, int], rows: int, streamed: int) -> float:
    return live_of(mask, sizes).tiles(rows, streamed)


def live_of(mask: Boolean, sizes: tuple[int, int], values: Mapping[str, float] | None = None) -> Live:
    Q, K = ra.tensors("Q[q,d] K[k,d]")
    form = ra.fuse(ra.logsumexp(ra.where(mask, ra.sum(Q * K, d), -oo), k), axes="q").form
    extents = {"q": sizes[0], "k": sizes[1], "d": 16}
    return Live(form, bind_axes(form, extents), extents, values)


@pytest.mark.parametrize("mask", SLOPES, ids=str)
@given(rows=st.sampled_from([4, 8]), streamed=st.sampled_from([4, 8]))
def test_tiles_on_one_side_of_a_line_are_counted(mask: Boolean, rows: int, streamed: int) -> None:
    exact = live_tiles(SLOPES[mask], (40, 40), rows, streamed)
    assert found_tiles(mask, (40, 40), rows, streamed) == pytest.approx(exact, abs=0.5)


@given(width=st.integers(1, 40), gap=st.integers(-9, 9))
def test_a_window_leaves_no_more_tiles_than_it_has(width: int, gap: int) -> None:
    exact = live_tiles(lambda m, n: m + gap - width < n <= m + gap, (48, 48), 8, 8)
    assert 1.0 <= found_tiles(And(k <= q + gap, k > q + gap - width), (48, 48), 8, 8) <= exact


def test_a_mask_by_data_leaves_every_tile() -> None:
    kept = ra.Tensor("kept")[k]
    assert found_tiles(kept > 0, (64, 64), 8, 8) == 8
    assert found_tiles((kept > 0) & (k <= q), (64, 64), 8, 8) == pytest.approx(4.5)


def test_documents_and_blocks_leave_a_share_of_their_tiles() -> None:
    """Data of rows beside data of streamed elements; a number for every row and element tells no whole tile."""
    segment, opened, each = ra.Tensor("segment"), ra.Tensor("opened"), ra.Tensor("each")
    assert found_tiles(Eq(segment[q], segment[k]), (96, 96), 8, 8) == pytest.approx(4)
    assert found_tiles(Eq(segment[q], segment[k]) & (k <= q), (96, 96), 8, 8) == pytest.approx(6.5 / 3)
    assert found_tiles(opened[floor(q / 16), floor(k / 16)] > 0, (96, 96), 8, 8) == pytest.approx(4)
    assert found_tiles(each[q, k] > 0, (96, 96), 8, 8) == 12


def test_an_alternative_by_data_adds_no_tiles() -> None:
    """A prefix of a length that a call brings, beside what is causal."""
    prefix = ra.scalars("prefix")
    assert found_tiles((k <= q) | (k < prefix), (64, 64), 8, 8) == pytest.approx(4.5)
    assert found_tiles(k < prefix, (64, 64), 8, 8) == 8


width = ra.scalars("width", integer=True)
WINDOW = (k <= q) & (q - k < width)


@pytest.mark.parametrize(
    ("mask", "values", "tiles", "unknown", "ignored"),
    [
        (WINDOW, {}, 4.5, ("width",), ()),
        (WINDOW, {"width": 16.0}, found_tiles((k <= q) & (q - k < 16), (64, 64), 8, 8), (), ()),
        (WINDOW, {"width": 64.0}, 4.5, (), ()),
        (WINDOW, {"width": -64.0}, 1, (), ()),
        (WINDOW, {"width": math.nan}, 4.5, ("width",), ()),
        (k < width, {"width": 16.0}, 2, (), ()),
        (k < width, {"width": 0.0}, 1, (), ()),
        ((k <= q) | (k < width), {}, 4.5, (), ("width",)),
        ((k <= q) | (k < width), {"width": 64.0}, 8, (), ()),
        (k <= q, {"other": 1.0}, 4.5, (), ()),
    ],
    ids=str,
)
def test_a_scalar_that_is_given_skips_what_a_number_skips(
    mask: Boolean, values: dict[str, float], tiles: float, unknown: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    live = live_of(mask, (64, 64), values)
    assert live.tiles(8, 8) == pytest.approx(tiles)
    assert (live.unknown, live.ignored) == (unknown, ignored)


def test_plans_know_the_scalars_that_they_are_given() -> None:
    """A window of a run-time width is predicted as one of that width, and is chosen by calls without it."""
    term, sizes = exp(-Abs(ra.tensor("u[q]") - ra.tensor("v[k]"))), {"q": 65536, "k": 65536}
    windows = [(k <= q) & (q - k < one) for one in (128, width)]
    fixed, windowed = (ra.fuse(ra.sum(ra.where(window, term, 0), k)) for window in windows)
    plain, known = (windowed.plans(sizes, "float32", "H200", scalars=one) for one in ({}, {width: 128}))
    assert known[0].predicted_us == fixed.plans(sizes, "float32", "H200")[0].predicted_us < plain[0].predicted_us / 4
    assert known.choice == plain.choice
    assert "nothing is assumed to be skipped by `width`" in " ".join(str(plain[:2]).split())
    assert "nothing is assumed to be skipped by `width`" in windowed.lower("H200", sizes, "float32")._repr_html_()
    assert "predicted for width = 128" in " ".join(str(known[:2]).split())
    wrongs = {"no run-time scalar `w`. It has width": {"w": 1}, "declared integer": {width: 0.5}, "gives no scalar": 3}
    for said, wrong in wrongs.items():
        with pytest.raises(ra.InputError, match=said):
            windowed.plans(sizes, device="H200", scalars=wrong)


def test_registers_that_spill_take_time_for_each_of_their_moves() -> None:
    """Of 8-bit products, whose sums have twice the registers: 192 columns of 256 rows in 256 threads."""
    row = next(one for one in FAMILIES["quant"].rows(torch.device("cuda")) if one.name == "Q3")
    space = space_of(FAMILIES["quant"], row, "sm_90a")
    narrow, wide = (
        space.predict(with_choices(space.rules_schedule, block_row=256, block_column=columns, threads=256))
        for columns in (64, 192)
    )
    assert "spills" not in narrow.terms
    assert wide.terms["spills"] > wide.terms["tensor cores"] / 2
    assert wide.time_us > 1.3 * narrow.time_us


def test_few_threads_that_stream_elements_wait_for_their_operations() -> None:
    """A block of 128 threads alone takes longer than its share of two blocks beside each other."""
    product = ra.fuse(ra.logsumexp(ra.tensor("u[i,k]") + ra.tensor("v[k,j]"), k), axes="i j")
    spaces = [
        lower_passes(product.passes, "H100", {"i": rows, "j": 128, "k": 4096}, dict.fromkeys("uv", "float32"),
                     each=space_for)[-1]
        for rows in (16 * 132, 32 * 132)
    ]  # fmt: skip
    alone, both = (
        one.predict(with_choices(one.rules_schedule, block_row=128, block_column=16, segments=1)).time_us
        for one in spaces
    )
    assert both < 1.6 * alone


def attention(mask: Boolean | None) -> ra.Fused:
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    scores = ra.sum(Q * K, d)
    scores = scores if mask is None else ra.where(mask, scores, -oo)
    return ra.fuse(ra.sum(ra.softmax(scores, k) * V, k), axes="b h q e")


def space_of_attention(mask: Boolean | None, sizes: dict[str, int]) -> Space:
    passes = attention(mask).passes
    return lower_passes(passes, "sm_90a", sizes, dict.fromkeys("QKV", "float16"), each=space_for)[-1]


def test_a_masked_plan_is_predicted_by_what_it_reads() -> None:
    sizes = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 128, "e": 128}
    times = []
    for mask in (None, k <= q, (k <= q) & (k > q - 256)):
        space = space_of_attention(mask, sizes)
        plan = with_choices(space.rules_schedule, block_row=128, block_streamed=128)
        times.append(predict(space.outline, numbers_of(plan)).time_us)
        assert Traffic(space.outline, numbers_of(plan)).mean_steps == pytest.approx(
            (32, 16.5, 3)[len(times) - 1], rel=0.05
        )
    full, causal, window = times
    assert 0.4 < causal / full < 0.7
    assert window < 0.3 * full


def test_joins_grow_with_what_is_kept_and_with_tiles() -> None:
    base = joins_of(64, 4096, 4, 256)
    assert joins_of(128, 4096, 4, 256).compared > 2 * base.compared
    assert joins_of(64, 4096, 8, 256).waits > base.waits
    assert joins_of(64, 4096, 1, 256).looked > 10 * 4096
    assert joins_of_parts(64, 128, 256).waits == 2 * joins_of(64, 4096, 1, 256).waits
