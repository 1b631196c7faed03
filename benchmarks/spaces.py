"""A row's space, and the plans that a document holds as plans of it again."""

from collections.abc import Mapping
from typing import Any

from benchmarks.family import Family, Row
from redalg.runtime.lowering import lower_passes, space_for
from redalg.strategies.plan import CHOICES
from redalg.strategies.schedule import Schedule, with_choices
from redalg.strategies.search.space import Space


def space_of(family: Family, row: Row, chip: str) -> Space:
    """The plans of a row (of the last pass where there are two)."""
    fused = family.fused(row)
    return lower_passes(fused.passes, chip, row.sizes, row.dtypes, each=space_for, shapes=row.shapes)[-1]


def plan_of(line: Mapping[str, Any], ruled: Schedule) -> Schedule:
    """A kernel's plan as a document's line has it: the rules', with the choices that the line names."""
    return with_choices(ruled, **{name: line[name] for name in CHOICES if name in line})
