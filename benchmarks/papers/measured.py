"""The figures that a row of the whole models has, as numbers and as cells; an empty cell has no figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any, final

from benchmarks.compete import OWN
from benchmarks.models import PEER
from benchmarks.traffic import MEGABYTE, bytes_told

Document = dict[str, Any]


@final
@dataclass(frozen=True)
class Measured:
    """What was measured of a row: nothing, if `line` is empty."""

    line: Mapping[str, Any]

    def time_us(self, name: str) -> float | None:
        """The median time of a contestant."""
        return self.contestant(name).get("median_us")

    def speedup(self, *peers: str) -> float | None:
        """The time of the first of some peers that has one, over redalg's."""
        own = self.time_us(OWN)
        known = [time for time in map(self.time_us, peers) if time is not None]
        return known[0] / own if known and own is not None else None

    def kernels(self, name: str) -> int | None:
        """The kernels of a contestant's call, as PyTorch's profiler counts them; else as Nsight Compute does."""
        counted = self.contestant(name).get("launches") or {}
        found: int | None = counted.get("kernels", self.profile(name).get("launches"))
        return found

    def megabytes(self, name: str, field: str = "dram_bytes") -> float | None:
        """The megabytes that a contestant's call moves to and from memory, or L2; or those that Inductor counts."""
        moved = bytes_told(self.line, name).get(field) if self.line else None
        return None if moved is None else moved / MEGABYTE

    def bytes_of_inductors(self, field: str = "dram_bytes") -> float | None:
        """The bytes that redalg moves, over Inductor's."""
        own, peer = self.megabytes(OWN, field), self.megabytes(PEER, field)
        return own / peer if own is not None and peer else None

    def first_call_s(self, name: str) -> float | None:
        """The seconds to the first result of a process with empty caches."""
        return self.line.get("first_calls", {}).get(name, {}).get("first_call_s")

    def contestant(self, name: str) -> Mapping[str, Any]:
        """All that is known of a contestant."""
        found: Mapping[str, Any] = self.line.get("contestants", {}).get(name, {})
        return found

    def profile(self, name: str) -> Mapping[str, Any]:
        """All that Nsight Compute told of a contestant."""
        found: Mapping[str, Any] = self.line.get("profile", {}).get(name, {})
        return found


def rows_by_name(content: Document | None) -> Callable[[str], Measured]:
    """The rows of a document by their names."""
    lines = {line["name"]: line for line in (content or {"rows": ()})["rows"]}
    return lambda name: Measured(lines.get(name, {}))


# ---- cells -----------------------------------------------------------------------------------------------------------


def cell(value: float | None, form: str = ".2f") -> str:
    """A number, or nothing."""
    return "" if value is None else f"{value:{form}}"


def steps(values: Sequence[float | None], form: str = ".4g") -> str:
    """Numbers one after another; nothing if none is known, and a question mark for one of several that is not.

    >>> steps([3, None, 1]), steps([None, None])
    ('3 → ? → 1', '')
    """
    if all(value is None for value in values):
        return ""
    return " → ".join("?" if value is None else f"{value:{form}}" for value in values)


def arithmetic(values: Iterable[float | None]) -> float | None:
    """The arithmetic mean of those that are known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def geometric(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known.

    >>> geometric([2.0, None, 8.0]), geometric([None])
    (4.0, None)
    """
    known = [value for value in values if value is not None]
    return exp(fmean(map(log, known))) if known else None
