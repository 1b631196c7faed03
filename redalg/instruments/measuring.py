"""Contestants on the same tensors in one process: each judged, then its peak memory, then all of their times in turn.

On CUDA a time is that of the device (`redalg.runtime.tune.timing`), over several sets of inputs so that none is found
in the cache; on the CPU it is wall time. Samples of different contestants alternate, so that a machine that is busy for
a while is busy for all; a median is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from time import monotonic
from typing import Any, final

import torch

from redalg.instruments.memory import peak_bytes
from redalg.progress import progress_bar
from redalg.runtime.bind.inputs import library_name
from redalg.runtime.tune.timing import input_sets, measure, wall

Tensors = Mapping[str, Any]
Contestant = Callable[..., Any]
SAMPLES, LEAST = {"cpu": 15, "cuda": 30}, 3
"""Samples of a time at most, and at least."""
ROUNDS = 3
"""Turns of all contestants on CUDA."""
BUDGET_S = 8.0
"""Seconds after which no more samples are taken on the CPU, if there are enough."""


@final
@dataclass(frozen=True)
class Measured:
    """The results of one contestant.

    Attributes:
        name: of it.
        microseconds: the median of its samples; NaN if it failed.
        peak_bytes: the most memory that a call held above its inputs; None if it is not known.
        error: of its outputs, as the judge tells it.
        failure: the reason that it has none; empty if it has.
        method: of the times: `wall`, `cuda graph` or `cuda events`.
        samples: microseconds.
    """

    name: str
    microseconds: float = math.nan
    peak_bytes: int | None = None
    error: float = math.nan
    failure: str = ""
    method: str = ""
    samples: tuple[float, ...] = field(default=(), repr=False)


def measure_contest(
    contestants: Mapping[str, Contestant], tensors: Tensors, judge: Callable[[Any], float], device: str
) -> list[Measured]:  # fmt: skip
    """Every contestant, called with the tensors by keyword; what one raises is its result.

    Args:
        contestants: by name.
        tensors: tensors and scalars.
        judge: what a contestant returns -> its error.
        device: `cpu` or `cuda`.
    """
    card = torch.cuda.device(index_of_card(tensors.values())) if device == "cuda" else nullcontext()
    with torch.no_grad(), card, progress_bar("measuring", 2 * len(contestants)) as tell:
        found = dict[str, Measured]()
        for number, (name, call) in enumerate(contestants.items()):
            tell(number, f"{name}: first call")
            found[name] = first_call(name, partial(call, **tensors), judge, device)
        working = {name: contestants[name] for name, one in found.items() if not one.failure}
        tell(len(contestants), "times")
        times = on_cpu(working, tensors) if device == "cpu" else on_cuda(working, tensors, torch.device(device))
    return [replace(one, **times.get(name, {})) for name, one in found.items()]


def first_call(name: str, call: Callable[[], Any], judge: Callable[[Any], float], device: str) -> Measured:
    """A call that compiles, one that is judged and whose memory is measured."""
    try:
        call()
        made, peak = peak_bytes(call, device)
        return Measured(name, peak_bytes=peak, error=judge(made))
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measured(name, failure=failure_text(failure))


def failure_text(failure: Exception) -> str:
    """The first line of what was raised, and its type where it is not redalg's."""
    lines = str(failure).strip().splitlines()
    text = lines[0] if lines else ""
    return text if type(failure).__module__.startswith("redalg.") else f"{type(failure).__name__}: {text}"


def on_cpu(contestants: Mapping[str, Contestant], tensors: Tensors) -> dict[str, dict[str, Any]]:
    """Wall times, one call of each in turn."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    start = monotonic()
    for number in range(SAMPLES["cpu"]):
        if number >= LEAST and monotonic() - start > BUDGET_S:
            break
        for name, call in contestants.items():
            samples[name] += wall([partial(call, **tensors)], 1).samples_us
    return {name: times_of(found, "wall") for name, found in samples.items()}


def on_cuda(
    contestants: Mapping[str, Contestant], tensors: Tensors, device: torch.device
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Device times in rounds; a contestant that cannot be timed fails."""
    sets = input_copies(tensors, device)
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    told = dict[str, dict[str, Any]]()
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            if "failure" in told.get(name, {}):
                continue
            try:
                timing = measure([partial(call, **each) for each in sets], device, SAMPLES["cuda"] // ROUNDS)
                samples[name] += timing.samples_us
                told[name] = times_of(samples[name], timing.method)
            except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
                told[name] = {"failure": failure_text(failure)}
    return told


def times_of(samples: Sequence[float], method: str) -> dict[str, Any]:
    """The figures of a contestant's samples."""
    return {"microseconds": median(samples), "samples": tuple(samples), "method": method}


def input_copies(tensors: Tensors, device: torch.device) -> list[Tensors]:
    """The tensors, and as many copies as exceed the cache together."""
    size = sum(one.nbytes for one in tensors.values() if library_name(one))
    copies = [{name: one.clone() if hasattr(one, "clone") else one for name, one in tensors.items()}
              for _ in range(input_sets(max(size, 1), device) - 1)]  # fmt: skip
    return [tensors, *copies]


def index_of_card(arrays: Iterable[Any]) -> int:
    """The number of the card that holds arrays; 0 if none does."""
    devices = (array.device for array in arrays if isinstance(array, torch.Tensor))
    return next((device.index or 0 for device in devices if device.type == "cuda"), 0)


def bytes_of(arrays: Any) -> int:
    """The bytes of arrays, alone or in a tuple or mapping; numbers have none."""
    several = arrays.values() if isinstance(arrays, Mapping) else arrays if isinstance(arrays, tuple) else (arrays,)
    return sum(int(one.nbytes) for one in several if hasattr(one, "nbytes"))


# ---- texts -----------------------------------------------------------------------------------------------------------


def time_text(microseconds: float) -> str:
    """A time in the unit that suits it.

    >>> time_text(12.3), time_text(250e3), time_text(2e6)
    ('12.30 µs', '250.00 ms', '2.00 s')
    """
    if math.isnan(microseconds):
        return "failed"
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= unit:
            return f"{microseconds / unit:.2f} {name}"
    return f"{microseconds:.2f} µs"


def memory_text(peak: int | None) -> str:
    """Memory in MiB.

    >>> memory_text(3 * 2**20), memory_text(100), memory_text(None)
    ('3.0 MiB', '< 0.1 MiB', '-')
    """
    if peak is None:
        return "-"
    return f"{peak / 2**20:.1f} MiB" if peak >= 2**20 / 10 else "< 0.1 MiB"


def device_name(device: str, index: int = 0) -> str:
    """The device in words."""
    return torch.cuda.get_device_name(index) if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
