"""The command line: `python -m redalg demo`, `python -m redalg show attention --target sm_90a`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from redalg import BackendError, RedalgError, __version__

DESCRIPTION = "Cascades of reductions, written in SymPy, derived into one pass and generated as TileLang kernels."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 0 on success, 1 where something failed, 2 on wrong usage."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        return int(options.run(options))
    except RedalgError as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        return 1


def command_line() -> ArgumentParser:
    """The parser, with a verb's function in `run`."""
    from redalg.demo.show import TARGETS
    from redalg.library import PATTERNS

    parser = ArgumentParser("python -m redalg", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"redalg {__version__}")
    verbs = parser.add_subparsers(title="verbs")
    demo = verbs.add_parser("demo", help="derive attention, run it beside PyTorch, write its kernel to a file")
    demo.add_argument("--length", type=int, default=4096, help="queries and keys on the CPU (default: %(default)s)")
    demo.add_argument("--heads", type=int, default=8, help="heads (default: %(default)s)")
    demo.add_argument("--kernel", type=Path, default=Path("build/attention.py"), help="the kernel's file (%(default)s)")
    demo.set_defaults(run=run_demo)
    show = verbs.add_parser("show", help="print the derivation and the kernel of a pattern of the library")
    show.add_argument("pattern", choices=PATTERNS)
    show.add_argument("--target", choices=TARGETS, default="sm_90a", help="default: %(default)s")
    show.add_argument("--sizes", default="", metavar="'q=1 k=513'", help="sizes by axis, for those to change")
    show.add_argument("--dtype", help="of the tensors (default: float32; float16 for attention on a GPU)")
    show.set_defaults(run=run_show)
    return parser


def run_demo(options: Namespace) -> int:
    """`redalg demo`: it compares with PyTorch, so PyTorch and TileLang must be there."""
    for package in ("torch", "tilelang"):
        if find_spec(package) is None:
            raise BackendError(f"the demo needs {package}, which is not installed. Run: pip install 'redalg[tilelang]'")
    from redalg.demo.tour import Options, tour

    return tour(Console(), Options(options.length, options.heads, options.kernel))


def run_show(options: Namespace) -> int:
    """`redalg show`: analysis and text only."""
    from redalg.demo.show import show

    show(Console(), options.pattern, options.target, options.sizes, options.dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
