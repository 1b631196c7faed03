"""The parts of the space of tilings that are left out, with reasons and counts (MCFuser, SC '24, section III-C).

    rule 1   nests that differ in loops bound to blocks alone are one: what is left of a nest is its sub-tiling
    rule 2   no reduced loop of an intermediate stands outside its spatial ones: partial tiles would have to be kept
    rule 3   tiles do not pad a power of two, and others by 5 % at most
    rule 4   what all tiles take is at most 1.2 times a block's shared memory (Eq. 1)
    rule 5   the built program's own count is within it (`lower_tile.fit`): not counted here

Rule 1 binds the spatial loops that all blocks share, and those of one block too, unless such a loop stands directly
within a loop that its block reduces, where it sweeps partial results. The paper gives the counts for two products
(26 → 5 → 3) and one class (mhnk ≡ mnkh); this is the plainest rule that gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import final

from redalg.strategies.model.chain import Chain
from redalg.strategies.model.tiling import Nest, deep, flat
from redalg.strategies.search.space import SLACK
from redalg.strategies.search.tiling import tile_lengths

STEP = 16
"""Granularity of tiles: the least that matrix instructions take."""


@final
@dataclass(frozen=True)
class Stage:
    """The nests and the number of candidates that are left after a rule."""

    rule: str
    nests: tuple[Nest, ...]
    candidates: int


@final
@dataclass(frozen=True)
class Funnel:
    """The stages, from all tilings to those that are searched."""

    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        width = max(len(one.rule) for one in self.stages)
        return "\n".join(f"{stage.rule:<{width}}  {len(stage.nests):>5} expressions  {stage.candidates:>13,} candidates"
                         for stage in self.stages)  # fmt: skip


def bound(chain: Chain, nest: Nest) -> frozenset[str]:
    """The loops that rule 1 binds to blocks."""
    found = set[str]()
    for loop in chain.spatial:
        mine = [block for block in chain.blocks if loop in block.loops]
        if len(mine) == len(chain.blocks) or not any(just_within(nest, loop, block.reduced) for block in mine):
            found.add(loop)
    return frozenset(found)


def just_within(nest: Nest, loop: str, reduced: tuple[str, ...]) -> bool:
    """Tell if a loop stands directly within one that is reduced (or beside others within it)."""
    for outer, inner in zip(nest.loops, nest.loops[1:], strict=False):
        if inner == loop and outer in reduced:
            return True
    first = [one.loops[0] for one in nest.then if one.loops]
    return bool(loop in first and nest.loops and reduced) or any(just_within(one, loop, reduced) for one in nest.then)


def sub_tiling(chain: Chain, nest: Nest) -> Nest:
    """The part of a nest that is left for one block.

    >>> from redalg.strategies.model.chain import products
    >>> chain = products("m", "k", "n", "h")
    >>> print(*(sub_tiling(chain, Nest(tuple(order))) for order in ("mhnk", "mnkh", "mknh")))
    nk nk knh
    """
    return nest.without(bound(chain, nest))


def keeps_partial_tiles(chain: Chain, nest: Nest) -> bool:
    """Tell if a loop that an intermediate reduces stands outside one that indexes it (rule 2)."""
    for block in chain.blocks:
        if block.output.name in chain.intermediates:
            path = nest.path(block)
            reduced = [path.index(loop) for loop in block.reduced if loop in path]
            spatial = [path.index(loop) for loop in block.output.loops if loop in path]
            if reduced and spatial and min(reduced) < max(spatial):
                return True
    return False


def shared_bytes(chain: Chain, tiles: Mapping[str, int], widths: Mapping[str, int]) -> int:
    """The bytes of the tiles of all tensors together (Eq. 1)."""
    return sum(widths[one.name] * prod(tiles[loop] for loop in one.loops) for one in chain.tensors())


def tilings(chain: Chain, extents: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The tile lengths that rule 3 leaves."""
    lengths = (tile_lengths(extents[loop], STEP, extents[loop]) for loop in chain.loops)
    return (dict(zip(chain.loops, one, strict=True)) for one in product(*lengths))


def funnel(chain: Chain, extents: Mapping[str, int], widths: Mapping[str, int], smem_bytes: int) -> Funnel:
    """The nests and candidates that every rule leaves of all tilings of a chain.

    Args:
        extents: by loop; widths: bytes of an element, by tensor; smem_bytes: the shared memory that a block may use.
    """
    everything = (*deep(chain), *flat(chain))
    choices = prod(-(-extents[loop] // STEP) for loop in chain.loops)
    different = tuple({sub_tiling(chain, nest): None for nest in everything})
    small = tuple(nest for nest in different if not keeps_partial_tiles(chain, nest))
    exact = list(tilings(chain, extents))
    fit = sum(shared_bytes(chain, one, widths) <= SLACK * smem_bytes for one in exact)
    return Funnel((
        Stage("all", everything, len(everything) * choices),
        Stage("rule 1: sub-tilings", different, len(different) * choices),
        Stage("rule 2: no partial intermediates", small, len(small) * choices),
        Stage("rule 3: padding", small, len(small) * len(exact)),
        Stage("rule 4: shared memory", small, len(small) * fit),
    ))  # fmt: skip
