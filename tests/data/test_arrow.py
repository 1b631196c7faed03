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
from redalg import library, progress
from redalg.data.arrow import state_of
from tests.data.chunkings import COLUMNS, PLACED_COLUMNS, ROWS, X, check, cuts, n, x

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
        "file": pq.ParquetFile(path), "pattern": f"{folder}/parts/*.parquet", "any": f"{folder}/**/[012].parquet",
        "list": [folder / "parts" / f"{part}.parquet" for part in range(3)],
        "patterns": [f"{folder}/parts/0*", f"{folder}/parts/[12]*"],
    }  # fmt: skip


def test_every_source_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, source in sources(tmp_path).items():
        state = state_of(argmax, source)
        assert (int(argmax.finish(state)), state.covers) == (int(DATA.argmax()), (0, 12)), name


@pytest.mark.parametrize("names", [["x", "y"], ["x"], "y"])
def test_rows_are_columns(names: Any) -> None:
    columns, batches = {"x": names}, TABLE.to_batches(max_chunksize=5)
    matrix = np.stack([TABLE[name].to_numpy() for name in ([names] if isinstance(names, str) else names)])
    for fused, whole in ((library.moments(), matrix), (library.covariance_matrix(), matrix.T)):
        found = fused.finish(state_of(fused, batches, columns))
        np.testing.assert_allclose(np.asarray(found), np.asarray(fused.reference(x=whole)), rtol=1e-11)


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


wide = ra.fuse(ra.sum(ra.tensor("x[b,c,n]"), n))
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
    "two more axes": (lambda: state_of(wide, TABLE), "tensor `x[b, c, n]` has more than one axis beside n"),
    "two columns": (lambda: state_of(variance, TABLE, {"x": ["x", "y"]}), "is read from one column, and 2 are named"),
    "rows": (lambda: state_of(ROWS["correlation"], TABLE, {"x": ["x", "y"]}), "axis b has several sizes: 2 in x"),
    "two axes": (lambda: state_of(two_axes, TABLE), "and a table has one axis, its rows"),
    "two passes": (lambda: state_of(two_passes, TABLE), "this form takes two passes"),
    "near": (lambda: state_of(variance, TABLE, {"x": "nmae"}), "x, y, name. Did you mean name? Pass `columns="),
    "no file": (lambda: state_of(variance, "none/*.parquet"), "no file matches `none/*.parquet` in "),
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
    for enabled in (True, False):
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "PATIENCE_S", patience)
        state_of(variance, TABLE.to_batches(max_chunksize=2), progress=enabled)
        assert ("rows" in stream.getvalue()) == (shown and enabled)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ra.BackendError, match=re.escape('Run: pip install "redalg[arrow]"')):
        state_of(variance, TABLE)


# ---- groups ----------------------------------------------------------------------------------------------------------

KEYED = pa.table({"x": DATA, "y": DATA**2, "key": pa.array([2, 0, 2, 3, 3, 0, 2, 2, 0, 3, 0, 2], pa.int16())})
NAMES = pa.array(["north", "east", "south", "west"])


def grouped(table: Any, groups: int, formula: Callable[[Any], float]) -> list[float]:
    """A formula of the rows of every group that has some; NaN for the others."""
    keys = np.array(table["key"].to_pylist())
    rows = [table.filter(pa.array(keys == group)) for group in range(groups)]
    return [formula(one) if one.num_rows else np.nan for one in rows]


@settings(max_examples=8)
@given(st.data())
def test_rows_by_group_in_any_batches(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(("variance", "logsumexp", "weighted mean")))
    fused, lengths = ALL[name], data.draw(cuts(12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redalg.data.keys.ROWS", data.draw(st.sampled_from((1, 5, 100))))
        state = state_of(fused, in_batches(KEYED, lengths), by="key", groups=4)
    want = grouped(KEYED, 4, lambda rows: fused.finish(state_of(fused, rows)))
    want[1] = -np.inf if name == "logsumexp" else np.nan
    np.testing.assert_allclose(fused.finish(state), want, rtol=1e-12)


def test_groups_of_a_dictionary_are_its_places(tmp_path: Path) -> None:
    fused = COLUMNS["variance"]
    table = KEYED.append_column("name", pa.DictionaryArray.from_arrays(KEYED["key"].combine_chunks(), NAMES))
    want = grouped(KEYED, 4, lambda rows: np.var(rows["x"].to_numpy()))
    state = state_of(fused, table.to_batches(max_chunksize=5), by="name")
    assert state.sizes == {"groups": 4}
    np.testing.assert_allclose(fused.finish(state), want, rtol=1e-12)
    np.testing.assert_allclose(fused.finish(state_of(fused, table, by="name", groups=4)), want, rtol=1e-12)
    pq.write_table(KEYED, tmp_path / "keyed.parquet")
    np.testing.assert_allclose(
        fused.finish(state_of(fused, tmp_path / "keyed.parquet", by="key", groups=4)), want, rtol=1e-12
    )


@pytest.mark.parametrize("encoded", [True, False])
def test_values_of_groups_are_listed(encoded: bool, tmp_path: Path) -> None:
    fused, names = COLUMNS["variance"], NAMES.take(KEYED["key"].combine_chunks())
    table = KEYED.append_column("name", names.dictionary_encode() if encoded else names)
    pq.write_table(
        table, tmp_path / "named.parquet", row_group_size=4
    )  # each group of rows has a dictionary of its own
    want = grouped(KEYED, 4, lambda rows: np.var(rows["x"].to_numpy()))
    for source in (table, tmp_path / "named.parquet"):
        found = fused.finish(state_of(fused, source, by="name", groups=NAMES))
        np.testing.assert_allclose(found, want, rtol=1e-12)
    found = fused.finish(state_of(fused, KEYED, by="key", groups=np.array([3, 0, 2])))
    np.testing.assert_allclose(found, [want[3], want[0], want[2]], rtol=1e-12)


def test_places_of_groups_are_those_of_the_whole() -> None:
    state = state_of(argmax, KEYED.to_batches(max_chunksize=5), by="key", groups=4)
    keys = np.array(KEYED["key"].to_pylist())
    rows = [np.flatnonzero(keys == group) for group in range(4)]
    want = [one[DATA[one].argmax()] if len(one) else -1 for one in rows]
    np.testing.assert_array_equal(argmax.finish(state), want)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_correlations_by_group_far_from_zero(dtype: str) -> None:
    generator = np.random.default_rng(0)
    keys, scale = generator.integers(0, 9, 5000), 1.0 if dtype == "float64" else 1024.0
    first = generator.normal(size=5000) * scale
    pair = [(one + 1e8).astype(dtype) for one in (first, first + generator.normal(size=5000) * scale)]
    fused = COLUMNS["correlation"]
    table = pa.table({"x": pair[0], "y": pair[1], "key": keys})
    kernels, found = (
        fused.finish(state_of(fused, table.to_batches(max_chunksize=700), by="key", groups=9, backend=backend))
        for backend in ("tilelang", None)
    )
    np.testing.assert_allclose(kernels, found, rtol=1e-6)
    near = [one.astype("float64") - 1e8 for one in pair]
    want = [np.corrcoef(near[0][keys == group], near[1][keys == group])[0, 1] for group in range(9)]
    np.testing.assert_allclose(found, want, rtol=1e-7 if dtype == "float64" else 1e-5)


def test_keys_of_null_are_left_out_and_no_rows_are_groups_of_nothing() -> None:
    holes = pa.table({"x": [1.0, 2, 4, 8], "key": pa.array([0, None, 0, 1], pa.int32())})
    total = ra.fuse(ra.sum(x, n))
    np.testing.assert_array_equal(total.finish(state_of(total, holes, by="key", groups=3)), [5, 8, 0])
    np.testing.assert_array_equal(total.finish(state_of(total, [], by="key", groups=3)), [0, 0, 0])


other = pa.table({"x": [1.0], "key": pa.array(["b"]).dictionary_encode()})
GROUPS_REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no column": (
        lambda: state_of(variance, KEYED, by="z", groups=4),
        "no column `z`, which `by=` names. They have x, ",
    ),
    "no number": (
        lambda: state_of(variance, KEYED, by="key"),
        "holds integers, and their number of groups is not given",
    ),
    "no keys": (
        lambda: state_of(variance, KEYED, groups=4),
        "groups=4 stands without keys. Pass `by=`, the column that",
    ),
    "an array": (lambda: state_of(variance, KEYED, by=DATA, groups=4), "by= should name the column"),
    "numbers": (
        lambda: state_of(variance, KEYED, by="x", groups=4),
        "column `x`, which `by=` names, is of type double",
    ),
    "beyond": (
        lambda: state_of(variance, KEYED, by="key", groups=3),
        "a number from 0 to 2 as groups=3; of element 3 ",
    ),
    "none": (lambda: state_of(variance, KEYED, by="key", groups=0), "groups=0 is no number of groups"),
    "nothing": (lambda: state_of(variance, [], by="key"), "no batch tells how many groups there are. Pass `groups=`."),
    "two dictionaries": (
        lambda: state_of(
            variance, [pa.table({"x": [1.0], "key": pa.array(["a"]).dictionary_encode()}), other], by="key", groups=2
        ),
        "has another dictionary than in the batches before. List the values of the groups, `groups=[…]`.",
    ),
    "not listed": (
        lambda: state_of(variance, KEYED, by="key", groups=np.array([3, 2])),
        "holds 0, which is none of the 2 values that `groups=` lists. List all, or filter the rows.",
    ),
    "another type": (
        lambda: state_of(variance, KEYED, by="key", groups=["a"]),
        "is of type int16, and the values that `groups=` lists are of string. List values of the column's type.",
    ),
    "listed twice": (
        lambda: state_of(variance, KEYED, by="key", groups=[1, 1]),
        "should list the value of every group",
    ),
    "no values": (lambda: state_of(variance, KEYED, by="key", groups=object()), "it is a object."),
}


@pytest.mark.parametrize("name", GROUPS_REFUSED)
def test_refusals_of_groups(name: str) -> None:
    call, text = GROUPS_REFUSED[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()
