"""Narrow matrices: short rows, few columns and small products over a long axis, in tiles as narrow as they are."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
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


@pytest.mark.parametrize(("rows", "length", "tile"), [(65536, 300, 512), (16384, 8000, 2048), (512, 200_704, 4096),
                                                      (1, 1 << 24, 8192)])  # fmt: skip
def test_tiles_of_ranked_rows_grow_with_the_row(rows: int, length: int, tile: int) -> None:
    """No lane keeps a best of its own: a tile is ranked, and joined with the best of the tiles before it."""
    plan = numbers_of(plan_of(ROWS["place and best"], {"b": rows, "n": length}))
    assert (plan.level, plan.block_streamed) == ("row" if length <= 4096 else "block", tile)


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
