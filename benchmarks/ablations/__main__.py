"""`python -m benchmarks.ablations NAME … --out DIR`: runs ablations, writes a JSON and an SVG file of each.

funnel, smem     no GPU: candidates that pruning leaves; shared memory estimated, counted and allotted
model, tuning    no GPU: what the documents of benchmarks.sweep and benchmarks.tune say
levels           at what level of the chip rows are fused; incremental: merged in the loop or not; on this device
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.ablations import ABLATIONS
from benchmarks.environment import environment
from benchmarks.plots.figure import save

RESULTS = Path(__file__).parent.parent / "results"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablations", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="+", metavar="NAME", choices=ABLATIONS, help=", ".join(ABLATIONS))
    parser.add_argument("--out", type=Path, required=True, help="the folder that the files are written into")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where model and tuning find their documents")
    parser.add_argument("--families", nargs="+", default=[], metavar="FAMILY", help="funnel, smem: some instead of all")
    parser.add_argument("--sample", type=int, default=40, help="smem: plans of a row")
    parser.add_argument("--compiled", type=int, default=0, help="smem: plans of a family that are compiled with nvcc")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=3, help="levels, incremental: plans of each kind")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options, console = parse(arguments), Console()
    for name in options.names:
        one = ABLATIONS[name]
        content = {"benchmark": f"ablation-{name}", "ablation": name, "environment": environment(), **one.run(options)}
        report.save(options.out / f"ablation-{name}.json", content)
        save(one.picture(content), options.out / f"ablation-{name}.svg")
        console.print(one.table(content).shown(one.title))
        console.print(one.said(content), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
