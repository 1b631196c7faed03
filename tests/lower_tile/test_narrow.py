"""Narrow matrices: short rows, few columns and small products over a long axis, in tiles as narrow as they are."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule, numbers_of

b, n, c, i, j = ra.axes("b n c i j")
BATCHES = ra.fuse(ra.var(ra.tensor("y[b,n,c]"), n), axes="b c")
x, columns, data = ra.tensor("x[b,n]"), ra.tensor("x[n,c]"), ra.Tensor("x")
ROWS = {
    "variance": ra.fuse(ra.var(x, n), axes="b"),
    "shares": ra.fuse(ra.softmax(x, n), axes="b n"),
    "normalised": ra.fuse(ra.layer_norm(x, n), axes="b n"),
    "place and best": ra.fuse({"place": (ra.argmax(x, n), "b"), "best": (ra.max(x, n), "b")}),
    "least, its place, and a sum": ra.fuse({"at": (ra.argmin(x, n), "b"), "sum": (ra.logsumexp(x, n), "b")}),
}
KURTOSIS = ra.fuse(ra.mean((x - ra.mean(x, n)) ** 4, n) / ra.var(x, n) ** 2, axes="b")
POOLING = ra.fuse(ra.sum(ra.softmax(x, n) * ra.tensor("y[b,n,c]"), n), axes="b c")
STATISTICS = ra.fuse(
    {
        f"s{place}": (value, "b")
        for place, value in enumerate(
            (
                ra.mean(x, n),
                ra.var(x, n),
                ra.mean((x - ra.mean(x, n)) ** 4, n),
                ra.max(x, n),
                ra.min(x, n),
                ra.logsumexp(x, n),
            )
        )
    }
)
OF_COLUMNS = ra.fuse({"mean": (ra.mean(columns, n), "c"), "var": (ra.var(columns, n), "c")})
COVARIANCE = ra.fuse(ra.covariance(data[n, i], data[n, j], n), axes="i j")
LENGTHS = (1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 64)


def plan_of(fused: ra.Fused, sizes: dict[str, int], dtype: str = "float32", device: str = "H200") -> Schedule:
    plan = fused.lower(device, sizes, dtype).plan
    assert isinstance(plan, Schedule)
    return plan


def drawn(shape: tuple[int, ...], seed: int = 0, offset: float = 3.0) -> np.ndarray:
    """Numbers about an offset, with equal ones, and a row that holds an infinity and a NaN."""
    found = (np.random.default_rng(seed).normal(size=shape) + offset).round(2)
    if shape[0] > 3:
        found[1, 0], found[3, -1] = -np.inf, np.nan
    return found


def check(fused: ra.Fused, found: dict[str, np.ndarray], array: np.ndarray, tolerance: float) -> None:
    reference = fused.reference(x=array)
    references = reference if isinstance(reference, tuple) else (reference,)
    for output, value in zip(fused.form.outputs, references, strict=True):
        wanted, out = np.asarray(value, np.float64), np.asarray(found[output.name], np.float64)
        finite = np.isfinite(wanted)
        scale = np.max(np.abs(wanted), initial=1e-6, where=finite)
        np.testing.assert_array_equal(np.isfinite(out), finite)
        np.testing.assert_allclose(out[finite] / scale, wanted[finite] / scale, atol=tolerance)


@pytest.mark.parametrize("name", ROWS)
def test_a_tile_is_as_narrow_as_its_rows(name: str) -> None:
    """Of three columns a tile has four, and threads enough that none waits for many."""
    for length in LENGTHS:
        plan = numbers_of(plan_of(ROWS[name], {"b": 100_000, "n": length}))
        assert plan.block_streamed < 2 * max(length, 3)
        assert 4 <= plan.block_row * plan.block_streamed // plan.threads <= 32


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("length", [1, 9, 17, 41])
def test_short_rows_mean_the_definition(name: str, length: int) -> None:
    """In the tile interpreter, the program of a GPU, with rows beyond the last tile's end."""
    array = drawn((133, length)).astype(np.float32)
    lowered = ROWS[name].lower("H200", {"b": 133, "n": length}, "float32")
    check(ROWS[name], interpret(lowered.program, {"x": array}), array, 2e-5)


def test_lanes_lie_along_few_long_columns() -> None:
    """Of 3 columns a tile has 4: all lanes but one in four read, and neighbours read neighbours."""
    few = numbers_of(plan_of(OF_COLUMNS, {"n": 65536, "c": 3}))
    assert (few.along_rows, few.block_row) == (True, 4)
    assert few.segments > 16
    assert not numbers_of(plan_of(OF_COLUMNS, {"n": 64, "c": 3})).along_rows
    batches = numbers_of(plan_of(BATCHES, {"b": 8, "n": 100_000, "c": 3}))
    assert (batches.along_rows, batches.block_row) == (True, 4)
    array = drawn((4099, 3)).astype(np.float32)
    lowered = OF_COLUMNS.lower("H200", {"n": 4099, "c": 3}, "float32")
    check(OF_COLUMNS, interpret(lowered.program, {"x": array}), array, 2e-5)


@pytest.mark.parametrize(("extent", "side", "dtype"), [(2, 4, "float32"), (8, 8, "float64"), (17, 32, "float32"),
                                                       (33, 64, "float64")])  # fmt: skip
def test_products_over_a_long_axis_have_small_tiles(extent: int, side: int, dtype: str) -> None:
    plan = numbers_of(plan_of(COVARIANCE, {"n": 100_000, "i": extent, "j": extent}, dtype))
    assert (plan.block_row, plan.block_column) == (side, side)
    assert plan.is_serial
    assert plan.segments * plan.block_streamed <= 100_000


@pytest.mark.parametrize(("rows", "length", "parts"), [(1, 1 << 24, 128), (2, 1 << 23, 128), (3, 1 << 23, 64)])
def test_long_rows_have_a_part_for_every_multiprocessor(rows: int, length: int, parts: int) -> None:
    assert numbers_of(plan_of(ROWS["variance"], {"b": rows, "n": length})).segments == parts


def test_short_rows_are_written_in_the_order_of_addresses() -> None:
    """Through shared memory: neighbouring threads of a tile of 32 columns hold neighbours of many rows."""
    for name, length, staged in (("normalised", 17, True), ("shares", 33, True), ("shares", 32, False)):
        text = ROWS[name].source("H200", sizes={"b": 1000, "n": length}, dtypes="float32")
        assert ("T.copy(out_shared, out[" in text) == staged


@pytest.mark.parametrize(("rows", "length", "level", "tile"), [
    (65536, 300, "row", 512), (16384, 3000, "thread", 512), (16384, 8000, "thread", 1024),
    (200, 50_257, "thread", 4096), (1, 1 << 24, "thread", 4096),
])  # fmt: skip
def test_a_row_is_ranked_whole_or_each_lane_keeps_a_best(rows: int, length: int, level: str, tile: int) -> None:
    """Several loads of a lane are in flight where rows are few."""
    plan = numbers_of(plan_of(ROWS["place and best"], {"b": rows, "n": length}))
    assert (plan.level, plan.block_streamed) == (level, tile)


@pytest.mark.parametrize("name", ["place and best", "least, its place, and a sum"])
@pytest.mark.parametrize(("length", "parts"), [(1500, 1), (5000, 1), (9001, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_lane_keeps_the_first_of_equal_numbers(name: str, length: int, parts: int, dtype: str) -> None:
    """Numbers of two decimals are often equal; a row of infinities has its first place, and NaN is above all."""
    array = drawn((5, length)).astype(dtype)
    array[0], array[2, length // 2 :] = -np.inf, np.nan
    if name != "place and best":
        array[[0, 2]] = 1.0  # sums of exponentials of infinities and NaN are another matter
        array[1, 0], array[3, -1] = 0.5, 2.0
    levels = (Grid("b"), *((Parts("n", parts),) if parts > 1 else ()), Lanes("n", 128), Loop("n", 512))
    lowered = ROWS[name].lower("H200", {"b": 5, "n": length}, dtype, plan=Schedule(*levels))
    check(ROWS[name], interpret(lowered.program, {"x": array}), array, 2e-5)


@pytest.mark.parametrize(("function", "taken", "others"), [
    (STATISTICS, [(65536, 100), (16896, 48), (131072, 33)], [(65536, 129), (65536, 30), (1000, 100)]),
    (KURTOSIS, [(131072, 40), (131072, 99), (33792, 100)], [(131072, 64), (131072, 33), (1000, 40)]),
    (ROWS["variance"], [(131072, 40), (131072, 72)], [(131072, 100), (131072, 64), (131072, 24)]),
])  # fmt: skip
def test_a_thread_takes_a_row_of_several_states(
    function: ra.Fused, taken: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    """Where a whole tile would be padded, the less the more states there are, and rows are many."""
    for rows, length in (*taken, *others):
        plan = numbers_of(plan_of(function, {"b": rows, "n": length}))
        assert plan.is_serial == ((rows, length) in taken)
        assert plan.segments == 1


@pytest.mark.parametrize(
    ("rows", "length", "tile"), [(40000, 3, (256, 256)), (40000, 12, (128, 128)), (20, 3, (32, 32))]
)
def test_a_thread_holds_a_row_of_few_elements(rows: int, length: int, tile: tuple[int, int]) -> None:
    plan = numbers_of(plan_of(ROWS["variance"], {"b": rows, "n": length}))
    assert (plan.block_row, plan.threads) == tile


@pytest.mark.parametrize(
    ("rows", "length", "together"), [(200, 100_000, True), (5000, 100_000, False), (200, 5000, False)]
)
def test_lanes_of_few_blocks_have_several_loads_in_flight(rows: int, length: int, together: bool) -> None:
    """Where many blocks share a multiprocessor, or a loop has few trips, they have enough."""
    levels = Grid("b"), Lanes("n", 256), Loop("n", 1024)
    lowered = ROWS["variance"].lower("H200", {"b": rows, "n": length}, "float32", plan=Schedule(*levels))
    assert ("unroll_factor=4" in str(lowered.source)) == together


@pytest.mark.parametrize("length", [4096, 4097, 9000])
def test_trips_together_mean_the_definition(length: int) -> None:
    """Whole groups of trips, a rest of a tile, and a group of lagged centres that is not full."""
    array = drawn((5, length), seed=length, offset=300.0).astype(np.float32)
    levels = Grid("b"), Lanes("n", 64), Loop("n", 256)
    lowered = ROWS["variance"].lower("H200", {"b": 5, "n": length}, "float32", plan=Schedule(*levels))
    assert "unroll_factor=4" in str(lowered.source)
    check(ROWS["variance"], interpret(lowered.program, {"x": array}), array, 2e-5)


@pytest.mark.parametrize("length", [1, 5, 8, 9, 45, 200, 700])
def test_a_thread_moves_its_centre_once_for_eight_elements(length: int) -> None:
    """As many digits as moving for each, whatever the first element is; equal elements have no variance."""
    rng = np.random.default_rng(length)
    array = (rng.normal(size=(130, length)) + 1e4).astype(np.float32)
    array[0], array[1, length // 2], array[2, -1], array[3, 0] = 0.1, np.inf, np.nan, 2e4
    plan = Schedule(Grid("b", 128), Loop("n", 32), Lanes("b", 128))
    lowered = STATISTICS.lower("H200", {"b": 130, "n": length}, "float32", plan=plan)
    found, wanted = interpret(lowered.program, {"x": array}), STATISTICS.reference(x=array.astype(np.float64))
    with np.errstate(invalid="ignore"):
        for output, value in zip(STATISTICS.form.outputs, wanted, strict=True):
            np.testing.assert_allclose(found[output.name], value, rtol=3e-6, atol=1e-12, err_msg=output.name)
    assert found["s1"][0] == 0


@pytest.mark.parametrize(("columns", "width"), [(9, 8), (17, 8), (24, 8), (28, 32), (48, 8), (64, 32)])
def test_tiles_are_slim_where_wide_ones_are_padded(columns: int, width: int) -> None:
    plan = numbers_of(plan_of(OF_COLUMNS, {"n": 1_000_000, "c": columns}, "float16"))
    assert (plan.along_rows, plan.block_row) == (True, width)
    array = drawn((4099, columns)).astype(np.float32)
    lowered = OF_COLUMNS.lower("H200", {"n": 4099, "c": columns}, "float32")
    check(OF_COLUMNS, interpret(lowered.program, {"x": array}), array, 2e-5)


@pytest.mark.parametrize(("sizes", "dtype", "kind"), [
    ((256, 4096, 512), "float32", (128, 64, 1)), ((64, 2048, 256), "float32", (128, 64, 2)),
    ((1024, 512, 64), "float32", (64, 32, 1)), ((256, 4096, 512), "bfloat16", (256, 128, 1)),
    ((32, 16384, 128), "bfloat16", (128, 256, 4)),
])  # fmt: skip
def test_columns_share_the_weights_of_their_rows(sizes: tuple[int, ...], dtype: str, kind: tuple[int, ...]) -> None:
    """(columns, elements, parts) of a tile, of which one maximum serves several elements; sums over other weights."""
    plan = numbers_of(plan_of(POOLING, dict(zip("bnc", sizes, strict=True)), dtype))
    wide = plan.block_row if plan.is_serial else plan.block_column
    assert (wide, plan.block_streamed, plan.segments) == kind
    assert plan.is_serial == (dtype == "float32")


@pytest.mark.parametrize("sizes", [(2, 1, 64), (3, 130, 70), (1, 700, 129)])
def test_weighed_columns_mean_the_definition(sizes: tuple[int, ...]) -> None:
    """Of scores far apart, a −∞ among them."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=sizes[:2], scale=20).astype(np.float32)
    weights[0, sizes[1] // 2 :] = -np.inf if sizes[1] > 1 else 0
    given = {"x": weights, "y": rng.normal(size=sizes).astype(np.float32)}
    lowered = POOLING.lower("H200", dict(zip("bnc", sizes, strict=True)), "float32")
    assert numbers_of(plan_of(POOLING, dict(zip("bnc", sizes, strict=True)))).is_serial
    wanted = np.asarray(POOLING.reference(**given))
    np.testing.assert_allclose(interpret(lowered.program, given)["out"], wanted, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_gpu_makes_short_rows(name: str, dtype: str) -> None:
    """Every length class, of one row, a few and many."""
    tolerance = {"float32": 2e-5, "bfloat16": 2e-2, "float64": 1e-12}[dtype]
    for rows, length in ((1, 3), (37, 1), (1000, 3), (133, 17), (999, 41), (77, 300), (5, 9001)):
        given = torch.from_numpy(drawn((rows, length))).to(getattr(torch, dtype)).cuda()
        out = ROWS[name](x=given, backend="tilelang")
        outputs = out if isinstance(out, tuple) else (out,)
        found = {
            one.name: part.double().cpu().numpy() for one, part in zip(ROWS[name].form.outputs, outputs, strict=True)
        }
        check(ROWS[name], found, given.double().cpu().numpy(), tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gpu_makes_few_columns_and_small_products(dtype: str) -> None:
    for length, extent in ((5000, 2), (70_001, 3), (70_001, 17), (9000, 31), (100_000, 40)):
        given = torch.from_numpy(drawn((length, extent))).to(getattr(torch, dtype)).cuda()
        given = torch.where(given.isfinite(), given, 0.0)
        wanted = torch.var_mean(given.double(), 0, correction=0)
        tolerance = 1e-5 if dtype == "float32" else 1e-12
        for found, want in zip(OF_COLUMNS(x=given, backend="tilelang"), reversed(wanted), strict=True):
            torch.testing.assert_close(found.double(), want, rtol=tolerance, atol=tolerance)
        matrix = COVARIANCE(x=given, backend="tilelang").double()
        assert prod(matrix.shape) == extent**2
        torch.testing.assert_close(matrix, torch.cov(given.double().T, correction=0), rtol=tolerance, atol=tolerance)
