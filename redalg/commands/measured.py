"""Measurements on this machine: time and error of a subject, and the tuning of its plans."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from rich.console import Console

from redalg.commands.shown import print_beside, print_formatted, read_subject
from redalg.commands.subject import Subject
from redalg.demo.printing import print_text, text_columns
from redalg.instruments.bench import bench_problems
from redalg.instruments.comparison import Problem
from redalg.instruments.drawing import ON_CPU, Setting, chosen_device
from redalg.strategies.table import lines_within


def bench_subject(console: Console, options: Namespace) -> int:
    """`redalg bench`: each backend on drawn tensors, beside the definition in float64."""
    subject = read_subject(options)
    problem = Problem.of_setting(drawn_setting(subject, chosen_device(options.device)))
    found = bench_problems([problem], ("tilelang", "torch"), name=subject.name)
    if options.json:
        print_text(console, found.to_json())
    else:
        print_text(console, str(found))
    return int(any(row.failure for row in found.rows))


def tune_subject(console: Console, options: Namespace) -> int:
    """`redalg tune`: measure plans on drawn tensors, and remember the fastest for calls like these."""
    subject = read_subject(options)
    setting = drawn_setting(subject, chosen_device(options.device))
    found = subject.function.tune(budget_s=options.budget, sizes=setting.absent_sizes, **setting.draw())
    table, width = found.table(options.most), text_columns(console)
    if print_formatted(console, table, options):
        return 0 if found.best else 1
    print_text(console, lines_within(f"{subject.name}, {table.title}", width))
    print_text(console, "     measured    predicted   of best  plan, or why it failed")
    for _, predicted, measured, ratio, plan in table.rows:
        print_beside(console, f"{measured:>10} µs {predicted:>9} µs {ratio:>9}  ", plan)
    print_text(console, lines_within(table.note, width))
    if found.path:
        print_text(console, f"remembered in {found.path}")
    return 0 if found.best else 1


def drawn_setting(subject: Subject, device: str) -> Setting:
    """The sizes and dtypes that a subject is measured at: on a CPU smaller ones, of axes whose size nobody gave."""
    sizes, fused = subject.all_sizes, subject.function
    if device == "cpu":
        sizes = ON_CPU.smaller(sizes, subject.sizes or {}, str(fused.cascade.axis.name))
    dtypes = subject.dtypes("c" if device == "cpu" else "sm_90a")
    shapes = replace(subject, sizes=sizes).shapes
    return Setting(fused, sizes, dtypes, shapes, device)
