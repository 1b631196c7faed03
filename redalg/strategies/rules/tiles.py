"""Tiles of matrix products alone: nothing is exponentiated between the load and the product.

The columns of a tile are those with which the waves of all blocks take the least time together. The time of a wave is
its columns times the time of a column (`RATE`, measured on an H200: 4096 x 1536 x 2560 and 4096 x 3584 x 8192, of 8
bits; `WIDE_RATE` on an H100: 8192 x 4096 x 2048 and 4096 x 8192 x 2048, of bfloat16, whose tiles of 256 columns take
0.87 and 0.94 of the time of 192).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sympy import And, Eq, Ne, Or
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.strategies.binding import Binding
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import Loop, Unit
from redalg.strategies.plan import Problem, grid_levels, inner_levels
from redalg.strategies.schedule import Schedule

Tile = tuple[int, int, int, int, bool]
"""(rows, streamed elements, stages, threads, warp specialisation)."""
RATE: Mapping[int, float] = {192: 1.0, 128: 1.13}
"""Columns of a tile -> the relative time of a column."""
WIDE_RATE: Mapping[int, float] = {256: 0.94, **RATE}
"""The relative times of columns where the numbers of 256 fit in registers: nothing else of a tile's size is read."""
SCALAR_COLUMNS = {"c": 128, "cuda": 64}


@final
@dataclass(frozen=True)
class Product:
    """The facts that the rules for matrix products look at.

    Attributes:
        rows, columns: extents.
        grid: the number of times that the product is made (the extents of other axes together).
        eight_bits: True if it multiplies 8-bit floats.
        plain: True if both operands are inputs as they lie.
        aligned: True if their rows are multiples of 16 bytes, as the bulk copy engine needs.
        alone: True if an output reads nothing else of the result's size.
    """

    rows: int
    columns: int
    grid: int
    eight_bits: bool
    plain: bool
    aligned: bool
    alone: bool


def product_tile(product: Product, device: DeviceSpec, *, cores: bool) -> tuple[Tile, int]:
    """Return a tile, and its columns."""
    columns = round_up(product.columns, 16)
    if not cores:
        return scalar_product(product, device, columns)
    row = 128 if product.rows > 64 else 64
    if not device.wgmma:
        return (row, 32, 2, 128, False), min(columns, 128)
    streamed = 128 if product.eight_bits else 64
    if product.plain:
        return (row, streamed, 4, 2 * row, product.aligned), columns_of(product, device, columns, row)
    wide = min(columns, 256)  # computed operands are made for every block of columns: few rows, many columns
    return (64, streamed, 2, 256 if wide > 128 else 128, product.aligned), wide


def scalar_product(product: Product, device: DeviceSpec, columns: int) -> tuple[Tile, int]:
    """Return a tile, and its columns, without matrix instructions: C stack arrays, or 16 x 4 numbers a thread."""
    if device.target == "c":
        return (min(32, product.rows), 32, 0, 1, False), min(columns, SCALAR_COLUMNS["c"])
    row = 16 if product.rows < 16 else 64
    return (row, 32, 1, 128, False), min(columns, SCALAR_COLUMNS["cuda"])


def columns_of(product: Product, device: DeviceSpec, columns: int, row: int) -> int:
    """The columns of a tile, by the waves that all blocks take."""
    rate = WIDE_RATE if product.alone and product.aligned and not product.eight_bits else RATE

    def time(width: int) -> float:
        blocks = -(-product.rows // row) * -(-columns // width) * product.grid
        return -(-blocks // device.multiprocessors) * width * rate[width]

    return columns if columns <= min(rate) else min(rate, key=time)


def product_schedule(
    device: DeviceSpec, binding: Binding, tile: tuple[int, int], loop: Loop, unit: Unit, *, inner: int = 0
) -> Schedule:
    """The schedule of products, from its tile (rows, columns), its loop, and the tile of inner axes (0: whole)."""
    levels = (*grid_levels(binding, *tile), loop, *inner_levels(binding, inner), unit)
    return Schedule.of_levels(levels, binding, device)


def round_up(length: int, step: int) -> int:
    """The length rounded up to a multiple of `step`, at least one step.

    >>> round_up(77, 16)
    80
    """
    return max(step, -(-length // step) * step)


def trims(form: FusedForm, problem: Problem) -> bool:
    """Tell if the loop's trip count is known only at run time: the domain bounds it, or its axis varies."""
    axis = form.cascade.axis
    return axis.name in problem.varying or any(_bounds(one, axis) for one in And.make_args(form.cascade.domain))


def _bounds(condition: Boolean, axis: Axis) -> bool:
    """Tell if a condition may bound an axis; a choice does if each of its branches does."""
    if isinstance(condition, Or):
        return all(any(_bounds(part, axis) for part in And.make_args(one)) for one in condition.args)
    return isinstance(condition, Relational) and axis in free_axes(condition)


def skips_ahead(form: FusedForm) -> bool:
    """Tell if the domain bounds the loop from below (a window, say), in two ranges, or by what is not linear."""
    axis, conjuncts = form.cascade.axis, And.make_args(form.cascade.domain)
    conditions = [one for one in conjuncts if isinstance(one, Relational) and one.has(axis)]
    return any(isinstance(one, Or) and _bounds(one, axis) for one in conjuncts) or any(
        isinstance(each, Eq) or not (each.gts - each.lts).expand().coeff(axis).is_negative
        for each in conditions
        if not isinstance(each, Ne)  # which leaves out elements here and there
    )
