"""Processes that are the ranks of a group, started once: each runs what it is told, with all others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

TIMEOUT = 30
"""Seconds that a collective waits: no test waits so long unless something hangs."""


@final
@dataclass(frozen=True)
class Outcome:
    """What a rank's function returned, or the name of its exception's class and its text."""

    value: Any = None
    error: str = ""
    text: str = ""


@final
@dataclass(frozen=True)
class Pool:
    """Ranks, each behind a pipe."""

    pipes: tuple[Connection, ...]
    patience: int = 2 * TIMEOUT

    def outcomes(self, function: Callable[..., Any], *args: Any) -> list[Outcome]:
        """The outcomes of function(rank, number of ranks, …) on every rank."""
        for pipe in self.pipes:
            pipe.send((function, args))
        return [receive(pipe, self.patience) for pipe in self.pipes]

    def values(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What function(rank, number of ranks, …) returns on every rank: none may fail."""
        outcomes = self.outcomes(function, *args)
        if failed := [f"{one.error}: {one.text}" for one in outcomes if one.error]:
            raise AssertionError(failed)
        return [one.value for one in outcomes]


def receive(pipe: Connection, patience: int) -> Outcome:
    try:
        return pipe.recv() if pipe.poll(patience) else Outcome(error="hangs")
    except EOFError:
        return Outcome(error="died")


def serve(rank: int, size: int, store: str, pipe: Connection, backend: str, timeout: int) -> None:
    """Be a rank: initialise the group, and run what comes until nothing does."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size,
                            timeout=timedelta(seconds=timeout))  # fmt: skip
    while (task := pipe.recv()) is not None:
        function, args = task
        try:
            outcome = Outcome(function(rank, size, *args))
        except Exception as error:  # noqa: BLE001 - tests look at it
            outcome = Outcome(error=type(error).__name__, text=str(error))
        pipe.send(outcome)
    os._exit(0)  # ranks of a broken group wait for each other when they end


@contextmanager
def ranks(size: int, folder: Path, backend: str = "gloo", timeout: int = TIMEOUT) -> Iterator[Pool]:
    """A pool of so many ranks, whose collectives wait for `timeout` seconds; with NCCL each has a GPU."""
    context = get_context("spawn")
    pairs = [context.Pipe() for _ in range(size)]
    processes = [context.Process(target=serve, args=(rank, size, str(folder / "store"), inner, backend, timeout),
                                 daemon=True)
                 for rank, (_, inner) in enumerate(pairs)]  # fmt: skip
    for process, (_, inner) in zip(processes, pairs, strict=True):
        process.start()
        inner.close()
    try:
        yield Pool(tuple(outer for outer, _ in pairs), 2 * timeout)
    finally:
        for process, (outer, _) in zip(processes, pairs, strict=True):
            if process.is_alive():
                outer.send(None)
            process.join(5)
            if process.is_alive():
                process.kill()
            outer.close()
