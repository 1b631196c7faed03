"""Compile the kernels of the GPU tests in parallel, into TileLang's cache on disk: `python -m tests.warm [WORD …]`.

The tests then load them instead of compiling one after the other. With words: those whose names have one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from os import cpu_count

import torch

from redalg.runtime.compile.compile import compile_source
from tests.cases.kernels import CASES, cast, fused, problem, tensors_of
from tests.lower_tile.test_merging_gpu import MERGED, SEGMENTS, fresh, plan_of
from tests.strategies.test_varying_gpu import FORMS, SIZES, sources

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


Job = tuple[int | str, int | str]


def jobs(words: Sequence[str]) -> Iterator[Job]:
    """(case, dtype) by number; (what is merged in the launch, segments); (what is called at many sizes, which)."""

    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    yield from ((name, calls) for name in FORMS for calls in SIZES if wanted(name))
    yield from ((name, segments) for name in MERGED for segments in SEGMENTS if wanted(name))
    cases = [place for place, one in enumerate(CASES) if wanted(one.name)]
    yield from ((case, dtype) for case in cases for dtype in range(len(DTYPES)))


def warm(job: Job) -> str:
    """Compile one (of what is called at many sizes, all); gives back what went wrong, if anything."""
    first, second = job
    name = str(first)
    try:
        if isinstance(second, str):
            for source in sources(name, second, "sm_90a"):
                compile_source(source)
        elif isinstance(first, str):
            merged(first, second)
        else:
            name = f"{CASES[first].name}, {DTYPES[second]}"
            chosen(first, DTYPES[second])
    except Exception as error:  # noqa: BLE001 - reported, and met again by the test itself
        return f"{name}: {type(error).__name__}: {str(error)[-300:]}"
    return ""


def chosen(case: int, dtype: torch.dtype) -> None:
    """A case by the plan that is chosen."""
    one = CASES[case]
    form = fused(one.form)
    form.compile("sm_90a", **problem(form, cast(tensors_of(one), dtype), one.sizes), empty=one.empty)


def merged(name: str, segments: int) -> None:
    """Parts that are merged in the launch."""
    one, form = MERGED[name], fused(MERGED[name].form)
    tensors = fresh(one, torch.Generator().manual_seed(0))
    form.compile("sm_90a", **problem(form, tensors), plan=plan_of(one, segments, "sm_90a", tensors))


def main() -> int:
    """Compile all; report failures."""
    wanted = list(jobs(sys.argv[1:]))
    with get_context("spawn").Pool(cpu_count()) as pool:
        failures = [line for line in pool.imap_unordered(warm, wanted) if line]
    sys.stdout.write("\n".join([*failures, f"{len(wanted) - len(failures)} kernels compiled"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
