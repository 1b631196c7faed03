"""The verbs that only read: the list of patterns, derivations, kernels and plans. Nothing is compiled."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, final

from rich.console import Console
from rich.text import Text

from redalg import Fused, InputError, Refused, Undecided
from redalg.commands.subject import Subject, known_target, parse_scalars, subject_of
from redalg.demo.printing import note, print_code, print_text, text_columns
from redalg.expression.spelling import did_you_mean
from redalg.library import PATTERNS, Pattern
from redalg.strategies.table import Table


def read_subject(options: Namespace) -> Subject:
    """The subject that the options of a command name, and a note on what was taken for scalars."""
    text = options.subject
    given: dict[str, Any] = {name: getattr(options, name, None) for name in ("axes", "passes", "dtype")}
    given |= {name: getattr(options, name, "") for name in ("sizes", "shapes")}
    subject = in_options(subject_of(text, **given), options.verb)
    if subject.scalars:
        note(f"taken for scalars, as they are no axes: {', '.join(subject.scalars)}")
    return subject


def in_options(subject: Subject, verb: str) -> Subject:
    """The subject; a verdict without a form says the command of the same verb in the place of a call."""
    if not isinstance(subject.given, Refused | Undecided):
        return subject
    return replace(subject, given=replace(subject.given, advice=CommandAdvice(subject.given.advice, verb)))


@final
@dataclass(frozen=True)
class CommandAdvice:
    """Advice as one who types commands follows it: `ra.fuse(…, passes=2)` is `redalg explain … --passes 2`."""

    advice: object
    verb: str

    def __str__(self) -> str:
        return re.sub(r"ra\.fuse\(…, passes=(\d+)\)", rf"redalg {self.verb} … --passes \1", str(self.advice))


# ---- list ------------------------------------------------------------------------------------------------------------


def list_patterns(console: Console, options: Namespace) -> int:
    """`redalg list`: every pattern under its field; a line each where the output is no terminal."""
    chosen = [one for one in PATTERNS.values() if matches(one, options.words)]
    chosen = chosen or [one for one in PATTERNS.values() if is_told(one, options.words)]
    if not chosen:
        words = " ".join(options.words)
        fields = list(dict.fromkeys(one.field for one in PATTERNS.values()))
        raise InputError(f"no pattern and no field has `{words}` in it.{did_you_mean(words, [*PATTERNS, *fields])} "
                         f"The fields are {', '.join(fields)}.")  # fmt: skip
    if options.json:
        print_text(console, json.dumps([facts(one) for one in chosen], ensure_ascii=False, indent=1))
        return 0
    chosen.sort(key=lambda one: one.field)
    size = max(len(one.name) for one in chosen) + 2
    for field, entries in groupby(chosen, key=lambda one: one.field):
        console.print(Text(field, style="bold"))
        for entry in entries:
            text = [entry.summary]
            if console.is_terminal:
                text = wrap(entry.summary, max(text_columns(console) - size - 2, 20), break_long_words=False)
            below = f"\n{' ' * (size + 2)}".join(text)
            console.print(Text.assemble((f"  {entry.name:<{size}}", "cyan"), below), soft_wrap=True)
    console.print(f"{len(chosen)} of {len(PATTERNS)} patterns. redalg show NAME shows one.", highlight=False)
    return 0


def matches(entry: Pattern, words: list[str]) -> bool:
    """True if each word is in the name, the field or the summary."""
    text = f"{entry.name} {entry.field} {entry.summary}".lower()
    return all(word.lower() in text for word in words)


def is_told(entry: Pattern, words: list[str]) -> bool:
    """True if each word begins one of the docstring, which names authors and other names."""
    text = " ".join((entry.build.__doc__ or "").partition(">>>")[0].split())
    return all(re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) for word in words)


def facts(entry: Pattern) -> dict[str, Any]:
    """The entry of a pattern in the registry, as JSON has it."""
    return {"name": entry.name, "field": entry.field, "summary": entry.summary, "source": entry.source,
            "sizes": dict(entry.sizes), "dtype": entry.dtype, "takes": list(entry.takes)}  # fmt: skip


# ---- derivations, kernels, plans -------------------------------------------------------------------------------------


def print_derivation(console: Console, options: Namespace) -> int:
    """`redalg explain`: the derivation, or the reasons that there is none (the exit code is then 1)."""
    subject = read_subject(options)
    print_text(console, derivation_of(subject, text_columns(console), options))
    return 0 if hasattr(subject.given, "fused") or isinstance(subject.given, Fused) else 1


def derivation_of(subject: Subject, width: int, options: Namespace) -> str:
    """The derivation in so many columns, or the part and the format of it that the options ask for."""
    format_ = "latex" if options.latex else getattr(options, "format", "text")
    part = {"section": getattr(options, "section", None), "brief": getattr(options, "brief", False)}
    return str(subject.given.explain(width=width, format=format_, **part))


def print_kernel(console: Console, options: Namespace) -> int:
    """`redalg source`: the kernel alone, to the terminal, to a pipe or to a file that checks itself."""
    subject, target = read_subject(options), known_target(options.target)
    if options.output:
        path = Path(options.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        subject.function.save(path, target, **subject.problem(target))
        note(f"{path}: run it to check it against the definition")
        return 0
    print_code(console, kernel_text(subject, target))
    return 0


def kernel_text(subject: Subject, target: str) -> str:
    """The kernel of a subject; the sizes that nobody gave are told."""
    if subject.pattern is None:
        told = " ".join(
            f"{axis}={size}" for axis, size in subject.all_sizes.items() if axis not in (subject.sizes or {})
        )
        if told:
            note(f"sizes that were not given: {told} (--sizes '{told}' changes them)")
    return subject.function.source(target, **subject.problem(target))


def show_subject(console: Console, options: Namespace) -> int:
    """`redalg show`: a pattern's definition in a line, its derivation, and its kernel."""
    subject, target = read_subject(options), known_target(options.target)
    kernel = "" if options.derivation_only else kernel_text(subject, target)
    if not options.kernel_only:
        if subject.pattern:
            head = (f"{subject.name}: {subject.pattern.summary}", subject.pattern.source)
            print_text(console, "\n".join([*(fill(text, text_columns(console)) for text in head), ""]))
        print_text(console, derivation_of(subject, text_columns(console), options))
    if kernel:
        if not options.kernel_only:
            console.print()
        print_code(console, kernel)
    return 0


def print_plans(console: Console, options: Namespace) -> int:
    """`redalg plans`: the plans that a call could have, best first by predicted time."""
    subject, device = read_subject(options), known_target(options.device)
    scalars = parse_scalars(options.scalars)
    found = subject.function.plans(device=device, scalars=scalars, **subject.problem(device))
    table = found.table(options.most)
    if print_formatted(console, table, options):
        return 0
    sizes = " ".join(f"{axis}={size}" for axis, size in subject.all_sizes.items())
    print_text(console, f"{subject.name}, {sizes}, {', '.join(sorted(set(subject.dtypes(device).values())))}")
    print_text(console, table.text(text_columns(console)))
    return 0


def print_formatted(console: Console, table: Table, options: Namespace) -> bool:
    """Print a table as JSON or Markdown, if the options ask for it; tells if they do."""
    if options.json or options.markdown:
        print_text(console, table.to_json() if options.json else table.to_markdown())
    return bool(options.json or options.markdown)


def print_beside(console: Console, lead: str, plan: str) -> None:
    """Print figures and the plan beside them, in the columns of the terminal."""
    lines = wrap_plan(plan, max(text_columns(console) - len(lead), 20))
    print_text(console, "\n".join([lead + lines[0], *(" " * len(lead) + line for line in lines[1:])]))


def wrap_plan(text: str, room: int) -> list[str]:
    """A plan in lines of at most so many columns, broken between its levels.

    >>> wrap_plan("Grid(b) Lanes(n, 128) Loop(n, 512)", 22)
    ['Grid(b) Lanes(n, 128)', 'Loop(n, 512)']
    """
    lines: list[str] = []
    for level in re.findall(r"[^\s(]+(?:\([^)]*\);?)?", text):
        if lines and len(lines[-1]) + 1 + len(level) <= room:
            lines[-1] += f" {level}"
        else:
            lines.append(level)
    return lines or [""]
