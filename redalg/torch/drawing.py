"""A graph to be drawn: its statements and groups, and the places that they take in a picture.

A statement stands below all that it reads, in the row of its depth; one that reads inputs alone stands just above its
reader. A long row is wrapped. A line takes a track of its own through the rows between, so that it crosses no box; a
reader further down than `FAR` rows names the tensor instead. Boxes of a group stand side by side in each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import final

BOX = 176
"""The width of a box, in units of the picture."""
BOX_SHARE, TRACK_SHARE = BOX // 2 + 12, 9
"""Half of the width that a box and a track take in their row."""
PAD, MARGIN = 8, 24
"""What is free about the members of a group, and at the sides of the picture."""
ROW_BOXES = 10
"""Boxes of a row before it is wrapped."""
FAR = 24
"""Rows that a line may cross."""
SWEEPS = 6
END_WEIGHT = 0.05
"""The weight of the end of a line beside a box."""


@final
@dataclass(frozen=True)
class Box:
    """A statement.

    Attributes:
        names: of its results.
        operator: its name.
        kind: as of `graphs.analysis.Kind`.
        type: the shape and dtype of its first result.
        reads: the tensors that it reads, behind views.
        line: of the user's source: file, line, function, text; empty if it is not known.
        reason: why PyTorch computes it; empty if it has an expression.
        is_output: true if a result leaves the graph.
    """

    names: tuple[str, ...]
    operator: str
    kind: str
    type: str
    reads: tuple[str, ...] = ()
    line: str = ""
    reason: str = ""
    is_output: bool = False


@final
@dataclass(frozen=True)
class Area:
    """A group.

    Attributes:
        members: the names of results of its statements.
        is_put: true if it was put into the graph.
        text: what is said of it.
    """

    members: tuple[str, ...]
    is_put: bool
    text: str = ""


@final
@dataclass(frozen=True)
class Drawing:
    """A graph to be drawn.

    Attributes:
        boxes: its statements without views, in an order in which they can be computed.
        areas: its groups.
        views: the number of statements that belong to whoever reads them, and are not drawn.
    """

    boxes: tuple[Box, ...] = ()
    areas: tuple[Area, ...] = ()
    views: int = 0

    @property
    def summary(self) -> str:
        """One line."""
        count = sum(area.is_put for area in self.areas)
        number = len(self.boxes)
        statements = f"{number} of {number + self.views} statements (views and masks are not drawn)"
        return f"{statements if self.views else f'{number} statements'}, {count} of {len(self.areas)} groups put"


# ---- places ----------------------------------------------------------------------------------------------------------

Spot = tuple[int, int]
"""The number of a box, and a row: where the box stands, or a row below it through which its tensor has a track."""


@final
@dataclass(frozen=True)
class Layout:
    """The places of a drawing.

    Attributes:
        row: of every box.
        near, far: the boxes that each box reads, by a line, and by their names alone.
        rows: the spots of every row, from left to right.
        places: spot -> the middle of it, from the left.
        areas: spot -> the number of the group that it belongs to.
    """

    row: Sequence[int]
    near: Sequence[Sequence[int]]
    far: Sequence[Sequence[int]]
    rows: Sequence[Sequence[Spot]]
    places: Mapping[Spot, float]
    areas: Mapping[Spot, int]

    @cached_property
    def read_from_far(self) -> set[int]:
        """The boxes that others read by their names alone."""
        return {source for each in self.far for source in each}


def layout_of(graph: Drawing) -> Layout:
    """The places of a drawing: rows by depth, and in them boxes near what they read and what reads them."""
    sources = sources_of_boxes(graph.boxes)
    row = wrap_levels(box_levels(sources))
    near = [[source for source in each if row[number] - row[source] <= FAR] for number, each in enumerate(sources)]
    far = [[source for source in each if row[number] - row[source] > FAR] for number, each in enumerate(sources)]
    above = spots_above(row, near)
    areas = areas_of_spots(graph, row, near)
    rows = [list[Spot]() for _ in range(max(row, default=-1) + 1)]
    for spot in sorted(above):
        rows[spot[1]].append(spot)
    places = arrange_spots(rows, above, areas, {*enumerate(row)})
    return Layout(row, near, far, rows, places, areas)


def sources_of_boxes(boxes: Sequence[Box]) -> list[list[int]]:
    """The numbers of the boxes that each box reads, in order."""
    makers = {name: number for number, box in reversed([*enumerate(boxes)]) for name in box.names}
    read = ({makers[name] for name in box.reads if name in makers} for box in boxes)
    return [sorted(source for source in each if source < number) for number, each in enumerate(read)]


def box_levels(sources: Sequence[Sequence[int]]) -> list[int]:
    """The depth of each box: the longest path to it. Those with one reader that follow from no other box's move down to
    their reader."""
    readers = [list[int]() for _ in sources]
    depths, moves = [0] * len(sources), [True] * len(sources)
    for number, each in enumerate(sources):
        for source in each:
            readers[source].append(number)
        depths[number] = max((depths[source] + 1 for source in each), default=0)
    for number, each in enumerate(sources):
        moves[number] = all(moves[source] and len(readers[source]) == 1 for source in each)
    for number in reversed(range(len(sources))):
        if moves[number] and readers[number]:
            depths[number] = min(depths[reader] for reader in readers[number]) - 1
    return depths


def wrap_levels(depths: Sequence[int]) -> list[int]:
    """The row of each box: a depth takes a row for every `ROW_BOXES` boxes."""
    row, number = [0] * len(depths), 0
    for depth in sorted({*depths}):
        boxes = [box for box, own in enumerate(depths) if own == depth]
        for place, box in enumerate(boxes):
            row[box] = number + place // ROW_BOXES
        number = row[boxes[-1]] + 1
    return row


def spots_above(row: Sequence[int], near: Sequence[Sequence[int]]) -> dict[Spot, list[Spot]]:
    """Every spot of boxes and tracks -> the spots of the row above from which lines come to it."""
    above = dict[Spot, list[Spot]]()
    for number, each in enumerate(near):
        above[number, row[number]] = [(source, row[number] - 1) for source in each]
        for source in each:
            for between in range(row[source] + 1, row[number]):
                above[source, between] = [(source, between - 1)]
    return above


def areas_of_spots(graph: Drawing, row: Sequence[int], near: Sequence[Sequence[int]]) -> dict[Spot, int]:
    """The groups of boxes, and of the tracks between boxes of one group."""
    owner = {name: number for number, area in enumerate(graph.areas) for name in area.members}
    own = [next((owner[name] for name in box.names if name in owner), None) for box in graph.boxes]
    found = dict[Spot, int]()
    for number, area in enumerate(own):
        if area is not None:
            inside = [source for source in near[number] if own[source] == area]
            found[number, row[number]] = area
            found |= {(source, each): area for source in inside for each in range(row[source], row[number])}
    return found


def arrange_spots(
    rows: Sequence[list[Spot]], above: Mapping[Spot, Sequence[Spot]], areas: Mapping[Spot, int], boxes: set[Spot]
) -> dict[Spot, float]:
    """The places of spots; puts each row into its order, from left to right, in place.

    Sweeps go down and up in turn. A spot wishes for the mean of those that it has lines to in the row before: a box of
    boxes, and a track of tracks, if there are any. Spots of one group stay together.
    """
    below = dict[Spot, list[Spot]]({spot: [] for spot in above})
    for spot, each in above.items():
        for source in each:
            below[source].append(spot)
    places = dict[Spot, float]()
    for row in rows:
        places |= spread_row(row, dict.fromkeys(row, (0.0, 1.0)), boxes)
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wishes = {spot: wish_of(spot, near[spot], places, boxes) for spot in row}
            sort_row(row, wishes, areas)
            places |= spread_row(row, wishes, boxes)
    least = min((places[spot] - (BOX / 2 if spot in boxes else PAD) for spot in places), default=0.0)
    return {spot: x - least + MARGIN for spot, x in places.items()}


def wish_of(
    spot: Spot, near: Sequence[Spot], places: Mapping[Spot, float], boxes: set[Spot]
) -> tuple[float, float]:  # fmt: skip
    """The place that a spot wishes for, and the weight of the wish: that of a line's end is light."""
    like = [other for other in near if (other in boxes) == (spot in boxes)]
    wish = fmean(places[other] for other in like or near or [spot])
    return wish, 1.0 if like or spot in boxes else END_WEIGHT


def sort_row(row: list[Spot], wishes: Mapping[Spot, tuple[float, float]], areas: Mapping[Spot, int]) -> None:
    """Sort a row by its wishes, those of one group together, in place."""
    together = dict[int, list[float]]()
    for spot in row:
        if spot in areas:
            together.setdefault(areas[spot], []).append(wishes[spot][0])
    means = {number: fmean(each) for number, each in together.items()}

    def key(spot: Spot) -> tuple[float, int, float, int]:
        own = areas.get(spot, -1)
        return means.get(own, wishes[spot][0]), own, wishes[spot][0], spot[0]

    row.sort(key=key)


def spread_row(
    row: Sequence[Spot], wishes: Mapping[Spot, tuple[float, float]], boxes: set[Spot]
) -> dict[Spot, float]:  # fmt: skip
    """The places of a row in its order, of the least sum of squared distances from the wishes.

    A place less the widths before it grows along the row: an isotonic regression, by pools of neighbours that collide.
    """
    shares = [BOX_SHARE if spot in boxes else TRACK_SHARE for spot in row]
    offsets, pools = list[float](), list[tuple[float, float, int]]()
    for number, spot in enumerate(row):
        offsets.append(offsets[-1] + shares[number - 1] + shares[number] if number else 0.0)
        wish, weight = wishes[spot]
        pool = (weight * (wish - offsets[-1]), weight, 1)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    bases = [total / weight for total, weight, count in pools for _ in range(count)]
    return {spot: base + offset for spot, base, offset in zip(row, bases, offsets, strict=True)}
