"""Make documents from results: README's tables, docs/BENCHMARKS.md and its pictures; or show some files.

report                     README's regions, docs/BENCHMARKS.md, docs/PUBLISHED.md, docs/pictures
report FILE …              tables in the terminal, of what `run`, `fit draw` and `fit tune` wrote; --full, --markdown
report FILE … --out DIR    their pictures too, as SVG
"""

import argparse
import os
from pathlib import Path

from rich.console import Console

from benchmarks import models, predict, report, training_step
from benchmarks.ablations import ABLATIONS
from benchmarks.commands.models import show as show_models
from benchmarks.environment import ROOT
from benchmarks.families import FAMILIES
from benchmarks.stale import stale_rows
from redalg.runtime.known.tuned import SWITCH


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents, as JSON; none: all documents")
    style = parser.add_mutually_exclusive_group()
    style.add_argument("--full", dest="style", action="store_const", const="full", default="",
                       help="of FILE: every contestant's time, error and memory")  # fmt: skip
    style.add_argument("--markdown", dest="style", action="store_const", const="markdown", help="so too, as Markdown")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of FILE: the folder that pictures are written into")


def show(content: report.Document, style: str = "") -> None:
    """A family's table or an ablation's; of another document its name alone."""
    if content["benchmark"] in FAMILIES:
        report.show(content, stale_rows(content), style)
    elif "ablation" in content:
        ablation = ABLATIONS[content["ablation"]]
        print(ablation.shown(content))
    elif content["benchmark"] == training_step.NAME:
        report.show(content, style=style)
        Console().print(training_step.first_losses(content), highlight=False)
    elif content["benchmark"] == models.NAME:
        show_models(content, style)
    elif content["benchmark"] == predict.NAME:
        predict.show(content)
    else:
        parts = [f"{len(value)} {name}" for name, value in content.items() if isinstance(value, list)]
        Console().print(f"{content['benchmark']}: {', '.join(parts) or 'no rows'}", highlight=False)


def main(options: argparse.Namespace) -> int:
    os.environ.setdefault(SWITCH, "pack")  # documents tell of what ships
    if not options.files:
        from benchmarks.documents import read, write  # Matplotlib is for pictures alone

        write(ROOT, read(ROOT / "benchmarks" / "results", stale_rows))
        return 0
    for content in list(map(report.load_named, options.files)):
        show(content, options.style)
        if options.out:
            from benchmarks.plot import plot

            lines = list(map(str, plot(content, options.out)))
            none = f"{content['benchmark']}: there are pictures of families, ablations and sweeps alone"
            for line in lines or [none]:
                Console().print(line, highlight=False)
    return 0
