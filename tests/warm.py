"""Compile the kernels of the GPU tests in parallel, into TileLang's cache on disk: `python -m tests.warm`.

The tests then load them instead of compiling one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing import get_context
from os import cpu_count

import torch

from tests.kernel_cases import CASES, cast, fused, problem, tensors_of

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def jobs() -> Iterator[tuple[int, int]]:
    """(case, dtype) by number."""
    yield from ((case, dtype) for case in range(len(CASES)) for dtype in range(len(DTYPES)))


def warm(job: tuple[int, int]) -> str:
    """Compile one; gives back what went wrong, if anything."""
    case, dtype = CASES[job[0]], DTYPES[job[1]]
    tensors = cast(tensors_of(case), dtype)
    form = fused(case.form)
    try:
        form.compile("sm_90a", **problem(form, tensors, case.sizes), empty=case.empty)
    except Exception as error:  # noqa: BLE001 - reported, and met again by the test itself
        return f"{case.name}, {dtype}: {type(error).__name__}: {str(error)[-300:]}"
    return ""


def main() -> int:
    """Compile all; report failures."""
    with get_context("spawn").Pool(cpu_count()) as pool:
        failures = [line for line in pool.imap_unordered(warm, list(jobs())) if line]
    sys.stdout.write("\n".join([*failures, f"{len(list(jobs())) - len(failures)} kernels compiled"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
