"""Aggregate functions of DataFusion, in SQL and on data frames, grouped too.

DataFusion gives every group an accumulator, of every partition; their states travel as one binary column, by
`State.to_bytes` and `State.from_bytes`, and nothing in them is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np

from redalg.data.columns import Columns, Slot, StreamedTensor, streamed_tensors
from redalg.data.functions import BY_NUMPY, definition_digest, orderless_form
from redalg.data.packages import import_engine
from redalg.errors import InputError
from redalg.expression.arguments import answer_arguments
from redalg.fused import Fused
from redalg.runtime.bind.arrays import output_kinds
from redalg.runtime.bind.inputs import check_choice
from redalg.runtime.bind.options import named_dtypes
from redalg.runtime.bind.state import State


@answer_arguments(InputError)
def udaf(fused: Fused, name: str | None = None, *, inputs: Sequence[str] | None = None, dtypes: Any = "float64",
         tensors: Mapping[str, Any] | None = None, empty: str = "nan") -> Any:  # fmt: skip
    """An aggregate function of DataFusion: call it on columns, or `context.register_udaf` it for SQL.

    Rows that hold a NULL in an argument are left out. Where the function has no value the result is NULL, as SQL's is:
    the mean of an empty group, a variance of one row with correction=1, a correlation with a constant. What is NaN
    since a row holds a NaN or an infinity, or a sum overflows, stays NaN. A sum over no rows is 0 and a maximum is
    -inf, where SQL has NULL.

    Args:
        fused: the function, over one axis, the rows. Nothing in it may depend on their order: DataFusion has none.
        name: the function's name in SQL; without it `redalg_` and a digest of the definition.
        inputs: the tensors that its arguments are, in order; else the order of `fuse(…, inputs=)`, else of their names.
            A tensor with one more axis, as `x[b,n]`, is one argument, and outputs do without b; or it is named once
            for each b, as `inputs=["x", "x"]`, and outputs are lists.
        dtypes: of the arguments: one for all, or by tensor name. One for all is that of the tensors that stand in
            arithmetic; the others are int64. DataFusion widens columns to them; narrower ones take a CAST.
        tensors: the tensors that do not lie along the rows, and the scalars, by name.
        empty: what a ratio over no elements is: NULL by `"nan"`, 0 by `"zero"`. It speaks of no other 0/0.

    Returns:
        A `datafusion.AggregateUDF`. Several outputs are the fields of a struct; an output with axes is a list.

    Raises:
        BackendError: datafusion is not installed.
        InputError: the function depends on the order or the places of rows, keeps the rows, takes several passes, or
            has tensors with more than one axis beside the rows.

    >>> import datafusion, pyarrow as pa, redalg as ra
    >>> spread = udaf(ra.fuse(ra.std(ra.tensor("x[n]"), ra.axes("n"))), "spread")
    >>> session = datafusion.SessionContext()
    >>> session.register_udaf(spread)
    >>> session.register_record_batches("t", [pa.table({"x": [1.0, 3.0]}).to_batches()])
    >>> session.sql("SELECT spread(x) AS found FROM t").to_pydict()
    {'found': [1.0]}
    """
    engine = import_engine("datafusion", "datafusion", "udaf", ("AggregateUDF",))
    pa = import_engine("pyarrow", "datafusion", "udaf")
    form = orderless_form(fused, "udaf", "DataFusion")
    check_choice("empty", empty, "udaf: ")
    order = argument_order(streamed_tensors(fused, "udaf"), inputs)
    names = {tensor: tensor if order.count(tensor) == 1 else [tensor] * order.count(tensor) for tensor in order}
    columns = Columns.of_function(fused, names, tensors, "udaf")
    slots = [(tensor, order[:place].count(tensor)) for place, tensor in enumerate(order)]
    known = named_dtypes(form.cascade, "float64") | named_dtypes(form.cascade, dtypes, form.cascade.inputs(), "udaf")
    types = {slot: arrow_type(pa, known[slot[0]], f"argument `{slot[0]}`") for slot in slots}
    state = columns.empty(types)
    kinds = {
        output: list_type(pa, arrow_type(pa, dtype, f"output `{output}`"), len({*axes} - columns.dropped))
        for output, (axes, dtype) in output_kinds(form, state.result).items()
    }
    kind = next(iter(kinds.values())) if fused.single else pa.struct(list(kinds.items()))
    return engine.AggregateUDF(
        name or f"redalg_{definition_digest(fused)[:12]}",
        partial(StateAccumulator, columns, slots, state, kind, empty),
        [types[slot] for slot in slots],
        kind,
        [pa.binary()],
        "immutable",
    )


def argument_order(tensors: Mapping[str, StreamedTensor], inputs: Sequence[str] | None) -> tuple[str, ...]:
    """The streamed tensors in the order of the arguments."""
    if inputs is None:
        return tuple(tensors)
    once = {name for name, tensor in tensors.items() if not tensor.is_wide}
    if {*inputs} != {*tensors} or any(inputs.count(name) > 1 for name in once):
        raise InputError(f"udaf: inputs={tuple(inputs)!r} should name each of {', '.join(tensors)} once.")
    return tuple(inputs)


def arrow_type(pa: Any, dtype: str, where: str) -> Any:
    """The type of Arrow of a dtype."""
    try:
        return pa.from_numpy_dtype(np.dtype(dtype))
    except (TypeError, pa.ArrowNotImplementedError):
        raise InputError(f"udaf: {where} would be {dtype}, which Arrow lacks. Choose another by `dtypes=`.") from None


def list_type(pa: Any, element: Any, dimensions: int) -> Any:
    """The type of nested lists of so many dimensions."""
    for _ in range(dimensions):
        element = pa.list_(element)
    return element


@final
class StateAccumulator:
    """The running state of a group: DataFusion's `Accumulator`, which it calls by the names of its methods."""

    def __init__(self, columns: Columns, slots: Sequence[Slot], state: State, kind: Any, empty: str) -> None:
        self.columns, self.slots, self.running, self.kind, self.empty = columns, slots, state, kind, empty

    def update(self, *arrays: Any) -> None:
        piece = self.columns.state(dict(zip(self.slots, arrays, strict=True)), 0)
        self.running = self.columns.fused.merge(self.running, piece, backend=BY_NUMPY)

    def state(self) -> list[Any]:
        import pyarrow as pa

        return [pa.scalar(self.running.to_bytes(), pa.binary())]

    def merge(self, states: Sequence[Any]) -> None:
        for column in states:
            pieces = [State.from_bytes(item.as_py(), library="numpy") for item in column if item.is_valid]
            if pieces:
                self.running = self.columns.fused.merge(self.running, *pieces, backend=BY_NUMPY)

    def evaluate(self) -> Any:
        import pyarrow as pa

        return pa.scalar(self.columns.outputs(self.running, self.empty, nulls=True), self.kind)
