"""Fit the cost model: judge it by its training data, draw and tune more, fit the constants, pack the winners.

fit                     the constants as they are, beside the training data; 1 where the report says otherwise
fit constants [FILE …]  other constants, fitted to the training data or to files; printed, not written
fit draw FAMILY …       plans of families' rows, drawn and measured on this device
fit tune FAMILY …       rows tuned as a user would, the winners packed
fit pack [FILE …]       the winners of the training data or of files, packed
fit record [FILE …]     files added to the training data (none: as they are), and the report written anew
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import calibrate, fitted, report, sweep, training, tune
from benchmarks.drawn import Drawn, drawn
from redalg.strategies.model.cost import H200, Constants


def options(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(dest="step", metavar="constants|draw|tune|pack|record")
    for name, (text, add, call) in STEPS.items():
        step = steps.add_parser(name, help=text, description=text)
        step.set_defaults(call=call)
        add(step)


def main(_: argparse.Namespace) -> int:
    """Judge the constants as they are; 1 where the committed report says otherwise."""
    draws = fitted.draws()
    say(H200, draws)
    same = fitted.REPORT.exists() and report.load(fitted.REPORT) == fitted.document(draws)
    if not same:
        Console().print(f"{fitted.REPORT} says otherwise: `fit record` writes it anew", style="red", highlight=False)
    return int(not same)


def constants_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents instead of the training data")
    parser.add_argument(
        "--evaluations", type=int, default=25, help="of least squares; 0: judge the constants as they are"
    )
    parser.add_argument("--refine", action="store_true", help="one constant at a time, by what choices lose too")


def constants(options: argparse.Namespace) -> int:
    """Fit, and print the constants and how well they predict."""
    draws = [draw for file in options.files for draw in drawn(report.load_named(file))] or fitted.draws()
    found = H200
    if options.refine:
        found = calibrate.refine(draws)
    elif options.evaluations:
        found = calibrate.fit(draws, evaluations=options.evaluations)
    say(found, draws)
    return 0


def say(constants: Constants, draws: Sequence[Drawn]) -> None:
    """Print constants, and how well they predict each family."""
    console = Console()
    console.print("Constants(", ", ".join(f"{name}={value:.3g}" for name, value in asdict(constants).items()), ")",
                  highlight=False)  # fmt: skip
    for name, found in calibrate.judged(draws, constants).items():
        first = " ".join(f"{row} {value:.2f}" for row, value in found.first.items())
        console.print(f"{name}: {found}\n  first/best: {first}", highlight=False)


def record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="what `fit draw` or `fit tune` wrote")


def record(options: argparse.Namespace) -> int:
    """Add files to the training data, and write the report of the fit."""
    contents = [report.load_named(file) for file in options.files]
    if contents:
        added = [{**content, "taken": training.way_of(content)} for content in contents]
        training.write([*training.read(), *added])
    report.save(fitted.REPORT, fitted.document(fitted.draws()))
    return 0


STEPS = {
    "constants": ("fit constants to the training data, or to files", constants_options, constants),
    "draw": ("draw plans and measure them", sweep.options, sweep.main),
    "tune": ("tune rows and pack the winners", tune.options, tune.main),
    "pack": ("pack the winners of the training data, or of files", tune.pack_options, tune.pack),
    "record": ("add files to the training data, and write the report anew", record_options, record),
}
