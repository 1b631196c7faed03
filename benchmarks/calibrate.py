"""The model's constants, fitted to what was measured.

`fit`: least squares of log(predicted / measured), soft beyond a factor of 1.35 (plans that the model cannot tell
apart), with a small pull to the start, so that a constant that no plan depends on stays where it is. `exponential` is
fixed: special functions run at their rate.

`refine`: one constant after another is moved by a step while that lessens the error and what is lost by taking the plan
that is predicted fastest of a row, or the best of the first eight; then by smaller steps. So were the constants of
`redalg.strategies.model.cost` found.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from math import exp, log
from statistics import fmean
from typing import Any

from benchmarks.agreement import GOOD, NEAR, TOP, Agreement, agreement, lost
from benchmarks.drawn import Drawn, by_row
from redalg.strategies.model.cost import H200, Constants

FIXED = ("exponential", "arrive_us")
SHARES = ("product", "arithmetic", "scalar", "loads", "memory")
"""Constants that are shares of a peak."""
STEP, LEAST_STEP = 1.25, 1.02
"""Factors by which a constant is moved when refining: at first, and at least."""
FIRST, TOP_EIGHT = 1.5, 1.0
"""Weights of the logs that are lost by the first choice and by the best of eight, beside the mean error's."""
MISSED, MISSED_BY_EIGHT = 0.1, 0.05
"""Beside these logs, for a row whose first choice is not good, whose best of eight is not near."""
SOFT = 0.3
"""log of the factor beyond which an error counts linearly."""
PULL = 0.05
"""Weight of a constant's distance from the start, in logs, beside one plan's error."""


def free() -> list[str]:
    """The constants that are fitted."""
    return [one.name for one in fields(Constants) if one.name not in FIXED]


def logs(constants: Constants) -> list[float]:
    """The free constants, as logs."""
    return [log(getattr(constants, name)) for name in free()]


def constants_of(values: Sequence[float], start: Constants) -> Constants:
    """The constants of some logs.

    >>> abs(constants_of(logs(H200), H200).spill / H200.spill - 1) < 1e-9
    True
    """
    return replace(start, **{name: round(exp(value), 12) for name, value in zip(free(), values, strict=True)})


def errors(draws: Sequence[Drawn], constants: Constants) -> list[float]:
    """log(predicted / measured) of every draw."""
    return [log(one.predicted(constants).time_us / one.time_us) for one in draws]


def fit(draws: Sequence[Drawn], start: Constants = H200, evaluations: int = 25) -> Constants:
    """The constants that predict the draws best, near the start.

    Args:
        evaluations: most evaluations of the residuals (each of their derivatives counts as one).
    """
    from scipy.optimize import least_squares

    first = logs(start)

    def residuals(values: Any) -> list[float]:
        pull = [PULL * (value - before) for value, before in zip(values, first, strict=True)]
        return [*errors(draws, constants_of(values, start)), *pull]

    found = least_squares(residuals, first, loss="soft_l1", f_scale=SOFT, max_nfev=evaluations, diff_step=1e-2)
    return constants_of(found.x, start)


def refine(draws: Sequence[Drawn], start: Constants = H200) -> Constants:
    """The constants by which least is lost, from a start, one moved at a time."""
    best, worth, step = start, cost(draws, start), STEP
    while step >= LEAST_STEP:
        moved = False
        for name in (one for one in asdict(start) if one != "exponential"):
            for factor in (step, 1 / step):
                value = getattr(best, name) * factor
                if name in SHARES and value > 1:
                    continue
                other = replace(best, **{name: value})
                if (found := cost(draws, other)) < worth - 1e-5:
                    best, worth, moved = other, found, True
                    break
        step = step if moved else 1 + (step - 1) / 2
    return best


def cost(draws: Sequence[Drawn], constants: Constants) -> float:
    """The mean error of a family's times (a third of what is beyond `SOFT`), and what choices lose: to be least."""
    families: dict[str, list[float]] = {}
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for draw in draws:
        predicted = draw.predicted(constants).time_us
        error = abs(log(predicted / draw.time_us))
        families.setdefault(draw.family, []).append(error if error <= SOFT else SOFT + SOFT * (error - SOFT))
        rows.setdefault((draw.family, draw.row), []).append((draw.time_us, predicted))
    first, top = ([lost(row, count) for row in rows.values()] for count in (1, TOP))
    chosen = FIRST * fmean(log(one) + MISSED * (one > GOOD) for one in first)
    chosen += TOP_EIGHT * fmean(log(one) + MISSED_BY_EIGHT * (one > NEAR) for one in top)
    return fmean(fmean(one) for one in families.values()) + chosen


def judged(draws: Sequence[Drawn], constants: Constants) -> dict[str, Agreement]:
    """The agreement of the constants' predictions, by family."""
    names = dict.fromkeys(one.family for one in draws)
    return {name: agreement(by_row((one for one in draws if one.family == name), constants)) for name in names}
