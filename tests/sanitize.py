"""Small kernels of every kind under compute-sanitizer: `python -m tests.sanitize [--tools memcheck …] [--out folder]`.

    warm    one process compiles every kernel into the cache on disk, several at once
    tool    processes under the tool find them there and launch each once; between the launches they say where they are
    table   kinds x tools: errors that the tool reported between a kind's marks, and whether the results are right

Inputs are drawn on the CPU and results are compared there, without PyTorch's caching allocator: every kernel that the
tool sees is redalg's, and an access beyond a tensor leaves what was allocated for it. Without a GPU or the tool nothing
is checked, and a line says so; `--dry` runs the same launches without a tool, on the CPU through the C target too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import redalg as ra
from benchmarks.environment import environment, target
from benchmarks.families.pairs import FORMS, derived
from benchmarks.families.pairs import row as pairs_row
from benchmarks.report import save
from redalg.library import chained_product, quantized_product
from redalg.runtime.call.kernels import kernel_for
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import CASES, cast, fused, problem, tensors_of, worst_error

TOOLS = ("memcheck", "racecheck")
OPTIONS = {"memcheck": ("--report-api-errors", "no"), "racecheck": ("--racecheck-report", "analysis")}
HALF, BFLOAT, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
BOUNDS = {DOUBLE: 1e-6, SINGLE: 1e-4, HALF: 1e-2, BFLOAT: 5e-2}
"""Of relative errors: that a kernel ran, not how near it is (`python -m benchmarks judge` says that)."""
BEGIN, DONE = "### begin ", "### done "
PROBLEM = re.compile(r"^=+ (?!.*SUMMARY)(?:Invalid|Error|Warning|Race|Potential|Program hit|Address|Uninitialized)")
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Small:
    """One launch: a kind of kernel, a function, its tensors, and what is changed in the plan that would be chosen."""

    kind: str
    name: str
    form: Callable[[], ra.Fused]
    tensors: Callable[[], Mapping[str, torch.Tensor]]
    dtype: torch.dtype
    plan: Mapping[str, Any] = field(default_factory=dict)
    empty: str = "nan"
    sizes: Mapping[str, int] = field(default_factory=dict)


LAUNCH = {"merge": "launch", "warp_specialized": False, "splits": 1}
LOADING = {"merge": "launch", "warp_specialized": True, "stages": 2}
OF_CASES: dict[str, tuple[torch.dtype, dict[str, Any], tuple[str, ...]]] = {
    "single segment, float16": (HALF, {}, ("ragged, d ≠ e", "one of everything", "width 80", "width 256", "causal")),
    "single segment, bfloat16": (BFLOAT, {}, ("ragged, d ≠ e", "odd widths", "width 192, values of 128")),
    "single segment, float32": (SINGLE, {}, ("ragged, d ≠ e", "causal, more keys", "centred product", "covariance")),
    "three warpgroups": (HALF, {"block_row": 192, "block_streamed": 128, "threads": 384, "stages": 2,
                                "warp_specialized": True}, (
        "ragged, d ≠ e", "width 80", "causal", "lengths", "sinks", "linear bias", "soft cap")),
    "masks": (HALF, {}, (
        "boolean mask", "masked row, zero", "additive mask", "window", "window behind the keys", "band", "lengths",
        "no length", "spans", "sinks", "linear bias", "soft cap", "statistics")),
    "shared heads": (HALF, {}, ("shared heads", "one shared head, one query", "shared heads, causal")),
    "pages": (HALF, {}, ("pages of 4", "pages of 64")),
    "segments and merge, products": (HALF, {"segments": 3}, (
        "one query", "causal", "lengths", "shared heads", "pages of 64", "latent")),
    "segments and merge, rows": (SINGLE, {"segments": 3, "level": "block", "block_streamed": 128}, (
        "rows", "weighted variance", "inertia", "cross_entropy")),
    "merged in the launch, products": (HALF, {"segments": 3, "stages": 1, **LAUNCH}, (
        "one query", "ragged, d ≠ e", "causal", "shared heads", "latent", "routing")),
    "merged in the launch, loading warps": (HALF, {"segments": 3, **LOADING}, ("one query", "latent")),
    "merged in the launch, columns": (HALF, {"segments": 3, "stages": 1, "block_column": 64, **LAUNCH}, (
        "centred product",)),
    "merged in the launch, rows": (SINGLE, {"segments": 3, "level": "block", "block_streamed": 128, **LAUNCH}, (
        "rows", "weighted variance", "softmax", "best of rows")),
    "latent": (HALF, {}, ("latent", "latent, one of everything", "latent, wide")),
    "inner loop": (HALF, {}, ("long inner axis", "long inner axis, transposed", "routing, long tokens")),
    "split contraction": (HALF, {"splits": 2, "block_inner": 32}, ("routing", "routing, long tokens")),
    "selection": (SINGLE, {}, (
        "best of rows", "20 best of rows", "rows and their best", "argmax of equal numbers", "argmax and maximum")),
    "selection in segments": (SINGLE, {"segments": 3}, ("best of rows", "20 best of rows")),
    "selection of doubles": (DOUBLE, {}, ("best of rows of doubles", "20 best of rows of doubles")),
    "selection of doubles, merged in the launch": (DOUBLE, {"segments": 3, **LAUNCH}, ("best of rows of doubles",)),
    "stages": (SINGLE, {}, ("what keys are given", "shares of all", "norm of attention")),
    "routing": (HALF, {}, ("routing", "routing to one")),
    "rows": (SINGLE, {}, ("rows", "logsumexp", "variance", "weighted mean", "inertia", "cross_entropy", "any")),
    "lane by lane": (SINGLE, {}, ("first", "last", "prod, of which parts overflow")),
    "lane by lane, merged": (SINGLE, {"segments": 3}, ("compensated, 1e8 of both signs", "last")),
    "lane by lane, merged in the launch": (SINGLE, {
        "segments": 3, "level": "thread", "block_streamed": 128, **LAUNCH}, ("argmax of equal numbers", "first")),
    "thread level": (SINGLE, {"level": "thread"}, ("rows", "weighted variance")),
    "carried outputs": (SINGLE, {}, ("softmax", "masked softmax, zero", "log_softmax", "layer_norm", "rms_norm")),
    "rows that meet at one barrier": (BFLOAT, {"level": "row", "block_row": 2, "block_streamed": 1024, "threads": 64}, (
        "softmax", "layer_norm", "rms_norm")),
    "carried outputs, bfloat16": (BFLOAT, {}, ("softmax", "layer_norm", "weights and mean")),
}  # fmt: skip

OF_LONG_ROWS: dict[str, tuple[torch.dtype, dict[str, Any], int, tuple[str, ...]]] = {
    "two blocks beside each other": (BFLOAT, {"block_streamed": 16384, "threads": 512}, 16_000, (
        "layer_norm", "softmax")),
    "whole rows in turns": (SINGLE, {"block_row": 1, "block_streamed": 2048, "threads": 64}, 2000, (
        "softmax", "layer_norm")),
    "warps that meet at one barrier": (BFLOAT, {"block_streamed": 4096, "threads": 128}, 4000, (
        "softmax", "layer_norm", "rms_norm")),
}  # fmt: skip
"""Whole rows, by their length: a tile is not mostly empty."""


def smalls(words: Sequence[str] = ()) -> list[Small]:
    """Every launch, in order; with words, of the kinds whose names have one of them."""
    return [one for one in every() if not words or any(word in one.kind for word in words)]


def every() -> Iterator[Small]:
    known = {one.name: one for one in CASES}
    for kind, (dtype, plan, names) in OF_CASES.items():
        for name in names:
            one = known[name]
            yield Small(kind, name, partial(fused, one.form), partial(tensors_of, one), dtype, plan, one.empty,
                        one.sizes)  # fmt: skip
    for kind, (dtype, plan, length, names) in OF_LONG_ROWS.items():
        for name in names:
            tensors = partial(long_rows, name, length)
            yield Small(kind, name, partial(fused, name), tensors, dtype, {"level": "row", "segments": 1, **plan})
    for words, options in QUANTIZED.items():
        yield Small("8-bit floats", words, partial(quantized_product, **options), quantized, HALF)
    yield Small("products of products", "one kernel", chained_product, chained, BFLOAT)
    for words, plan in STAYING.items():
        yield Small("blocks that stay", words, partial(fused, "attention"), heads, HALF, {"persistent": 1, **plan})
    yield Small("blocks that stay", "rows", partial(fused, "softmax"), rows, SINGLE, {"persistent": 1})
    for use in FORMS:
        yield Small("rows on lanes", use, partial(derived, use), partial(points, use), SINGLE)
    for name, shapes in {"variance": (1500, 300), "variance of few": (5000, 12)}.items():
        yield Small("lanes along columns", name, partial(narrow, "columns"), partial(normal, x=shapes), SINGLE)
    for name, shape in NARROW_SHAPES.items():
        yield Small("narrow", name, partial(narrow, name), partial(normal, **shape), SINGLE)
    yield Small("narrow", "a best of parts", partial(narrow, "a best each"), partial(normal, x=(6, 5000)), SINGLE,
                {"segments": 3})  # fmt: skip
    yield Small("stretches", "statistics of channels", channels, images, HALF)
    for queries in (70, 33):
        yield Small("run-time sizes", f"{queries} queries", runs, partial(drawn, queries), HALF)


QUANTIZED: dict[str, dict[str, Any]] = {
    "online": {}, "power of two": {"power_of_two": True}, "two passes": {"exact": True}
}  # fmt: skip
STAYING: dict[str, dict[str, Any]] = {
    "products": {"stages": 2, "warp_specialized": False},
    "loading warps": {"stages": 2, "warp_specialized": True, "threads": 128, "block_row": 64, "block_streamed": 64},
    "parts": {"stages": 1, "segments": 2, "warp_specialized": False},
}
"""More tiles than there are blocks, on any card."""
RUNS = ra.fuse(ra.sum(ra.softmax(ra.sum(ra.tensor("Q[h,q,d]") * ra.tensor("K[h,k,d]"), ra.axes("d")), ra.axes("k"))
                      * ra.tensor("K[h,k,e]"), ra.axes("k")), axes="h q e")  # fmt: skip
"""Keys that are values too; other sizes of a form met before take its kernel of run-time sizes."""


N, X = ra.axes("n"), ra.tensor("x[b,n]")
NARROW = {
    "columns": ra.fuse(ra.var(ra.tensor("x[n,c]"), N), axes="c"),
    "a best each": ra.fuse({"at": (ra.argmax(X, N), "b"), "best": (ra.max(X, N), "b")}),
    "weighed columns": ra.fuse(ra.sum(ra.softmax(X, N) * ra.tensor("y[b,n,c]"), N), axes="b c"),
    "a thread a row": ra.fuse({
        "a": (ra.mean((X - ra.mean(X, N)) ** 4, N), "b"), "b": (ra.max(X, N), "b"), "c": (ra.min(X, N), "b"),
        "d": (ra.logsumexp(X, N), "b"), "e": (ra.var(X, N), "b"),
    }),
}  # fmt: skip
"""Lanes along columns, as neighbours in memory are; lanes that keep a best each; a maximum for many columns; threads
that take a row each, which many rows of no power of two have."""
NARROW_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "a best each": {"x": (6, 5000)}, "weighed columns": {"x": (3, 130), "y": (3, 130, 70)},
    "a thread a row": {"x": (34_000, 45)},
}  # fmt: skip


CHANNELS = ra.fuse(ra.var(ra.tensor("x[b,c,s]"), ra.axes("b s")), axes="c")
"""A channel's elements lie in stretches, one for every image."""


def runs() -> ra.Fused:
    return RUNS


def long_rows(name: str, length: int) -> dict[str, torch.Tensor]:
    """Five rows, and the gain and bias that a function of them reads."""
    own = {one.name for one in fused(name).cascade.elements()}
    shapes = {"x": (5, length), "G": (length,), "B": (length,)}
    return normal(**{key: shape for key, shape in shapes.items() if key in own})


def narrow(name: str) -> ra.Fused:
    return NARROW[name]


def normal(**shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    g = generator()
    return {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}


def channels() -> ra.Fused:
    return CHANNELS


def images() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(64, 24, 784, generator=generator())}


def points(use: str) -> dict[str, torch.Tensor]:
    """Targets, sources and weights of a sum over pairs, of which neither fills its blocks."""
    g, row = generator(), pairs_row(use, 300, 1025)
    return {name: torch.randn(shape, generator=g) for name, shape in row.shapes.items()}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def drawn(queries: int) -> dict[str, torch.Tensor]:
    g = generator()
    return {"Q": torch.randn(2, queries, 32, generator=g), "K": torch.randn(2, 200, 32, generator=g)}


def quantized() -> dict[str, torch.Tensor]:
    g = generator()
    W = (50 * torch.randn(80, 200, generator=g)).to(torch.float8_e4m3fn)
    return {"x": torch.randn(70, 200, generator=g), "W": W, "w": torch.rand(80, generator=g)}


def heads() -> dict[str, torch.Tensor]:
    g = generator()
    return {"Q": torch.randn(8, 40, 64, 32, generator=g), "K": torch.randn(8, 40, 128, 32, generator=g),
            "V": torch.randn(8, 40, 128, 32, generator=g)}  # fmt: skip


def rows() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(500, 300, generator=generator())}


def chained() -> dict[str, torch.Tensor]:
    g = generator()
    return {"A": torch.randn(2, 70, 64, generator=g), "B": torch.randn(2, 64, 90, generator=g),
            "D": torch.randn(2, 90, 40, generator=g)}  # fmt: skip


# ---- one launch ------------------------------------------------------------------------------------------------------


def given(one: Small) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, 8-bit floats as they are."""
    made = dict(one.tensors())
    narrow = {name: array for name, array in made.items() if array.element_size() == 1}
    return cast({name: array for name, array in made.items() if name not in narrow}, one.dtype) | narrow


def plan_of(one: Small, tensors: Mapping[str, torch.Tensor], chip: str) -> Any:
    """The changed plan; None where it is the one that a call chooses."""
    if not one.plan:
        return None
    chosen = one.form().lower(chip, **problem(one.form(), tensors, one.sizes), empty=one.empty).plan
    return with_choices(chosen, **one.plan)


def warm(one: Small, chip: str) -> str:
    """Compile what a launch takes; gives back what went wrong."""
    try:
        tensors = given(one)
        known = problem(one.form(), tensors, one.sizes)
        one.form().compile(chip, **known, empty=one.empty, plan=plan_of(one, tensors, chip))
        if one.kind == "run-time sizes":
            kernel_for(one.form().lower(chip, **known, varying=("h", "q")))
    except Exception as failure:  # noqa: BLE001 - met again by the launch itself
        return f"{one.kind}, {one.name}: {type(failure).__name__}: {failure}"[:300]
    return ""


def launch(one: Small, device: str, chip: str) -> str:
    """Run once; gives back what is wrong with the result, or that it is right."""
    try:
        tensors, form = given(one), one.form()
        there = {name: array.to(device) for name, array in tensors.items()}
        made = form(**there, backend="tilelang", plan=plan_of(one, tensors, chip), empty=one.empty, sizes=one.sizes)
        if device == "cuda":
            torch.cuda.synchronize()
        made = made.cpu() if isinstance(made, torch.Tensor) else type(made)(*(part.cpu() for part in made))
        wanted = form.reference(**tensors, sizes=one.sizes)
        bound = 0.1 if one.kind == "8-bit floats" else BOUNDS[one.dtype]
        error = worst_error(made, wanted, one.empty)
    except Exception as failure:  # noqa: BLE001 - one launch never ends the run
        return f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
    return "right" if error <= bound else f"wrong by {error:.1e}"


def launches(device: str, chip: str, listed: Sequence[Small], share: slice) -> None:
    """What runs under the tool: a share of the launches between two marks each, kernels found on disk beforehand."""
    own = [*enumerate(listed)][share]
    for _, one in own:
        warm(one, chip)
    for place, one in own:
        say(f"{BEGIN}{place}")
        say(f"{DONE}{place} {launch(one, device, chip)}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# ---- the runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """One launch under one tool: how many errors were reported, and what came of the result (empty: it never ran)."""

    errors: int = 0
    result: str = ""


def read(text: str, number: int) -> tuple[list[Outcome], int, int]:
    """(outcomes of launches, errors reported outside of all, the tool's own total: -1 where it gave none)."""
    made, outside, total, here = [Outcome()] * number, 0, -1, None
    for line in text.splitlines():
        if line.startswith(BEGIN):
            here = int(line.removeprefix(BEGIN))
        elif line.startswith(DONE):
            place, result = line.removeprefix(DONE).split(" ", 1)
            made[int(place)] = replace(made[int(place)], result=result)
            here = None
        elif found := SUMMARY.search(line):
            total = int(found[2])
        elif PROBLEM.search(line) and here is None:
            outside += 1
        elif PROBLEM.search(line) and here is not None:
            made[here] = replace(made[here], errors=made[here].errors + 1)
    return made, outside, total


def read_all(texts: Sequence[str], number: int) -> tuple[list[Outcome], int, int]:
    """What `read` finds in the texts of processes that share the launches; the total is −1 where one gave none."""
    outcomes, outside, totals = zip(*(read(text, number) for text in texts), strict=True)
    together = [Outcome(sum(one.errors for one in shared), "".join(one.result for one in shared))
                for shared in zip(*outcomes, strict=True)]  # fmt: skip
    return together, sum(outside), -1 if min(totals) < 0 else sum(totals)


def sanitizer() -> str | None:
    """The tool's path."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders += [Path("/usr/local/cuda/bin"), *Path(torch.__file__).parents[1].glob("nvidia/*/bin")]
    found = (shutil.which("compute-sanitizer", path=str(one)) for one in folders)
    return shutil.which("compute-sanitizer") or next((one for one in found if one), None)


def run(command: Sequence[str], seconds: int) -> str:
    """Everything that a process says, also when it is stopped."""
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TILELANG_PRINT_ON_COMPILATION": "0"}
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
                              check=False)  # fmt: skip
        return done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace") + f"\nstopped after {seconds} s\n"


def table(listed: Sequence[Small], runs: Mapping[str, list[Outcome]]) -> Table:
    """A line a kind: for each tool its errors, and launches whose result is right."""
    made = Table(title="small kernels of every kind")
    made.add_column("kind")
    made.add_column("launches", justify="right")
    for tool in runs:
        made.add_column(f"{tool}: errors", justify="right")
        made.add_column("right", justify="right")
    for kind in dict.fromkeys(one.kind for one in listed):
        places = [place for place, one in enumerate(listed) if one.kind == kind]
        figures = []
        for outcomes in runs.values():
            here = [outcomes[place] for place in places]
            figures += [str(sum(one.errors for one in here)), str(sum(one.result == "right" for one in here))]
        made.add_row(kind, str(len(places)), *figures)
    return made


def problems(listed: Sequence[Small], tool: str, outcomes: list[Outcome]) -> list[str]:
    """Launches that are not clean, with what is known."""
    return [
        f"{tool}: {one.kind}, {one.name}: {outcome.errors} errors; {outcome.result or 'it did not run to its end'}"
        for one, outcome in zip(listed, outcomes, strict=True)
        if outcome.errors or outcome.result != "right"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument(
        "--kinds", nargs="+", default=[], metavar="WORD", help="those whose names have one of the words"
    )
    parser.add_argument("--dry", action="store_true", help="launch without a tool")
    parser.add_argument("--seconds", type=int, default=270, help="after which a tool is stopped")
    parser.add_argument("--out", type=Path, help="the folder that sanitize.json and the tools' words are written into")
    parser.add_argument("--workers", type=int, default=1, help="how many processes under a tool share the launches")
    parser.add_argument("--launch", type=int, metavar="FIRST", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.launch is not None:
        launches(device, target(), smalls(options.kinds), slice(options.launch, None, options.workers))
        return 0
    tool = sanitizer()
    if not options.dry and (device == "cpu" or tool is None):
        missing = "no CUDA device" if device == "cpu" else "no compute-sanitizer (it comes with the CUDA toolkit)"
        say(f"skipped: there is {missing} here, so nothing was checked. `--dry` launches the kernels without a tool.")
        return 0
    return checked([None] if options.dry else options.tools, tool, options)


def checked(tools: Sequence[str | None], tool: str | None, options: argparse.Namespace) -> int:
    """Warm, run, show, write; 1 where anything is not clean."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    listed = smalls(options.kinds)
    with ThreadPoolExecutor(1 if target() == "c" else os.cpu_count()) as pool:
        for line in filter(None, pool.map(lambda one: warm(one, target()), listed)):
            console.print(f"not compiled: {line}", markup=False)
    kinds = ["--kinds", *options.kinds] if options.kinds else []
    own = [sys.executable, "-m", "tests.sanitize", "--workers", str(options.workers), *kinds, "--launch"]
    runs, wrong, words = dict[str, list[Outcome]](), list[str](), dict[str, str]()
    for name in tools:
        shown = name or "no tool"
        command = own if name is None else [str(tool), "--tool", name, *OPTIONS[name], "--print-limit", "1000", *own]
        commands = [[*command, str(first)] for first in range(options.workers)]
        with ThreadPoolExecutor(options.workers) as pool:
            texts = list(pool.map(lambda one: run(one, options.seconds), commands))
        words[shown] = "".join(texts)
        runs[shown], outside, total = read_all(texts, len(listed))
        wrong += problems(listed, shown, runs[shown])
        if name is not None and total != 0:
            said = f"{total} in all" if total > 0 else "no summary: " + words[shown][-300:]
            wrong.append(f"{shown}: {outside} errors outside of all launches; {said}")
    console.print(table(listed, runs))
    for line in wrong:
        console.print(line, style="red", markup=False)
    write(options.out, listed, runs, wrong, words)
    return int(bool(wrong))


def write(
    out: Path | None, listed: Sequence[Small], runs: Mapping[str, list[Outcome]], wrong: list[str],
    words: Mapping[str, str],
) -> None:  # fmt: skip
    """The outcomes as JSON, and what each tool said."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    rows = [{"kind": one.kind, "name": one.name, "dtype": str(one.dtype).removeprefix("torch."),
             "plan": dict(one.plan), "tools": {tool: asdict(found[place]) for tool, found in runs.items()}}
            for place, one in enumerate(listed)]  # fmt: skip
    content = {"benchmark": "sanitize", "environment": environment(), "rows": rows, "wrong": wrong}
    save(out / "sanitize.json", content)
    for tool, text in words.items():
        (out / f"sanitize_{tool.replace(' ', '_')}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
