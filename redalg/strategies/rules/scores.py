"""The rules for scores: products of rows and streamed elements whose sums weigh few columns, or none.

many scores      rows and streamed elements are many, and columns are few: tiles are larger than others have them
a long product   its axis is cut, and a tile holds a part of it at a time
"""

from __future__ import annotations

from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.plan import Problem
from redalg.strategies.rules.tiles import Tile

WIDE = 256
"""Widest operand of which a warpgroup's rows fit in registers."""
NARROW = 16
"""Columns of sums that weigh no values."""
SHORT_PRODUCT = 128
"""Products of a score up to which the tiles of sums that weigh values serve others as well."""
WIDE_SCORES: Tile = (128, 128, 2, 256, True)
"""The tile of scores of more than `SHORT_PRODUCT` and up to `WIDE` products each (H100: a contrastive loss of 8192²
scores of 256 products takes 0.65 of the time of tiles of 64 elements)."""
SCALAR_SCORES: Tile = (128, 128, 1, 128, False)
SCALAR_INNER = 64
"""The tile of long scores on CUDA cores, 16 x 8 of them a thread, and the part of their products that it holds (H100,
float32: a loss of 4096 x 32000 x 2048 in 16.7 ms, in tiles of 64 x 64 37.4, in two stages 21.8; sums of 8192² scores of
64, 128 and 256 products in 0.40, 0.63 and 0.37 of the time)."""
SCORES_TILE: Tile = (128, 192, 4, 256, False)
"""The tile of long scores that such sums take: more would leave no registers for them."""
WHOLE_SCORES: Tile = (128, 256, 3, 256, True)
"""The tile of scores if every block makes one alone, and its few sums are a part: then no loop is around the product's,
and warps of their own may load (H100: a loss of 4096 x 32000 x 2048 takes 0.70 of the time of few parts of
`SCORES_TILE`; in tiles of 160 and 192 elements 0.72 and 0.79, without such warps 0.95)."""
WHOLE_SCORES_BESIDE: Tile = (128, 192, 4, 256, True)
"""The tile of such scores if another tensor is read along them, a bias say: wider ones spill registers."""
FOLDED = 128
"""Elements of a tile whose pairs with rows arithmetic folds, at most: tiles are turned as they are loaded."""
INNER, INNER_STAGES = 128, 3
"""The tile of an inner axis that is cut, and its stages (the fastest of 64 and 128 elements, and of 2 to 4 stages)."""


def inner_rule(inner: list[int], columns: int, *, cores: bool) -> int:
    """The tile length of the producers' axes: 0 (whole) if short beside the columns, or if they fit; else cut."""
    longest = max(inner, default=0)
    return INNER if longest > max(columns, 512 if cores else 256) else 0


def sums_scores_alone(form: FusedForm, problem: Problem, binding: Binding) -> bool:
    """Tell if a form sums numbers of one product's scores: parts of one tile each have few states to merge."""
    plain = not form.structures and not binding.contracted
    return plain and len(form.cascade.producers) == 1 and binding.streamed.name not in problem.varying
