"""Agreement of predicted times with measured ones: correlations over a family, and what the choice costs in a row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, nan, sqrt
from statistics import correlation, fmean

Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""By row: (measured, predicted), in microseconds."""
TOP = 8
"""Candidates that a search measures at a time (MCFuser, SC '24, Algorithm 1)."""

GOOD, NEAR = 1.15, 1.03
"""A first choice that costs no more than the one factor is a good one; the best of the top, than the other."""


@dataclass(frozen=True)
class Agreement:
    """Of one family.

    Attributes:
        count: plans.
        correlation, correlation_of_logs: Pearson's.
        typical: exp of the root mean square of log(predicted / measured): a factor, 1 is perfect.
        first, top: by row, the time of the plan predicted fastest, and of the fastest of the first eight, over the
            time of the fastest plan of all.
    """

    count: int
    correlation: float
    correlation_of_logs: float
    typical: float
    first: dict[str, float]
    top: dict[str, float]

    def __str__(self) -> str:
        within = sum(value <= GOOD for value in self.first.values())
        return (f"{self.count} plans: correlation {self.correlation:.3f}, of logarithms {self.correlation_of_logs:.3f},"
                f" typically off by a factor of {self.typical:.2f}; first choice within {GOOD - 1:.0%} of the best "
                f"drawn on {within} of {len(self.first)} rows (worst {max(self.first.values()):.2f}), best of its top "
                f"{TOP} at worst {max(self.top.values()):.2f}")  # fmt: skip


def agreement(pairs: Pairs) -> Agreement:
    """The agreement of a family's predictions.

    >>> print(agreement({"A": [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)]}).correlation)
    1.0
    """
    every = [one for row in pairs.values() for one in row]
    measured, predicted = zip(*every, strict=True)
    logs = [(log(one), log(other)) for one, other in every]
    spread = sqrt(fmean((one - other) ** 2 for one, other in logs))
    of_logs = correlated(*zip(*logs, strict=True))
    first = {name: lost(row, 1) for name, row in pairs.items()}
    top = {name: lost(row, TOP) for name, row in pairs.items()}
    return Agreement(len(every), correlated(measured, predicted), of_logs, exp(spread), first, top)


def correlated(some: Sequence[float], others: Sequence[float]) -> float:
    """Pearson's correlation; NaN where one of them does not vary.

    >>> correlated([1.0, 2.0], [3.0, 3.0])
    nan
    """
    varies = len(set(some)) > 1 and len(set(others)) > 1
    return correlation(some, others) if varies else nan


def lost(row: Sequence[tuple[float, float]], count: int) -> float:
    """The fastest of the `count` plans that are predicted fastest, over the fastest of all.

    >>> row = [(1.0, 3.0), (2.0, 1.0), (4.0, 2.0)]
    >>> lost(row, 1), lost(row, 3)
    (2.0, 1.0)
    """
    chosen = sorted(row, key=lambda one: one[1])[:count]
    return min(one for one, _ in chosen) / min(one for one, _ in row)
