"""Benchmarks of redalg: measured, judged, fitted to and reported.

python -m benchmarks run NAME …      measure on this device: families beside their peers, calls, ablations, …
python -m benchmarks step            a training step of a small model beside torch.compile
python -m benchmarks models          whole models through torch.compile(backend="redalg"), beside torch.compile
python -m benchmarks ranks           functions across GPUs, beside PyTorch's collectives
python -m benchmarks judge FAMILY …  errors of redalg and its peers against float64
python -m benchmarks fit             the cost model beside its training data; draw plans, tune, fit, pack
python -m benchmarks report          README's tables, docs/BENCHMARKS.md and its pictures, from results/
"""

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks.commands import COMMANDS
from benchmarks.report import WrongFileError


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command's options, and `call`: what it does with them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|step|models|ranks|judge|fit|report")
    for name, module in COMMANDS.items():
        text = str(module.__doc__)
        command = commands.add_parser(name, help=text.splitlines()[0], description=text,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        command.set_defaults(call=module.main)
        module.options(command)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run a command; 1 where something failed or is not right."""
    options = parse(arguments)
    code: int = options.call(options)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except WrongFileError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
