"""Powers of two beside a number."""

from __future__ import annotations


def power_within(most: int) -> int:
    """The largest power of two that is not above `most`; 1 if that is below 1."""
    return 1 << max(0, most.bit_length() - 1)


def power_of_two(length: int) -> int:
    """The least power of two that is not below `length`."""
    return 1 << max(0, length - 1).bit_length()
