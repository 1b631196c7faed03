"""The verbs of `redalg` and their options. Each has examples in its help; a verb's module is loaded when it runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, final

from rich.console import Console

from redalg.expression.spelling import did_you_mean
from redalg.optional import need_packages
from redalg.version import VERSION

DESCRIPTION = """\
Cascades of reductions, written in SymPy, derived into one pass and generated
as TileLang kernels.

A SUBJECT is a pattern of the library (redalg list), an expression in quotes,
a file (.py, .json, .txt), or - for what is piped in. An expression is Python's
syntax over functions of redalg and SymPy, and nothing in it is run:

  redalg explain "mean((x[b,n] - mean(x[b,n], n))**2, n)"
  redalg explain "m = max(x[b,n], n); out[b] = sum(exp(x[b,n] - m), n)"
  redalg explain attention
"""
LAST = """\
start with:
  redalg list            patterns, by field
  redalg show variance   a derivation and its kernel
  redalg doctor          what is installed, and what works
"""
EXAMPLES = {
    "list": """\
redalg list
redalg list statistics
redalg list attention window
redalg list flash
redalg list --json""",
    "show": """\
redalg show attention
redalg show routing --sizes 't=4096 n=256' --dtype bfloat16
redalg show variance --target c --kernel-only > variance.py
redalg show kurtosis --derivation-only --latex""",
    "explain": """\
redalg explain variance
redalg explain variance --brief
redalg explain variance --section state --section condition
redalg explain variance --format markdown > variance.md
redalg explain "sum(exp(x[b,n] - max(x[b,n], n)), n)"
redalg explain "mean(Abs(x[b,n] - mean(x[b,n], n)), n)"    (refused)
redalg explain "mean(Abs(x[b,n] - mean(x[b,n], n)), n)" --passes 2
redalg explain mine.py
echo "sum(x[n]**2, n)" | redalg explain -""",
    "source": """\
redalg source softmax
redalg source mine.py --sizes 'b=64 n=8192' --dtype float32
redalg source variance --target c -o variance.py    it checks itself when run""",
    "plans": """\
redalg plans attention --device H100
redalg plans variance --device 'RTX 4090' --sizes 'b=1 n=1000000'
redalg plans 'sum(where(q - k < w, x[k] * y[q,k], 0), k)' --scalars 'w=256'""",
    "bench": """\
redalg bench variance
redalg bench mine.py --sizes 'b=64 n=65536' --dtype float64""",
    "tune": """\
redalg tune variance --budget 20
redalg tune attention --sizes 'q=1 k=8192'""",
    "cache": """\
redalg cache
redalg cache --clear""",
    "doctor": "redalg doctor",
    "demo": """\
redalg demo
redalg demo --length 1024 --full""",
}
"""Of every verb, as its help shows them."""


@final
class Parser(ArgumentParser):
    """A parser that asks for the near word where one is misspelt."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        if "argument VERB: invalid choice: " in message:
            word = message.partition("invalid choice: ")[2].split("'")[1]
            verbs = [name for name in EXAMPLES if f"'{name}'" in message]
            near = did_you_mean(word, verbs)
            message = f"there is no verb `{word}`.{near or ' The verbs are ' + ', '.join(verbs) + '.'}"
        unread = message.removeprefix("unrecognized arguments: ").split() if "unrecognized" in message else []
        if unread and all("=" in one and not one.startswith("-") for one in unread):
            message += f". Several of an option are one argument, in quotes: --sizes 'b=8 {' '.join(unread)}'"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\n")


def command_line() -> ArgumentParser:
    """The parser; a verb's function takes the options in `run`."""
    parser = Parser("redalg", description=DESCRIPTION, epilog=LAST, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"redalg {VERSION}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    add_reading_verbs(verbs)
    add_measuring_verbs(verbs)
    return parser


def add_reading_verbs(verbs: Any) -> None:
    """The verbs that only read: nothing is compiled."""
    made = verb(verbs, "list", "the patterns of the library, by field", "shown:list_patterns")
    made.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="only those whose name, field or summary has each word; or, if none has, the paper that they are from",
    )
    made.add_argument("--json", action="store_true", help="names, fields, summaries, sources, sizes and dtypes as JSON")

    made = verb(verbs, "show", "the derivation and the kernel of a subject", "shown:show_subject", subject=True)
    add_kernel_options(made)
    parts = made.add_mutually_exclusive_group()
    parts.add_argument("--kernel-only", action="store_true", help="the kernel, which runs without redalg, and no more")
    parts.add_argument("--derivation-only", action="store_true", help="the derivation, and no kernel")
    made.add_argument("--latex", action="store_true", help="the derivation as LaTeX")

    made = verb(
        verbs, "explain", "the derivation of a subject, or why there is none", "shown:print_derivation", subject=True
    )
    parts = made.add_mutually_exclusive_group()
    parts.add_argument("--brief", action="store_true", help="a screen: verdict, state, update, cost, condition")
    parts.add_argument("--section", action="append", metavar="NAME", help="a section, such as state; may be repeated")
    formats = made.add_mutually_exclusive_group()
    formats.add_argument("--format", choices=("text", "latex", "html", "markdown"), default="text",
                         help="default: %(default)s")  # fmt: skip
    formats.add_argument("--latex", action="store_true", help="the same as --format latex")
    made.set_defaults(sizes="", dtype=None)

    made = verb(verbs, "source", "the kernel of a subject", "shown:print_kernel", subject=True)
    add_kernel_options(made)
    made.add_argument("-o", "--output", metavar="FILE", help="write a file that checks itself when it is run")

    made = verb(verbs, "plans", "the plans for a kernel with their predicted times", "shown:print_plans", subject=True)
    made.add_argument("--device", default="H200", help="a card, or a target (default: %(default)s)")
    add_sizes(made)
    made.add_argument("--scalars", default="", metavar="'w=256'", help="values of scalars by which masks skip elements")
    made.add_argument("--most", type=int, default=10, metavar="N", help="how many (default: %(default)s)")
    add_formats(made)


def add_measuring_verbs(verbs: Any) -> None:
    """The verbs that run something, or look at the machine."""
    for name, told in (("bench", "time and error on this machine, beside the definition"),
                       ("tune", "measure plans, and remember the fastest")):  # fmt: skip
        made = verb(verbs, name, told, f"measured:{name}_subject", subject=True)
        add_sizes(made)
        made.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
        if name == "bench":
            made.add_argument("--json", action="store_true", help="as JSON")
        if name == "tune":
            made.add_argument("--budget", type=float, default=35.0, metavar="S", help="seconds (default: %(default)s)")
            made.add_argument("--most", type=int, default=16, metavar="N", help="rows of the table (%(default)s)")
            add_formats(made)
    made = verb(verbs, "cache", "where kernels and tuned plans are kept, and how much", "machine:print_cache")
    made.add_argument("--clear", action="store_true", help="remove all of it, after a question")
    made.add_argument("--yes", action="store_true", help="without the question")
    verb(verbs, "doctor", "what is installed, what works, what to install", "machine:print_findings")
    made = verb(verbs, "demo", "derive attention, run it beside PyTorch, write its kernel to a file", "start:run_demo")
    made.add_argument("--length", type=int, default=4096, help="queries and keys on the CPU (default: %(default)s)")
    made.add_argument("--heads", type=int, default=8, help="heads (default: %(default)s)")
    made.add_argument("--full", action="store_true", help="the whole derivation")
    made.add_argument("--kernel", type=Path, default=Path("build/attention.py"), help="the kernel's file (%(default)s)")


def verb(verbs: Any, name: str, told: str, function: str, *, subject: bool = False) -> ArgumentParser:
    """A verb with its examples; `function` is `module:function` of this package."""
    lines = "\n".join(f"  {line}" for line in EXAMPLES[name].splitlines())
    made: ArgumentParser = verbs.add_parser(name, help=told, description=f"{told[0].upper()}{told[1:]}.",
                                            epilog=f"examples:\n{lines}",
                                            formatter_class=RawDescriptionHelpFormatter)  # fmt: skip
    if subject:
        made.add_argument("subject", metavar="SUBJECT", help="a pattern, an expression in quotes, a file, or -")
        made.add_argument("--axes", metavar="'b n'", help="the axes of an expression's output, in order")
        made.add_argument("--passes", type=int, metavar="N", help="how many passes over the data it may take")
    made.set_defaults(run=partial(run_verb, function), verb=name)
    return made


def run_verb(function: str, console: Console, options: Namespace) -> int:
    """Call a verb's function, `module:name` of this package, whose module is imported now."""
    module, _, name = function.partition(":")
    if module == "measured":
        need_packages(f"redalg {options.verb}", "redalg[tilelang]", "torch", "tilelang")
    return int(getattr(import_module(f"redalg.commands.{module}"), name)(console, options))


def add_sizes(parser: ArgumentParser) -> None:
    """Add sizes, shapes and dtype."""
    parser.add_argument("--sizes", default="", metavar="'q=1 k=513'", help="sizes by axis, for those to change")
    parser.add_argument("--shapes", default="", metavar="'x=4,64'",
                        help="shapes of tensors whose indices do not tell them")  # fmt: skip
    parser.add_argument("--dtype", help="of the tensors that are computed with (default: the pattern's)")


def add_formats(parser: ArgumentParser) -> None:
    """Add the formats of a table that other programs read."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="the table as JSON")
    formats.add_argument("--markdown", action="store_true", help="the table as Markdown")


def add_kernel_options(parser: ArgumentParser) -> None:
    """Add the options of a kernel."""
    parser.add_argument("--target", default="sm_90a", help="a target or a card: sm_90a, c, H100 (default: %(default)s)")
    add_sizes(parser)
