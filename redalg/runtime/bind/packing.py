"""Arrays side by side in one buffer, so that they move in one message.

    array 0 | 0 … | array 1 | 0 … | …      in order, each from a multiple of 16 bytes, the last dimension fastest

Numbers lie as they do in memory: IEEE floats and integers in two's complement, little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from redalg.expression.dtypes import DTYPES
from redalg.runtime.bind.inputs import array_dtype

ALIGNMENT = 16


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

    @property
    def offsets(self) -> dict[str, int]:
        """The first byte of every array."""
        found, first = dict[str, int](), 0
        for name in self.dtypes:
            found[name] = first
            first += -(-self.bytes_of(name) // ALIGNMENT) * ALIGNMENT
        return found

    @property
    def nbytes(self) -> int:
        """The bytes of the buffer, what fills it up to multiples of 16 too."""
        return sum(-(-self.bytes_of(name) // ALIGNMENT) * ALIGNMENT for name in self.dtypes)

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
    def of(cls, arrays: Mapping[str, Any], library: str, device: str) -> Packed:
        """Copies of arrays, in their library and on a device."""
        packing = Packing.of(arrays)
        packed = cls(empty_buffer(packing.nbytes, library, device), packing)
        for name, view in packed.items():
            view[...] = arrays[name]
        return packed

    def __getitem__(self, name: str) -> Any:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.buffer, self.packing)


def empty_buffer(nbytes: int, library: str, device: str) -> Any:
    """A buffer of zeros."""
    if library == "numpy":
        return np.zeros(nbytes, np.uint8)
    import torch

    return torch.zeros(nbytes, dtype=torch.uint8, device=device)


def views_of(buffer: Any, packing: Packing) -> dict[str, Any]:
    """The arrays in a buffer, which share its memory."""
    found = dict[str, Any]()
    for name, first in packing.offsets.items():
        part = buffer[first : first + packing.bytes_of(name)]
        found[name] = _array_of(part, packing.dtypes[name], packing.shapes[name])
    return found


def _array_of(part: Any, dtype: str, shape: Sequence[int]) -> Any:
    if isinstance(part, np.ndarray):
        return part.view(dtype).reshape(shape)
    import torch

    return part.view(getattr(torch, dtype)).view(shape)
