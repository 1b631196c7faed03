"""Rows run: redalg and its peers on the same inputs in one process, each checked before it is timed.

What a row or a contestant raises is recorded, so that the others still run.
"""

import ast
import gc
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.ahead import compile_all
from benchmarks.family import Contestant, Family, Problem, Row, Tensors
from benchmarks.timing import SAMPLES, Timing, input_sets, measure
from redalg.errors import RedalgError
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowering import choose_library_for, lower_passes
from redalg.runtime.unfused.unfused import Unfused

OWN = "redalg"
DOCSTRING = re.compile(r'^(?:"""|\'\'\').*?(?:"""|\'\'\')', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Measurement:
    """One contestant on one row: its error, and its time unless it is wrong or does not run.

    `peak_bytes` is the most memory above the inputs that it takes at a time, with what is prepared; None on the CPU.
    """

    error: float | None
    timing: Timing | None
    failure: str = ""
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Result:
    """One row: the hash of what runs for it (None: it does not lower), and every contestant's measurement.

    `timed` says what part of a contestant's work was timed.
    """

    row: Row
    source_sha256: str | None
    measurements: dict[str, Measurement]
    timed: str


def bench(
    family: Family,
    rows: Sequence[Row],
    target: str,
    device: torch.device,
    track: Callable[[Sequence[Row]], Iterable[Row]],
) -> Iterator[Result]:
    """Measure the rows, one after another; `track` wraps them to show progress."""
    if target != "c":
        compile_all([problem for row in rows for problem in problems_of(family, row)], target)
    for row in track(rows):
        yield run(family, row, target, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()


def problems_of(family: Family, row: Row) -> tuple[Problem, ...]:
    """The functions of a row; none of a row that fails: it fails again, and is reported, when it runs."""
    try:
        return family.problems(row)
    except Exception:  # noqa: BLE001 - one row never ends the run
        return ()


def run(family: Family, row: Row, target: str, device: torch.device) -> Result:
    """Measure one row; the inputs of all sets stay on the device for every contestant."""
    try:
        measured, digest = contest(family, row, device), source_sha256(family, row, target)
    except Exception as failure:  # noqa: BLE001 - one row never ends the run
        measured, digest = {OWN: Measurement(None, None, f"the row: {said(failure)}")}, None
    return Result(row, digest, measured, family.timed(row))


def contest(family: Family, row: Row, device: torch.device) -> dict[str, Measurement]:
    """Every contestant's measurement; by events for all of a family that times `alike`, if a graph of one fails.

    On CUDA they are timed a second time from the last to the first, and the samples count together: a device's clock
    changes while it works, by more than close contestants differ.
    """
    generator = torch.Generator(device).manual_seed(0)
    inputs = [family.inputs(row, generator) for _ in range(input_sets(row.in_bytes, device))]
    contestants = {OWN: family.fused(row), **family.peers(row, device)}
    measured = {name: compete(family, row, call, inputs, device) for name, call in contestants.items()}
    methods = {name: one.timing.method for name, one in measured.items() if one.timing is not None}
    if family.alike and len(set(methods.values())) > 1:
        measured |= {name: compete(family, row, contestants[name], inputs, device, captured=False)
                     for name, method in methods.items() if method != "cuda events"}  # fmt: skip
    if device.type == "cuda":
        for name in reversed(contestants):
            measured[name] = time_again(measured[name], family, row, contestants[name], inputs)
    return measured


def time_again(
    measured: Measurement, family: Family, row: Row, call: Contestant, inputs: Sequence[Tensors]
) -> Measurement:
    """Add as many samples again to a measurement; one without a time stays as it is."""
    if (before := measured.timing) is None:
        return measured
    calls = [family.prepare(row, call, one) for one in inputs]
    again = measure(calls, torch.device("cuda"), SAMPLES // 2, captured=before.method == "cuda graph")
    if again.method != before.method:
        return measured
    return replace(measured, timing=replace(before, samples_us=(*before.samples_us, *again.samples_us)))


def compete(
    family: Family, row: Row, call: Contestant, inputs: Sequence[Tensors], device: torch.device, *,
    captured: bool = True,
) -> Measurement:  # fmt: skip
    """Check one contestant, then time it."""

    def once() -> Any:
        return family.prepare(row, call, inputs[0])()

    try:
        error = family.error(row, once(), inputs[0])
        if not error <= family.tolerance(row):
            return Measurement(error, None, f"wrong: error {error:.1e}, allowed {family.tolerance(row):.1e}")
        peak = peak_bytes(once, device)
        calls = [family.prepare(row, call, one) for one in inputs]
        samples = SAMPLES if device.type != "cuda" else SAMPLES // 2  # and as many again
        return Measurement(error, measure(calls, device, samples, captured=captured), peak_bytes=peak)
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measurement(None, None, said(failure))


def said(failure: Exception) -> str:
    return f"{type(failure).__name__}: {failure}"


def peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    """The most memory that a call takes at a time, above what is allocated before it."""
    if device.type != "cuda":
        return None
    gc.collect()  # graphs of others
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def source_sha256(family: Family, row: Row, target: str) -> str | None:
    """The hash of what runs for a row; None where a function of it has no derivative, or does not lower."""
    try:
        return sources_sha256(family.problems(row), target)
    except RedalgError:
        return None


def sources_sha256(problems: Iterable[Problem], target: str) -> str:
    """The hash of what runs for some functions, in order; comments, layout and docstrings are left out of it."""
    return texts_sha256(text_of(problem, target) for problem in problems)


def texts_sha256(texts: Iterable[str]) -> str:
    """The hash of sources in order, without what `program_text` leaves out."""
    return hashlib.sha256("\n".join(map(program_text, texts)).encode()).hexdigest()


def text_of(problem: Problem, target: str) -> str:
    """The last pass of a function, or of the unfused form where a call takes that."""
    function, sizes, dtypes, shapes = problem
    plain = lower_passes(function.passes, target, sizes, dtypes, choose_library_for, shapes=shapes)[-1]
    if isinstance(plain, Unfused):
        return plain.text
    text = str(lower_passes(function.passes, target, sizes, dtypes, lower, shapes=shapes)[-1].source)
    return text if plain is None else f"{text}\n{str(plain.plan)!r}"


def program_text(text: str) -> str:
    """A source as Python reads it: without comments and layout, nor docstrings, which print versions and schedules."""
    return ast.unparse(ast.parse(DOCSTRING.sub("", text).lstrip("\n")))
