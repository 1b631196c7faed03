"""Measure functions across ranks: redalg's collectives beside PyTorch's, each rank with a GPU of this machine.

ranks              over all GPUs with NCCL; without any, small sizes over two ranks with Gloo
ranks --out DIR    written into DIR/ranks.json

    one query     of 32 heads over 131072 keys, which are split; every rank has the output: by an all-gather of states,
                  through symmetric memory, and by PyTorch's two gathers
    causal rows   of 65536 queries and keys, both split in zigzag: context parallelism
    variance      of 8 rows, 16 GiB a rank

Times are the slowest rank's, of several calls one after another. Each contestant is checked against the whole first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from sympy import oo
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import redalg as ra
from benchmarks import report
from benchmarks.compete import OWN, Measurement, Result, said
from benchmarks.environment import environment
from benchmarks.family import Row
from benchmarks.timing import Timing
from redalg.distributed.ready import Ready

NAME = "ranks"
SAMPLES, WARM, TIMEOUT_S = 7, 3, 120
TOLERANCE = {"bfloat16": 2e-2, "float32": 1e-4}
ALONE = "the shard alone, no exchange"
"""A contestant whose outputs are those of a shard: the time that no exchange could be below."""
Call = Callable[[], torch.Tensor]
n, q, k, d = ra.axes("n q k d")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
VARIANCE = ra.fuse(ra.var(ra.tensor("x[b,n]"), n), axes="b")


class Contest(NamedTuple):
    """What is measured: a row, the calls in a sample, the contestants, and the outputs that are wanted."""

    row: Row
    calls: int
    contestants: dict[str, Call]
    wanted: torch.Tensor


class Place(NamedTuple):
    """A rank: its number, how many there are, its device, and whether sizes are those of a GPU."""

    rank: int
    size: int
    device: torch.device
    large: bool

    def normal(self, seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normal numbers, the same on every rank."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=self.device, dtype=torch.float32).to(dtype)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"write {NAME}.json into this folder")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help="some rows alone")


def main(options: argparse.Namespace) -> int:
    """Measure, write and show; 1 where redalg failed or is wrong."""
    size, context = torch.cuda.device_count() or 2, get_context("spawn")
    with TemporaryDirectory() as folder:
        outer, inner = context.Pipe(duplex=False)
        processes = [context.Process(target=serve, args=(rank, size, f"{folder}/store", options.rows, inner))
                     for rank in range(size)]  # fmt: skip
        for process in processes:
            process.start()
        inner.close()
        results = list(received(outer))
        for process in processes:
            process.join(10)
            process.kill()
    content = report.document(NAME, environment() | {"ranks": size}, results)
    if options.out:
        report.save(options.out / f"{NAME}.json", content)
    report.show(content)
    own = [result.measurements[OWN] for result in results]
    return int(len(own) < len(options.rows) or any(one.failure for one in own))


def received(pipe: Any) -> Iterator[Result]:
    """The results that the first rank sends, until it ends."""
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return


def serve(rank: int, size: int, store: str, names: list[str], pipe: Any) -> None:
    """Be a rank: measure these rows; the first rank sends the results."""
    large = torch.cuda.is_available()
    if large:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if large else "gloo", init_method=f"file://{store}", rank=rank, world_size=size,
                            timeout=timedelta(seconds=TIMEOUT_S))  # fmt: skip
    place = Place(rank, size, torch.device("cuda", rank) if large else torch.device("cpu"), large)
    for name in names:
        contest = ROWS[name](place)
        measurements = {who: measured(place, contest, who) for who in contest.contestants}
        if rank == 0:
            pipe.send(Result(contest.row, None, measurements, "a call on every rank"))
            pipe.close() if name == names[-1] else None
        del contest
        if large:
            torch.cuda.empty_cache()
    dist.barrier()
    dist.destroy_process_group()


def measured(place: Place, contest: Contest, who: str) -> Measurement:
    """The time and the error of a contestant; the reason if it fails."""
    try:
        return timed(place, contest, who)
    except Exception as error:  # noqa: BLE001 - a peer that cannot is told
        return Measurement(None, None, said(error))
    finally:
        getattr(contest.contestants[who], "close", lambda: None)()


def timed(place: Place, contest: Contest, who: str) -> Measurement:
    """The time and the error of a contestant."""
    call = contest.contestants[who]
    found = call()
    wanted = contest.wanted.double()
    error = ((found.double() - wanted).abs().max() / wanted.abs().max()).reshape(1)
    dist.all_reduce(error, dist.ReduceOp.MAX)
    allowed = TOLERANCE[str(found.dtype).removeprefix("torch.")]
    right = float(error) <= allowed or who == ALONE
    failure = "" if right else f"its error is {float(error):.1e}, allowed {allowed:.1e}"
    samples = [sample(place, contest.calls, call) for _ in range(WARM + SAMPLES)][WARM:]
    timing = Timing("cuda events" if place.large else "wall", tuple(samples), 0.0, contest.calls, 1)
    return Measurement(float(error), timing, failure)


def sample(place: Place, calls: int, call: Call) -> float:
    """Microseconds of a call, of several one after another, on the slowest rank."""
    from time import perf_counter

    dist.barrier()
    if place.large:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        spent = begin.elapsed_time(end) * 1e3 / calls
    else:
        start = perf_counter()
        for _ in range(calls):
            call()
        spent = (perf_counter() - start) * 1e6 / calls
    slowest = torch.tensor([spent], device=place.device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


class Captured:
    """A call as a CUDA graph, captured when it is called first."""

    def __init__(self, call: Call) -> None:
        self.call, self.graph = call, torch.cuda.CUDAGraph()
        self.output: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        if self.output is None:
            for _ in range(3):
                self.call()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph):
                self.output = self.call()
        self.graph.replay()
        return self.output


# ---- one query -------------------------------------------------------------------------------------------------------


def one_query(place: Place) -> Contest:
    """One query of many heads, whose keys are split."""
    heads, length, depth = (32, 131072, 128) if place.large else (2, 64, 16)
    dtype = torch.bfloat16 if place.large else torch.float32
    query = place.normal(0, 1, heads, 1, depth, dtype=dtype)
    own = slice(place.rank * length // place.size, (place.rank + 1) * length // place.size)
    keys, values = (place.normal(seed, 1, heads, length, depth, dtype=dtype) for seed in (1, 2))
    wanted = functional.scaled_dot_product_attention(query.float(), keys.float(), values.float())
    keys, values = keys[:, :, own].contiguous(), values[:, :, own].contiguous()
    outputs = weighted(depth, causal=False)
    fused, both = ra.fuse(outputs["out"][0], axes="b h q e"), ra.fuse(outputs)
    spread, gathered = (fused.distributed(axis="k", exchange=one) for one in (None, "gather"))

    def gathers() -> torch.Tensor:
        """Two gathers, and a merge by PyTorch's operations."""
        out, lse = both(Q=query, K=keys, V=values)
        outs, lses = (torch.empty(place.size, *one.shape, dtype=one.dtype, device=place.device) for one in (out, lse))
        for whole, part in ((outs, out), (lses, lse)):
            dist.all_gather_into_tensor(whole.view(-1), part.contiguous().view(-1))
        return (torch.softmax(lses, 0)[..., None] * outs.float()).sum(0).to(out.dtype)

    calls: dict[str, Call] = {
        OWN: lambda: spread(Q=query, K=keys, V=values),
        "redalg, all-gather": lambda: gathered(Q=query, K=keys, V=values),
        "two gathers, merged by PyTorch": gathers,
    }
    if place.large:
        pulled = fused.distributed(axis="k", exchange="symmetric")

        def copied() -> torch.Tensor:
            """Through symmetric memory, of which all states are read into rows before they are merged."""
            with patch.object(Ready, "merges_in_place", new=False):
                return pulled(Q=query, K=keys, V=values)

        calls |= {
            ALONE: Captured(lambda: fused(Q=query, K=keys, V=values)),
            "two gathers, captured": Captured(gathers),
            "redalg, captured": Captured(calls[OWN]),
            "redalg, all-gather, captured": Captured(calls["redalg, all-gather"]),
            "redalg, symmetric memory, captured": Captured(lambda: pulled(Q=query, K=keys, V=values)),
            "redalg, symmetric memory, copied first, captured": Captured(copied),
        }
    sizes = {"b": 1, "h": heads, "q": 1, "k": length, "d": depth}
    shapes = {"Q": tuple(query.shape), "K": (1, heads, length, depth), "V": (1, heads, length, depth)}
    return Contest(row_of("one query", sizes, shapes, dtype), 50 if place.large else 2, calls, wanted)


def weighted(depth: int, *, causal: bool) -> dict[str, Any]:
    """The mean of V, weighted by the softmax of the scores, and the logarithm of their sum."""
    scores = ra.sum(Q * K, d) / depth**0.5
    scores = ra.where(k <= q, scores, -oo) if causal else scores
    return {"out": (ra.sum(ra.softmax(scores, k) * V, k), "b h q e"), "lse": (ra.logsumexp(scores, k), "b h q")}


# ---- causal rows -----------------------------------------------------------------------------------------------------


def causal_rows(place: Place) -> Contest:
    """Causal attention of long sequences: queries and keys are split in zigzag."""
    heads, length, depth = (16, 65536, 128) if place.large else (2, 64, 16)
    dtype = torch.bfloat16 if place.large else torch.float32
    whole = [place.normal(seed, 1, heads, length, depth, dtype=dtype) for seed in range(3)]
    half = length // (2 * place.size)
    firsts = half * place.rank, half * (2 * place.size - 1 - place.rank)

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:, :, first : first + half] for first in firsts], 2).contiguous()

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if place.large else nullcontext():
        wanted = own(functional.scaled_dot_product_attention(whole[0], whole[1], whole[2], is_causal=True))
    queries, keys, values = map(own, whole)
    fused = ra.fuse(weighted(depth, causal=True)["out"][0], axes="b h q e")
    spread = fused.distributed(axis=k, rows=q, zigzag=True)
    calls: dict[str, Call] = {OWN: lambda: spread(Q=queries, K=keys, V=values)}
    if place.large:
        for method in ("allgather", "alltoall"):
            calls[f"context_parallel, {method}"] = ContextParallel(place, whole, method)
    sizes = {"b": 1, "h": heads, "q": length, "k": length, "d": depth}
    return Contest(row_of("causal rows", sizes, dict.fromkeys("QKV", (1, heads, length, depth)), dtype),
                   3 if place.large else 2, calls, wanted)  # fmt: skip


class ContextParallel:
    """PyTorch's own, with cuDNN's kernels; its context is entered at the first call."""

    def __init__(self, place: Place, whole: list[torch.Tensor], method: str) -> None:
        self.place, self.whole, self.method = place, whole, method
        self.buffers: list[torch.Tensor] = []
        self.contexts = ExitStack()

    def __call__(self) -> torch.Tensor:
        if not self.buffers:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor.experimental import context_parallel
            from torch.distributed.tensor.experimental._attention import set_rotate_method

            set_rotate_method(self.method)
            buffers = [one.clone() for one in self.whole]
            mesh = init_device_mesh("cuda", (self.place.size,))
            self.contexts.enter_context(context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2],
                                                         no_restore_buffers={*buffers}))  # fmt: skip
            self.contexts.enter_context(sdpa_kernel(SDPBackend.CUDNN_ATTENTION))
            self.buffers = buffers
        queries, keys, values = self.buffers
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    def close(self) -> None:
        """Leave the context."""
        self.contexts.close()
        self.buffers = []


# ---- variance --------------------------------------------------------------------------------------------------------


def variance(place: Place) -> Contest:
    """The variance of rows that no machine need hold."""
    rows, elements = (8, 1 << 29) if place.large else (8, 512)
    x = torch.empty(rows, elements, device=place.device)
    generator = torch.Generator(place.device).manual_seed(place.rank)
    for row in x:
        row.normal_(3, 1, generator=generator)
    sums = torch.zeros(2, rows, dtype=torch.float64, device=place.device)
    for part in x.split(1 << 24, 1):
        sums += torch.stack([part.double().sum(1), part.double().square().sum(1)])
    dist.all_reduce(sums)
    mean, square = sums / (elements * place.size)
    spread = VARIANCE.distributed(axis=n)
    calls: dict[str, Call] = {OWN: lambda: spread(x=x)}
    alone: Call = lambda: VARIANCE(x=x)  # noqa: E731
    calls[ALONE] = alone
    sizes = {"b": rows, "n": elements * place.size}
    row = row_of("variance", sizes, {"x": (rows, elements * place.size)}, torch.float32)
    return Contest(row, 5 if place.large else 2, calls, square - mean**2)


def row_of(name: str, sizes: dict[str, int], shapes: dict[str, Any], dtype: torch.dtype) -> Row:
    """A row of the document."""
    return Row(name, sizes, shapes, dict.fromkeys(shapes, str(dtype).removeprefix("torch.")))


ROWS: dict[str, Callable[[Place], Contest]] = {"one-query": one_query, "causal-rows": causal_rows, "variance": variance}
