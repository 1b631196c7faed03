"""Tiling expressions: how the loops of a chain nest (MCFuser, SC '24, section III-A).

nest := loop* ["(" nest ("," nest)* ")"]        `mhnk`: one within another; `mn(k, h)`: k, then h, within n

deep    any order of all loops                                       J loops: J! of them
flat    any order of the loops that blocks share, within them each block's own, block after block
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import permutations, product
from typing import final

from redalg.strategies.model.chain import Block, Chain


@final
@dataclass(frozen=True)
class Nest:
    """Loops one within another, and within the last of them nests that run one after another.

    >>> print(Nest(("m", "n"), (Nest(("k",)), Nest(("h",)))))
    mn(k, h)
    """

    loops: tuple[str, ...]
    then: tuple[Nest, ...] = ()

    def __str__(self) -> str:
        beneath = f"({', '.join(map(str, self.then))})" if self.then else ""
        return loop_names(self.loops) + beneath

    def without(self, bound: Collection[str]) -> Nest:
        """The nest with some loops taken out (bound to blocks, or run once)."""
        then = tuple(one for one in (nest.without(bound) for nest in self.then) if one.loops or one.then)
        loops = tuple(loop for loop in self.loops if loop not in bound)
        return Nest((*loops, *then[0].loops), then[0].then) if len(then) == 1 else Nest(loops, then)

    def path(self, block: Block) -> tuple[str, ...]:
        """The loops that may enclose a block, outermost first."""
        beneath = [one.path(block) for one in self.then]
        mine = max(beneath, key=lambda path: len(set(path) & set(block.loops)), default=())
        return (*self.loops, *(mine if set(mine) & set(block.loops) else ()))


def loop_names(loops: tuple[str, ...]) -> str:
    """`mhnk`; with spaces where a loop's name has several letters."""
    return ("" if all(len(loop) == 1 for loop in loops) else " ").join(loops)


def deep(chain: Chain) -> Iterator[Nest]:
    """Every order of all loops.

    >>> from redalg.strategies.model.chain import products
    >>> sum(1 for _ in deep(products("m", "k", "n", "h")))
    24
    """
    return (Nest(order) for order in permutations(chain.loops))


def flat(chain: Chain) -> Iterator[Nest]:
    """Every order of the shared loops, with the blocks' own loops in sequence beneath them.

    >>> from redalg.strategies.model.chain import products
    >>> print(*flat(products("m", "k", "n", "h")))
    mn(k, h) nm(k, h)
    """
    own = [tuple(loop for loop in block.loops if loop not in chain.shared_loops) for block in chain.blocks]
    own = [loops for loops in own if loops]
    if len(own) < 2:
        return
    for outer in permutations(chain.shared_loops):
        for inner in product(*map(permutations, own)):
            yield Nest(outer, tuple(map(Nest, inner)))
