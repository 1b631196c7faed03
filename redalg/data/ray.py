"""Aggregates of Ray Data, of a whole dataset and of groups: `dataset.groupby("key").aggregate(aggregation(fused))`.

Blocks are read where they lie. A group's state travels between workers as bytes in a binary column, by `State.to_bytes`
and `State.from_bytes`, and nothing in it is executed.

    of one column        an `AggregateFnV2`, whose column Ray reads alone
    of several           an `AggregateFn`: Ray 2.60 withholds from an `AggregateFnV2` all but one column and the keys
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from redalg.data.columns import Columns, Named, check_columns
from redalg.data.functions import BY_NUMPY, definition_digest, orderless_form
from redalg.data.packages import import_engine
from redalg.errors import InputError
from redalg.expression.arguments import answer_arguments
from redalg.fused import Fused
from redalg.runtime.bind.inputs import check_choice
from redalg.runtime.bind.state import State


@answer_arguments(InputError)
def aggregation(fused: Fused, name: str | None = None, *, columns: Named | None = None,
                tensors: Mapping[str, Any] | None = None, empty: str = "nan") -> Any:  # fmt: skip
    """An aggregate of Ray Data, for `dataset.aggregate` and `dataset.groupby(key).aggregate`.

    Rows that hold a NULL in a bound column are left out; a NaN is a number, in blocks of pandas too. Numbers that stand
    in arithmetic are taken as float64. Over no rows it gives what the function of no elements is.

    Args:
        fused: the function, over one axis, the rows. Nothing in it may depend on their order: Ray has none.
        name: the column of the results; without it `redalg_` and a digest of the definition.
        columns: tensor -> column; a tensor that is left out is read from the column of its name. A tensor with one
            more axis, as `x[b,n]`, takes a list of columns, one for each b; or a single one, and outputs do without b.
        tensors: the tensors that do not lie along the rows, and the scalars, by name, as NumPy arrays and numbers.
        empty: what a ratio over no elements is, `"nan"` or `"zero"`.

    Returns:
        An `AggregateFnV2` or an `AggregateFn`. Several outputs are a dictionary; an output with axes is a list.

    Raises:
        BackendError: ray is not installed, or lacks these aggregates.
        InputError: the function depends on the order or the places of rows, keeps the rows, takes several passes, or
            has tensors with more than one axis beside the rows. A column that is missing, or holds no numbers, is
            refused in a task.

    >>> import ray, redalg as ra  # doctest: +SKIP
    >>> spread = aggregation(ra.fuse(ra.std(ra.tensor("x[n]"), ra.axes("n"))), "spread")  # doctest: +SKIP
    >>> ray.data.from_items([{"x": 1.0}, {"x": 3.0}]).aggregate(spread)  # doctest: +SKIP
    """
    engine = import_engine("ray.data.aggregate", "ray", "aggregation", ("AggregateFn", "AggregateFnV2"))
    states = block_states(fused, columns, tensors, empty)
    name = name or f"redalg_{definition_digest(fused)[:12]}"
    bound = states.columns.read
    if len(bound) == 1:
        return _column_aggregate(engine.AggregateFnV2)(states, name, bound[0])
    return engine.AggregateFn(
        init=states.start, merge=states.merge, name=name, accumulate_block=states.add, finalize=states.finish
    )


def block_states(fused: Fused, columns: Named | None, tensors: Mapping[str, Any] | None,
                 empty: str) -> BlockStates:  # fmt: skip
    """The states of blocks of a dataset; arguments and errors are those of `aggregation`."""
    orderless_form(fused, "aggregation", "Ray Data")
    check_choice("empty", empty, "aggregation: ")
    return BlockStates(Columns.of_function(fused, columns, tensors, "aggregation"), empty)


def _column_aggregate(base: type) -> type:
    """The class of aggregates of one column; Ray pickles it by value."""

    @final
    class ColumnAggregate(base):
        def __init__(self, states: BlockStates, name: str, column: str) -> None:
            self.states = states
            super().__init__(name, states.start, on=column, ignore_nulls=False)

        def aggregate_block(self, block: Any) -> bytes:
            return self.states.of_block(block)

        def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
            return self.states.merge(current_accumulator, new)

        def finalize(self, accumulator: bytes) -> Any:
            return self.states.finish(accumulator)

        def _validate(self, schema: Any) -> None:  # which Ray calls before it cuts other columns off
            names = list(getattr(schema, "names", ()))
            if names:  # an empty block may have no columns
                check_columns(names, self.states.columns)

    return ColumnAggregate


@final
@dataclass(frozen=True)
class BlockStates:
    """States of blocks, as bytes: the accumulators of Ray.

    Attributes:
        columns: the columns that tensors are read from.
        empty: what a ratio over no elements is.
    """

    columns: Columns
    empty: str

    def start(self, key: Any = None) -> bytes:
        """The state of no rows, whatever the group."""
        return self.columns.empty(self.columns.empty_types()).to_bytes()

    def of_block(self, block: Any) -> bytes:
        """The state of a block's rows, a table of Arrow or of pandas."""
        names = getattr(block, "column_names", None) or list(block.columns)
        check_columns(names, self.columns)
        values = self.columns.fused.form.cascade.value_tensors()
        arrays = {slot: block_column(block, column) for slot, column in self.columns.slots.items()}
        numbers = {slot: as_block_numbers(array, is_value=slot[0] in values) for slot, array in arrays.items()}
        return self.columns.state(numbers, 0).to_bytes()

    def add(self, state: bytes, block: Any) -> bytes:
        """The state of what a state holds and of a block."""
        return self.merge(state, self.of_block(block))

    def merge(self, state: bytes, other: bytes) -> bytes:
        """The state of two states."""
        a, b = (State.from_bytes(each, library="numpy") for each in (state, other))
        return self.columns.fused.merge(a, b, backend=BY_NUMPY).to_bytes()

    def finish(self, state: bytes) -> Any:
        """The outputs of a state, as Python's numbers, lists and dictionaries."""
        return self.columns.outputs(State.from_bytes(state, library="numpy"), self.empty)


def block_column(block: Any, name: str) -> Any:
    """A column of a block as Arrow's; what pandas calls NaN stays a number."""
    import pyarrow as pa

    if isinstance(block, pa.Table):
        return block.column(name)
    series = block[name]
    return pa.array(series.to_numpy() if isinstance(series.dtype, np.dtype) else series.array, from_pandas=False)


def as_block_numbers(array: Any, *, is_value: bool) -> Any:
    """A column, so that states of all blocks have one dtype: float64 where it stands in arithmetic.

    A block that holds nothing but NULL may have lost the column's type.
    """
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return array.cast(pa.float64() if is_value else pa.int64())
    return array.cast(pa.float64()) if is_value and pa.types.is_floating(array.type) else array
