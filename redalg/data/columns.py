"""Columns of Arrow as tensors along the streamed axis: their types, and the rows that hold no NULL.

A tensor `x[n]` is read from one column; `x[b,n]` and `x[n,i]` from several, one for each b or i, or from a single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from redalg.data.functions import BY_NUMPY, finished_tensors
from redalg.data.keys import KeyColumn
from redalg.decompose.verdict.passes import refuse_states
from redalg.errors import InputError
from redalg.expression import Axis, Element
from redalg.expression.spelling import did_you_mean
from redalg.fused import Fused
from redalg.runtime.bind.places import places_matter
from redalg.runtime.bind.state import State

Slot: TypeAlias = tuple[str, int]
"""A tensor, and the number of a column among its columns."""
Named: TypeAlias = Mapping[str, str | Sequence[str]]
"""Tensor -> its column, or its columns."""
BY: Slot = "by=", 0
"""The groups among arrays by slot: no tensor has such a name."""
EXACT_IN_FLOAT64 = 2**53
"""Integers up to this one are exact in float64."""


@final
@dataclass(frozen=True)
class StreamedTensor:
    """A tensor along the rows of a table.

    Attributes:
        element: as the expression reads it.
        place: of the streamed axis among its dimensions.
        axes: that index its other dimension, if it has one.
    """

    element: Element
    place: int
    axes: frozenset[Axis]

    @property
    def is_wide(self) -> bool:
        """Tell if it has another dimension beside the rows, along which its columns lie."""
        return len(self.element.indices) > 1

    def stack(self, columns: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The tensor of its columns."""
        return np.stack(columns, 1 - self.place) if self.is_wide else columns[0]


@final
@dataclass(frozen=True)
class Columns:
    """The columns that a function's streamed tensors are read from.

    Attributes:
        fused: the function.
        streamed: the tensors that are read from columns, by name.
        names: tensor -> its columns.
        dropped: axes of tensors for which a single column is named: outputs in the engines' types do without them.
        tensors: the other tensors and the scalars, by name.
        caller: the function that messages name.
        keys: the column of groups, if the states are by group.
        backend: that of leaves; None for the default.
    """

    fused: Fused
    streamed: Mapping[str, StreamedTensor]
    names: Mapping[str, Sequence[str]]
    dropped: frozenset[Axis]
    tensors: Mapping[str, Any]
    caller: str
    keys: KeyColumn | None = None
    backend: str | None = None

    @classmethod
    def of_function(cls, fused: Fused, columns: Named | None, tensors: Mapping[str, Any] | None,
                    caller: str, *, keys: KeyColumn | None = None, backend: str | None = None) -> Columns:  # fmt: skip
        """The columns of every streamed tensor, its own name where `columns` does not say it.

        Raises:
            InputError: the form takes several passes or reduces over several axes, a tensor has two other axes, or
                `columns` names what is no streamed tensor, or several columns for a tensor along the rows alone.
        """
        refuse_states(caller, fused.cascade, fused.earlier)
        streamed = streamed_tensors(fused, caller)
        unknown = [name for name in columns or {} if name not in streamed]
        if unknown:
            raise InputError(f"{caller}: columns: the expression streams no tensor `{unknown[0]}`. It streams "
                             f"{', '.join(streamed)}; pass others in `tensors=`.")  # fmt: skip
        given = {name: name for name in streamed} | dict(columns or {})
        names = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in given.items()}
        for name, tensor in streamed.items():
            if not names[name] or (len(names[name]) > 1 and not tensor.is_wide):
                raise InputError(f"{caller}: columns: tensor `{tensor.element}` is read from one column, and "
                                 f"{len(names[name])} are named. Name one.")  # fmt: skip
        dropped = frozenset[Axis]().union(*(streamed[name].axes for name in given if isinstance(given[name], str)))
        return cls(fused, streamed, names, dropped, dict(tensors or {}), caller, keys, backend)

    @property
    def slots(self) -> dict[Slot, str]:
        """The column of every slot."""
        return {(name, number): column for name, own in self.names.items() for number, column in enumerate(own)}

    @property
    def read(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys([*self.slots.values(), *([self.keys.name] if self.keys else [])]))

    def state(self, arrays: Mapping[Slot, Any], start: int) -> State:
        """The state of arrays of Arrow by slot, and the groups' by `BY`; rows that hold a NULL are left out.

        Raises:
            InputError: a column holds what is no number, or a NULL where the places of rows matter.
        """
        for slot, array in arrays.items():
            if slot != BY:
                check_type(array.type, self.where(slot), self.caller)
        whole = self.without_nulls(arrays)
        rows = {name: tensor.stack([self.numbers((name, number), whole) for number in range(len(self.names[name]))])
                for name, tensor in self.streamed.items()}  # fmt: skip
        by, groups = (None, None) if self.keys is None else (self.keys.numbers(whole[BY]), self.keys.groups)
        first = {self.fused.form.cascade.axis: start}
        some = len(next(iter(whole.values())))  # no kernel takes no rows
        backend = self.backend if self.backend is not None and some else None if by is not None else BY_NUMPY
        return self.fused.leaf({**rows, **self.tensors}, first, backend=backend, by=by, groups=groups)

    def where(self, slot: Slot) -> str:
        """The column of a slot, or of the groups, in words."""
        if slot == BY and self.keys is not None:
            return f"column `{self.keys.name}` (by=)"
        return f"column `{self.slots[slot]}` (tensor `{slot[0]}`)"

    def arrays_of(self, batch: Any) -> dict[Slot, Any]:
        """The columns of a record batch, by slot; and that of the groups by `BY`."""
        of_keys = {} if self.keys is None else {BY: batch.column(self.keys.name)}
        return {slot: batch.column(column) for slot, column in self.slots.items()} | of_keys

    def empty_types(self) -> dict[Slot, Any]:
        """The types of columns that nobody tells, by slot: float64 where numbers stand in arithmetic."""
        import pyarrow as pa

        values = self.fused.form.cascade.value_tensors()
        return {slot: pa.float64() if slot[0] in values else pa.int64() for slot in self.slots}

    def empty(self, types: Mapping[Slot, Any]) -> State:
        """The state of no rows, of columns of these types by slot."""
        import pyarrow as pa

        of_keys = {} if self.keys is None else {BY: pa.array([], pa.int64())}
        if self.keys is not None and self.keys.groups is None:
            raise InputError(f"{self.caller}: no batch tells how many groups there are. Pass `groups=`.")
        return self.state({slot: pa.array([], types[slot]) for slot in self.slots} | of_keys, 0)

    def outputs(self, state: State, empty: str, *, nulls: bool = False) -> Any:
        """The outputs of a state as Python's numbers and lists: one, or a dictionary of them.

        With `nulls` those at which the function has no value are None: a ratio over no elements, unless `empty="zero"`,
        and what is NaN although all numbers of the state are finite, as a variance of one row divided by n - 1.
        """
        found = self._finish(state, empty)
        if nulls and any(one.dtype.kind == "f" and np.isnan(one).any() for one in found.values()):
            numbers = self._finish(state, "zero")
            axes = {output.name: output.axes for output in self.fused.form.outputs}
            found = {name: without_numbers(array, ~np.isnan(numbers[name]) | self._is_finite(state, axes[name]))
                     for name, array in found.items()}  # fmt: skip
        lists = {name: one.tolist() for name, one in found.items()}
        return next(iter(lists.values())) if self.fused.single else lists

    def _finish(self, state: State, empty: str) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of a state by name, without the axes that are dropped."""
        form, tensors = self.fused.form, self.tensors
        wanted = finished_tensors(form) | {scalar.name for scalar in form.cascade.scalars()}
        result = self.fused.finish(state, {name: tensors[name] for name in wanted & tensors.keys()}, empty)
        arrays = (result,) if self.fused.single else result
        return {output.name: self._without_dropped(output.axes, array)
                for output, array in zip(form.outputs, arrays, strict=True)}  # fmt: skip

    def _is_finite(self, state: State, axes: Sequence[Axis]) -> np.ndarray[Any, Any]:
        """True for each element of an output with these axes that is computed of finite numbers alone."""
        finite = np.asarray(all(np.isfinite(one).all() for one in self.tensors.values()))
        for slot in self.fused.form.slots:
            beyond = tuple(place for place, axis in enumerate(slot.axes) if axis not in axes)
            own = np.isfinite(state.slots[slot.name]).all(axis=beyond)
            kept = [axis for axis in slot.axes if axis in axes]
            own = own.transpose([kept.index(axis) for axis in axes if axis in kept])
            finite = finite & np.expand_dims(own, [place for place, axis in enumerate(axes) if axis not in kept])
        return self._without_dropped(axes, np.broadcast_to(finite, np.broadcast_shapes(finite.shape, (1,) * len(axes))))

    def _without_dropped(self, axes: Sequence[Axis], array: Any) -> np.ndarray[Any, Any]:
        places = tuple(place for place, axis in enumerate(axes) if axis in self.dropped)
        return np.squeeze(np.asarray(array), places)

    def without_nulls(self, arrays: Mapping[Slot, Any]) -> dict[Slot, Any]:
        """The arrays, without the rows at which one of them has a NULL."""
        import pyarrow.compute as pc

        holes = [slot for slot, array in arrays.items() if array.null_count]
        if not holes:
            return dict(arrays)
        if places_matter(self.fused.form):
            raise InputError(
                f"{self.caller}: {self.where(holes[0])} holds NULL, and the expression "
                "depends on the places of rows, so none can be left out. Fill the NULLs, or filter the rows before, "
                "if places are to be counted without them."
            )
        valid = arrays[holes[0]].is_valid()
        for slot in holes[1:]:
            valid = pc.and_(valid, arrays[slot].is_valid())
        return {slot: array.filter(valid) for slot, array in arrays.items()}

    def numbers(self, slot: Slot, arrays: Mapping[Slot, Any]) -> np.ndarray[Any, Any]:
        """An array without NULLs as NumPy's; integers and booleans that stand in arithmetic as float64."""
        array = arrays[slot]
        numbers: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
        if slot[0] not in self.fused.form.cascade.value_tensors() or numbers.dtype.kind == "f":
            return numbers
        if numbers.dtype.itemsize == 8 and len(numbers):
            least, most = int(numbers.min()), int(numbers.max())
            if max(-least, most) > EXACT_IN_FLOAT64:
                raise InputError(
                    f"{self.caller}: {self.where(slot)} is {array.type} and holds "
                    f"{most if most > -least else least}, beyond ±2**53, and integers stand in arithmetic as float64. "
                    "Cast the column to float64, if it may be rounded."
                )
        return numbers.astype(np.float64)


def without_numbers(array: np.ndarray[Any, Any], undefined: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array with None where it is NaN since the function is undefined there, and not since the data is NaN."""
    if array.dtype.kind != "f":
        return array
    found = array.astype(object)
    found[np.isnan(array) & undefined] = None
    return found


def streamed_tensors(fused: Fused, caller: str) -> dict[str, StreamedTensor]:
    """The tensors that lie along the streamed axis, in the order of `inputs=`, else of their names.

    Raises:
        InputError: the reductions are over several axes, or such a tensor has two axes beside.
    """
    cascade = fused.form.cascade
    if cascade.inner:
        raise InputError(
            f"{caller}: the expression reduces over {' and '.join(map(str, cascade.reduced_axes))}, and a table has "
            "one axis, its rows. Write it over one axis."
        )
    by_name: dict[str, list[Element]] = {}
    for element in cascade.elements():
        if cascade.axis in element.indices:
            by_name.setdefault(element.name, []).append(element)
    if not by_name:
        raise InputError(f"{caller}: no tensor of the expression lies along {cascade.axis}, so no column is read. Call "
                         "the function itself.")  # fmt: skip
    order = sorted(by_name, key=lambda name: fused.inputs.index(name) if name in fused.inputs else -1)
    return {name: _streamed_tensor(by_name[name], cascade.axis, caller) for name in order}


def _streamed_tensor(elements: Sequence[Element], axis: Axis, caller: str) -> StreamedTensor:
    """A tensor by the elements of it that an expression reads."""
    element, places = elements[0], {element.indices.index(axis) for element in elements}
    if len(element.indices) > 2 or len(places) > 1:
        raise InputError(
            f"{caller}: tensor `{element}` has more than one axis beside {axis}, and a table has columns alone. Write "
            f"a tensor for each column, such as `{element.name}_0[{axis}]`, or one of several columns, "
            f"`{element.name}[b,{axis}]`."
        )
    place = places.pop()
    others = {index for element in elements for index in element.indices if index != axis}
    return StreamedTensor(element, place, frozenset(one for one in others if isinstance(one, Axis)))


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
    for (tensor, _), column in columns.slots.items():
        if names.count(column) != 1:
            number = "two columns" if column in names else "no column"
            raise InputError(
                f"{columns.caller}: the data have {number} `{column}`, for tensor `{tensor}`. They have "
                f'{", ".join(names) or "none"}.{did_you_mean(column, names)} Pass `columns={{"{tensor}": …}}`.'
            )
