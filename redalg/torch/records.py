"""The log, and the reports of the graphs that a process compiles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache

from torch._functorch import config as functorch
from torch._inductor import config as inductor

from redalg.torch.report import GraphReport

LOG = logging.getLogger("redalg.torch")
LEFT = "a graph is left to Inductor as it is"
REPORTS: ContextVar[list[GraphReport] | None] = ContextVar("reports", default=None)


@contextmanager
def recorded_reports(*, cached: bool = False) -> Iterator[list[GraphReport]]:
    """Within it, the reports of all graphs that are compiled.

    A graph that comes from a cache of PyTorch is not explored, and so it has no report: none does, unless it may be
    `cached`.
    """
    reports = list[GraphReport]()
    token = REPORTS.set(reports)
    off = () if cached else (inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False))
    try:
        with ExitStack() as caches:
            for each in off:
                caches.enter_context(each)
            yield reports
    finally:
        REPORTS.reset(token)


def keep_report(report: GraphReport) -> None:
    """Log a report, and hand it to whoever records reports."""
    reports = REPORTS.get()
    if reports is not None:
        reports.append(report)
    LOG.info("%s, in %.1f s, of these %.1f s to find groups", report.summary, report.seconds, report.explored_s)


def replace_report(report: GraphReport, other: GraphReport) -> None:
    """Put a report in the place of one that was kept, for whoever records reports."""
    reports = REPORTS.get() or []
    for place in [number for number, each in enumerate(reports) if each is report]:
        reports[place] = other


def failure_report(outcome: str, failure: Exception) -> GraphReport:
    """The report of a graph that stays as it was, for a reason that is logged once."""
    reason = first_line(failure)
    say_once(f"{outcome}: {reason}")
    return GraphReport(0, (), {}, reason)


@cache
def say_once(message: str) -> None:
    """Log a warning once in a process."""
    LOG.warning("%s", message)


def first_line(failure: Exception) -> str:
    """An exception as one line."""
    return f"{type(failure).__name__}: {failure}".splitlines()[0]
