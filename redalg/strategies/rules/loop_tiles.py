"""Tiles of loops whose elements are products: rows x streamed elements, by what a form and its sizes are like.

sm_90a    two or three warpgroups that share a loop, loads by a warp of their own; finer tiles for few blocks
sm_80     small tiles in one stage where the number of tiles varies
no cores  true float32 on CUDA cores, and the C target
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from redalg.strategies.device import DeviceSpec
from redalg.strategies.rules.tiles import Tile, round_up


@final
@dataclass(frozen=True)
class TileFacts:
    """The facts that the rules for tiles look at.

    Attributes:
        rows: extent of the row axis.
        width: the widest operand (inner and column extents), padded to 16.
        trims: the loop's trip count varies, from block to block or from call to call.
        biased: an input is read for every row and streamed element (a mask or a bias).
        aligned: every streamed input's rows are multiples of 16 bytes, as the bulk copy engine needs.
        long: tiles of 128 rows fill the GPU, and each streams `LONG_LOOP` elements or more, from the first on.
        wide: the columns are more than a warp's rows have registers for.
        plain: scores are one product, over an axis that a tile holds whole.
        few: the largest tiles of rows fill the GPU less than `FEW_WAVES` times.
        banded: a mask compares data of rows with data of streamed elements, as documents do: few tiles are live.
        parted: an input has one element for a part of the rows or of the streamed axis, which no tile may straddle.
        alone: what the loop weighs is multiplied on tensor cores, and no product makes its weights.
    """

    rows: int
    width: int
    trims: bool
    biased: bool
    aligned: bool
    long: bool = False
    wide: bool = False
    plain: bool = False
    few: bool = False
    banded: bool = False
    parted: bool = False
    alone: bool = False


LONG_LOOP = 1024
LARGE_TILE: Tile = (128, 256, 1, 256, True)
"""The tile of long loops over wide operands, every tile of which is live (H100, 4 x 16 x 4096² in float16 at d 128:
0.90 of the time of others, 0.98 of `THREE_WARPGROUPS`)."""
THREE = 384
"""Threads of three warpgroups."""
THREE_WARPGROUPS: Tile = (192, 128, 1, THREE, True)
"""The tile of long loops else: a warpgroup multiplies while two exponentiate (H100, 4 x 16 x 4096² in float16 at d 64:
0.90 of the time of `LARGE_TILE`, where causal 0.91; at d 96 0.89 in two stages, at d 128 where causal 0.93)."""
FEW_WAVES = 2
"""Waves of blocks below which the longest block of a wave decides, so that rows are cut finer (H200, float16: causal,
of 1 x 8 x 4096 at d 64 0.84 of the time of `THREE_WARPGROUPS`, of all keys 0.81, of 1 x 16 x 2048 0.85; causal, of
1 x 16 x 4096 1.02)."""
PADDED_ROWS = 16
"""Of so many rows one may be padding, in tiles of three warpgroups."""


def fills_three(rows: int) -> bool:
    """Tell if tiles of three warpgroups pad the rows by little."""
    return PADDED_ROWS * (round_up(rows, THREE_WARPGROUPS[0]) - rows) <= rows


def three_warpgroups(width: int) -> Tile:
    """The tile of three warpgroups: wider operands, of which fewer blocks wait beside each other, in two stages."""
    rows, streamed, stages, threads, special = THREE_WARPGROUPS
    return rows, streamed, stages if width <= 64 else 2, threads, special


FINE_TILE: Tile = (128, 128, 2, 256, True)
"""The tile of loops that are not long, or of few blocks."""
BANDED_TILE: Tile = (64, 128, 1, 128, False)
"""The tile of loops with few live tiles (H100: documents of 512 tokens at d 128 in 0.97 and 0.98 of the time of tiles
of 128 x 128, where causal 0.86 and 0.90; at d 64 in 0.95 of 64 x 64)."""


STREAMED_ALONE = 32768
"""Elements of a tile of what weights of few rows multiply, where no product makes them (H200, weighted sums of bfloat16
rows: 256 x 4096 x 512 in 0.55 of the time of tiles of 64 x 512, 64 x 2048 x 256 0.85, 32 x 16384 x 128 0.88)."""


def hopper_tile(_: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile on sm_90a: several small blocks an SM up to width 64, one large warp-specialised block beyond."""
    if facts.wide:
        return 64, 64, 2 if facts.aligned else 1, 256, facts.aligned
    if facts.biased or (facts.rows < 64 and facts.width < 96):
        return 64, 64, 1 if facts.trims else 2, 128, False
    if facts.rows >= 64 and facts.banded and facts.width <= 128:
        return BANDED_TILE
    if facts.rows < 64 and facts.alone and facts.aligned and facts.width >= 96:
        return 64, STREAMED_ALONE // facts.width // 128 * 128, 2, 128, True
    if facts.rows < 64:
        return 64, 128 if facts.width <= 128 else 64, 2 if facts.aligned else 1, 128, facts.aligned
    if facts.long and facts.aligned and (facts.width <= 64 or 96 <= facts.width <= 128):
        if facts.parted or not (facts.width <= 96 or facts.trims):
            return LARGE_TILE
        if facts.few:
            return FINE_TILE
        return three_warpgroups(facts.width) if fills_three(facts.rows) else LARGE_TILE
    if facts.width <= 64:
        return 64, 64, 1 if facts.trims else 2, 128, False
    if facts.width < 96:
        return 128, 64, 1, 256, False
    if facts.width <= 128:
        return FINE_TILE if facts.aligned else (128, 64, 1, 256, False)
    return 128, 64, 1, 256, facts.aligned


def ampere_tile(_: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile on sm_80, sm_86: a varying trip count allows one stage only (TileLang's pipeline pass fails at two)."""
    if facts.wide:
        return 64, 64, 1, 256, False
    if facts.trims or facts.biased:
        return (64, 64, 1, 128, False) if facts.width <= 128 else (64, 32, 1, 128, False)
    if facts.width <= 64:
        return 64, 64, 2, 128, False
    return (64, 32, 2, 128, False) if facts.width <= 128 else (64, 32, 1, 128, False)


SCALAR_STREAMED = 128
"""Streamed elements of a tile on CUDA cores (H200, float32 at d 64: 1 x 8 x 1024 in 0.73 of the time of 64,
4 x 8 x 2048 0.85; causal, 1 x 8 x 2048 0.60)."""


def scalar_tile(device: DeviceSpec, facts: TileFacts) -> Tile:
    """The tile of true float32 on CUDA cores, and of the C target's stack arrays."""
    if device.target == "c":
        return min(32, facts.rows), 32, 0, 1, False
    if facts.rows < 16:
        return 16, 64 if facts.width <= 128 else 32, 1, 128, False
    if facts.width <= 64:
        long = device.wgmma and facts.rows >= 64 and facts.plain
        return 64, SCALAR_STREAMED if long else 64, 1, 128, False
    return (128, 64, 1, 256, False) if device.wgmma and facts.width <= 128 else (64, 32, 1, 128, False)
