"""One contestant on one shape: error against float64, time and peak memory, in a process of its own.

A process of its own makes the peak honest, and outlives nothing: a contestant that runs out of memory is a row of the
table, not the end of the demo.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import final

import torch
from torch.nn.functional import scaled_dot_product_attention

from redalg.instruments.memory import peak_bytes
from redalg.library import attention

Tensors = dict[str, torch.Tensor]
Contestant = Callable[..., torch.Tensor]
FUSED = attention()
CHECKED_ROWS = 16
WARM_UP = 64  # rows and keys: enough to start thread pools, too few to count as memory


@final
@dataclass(frozen=True)
class Shape:
    """Sizes of attention by axis name: Q[b,h,q,d], K[b,h,k,d], V[b,h,k,e]."""

    b: int
    h: int
    q: int
    k: int
    d: int
    e: int

    @property
    def sizes(self) -> dict[str, int]:
        return dict(vars(self))

    def __str__(self) -> str:
        return " ".join(f"{axis}={size}" for axis, size in self.sizes.items())


@final
@dataclass(frozen=True)
class Trial:
    """A measurement to make.

    It has a name of `CONTESTANTS`, a shape, a dtype, a device (`cpu`, `cuda`), and the number of calls.
    """

    contestant: str
    shape: Shape
    dtype: str = "float32"
    device: str = "cpu"
    calls: int = 3

    @property
    def steps(self) -> int:
        """The number of times that `measure_trial` tells of progress: once when it is ready to start, once a call."""
        return self.calls + 1


@final
@dataclass(frozen=True)
class Measurement:
    """Results of one trial.

    They are max|out - ref| / max|ref| on a few rows, the seconds of the fastest call, and peak bytes above the inputs.
    """

    error: float
    seconds: float
    peak_bytes: int


@final
@dataclass(frozen=True)
class Failure:
    """The reason that a trial gave no measurement."""

    reason: str


Outcome = Measurement | Failure

# ---- contestants -----------------------------------------------------------------------------------------------------


def derived_attention(backend: str, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """The form that redalg derives, on one of its backends."""
    out: torch.Tensor = FUSED(Q=Q, K=K, V=V, backend=backend)
    return out


def unfused_attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """The formula as it stands on paper, which holds all scores at once."""
    return torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1) @ V


def sdpa(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    """PyTorch's own fused attention, written by hand."""
    return scaled_dot_product_attention(Q, K, V)


BLOCKS, KERNEL, SDPA, UNFUSED = "redalg, blockwise", "redalg, kernel", "PyTorch SDPA", "unfused formula"
CONTESTANTS: dict[str, Contestant] = {
    BLOCKS: partial(derived_attention, "torch"),
    KERNEL: partial(derived_attention, "tilelang"),
    SDPA: sdpa,
    UNFUSED: unfused_attention,
}

# ---- measuring -------------------------------------------------------------------------------------------------------


def make_inputs(shape: Shape, dtype: str, device: str) -> Tensors:
    """Standard normal Q, K and V, the same in every process."""
    generator = torch.Generator(device).manual_seed(0)
    rows, keys = (shape.b, shape.h, shape.q), (shape.b, shape.h, shape.k)
    shapes = {"Q": (*rows, shape.d), "K": (*keys, shape.d), "V": (*keys, shape.e)}
    kind = getattr(torch, dtype)
    return {name: torch.randn(*of, generator=generator, dtype=kind, device=device) for name, of in shapes.items()}


def relative_error(out: torch.Tensor, inputs: Tensors) -> float:
    """max|out - ref| / max|ref| against float64, on a few rows of every head."""
    rows = torch.linspace(0, out.shape[2] - 1, min(CHECKED_ROWS, out.shape[2]), device=out.device).long()
    Q, K, V = (inputs[name].double() for name in "QKV")
    reference = unfused_attention(Q[:, :, rows], K, V)
    return float((out[:, :, rows].double() - reference).abs().max() / reference.abs().max())


def warm_up(trial: Trial, call: Contestant, inputs: Tensors) -> None:
    """Load and compile what a first call would: kernels on the trial's own shape, all else on a few rows and keys."""
    whole = trial.device == "cuda" or trial.contestant == KERNEL
    call(**inputs if whole else {name: tensor[:, :1, :WARM_UP].clone() for name, tensor in inputs.items()})


def seconds_of(call: Callable[[], torch.Tensor], device: str) -> float:
    """The time of one call: on a CPU that of the processor, which others that run there do not prolong."""
    clock = perf_counter if device == "cuda" else process_time
    start = clock()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def measure_trial(trial: Trial, tell: Callable[[], None] = lambda: None) -> Measurement:
    """Measure in this process; `tell` is called after every step."""
    contestant = CONTESTANTS[trial.contestant]
    inputs = make_inputs(trial.shape, trial.dtype, trial.device)
    warm_up(trial, contestant, inputs)
    tell()
    call = partial(contestant, **inputs)
    out, peak = peak_bytes(call, trial.device)
    error = relative_error(out, inputs)
    del out
    seconds = []
    for _ in range(trial.calls):
        seconds.append(seconds_of(call, trial.device))
        tell()
    return Measurement(error, min(seconds), peak)


# ---- in a process of its own -----------------------------------------------------------------------------------------


def measure_apart(trial: Trial, tell: Callable[[], None] = lambda: None) -> Outcome:
    """Measure in a fresh process; what goes wrong there is a `Failure`."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=send_outcome, args=(trial, there), daemon=True)
    process.start()
    there.close()
    outcome = receive_outcome(here, tell)
    process.join()
    return outcome or Failure(f"its process ended with exit code {process.exitcode}")


def send_outcome(trial: Trial, connection: Connection) -> None:
    """In the fresh process: send `None` for every step, then the outcome.

    On a CPU it has one thread: two that wait for each other take ten times as long where others run beside them.
    """
    os.environ.setdefault("TILELANG_PRINT_ON_COMPILATION", "0")  # its log lines would tear the progress bar
    if trial.device == "cpu":
        torch.set_num_threads(1)
    try:
        outcome: Outcome = measure_trial(trial, partial(connection.send, None))
    except Exception as failure:  # noqa: BLE001 - shown as this contestant's row, and the demo fails
        outcome = Failure(f"{type(failure).__name__}: {failure}")
    connection.send(outcome)


def receive_outcome(connection: Connection, tell: Callable[[], None]) -> Outcome | None:
    """Return what the fresh process sends, or None if it ends without an outcome."""
    with connection:
        while True:
            try:
                message: Outcome | None = connection.recv()
            except EOFError:
                return None
            if message is not None:
                return message
            tell()
