"""Arrays side by side in one buffer, so that they move in one message.

    array 0 | 0 … | array 1 | 0 … | …      in order, each from a multiple of 16 bytes, the last dimension fastest

Numbers lie as they do in memory: IEEE floats and integers in two's complement, little-endian.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, final

import numpy as np

from redalg.expression.dtypes import DTYPES
from redalg.expression.spelling import did_you_mean
from redalg.runtime.bind.inputs import array_dtype, library_name

ALIGNMENT = 16
MOST_CLEARED = 1 << 20
"""Bytes of a buffer that are cleared as a whole: of a larger one each gap between arrays is."""


@final
@dataclass(frozen=True)
class Packing:
    """The places of arrays in a buffer.

    Attributes:
        dtypes, shapes: of the arrays, by name and in order.
    """

    dtypes: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Packing:
        """The places of arrays of NumPy or torch."""
        shapes = {name: tuple(int(size) for size in array.shape) for name, array in arrays.items()}
        return cls({name: array_dtype(array) for name, array in arrays.items()}, shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Packing, (self.dtypes, self.shapes)

    @cached_property
    def key(self) -> Hashable:
        """Names, dtypes and shapes as a value that a dictionary finds."""
        return tuple(self.dtypes.items()), tuple(self.shapes.items())

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The first byte of every array."""
        found, first = dict[str, int](), 0
        for name in self.dtypes:
            found[name] = first
            first += -(-self.bytes_of(name) // ALIGNMENT) * ALIGNMENT
        return found

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the buffer, what fills it up to multiples of 16 too."""
        ends = (first + -(-self.bytes_of(name) // ALIGNMENT) * ALIGNMENT for name, first in self.offsets.items())
        return max(ends, default=0)

    @cached_property
    def has_gaps(self) -> bool:
        """Tell if there are bytes between the arrays."""
        return any(self.bytes_of(name) % ALIGNMENT for name in self.dtypes)

    @cached_property
    def view_places(self) -> tuple[tuple[str, str, tuple[int, ...], tuple[int, ...], int], ...]:
        """The name, dtype, shape and strides of every array, and the number of its first element of that dtype."""
        return tuple(
            (
                name,
                dtype,
                self.shapes[name],
                row_major_strides(self.shapes[name]),
                self.offsets[name] // DTYPES[dtype].bytes,
            )
            for name, dtype in self.dtypes.items()
        )

    def bytes_of(self, name: str) -> int:
        """The bytes of an array."""
        return DTYPES[self.dtypes[name]].bytes * prod(self.shapes[name])


@final
class Packed(Mapping[str, Any]):
    """Arrays by name, which are views of one buffer of bytes. It pickles as the buffer and their places."""

    def __init__(self, buffer: Any, packing: Packing) -> None:
        self.buffer, self.packing = buffer, packing
        self._views = views_of(buffer, packing)

    @classmethod
    def around(cls, arrays: Mapping[str, Any], packing: Packing) -> Packed:
        """The views of one buffer of torch that lie in it as a packing says, as whoever made them knows."""
        packed = cls.__new__(cls)
        packed.buffer, packed.packing = whole_buffer(next(iter(arrays.values()))), packing
        packed._views = dict(arrays)
        return packed

    @classmethod
    def of(cls, arrays: Mapping[str, Any], library: str, device: str) -> Packed:
        """Arrays of a library, on a device: those that lie so in one buffer are taken, others are copied."""
        packing = Packing.of(arrays)
        buffer = common_buffer(arrays, packing)
        if buffer is not None:
            return cls(buffer, packing)
        packed = cls(empty_buffer(packing, library, device), packing)
        for name, view in packed.items():
            view[...] = arrays[name]
        return packed

    def __getitem__(self, name: str) -> Any:
        try:
            return self._views[name]
        except KeyError:
            near = did_you_mean(str(name), self._views)
            raise KeyError(f"no slot is named {name!r}.{near} There are {', '.join(self._views)}.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.buffer, self.packing)


def common_buffer(arrays: Mapping[str, Any], packing: Packing) -> Any:
    """The buffer of which torch's tensors are views, at the places of a packing, and that has no more; else None."""
    if not arrays or any(library_name(one) != "torch" for one in arrays.values()):
        return None
    storages = [one.untyped_storage() for one in arrays.values()]
    first = storages[0]
    alike = all(one.data_ptr() == first.data_ptr() and one.nbytes() == packing.nbytes for one in storages)
    firsts = {name: array.storage_offset() * array.element_size() for name, array in arrays.items()}
    in_place = firsts == packing.offsets and all(one.is_contiguous() for one in arrays.values())
    if not (alike and in_place and packing.nbytes):
        return None
    return whole_buffer(next(iter(arrays.values())))


def whole_buffer(view: Any) -> Any:
    """The memory of which a tensor of torch is a view, as bytes."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=view.device).set_(view.untyped_storage())


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))


def empty_buffer(packing: Packing, library: str, device: Any) -> Any:
    """A buffer for arrays to be written, with zeros between them: bytes of other memory do not travel."""
    if library == "numpy":
        return np.zeros(packing.nbytes, np.uint8)
    import torch

    if not packing.has_gaps:
        return torch.empty(packing.nbytes, dtype=torch.uint8, device=device)
    if packing.nbytes <= MOST_CLEARED:
        return torch.zeros(packing.nbytes, dtype=torch.uint8, device=device)
    buffer = torch.empty(packing.nbytes, dtype=torch.uint8, device=device)
    for name, first in packing.offsets.items():
        stop = first + packing.bytes_of(name)
        if stop % ALIGNMENT:
            buffer[stop : stop + -stop % ALIGNMENT] = 0
    return buffer


def views_of(buffer: Any, packing: Packing) -> dict[str, Any]:
    """The arrays in a buffer, which share its memory."""
    if isinstance(buffer, np.ndarray):
        return {name: buffer[first : first + packing.bytes_of(name)].view(packing.dtypes[name])
                .reshape(packing.shapes[name]) for name, first in packing.offsets.items()}  # fmt: skip
    import torch

    found, typed = dict[str, Any](), dict[str, tuple[Any, int]]()
    for name, dtype, shape, strides, first in packing.view_places:
        if dtype not in typed:
            elements = buffer.view(getattr(torch, dtype))
            typed[dtype] = elements, elements.storage_offset()
        elements, before = typed[dtype]
        found[name] = elements.as_strided(shape, strides, before + first)
    return found
