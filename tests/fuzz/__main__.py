"""`python -m tests.fuzz [--seconds S | --cases N] [--seed K] [--workers W] [--verdicts | --executions] [--out FILE]`.

Draws cases from both generators in turn, and prints what became of them; the exit status is 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import count, islice, takewhile
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from tests.fuzz.executions import Executions
from tests.fuzz.records import GENERATORS, Record, records
from tests.fuzz.shrink import least, least_raw, line_of
from tests.fuzz.spell import line
from tests.fuzz.verdicts import Tally, pattern

SHOWN = 2
"""Findings of a kind that are made small and shown."""
CHUNK = 25
"""Seeds that a worker takes at a time."""


def limited(drawn: Iterator[Record], number: int | None, seconds: float | None) -> Iterator[Record]:
    """The first records, up to a number or for a time."""
    stop = None if seconds is None else monotonic() + seconds
    timely = takewhile(lambda _: stop is None or monotonic() < stop, drawn)
    return timely if number is None else (one for one, _ in zip(timely, range(number), strict=False))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.fuzz", description=__doc__)
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--seconds", type=float, help="how long to draw cases")
    limit.add_argument("--cases", type=int, help="how many cases to draw (1000 where no time is given)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="how many processes share the seeds")
    parser.add_argument("--generator", choices=[*GENERATORS], help="of one generator alone")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--verdicts", action="store_true", help="verdicts alone")
    only.add_argument("--executions", action="store_true", help="print what became of executions alone")
    parser.add_argument("--data", type=int, default=2, help="on how many sets of data a cascade is run")
    parser.add_argument("--out", type=Path, help="a JSON file for the summary")
    return parser.parse_args()


def drawn(asked: argparse.Namespace) -> Iterator[Record]:
    """The records of seeds in turn; several workers' come as they end."""
    names = [asked.generator] if asked.generator else [*GENERATORS]
    data = 0 if asked.verdicts else asked.data
    if asked.workers == 1:
        for first in count(asked.seed):
            yield from records(first, 1, names, data)
    starts = count(asked.seed, CHUNK)
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn"), max_tasks_per_child=20) as pool:

        def begun(number: int) -> set[Future[list[Record]]]:
            return {pool.submit(records, first, CHUNK, names, data) for first in islice(starts, number)}

        running = begun(2 * asked.workers)
        try:
            while True:
                done = next(as_completed(running))
                running = (running - {done}) | begun(1)
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    """Run, print, and tell whether all was right."""
    asked = arguments()
    warnings.simplefilter("ignore")
    number = asked.cases or (None if asked.seconds else 1000)
    begin = monotonic()
    verdicts, executions = Tally(), Executions()
    for record in limited(drawn(asked), number, asked.seconds):
        record.add_to(verdicts, executions)
    summary: dict[str, Any] = {"seed": asked.seed, "seconds": round(monotonic() - begin), **verdicts.document()}
    summary |= {} if asked.verdicts else executions.document()
    print("\n".join([] if asked.executions else verdicts.text()))
    print("\n".join([] if asked.verdicts else report(executions)))
    for one in verdicts.raw:
        print(f"raw error of a verdict: {one.reason}\n      {line(least_raw(one.case.outputs, one.reason))}")
    if asked.out:
        asked.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return int(bool(verdicts.raw or executions.findings))


def report(executions: Executions) -> Iterator[str]:
    """The figures of executions as lines, and the least form of every kind of finding."""
    made = executions.document()
    yield f"{made['executions']} executions of {made['cascades']} cascades; left aside: {made['left_aside']}"
    yield f"findings: {made['findings'] or 'none'}"
    shown, cases = Counter[tuple[str, str]](), {(one.kind, one.data): one for one in reversed(executions.findings)}
    for finding in reversed(cases.values()):  # one way of each set of data
        about = finding.kind, pattern(finding.said) if finding.kind == "raw error" else finding.data.kind
        shown[about] += 1
        if shown[about] <= SHOWN:
            one = least(finding)
            yield f"{one.kind}, {one.way}, {one.data}: {one.said}"
            yield f"      {line_of(one)}"


if __name__ == "__main__":
    sys.exit(main())
