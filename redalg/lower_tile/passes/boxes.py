"""Boxes that the load unit does not take.

It fetches at most 256 elements of a dimension at once. TileLang divides longer rows itself, but of the other dimensions
those alone that are multiples of 256, and refuses to compile the rest.

    tile <- x[n:+304, b:+16]   →   tile <- x[n:+304, b:+16] by threads        exact: the same elements, by other means
"""

from __future__ import annotations

from dataclasses import replace

from redalg.lower_tile.ir.program import Copy, Kernel, Region, Statement, innermost
from redalg.strategies.plan import Plan

LONGEST = 256
"""Elements of a dimension that are fetched at once."""


def boxed(kernel: Kernel, plan: Plan) -> Kernel:
    """The kernel, in which the load unit fetches what it can."""
    if not plan.device.wgmma:
        return kernel
    shared = {one.name for one in kernel.buffers if one.scope == "shared"}

    def fetched(one: Statement) -> Statement:
        if isinstance(one, Copy) and one.target in shared and isinstance(one.source, Region) and is_long(one.source):
            return replace(one, by_threads=True)
        return one

    return replace(kernel, body=tuple(innermost(one, fetched) for one in kernel.body))


def is_long(region: Region) -> bool:
    """Whether a dimension but the last is longer than the load unit takes, and no multiple of that."""
    lengths = [int(place[1]) for place in region.place[:-1] if isinstance(place, tuple)]
    return any(length > LONGEST and length % LONGEST != 0 for length in lengths)
