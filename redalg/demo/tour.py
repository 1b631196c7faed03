"""The demo from top to bottom: derive attention, write its kernel, run it, compare with PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from redalg.demo.printing import print_text, time_text
from redalg.demo.trial import BLOCKS, KERNEL, SDPA, UNFUSED, Failure, Measurement, Outcome, Shape, Trial, measure_apart
from redalg.fuse import Fused
from redalg.library import attention

ERROR_BOUND = 2e-6  # of float32, relative to max|ref|: what the derived form keeps at any length and chunking
TIMES_SDPA = 2.0  # of float16: rounding differs from kernel to kernel, so PyTorch's own error is the measure
TARGET = "sm_90a"
SMALL = Shape(b=1, h=2, q=77, k=513, d=32, e=48)
MIB = 2**20
LEGEND = (
    "error: max|out - ref| / max|ref|, where ref is the definition in float64, on a few rows of every head; time: the "
    "median of a few calls; peak memory: above the inputs, output and all, each contestant in a process of its own."
)
Results = dict[Trial, Outcome]


@final
@dataclass(frozen=True)
class Options:
    """Settings of the command line: length and number of heads of the run on the CPU, and the kernel's file."""

    length: int = 4096
    heads: int = 8
    kernel: Path = Path("build/attention.py")

    @property
    def shape(self) -> Shape:
        return Shape(b=1, h=self.heads, q=self.length, k=self.length, d=64, e=64)


def tour(console: Console, options: Options) -> int:
    """Show everything; the exit code is 0 only when every run succeeded within its error bound."""
    fused = attention()
    console.rule("Attention, derived from its definition")
    print_text(console, fused.explain())
    save_kernel(console, fused, options)
    results = compete(console, "The generated kernel on this CPU, through TileLang's C target", [Trial(KERNEL, SMALL)])
    cpu = [Trial(name, options.shape) for name in (BLOCKS, SDPA, UNFUSED)]
    results |= compete(console, "The derived form on this CPU, beside PyTorch", cpu)
    if torch.cuda.is_available():
        gpu = [Trial(name, options.shape, "float16", "cuda", calls=20) for name in (KERNEL, SDPA, UNFUSED)]
        results |= compete(console, f"The kernel on {torch.cuda.get_device_name()}, beside PyTorch", gpu)
    return closing_line(console, results)


def save_kernel(console: Console, fused: Fused, options: Options) -> None:
    """Write the generated TileLang program, and say where it is."""
    options.kernel.parent.mkdir(parents=True, exist_ok=True)
    path = fused.save(options.kernel, TARGET, sizes=options.shape.sizes, dtypes="float16")
    console.print()
    print_text(console, f"The TileLang kernel for {TARGET}, {options.shape}, float16: {path}")


def compete(console: Console, title: str, trials: Sequence[Trial]) -> Results:
    """Measure trials of one shape under a progress bar, and print them as a table."""
    console.print()
    console.rule(title)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=sum(trial.steps for trial in trials))
        results = {}
        for trial in trials:
            progress.update(bar, description=trial.contestant)
            results[trial] = measure_apart(trial, lambda: progress.advance(bar))
    console.print(table(results))
    return results


def table(results: Results) -> Table:
    """Error, time and peak memory of the trials of one shape."""
    first = next(iter(results))
    rows = Table(title=f"{first.shape}, {first.dtype}", title_justify="left", title_style="none")
    rows.add_column("", no_wrap=True)
    for heading in ("error", "time", "peak memory"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for trial, outcome in results.items():
        rows.add_row(trial.contestant, *result_cells(outcome))
    return rows


def result_cells(outcome: Outcome) -> Iterable[str]:
    """A row's cells, from the error on."""
    if isinstance(outcome, Failure):
        return "failed", "", ""
    return f"{outcome.error:.1e}", time_text(outcome.seconds), f"{outcome.peak_bytes / MIB:.1f} MiB"


def error_bound(trial: Trial, results: Results) -> float:
    """The error that a trial may have; float16 is held to a multiple of SDPA's error on the same tensors."""
    if trial.dtype == "float32":
        return ERROR_BOUND
    peers = [outcome for one, outcome in results.items() if (one.contestant, one.dtype) == (SDPA, trial.dtype)]
    return max((TIMES_SDPA * peer.error for peer in peers if isinstance(peer, Measurement)), default=0.0)


def complaints(results: Results) -> list[str]:
    """The sentences that say what went wrong: failures of any contestant, and errors of redalg's beyond their bound."""
    found = []
    for trial, outcome in results.items():
        where = f"{trial.contestant} ({trial.device}, {trial.dtype})"
        if isinstance(outcome, Failure):
            found.append(f"{where} failed: {outcome.reason}")
        elif trial.contestant in (BLOCKS, KERNEL) and not outcome.error <= error_bound(trial, results):
            found.append(f"{where}: error {outcome.error:.1e}, allowed {error_bound(trial, results):.1e}")
    return found


def closing_line(console: Console, results: Results) -> int:
    """Print the closing line and return the exit code."""
    found = complaints(results)
    console.print()
    console.print(LEGEND, highlight=False)
    for complaint in found:
        console.print(f"[red]{escape(complaint)}[/red]", highlight=False, soft_wrap=True)
    if not found:
        console.print("All errors are within their bounds.")
    return int(bool(found))
