"""Schedules in files: levels over the roles of axes, so that what a caller calls an axis does not matter.

    Grid(h) Grid(q, 64) Loop(k, 64) TensorCores(128)   ↔   Grid(row, 64) Loop(streamed, 64) TensorCores(128)
                                                       ↔   [["Grid", {"axis": "row", "tile": 64}], …]

Axes of the grid that are not tiled are left out, and stand first again when a file is read. `inner` stands for every
axis over which producers reduce. Files of the format before held the numbers of `Plan`; `from_choices` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redalg.expression import Axis
from redalg.strategies.binding import Binding
from redalg.strategies.device import CORE, DeviceSpec
from redalg.strategies.levels import (
    KINDS,
    Grid,
    Lanes,
    Level,
    Loop,
    Pad,
    Parts,
    Persistent,
    axis_of,
    level_fields,
    on_axis,
)
from redalg.strategies.plan import CHOICES, Plan, grid_levels, inner_levels, levels_of
from redalg.strategies.schedule import LIBRARY, ONLINE, UNFUSED, AnySchedule, Definition, LibraryProduct, Schedule

DEFINITION, PRODUCT = "definition", "product by the library"
"""The texts that stand for the unfused definition, and for a product by the library before a kernel; the number of rows
of a part follows this one, if there are several."""
Line = str | list[list[Any]]
ROLES = Binding(Axis("streamed"), Axis("row"), None, (), contracted=False)
PRODUCT_ROLES = replace(ROLES, column=Axis("column"), inner=(Axis("inner"),), contracted=True)
"""The roles as axes, of elementwise terms and of products."""
LATER = {"merge": "kernel", "persistent": 0, "along_rows": False}
"""Choices that older files do not name, as their plans had them."""


def write_line(schedule: AnySchedule) -> Line:
    """The JSON of a schedule of a form."""
    if isinstance(schedule, Definition):
        return DEFINITION
    if isinstance(schedule, LibraryProduct):
        return PRODUCT if schedule.rows is None else f"{PRODUCT} {schedule.rows}"
    return _lines(_over_roles(schedule.levels, schedule.binding))


def read_line(line: Line, binding: Binding, device: DeviceSpec) -> AnySchedule:
    """The schedule of a form from its JSON."""
    if line == DEFINITION:
        return Definition(device)
    if is_library_line(line):
        return LibraryProduct(rows_in(line), limits=device)
    return Schedule(*_with_axes(parse_levels(line), binding), roles=binding, limits=device)


def is_library_line(line: Line) -> bool:
    """Tell if a line stands for a product by the library."""
    return isinstance(line, str) and re.fullmatch(rf"{PRODUCT}( [1-9]\d*)?", line) is not None


def form_of(line: Line) -> str:
    """The form that a line stands for: that of a kernel, of the definition, or of a product by the library."""
    return UNFUSED if line == DEFINITION else LIBRARY if is_library_line(line) else ONLINE


def rows_in(line: Line) -> int | None:
    """The rows of a part of a product's line; None for all of them."""
    return int(str(line).removeprefix(PRODUCT)) if line != PRODUCT else None


def parse_levels(line: Line) -> tuple[Level, ...]:
    """The levels over roles from their JSON; `ValueError` or `TypeError` for anything else."""
    if isinstance(line, str):
        raise ValueError(f"a schedule is a list of levels or {DEFINITION!r}, not {line!r}")
    levels = []
    for kind, values in line:
        if kind not in KINDS:
            raise ValueError(f"a level is one of {', '.join(KINDS)}, not {kind!r}")
        levels.append(KINDS[kind](**values))
    return Schedule(*levels).levels


def from_choices(choices: Mapping[str, Any]) -> Line:
    """The JSON of a schedule from the numbers that a file of the format before holds."""
    if choices == {"form": UNFUSED}:
        return DEFINITION
    choices = {**LATER, **choices}
    if choices.keys() != set(CHOICES) or not all(isinstance(one, int | str) for one in choices.values()):
        raise ValueError(f"a plan has the choices {', '.join(CHOICES)}, not {', '.join(map(str, choices))}")
    multiplies = bool(choices["tensor_cores"] or choices["block_column"] > 1)  # a row of terms has no columns
    level = "block" if choices["level"] == "warp" else choices["level"]  # a block of 32 threads
    roles = PRODUCT_ROLES if multiplies else ROLES
    return _lines(levels_of(Plan(CORE, roles, multiplies=multiplies, **{**choices, "level": level})))


def _lines(levels: Iterable[Level]) -> list[list[Any]]:
    return [[type(level).__name__, level_fields(level)] for level in levels]


def _over_roles(levels: Sequence[Level], binding: Binding) -> tuple[Level, ...]:
    """Levels with roles in place of axes."""
    roles = {axis.name: role for axis, role in ((binding.streamed, "streamed"), (binding.row, "row"),
                                                (binding.column, "column")) if axis is not None}  # fmt: skip
    roles |= {axis.name: "inner" for axis in binding.inner[:1]}
    found = list[Level]()
    for level in levels:
        axis = axis_of(level)
        if isinstance(level, Pad):
            found.append(Grid("row", level.rows))
        elif not axis or axis in roles:
            found.append(on_axis(level, roles[axis]) if axis else level)
    return tuple(found)


def _with_axes(levels: Sequence[Level], binding: Binding) -> tuple[Level, ...]:
    """Levels over roles with the axes of a binding."""
    tiles = {level.axis: level.tile for level in levels if isinstance(level, Grid)}
    persistent = [level for level in levels if isinstance(level, Persistent)]
    split = next((level.count for level in levels if isinstance(level, Parts) and level.axis == "inner"), 1)
    found = [*persistent, *grid_levels(binding, tiles.get("row", 1), tiles.get("column", 1))]
    for level in levels:
        axis = axis_of(level)
        if axis == "streamed":
            found.append(on_axis(level, binding.streamed.name))
        elif isinstance(level, Lanes):
            found.append(on_axis(level, (binding.streamed if binding.row is None else binding.row).name))
        elif axis == "inner" and isinstance(level, Loop):
            found += inner_levels(binding, level.tile, split)
        elif not axis and not isinstance(level, Persistent):
            found.append(level)
    return tuple(found)
