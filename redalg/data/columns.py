"""Columns of Arrow as tensors along the streamed axis: their types, and the rows that hold no NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from redalg.data.functions import BY_NUMPY, finished_tensors
from redalg.decompose.verdict.passes import refuse_states
from redalg.errors import InputError
from redalg.fused import Fused
from redalg.runtime.bind.places import places_matter
from redalg.runtime.bind.state import State

EXACT_IN_FLOAT64 = 2**53
"""Integers up to this one are exact in float64."""


@final
@dataclass(frozen=True)
class Columns:
    """The columns that a function's streamed tensors are read from.

    Attributes:
        fused: the function.
        names: tensor -> column.
        tensors: the other tensors and the scalars, by name.
        caller: the function that messages name.
    """

    fused: Fused
    names: Mapping[str, str]
    tensors: Mapping[str, Any]
    caller: str

    @classmethod
    def of_function(cls, fused: Fused, columns: Mapping[str, str] | None, tensors: Mapping[str, Any] | None,
                    caller: str) -> Columns:  # fmt: skip
        """The columns of every streamed tensor, its own name where `columns` does not say it.

        Raises:
            InputError: the form takes several passes or reduces over several axes, a tensor has other axes too, or
                `columns` names what is no streamed tensor.
        """
        refuse_states(caller, fused.cascade, fused.earlier)
        names = streamed_tensors(fused, caller)
        unknown = [name for name in columns or {} if name not in names]
        if unknown:
            raise InputError(f"{caller}: columns: the expression streams no tensor `{unknown[0]}`. It streams "
                             f"{', '.join(names)}; pass others in `tensors=`.")  # fmt: skip
        return cls(fused, {name: name for name in names} | dict(columns or {}), dict(tensors or {}), caller)

    def state(self, arrays: Mapping[str, Any], start: int) -> State:
        """The state of arrays of Arrow by tensor, of equal lengths; rows that hold a NULL are left out.

        Raises:
            InputError: a column holds what is no number, or a NULL where the places of rows matter.
        """
        for name, array in arrays.items():
            check_type(array.type, f"column `{self.names[name]}` (tensor `{name}`)", self.caller)
        values = self.fused.form.cascade.value_tensors()
        rows = {name: self.numbers(name, array, name in values) for name, array in self.without_nulls(arrays).items()}
        starts = {self.fused.form.cascade.axis: start}
        return self.fused.leaf({**rows, **self.tensors}, start=starts, backend=BY_NUMPY)

    def empty(self, types: Mapping[str, Any]) -> State:
        """The state of no rows, of columns of these types by tensor."""
        import pyarrow as pa

        return self.state({name: pa.array([], types[name]) for name in self.names}, 0)

    def outputs(self, state: State, empty: str) -> Any:
        """The outputs of a state as Python's numbers and lists: one, or a dictionary of them."""
        form, tensors = self.fused.form, self.tensors
        wanted = finished_tensors(form) | {scalar.name for scalar in form.cascade.scalars()}
        result = self.fused.finish(state, {name: tensors[name] for name in wanted & tensors.keys()}, empty)
        if self.fused.single:
            return np.asarray(result).tolist()
        return {name: np.asarray(array).tolist() for name, array in result._asdict().items()}

    def without_nulls(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays, without the rows at which one of them has a NULL."""
        import pyarrow.compute as pc

        holes = [name for name, array in arrays.items() if array.null_count]
        if not holes:
            return dict(arrays)
        if places_matter(self.fused.form):
            raise InputError(
                f"{self.caller}: column `{self.names[holes[0]]}` (tensor `{holes[0]}`) holds NULL, and the expression "
                "depends on the places of rows, so none can be left out. Fill the NULLs, or filter the rows before, "
                "if places are to be counted without them."
            )
        valid = arrays[holes[0]].is_valid()
        for name in holes[1:]:
            valid = pc.and_(valid, arrays[name].is_valid())
        return {name: array.filter(valid) for name, array in arrays.items()}

    def numbers(self, name: str, array: Any, is_value: bool) -> np.ndarray[Any, Any]:
        """An array without NULLs as NumPy's; integers and booleans that stand in arithmetic as float64."""
        numbers: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
        if not is_value or numbers.dtype.kind == "f":
            return numbers
        if numbers.dtype.itemsize == 8 and len(numbers):
            least, most = int(numbers.min()), int(numbers.max())
            if max(-least, most) > EXACT_IN_FLOAT64:
                raise InputError(
                    f"{self.caller}: column `{self.names[name]}` (tensor `{name}`) is {array.type} and holds "
                    f"{most if most > -least else least}, beyond ±2**53, and integers stand in arithmetic as float64. "
                    "Cast the column to float64, if it may be rounded."
                )
        return numbers.astype(np.float64)


def streamed_tensors(fused: Fused, caller: str) -> tuple[str, ...]:
    """The tensors that lie along the streamed axis, in the order of `inputs=`, else of their names.

    Raises:
        InputError: the reductions are over several axes, or such a tensor has other axes beside.
    """
    cascade = fused.form.cascade
    if cascade.inner:
        raise InputError(
            f"{caller}: the expression reduces over {' and '.join(map(str, cascade.reduced_axes))}, and a table has "
            "one axis, its rows. Write it over one axis."
        )
    streamed = [element for element in cascade.elements() if cascade.axis in element.indices]
    wide = next((element for element in streamed if len(element.indices) > 1), None)
    if wide is not None:
        raise InputError(
            f"{caller}: tensor `{wide}` has other axes beside {cascade.axis}, and a column has one number a row. Write "
            f"a tensor for each column, such as `{wide.name}_0[{cascade.axis}]`."
        )
    names = list(dict.fromkeys(element.name for element in streamed))
    if not names:
        raise InputError(f"{caller}: no tensor of the expression lies along {cascade.axis}, so no column is read. Call "
                         "the function itself.")  # fmt: skip
    return tuple(sorted(names, key=lambda name: fused.inputs.index(name) if name in fused.inputs else -1))


def check_type(of: Any, where: str, caller: str) -> None:
    """Refuse a type of Arrow that is no number; `where` names the column."""
    import pyarrow as pa

    types = pa.types
    if types.is_integer(of) or types.is_floating(of) or types.is_boolean(of):
        return
    advice = "Cast it to a number, `pyarrow.compute.cast(column, 'float64')`, or leave it out"
    if types.is_dictionary(of):
        advice = "Decode it, `column.dictionary_decode()`; codes are `column.indices`"
    elif types.is_decimal(of):
        advice = "Cast it, `pyarrow.compute.cast(column, 'float64')`, if it may be rounded"
    elif types.is_temporal(of):
        advice = "Cast it, `pyarrow.compute.cast(column, 'int64')`, to count its units"
    raise InputError(f"{caller}: {where} is of type {of}; integers, floats and booleans are read. {advice}.")


def check_columns(names: Sequence[str], columns: Columns) -> None:
    """Refuse data of these columns if one is missing, or stands twice."""
    for tensor, column in columns.names.items():
        if names.count(column) != 1:
            number = "two columns" if column in names else "no column"
            raise InputError(
                f"{columns.caller}: the data have {number} `{column}`, for tensor `{tensor}`. They have "
                f'{", ".join(names) or "none"}. Pass `columns={{"{tensor}": …}}`.'
            )
