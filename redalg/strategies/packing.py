"""Packing: several free axes in the rows of a tile, so that few rows of each become enough for the matrix units.

    what is streamed does not depend on a:        row ↔ a                     every a reads the same tile
    it depends on a through ⌊a / g⌋ alone:        row ↔ a mod g,   ⌊a / g⌋ on the grid
    several such axes:                            row = (… digit·|next| + next digit …)

Exact: a change of names of the rows. A tile of the streamed axis is then read once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import final

from sympy import Expr, Mod, S, floor

from redalg.expression import Axis, Element
from redalg.expression.contents import elements_of, free_axes, quotient_of
from redalg.incremental.form import FusedForm

ENOUGH_ROWS = 64
"""Rows of one axis beyond which nothing is packed: a tile of rows is full by itself."""


@final
@dataclass(frozen=True)
class Packing:
    """The axes of a tile's rows.

    Attributes:
        row: one axis that stands for all rows.
        digits: (axis, length), the last varying fastest; the length of the grouped axis is the group's.
        grouped: the axis of which a row holds a part, if any; outer: the axis that numbers its groups.
    """

    row: Axis
    digits: tuple[tuple[Axis, int], ...]
    grouped: Axis | None = None
    outer: Axis | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that are packed."""
        return tuple(axis for axis, _ in self.digits)

    def sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The extents of the axes that packing makes."""
        extents = {self.row.name: prod(length for _, length in self.digits)}
        if self.grouped is not None and self.outer is not None:
            extents[self.outer.name] = sizes[self.grouped.name] // dict(self.digits)[self.grouped]
        return extents

    def places(self, row: Expr, outer: Expr) -> dict[Axis, Expr]:
        """The place of a row along every packed axis."""
        found, stride = dict[Axis, Expr](), 1
        total = prod(length for _, length in self.digits)
        for axis, length in reversed(self.digits):
            digit = floor(row / stride) if stride > 1 else row
            digit = digit if stride * length == total else Mod(digit, length)
            found[axis] = S.Zero if length == 1 else digit
            found[axis] += outer * length if axis == self.grouped else 0
            stride *= length
        return found

    def spans(self, outer: Expr) -> dict[Axis, tuple[Expr, int]]:
        """(first, length) of every packed axis, over all rows of a group."""
        return {axis: (outer * n if axis == self.grouped else S.Zero, n) for axis, n in self.digits}

    def quotient(self) -> Expr | None:
        """The index that numbers the groups, as the expression has it: ⌊a / g⌋; None if no axis is grouped."""
        return None if self.grouped is None else floor(self.grouped / dict(self.digits)[self.grouped])


def pack(form: FusedForm, sizes: Mapping[str, int], free: list[Axis], rows: list[Axis], column: Axis) -> Packing | None:
    """The packing of a form whose row axes are `rows`; None if one axis is enough, or the only one."""
    if any(sizes[axis.name] >= ENOUGH_ROWS for axis in rows):
        return None
    digits = [(axis, sizes[axis.name]) for axis in rows]
    grouped = next((one for one in free if one not in rows and one != column and group(form, sizes, one) > 1), None)
    if grouped is not None:
        digits.insert(0, (grouped, group(form, sizes, grouped)))
    if sum(length > 1 for _, length in digits) < 2 and grouped is None:
        return None
    digits.sort(key=lambda digit: free.index(digit[0]))
    names = [axis.name for axis, length in digits if length > 1]
    row = fresh("_".join(names) if len(names) > 1 else f"{names[0]}_row", sizes)
    outer = fresh(f"{grouped.name}_group", sizes) if grouped is not None else None
    return Packing(row, tuple(digits), grouped, outer)


def group(form: FusedForm, sizes: Mapping[str, int], axis: Axis) -> int:
    """Return g if all elements streamed into contractions depend on an axis through ⌊axis / g⌋ alone; else 1."""
    found = {quotient_of(index, axis) for one in operands(form) for index in one.indices if axis in free_axes(index)}
    g = found.pop() if len(found) == 1 else 1
    return g if sizes[axis.name] % g == 0 else 1


def operands(form: FusedForm) -> Iterable[Element]:
    """The elements streamed into contractions: of accumulators' right factors, and of producers along the axis."""
    terms = [one.factors[1] for one in form.accumulators if len(one.factors) > 1]
    terms += [one.term for producer in form.cascade.producers for one in producer.cascade.reductions]
    return [one for term in terms for one in elements_of(term) if form.cascade.axis in free_axes(one)]


def fresh(name: str, sizes: Mapping[str, int]) -> Axis:
    """Return an axis with a name that is not in `sizes` (`name`, with underscores added if needed)."""
    while name in sizes:
        name += "_"
    return Axis(name)
