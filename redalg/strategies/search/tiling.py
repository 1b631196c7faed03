"""The lengths of tiles that pad an extent by little (rule 3 of `space`)."""

from __future__ import annotations

from redalg.strategies.rules.powers import power_of_two
from redalg.strategies.rules.tiles import round_up

PADDING = 0.05
"""Most padding of an extent that is no power of two (rule 3)."""


def tile_lengths(extent: int, step: int, most: int) -> tuple[int, ...]:
    """The multiples of `step` up to `most` that pad an extent by little (rule 3); the whole extent, padded, is one.

    >>> tile_lengths(512, 16, 128), tile_lengths(80, 16, 256), tile_lengths(1, 64, 256)
    ((16, 32, 64, 128), (16, 80), (64,))
    """
    whole = round_up(extent, step)
    lengths = [length for length in range(step, min(most, whole) + 1, step) if padding(extent, length, step) <= PADDING]
    return tuple(lengths) or (min(whole, most),)


def padding(extent: int, length: int, step: int = 1) -> float:
    """The share by which tiles of a length pad an extent that is a multiple of `step` (∞ for a power of two).

    >>> padding(1000, 512), padding(512, 48), padding(512, 128)
    (0.024, inf, 0.0)
    """
    whole = round_up(extent, step)
    beyond = -whole % length
    if beyond and whole == power_of_two(whole):
        return float("inf")
    return beyond / whole
