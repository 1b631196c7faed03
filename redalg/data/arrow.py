"""One running state over Arrow data: record batches as they come, a table, a scanner, Parquet files.

A batch is in memory at a time. Of Parquet files the bound columns alone are read, a megabyte of each at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

from redalg.data.columns import Columns, Named, check_columns
from redalg.data.functions import BY_NUMPY
from redalg.data.keys import key_column, large_batches
from redalg.data.packages import import_engine
from redalg.errors import InputError
from redalg.expression.arguments import answer_arguments
from redalg.fused import Fused
from redalg.progress import progress_bar
from redalg.runtime.bind.state import State

BUFFER_BYTES = 1 << 20
"""Of a Parquet column that are read at once."""
SCHEMAS = ("projected_schema", "schema_arrow", "schema")
"""The attributes that hold the schema: of a scanner, of a ParquetFile, of what else has one."""
BATCH_ROWS = 1 << 17
"""Rows of a batch of Parquet: a megabyte of float64 a column."""


@answer_arguments(InputError)
def state_of(fused: Fused, data: Any, columns: Named | None = None, *,
             tensors: Mapping[str, Any] | None = None, start: int = 0, progress: bool = True,
             by: str | None = None, groups: Any = None, backend: str | None = None) -> State:  # fmt: skip
    """The state of all rows of Arrow data, in one pass: `fused.finish` makes the outputs of it.

    Rows that hold a NULL in a bound column are left out, as SQL's aggregates do; where the place of a row matters, a
    NULL is refused. Integers and booleans that stand in arithmetic are taken as float64.

    Args:
        fused: the function, over one axis, the rows.
        data: Parquet, as the path of a file or a folder, a pattern of paths (`"trades/*.parquet"`), a list of these
            paths in order, or a `pyarrow.parquet.ParquetFile`; or a dataset, a scanner, a reader, a table, a record
            batch, or any iterable of the latter two. Files that match a pattern are read in the order of their names.
        columns: tensor -> column; a tensor that is left out is read from the column of its name. A tensor with one
            more axis, as `x[b,n]`, takes a list of columns, one for each b, or a single column, a row of which there
            is one.
        tensors: the tensors that do not lie along the rows, and the scalars, by name, as NumPy arrays and numbers.
        start: the global number of the first row, where data are a part of the whole.
        progress: whether to show a bar on a terminal (stderr) if it takes longer than a second.
        by: the column that gives every row its group; the state is by group then (`fused.leaf`).
        groups: the number of groups, if the column holds their numbers from 0 on; or the values of the groups in order,
            as any array, if it holds values. Left out, the groups are the places in the dictionary of a
            dictionary-encoded column, which all batches must share.
        backend: as that of `fused.leaf`: `"tilelang"` for generated kernels, which group large batches fastest.

    Returns:
        The state, of NumPy arrays. It merges with those of other parts.

    Raises:
        BackendError: pyarrow is not installed.
        InputError: no file matches a pattern, a column is missing or holds no numbers, a NULL stands where places
            matter, or a tensor has more than one axis beside the rows.

    >>> import pyarrow as pa, redalg as ra
    >>> mean = ra.fuse(ra.mean(ra.tensor("x[n]"), ra.axes("n")))
    >>> float(mean.finish(state_of(mean, pa.table({"x": [1.0, None, 5.0]}))))
    3.0
    >>> from redalg.library import moments  # of the rows of x[b,n]
    >>> two = pa.table({"price": [1.0, 3.0], "volume": [4.0, 4.0]})
    >>> moments().finish(state_of(moments(), two, {"x": ["price", "volume"]})).variance
    array([1., 0.])
    """
    pa = import_engine("pyarrow", "arrow", "state_of")
    keys = key_column(by, groups, "state_of")
    bound = Columns.of_function(fused, columns, tensors, "state_of", keys=keys, backend=backend)
    source, schema, total = readable_data(data, bound)
    state: State | None = None
    rows = 0
    with progress_bar("rows", total, enabled=progress) as tell:
        batches = batches_of(pa, source)
        for batch in batches if keys is None else large_batches(pa, batches, keys):
            check_columns(batch.schema.names, bound)
            piece = bound.state(bound.arrays_of(batch), start + rows)
            state = piece if state is None else fused.merge(state, piece, backend=BY_NUMPY)
            rows += batch.num_rows
            tell(rows, f"{rows:,}" + (f" of {total:,}" if total else ""))
    if state is not None:
        return state
    types = {slot: schema.field(column).type for slot, column in bound.slots.items()} if schema is not None else None
    return bound.empty(types or bound.empty_types())


def readable_data(data: Any, bound: Columns) -> tuple[Any, Any, int | None]:
    """Data that give batches, their schema and number of rows if these are known without reading them.

    Raises:
        InputError: a column is missing, or no file matches a pattern.
    """
    paths = expand_paths(data)
    if paths:
        data = import_engine("pyarrow.dataset", "arrow", "state_of").dataset(paths, format="parquet")
    schema = next((one for one in (getattr(data, name, None) for name in SCHEMAS) if one is not None), None)
    if schema is not None:
        check_columns(schema.names, bound)
        if bound.keys is not None:
            bound.keys.check_names(schema.names)
    columns = bound.read
    if paths:
        return parquet_batches(data, columns), schema, data.count_rows()
    if hasattr(data, "iter_batches"):  # a ParquetFile
        return data.iter_batches(BATCH_ROWS, columns=columns), schema, data.metadata.num_rows
    if hasattr(data, "scanner"):  # a dataset, of any format
        return data.scanner(columns=columns, batch_readahead=1, fragment_readahead=1), schema, None
    return data, schema, getattr(data, "num_rows", None)


def expand_paths(data: Any) -> Any:
    """The path or the paths of files that data name, patterns replaced by what matches them; None if data are no paths.

    Raises:
        InputError: nothing matches a pattern.
    """
    if isinstance(data, str | Path):
        text = str(data)
        if not {*"*?["} & {*text} or "://" in text or Path(text).exists():
            return text
        if found := sorted(glob(text, recursive=True)):  # noqa: PTH207 - a path knows no pattern from the root
            return found
        raise InputError(f"state_of: no file matches `{text}` in {Path.cwd()}. Pass the path of a Parquet file, or a "
                         "pattern of some.")  # fmt: skip
    if not isinstance(data, list | tuple) or not data or not all(isinstance(one, str | Path) for one in data):
        return None
    each = [expand_paths(one) for one in data]
    return [path for one in each for path in ([one] if isinstance(one, str) else one)]


def parquet_batches(dataset: Any, columns: list[str]) -> Iterator[Any]:
    """The record batches of Parquet files, file after file; a scanner would hold a group of rows or two instead."""
    parquet = import_engine("pyarrow.parquet", "arrow", "state_of")
    for fragment in dataset.get_fragments():
        with fragment.open() as file:
            reader = parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
            yield from reader.iter_batches(BATCH_ROWS, columns=columns)


def batches_of(pa: Any, source: Any) -> Iterator[Any]:
    """The record batches of data, one after the other."""
    if isinstance(source, pa.RecordBatch):
        yield source
    elif hasattr(source, "to_batches"):
        yield from source.to_batches()
    elif isinstance(source, Iterable) and getattr(source, "ndim", 1) != 0 and not isinstance(source, bytes | Mapping):
        for item in source:
            if not isinstance(item, pa.RecordBatch | pa.Table):
                raise InputError(f"state_of: the data hold a {type(item).__name__}. Pass record batches or tables.")
            yield from batches_of(pa, item)
    else:
        raise InputError(
            f"state_of: the data are a {type(source).__name__}. Pass record batches, a table, a scanner, or paths of "
            "Parquet files."
        )
