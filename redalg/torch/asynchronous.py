"""A graph that runs Inductor's code at once, and later the code with its groups, which a thread looked for meanwhile.

    first compilation   Inductor's code, and a copy of the graph at the end of Inductor's passes
    the thread          from the first call on: exploration, kernels and trials on that copy, one graph after another
    a later call        compiles a copy of Dynamo's graph, puts the operators that were found, and runs the new code

Known of PyTorch 2.13: its compiler belongs in no thread beside calls. A trace of FX replaces `nn.Module.__call__` for
the whole process, and while it lasts a call of a compiled model in another thread is an error
(`is_fx_symbolic_tracing`); `aot_autograd` sets the random numbers back to where they were when it began, those that the
program drew too, and makes `torch.cuda.set_rng_state` do nothing. So the thread traces nothing and compiles nothing of
Inductor's: it runs the engine and the operators. The second compilation is a call's, as the lazy one of a backward is,
under the lock of Dynamo (`compile_lock`); another thread that calls the model runs Inductor's code meanwhile.

Dynamo's guards say that a call finds autocast, gradients and settings as the first compilation did. The same graph with
the same inputs asks for the same guards. Weights are inputs of the graph, or attributes that its copy shares. The fake
values are the graph's own: the thread begins when Dynamo is done with them, at the first call.
"""

from __future__ import annotations

import atexit
import copy
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import Any, final
from weakref import ref

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from redalg.errors import GraphError
from redalg.torch.gate import GATE_THREAD
from redalg.torch.ranks import has_ranks
from redalg.torch.records import LOG, failure_report, keep_report, replace_report
from redalg.torch.report import PENDING, GraphReport
from redalg.torch.stitch import leave_autograd
from redalg.torch.training import is_trained, keep_origins

END_S = 5.0
"""The seconds that a process which ends waits for the thread, at most."""
GOES_ON = "Inductor's code of a graph goes on"
READY = "ready: the next call swaps"
BACKGROUND = "redalg background"
Run = Callable[..., Any]
Act = Callable[[Graph], None]
Compile = Callable[[GraphModule, Sequence[Any], Act], Run]


def wait_for_swaps(timeout_s: float | None = None) -> bool:
    """Wait until no graph that was called is pending: the next call of each swaps, or it is left; tell if that is so.

    Args:
        timeout_s: the seconds to wait, at most; None: as long as it takes.

    >>> wait_for_swaps(timeout_s=0.0)
    True
    """
    return background().wait(timeout_s)


def compile_and_swap(
    module: GraphModule, inputs: Sequence[Any], compile_with: Compile, put: Callable[[Graph], GraphReport]
) -> Run:
    """A graph as Inductor compiles it, and later with groups.

    Args:
        module, inputs: a graph of Dynamo, which nothing of `reason_against_swap` holds against it.
        compile_with: Inductor, with a function that is called on the graph after all passes; it owns what it is given.
        put: put the groups of a graph, in place.
    """
    snapshots, started = list[Snapshot](), monotonic()
    try:
        copied = copy_of(module)
    except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
        keep_report(failure_report(GOES_ON, failure))
        return compile_with(module, inputs, lambda _: None)

    def see(graph: Graph) -> None:
        try:
            snapshots.append(snapshot_of(graph))
        except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
            keep_report(failure_report(GOES_ON, failure))

    run = compile_with(module, inputs, see)
    if len(snapshots) != 1:
        keep_report(failure_report(GOES_ON, GraphError(f"{len(snapshots)} copies were made of it")))
        return run
    pending = GraphReport(0, (), swap=PENDING)
    keep_report(pending)
    swap = Swap(run, Work(copied, fake_inputs(copied), snapshots[0], compile_with, put), pending, started)

    def call(*args: Any) -> Any:
        if swap.step is not None:
            swap.advance()
        return swap.run(*args)

    return call


@final
@dataclass(frozen=True)
class Snapshot:
    """A graph as it is at the end of Inductor's passes.

    Attributes:
        module: a copy of it.
        metadata: of `aot_autograd`: which inputs stay where they are.
        nodes: what its nodes are, to know it again.
    """

    module: GraphModule
    metadata: Any
    nodes: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True)
class Work:
    """The work on a graph until its swap: see `compile_and_swap`."""

    module: GraphModule
    inputs: Sequence[Any]
    snapshot: Snapshot
    compile_with: Compile
    put: Callable[[Graph], GraphReport]

    def look(self) -> GraphReport:
        """Put the groups into the copy; the report."""
        context = TracingContext(next(each.fake_mode for each in self.inputs))
        context.fw_metadata = self.snapshot.metadata
        with tracing(context):
            return self.put(self.snapshot.module.graph)

    def compile(self) -> Run:
        """Compile the graph with the operators in it."""
        from torch._dynamo.convert_frame import compile_lock

        def act(graph: Graph) -> None:
            if description_of(graph) != self.snapshot.nodes:
                raise GraphError("Inductor made another graph the second time")
            take_nodes(graph, self.snapshot.module.graph)
            leave_autograd(graph)

        session = getattr(torch.compiler, "_compile_session_context", nullcontext)  # from PyTorch 2.13 on
        gradients = torch.is_grad_enabled()
        with ExitStack() as stack:
            for each in (compile_lock, _disable_current_modes(), session(), torch.inference_mode(mode=False),
                         torch.set_grad_enabled(gradients)):  # fmt: skip
                stack.enter_context(each)
            return self.compile_with(self.module, self.inputs, act)


@final
class Swap:
    """The code that calls of a graph run, and the step towards the next one, if a call can make it.

    The code is replaced whole, and a call reads it once. Whatever fails, Inductor's goes on.

    Attributes:
        run: the code.
        step: what the next call does before it runs.
        work: what is left to do, None at the end.
        report: the report that stands now.
    """

    def __init__(self, run: Run, work: Work, pending: GraphReport, started: float) -> None:
        self.run, self.report, self.started = run, pending, started
        self.work: Work | None = work
        self.step: Callable[[], None] | None = self.begin
        self.context, self.lock = copy_context(), threading.Lock()

    def advance(self) -> None:
        """Make the step, unless another thread makes it."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            step, self.step = self.step, None
            if step is not None:
                step()
        finally:
            self.lock.release()

    def begin(self) -> None:
        """Let the thread look for groups; of a model that is gone it looks for none."""
        here = ref(self)

        def job() -> None:
            swap = here()
            if swap is not None:
                swap.context.run(swap.look)

        background().submit(job)

    def look(self) -> None:
        """Look for the groups, in the thread."""
        assert self.work is not None
        try:
            report = self.work.look()
        except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
            if threading.main_thread().is_alive():  # else the process ends: nothing can be started any more
                self.finish(failure_report(GOES_ON, failure))
            return
        if any(group.decision.is_put for group in report.groups):
            self.tell(replace(report, swap=READY))
            self.step = self.swap
        else:
            self.finish(replace(report, swap="not swapped, as no group was put"))

    def swap(self) -> None:
        """Replace the code, in a call; not within a capture of a CUDA graph, nor between collectives."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self.step = self.swap
            return
        if has_ranks():
            self.finish(replace(self.report, swap="not swapped, as processes work together now"))
            return
        assert self.work is not None
        try:
            self.run = self.context.run(self.work.compile)
        except Exception as failure:  # noqa: BLE001 - whatever fails here, Inductor's code runs
            self.finish(failure_report(GOES_ON, failure))
        else:
            self.finish(replace(self.report, swap=f"swapped after {monotonic() - self.started:.1f} s"))

    def finish(self, report: GraphReport) -> None:
        """Tell the outcome, and let go of the graphs."""
        self.work = None
        self.tell(report)

    def tell(self, report: GraphReport) -> None:
        """Put a report in the place of the one that stood, and log it."""
        LOG.info("%s", report.summary)
        self.context.copy().run(replace_report, self.report, report)
        self.report = report


# ---- graphs that may swap --------------------------------------------------------------------------------------------


def reason_against_swap(module: GraphModule, inputs: Sequence[Any], settings: Mapping[str, Any]) -> str:
    """The reason why a graph's code may not be replaced later, if there is any; `settings` are Inductor's."""
    fixed = ("triton.cudagraphs", "freezing", "cpp_wrapper")
    if has_ranks():
        return "processes work together (`torch.distributed`), and all should run the same code"
    if is_trained([*inputs, *module.parameters()]):
        return "it is trained: its forward and its backward agree on what is saved"
    if any(settings[name] for name in fixed):
        return f"Inductor's option is on: {next(name for name in fixed if settings[name])}"
    values = [node.meta.get("example_value") for node in module.graph.nodes]
    if any(module.children()):
        return "it calls modules or graphs within"
    if any(size_varies(each) for value in (*values, *inputs) for each in parts_of(value)):
        return "its sizes vary, or numbers that it takes"
    fakes = fake_inputs(module)
    if len(fakes) != len(inputs) or not all(map(is_like, fakes, inputs)):
        return "its inputs are no plain tensors that keep their shapes"
    return ""


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the values of a result, nested or not."""
    yield from (part for each in value for part in parts_of(each)) if isinstance(value, tuple | list) else (value,)


def size_varies(value: Any) -> bool:
    """Tell if a tensor's sizes vary, or if a value is a number that does."""
    numbers = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if not isinstance(value, torch.Tensor):
        return isinstance(value, numbers)
    return value.layout is torch.strided and any(isinstance(size, numbers) for size in (*value.shape, *value.stride()))


def is_like(fake: Any, given: Any) -> bool:
    """Tell if a fake value is one of a plain tensor, as it is given to the graph."""
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
    if not isinstance(fake, FakeTensor) or type(given) not in plain or given.layout is not torch.strided:
        return False
    if (fake.stride(), fake.storage_offset()) != (given.stride(), given.storage_offset()):
        return False
    return all(getattr(fake, name) == getattr(given, name) for name in ("shape", "dtype", "device", "requires_grad"))


def fake_inputs(module: GraphModule) -> list[Any]:
    """The fake values that Dynamo gave a graph's inputs: no data is kept for them."""
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]


def copy_of(module: GraphModule) -> GraphModule:
    """A copy of a graph of Dynamo, with what Dynamo told of it; its tensors are those of the graph."""
    copied = GraphModule(module, copy.deepcopy(module.graph))
    keep_origins(module, copied)
    return copied


def snapshot_of(graph: Graph) -> Snapshot:
    """A graph as Inductor has it now."""
    context = TracingContext.try_get()
    owner = graph.owning_module or torch.nn.Module()
    return Snapshot(GraphModule(owner, copy.deepcopy(graph)), context and context.fw_metadata, description_of(graph))


def description_of(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The nodes of a graph: their kinds, names, targets and arguments."""
    return tuple((node.op, node.name, str(node.target), str(node.args), str(node.kwargs)) for node in graph.nodes)


def take_nodes(graph: Graph, other: Graph) -> None:
    """Give a graph the nodes of another one, in place; its inputs stay, and are as many."""
    inputs, output = graph.find_nodes(op="placeholder"), graph.output_node()
    former = [node for node in graph.nodes if node not in inputs and node is not output]
    known = dict(zip(other.find_nodes(op="placeholder"), inputs, strict=True))
    with graph.inserting_before(output):
        output.args = (graph.graph_copy(other, known),)
    for node in reversed(former):
        graph.erase_node(node)
    graph.lint()


# ---- the thread ------------------------------------------------------------------------------------------------------


@final
class Background:
    """The thread of a process that does jobs, one after another; it starts with the first."""

    def __init__(self) -> None:
        self.jobs, self.unfinished = deque[Callable[[], None]](), 0
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.run, name=BACKGROUND, daemon=True)

    def submit(self, job: Callable[[], None]) -> None:
        """Let a job be done, which raises nothing."""
        with self.changed:
            self.jobs.append(job)
            self.unfinished += 1
            self.changed.notify_all()
            if self.thread.ident is None:
                atexit.register(self.end)
                self.thread.start()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until all jobs are done; tell if they are."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.unfinished, timeout_s)

    def run(self) -> None:
        """Do the jobs."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.jobs)
                job = self.jobs.popleft()
            job()
            del job
            with self.changed:
                self.unfinished -= 1
                self.changed.notify_all()

    def end(self) -> None:
        """Stop the thread where its Python code stands, as the process ends, and wait for that a short while.

        A thread that runs on while the interpreter is taken down may end the process by a signal.
        """
        for thread in threading.enumerate():
            if thread.name in (BACKGROUND, GATE_THREAD):
                identity = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(SystemExit))
        with self.changed:
            self.changed.notify_all()
        self.thread.join(END_S)


@cache
def background() -> Background:
    """The background of this process."""
    return Background()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background.cache_clear)  # a child has no thread of its parent's
