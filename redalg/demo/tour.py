"""The demo from top to bottom: derive attention, write its kernel, run it, compare with PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from redalg.demo.derivation import begin_tour
from redalg.demo.printing import print_text
from redalg.demo.trial import BLOCKS, KERNEL, SDPA, UNFUSED, Failure, Measurement, Outcome, Shape, Trial, measure_apart
from redalg.fuse import Fused
from redalg.instruments.measuring import time_text
from redalg.library import attention

ERROR_BOUND = 2e-6  # of float32, relative to max|ref|: what the derived form keeps at any length and chunking
TIMES_SDPA = 2.0  # of float16: rounding differs from kernel to kernel, so PyTorch's own error is the measure
TARGET = "sm_90a"
SMALL = Shape(b=1, h=2, q=77, k=513, d=32, e=48)
MIB = 2**20
LEGEND = (
    "error: max|out - ref| / max|ref|, ref in float64, on a few rows; peak memory: above the inputs, each contestant "
    "in a process of its own; time: the fastest of a few calls, on a CPU that of one core, whatever else runs there. "
    "On a CPU the derived form saves memory beside the unfused formula; time, on a GPU."
)
MORE = "The whole derivation: redalg demo --full. Its kernel: redalg source attention. More patterns: redalg list."
Results = dict[Trial, Outcome]


@final
@dataclass(frozen=True)
class Options:
    """Settings of the command line.

    They are the length and the number of heads of the run on the CPU, the kernel's file, and whether the whole
    derivation is printed.
    """

    length: int = 4096
    heads: int = 8
    kernel: Path = Path("build/attention.py")
    full: bool = False

    @property
    def shape(self) -> Shape:
        return Shape(b=1, h=self.heads, q=self.length, k=self.length, d=64, e=64)


def tour(console: Console, options: Options) -> int:
    """Show everything; the exit code is 0 only when every run succeeded within its error bound."""
    fused = attention()
    begin_tour(console, fused, full=options.full)
    save_kernel(console, fused, options)
    results = check_kernel(console)
    cpu = [Trial(name, options.shape) for name in (BLOCKS, SDPA, UNFUSED)]
    results |= compete(console, "The derived form on this CPU, beside PyTorch", cpu)
    if torch.cuda.is_available():
        gpu = [Trial(name, options.shape, "float16", "cuda", calls=20) for name in (KERNEL, SDPA, UNFUSED)]
        results |= compete(console, f"The kernel on {torch.cuda.get_device_name()}, beside PyTorch", gpu)
    return closing_line(console, results)


def check_kernel(console: Console) -> Results:
    """Run the generated kernel through TileLang's C target, and say how far it is from the definition."""
    trial = Trial(KERNEL, SMALL)
    outcome = measure_apart(trial)
    told = outcome.reason if isinstance(outcome, Failure) else f"error {outcome.error:.1e}"
    print_text(console, f"The kernel on this CPU, {SMALL}, {trial.dtype}: {told}")
    return {trial: outcome}


def save_kernel(console: Console, fused: Fused, options: Options) -> None:
    """Write the generated TileLang program, and say where it is."""
    options.kernel.parent.mkdir(parents=True, exist_ok=True)
    path = fused.save(options.kernel, TARGET, sizes=options.shape.sizes, dtypes="float16")
    console.print()
    print_text(console, f"The TileLang kernel for {TARGET}, {options.shape}, float16:\n  {path}")


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
    rows = Table(title=f"{first.shape}, {first.dtype}", title_justify="left", title_style="none", box=box.SIMPLE_HEAD)
    rows.add_column("", no_wrap=True)
    for heading in ("error", "peak memory", "time"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for trial, outcome in results.items():
        rows.add_row(trial.contestant, *result_cells(outcome))
    return rows


def result_cells(outcome: Outcome) -> Iterable[str]:
    """A row's cells, from the error on."""
    if isinstance(outcome, Failure):
        return "failed", "", ""
    return f"{outcome.error:.1e}", f"{outcome.peak_bytes / MIB:.1f} MiB", time_text(1e6 * outcome.seconds)


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
    console.print(LEGEND, style="dim", highlight=False)
    for complaint in found:
        console.print(f"[red]{escape(complaint)}[/red]", highlight=False, soft_wrap=True)
    if not found:
        console.print("All errors are within their bounds.", style="green", highlight=False)
    console.print(MORE, highlight=False)
    return int(bool(found))
