"""Time budgets, measured: `python -m tests.budget`. Exits with 1 when a median is over its limit.

Not a test: a loaded machine would make it fail. The tests assert what an import loads; this says how long it takes.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import sympy
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.house.source import ROOT

RUNS = 20
CALLS = 200
VERDICT_MEDIAN_MS = 5.0
VERDICT_WORST_MS = {"patterns": 30.0, "random cascades": 30.0}
"""Of 1,187 random ones 1 in 100 takes longer than 22 ms, the worst 28 on an idle core: ranks grow at few samples."""
RANDOM_CASES = 200
IMPORT = "import sympy, time; start = time.perf_counter(); import redalg; print(time.perf_counter() - start)"


@dataclass(frozen=True)
class Budget:
    """What is measured, how one sample (in ms) is taken, and the most that the median may be."""

    name: str
    sample_ms: Callable[[], float]
    limit_ms: float | None = None


def import_ms() -> float:
    """What `import redalg` adds to `import sympy`, in a fresh process."""
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, check=True, capture_output=True, text=True)
    return 1e3 * float(done.stdout)


def attention(suffix: str = "") -> tuple[Any, str]:
    """Attention over axes named with the suffix, and its output axes."""
    import redalg as ra

    b, h, q, k, d, e = (name + suffix for name in "bhqkde")
    k_axis, d_axis = ra.axes(f"{k} {d}")
    Q, K, V = ra.tensors(f"Q[{b},{h},{q},{d}] K[{b},{h},{k},{d}] V[{b},{h},{k},{e}]")
    score = ra.sum(Q * K, d_axis) / sympy.sqrt(d_axis.extent)
    return ra.sum(ra.softmax(score, k_axis) * V, k_axis), f"{b} {h} {q} {e}"


def variance(suffix: str = "") -> tuple[Any, str]:
    """The variance of rows, written as the definition, and its output axes."""
    import redalg as ra

    n = ra.axes("n" + suffix)
    x = ra.tensor(f"x[b,n{suffix}]")
    return ra.mean((x - ra.mean(x, n)) ** 2, n), "b"


def fuse_ms(expression: Any, axes: str) -> float:
    import redalg as ra

    start = time.perf_counter()
    ra.fuse(expression, axes=axes)
    return 1e3 * (time.perf_counter() - start)


def warm(pattern: Callable[[str], tuple[Any, str]]) -> Callable[[], float]:
    """Time `fuse` of one and the same expression."""
    expression, axes = pattern("")
    fuse_ms(expression, axes)
    return lambda: fuse_ms(expression, axes)


def renamed(pattern: Callable[[str], tuple[Any, str]]) -> Callable[[], float]:
    """Time `fuse` of the same cascade under axis names not seen before: no cache of whole results can help."""
    count = itertools.count()
    return lambda: fuse_ms(*pattern(str(next(count))))


def backward_ms() -> Callable[[], float]:
    """Time to derive and fuse a backward: each sample is of another pattern of the library that has one."""
    from redalg import GradientError
    from redalg.library import PATTERNS

    forms = [pattern.build() for pattern in list(PATTERNS.values())[:: len(PATTERNS) // RUNS]]
    samples = itertools.cycle(filter(None, (derive_ms(form, GradientError) for form in forms)))
    return lambda: next(samples)


def derive_ms(form: Any, refusal: type[Exception]) -> float:
    """Time a backward with the forms of its stages; 0 if there is none."""
    start = time.perf_counter()
    try:
        stages = form.vjp().stages
    except refusal:
        return 0.0
    for stage in stages:
        for part in stage.parts:
            _ = part.function and part.function.passes
    return 1e3 * (time.perf_counter() - start)


def call_ms(backend: str) -> Callable[[], float]:
    """Time a call of a kind met before, of so few numbers that the host's own work is all there is."""
    import torch

    import redalg as ra

    form = ra.fuse(*attention())
    device = "cuda" if torch.cuda.is_available() and backend == "tilelang" else "cpu"
    given = few_tensors(device)
    return host_ms(lambda: form(**given, backend=backend))


def few_tensors(device: str) -> dict[str, Any]:
    """Tensors of attention of few numbers."""
    import torch

    return {name: torch.randn(1, 1, length, 16, device=device) for name, length in (("Q", 1), ("K", 4), ("V", 4))}


def state_ms(method: str) -> Callable[[], float]:
    """Time `leaf`, `merge` of four states or `finish` by kernels, of kinds met before and of few numbers."""
    import torch

    import redalg as ra

    form = ra.fuse(*attention())
    given = few_tensors("cuda" if torch.cuda.is_available() else "cpu")
    states = [form.leaf(given, {"k": 4 * place}, backend="tilelang") for place in range(4)]
    runs: dict[str, Callable[[], Any]] = {
        "leaf": lambda: form.leaf(given, {"k": 4}, backend="tilelang"),
        "merge": lambda: form.merge(*states, backend="tilelang"),
        "finish": lambda: form.finish(states[0], backend="tilelang"),
    }
    return host_ms(runs[method])


def host_ms(run: Callable[[], Any]) -> Callable[[], float]:
    """Time what the host does until a call returns."""

    def sample() -> float:
        start = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - start)

    for _ in range(3):
        sample()
    return lambda: median(sample() for _ in range(CALLS))


def funnel_ms() -> float:
    """List MCFuser's space of two products (M = N = 1024, K = H = 512) through every rule."""
    from redalg.strategies.model.chain import products
    from redalg.strategies.search.pruning import funnel

    start = time.perf_counter()
    funnel(products("m", "k", "n", "h"), {"m": 1024, "n": 1024, "k": 512, "h": 512}, dict.fromkeys("ABCDE", 2), 166912)
    return 1e3 * (time.perf_counter() - start)


def plans_ms() -> float:
    """List the plans of attention whose latent is shared, with their predicted times: the largest space of all rows."""
    from redalg.library import mla_decode

    sizes = {"b": 16, "h": 128, "k": 4096, "c": 512, "r": 64, "e": 512}
    form = mla_decode()
    start = time.perf_counter()
    form.plans({axis.name: sizes[axis.name] for axis in form.cascade.axes()}, "float16", "H200")
    return 1e3 * (time.perf_counter() - start)


def analyze_ms(expression: Any, axes: str | None) -> tuple[float, float]:
    """Time the verdict on an expression, and the form that it has, which is derived when asked for (0 for none).

    In processor time: neither waits for anything, so that it is what they take on an idle machine. Warm: SymPy has met
    the expression, and redalg keeps nothing of it.
    """
    import redalg as ra

    def timed() -> tuple[float, float]:
        start = time.process_time()
        verdict = ra.analyze(expression, axes)
        decided = time.process_time()
        _ = verdict.fused.form if isinstance(verdict, ra.Exact | ra.Approximate) else None
        return 1e3 * (decided - start), 1e3 * (time.process_time() - decided)

    timed()
    decided, derived = zip(*(timed() for _ in range(3)), strict=True)
    return median(decided), median(derived)


def verdicts_ms() -> dict[str, list[tuple[float, float]]]:
    """How long each verdict and its form take, of the patterns of theory and literature, and of random cascades."""
    from tests.cases.random_cascades import case
    from tests.verdict_texts import PATTERNS

    asked: dict[str, list[tuple[Any, Any]]] = {
        "patterns": [one.asked() for one in PATTERNS],
        "random cascades": [(case(seed).outputs, None) for seed in range(RANDOM_CASES)],
    }
    console = Console(stderr=True)
    return {what: [analyze_ms(*one) for one in track(each, description=what, console=console)]
            for what, each in asked.items()}  # fmt: skip


def budgets() -> list[Budget]:
    return [
        Budget("import redalg, beyond import sympy", import_ms, 150),
        Budget("fuse attention, warm", warm(attention), 50),
        Budget("fuse variance, warm", warm(variance), 50),
        Budget("derive and fuse a backward of the library", backward_ms(), 100),
        Budget("fuse attention, new axis names", renamed(attention)),
        Budget("fuse variance, new axis names", renamed(variance)),
        Budget("list MCFuser's space of two products", funnel_ms, 2000),
        Budget("list the plans of a latent attention, with times", plans_ms, 2000),
        Budget("call a kernel, known kind", call_ms("tilelang"), 0.030),
        Budget("make a state by a kernel, known kind", state_ms("leaf"), 0.1),
        Budget("merge four states by a kernel, known kind", state_ms("merge"), 0.15),
        Budget("finish a state by a kernel, known kind", state_ms("finish"), 0.05),
        Budget("call the interpreter in torch, known kind", call_ms("torch")),
        Budget("call the interpreter in NumPy, known kind", call_ms("numpy")),
    ]


def measure(budget: Budget) -> list[float]:
    runs = track(range(RUNS), description=budget.name, console=Console(stderr=True), transient=True)
    return [budget.sample_ms() for _ in runs]


def main() -> int:
    table = Table(title=f"Time budgets, median of {RUNS}")
    for column in ("what", "median ms", "least ms", "most ms", "limit ms", ""):
        table.add_column(column, justify="left" if column in {"what", ""} else "right")
    over = False
    for what, both in verdicts_ms().items():
        taken, derived = ([one[part] for one in both] for part in (0, 1))
        middle, worst = median(taken), max(taken)
        slow = middle >= VERDICT_MEDIAN_MS or worst >= VERDICT_WORST_MS[what]
        over = over or slow
        limits = f"{VERDICT_MEDIAN_MS:g}, worst {VERDICT_WORST_MS[what]:g}"
        spread = (f"{middle:.1f}", f"{min(taken):.1f}", f"{worst:.1f}")
        table.add_row(f"verdict on {len(taken)} {what}", *spread, limits, "OVER" if slow else "ok")
        spread = (f"{median(derived):.1f}", f"{min(derived):.1f}", f"{max(derived):.1f}")
        table.add_row("and its form, when it is asked for", *spread, "-", "ok")
    for budget in budgets():
        samples = measure(budget)
        too_slow = budget.limit_ms is not None and median(samples) >= budget.limit_ms
        over = over or too_slow
        numbers = [f"{value:.3g}" for value in (median(samples), min(samples), max(samples))]
        limit = "-" if budget.limit_ms is None else f"{budget.limit_ms:g}"
        table.add_row(budget.name, *numbers, limit, "OVER" if too_slow else "ok")
    Console().print(table)
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
