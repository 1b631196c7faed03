"""The cost of a call beside its kernel: `python -m benchmarks run calls`.

steady     host time of a call of a known kind, on so few numbers that the kernel is nothing
processes  from `fuse` to the first result, in a process that compiles and in one that finds the kernel on disk
varying    device time of a kernel of constant sizes and of those whose sizes are run-time ones, at the same sizes
changing   calls whose sizes change: errors, and how many kernels served them
large      tensors of more than 2^31 elements
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import torch

import redalg as ra
from benchmarks.environment import device, environment, target
from benchmarks.report import save
from benchmarks.timing import host_time_us, measure
from redalg.library import attention, variance
from redalg.runtime.bind.inputs import bind
from redalg.runtime.call import kernels
from redalg.strategies.table import Table

k, q = ra.axes("k q")
FORMS: dict[str, Callable[[], ra.Fused]] = {
    "attention": attention,
    "causal": lambda: attention(mask=k <= q),
    "variance": variance,
}
FREE, ALL = ("b", "h", "q"), ("b", "h", "q", "k")
LAST = 2  # rows of a large tensor's end that are checked


@dataclass(frozen=True)
class Problem:
    """One kernel to time."""

    name: str
    form: str
    sizes: Mapping[str, int]
    dtype: str

    def dtypes(self) -> dict[str, str]:
        return dict.fromkeys(FORMS[self.form]().cascade.inputs(), self.dtype)


def attended(b: int, h: int, q: int, k: int, d: int) -> dict[str, int]:
    return {"b": b, "h": h, "q": q, "k": k, "d": d, "e": d}


GPU = (
    Problem("d 64", "attention", attended(32, 16, 512, 512, 64), "float16"),
    Problem("d 128", "attention", attended(4, 16, 4096, 4096, 128), "float16"),
    Problem("causal", "causal", attended(4, 16, 1000, 1000, 64), "float16"),
    Problem("one query", "attention", attended(1, 8, 1, 65536, 128), "float16"),
    Problem("batch of one query", "attention", attended(64, 32, 1, 4096, 128), "float16"),
)
CPU = (Problem("small", "attention", attended(1, 2, 100, 500, 32), "float32"),)
CHANGING = ((2, 4, 128, 128), (3, 4, 128, 128), (2, 4, 77, 513), (1, 2, 1, 1), (1, 1, 1, 4000), (2, 3, 200, 64),
            (4, 4, 1, 33), (2, 4, 1000, 1), (1, 4, 65, 1025))  # fmt: skip
CHANGED = (("attention", 64), ("attention", 128), ("causal", 64))
LARGE = (
    ("variance", {"b": 70_000, "n": 32_768}, "float16"),
    ("attention", attended(130, 8, 1, 16_384, 128), "float16"),
    ("attention", attended(260, 8, 1, 16_384, 64), "bfloat16"),
)
PROCESS = """
import json, sys, time
import torch
torch.zeros(1, device=sys.argv[1])
now = time.perf_counter
a = now(); import redalg; from redalg.library import attention; b = now()
one = attention(); c = now()
given = {x: torch.randn(2, 8, 512, 64, device=sys.argv[1]).to(getattr(torch, sys.argv[2])) for x in "QKV"}
d = now(); import tilelang; e = now()
one(**given, backend="tilelang")
torch.cuda.synchronize() if sys.argv[1] == "cuda" else None
f = now()
print(json.dumps({"import redalg": b - a, "fuse": c - b, "import tilelang": e - d, "first call": f - e,
                  "fuse to result": c - b + f - d}))
"""


def drawn(form: ra.Fused, sizes: Mapping[str, int], dtype: str) -> dict[str, Any]:
    """Random tensors; large ones are drawn in place."""
    shapes = {one.name: tuple(sizes[str(index)] for index in one.indices) for one in form.cascade.elements()}
    return {name: torch.empty(shape, dtype=getattr(torch, dtype), device=device()).normal_()
            for name, shape in shapes.items()}  # fmt: skip


def error(out: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((out.double() - wanted.double()).abs().max() / wanted.double().abs().max())


def steady() -> dict[str, float]:
    """Microseconds of the host, by what is called."""
    dtype = "float16" if target() != "c" else "float32"
    form = attention()
    given: dict[str, Any] = {name: torch.randn(1, 1, n, 16, device=device(), dtype=getattr(torch, dtype))
             for name, n in (("Q", 1), ("K", 4), ("V", 4))}  # fmt: skip
    rows = ra.fuse(ra.logsumexp(ra.tensor("x[b,n]"), ra.axes("n")))
    x = torch.randn(4, 64, device=device())
    calls = {
        "attention": partial(form, **given, backend="tilelang"),
        "logsumexp": partial(rows, x=x, backend="tilelang"),
        "torch.logsumexp": partial(torch.logsumexp, x, 1),
        "torch SDPA": partial(torch.nn.functional.scaled_dot_product_attention, *(given[name] for name in "QKV")),
    }
    return {name: host_us(call) for name, call in calls.items()}


def host_us(call: Callable[[], object]) -> float:
    """The median time until a call returns to the host."""
    for _ in range(5):
        call()
    if device().type == "cuda":
        return host_time_us([call])
    return measure([call], device()).median_us


def processes() -> dict[str, dict[str, float]]:
    """Seconds, in a process that compiles and in the next."""
    dtype = "float16" if target() != "c" else "float32"
    with tempfile.TemporaryDirectory() as folder:
        known = {**os.environ, "REDALG_CACHE_DIR": folder, "TILELANG_CACHE_DIR": f"{folder}/tilelang"}
        command = [sys.executable, "-c", PROCESS, device().type, dtype]
        texts = [
            subprocess.run(command, env=known, check=True, capture_output=True, text=True).stdout for _ in range(3)
        ]
    cold, *warm = (json.loads(text.strip().splitlines()[-1]) for text in texts)
    return {"compiles": cold, "finds it on disk": min(warm, key=lambda one: float(one["fuse to result"]))}


def jobs(parts: Collection[str]) -> Iterator[tuple[str, dict[str, int], str, tuple[str, ...]]]:
    """Everything that is compiled, to be compiled at once."""
    for problem in GPU if target() != "c" else CPU:
        yield from ((problem.form, dict(problem.sizes), problem.dtype, varying) for varying in ((), FREE, ALL))
    if target() == "c":
        return
    yield from ((form, sizes, dtype, ()) for form, sizes, dtype in (LARGE if "large" in parts else ()))
    seen = set()
    for (form, width), (place, (b, h, nq, nk)) in product(CHANGED, enumerate(CHANGING)):
        job = (form, attended(b, h, nq, nk, width), "float16", ((), FREE, ALL)[min(place, 2)])
        source = FORMS[form]().source(target(), sizes=job[1], dtypes="float16", varying=job[3])
        text = source[source.index("# ---- binding") : source.index("def compiled")]
        if text not in seen:
            yield job
        seen.add(text)


def warm(job: tuple[str, dict[str, int], str, tuple[str, ...]]) -> str:
    form, sizes, dtype, varying = job
    try:
        FORMS[form]().compile(target(), sizes=sizes, dtypes=dtype, varying=varying)
    except Exception as failure:  # noqa: BLE001 - reported, and met again when it is run
        return f"{job}: {type(failure).__name__}: {failure}"[:300]
    return ""


def varying() -> list[dict[str, Any]]:
    """Device time of the kernels of constant and of run-time sizes."""
    return [timed(one, names) for one in (GPU if target() != "c" else CPU) for names in ((), FREE, ALL)]


def timed(problem: Problem, names: tuple[str, ...]) -> dict[str, Any]:
    form = FORMS[problem.form]()
    tensors = drawn(form, problem.sizes, problem.dtype)
    lowered = form.lower(target(), problem.sizes, problem.dtypes(), varying=names)
    bound = bind(form.cascade, tensors)
    recipe = kernels.recipe_of(lowered, kernels.kernel_for(lowered), bound, tensors)
    out = recipe.launch(tensors, [])["out"]
    timing = measure([partial(recipe.launch, tensors, [])], device())
    return {"name": problem.name, "varying": " ".join(names), "plan": str(lowered.plan), "median_us": timing.median_us,
            "method": timing.method, "error": error(out, form.reference(**tensors))}  # fmt: skip


def changing() -> list[dict[str, Any]]:
    """Calls of changing sizes, of two dtypes of arithmetic where the device has both."""
    found = []
    for name, width in CHANGED:
        form, before = FORMS[name](), len(kernels._KERNELS)
        worst: dict[str, float] = {}
        for b, h, nq, nk in CHANGING:
            given = drawn(form, attended(b, h, nq, nk, width), "float16" if target() != "c" else "float32")
            out = form(**given, backend="tilelang")
            worst[f"{b} {h} {nq} {nk}"] = error(out, form.reference(**given))
        count = len(kernels._KERNELS) - before
        found.append({"form": name, "width": width, "sizes": len(CHANGING), "kernels": count, "errors": worst})
    return found


def large() -> list[dict[str, Any]]:
    """Errors at the end of tensors whose indices need 64 bits."""
    found = []
    for name, sizes, dtype in LARGE if target() != "c" else ():
        form = FORMS[name]()
        given = drawn(form, sizes, dtype)
        out = form(**given, backend="tilelang")
        tail = {key: one[-LAST:] for key, one in given.items()}
        elements = max(one.numel() for one in given.values())
        found.append({"form": name, "elements": elements, "error": error(out[-LAST:], form.reference(**tail))})
        del given, out, tail
        torch.cuda.empty_cache()
    return found


PARTS: dict[str, Callable[[], Any]] = {one.__name__: one for one in (steady, varying, large, changing, processes)}


# ---- as tables, the ratio first --------------------------------------------------------------------------------------

ERROR = "error: max|out - ref| / max|ref|, the largest"
PEERS = {"attention": "torch SDPA", "logsumexp": "torch.logsumexp"}
"""Call of redalg -> PyTorch's of the same function, among those of `steady`."""


def steady_table(found: Mapping[str, float]) -> Table:
    """The host's time of calls beside PyTorch's of what they compute."""
    rows = tuple((name, f"{found[name] / found[peer]:.2f}", f"{found[name]:.2f}", f"{found[peer]:.2f}", peer)
                 for name, peer in PEERS.items())  # fmt: skip
    return Table("host time of a call", ("", "over PyTorch", "µs", "PyTorch, µs", "by"), rows,
                 "over PyTorch: below 1, redalg is faster")  # fmt: skip


def processes_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """The seconds of a process's steps, beside those of one that compiles."""
    first, *_ = found.values()
    names = list(found)
    rows = tuple((step, *(f"{each[step] / seconds:.2f}" for each in list(found.values())[1:] if seconds),
                  *(f"{each[step]:.3f}" for each in found.values())) for step, seconds in first.items())  # fmt: skip
    return Table("a process to its first result", ("", *(f"{name}, ratio" for name in names[1:]),
                                                   *(f"{name}, s" for name in names)), rows,
                 f"ratio: over the process that {names[0]}", figures_last=True)  # fmt: skip


def varying_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """The kernels of run-time sizes beside those of constant ones."""
    constant = {one["name"]: one["median_us"] for one in found if not one["varying"]}
    rows = tuple((one["name"], f"{one['median_us'] / constant[one['name']]:.2f}", f"{one['median_us']:.2f}",
                  f"{one['error']:.1e}", one["varying"] or "none") for one in found)  # fmt: skip
    return Table("kernels whose sizes are known at run time", ("", "over constant", "µs", "error", "of axes"), rows,
                 f"over constant: the time over that of the kernel of constant sizes\n{ERROR}")  # fmt: skip


def changing_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """The kernels that served calls of changing sizes, and their largest error."""
    rows = tuple((f"{one['form']}, {one['width']}", f"{one['kernels'] / one['sizes']:.2f}", str(one["kernels"]),
                  str(one["sizes"]), f"{max(one['errors'].values()):.1e}") for one in found)  # fmt: skip
    return Table("calls of changing sizes", ("form, width", "kernels a size", "kernels", "sizes", "error"), rows, ERROR,
                 figures_last=True)  # fmt: skip


def large_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """The errors at the end of large tensors."""
    rows = tuple((one["form"], f"{one['elements'] / 2**31:.2f}", f"{one['elements']:,}", f"{one['error']:.1e}")
                 for one in found)  # fmt: skip
    return Table("large tensors", ("", "of 2^31", "elements", "error"), rows or (("none on a CPU", "", "", ""),),
                 f"{ERROR}; of the last rows", figures_last=True)  # fmt: skip


TABLES: dict[str, Callable[[Any], Table]] = {
    "steady": steady_table,
    "varying": varying_table,
    "large": large_table,
    "changing": changing_table,
    "processes": processes_table,
}
"""Part -> its table."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="of calls: some of them")


def run(options: argparse.Namespace) -> bool:
    """Measure each part, and write what there is after it; True, for no part has a limit."""
    content: dict[str, Any] = {"benchmark": "calls", "environment": environment()}
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        content["not compiled"] = [line for line in pool.map(warm, list(jobs(options.parts)), chunksize=1) if line]
    for name in options.parts:
        content[name] = PARTS[name]()
        print(TABLES[name](content[name]), end="\n\n")
        if options.out:
            save(options.out / "calls.json", content)
    return True
