"""The time that a call takes on its device.

On CUDA: one graph holds many calls in a row over input sets that together exceed the L2 cache several times over, so
that no call finds its inputs there; L2 is overwritten before each replay; a sample is a replay's time divided by its
calls. Samples start once the device has been busy for some milliseconds: an idle one is slower at first (H200: root
mean squares of 134 MB take 73 µs for 2 ms, and then 67). If a call cannot be captured, the same sequence is launched
call by call between two events, and the result says so: such a time holds launch gaps. On the CPU: wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from statistics import median
from typing import final

import torch

Call = Callable[[], object]
SAMPLES = 30
WARM_UP_CALLS = 3
WARM_UP_S = 4e-3
"""For which the device is busy before the first sample."""
CALLS_PER_SAMPLE = 8
L2_MULTIPLE = 4


@final
@dataclass(frozen=True)
class Timing:
    """Every sample of one call's time, how it was taken, and the host's time to make the call.

    Attributes:
        method: `cuda graph`, `cuda events` or `wall`.
        samples_us: microseconds of a call.
        host_us: until a call returns to the host, in microseconds.
        calls_per_sample, input_sets: calls in a row of a sample, and inputs that they take in turn.
        note: the reason if it is not a graph.
    """

    method: str
    samples_us: tuple[float, ...]
    host_us: float
    calls_per_sample: int
    input_sets: int
    note: str = ""

    @property
    def median_us(self) -> float:
        """The median sample."""
        return median(self.samples_us)


def input_sets(bytes_of_one: int, device: torch.device) -> int:
    """The number of input sets that together exceed L2 several times over (one on the CPU)."""
    if device.type != "cuda":
        return 1
    return min(max(2, -(-L2_MULTIPLE * l2_bytes() // bytes_of_one)), 2 * CALLS_PER_SAMPLE)


def l2_bytes() -> int:
    """The size of the device's L2 cache."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


def measure(calls: Sequence[Call], device: torch.device, samples: int = SAMPLES, *, captured: bool = True) -> Timing:
    """Time one operation, given as one call for each input set; by events where it is not to be `captured`.

    >>> timing = measure([lambda: sum(range(100))], torch.device("cpu"), samples=3)
    >>> timing.method, len(timing.samples_us)
    ('wall', 3)
    """
    for call in islice(cycle(calls), max(WARM_UP_CALLS, len(calls))):
        call()
    if device.type != "cuda":
        return wall(calls, samples)
    torch.cuda.synchronize()
    host_us = host_time_us(calls, samples)
    sequence = list(islice(cycle(calls), max(CALLS_PER_SAMPLE, len(calls))))
    method, run, note = launcher(sequence) if captured else by_events(sequence, "")
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_UP_S:
        device_time_us(run)
    times_us = tuple(device_time_us(run) / len(sequence) for _ in range(samples))
    return Timing(method, times_us, host_us, len(sequence), len(calls), note)


def launcher(sequence: Sequence[Call]) -> tuple[str, Call, str]:
    """(method, the function that launches the whole sequence, the reason if it is not a graph)."""
    try:
        return "cuda graph", capture(sequence), ""
    except RuntimeError as error:
        torch.cuda.synchronize()
        reason = str(error).strip().splitlines()
        return by_events(sequence, f"not captured: {reason[0] if reason else error!r}")


def by_events(sequence: Sequence[Call], note: str) -> tuple[str, Call, str]:
    """A launcher that makes the calls one by one."""
    return "cuda events", lambda: [call() for call in sequence], note


def capture(sequence: Sequence[Call]) -> Call:
    """Capture the sequence in one graph, after a warm-up on a side stream as capturing asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in sequence:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [call() for call in sequence]  # alive until the end, so that no two calls share an output

    def replay() -> object:
        graph.replay()
        return results

    replay()
    torch.cuda.synchronize()
    return replay


def device_time_us(run: Call) -> float:
    """Time one run between two events; the overwriting of L2 before it hides the time of the launch."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    scratch().zero_()
    start.record()
    run()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


@cache
def scratch() -> torch.Tensor:
    """Twice L2's size on the device: writing it evicts everything else."""
    return torch.empty(2 * l2_bytes(), dtype=torch.int8, device="cuda")


def host_time_us(calls: Sequence[Call], samples: int = SAMPLES) -> float:
    """The median time until a call returns to the host, while the device is idle."""

    def once(call: Call) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - start)

    return median(once(call) for call in islice(cycle(calls), samples))


def wall(calls: Sequence[Call], samples: int) -> Timing:
    """Wall time, call by call."""

    def once(call: Call) -> float:
        start = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - start)

    times = tuple(once(call) for call in islice(cycle(calls), samples))
    return Timing("wall", times, median(times), 1, len(calls))
