"""Time, bandwidth and error of a function's backends beside the cost model's prediction, at one or several sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

from redalg.errors import InputError, RedalgError
from redalg.expression.arguments import answer_methods
from redalg.instruments.comparison import BACKENDS, EXACT, WALL, Problem, error_legend, plain_number, plain_row
from redalg.instruments.errors import error_text
from redalg.instruments.measuring import measure_contest, time_text
from redalg.instruments.plotting import draw_bars
from redalg.instruments.reference import FLOAT64
from redalg.strategies.device import device_for
from redalg.strategies.table import Table, Tabled


@final
@dataclass(frozen=True)
class BenchRow:
    """A backend at some sizes.

    Attributes:
        title: sizes, dtypes and device.
        name: of the backend, or of the definition.
        microseconds: the median time of a call; NaN if it failed.
        bytes: of the inputs and outputs, each once.
        operations: floating-point operations, as the cost model counts them.
        ratio: its time over that of the first that has one: above 1, the first is faster.
        predicted_us: time of the model's best kernel; NaN of what is no kernel.
        bound: what takes that kernel longest.
        error: max|out - ref| / max|ref|.
        failure: the reason that it has no time.
        reference: the arithmetic that the error is told by, and its own error where it matters.
    """

    title: str
    name: str
    microseconds: float
    bytes: int
    operations: int
    ratio: float
    predicted_us: float
    bound: str
    error: float
    failure: str = ""
    reference: str = FLOAT64

    @property
    def gb_per_s(self) -> float:
        """Bytes over the time, in 10⁹ a second."""
        return self.bytes / self.microseconds / 1e3

    @property
    def gflop_per_s(self) -> float:
        """Operations over the time, in 10⁹ a second."""
        return self.operations / self.microseconds / 1e3


@answer_methods(InputError)
@final
@dataclass(frozen=True, repr=False)
class Bench(Tabled):
    """Times at one or several sizes; it prints as a table for each.

    Attributes:
        rows: backend by backend, sizes by sizes.
        device: `cpu` or `cuda`.
        target: that predictions hold for.

    >>> from math import nan
    >>> row = BenchRow("bench, b=8 n=64, float32", "redalg, blocks", 20.0, 2080, 1536, 1.0, nan, "", 1e-7)
    >>> found = Bench((row,), "cpu", "c")
    >>> found.tables()[0].rows
    (('redalg, blocks', '1.00', '20.00 µs', '0.10', '0.077', '1.0e-07'),)
    >>> found.to_json()[:27], found.plot().axes[0].get_xlabel()
    ('{"device": "cpu", "target":', 'wall time, ms')
    """

    rows: tuple[BenchRow, ...]
    device: str
    target: str

    def tables(self) -> list[Table]:
        """A table for each of the sizes."""
        groups = [(title, list(rows)) for title, rows in groupby(self.rows, key=lambda row: row.title)]
        return [self._table(title, rows, is_last=place == len(groups) - 1)
                for place, (title, rows) in enumerate(groups)]  # fmt: skip

    def _table(self, title: str, rows: Sequence[BenchRow], *, is_last: bool) -> Table:
        first = next((row.name for row in rows if row.ratio == 1), rows[0].name)
        cells = tuple((row.name, number_text(row.ratio), time_text(row.microseconds), number_text(row.gb_per_s),
                       number_text(row.gflop_per_s), error_text(row.error)) for row in rows)  # fmt: skip
        legend = (f"over redalg: time over that of {first}; {WALL[self.device]}, medians\n"
                  "GB/s: inputs and outputs once; GFLOP/s: additions, products, comparisons and functions, one each\n"
                  f"{error_legend(*(row.reference for row in rows))}")  # fmt: skip
        lines = [text for row in rows for text in (self._predicted_text(row), self._share_text(row)) if text]
        lines += [legend] if is_last else []
        lines += [f"{row.name}: {row.failure}" for row in rows if row.failure]
        return Table(title, ("", "over redalg", "time", "GB/s", "GFLOP/s", "error"), cells, "\n".join(lines),
                     figures_last=True)  # fmt: skip

    def _predicted_text(self, row: BenchRow) -> str:
        """A kernel's time beside that of the model's best one, and what bounds that; nothing of what is no kernel."""
        if math.isnan(row.predicted_us):
            return ""
        beside = (
            "" if math.isnan(row.microseconds) else f": measured {row.microseconds / row.predicted_us:.3g} times that"
        )
        return (f"{row.name}: the cost model predicts {time_text(row.predicted_us)} for the best on {self.target}, "
                f"bound by {row.bound}{beside}")  # fmt: skip

    def _share_text(self, row: BenchRow) -> str:
        """A row's rates as shares of those of the card; nothing where these are not known, as of a CPU."""
        card = device_for(self.target)
        if self.device == "cpu" or row.name != BACKENDS["tilelang"] or math.isnan(row.microseconds):
            return ""
        return (f"{row.name}: {row.gb_per_s / card.memory_gb_s:.1%} of the {card.memory_gb_s:,} GB/s of {card.part}, "
                f"{row.gflop_per_s / card.product_tflops / 1e3:.1%} of its {card.product_tflops:,} TFLOP/s of 16-bit "
                "matrix products")  # fmt: skip

    def to_json(self) -> str:
        """The rows as JSON; what has no number is null."""
        rates = ("gb_per_s", "gflop_per_s")
        rows = [plain_row(row) | {name: plain_number(getattr(row, name)) for name in rates} for row in self.rows]
        return json.dumps({"device": self.device, "target": self.target, "rows": rows}, ensure_ascii=False)

    def plot(self) -> Any:
        """A figure of Matplotlib: a bar for each time.

        Raises:
            BackendError: Matplotlib is not installed.
        """
        titles = {row.title for row in self.rows}
        names = [row.name if len(titles) == 1 else f"{row.name}: {title_sizes(row.title)}" for row in self.rows]
        times = [row.microseconds for row in self.rows]
        rows = [(name, time / 1e3, time_text(time)) for name, time in zip(names, times, strict=True)]
        return draw_bars("" if len(titles) > 1 else self.rows[0].title, f"{WALL[self.device]}, ms", rows)


def title_sizes(title: str) -> str:
    """The sizes in the title of a problem."""
    return title.split(", ")[1]


def number_text(number: float) -> str:
    """A ratio or a rate, or nothing.

    >>> number_text(1234.5), number_text(0.00123), number_text(math.nan)
    ('1234.50', '0.0012', '-')
    """
    return "-" if math.isnan(number) else f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def bench_problems(problems: Sequence[Problem], backends: Sequence[str], *, name: str = "bench") -> Bench:
    """Measure the backends, and the definition in float64, on every problem."""
    rows = list[BenchRow]()
    for problem in problems:
        title, kernel = problem.title(name), BACKENDS["tilelang"]
        predicted, bound = predicted_kernel(problem) if "tilelang" in backends else (math.nan, "")
        contestants = {**problem.own(backends), EXACT: problem.exact()}
        measured = list(measure_contest(contestants, problem.tensors, problem.error, problem.device))
        first = next((one.microseconds for one in measured if not math.isnan(one.microseconds)), math.nan)
        counts = (problem.bytes, problem.operations)
        for found in measured:
            guess = (predicted, bound) if found.name == kernel else (math.nan, "")
            error = math.nan if found.name == EXACT else found.error
            ratio = found.microseconds / first
            rows.append(BenchRow(title, found.name, found.microseconds, *counts, ratio, *guess, error, found.failure,
                                 problem.truth.text))  # fmt: skip
    return Bench(tuple(rows), problems[0].device, problems[0].target)


def predicted_kernel(problem: Problem) -> tuple[float, str]:
    """The predicted time in microseconds of the best kernel, and its bound; NaN where there is no kernel."""
    shapes = {name: tuple(one.shape) for name, one in problem.arrays.items()}
    dtypes = {name: one for name, one in problem.dtypes.items() if name in problem.fused.cascade.inputs()}
    try:
        options = {"shapes": shapes, "scalars": problem.scalars}
        best = problem.fused.plans(problem.all_sizes, dtypes, problem.target, **options)[0]
    except (RedalgError, IndexError):  # the call itself tells why it has no kernel
        return math.nan, ""
    return best.predicted_us, best.bound
