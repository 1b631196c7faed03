"""The rules' schedules follow the numbers of rows and columns that there are to fill a chip with."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Eq, Expr, exp, floor, log, oo, sqrt, tanh

import redalg as ra
from benchmarks.ahead import recorded_problems
from benchmarks.family import Problem
from redalg import library
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.lowering import lower_passes, space_for
from redalg.strategies.levels import Grid, Lanes, Level, Loop, Parts, TensorCores, Whole
from redalg.strategies.schedule import Schedule, numbers_of
from tests.cases import kernels

b, n, c, i, v, d = ra.axes("b n c i v d")
ROWS = ra.fuse(ra.var(ra.tensor("x[b,n]"), n), axes="b")
COLUMNS = ra.fuse(ra.var(ra.tensor("x[n,c]"), n), axes="c")
CHIPS = 132


def by_rules(
    fused: ra.Fused, sizes: dict[str, int], dtypes: str | dict[str, str], device: str = "H100"
) -> Schedule:  # fmt: skip
    """The rules' schedule on a device."""
    dtypes = dict.fromkeys(fused.cascade.inputs(), dtypes) if isinstance(dtypes, str) else dtypes
    from redalg.runtime.lowering import space_for

    return space_for(fused.passes.last, device, sizes, dtypes).rules_schedule


def level(schedule: Schedule, kind: type[Level]) -> Level | None:
    return next((one for one in schedule.levels if isinstance(one, kind)), None)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [67, 100, 132, 256, 511, 1024, 5000])
def test_lanes_fill_the_chip(rows: int, dtype: str) -> None:
    """Between 512 and 1024 lanes on every multiprocessor, or as many as rows of 128 lanes make."""
    schedule = by_rules(ROWS, {"b": rows, "n": 1_000_000}, dtype)
    lanes = level(schedule, Lanes)
    assert isinstance(lanes, Lanes)
    assert level(schedule, Parts) is None
    assert 128 <= lanes.width <= 1024
    assert lanes.width == 128 or 256 * CHIPS <= lanes.width * rows <= 1024 * CHIPS


@pytest.mark.parametrize("rows", [1, 128, 4096])
@pytest.mark.parametrize(("length", "whole"), [(2048, True), (16384, True), (16385, False)])
def test_variances_of_rows_that_one_tile_holds(rows: int, length: int, whole: bool) -> None:
    """A tile finds the mean first, however many rows there are; few lanes make its sums."""
    schedule = by_rules(ROWS, {"b": rows, "n": length}, "float32")
    lanes = level(schedule, Lanes)
    assert isinstance(lanes, Lanes)
    assert (level(schedule, Whole) is not None) == whole
    assert lanes.width <= 128 or not whole


@pytest.mark.parametrize(("rows", "length", "dtype", "parts"), [
    (1, 20480, "float32", 1), (1, 65536, "float32", 1), (1, 131072, "float32", 32), (16, 32768, "float32", 1),
    (1, 131072, "float16", 1), (1, 262144, "float16", 64),
])  # fmt: skip
def test_a_block_reads_a_short_row_alone(rows: int, length: int, dtype: str, parts: int) -> None:
    """Where parts would have to be merged for less than they save; a lane has several loads in flight then."""
    schedule = by_rules(ROWS, {"b": rows, "n": length}, dtype)
    cut, lanes, loop = (level(schedule, kind) for kind in (Parts, Lanes, Loop))
    assert (cut.count if isinstance(cut, Parts) else 1) == parts
    assert isinstance(lanes, Lanes)
    assert isinstance(loop, Loop)
    wide = 4 if dtype == "float32" else 8
    assert loop.tile // (lanes.width * wide) == (1 if parts > 1 else 4)


def test_two_short_rows_of_different_inputs_are_cut_into_parts() -> None:
    """The rule was measured for rows of one input."""
    x, y = ra.tensors("x[b,n] y[b,n]")
    covariance = ra.fuse(ra.mean((x - ra.mean(x, n)) * (y - ra.mean(y, n)), n), axes="b")
    assert level(by_rules(covariance, {"b": 1, "n": 32768}, "float32"), Parts) is not None


@pytest.mark.parametrize(("length", "whole"), [(4096, True), (8193, True), (16384, True), (16385, False)])
def test_rows_of_several_states_are_whole_up_to_a_length(length: int, whole: bool) -> None:
    x = ra.Tensor("x")[b, n]
    m = ra.mean(x, n)
    kurtosis = ra.fuse(ra.mean((x - m) ** 4, n) / ra.mean((x - m) ** 2, n) ** 2, axes="b")
    tile = level(by_rules(kurtosis, {"b": 4096, "n": length}, "float16"), Whole)
    assert (tile is not None) == whole


@pytest.mark.parametrize(("length", "beside"), [(16384, 3), (16385, 2)])
def test_rows_about_their_mean_are_whole(length: int, beside: int) -> None:
    """Blocks of them are beside each other on a multiprocessor, one of which loads while another waits."""
    x = ra.Tensor("x")[b, n]
    norm = ra.fuse((x - ra.mean(x, n)) / sqrt(ra.var(x, n) + 1e-5), axes="b n")
    schedule = by_rules(norm, {"b": 4096, "n": length}, "bfloat16")
    assert level(schedule, Whole) is not None
    text = norm.source("sm_90a", sizes={"b": 4096, "n": length}, dtypes="bfloat16")
    assert f"T.annotate_min_blocks_per_sm({beside})" in str(text)


@pytest.mark.parametrize(("rows", "parts"), [(512, 1), (128, 16)])
def test_products_in_threads_are_cut_only_where_blocks_are_few(rows: int, parts: int) -> None:
    x, y = ra.tensors("x[b,n] y[n,c]")
    product = ra.fuse(ra.logsumexp(x + y, n), axes="b c")
    cut = level(by_rules(product, {"b": rows, "n": 1024, "c": 1024}, "float32"), Parts)
    assert (cut.count if isinstance(cut, Parts) else 1) == parts


@pytest.mark.parametrize(("rows", "width", "mask", "tile"), [
    (4096, 64, False, (192, 128, 1, 384)), (4096, 64, True, (192, 128, 1, 384)), (4096, 96, False, (192, 128, 2, 384)),
    (4096, 128, True, (192, 128, 2, 384)), (4096, 128, False, (128, 256, 1, 256)), (1024, 64, True, (128, 256, 1, 256)),
])  # fmt: skip
def test_scores_take_three_warpgroups_where_tiles_pad_little(
    rows: int, width: int, mask: bool, tile: tuple[int, ...]
) -> None:  # fmt: skip
    Q, K, V = ra.tensors("Q[b,i,d] K[b,n,d] V[b,n,v]")
    scores = ra.sum(Q * K, d)
    form = ra.fuse(ra.sum(ra.softmax(ra.where(n <= i, scores, -oo) if mask else scores, n) * V, n), axes="b i v")
    plan = numbers_of(by_rules(form, {"b": 64, "i": rows, "n": 4096, "d": width, "v": width}, "float16"))
    assert (plan.block_row, plan.block_streamed, plan.stages, plan.threads) == tile
    assert plan.warp_specialized


def test_tiles_of_three_warpgroups_straddle_no_block_of_a_mask() -> None:
    """A mask of 128 x 128 blocks has one number for a tile of 128 rows, and two for one of 192."""
    (Q, K, V), M = ra.tensors("Q[b,i,d] K[b,n,d] V[b,n,v]"), ra.Tensor("M")
    scores = ra.where(M[floor(i / 128), floor(n / 128)] > 0, ra.sum(Q * K, d), -oo)
    form = ra.fuse(ra.sum(ra.softmax(scores, n) * V, n), axes="b i v")
    dtypes = {**dict.fromkeys("QKV", "float16"), "M": "int32"}
    plan = numbers_of(by_rules(form, {"b": 64, "i": 4096, "n": 4096, "d": 64, "v": 64}, dtypes))
    assert 128 % plan.block_row == 0


@pytest.mark.parametrize("rows", [1, 7, 16, 64])
def test_few_rows_are_cut_into_parts(rows: int) -> None:
    schedule = by_rules(ROWS, {"b": rows, "n": 4_000_000}, "float32")
    parts, lanes = level(schedule, Parts), level(schedule, Lanes)
    assert isinstance(parts, Parts)
    assert isinstance(lanes, Lanes)
    assert parts.count == 64 or 256 * CHIPS <= rows * parts.count * lanes.width <= 1024 * CHIPS


@pytest.mark.parametrize("columns", [64, 640, 1024, 4096, 5120])
def test_columns_take_the_fewest_parts_that_keep_the_chip_busy(columns: int) -> None:
    parts = level(by_rules(COLUMNS, {"n": 65536, "c": columns}, "float32"), Parts)
    count = parts.count if isinstance(parts, Parts) else 1
    blocks = columns // 64 * count
    assert count == 64 or blocks / (CHIPS * -(-blocks // CHIPS)) >= 0.6


@pytest.mark.parametrize(("columns", "tile", "threads"), [(128, 128, 64), (512, 128, 64), (96, 64, 32), (40, 32, 32)])
def test_many_columns_take_few_threads_of_wide_loads(columns: int, tile: int, threads: int) -> None:
    """A sum over heads has few elements for each of very many columns."""
    heads = ra.fuse(ra.sum(ra.tensor("x[b,n,c]"), n), axes="b c")
    many = by_rules(heads, {"b": CHIPS * 2048 // tile, "n": 4, "c": columns}, "bfloat16")
    assert level(many, Grid) == Grid("b")
    assert (level(many, Lanes), level(many, Loop)) == (Lanes("c", threads), Loop("n", 4 * threads // tile))
    few = by_rules(heads, {"b": 4, "n": 4, "c": columns}, "bfloat16")
    assert level(few, Lanes) != level(many, Lanes)


@pytest.mark.parametrize(("length", "rows"), [(64, 16), (60, 16), (32, 32), (20, 32), (128, 8)])
def test_short_rows_take_tiles_of_their_own_length(length: int, rows: int) -> None:
    """And the model, which was fitted to longer ones, does not replace them."""
    sizes = {"b": 1 << 17, "n": length}
    schedule = by_rules(library.softmax(), sizes, "bfloat16")
    assert schedule.levels[:2] == (Grid("b", rows), Whole("n", 1024 // rows))
    if length < 128:
        assert str(library.softmax().plan(sizes, "bfloat16", "H100")) == str(schedule)


@pytest.mark.parametrize(("keys", "width", "rows"), [(512, 64, 64), (2048, 64, 64), (4096, 64, 128), (512, 128, 128)])
def test_gradients_of_few_columns_and_a_short_loop_take_small_tiles(keys: int, width: int, rows: int) -> None:
    form = library.attention()
    shapes = dict.fromkeys("QKV", (16, 16, keys, width))
    sizes = {"b": 16, "h": 16, "q": keys, "k": keys, "d": width, "e": width}
    problem = Problem(form, sizes, dict.fromkeys("QKV", "bfloat16"), shapes)
    forms = ((one, one.function.passes.last.cascade) for one in recorded_problems(problem, "QKV"))
    of_queries = next(one for one, cascade in forms if (str(cascade.axis), len(cascade.producers)) == ("k", 2))
    plan = of_queries.function.plan(of_queries.sizes, of_queries.dtypes, "H100", shapes=of_queries.shapes)
    assert level(plan, Grid) == Grid("b")
    assert next(one.tile for one in plan.levels if isinstance(one, Grid) and one.axis == "q") == rows


@pytest.mark.parametrize(("width", "first", "rows"), [(512, "q", 64), (2048, "q", 128), (512, "k", 128)])
def test_gradients_in_a_narrow_band_take_small_tiles(width: int, first: str, rows: int) -> None:
    """Of a band of 512 keys, large tiles lie half outside; not of one four times as wide, nor of two products."""
    q, k = ra.axes("q k")
    form = library.attention(mask=(k <= q) & (k > q - width))
    shapes = dict.fromkeys("QKV", (4, 16, 4096, 128))
    sizes = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": 128, "e": 128}
    problem = Problem(form, sizes, dict.fromkeys("QKV", "bfloat16"), shapes)
    streamed = {"q": "k", "k": "q"}[first]
    forms = ((one, one.function.passes.last.cascade) for one in recorded_problems(problem, "QKV"))
    one = next(one for one, cascade in forms if (str(cascade.axis), len(cascade.producers)) == (streamed, 2)
               and str(cascade.outputs[0].axes[2]) == first)  # fmt: skip
    plan = one.function.plan(one.sizes, one.dtypes, "H200", shapes=one.shapes)
    assert next(grid.tile for grid in plan.levels if isinstance(grid, Grid) and grid.axis == first) == rows


@pytest.mark.parametrize(("operation", "dtype", "lanes"), [
    ("layer_norm", "bfloat16", 128), ("layer_norm", "float32", 512), ("softmax", "float32", 512),
])  # fmt: skip
def test_rows_of_16384_elements_are_one_tile(operation: str, dtype: str, lanes: int) -> None:
    schedule = by_rules(getattr(library, operation)(), {"b": 4096, "n": 16384}, dtype)
    assert level(schedule, Whole) == Whole("n", 16384)
    assert level(schedule, Lanes) == Lanes("n", lanes)


def test_centred_rows_of_1024_elements_go_two_by_two() -> None:
    """Their four sums wait for each other; other rows' warps have a block of their own."""
    sizes = {"b": 4096, "n": 1024}
    assert by_rules(library.layer_norm(), sizes, "bfloat16").levels[:2] == (Grid("b", 2), Whole("n", 1024))
    assert by_rules(library.softmax(), sizes, "bfloat16").levels[:2] == (Grid("b"), Whole("n", 1024))
    assert by_rules(library.layer_norm(), {"b": 4096, "n": 2048}, "bfloat16").levels[0] == Grid("b")


def test_products_alone_take_wide_tiles() -> None:
    """256 columns, if a wave of them is as full, and nothing else of the result's size is read; 8 bits take fewer."""
    product, sizes = ra.sum(ra.tensor("h[i,d]") * ra.tensor("w[v,d]"), d), {"i": 4096, "v": 8192, "d": 2048}

    def columns(expr: Expr, dtype: str = "bfloat16", **other: int) -> int:
        schedule = by_rules(ra.fuse(ra.cast(expr, "bfloat16"), axes="i v"), sizes | other, dtype)
        return next(one.tile for one in schedule.levels if isinstance(one, Grid) and one.axis == "v")

    assert columns(product) == columns(product + ra.tensor("bias[v]")) == columns(product * ra.tensor("s[i]")) == 256
    assert (
        columns(product + ra.tensor("beside[i,v]"))
        == columns(product, "float8_e4m3fn")
        == columns(product, d=2044)
        == 192
    )
    assert columns(product, v=128) == 128


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("columns", [128, 1536])
def test_operands_about_their_own_mean_lie_in_shared_memory(columns: int, target: str) -> None:
    """TileLang has no layout of them in registers beside the sums of their rows (`test_nvcc`); others stay there."""
    sizes = {"b": 4096, "e": columns, "n": 2560}
    for name, left in (("centred product", "shared"), ("product of the range", "registers")):
        unit = kernels.fused(name).plan(sizes, "bfloat16", target).levels[-1]  # type: ignore[union-attr]
        assert isinstance(unit, TensorCores)
        assert unit.left == left


@pytest.mark.parametrize(("length", "dtype", "tile"), [
    (60001, "float32", 32768), (65537, "bfloat16", 32768), (60001, "bfloat16", 32768), (50257, "float64", 512),
])  # fmt: skip
def test_long_rows_that_are_read_again_are_taken_in_long_tiles(length: int, dtype: str, tile: int) -> None:
    """On a chip whose blocks form no clusters."""
    loop = level(by_rules(library.softmax(), {"b": 511, "n": length}, dtype, "A100"), Loop)
    assert isinstance(loop, Loop)
    assert loop.tile == tile


@pytest.mark.parametrize(("name", "length", "dtype", "tile", "lanes"), [
    ("softmax", 16384, "bfloat16", 16384, 256), ("log_softmax", 16384, "bfloat16", 16384, 512),
    ("log_softmax", 12000, "bfloat16", 12288, 256), ("softmax", 20000, "bfloat16", 20480, 256),
    ("rms_norm", 40000, "bfloat16", 40960, 1024), ("softmax", 20000, "float32", 20480, 256),
    ("log_softmax", 20000, "float32", 20480, 1024), ("layer_norm", 32000, "float32", 32768, 512),
    ("softmax", 50257, "float32", 53248, 1024), ("softmax", 20001, "bfloat16", 20480, 256),
])  # fmt: skip
def test_a_block_holds_a_long_row_that_is_written_again(
    name: str, length: int, dtype: str, tile: int, lanes: int
) -> None:  # fmt: skip
    schedule = by_rules(getattr(library, name)(), {"b": 511, "n": length}, dtype)
    assert schedule.levels[1:] == (Whole("n", tile), Lanes("n", lanes))


@pytest.mark.parametrize(("form", "sizes", "dtype"), [
    (library.softmax(), {"b": 60, "n": 20000}, "bfloat16"), (library.softmax(), {"b": 60, "n": 57353}, "bfloat16"),
    (library.softmax(), {"b": 60, "n": 53249}, "float32"),
    (library.softmax(), {"b": 511, "n": 20000}, "float64"),
    (library.logsumexp(), {"b": 511, "n": 20000}, "float32"),
    (ra.fuse(ra.softmax(ra.tensor("x[b,n]") * ra.tensor("y[b,n]"), n), axes="b n"), {"b": 511, "n": 20001}, "float32"),
])  # fmt: skip
def test_other_long_rows_are_held_by_no_block(form: ra.Fused, sizes: dict[str, int], dtype: str) -> None:
    """Few rows, too long or not, wider ones, those that are read once, and two tensors' that begin anywhere."""
    assert level(by_rules(form, sizes, dtype), Whole) is None


def test_scores_that_weigh_nothing_leave_registers_free() -> None:
    scores = ra.sum(ra.tensor("h[i,d]") * ra.tensor("w[v,d]"), d)
    loss = ra.fuse(ra.logsumexp(scores, v) - ra.sum(ra.where(Eq(v, ra.tensor("t[i]")), scores, 0), v), axes="i")
    dtypes = {"h": "bfloat16", "w": "bfloat16", "t": "int64"}
    sizes = {"i": 4096, "v": 32000, "d": 2048}
    schedule = by_rules(loss, sizes, dtypes)
    assert [one.tile for one in schedule.levels if isinstance(one, Loop)] == [256, 64]
    assert level(schedule, Parts) == Parts("v", 125, rows=16)  # one tile each, with loading warps
    unaligned = by_rules(loss, sizes | {"d": 2044}, dtypes)
    assert [one.tile for one in unaligned.levels if isinstance(one, Loop)] == [192, 64]
    assert level(unaligned, Parts) == Parts("v", 4, rows=16)
    for other in (schedule.having(Parts("v", 124)), schedule.having(Loop("v", 128, 3, specialised=True))):
        with pytest.raises(ra.PlanError, match="or as many parts as tiles"):
            loss.lower("sm_90a", sizes, dtypes, plan=other)


@pytest.mark.parametrize(
    ("rows", "length", "lanes", "tile", "parts"),
    [(4096, 16384, 128, 4096, 1), (511, 50257, 128, 4096, 1), (132, 1_000_000, 256, 8192, 2),
     (16, 1_000_000, 256, 8192, 16), (64, 3000, 128, 4096, 1)],
)  # fmt: skip
def test_long_rows_under_exponentials_are_reduced_in_tiles(
    rows: int, length: int, lanes: int, tile: int, parts: int
) -> None:
    b, n = ra.axes("b n")
    form = ra.fuse(ra.logsumexp(ra.Tensor("x")[b, n], n), axes="b")
    plan = numbers_of(form.lower("sm_90a", {"b": rows, "n": length}, "float32").plan)
    assert (plan.level, plan.threads, plan.block_streamed, plan.segments) == ("block", lanes, tile, parts)


@pytest.mark.parametrize(("rows", "lanes"), [(4096, 32), (1980, 32), (1979, 128)])
def test_a_warp_takes_one_of_many_rows_of_several_weighted_states(rows: int, lanes: int) -> None:
    plan = numbers_of(library.heat_capacity().lower("H200", {"b": rows, "n": 16384}, "float32").plan)
    assert (plan.threads, plan.block_streamed) == (lanes, 32 * lanes)


@pytest.mark.parametrize("depth", [64, 256, 2048])
def test_long_scores_in_float32_have_large_tiles(depth: int) -> None:
    j, d = ra.axes("j d")
    x, y = ra.tensors("x[i,d] y[j,d]")
    form = ra.fuse(ra.logsumexp(ra.sum(x * y, d), j), axes="i")
    sizes, dtypes = {"i": 8192, "j": 8192, "d": depth}, {"x": "float32", "y": "float32"}
    [space] = lower_passes(form.passes, "sm_90a", sizes, dtypes, each=space_for)
    plan = numbers_of(space.rules_schedule)
    assert (plan.block_row, plan.block_streamed, plan.block_inner, plan.threads) == (128, 128, 64, 128)


@pytest.mark.parametrize(("name", "rows", "length", "dtype", "parts", "lanes"), [
    ("layer_norm", 32, 131072, "bfloat16", 4, 512), ("layer_norm", 16, 262144, "float32", 8, 512),
    ("softmax", 32, 131072, "bfloat16", 8, 256), ("log_softmax", 64, 65536, "float32", 4, 256),
])  # fmt: skip
def test_long_rows_that_are_read_again_are_tiles_of_parts(
    name: str, rows: int, length: int, dtype: str, parts: int, lanes: int
) -> None:  # fmt: skip
    schedule = by_rules(getattr(library, name)(), {"b": rows, "n": length}, dtype)
    tile = length // parts
    assert schedule.levels[1:] == (Parts("n", parts, rows=1), Loop("n", tile), Lanes("n", lanes))
    assert tile == 64 * lanes


@pytest.mark.parametrize(("name", "rows", "length"), [
    ("layer_norm", 200, 131072), ("layer_norm", 2, 131072), ("rms_norm", 32, 131072), ("layer_norm", 32, 131071),
])  # fmt: skip
def test_other_long_rows_keep_states_or_fill_the_chip(name: str, rows: int, length: int) -> None:
    """Of many rows a block takes each; of very few more parts are needed; a sum of squares needs no centre."""
    levels = by_rules(getattr(library, name)(), {"b": rows, "n": length}, "bfloat16").levels
    tiles = {one.tile for one in levels if isinstance(one, Loop)}
    assert not any(isinstance(one, Parts) and {length // one.count} == tiles for one in levels)


@pytest.mark.parametrize(("name", "rows"), [("rms_norm", 2), ("layer_norm", 2), ("softmax", 1)])
def test_two_rows_of_1024_elements_meet_at_once(name: str, rows: int) -> None:
    """But those of softmaxes, whose maximum comes before their sum."""
    schedule = by_rules(getattr(library, name)(), {"b": 16384, "n": 1024}, "bfloat16")
    assert next(one.tile for one in schedule.levels if isinstance(one, Grid)) == rows


@pytest.mark.parametrize(("name", "lanes"), [("layer_norm", 128), ("rms_norm", 256)])
def test_rows_of_several_sums_take_fewer_threads(name: str, lanes: int) -> None:
    """The gradient of a layer norm has two sums in a row, that of a root mean square one."""
    sizes, extra = {"b": 8192, "n": 4096}, {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}[name]
    shapes = {"x": (8192, 4096), **dict.fromkeys(extra, (4096,))}
    forward = Problem(getattr(library, name)(), sizes, dict.fromkeys(shapes, "bfloat16"), shapes)
    *_, backward = recorded_problems(forward, list(shapes))
    plan = backward.function.plan(backward.sizes, backward.dtypes, "H200", shapes=backward.shapes)
    assert next(one for one in plan.levels if isinstance(one, Lanes)) == Lanes("n", lanes)
    assert next(one for one in plan.levels if isinstance(one, Parts)).count == 256


@pytest.mark.parametrize("sizes", [{"q": 512, "k": 2048}, {"q": 1, "k": 2048}])
def test_scaled_scores_are_matrix_products(sizes: dict[str, int]) -> None:
    """A name makes the scaled scores a producer, which is a sum of products and then a factor."""
    k, d = ra.axes("k d")
    Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
    plain = ra.sum(Q * K, d) / 8
    forms = [ra.fuse(ra.sum(ra.softmax(score, k) * V, k), axes="b q e") for score in (plain, ra.let("score", plain))]
    first, named = (one.plans(sizes | {"b": 8, "d": 64, "e": 64}, "float16", "H200")[0] for one in forms)
    assert str(first.plan) == str(named.plan)
    assert named.predicted_us < 1.2 * first.predicted_us


@pytest.mark.parametrize(("dtype", "inner"), [("float16", 128), ("float32", 64), ("float64", 32)])
def test_inner_tiles_shrink_last(dtype: str, inner: int) -> None:
    """Rows of a producer that has the rows and the streamed axis fill a block alone: shorter tiles of it fit."""
    x, k = ra.tensor("x[b,c,k]"), ra.axes("k")
    nested = ra.fuse(ra.logsumexp(30 * tanh(ra.max(x, k) / 30) - ra.logsumexp(x, k), c))
    plan = numbers_of(nested.lower("H200", {"b": 8, "c": 512, "k": 512}, dtype).plan)
    assert (plan.block_row, plan.block_streamed, plan.block_inner) == (16, 16, inner)


def test_an_inner_axis_that_is_free_elsewhere_is_not_cut() -> None:
    """Σ_m p·log(p/Σ_n p) and Σ_m p, by n: a schedule names n once."""
    m, n = ra.axes("m n")
    p = ra.tensor("p[b,m,n]")
    form = ra.fuse({"a": (ra.sum(p * log(p / ra.sum(p, n)), m), "b n"), "s": (ra.sum(p, m), "b n")})
    levels = form.lower("H200", {"b": 2, "m": 6, "n": 7}, "float32").plan.levels
    assert [str(level.axis) for level in levels if isinstance(level, Loop)] == ["m"]


def test_an_inner_axis_that_no_tile_holds_whole_is_cut() -> None:
    """Σ_n e^s·W, s = Σ_u x·W, in float32: no tile of rows holds 2048 of u, however few rows it has."""
    n, u = ra.axes("n u")
    W, score = ra.tensor("W[c,n]"), ra.sum(ra.tensor("x[t,u]") * ra.tensor("W[u,n]"), u)
    form = ra.fuse(ra.sum(W * exp(score - ra.tensor("m[t]")), n), axes="t c")
    lowered = form.lower("H200", {"t": 64, "c": 2048, "n": 64, "u": 2048}, "float32")
    assert numbers_of(lowered.plan).block_inner == 128
    rng = np.random.default_rng(0)
    shapes = {"x": (64, 2048), "W": (2048, 64), "m": (64,)}
    data = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    np.testing.assert_allclose(interpret(lowered.program, data)["out"], form.reference(**data), rtol=1e-4, atol=1e-4)
