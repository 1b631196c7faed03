"""The memory-access DAG: where loads, computations and stores stand among loops (MCFuser, SC '24, section III-B).

    statement    L_X loads a tile of an input, C_X computes one of a block's output, S_X stores one
    scope        a statement stands within every loop that indexes what it touches           (loop → statement)
    order        loads come before the computation that takes them, a block's before the next's, a store last

    L within loops that do not index X   →   L in the outermost place that scope allows        fewer trips, same values
    a loop of extent one                 →   no loop: what depended on it alone moves further out

`volume` of a statement is its tile times the trips of the loops around it. The kernels' own loads are placed by
`loops_around`, the same rule for one tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

from redalg.strategies.model.chain import Block, Chain, Tensor
from redalg.strategies.model.tiling import Nest

LOAD, COMPUTE, STORE = "L", "C", "S"


@final
@dataclass(frozen=True)
class Statement:
    """A load, a computation or a store of a tile; `loops` are the loops that it depends on."""

    kind: str
    tensor: Tensor
    loops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}_{self.tensor.name}"


@final
@dataclass(frozen=True)
class Placed:
    """A statement and the loops around it, outermost first."""

    statement: Statement
    around: tuple[str, ...]

    def trips(self, trips: Mapping[str, int]) -> int:
        """The number of times that the statement runs."""
        return prod(trips[loop] for loop in self.around)

    def volume(self, trips: Mapping[str, int], tiles: Mapping[str, int]) -> int:
        """The elements that the statement moves: its tile times its trips (Eq. 3 without the bandwidth)."""
        return prod(tiles[loop] for loop in self.statement.tensor.loops) * self.trips(trips)


def statements(chain: Chain) -> Iterator[tuple[Block, Statement]]:
    """Every statement with its block, in order."""
    loaded: set[Tensor] = set()
    for block in chain.blocks:
        for tensor in block.inputs:
            if tensor.name not in chain.intermediates and tensor not in loaded:
                loaded.add(tensor)
                yield block, Statement(LOAD, tensor, tensor.loops)
        yield block, Statement(COMPUTE, block.output, block.loops)
        if block.output.name not in chain.intermediates:
            yield block, Statement(STORE, block.output, block.output.loops)


def loops_around(path: Sequence[str], loops: Collection[str]) -> tuple[str, ...]:
    """The loops around a statement that depends on `loops`: the path down to the last of them.

    >>> loops_around("mhnk", "mk"), loops_around("mhnk", "m")
    (('m', 'h', 'n', 'k'), ('m',))
    """
    depth = max((place for place, loop in enumerate(path, 1) if loop in loops), default=0)
    return tuple(path[:depth])


def place(chain: Chain, nest: Nest, trips: Mapping[str, int]) -> tuple[Placed, ...]:
    """Put every statement in its outermost place; loops of one trip are left out."""
    live = nest.without({loop for loop in chain.loops if trips[loop] == 1})
    return tuple(Placed(one, loops_around(live.path(block), one.loops)) for block, one in statements(chain))


@final
class _Loop:
    """A loop of the printed tree, with the loops and statements in it, in order."""

    def __init__(self, name: str) -> None:
        self.name, self.body = name, list[_Loop | Statement]()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.body))
        alone = len(self.body) == 1 and isinstance(self.body[0], _Loop)
        return f"{self.name}{inner}" if alone or (not self.name and len(self.body) == 1) else f"{self.name}({inner})"


def tiling_expression(placed: Sequence[Placed]) -> str:
    """The tiling expression with its statements.

    >>> from redalg.strategies.model.chain import products
    >>> chain, trips = products("m", "k", "n", "h"), {"m": 8, "k": 8, "n": 8, "h": 8}
    >>> tiling_expression(place(chain, Nest(("m", "h", "n", "k")), trips))
    'mh(n(k(L_A, L_B, C_C), L_D, C_E), S_E)'
    >>> tiling_expression(place(chain, Nest(("m", "h", "n", "k")), {**trips, "k": 1}))
    'm(L_A, h(n(L_B, C_C, L_D, C_E), S_E))'
    """
    root = _Loop("")
    for entry in placed:
        body, first = root.body, entry.statement.kind == LOAD
        for loop in entry.around:
            found = next((inner for inner in reversed(body) if isinstance(inner, _Loop) and inner.name == loop), None)
            if found is None:
                found = _Loop(loop)
                body.append(found)
            body = found.body
        loops = [place for place, inner in enumerate(body) if isinstance(inner, _Loop)]
        late = first and loops and not feeds_here(entry, placed)
        body.insert(loops[0] if late else len(body), entry.statement)
    return str(root)


def feeds_here(load: Placed, placed: Sequence[Placed]) -> bool:
    """Tell if the computation after a load stands in the same place."""
    after = placed[placed.index(load) :]
    return next(one for one in after if one.statement.kind == COMPUTE).around == load.around
