"""Say which lane takes an element, where sums go in turns over rows in shared memory and TileLang loads no vectors.

    for turn: parallel w, l: f[w, l] += g   →   the same; lane l/N mod 32 of warp w takes l, N elements at a time

Exact: the same terms in the same order. TileLang loads no vectors where a loop has conditions of its own, or several
sums of 16-bit elements. It then lays f out over all threads: warps meet at barriers for every sum of theirs. Lanes take
as many as have 16 bytes in float32 of rows that begin anywhere, else one (N = 1), as in clusters and under conditions.
H200, bfloat16, the share of the time of TileLang's way: layer norms of 1024 x 128256, whose parts lie in clusters,
0.83, of 4096 x 24576 0.98; softmaxes of as many elements as a length says, of 4096 x 32000 0.88, of 2048 x 32003 0.80,
of 1024 x 128256 0.82, in float32 of 2048 x 25600 0.98.
"""

from __future__ import annotations

from dataclasses import replace

from sympy import S

from redalg.expression import Where
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import names_in, names_stored_by, tiles_in_bulk
from redalg.lower_tile.ir.program import Copy, Kernel, Loop, Parallel, Region, Statement, map_statement
from redalg.lower_tile.passes.whole_row_sums import IN_BLOCK, IN_WARP
from redalg.strategies.device import LOAD_BYTES, WARP
from redalg.strategies.plan import Plan

NEIGHBOURS = LOAD_BYTES // 4
"""Elements of a lane that adjoin: their terms have 16 bytes. Layer norms of 2048 x 50257, whose outputs are computed in
their rows' place, take 163 µs for 175 of one element a lane; of 4096 x 24576, which begin at vectors, 119 for 114; of
1024 x 128256, in clusters, 230 for 189."""
NARROW = 2
"""Bytes of an element that TileLang converts for each sum apart."""


def lay_out_turns(kernel: Kernel, _: Plan) -> Kernel:
    """The kernel whose lanes take elements of rows in shared memory one by one, where they would load no vectors."""
    in_bulk = tiles_in_bulk(kernel)
    tiles = {one.name: DTYPES[one.dtype].bytes for one in kernel.buffers if one.name in in_bulk}
    turns = [one for one in kernel.body if isinstance(one, Loop) and is_by_warps(one.body[0])]
    if not any(loads_no_vectors(one, tiles) for one in turns):
        return kernel
    plain = kernel.cluster == 1 and not any(has_conditions(one.body[0]) for one in turns)
    together = NEIGHBOURS if plain and is_one_array(kernel) else 1
    return replace(kernel, body=tuple(by_lanes(one, together) for one in kernel.body))


def is_by_warps(statement: Statement) -> bool:
    """Tell if a loop is over the elements of a turn, by warps and what they load at once."""
    return isinstance(statement, Parallel) and [name for name, _ in statement.indices[1:]] == [IN_BLOCK, IN_WARP]


def loads_no_vectors(turns: Loop, tiles: dict[str, int]) -> bool:
    """Tell if TileLang loads elements one by one in turns over rows in shared memory. `tiles`: bytes of an element."""
    [each] = turns.body
    if not isinstance(each, Parallel) or not names_in(each) & tiles.keys():
        return False
    narrow = any(tiles.get(name, 0) == NARROW for name in names_in(each))
    return has_conditions(each) or (narrow and len(names_stored_by(each)) > 1)


def is_one_array(kernel: Kernel) -> bool:
    """Tell if a row that is fetched in bulk begins anywhere in a tensor, which is one array then."""
    copies = (one.source for one in kernel.body if isinstance(one, Copy) and one.in_bulk)
    return any(isinstance(one, Region) and len(one.place) == 1 for one in copies)


def has_conditions(statement: Statement) -> bool:
    """Tell if the stores of a loop choose by conditions."""
    return isinstance(statement, Parallel) and any(store.expr.has(Where) for store in statement.body)


def by_lanes(statement: Statement, together: int) -> Statement:
    """A loop over the elements of a turn, or of turns, with so many elements a lane; another statement as it is."""
    if isinstance(statement, Loop) and is_by_warps(statement.body[0]):
        return replace(statement, body=tuple(by_lanes(one, together) for one in statement.body))
    if not isinstance(statement, Parallel) or not is_by_warps(statement):
        return statement
    (row, _), *indices = statement.indices
    loop = replace(statement, indices=tuple(indices), adjacent=together, lanes=WARP)
    return map_statement(loop, lambda node: node.xreplace({row: S.Zero}))
