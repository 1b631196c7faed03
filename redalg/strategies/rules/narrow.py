"""The rules for narrow matrices: tiles of short rows and of few columns, without the padding of wide ones.

A short row lies in one thread, or in a few, which exchange nothing with others to reduce it. A tile of few columns has
as many as there are, so that its lanes read memory in one run.
"""

from __future__ import annotations

from typing import NamedTuple

from redalg.strategies.device import WARP
from redalg.strategies.rules.powers import power_of_two

NARROW = 64
"""Elements of a row up to which a tile is as narrow as it is."""
LEAST_COLUMNS = 4
"""Columns of the narrowest tile."""
WIDE_COLUMNS = 32
"""Columns from which a few threads share a row, and from which tiles of other rows serve lengths of powers of two."""
MOST_ROWS = 128
"""Rows of a tile, at most."""
TILE = 1024
"""Elements of a tile of rows that are written again, or ranked."""
MOST_ALONE = 256
"""Rows of a tile of which a thread takes each whole, at most."""
OF_A_RANK = 16
"""Elements of a ranked tile that a thread holds."""
LONGEST_RANKED = 1024
"""The longest row that is ranked whole (H200, places and maxima of 65536 x 256: 0.60 of the time of lanes that keep a
best each, of 16384 x 1000 as fast, of 16384 x 4000 1.25)."""


class NarrowTile(NamedTuple):
    """A tile of whole rows: rows, columns, and the threads that share it."""

    rows: int
    columns: int
    threads: int


def narrow_rows(rows: int, length: int, *, again: bool) -> NarrowTile | None:
    """The tile of short rows, which outputs need `again` or not; None where tiles of other rows serve.

    Sums of 17 or 33 elements are made by threads that hold a row or half of one each, by one warp, which waits for no
    other (H200, 262144 rows in float32: variances of 3, 17, 33 elements in 0.14, 0.28, 0.22 of the time of 128
    threads for 1024 elements, of 17 in float64 0.28, logsumexps of 5 in 0.42). A thread holds a whole row of 16 or
    fewer (0.87 to 0.97 of the time of two rows a thread).

    Rows that are written again need neighbouring lanes at neighbouring places, but for the shortest (softmaxes of 3, 5,
    9 elements in 0.21, 0.26, 0.41 of the time of 32 columns, layer norms 0.12, 0.14, 0.28).
    """
    columns = power_of_two(max(length, LEAST_COLUMNS))
    if columns > NARROW or (columns >= WIDE_COLUMNS and (again or columns == length)):
        return None
    if again:
        most, threads = (TILE // columns, 128) if columns < WIDE_COLUMNS // 2 else (TILE // WIDE_COLUMNS, 64)
    elif columns < WIDE_COLUMNS:
        most = MOST_ALONE if columns == LEAST_COLUMNS else MOST_ALONE // 2
        threads = min(most, max(WARP, power_of_two(rows)))
    else:
        most, threads = TILE // columns, WARP
    return NarrowTile(min(most, power_of_two(rows)), columns, threads)


def ranked_rows(rows: int, length: int) -> NarrowTile | None:
    """The tile of rows of which the place of the best is wanted; None of longer rows."""
    columns = power_of_two(max(length, LEAST_COLUMNS))
    if columns > LONGEST_RANKED:
        return None
    row = min(power_of_two(rows), MOST_ROWS, max(1, TILE // columns))
    return NarrowTile(row, columns, max(32, row * columns // OF_A_RANK))


COLUMNS_OF_NARROW_TILE = 32
"""Columns of a tile of few columns, at most."""
LONG_COLUMN = 4096
"""Elements of a column, at least, that are worth the lanes of such a tile."""
LANES_OF_FEW = 512
"""Threads of a tile of few columns."""
EACH_OF_FEW = 4
"""Elements of a column that each of these threads takes from a tile."""
PARTS_OF_FEW = 256
"""Parts of few columns, at most."""
BLOCKS_OF_FEW = 2
"""Blocks of few columns on each multiprocessor (H200, means and variances of 4e6 x 3 in float32
in 0.63 of the time of a block a column, of 1e6 x 17 in float16 0.69, in float32 0.54, sums 0.48, of 1e6 x 8 0.73; of
1e6 x 64 0.81 of the time of blocks of 1024 threads alone)."""


SLIM_COLUMNS = 8
"""Columns of a slim tile."""
PADDED_COLUMNS = 0.75
"""The share of a tile's columns that are no padding, up to which slim tiles are faster (H200, means and variances of
1e6 columns: 17 in float16 in 0.81 of the time of one tile of 32, 20 0.81, 48 0.72, 12 0.89, 12 in float32 0.92; 28
1.16)."""


def tile_of_few_columns(columns: int) -> tuple[int, int]:
    """(columns, streamed elements) of the tile of few columns: all of them, or some where many would be padded."""
    width = power_of_two(columns)
    slim = width > SLIM_COLUMNS and columns <= PADDED_COLUMNS * width
    width = SLIM_COLUMNS if slim else min(COLUMNS_OF_NARROW_TILE, width)
    return width, LANES_OF_FEW // width * EACH_OF_FEW


def has_few_columns(columns: int) -> bool:
    """Tell if one tile has all columns, or two have, or some slim ones."""
    few, twice = COLUMNS_OF_NARROW_TILE, 2 * COLUMNS_OF_NARROW_TILE
    return 1 < columns <= few or few < columns <= PADDED_COLUMNS * twice or columns == twice


LANES_OF_BEST, LONG_BEST, EACH_OF_BEST = 128, 4096, 4
"""Lanes of a row of which the place of the best is wanted, twice as many of a longer one, and the elements that each
takes at a time (H200, in float32: 4096 x 50257 in 0.94 of the time of 128 lanes of 8 elements, 512 x 200704 0.81,
16384 x 4000 0.86; 0.81 of the time of tiles that are ranked, 0.73, 0.80)."""


def lanes_of_best(length: int, *, few: bool) -> tuple[int, int]:
    """(elements, lanes) of a row that is not ranked whole; `few` rows have twice the lanes, of twice the elements."""
    lanes = LANES_OF_BEST if length <= LONG_BEST else 2 * LANES_OF_BEST
    return (4 * lanes * EACH_OF_BEST, 2 * lanes) if few else (lanes * EACH_OF_BEST, lanes)
