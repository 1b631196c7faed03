"""States of Arrow data: batches, tables, scanners and Parquet files; NULLs; types; the bar."""

import io
import re
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.data import arrow
from redalg.data.arrow import state_of
from tests.data.chunkings import COLUMNS, PLACED_COLUMNS, X, check, cuts, n, x

ALL = COLUMNS | PLACED_COLUMNS
variance, argmax = COLUMNS["variance"], PLACED_COLUMNS["argmax"]
DATA = np.random.default_rng(0).normal(size=12)
TABLE = pa.table({"x": DATA, "y": DATA**2, "name": ["a"] * 12})
DTYPES = ("float32", "float64", "int32", "uint8")


def in_batches(table: Any, lengths: tuple[int, ...]) -> list[Any]:
    """Record batches of these lengths, empty ones too."""
    whole = table.combine_chunks().to_batches()[0]
    return [whole.slice(stop - length, length) for length, stop in zip(lengths, accumulate(lengths), strict=True)]


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8)
@given(st.data())
def test_any_batches_give_the_whole(name: str, data: st.DataObject) -> None:
    fused, dtype = ALL[name], data.draw(st.sampled_from(DTYPES))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    length = data.draw(st.integers(3, 12))
    tensors = {key: (generator.normal(size=length) * 3 + 9).astype(dtype) for key in fused.cascade.inputs()}
    if dtype == "uint8" and name == "correlation":
        tensors = {key: np.arange(length, dtype=dtype) ** power for power, key in enumerate(tensors, 1)}
    lengths = data.draw(cuts(length))
    state = state_of(fused, in_batches(pa.table(tensors), lengths))
    assert state.covers == (0, length)
    check(fused.finish(state), fused, tensors, dtype if dtype == "float32" else "float64")


def sources(folder: Path) -> dict[str, Any]:
    path = folder / "whole.parquet"
    pq.write_table(TABLE, path, row_group_size=5)
    for part in range(3):
        pq.write_table(TABLE.slice(4 * part, 4), folder / "parts" / f"{part}.parquet")
    whole = ds.dataset(path)
    return {
        "table": TABLE, "batch": TABLE.to_batches()[0], "batches": TABLE.to_batches(max_chunksize=5),
        "generator": iter(TABLE.to_batches(max_chunksize=5)), "tables": [TABLE.slice(0, 3), TABLE.slice(3)],
        "reader": TABLE.to_reader(max_chunksize=2), "scanner": whole.scanner(batch_size=5), "dataset": whole,
        "path": path, "text": str(path), "folder": folder / "parts",
    }  # fmt: skip


def test_every_source_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, source in sources(tmp_path).items():
        state = state_of(argmax, source)
        assert (int(argmax.finish(state)), state.covers) == (int(DATA.argmax()), (0, 12)), name


def test_columns_are_named_and_parts_merge() -> None:
    fused = COLUMNS["correlation"]
    renamed = TABLE.rename_columns(["price", "volume", "name"])
    columns = {"x": "price", "y": "volume"}
    last, first = (state_of(fused, renamed.slice(at, 6), columns, start=at) for at in (6, 0))
    found = fused.finish(fused.merge(last, first))
    np.testing.assert_allclose(found, np.corrcoef(DATA, DATA**2)[0, 1], rtol=1e-12)


def test_tensors_beside_the_rows() -> None:
    fused = ra.fuse(ra.mean(ra.where(x > ra.scalars("least"), x * ra.Tensor("t")[ra.tensor("place[n]")], 0), n))
    places, weights = np.arange(12) % 3, np.array([1.0, 2, 3])
    state = state_of(fused, pa.table({"x": DATA, "place": places}), tensors={"t": weights, "least": 0.1})
    np.testing.assert_allclose(fused.finish(state), np.where(DATA > 0.1, DATA * weights[places], 0).mean(), rtol=1e-12)


def test_rows_with_a_null_are_left_out() -> None:
    holes = pa.table({"x": [1.0, None, 3, 4, 8], "y": pa.array([2, 5, None, 1, 0], pa.int16())})
    fused = COLUMNS["correlation"]
    for size in (1, 2, 5):
        found = fused.finish(state_of(fused, holes.to_batches(max_chunksize=size)))
        np.testing.assert_allclose(found, np.corrcoef([1, 4, 8], [2, 1, 0])[0, 1], rtol=1e-12)
    with pytest.raises(
        ra.InputError, match=re.escape("column `x` (tensor `x`) holds NULL, and the expression depends")
    ):
        state_of(argmax, holes)


def test_nothing_at_all() -> None:
    empty: list[Any] = [[], iter(()), TABLE.slice(0, 0), TABLE.schema.empty_table().to_batches()]
    for nothing in empty:
        assert np.isnan(variance.finish(state_of(variance, nothing)))
    narrow = pa.schema([("x", pa.float32())]).empty_table()
    assert state_of(variance, narrow).result == "float32"


def test_integers_are_exact_or_refused() -> None:
    total = ra.fuse(ra.sum(x, n))
    assert total.finish(state_of(total, pa.table({"x": [2**53, 3]}))) == 2**53 + 4  # to even
    with pytest.raises(ra.InputError, match=re.escape("is int64 and holds 9007199254740993, beyond ±2**53")):
        state_of(total, pa.table({"x": [0, 2**53 + 1]}))
    truths = ra.fuse({"any": ra.any(ra.eq(ra.tensor("g[n]"), 1), n), "mean": ra.mean(x, n)})
    found = truths.finish(state_of(truths, pa.table({"g": [0, 1], "x": [True, False]})))
    assert (bool(found.any), float(found.mean)) == (True, 0.5)


wide = ra.fuse(ra.sum(X, n))
two_axes = ra.fuse(ra.sum(X, n, ra.axes("b")))
two_passes = ra.fuse(ra.mean(ra.where(x > ra.mean(x, n), 1, 0), n), passes=2)


def column(values: Any, of: Any = None) -> Any:
    return pa.table({"x": pa.array(values, of)})


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (lambda: state_of(variance, TABLE, {"x": "z"}), "no column `z`, for tensor `x`. They have x, y, name"),
    "twice": (lambda: state_of(variance, pa.Table.from_arrays([[1.0], [2.0]], ["x", "x"])), "two columns `x`"),
    "no tensor": (lambda: state_of(variance, TABLE, {"z": "x"}), "the expression streams no tensor `z`"),
    "text": (lambda: state_of(variance, column(["a"])), "column `x` (tensor `x`) is of type string; integers, floats"),
    "dictionary": (lambda: state_of(variance, pa.table({"x": pa.array([1.0]).dictionary_encode()})), "Decode it"),
    "decimal": (lambda: state_of(variance, column([1], pa.decimal128(5, 2))), "if it may be rounded"),
    "time": (lambda: state_of(variance, column([1], pa.timestamp("s"))), "to count its units"),
    "list": (lambda: state_of(variance, column([[1.0]])), "is of type list<item: double>"),
    "rows of a matrix": (lambda: state_of(wide, TABLE), "tensor `x[b, n]` has other axes beside n"),
    "two axes": (lambda: state_of(two_axes, TABLE), "and a table has one axis, its rows"),
    "two passes": (lambda: state_of(two_passes, TABLE), "this form takes two passes"),
    "no data": (lambda: state_of(variance, 3), "the data are a int"),
    "no batches": (lambda: state_of(variance, [DATA]), "the data hold a ndarray"),
    "two dtypes": (lambda: state_of(variance, [column([1.0]), column([1.0], pa.float32())]), "float64 and of float32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience", "shown"), [(0.0, True), (60.0, False)])
def test_a_bar_where_it_takes_long(monkeypatch: pytest.MonkeyPatch, patience: float, shown: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for progress in (True, False):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(arrow, "PATIENCE_S", patience)
        state_of(variance, TABLE.to_batches(max_chunksize=2), progress=progress)
        assert ("rows" in stream.getvalue()) == (shown and progress)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ra.BackendError, match=re.escape('Run: pip install "redalg[arrow]"')):
        state_of(variance, TABLE)
