"""Measurements on this machine: time and error of a subject, and the tuning of its plans."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from redalg import BackendError, InputError, RedalgError
from redalg.commands.shown import print_beside, read_subject
from redalg.commands.subject import Subject
from redalg.demo.printing import print_text, time_text
from redalg.expression import Axis
from redalg.runtime.tune.timing import measure

SMALL_WORK = 2**24
"""Elements of the longest loop nest on a CPU, where nobody gives sizes."""
LEGEND = """\
{}, median of {} calls; error: max|out - ref| / max|ref| beside float64;
GB/s: bytes of the tensors that are read, over the time"""
SAMPLES = {"cpu": 5, "cuda": 30}
Tensors = dict[str, Any]
Outputs = tuple[torch.Tensor, ...]


@final
@dataclass(frozen=True)
class Run:
    """The time of a call, its error beside float64, or the reason that it failed."""

    name: str
    microseconds: float = math.nan
    error: float = math.nan
    failure: str = ""
    outputs: Outputs = field(default=(), repr=False)


def bench_subject(console: Console, options: Namespace) -> int:
    """`redalg bench`: each backend on drawn tensors, beside the definition in float64."""
    subject = read_subject(options)
    device = chosen_device(options.device)
    sizes = benched_sizes(subject, device)
    tensors = draw(subject, sizes, device)
    runs: list[Run] = []
    with progress_line(console) as progress:
        for name, call in contestants(subject, tensors, sizes).items():
            task = progress.add_task(name)
            runs.append(time_contestant(name, call, runs[0].outputs if runs else None, device))
            progress.remove_task(task)
    arrays = [one for one in tensors.values() if isinstance(one, torch.Tensor)]
    dtypes = ", ".join(sorted({str(one.dtype).removeprefix("torch.") for one in arrays}))
    told = " ".join(f"{axis}={size}" for axis, size in sizes.items())
    print_text(console, f"{subject.name}, {told}, {dtypes}, {device_name(device)}")
    console.print(table_of(runs[1:] + runs[:1], sum(one.nbytes for one in arrays)))
    for run in runs:
        if run.failure:
            print_text(console, f"{run.name}: {run.failure}")
    where = "wall time" if device == "cpu" else "device time"
    print_text(console, LEGEND.format(where, SAMPLES[device]))
    return int(any(run.failure for run in runs))


def tune_subject(console: Console, options: Namespace) -> int:
    """`redalg tune`: measure plans on drawn tensors, and remember the fastest for calls like these."""
    subject = read_subject(options)
    device = chosen_device(options.device)
    sizes = benched_sizes(subject, device)
    found = subject.function.tune(budget_s=options.budget, sizes=missing_sizes(subject, sizes),
                               **draw(subject, sizes, device))  # fmt: skip
    table = found.table(options.most)
    print_text(console, f"{subject.name}, {table.title}\n     measured    predicted   of best  plan, or why it failed")
    for _, predicted, measured, ratio, plan in table.rows:
        print_beside(console, f"{measured:>10} µs {predicted:>9} µs {ratio:>9}  ", plan)
    print_text(console, table.note)
    if found.path:
        print_text(console, f"remembered in {found.path}")
    return 0 if found.best else 1


# ---- problems --------------------------------------------------------------------------------------------------------


def chosen_device(name: str | None) -> str:
    """`cuda` where there is one, unless the user says otherwise."""
    if name == "cuda" and not torch.cuda.is_available():
        raise BackendError("there is no CUDA device here: torch.cuda.is_available() is False. Leave --device out.")
    return name or ("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: str) -> str:
    """The device in words."""
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"


def benched_sizes(subject: Subject, device: str) -> dict[str, int]:
    """The subject's sizes; on a CPU smaller ones, of the axes whose size nobody gave."""
    sizes = dict(subject.all_sizes)
    free = [axis for axis in sizes if axis not in (subject.sizes or {})]
    while device == "cpu" and math.prod(sizes.values()) > SMALL_WORK:
        largest = max(free, key=sizes.__getitem__, default="")
        if not largest or sizes[largest] <= 16:
            break
        sizes[largest] //= 2
    return sizes


def draw(subject: Subject, sizes: Mapping[str, int], device: str) -> Tensors:
    """Tensors from 0.05 to 1, and integers that index: all start at the same seed."""
    generator = torch.Generator(device).manual_seed(0)
    fused = subject.function
    shapes = subject.pattern.tensor_shapes(sizes) if subject.pattern else {}
    dtypes = subject.dtypes("c" if device == "cpu" else "sm_90a")
    made: Tensors = {}
    for element in sorted(fused.cascade.elements(), key=str):
        name = element.name
        if name in dtypes and name not in made:
            shape = shapes.get(name) or plain_shape(element, sizes)
            made[name] = numbers(shape, dtypes[name], min(sizes.values()), generator)
    scalars = {one.name: 0.5 for one in fused.cascade.scalars()}
    return made | scalars


def plain_shape(element: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor whose indices are axes."""
    if not all(isinstance(index, Axis) for index in element.indices):
        raise InputError(f"the shape of {element.name} is not known, since {element} has an index that is no axis.")
    return tuple(index.size or sizes[str(index.name)] for index in element.indices)


def numbers(shape: tuple[int, ...], dtype: str, below: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers of one tensor."""
    device = generator.device
    if dtype == "int64":
        return torch.randint(0, max(below, 1), shape, generator=generator, device=device)
    made = torch.rand(shape, generator=generator, device=device) * 0.95 + 0.05
    return made.to(getattr(torch, dtype))


def missing_sizes(subject: Subject, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of axes that no tensor carries."""
    indices = {index for element in subject.function.cascade.elements() for index in element.indices}
    carried = {str(index.name) for index in indices if isinstance(index, Axis)}
    return {axis: size for axis, size in sizes.items() if axis not in carried}


# ---- runs ------------------------------------------------------------------------------------------------------------


def contestants(subject: Subject, tensors: Tensors, sizes: Mapping[str, int]) -> dict[str, Callable[[], Any]]:
    """The calls that are compared; the first is the definition, by which the others are judged."""
    fused, more = subject.function, missing_sizes(subject, sizes)
    return {
        "definition, float64": lambda: fused.reference(**tensors, sizes=more),
        "redalg, kernel": lambda: fused(**tensors, sizes=more, backend="tilelang"),
        "redalg, blocks": lambda: fused(**tensors, sizes=more, backend="torch"),
    }


def time_contestant(name: str, call: Callable[[], Any], reference: Outputs | None, device: str) -> Run:
    """One contestant, or the reason that it does not run."""
    try:
        out = call()
        outputs = tuple(map(torch.as_tensor, out if isinstance(out, tuple) else (out,)))
        error = largest_error(outputs, reference) if reference else math.nan
        return Run(name, measure([call], torch.device(device), SAMPLES[device]).median_us, error, outputs=outputs)
    except (RedalgError, RuntimeError) as failure:
        return Run(name, failure=str(failure))


def largest_error(found: Outputs, wanted: Outputs) -> float:
    """The largest error of the outputs, each beside its largest magnitude; NaN where one is not finite.

    >>> largest_error((torch.tensor([1.0, 2.0]),), (torch.tensor([1.0, 4.0]),))
    0.5
    """
    errors = [0.0]
    for output, reference in zip(found, wanted, strict=True):
        if output.numel():
            scale = float(reference.double().abs().max())
            errors.append(float((output.double() - reference.double()).abs().max()) / (scale or 1.0))
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def table_of(runs: list[Run], read_bytes: int) -> Table:
    """The runs as a table: time, bytes a second, error."""
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False)
    drawn.add_column("", no_wrap=True)
    for heading in ("time", "GB/s", "error"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        if run.failure:
            drawn.add_row(run.name, "failed")
        else:
            error = "" if math.isnan(run.error) else f"{run.error:.1e}"
            drawn.add_row(
                run.name, time_text(run.microseconds / 1e6), f"{read_bytes / run.microseconds / 1e3:.2f}", error
            )
    return drawn


def progress_line(console: Console) -> Progress:
    """A line on a terminal while something runs; nothing where the output is none."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not console.is_terminal)
