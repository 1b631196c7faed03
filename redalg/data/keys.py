"""A column of Arrow as the groups of rows: their numbers, their places in a dictionary, or values that are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, final

import numpy as np

from redalg.errors import InputError
from redalg.expression.spelling import did_you_mean
from redalg.runtime.bind.groups import check_groups

ROWS = 1 << 20
"""Rows that are reduced at once, where there are fewer groups: each piece is merged into all groups."""


def key_column(by: Any, groups: Any, caller: str) -> KeyColumn | None:
    """The column that `by` names; None for states that are not by group.

    Args:
        by: the name of the column.
        groups: their number, their values in order, or None for those of a dictionary.
        caller: the function that messages name.

    Raises:
        InputError: groups without a column, what is no name of one, or what is neither a number nor values.
    """
    if by is None and groups is not None:
        raise InputError(f"{caller}: groups={groups!r} stands without keys. Pass `by=`, the column that holds them.")
    if by is None:
        return None
    if not isinstance(by, str):
        raise InputError(f"{caller}: by= should name the column that gives every row its group; it is a "
                         f"{type(by).__name__}.")  # fmt: skip
    if groups is None:
        return KeyColumn(by, None, None, caller)
    if isinstance(groups, Integral):
        check_groups(groups, caller)
        return KeyColumn(by, int(groups), None, caller)
    values = values_of_groups(groups, caller)
    return KeyColumn(by, len(values), values, caller)


def values_of_groups(groups: Any, caller: str) -> Any:
    """The values of groups, as an array of Arrow."""
    import pyarrow as pa

    try:
        values = groups if isinstance(groups, pa.Array) else pa.array(groups)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        raise InputError(f"{caller}: groups= should be a number of groups, or an array of their values; it is a "
                         f"{type(groups).__name__}.") from None  # fmt: skip
    if not len(values) or values.null_count or len(values.unique()) < len(values):
        raise InputError(f"{caller}: groups= should list the value of every group once, and no NULL.")
    return values


@final
class KeyColumn:
    """The column that gives every row its group.

    Attributes:
        name: of the column.
        groups: their number; of a dictionary's places it is known once a batch was seen.
        values: those of the groups in order, if they are listed.
        caller: the function that messages name.
    """

    def __init__(self, name: str, groups: int | None, values: Any, caller: str) -> None:
        self.name, self.groups, self.values, self.caller = name, groups, values, caller
        self._dictionary: Any = None

    @property
    def rows(self) -> int:
        """The rows that are reduced at once."""
        return max(ROWS, self.groups or 0)

    @property
    def where(self) -> str:
        """The column, in words."""
        return f"{self.caller}: column `{self.name}`, which `by=` names,"

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse data of these columns, if they have not this one, or two of it."""
        if names.count(self.name) != 1:
            number = "two columns" if self.name in names else "no column"
            raise InputError(f"{self.caller}: the data have {number} `{self.name}`, which `by=` names. They have "
                             f"{', '.join(names) or 'none'}.{did_you_mean(self.name, names)}")  # fmt: skip

    def meet(self, array: Any) -> None:
        """Take note of a batch's keys: integers, or places in the dictionary that all batches have.

        Raises:
            InputError: they are neither, or the number of groups is not known.
        """
        import pyarrow as pa

        if self.values is not None:
            return
        if not pa.types.is_dictionary(array.type):
            if not pa.types.is_integer(array.type):
                raise InputError(f"{self.where} is of type {array.type}; keys are integers from 0, or a dictionary's. "
                                 "List the values of the groups, `groups=[…]`.")  # fmt: skip
            if self.groups is None:
                raise InputError(f"{self.where} holds integers, and their number of groups is not given: keys are 0 to "
                                 "groups - 1. Pass `groups=`.")  # fmt: skip
        elif self._dictionary is None:
            self._dictionary = array.dictionary
            self.groups = max(len(array.dictionary), 1) if self.groups is None else self.groups
        elif array.dictionary is not self._dictionary and not array.dictionary.equals(self._dictionary):
            raise InputError(f"{self.where} has another dictionary than in the batches before. List the values of the "
                             "groups, `groups=[…]`.")  # fmt: skip

    def numbers(self, array: Any) -> np.ndarray[Any, Any]:
        """The groups of rows, of an array without NULLs.

        Raises:
            InputError: a row has a value that is not listed.
        """
        import pyarrow as pa

        if pa.types.is_dictionary(array.type):
            codes: np.ndarray[Any, Any] = array.indices.to_numpy(zero_copy_only=False)
            return codes if self.values is None else self._find_listed(array.dictionary, codes)[codes]
        if self.values is not None:
            return self._find_listed(array)
        numbers: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
        return numbers

    def _find_listed(self, array: Any, read: Any = None) -> np.ndarray[Any, Any]:
        """The places of values among those listed; of a dictionary those that are `read` must be."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            places = pc.index_in(array, value_set=self.values.cast(array.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(f"{self.where} is of type {array.type}, and the values that `groups=` lists are of "
                             f"{self.values.type}. List values of the column's type.") from None  # fmt: skip
        found: np.ndarray[Any, Any] = places.fill_null(-1).to_numpy(zero_copy_only=False)
        absent = found < 0 if read is None else (found < 0) & np.isin(np.arange(len(found)), read)
        if absent.any():
            value = array[int(absent.argmax())].as_py()
            raise InputError(f"{self.where} holds {value!r}, which is none of the {len(self.values)} values that "
                             "`groups=` lists. List all, or filter the rows.")  # fmt: skip
        return found


def large_batches(pa: Any, batches: Iterable[Any], keys: KeyColumn) -> Iterator[Any]:
    """Record batches put together until they have as many rows as are reduced at once."""
    waiting = list[Any]()
    for batch in batches:
        keys.check_names(batch.schema.names)
        keys.meet(batch.column(keys.name))
        if waiting and batch.schema != waiting[0].schema:
            yield from join_batches(pa, waiting)
            waiting = []
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= keys.rows:
            yield from join_batches(pa, waiting)
            waiting = []
    yield from join_batches(pa, waiting)


def join_batches(pa: Any, batches: Sequence[Any]) -> Sequence[Any]:
    """Record batches of one schema as a single one."""
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()
