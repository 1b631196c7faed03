"""The work of keeping the best elements of a row, tile by tile (`lower_tile.text.join_best` says how).

A tile is looked through once, to count what is above the least of the best. The first tile, and each of a merge, is
looked through `HALVINGS` times, to find a bound that few elements lie above. Of random data the tile at place t holds
one in t of the best so far: these are collected beside the best and placed, each compared with all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp
from typing import final

HALVINGS, COLLECTED = 12, 2
"""Looks at a first tile; elements above its bound, as a multiple of those that are kept."""
STEPS = 3
"""Waits of a block that places elements, beside those of its looks."""
JOINED = 4096
"""Elements of parts that a merge joins at once."""


@final
@dataclass(frozen=True)
class Joins:
    """The joins of a block.

    Attributes:
        looked: elements that are looked at, each time.
        compared: pairs of elements that are compared.
        waits: times that all threads of the block wait for one another.
    """

    looked: float
    compared: float
    waits: float


@lru_cache(maxsize=1024)
def joins_of(kept: int, tile: int, tiles: int, threads: int) -> Joins:
    """The joins of a block that takes some tiles in turn, and keeps the best `kept` elements.

    >>> joins_of(8, 1024, 1, 64)
    Joins(looked=13312.0, compared=1536.0, waits=15.0)
    """
    looked = compared = waits = 0.0
    for place in range(1, tiles + 1):
        first = place == 1 and tile > (1 + COLLECTED) * kept
        above = COLLECTED * kept if first else min(tile, kept / place)
        looks, changes = HALVINGS if first else 1, 1 - exp(-above)
        looked += (looks + changes) * tile
        compared += changes * (kept + above) * max(4 * kept, threads)
        waits += looks + STEPS * changes
    return Joins(round(looked, 1), round(compared, 1), round(waits, 1))


def joins_of_parts(kept: int, parts: int, threads: int) -> Joins:
    """The joins of a block that merges the best elements of parts."""
    tiles = -(-parts * kept // JOINED)
    each = joins_of(kept, min(JOINED, parts * kept), 1, threads)
    return Joins(each.looked * tiles, each.compared * tiles, each.waits * tiles)
