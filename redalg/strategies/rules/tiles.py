"""Tiles of matrix products alone: nothing is exponentiated between the load and the product.

Columns of a tile: those of which all blocks together take the fewest waves, a wave being as long as its columns are
many and as its tile is slow (`RATE`, measured on an H200: 4096 x 1536 x 2560 and 4096 x 3584 x 8192, of 8 bits).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from redalg.strategies.device import DeviceSpec

Tile = tuple[int, int, int, int, bool]
"""(rows, streamed elements, stages, threads, warp specialisation)."""
RATE: Mapping[int, float] = {192: 1.0, 128: 1.13}
"""Columns of a tile -> how long a column takes."""
SCALAR_COLUMNS = {"c": 128, "cuda": 64}


@final
@dataclass(frozen=True)
class Product:
    """What the rules look at.

    Attributes:
        rows, columns: extents.
        grid: how often the product is made (the extents of other axes together).
        eight_bits: whether it multiplies 8-bit floats.
        plain: whether both operands are inputs as they lie.
        aligned: whether their rows are multiples of 16 bytes, as the bulk copy engine needs.
    """

    rows: int
    columns: int
    grid: int
    eight_bits: bool
    plain: bool
    aligned: bool


def product_tile(one: Product, device: DeviceSpec, *, cores: bool) -> tuple[Tile, int]:
    """A tile, and its columns."""
    columns = padded(one.columns, 16)
    if not cores:
        return scalar_product(one, device, columns)
    row = 128 if one.rows > 64 else 64
    if not device.wgmma:
        return (row, 32, 2, 128, False), min(columns, 128)
    streamed = 128 if one.eight_bits else 64
    if one.plain:
        return (row, streamed, 4, 2 * row, one.aligned), columns_of(one, device, columns, row)
    wide = min(columns, 256)  # what is computed is computed for every block of columns: few rows, many columns
    return (64, streamed, 2, 256 if wide > 128 else 128, one.aligned), wide


def scalar_product(one: Product, device: DeviceSpec, columns: int) -> tuple[Tile, int]:
    """Without matrix instructions: stack arrays of the C target, or 16 x 4 numbers a thread."""
    if device.target == "c":
        return (min(32, one.rows), 32, 0, 1, False), min(columns, SCALAR_COLUMNS["c"])
    row = 16 if one.rows < 16 else 64
    return (row, 32, 1, 128, False), min(columns, SCALAR_COLUMNS["cuda"])


def columns_of(one: Product, device: DeviceSpec, columns: int, row: int) -> int:
    """The columns of a tile, by the waves that all blocks take."""

    def time(width: int) -> float:
        blocks = -(-one.rows // row) * -(-columns // width) * one.grid
        return -(-blocks // device.multiprocessors) * width * RATE[width]

    return columns if columns <= min(RATE) else min(RATE, key=time)


def padded(length: int, step: int) -> int:
    """The length rounded up to a multiple of `step`, at least one step.

    >>> padded(77, 16)
    80
    """
    return max(step, -(-length // step) * step)
