"""The Schedule: levels from the outermost in, an auditable choice, a value that prints.

    Schedule := [Persistent] Grid* [Pad] [Parts] Body          over the streamed axis
    Body     := Whole Lanes                one tile holds the axis: nothing is merged
              | Loop Lanes                 every tile becomes one state, merged with the state so far; lanes along the
                                           rows take its elements in turn, each for rows of its own
              | Lanes Loop                 every lane keeps a state of its own; lanes are merged after the loop
              | Loop ([Parts] Loop)* Unit  products; an inner loop takes a producer's own axis in tiles
    Unit     := TensorCores | ScalarCores

    >>> from redalg.strategies.levels import Grid, Loop, TensorCores
    >>> print(Schedule(Grid("b"), Grid("q", 64), Loop("k", 64, stages=2), TensorCores(128)))
    Grid(b) Grid(q, 64) Loop(k, 64, stages=2) TensorCores(128)

Levels that make no schedule are refused when it is written (`levels.check_levels`). What a form or a device adds to
that is asked by `for_form`. The names of the flat view (`.segments`, `choices()`) work for one more version.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, final

from redalg.display import Displayed
from redalg.errors import PlanError
from redalg.expression.arguments import answer_methods
from redalg.strategies.binding import Binding, with_column
from redalg.strategies.device import DeviceSpec
from redalg.strategies.levels import (
    MOST_THREADS,
    Grid,
    Lanes,
    Level,
    Loop,
    Pad,
    Parts,
    Persistent,
    ScalarCores,
    TensorCores,
    Whole,
    axis_of,
    check_levels,
)
from redalg.strategies.plan import CHOICES, PADDED_COLUMNS, Plan, levels_of

Known = TypeVar("Known")
ONLINE, UNFUSED, LIBRARY = "online", "unfused", "library"
"""The form that a kernel computes, the definition as operations of PyTorch, and a product by it before a kernel."""
WIDEST_LOAD = 16
"""Elements that a thread loads at once, of one byte each."""
TUNED = ("pack", "cache")
"""The origins of remembered schedules: such a schedule gives way to the rules' if it has no program."""


@answer_methods(PlanError)
@final
@dataclass(frozen=True, init=False, repr=False)
class Schedule(Displayed):
    """The place of every axis of a loop: what `plan=` takes, `plans` lists and the files of tuned plans hold.

    Attributes:
        levels: from the outermost in; equality sees them alone.
        roles: the role of every axis; None until a form is known.
        limits: those of the target; None until a target is known.
        predicted_us: predicted time in microseconds; None if no model was asked.
        origin: its source: `rules`, the `model`, the caller (`given`), a `pack` or `cache` of tuned plans.

    >>> import redalg as ra
    >>> schedule = ra.Schedule(ra.Grid("b"), ra.Parts("n", 4), ra.Loop("n", 512), ra.Lanes("n", 128))
    >>> print(schedule.without(ra.Parts))
    Grid(b) Loop(n, 512) Lanes(n, 128)
    >>> total = ra.fuse(ra.sum(ra.tensor("x[b,n]"), ra.axes("n")))
    >>> plan = total.lower("H100", {"b": 64, "n": 4096}, "float32", plan=schedule).plan
    >>> plan == schedule, plan.form, plan.device.target, plan.binding.streamed
    (True, 'online', 'sm_90a', n)
    >>> Schedule.of_levels(plan.levels, plan.binding, plan.device) == plan
    True
    """

    levels: tuple[Level, ...]
    roles: Binding | None = field(default=None, compare=False)
    limits: DeviceSpec | None = field(default=None, compare=False)
    predicted_us: float | None = field(default=None, compare=False)
    origin: str = field(default="given", compare=False)

    def __init__(self, *levels: Level, **options: Any) -> None:
        flat_names = {name: options.pop(name) for name in CHOICES if name in options}
        levels = options.pop("levels", levels)
        check_levels(levels)
        values = {entry.name: options.pop(entry.name, entry.default) for entry in fields(self)[1:]}
        if options:
            raise PlanError(f"Schedule: there is no {', '.join(options)}. It takes levels, and {', '.join(values)}.")
        self.__dict__.update(values, levels=levels)
        if flat_names:
            warn_of_flat_names("`replace` with names of the old plan")
            self.__dict__["levels"] = with_choices(self, **flat_names).levels

    @staticmethod
    def of_levels(levels: tuple[Level, ...], binding: Binding, device: DeviceSpec) -> Schedule:
        """The rules' or the search's schedule of levels that are known to make one: they are not checked again."""
        schedule = object.__new__(Schedule)
        schedule.__dict__.update(levels=levels, roles=binding, limits=device, predicted_us=None, origin="rules")
        return schedule

    @property
    def binding(self) -> Binding:
        """The role of every axis; `PlanError` until a form is known."""
        return self._require(self.roles)

    @property
    def device(self) -> DeviceSpec:
        """The limits of the target; `PlanError` until a target is known."""
        return self._require(self.limits)

    def _require(self, value: Known | None) -> Known:
        if value is None:
            raise PlanError(
                f"schedule `{self}` is for no form and target yet. Take one from `fused.plans(…)`, or pass it as plan=."
            )
        return value

    @property
    def form(self) -> str:
        """The form that its kernel computes."""
        return ONLINE

    def having(self, *levels: Level) -> Schedule:
        """The schedule with these levels, each in place of the one of its kind and axis, or else where it belongs.

        >>> from redalg.strategies.levels import Grid, Lanes, Loop, Parts
        >>> schedule = Schedule(Grid("b"), Loop("n", 512), Lanes("n", 128))
        >>> print(schedule.having(Parts("n", 4), Loop("n", 1024)))
        Grid(b) Parts(n, 4) Loop(n, 1024) Lanes(n, 128)
        """
        result = list(self.levels)
        for level in levels:
            place = next((place for place, other in enumerate(result) if _slot(other) == _slot(level)), None)
            if place is None:
                result.insert(_place_for(level, result), level)
            else:
                result[place] = level
        return replace(self, levels=tuple(result), predicted_us=None)

    def without(self, kind: type[Level]) -> Schedule:
        """The schedule without the levels of a kind."""
        levels = tuple(level for level in self.levels if not isinstance(level, kind))
        return replace(self, levels=levels, predicted_us=None)

    def choices(self) -> dict[str, int | str | bool]:
        """The schedule under the names of the old plan."""
        warn_of_flat_names("`choices()`")
        return choices_of(self)

    def __getattr__(self, name: str) -> Any:
        if name in CHOICES or name in ("multiplies", "strategy"):
            warn_of_flat_names(f"`.{name}`")
            return getattr(numbers_of(self), name)
        raise AttributeError(f"a Schedule has no attribute {name!r}: it has levels, roles, limits and origin.")

    def __str__(self) -> str:
        levels = " ".join(map(str, self.levels))
        on = "" if self.limits is None else f"; {self.limits.target}"
        plain = "; products as plain sums" if self.roles is not None and self.roles.plain else ""
        return levels + on + plain

    __repr__ = __str__


@final
@dataclass(frozen=True, repr=False)
class Definition(Displayed):
    """The definition as operations of PyTorch: a schedule without a kernel.

    Attributes:
        device: the target's limits.
        operations: the number of operations; equality does not see it.
        predicted_us, origin: as of a `Schedule`.

    >>> from redalg.strategies.device import device_for
    >>> plan = Definition(device_for("H100"), operations=2)
    >>> print(plan)
    unfused form: 2 operations by PyTorch
    >>> plan.form, plan.device.part
    ('unfused', 'H100')
    """

    device: DeviceSpec
    operations: int = field(default=0, compare=False)
    predicted_us: float | None = field(default=None, compare=False)
    origin: str = field(default="rules", compare=False)

    @property
    def form(self) -> str:
        """The form that it computes."""
        return UNFUSED

    def choices(self) -> dict[str, int | str | bool]:
        """The definition under the names of the old plan."""
        warn_of_flat_names("`choices()`")
        return choices_of(self)

    def __str__(self) -> str:
        return f"unfused form: {self.operations} operations by PyTorch"


@final
@dataclass(frozen=True, repr=False)
class LibraryProduct(Displayed):
    """A product by PyTorch (on a GPU by cuBLAS), then one pass over it by a kernel, a part of an axis at a time.

    Attributes:
        rows: elements of the axis in a part, at least 1; None for as many as the memory allows, all of them if it does.
        axis: the axis that is cut; empty until a form is known, and if nothing is cut.
        limits: those of the target; None until a target is known.
        predicted_us, origin: as of a `Schedule`.

    >>> print(LibraryProduct(512))
    product by the library, 512 rows at a time, then one pass over it
    >>> from redalg.strategies.device import device_for
    >>> plan = LibraryProduct(512, limits=device_for("H100"))
    >>> plan.form, plan.device.part
    ('library', 'H100')
    """

    rows: int | None = None
    axis: str = field(default="", compare=False)
    limits: DeviceSpec | None = field(default=None, compare=False)
    predicted_us: float | None = field(default=None, compare=False)
    origin: str = field(default="given", compare=False)

    def __post_init__(self) -> None:
        if self.rows is not None and (isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1):
            raise PlanError(f"LibraryProduct(rows={self.rows!r}): rows should be a positive int, or None for all.")

    @property
    def device(self) -> DeviceSpec:
        """The limits of the target; `PlanError` until a target is known."""
        if self.limits is None:
            raise PlanError(f"plan `{self}` is for no target yet. Take one from `fused.plans(…)`.")
        return self.limits

    @property
    def form(self) -> str:
        """The form that it computes."""
        return LIBRARY

    def choices(self) -> dict[str, int | str | bool]:
        """The plan under the names of the old one."""
        warn_of_flat_names("`choices()`")
        return choices_of(self)

    def __str__(self) -> str:
        part = "" if self.rows is None else f", {self.rows} {f'of {self.axis}' if self.axis else 'rows'} at a time"
        return f"product by the library{part}, then one pass over it"


AnySchedule = Schedule | Definition | LibraryProduct
"""What a call may take: a kernel's levels, the definition, or a library's product before a kernel."""


def _slot(level: Level) -> tuple[object, str]:
    """The slot that a level fills: its kind and its axis; the two units of products share one."""
    kind = ScalarCores if isinstance(level, TensorCores) else type(level)
    return kind, axis_of(level)


def _place_for(level: Level, among: list[Level]) -> int:
    """The place of a level among others none of which fills its slot."""
    if isinstance(level, Persistent):
        return 0
    if isinstance(level, Grid | Pad):
        return sum(isinstance(other, Persistent | Grid) for other in among)
    if isinstance(level, Parts):
        inside = next((place for place, other in enumerate(among) if axis_of(other) == level.axis), len(among))
        return inside - (inside > 0 and isinstance(among[inside - 1], Lanes))
    return len(among) - isinstance(among[-1], TensorCores | ScalarCores)


# ---- a form and a device ---------------------------------------------------------------------------------------------


def for_form(schedule: Schedule, binding: Binding, device: DeviceSpec) -> Schedule:
    """The schedule of a form on a device; `PlanError` if it leaves out an axis of the form, or has one too many."""
    axes = {*binding.grid, binding.row, binding.column, binding.streamed, *binding.inner} - {None}
    tiled_axes = {str(axis) for axis in (*binding.grid, binding.row, binding.column) if axis is not None}
    names = {level.axis for level in schedule.levels if isinstance(level, Grid | Loop | Parts | Lanes | Whole)}
    on_grid = {level.axis for level in schedule.levels if isinstance(level, Grid)}
    if unknown := sorted(names - set(map(str, axes))):
        text = ", ".join(sorted(map(str, axes)))
        raise PlanError(f"schedule `{schedule}` names axis {unknown[0]}, and the loop has {text}. Name one of those.")
    if inside := sorted(on_grid - tiled_axes):
        raise PlanError(
            f"schedule `{schedule}` lays axis {inside[0]} along the grid, and it is reduced. Use a Loop over it."
        )
    if absent := sorted(tiled_axes - on_grid):
        raise PlanError(f"schedule `{schedule}` leaves out axis {absent[0]}. Add Grid({absent[0]}, tile).")
    first = next(level for level in schedule.levels if isinstance(level, Loop | Whole))
    if first.axis != str(binding.streamed):
        raise PlanError(
            f"schedule `{schedule}` streams axis {first.axis}, and the form streams {binding.streamed}. Put "
            f"{binding.streamed} outermost of the loops."
        )
    lanes = next((level for level in schedule.levels if isinstance(level, Lanes)), None)
    if lanes is not None and lanes.axis not in (str(binding.streamed), str(binding.row)):
        raise PlanError(
            f"schedule `{schedule}` has {lanes}. Tile programs have lanes along {binding.streamed}"
            f"{f' or {binding.row}' if binding.row is not None else ''} so far. Use Lanes({binding.streamed}, "
            f"{lanes.width})."
        )
    if lanes is not None and lanes.axis == str(binding.row) and binding.column is None:
        binding = _with_second_rows(schedule, binding)
    return replace(schedule, roles=binding, limits=device)


def check_tiles(schedule: Schedule, sizes: Mapping[str, int], varying: Collection[str]) -> None:
    """Raise `PlanError` if a tile is far longer than its axis.

    A tile may exceed its axis up to a power of two, or up to a few elements for every thread.
    """
    few = max(MOST_THREADS, WIDEST_LOAD * numbers_of(schedule).threads)
    for level in schedule.levels:
        extent = sizes.get(axis_of(level))
        if extent is None or axis_of(level) in varying:
            continue
        if isinstance(level, Grid | Loop | Whole) and level.tile > max(few, 2 * extent):
            raise PlanError(
                f"schedule `{schedule}` has {level}, and axis {level.axis} has {extent} elements: most of the tile "
                f"would be empty. Lower {level.tile} to the next power of two, {1 << (extent - 1).bit_length()}."
            )


def _with_second_rows(schedule: Schedule, binding: Binding) -> Binding:
    """The binding with a second axis of rows as columns, if every lane takes in elements for several of its rows."""
    tiled = {level.axis for level in schedule.levels if isinstance(level, Grid) and level.tile > 1}
    others = [axis for axis in binding.grid if axis.name in tiled]
    outside = [type(level) for level in schedule.levels if isinstance(level, Loop | Lanes)] != [Loop, Lanes]
    return binding if outside or len(others) != 1 else with_column(binding, others[0])


def numbers_of(schedule: Schedule) -> Plan:
    """The numbers of a schedule by role."""
    binding, device = schedule.roles or schedule.binding, schedule.limits or schedule.device
    row, column = (None if axis is None else axis.name for axis in (binding.row, binding.column))
    streamed = binding.streamed.name
    numbers: dict[str, Any] = {"block_row": 1, "block_column": 1, "stages": 0, "segments": 1, "warp_specialized": False,
                               "multiplies": False, "tensor_cores": False}  # fmt: skip
    for level in schedule.levels:
        if isinstance(level, Grid):
            numbers |= {"block_row": level.tile} if level.axis == row else {}
            numbers |= {"block_column": level.tile} if level.axis == column else {}
            if level.tile != 1 and level.axis not in (row, column):
                raise PlanError(
                    f"schedule `{schedule}` tiles axis {level.axis}. Tile programs tile {row or 'no row axis'}"
                    f"{f' and {column}' if column else ''} so far. Use Grid({level.axis})."
                )
        elif isinstance(level, Pad):
            numbers["block_row"] = level.rows
        elif isinstance(level, Persistent):
            numbers["persistent"] = level.blocks
        elif isinstance(level, Parts) and level.axis == streamed:
            numbers |= {"segments": level.count, "merge": level.merge, "block_merged": level.rows}
        elif isinstance(level, Parts):
            numbers["splits"] = level.count
        elif isinstance(level, Loop) and level.axis == streamed:
            numbers |= {"block_streamed": level.tile, "stages": level.stages, "warp_specialized": level.specialised}
        elif isinstance(level, Loop):
            numbers["block_inner"] = level.tile
        elif isinstance(level, Whole):
            numbers |= {"block_streamed": level.tile, "level": "row", "stages": int(level.memory == "shared")}
        elif isinstance(level, Lanes):
            numbers |= {"threads": level.width} | ({} if "block_streamed" in numbers else {"level": "thread"})
            numbers |= {"along_rows": True} if level.axis == row else {}
        else:
            numbers |= {"threads": level.threads, "multiplies": True, "tensor_cores": isinstance(level, TensorCores)}
            numbers |= {"warps": "columns"} if isinstance(level, TensorCores) and level.left == "shared" else {}
            numbers |= {"block_column": PADDED_COLUMNS} if column is None else {}
    return Plan(device, binding, **numbers)


def schedule_of(plan: Plan, origin: str = "given") -> Schedule:
    """The schedule of a flat plan."""
    return Schedule(*levels_of(plan), roles=plan.binding, limits=plan.device, origin=origin)


def with_choices(schedule: Schedule, **choices: Any) -> Schedule:
    """The schedule with other choices, by the names of the flat view (`CHOICES`)."""
    plan = replace(numbers_of(schedule), **choices)
    return replace(schedule, levels=levels_of(plan), predicted_us=None)


def choices_of(schedule: AnySchedule) -> dict[str, int | str | bool]:
    """The choices of a schedule by the names of the flat view."""
    if isinstance(schedule, Definition):
        return {"form": UNFUSED}
    if isinstance(schedule, LibraryProduct):
        return {"form": LIBRARY, "rows": schedule.rows or 0}
    plan = numbers_of(schedule)
    return {name: getattr(plan, name) for name in CHOICES}


def warn_of_flat_names(name: str) -> None:
    """Warn of a name of the old plan, which the next version does not have."""
    warnings.warn(
        f"{name} of a schedule goes with the next version. Read `schedule.levels`, and change levels with "
        "`schedule.having(…)`.",
        DeprecationWarning,
        stacklevel=3,
    )
