"""`python -m tests.fuzz [--seconds S | --cases N] [--seed K] [--verdicts | --executions] [--out FILE]`.

Draws cases from both generators in turn, and prints what became of them; the exit status is 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from time import monotonic
from typing import Any

from redalg.errors import ExpressionError
from tests.fuzz import one_axis, two_axes
from tests.fuzz.case import Case
from tests.fuzz.verdicts import tally

GENERATORS = {"one_axis": one_axis.case, "two_axes": two_axes.case}


def cases(seed: int, names: list[str]) -> Iterator[Case]:
    """The cases of every seed from `seed` on, of each generator; seeds that draw no expression are passed over."""
    for number in count(seed):
        for name in names:
            try:
                yield GENERATORS[name](number)
            except ExpressionError:
                continue


def limited(drawn: Iterator[Case], number: int | None, seconds: float | None) -> Iterator[Case]:
    """The first cases, up to a number or for a time."""
    stop = None if seconds is None else monotonic() + seconds
    timely = takewhile(lambda _: stop is None or monotonic() < stop, drawn)
    return timely if number is None else (one for one, _ in zip(timely, range(number), strict=False))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.fuzz", description=__doc__)
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--seconds", type=float, help="how long to draw cases")
    limit.add_argument("--cases", type=int, help="how many cases to draw (1000 where no time is given)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--generator", choices=[*GENERATORS], help="of one generator alone")
    parser.add_argument("--verdicts", action="store_true", help="verdicts alone")
    parser.add_argument("--out", type=Path, help="a JSON file for the summary")
    return parser.parse_args()


def main() -> int:
    """Run, print, and tell whether all was right."""
    asked = arguments()
    warnings.simplefilter("ignore")
    number = asked.cases or (None if asked.seconds else 1000)
    names = [asked.generator] if asked.generator else [*GENERATORS]
    drawn = limited(cases(asked.seed, names), number, asked.seconds)
    made = tally(drawn)
    print("\n".join(made.text()))
    summary: dict[str, Any] = {"seed": asked.seed, "verdicts": made.document()}
    if asked.out:
        asked.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return int(bool(made.raw))


if __name__ == "__main__":
    sys.exit(main())
