"""Kernels compiled side by side, in processes of their own that can be stopped: some take minutes in the compiler.

    caller                                   worker: python -m redalg.runtime.tune.compiling
    pickled source  →  standard input   →    compiled into the cache on disk
    what went wrong ←  standard output  ←    a pickled string, empty where nothing did

A worker takes seconds to start: some are started at once (`EAGER`). One that compiles beyond its time goes on until its
room is needed.

Not `multiprocessing`: its spawned processes run the caller's main module again, which a library must not, and leave the
compilers that they have started behind when they are stopped. A worker is the leader of a session, and stops with it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import LifoQueue
from time import monotonic
from types import TracebackType
from typing import BinaryIO, final

from redalg.lower_tile.text.emit import Source
from redalg.runtime.compile.compile import compile_source, import_compiler

STOPPED = "not compiled in the time that a round has"
EAGER = 8
"""Workers that are started before there is anything to compile."""
PACKAGES = Path(__file__).parents[3]


@final
class Worker:
    """One process, started when it is first needed, and again after it was stopped."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def compile(self, source: Source | None) -> str:
        """Compile into the cache; return what went wrong, empty if nothing did. None: start, and do nothing."""
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(source, process.stdin)
            process.stdin.flush()
            return str(pickle.load(process.stdout))
        except (EOFError, OSError, pickle.UnpicklingError):
            self.end()
            return STOPPED

    def start(self) -> subprocess.Popen[bytes]:
        """The process, started if there is none."""
        if self.process is None:
            known = os.pathsep.join([str(PACKAGES), *filter(None, sys.path)])
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redalg.runtime.tune.compiling"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": known}, start_new_session=True,
            )  # fmt: skip
        return self.process

    def stop(self) -> None:
        """Stop the process and the compilers that it has started; the thread that reads from it finds its end."""
        if (process := self.process) is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (AttributeError, ProcessLookupError, PermissionError):  # no such calls, or nothing left
                process.kill()

    def end(self) -> None:
        """Stop, and let go of the process."""
        if (process := self.process) is not None:
            self.stop()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError, AttributeError):  # what was not written never will be
                    pipe.close()  # type: ignore[union-attr]
            self.process = None


@final
class Job:
    """A source to compile, its worker as long as it compiles, and what went wrong."""

    def __init__(self, source: Source | None) -> None:
        self.source = source
        self.worker: Worker | None = None
        self.given_up = False
        self.started: float | None = None
        self.failure: Future[str]

    def run(self, idle: LifoQueue[Worker]) -> str:
        """Compile by the next free worker."""
        self.worker = worker = idle.get()
        self.started = monotonic()
        try:
            return STOPPED if self.given_up else worker.compile(self.source)
        finally:
            self.worker = None
            idle.put(worker)

    def wait(self, seconds: float) -> str:
        """The error message, empty if nothing did; `STOPPED` if it still compiles after so many seconds."""
        try:
            return self.failure.result(max(0.0, seconds))
        except TimeoutError:
            return STOPPED

    def has_run(self, seconds: float) -> bool:
        """Tell if it began so many seconds ago, or earlier."""
        return self.started is not None and monotonic() >= self.started + seconds

    def give_up(self) -> None:
        """End it; its worker begins anew."""
        self.given_up = True
        if (worker := self.worker) is not None:
            worker.stop()


@final
@dataclass(frozen=True)
class Compilers:
    """A number of workers; those already started work first. Leaving the context stops them, with what they compile.

    Attributes:
        count: of the workers.
        starting, jobs: what starts the first of them, and what was submitted, in order.
    """

    count: int
    starting: list[Job] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    idle: LifoQueue[Worker] = field(default_factory=LifoQueue)
    workers: list[Worker] = field(default_factory=list)
    threads: list[ThreadPoolExecutor] = field(default_factory=list)

    def __enter__(self) -> Compilers:
        self.threads.append(ThreadPoolExecutor(self.count))
        for _ in range(self.count):
            self.workers.append(Worker())
            self.idle.put(self.workers[-1])
        self.starting.extend(self._run(Job(None)) for _ in range(min(self.count, EAGER)))
        return self

    def submit(self, source: Source) -> Job:
        """Compile a source when a worker is free."""
        self.jobs.append(self._run(Job(source)))
        return self.jobs[-1]

    def wait_until_started(self, end: float) -> None:
        """Wait for the first workers, until a time of the monotonic clock at most."""
        for job in self.starting:
            job.wait(end - monotonic())

    def make_room(self, count: int) -> None:
        """Give up the jobs that compile longest, so that so many more find workers."""
        running = [job for job in self.jobs if not job.failure.done()]
        for job in running[: max(0, len(running) + count - self.count)]:
            job.give_up()

    def _run(self, job: Job) -> Job:
        job.failure = self.threads[0].submit(job.run, self.idle)
        return job

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.threads[0].shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.stop()
        self.threads[0].shutdown(wait=True)
        for worker in self.workers:
            worker.end()


def serve(read: BinaryIO, write: BinaryIO) -> None:
    """Compile each source that comes in, until the input ends."""
    while True:
        try:
            source: Source | None = pickle.load(read)
        except EOFError:
            return
        try:
            if source is None:
                import_compiler()
            else:
                compile_source(source)
            message = ""
        except Exception as failure:  # noqa: BLE001 - a kernel that does not compile is a result
            message = f"{type(failure).__name__}: {failure}"
        pickle.dump(message, write)
        write.flush()


def serve_compilations() -> None:
    """Serve the process that started this one; whatever a compiler prints goes nowhere."""
    write = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, write)


if __name__ == "__main__":
    serve_compilations()
