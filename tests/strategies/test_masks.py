"""The schedule of products whose loop a mask bounds."""

from __future__ import annotations

import pytest
from sympy import Abs, Eq, Mod, Ne, Or, exp, oo
from sympy.logic.boolalg import Boolean

import redalg as ra
from redalg.strategies.schedule import numbers_of

b, h, i, j, d, e = ra.axes("b h i j d e")
Q, K, V = ra.tensors("q[b,h,i,d] k[b,h,j,d] v[b,h,j,e]")
SIZES = {"b": 4, "h": 16, "i": 4096, "j": 4096, "d": 64, "e": 64}


@pytest.mark.parametrize(
    ("mask", "tile"),
    [
        (j <= i, 128),
        (i > j, 128),
        (Ne(i, j), 128),
        ((j <= i) & Ne(i, j), 128),
        ((j <= i) & (j > i - 512), 64),
        (Abs(i - j) < 300, 64),
        (Eq(Mod(j, 2), 0), 64),
        (Or(j < 4, j > i - 512), 64),  # two ranges
        ((j <= i) & (j > i - ra.scalars("window")), 64),
    ],
    ids=str,
)
def test_long_loops_from_the_first_element_have_large_tiles(mask: Boolean, tile: int) -> None:
    scores = ra.where(mask, ra.sum(Q * K, d) / 8, -oo)
    weights = exp(scores - ra.max(scores, j))
    form = ra.fuse(ra.sum(weights / ra.sum(weights, j) * V, j), axes="b h i e")
    plan = numbers_of(form.lower("sm_90a", sizes=SIZES, dtypes="float16").plan)
    assert (plan.block_streamed, plan.threads) == (tile, 384 if tile == 128 else 128)
