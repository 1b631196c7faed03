"""Rows run: redalg and its peers on the same inputs in one process, each checked before it is timed."""

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from os import cpu_count

import torch

from benchmarks.family import Contestant, Family, Row, Tensors
from benchmarks.timing import Timing, input_sets, measure
from redalg.errors import RedalgError
from redalg.runtime.call.sizes import lower
from redalg.runtime.lowering import choose_library_for, lower_passes
from redalg.runtime.unfused.unfused import Unfused

OWN = "redalg"
DOCSTRING = re.compile(r'^(?:"""|\'\'\').*?(?:"""|\'\'\')', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Measurement:
    """One contestant on one row: its error, and its time unless it is wrong or does not run."""

    error: float | None
    timing: Timing | None
    failure: str = ""


@dataclass(frozen=True)
class Result:
    """One row: the hash of what runs for it (None: it does not lower), and every contestant's measurement."""

    row: Row
    source_sha256: str | None
    measurements: dict[str, Measurement]


def bench(
    family: Family,
    rows: Sequence[Row],
    target: str,
    device: torch.device,
    track: Callable[[Sequence[Row]], Iterable[Row]],
) -> list[Result]:
    """Measure the rows; `track` wraps them to show progress."""
    if target != "c":
        compile_all(family, rows, target)
    return [run(family, row, target, device) for row in track(rows)]


def compile_all(family: Family, rows: Iterable[Row], target: str) -> None:
    """Compile the kernels of all rows at once: the compilers are processes of their own, so threads suffice.

    A row that does not compile fails again, and is reported, when it is run.
    """
    with ThreadPoolExecutor(cpu_count()) as pool:
        for row in rows:
            pool.submit(family.fused(row).compile, sizes=row.sizes, dtypes=row.dtypes, shapes=row.shapes, target=target)


def run(family: Family, row: Row, target: str, device: torch.device) -> Result:
    """Measure one row; the inputs of all sets stay on the device for every contestant."""
    generator = torch.Generator(device).manual_seed(0)
    inputs = [family.inputs(row, generator) for _ in range(input_sets(row.in_bytes, device))]
    contestants = {OWN: family.fused(row), **family.peers(row, device)}
    measured = {name: compete(family, row, call, inputs, device) for name, call in contestants.items()}
    return Result(row, source_sha256(family, row, target), measured)


def compete(family: Family, row: Row, call: Contestant, inputs: Sequence[Tensors], device: torch.device) -> Measurement:
    """Check one contestant, then time it; what it raises is recorded, not raised, so that the others still run."""
    try:
        error, allowed = family.error(row, call(**inputs[0]), inputs[0]), family.tolerance(row)
        if not error <= allowed:
            return Measurement(error, None, f"wrong: error {error:.1e}, allowed {allowed:.1e}")
        return Measurement(error, measure([partial(call, **one) for one in inputs], device))
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measurement(None, None, f"{type(failure).__name__}: {failure}")


def source_sha256(family: Family, row: Row, target: str) -> str | None:
    """The hash of the last pass of a row, or of the unfused form where a call takes that; None for neither.

    Comments, layout and docstrings are left out of it.
    """
    fused = family.fused(row)
    try:
        plain = lower_passes(fused.passes, target, row.sizes, row.dtypes, choose_library_for, shapes=row.shapes)[-1]
        text = str(lower_passes(fused.passes, target, row.sizes, row.dtypes, lower, shapes=row.shapes)[-1].source)
    except RedalgError:
        return None
    text = plain.text if isinstance(plain, Unfused) else text if plain is None else f"{text}\n{str(plain.plan)!r}"
    return hashlib.sha256(program_text(text).encode()).hexdigest()


def program_text(text: str) -> str:
    """A source as Python reads it: without comments and layout, nor docstrings, which print versions and schedules."""
    return ast.unparse(ast.parse(DOCSTRING.sub("", text).lstrip("\n")))
