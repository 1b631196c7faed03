"""The tiles in registers that a kernel of whole rows copies from global memory."""

from __future__ import annotations

from math import prod

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import Buffer, Copy, Kernel, Region


def loaded_elements(kernel: Kernel) -> int:
    """The elements of the tiles in registers that a kernel copies from global memory."""
    return sum(prod(one.shape) for one in loaded_tiles(kernel))


def loaded_bytes(kernel: Kernel) -> int:
    """The bytes of the tiles in registers that a kernel copies from global memory."""
    return sum(prod(one.shape) * DTYPES[one.dtype].bytes for one in loaded_tiles(kernel))


def loaded_tiles(kernel: Kernel) -> list[Buffer]:
    """The tiles in registers that a kernel copies from global memory."""
    targets = {one.target for one in kernel.body if isinstance(one, Copy) and isinstance(one.source, Region)}
    return [one for one in kernel.buffers if one.scope == "fragment" and one.name in targets]
