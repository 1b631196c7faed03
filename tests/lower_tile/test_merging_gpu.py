"""On a GPU: parts merged in the launch, again and again on fresh data, under graphs and on several streams at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from redalg.lower_tile.ir.runtime_sizes import shape_at, sizes_in
from redalg.runtime.compile.compile import compile_source
from redalg.runtime.lowering import target_of
from redalg.strategies.device import device_for
from redalg.strategies.schedule import Schedule, with_choices
from tests.cases.kernels import fused, problem, worst_error

pytestmark = pytest.mark.gpu
REPEATS = 60
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Merged:
    """A form, shapes of its tensors, what its plan has beside parts, and how far a result may lie from the reference.

    `whole`: of small integers, whose sums and products are exact, so that the same elements are selected.
    """

    form: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype
    bound: float
    plan: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


ROWS = {"level": "block", "block_row": 1, "block_streamed": 1024, "threads": 128}
MERGED = {
    "one query": Merged("attention", {"Q": (2, 8, 1, 64), "K": (2, 8, 8192, 64), "V": (2, 8, 8192, 64)},
                        torch.float16, 2e-3, {"stages": 2}),
    "one query, loading warps": Merged(
        "attention", {"Q": (2, 8, 1, 128), "K": (2, 8, 8192, 128), "V": (2, 8, 8192, 128)}, torch.float16, 2e-3,
        {"stages": 2, "warp_specialized": True, "threads": 128}),
    "rows, loading warps": Merged(
        "attention", {"Q": (1, 2, 128, 128), "K": (1, 2, 4096, 128), "V": (1, 2, 4096, 128)}, torch.float16, 2e-3,
        {"stages": 2, "warp_specialized": True, "threads": 256, "block_row": 128, "block_streamed": 64}),
    "rows in chunks": Merged("attention", {"Q": (1, 4, 100, 64), "K": (1, 4, 2048, 64), "V": (1, 4, 2048, 64)},
                             torch.float16, 2e-3, {"stages": 1, "block_row": 64, "block_merged": 16}),
    "variance": Merged("variance", {"x": (3, 1 << 18)}, torch.float32, 2e-6),
    "variance, tiles": Merged("variance", {"x": (300, 1 << 15)}, torch.float32, 2e-6, ROWS),
    "best of rows": Merged("best of rows", {"x": (5, 1 << 15)}, torch.float32, 0.0, ROWS, whole=True),
    "compensated": Merged("compensated", {"x": (3, 1 << 16)}, torch.float32, 0.0, whole=True),
    "argmax": Merged("argmax", {"x": (5, 1 << 16)}, torch.float32, 0.0, whole=True),
    "last, tiles": Merged("last", {"x": (5, 1 << 16)}, torch.float32, 0.0, ROWS),
    "columns": Merged("covariance", {"x": (37, 2048), "Y": (2048, 150)}, torch.float32, 1e-5),
    "carried": Merged("softmax", {"x": (7, 1 << 15)}, torch.float32, 2e-6, ROWS),
    "routing": Merged("routing", {"x": (70, 256), "W": (256, 512)}, torch.float16, 2e-3,
                      {"block_streamed": 32, "stages": 1, "splits": 1}, whole=True),
}  # fmt: skip
SEGMENTS = [4, 16]


def fresh(one: Merged, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Tensors that no launch before has seen."""
    where = generator.device

    def make(shape: tuple[int, ...]) -> torch.Tensor:
        if one.whole:
            return torch.randint(-2, 3, shape, generator=generator, device=where).to(one.dtype)
        return torch.randn(shape, generator=generator, device=where).to(one.dtype)

    return {name: make(shape) for name, shape in one.shapes.items()}


def called(one: Merged, segments: int) -> Callable[[Tensors], Any]:
    """A call of the form with parts that are merged in the launch."""
    form, chip = fused(one.form), target_of("cuda:0")
    if one.plan.get("warp_specialized") and not device_for(chip).wgmma:
        pytest.skip(f"{chip} has no warps that load alone")
    plan = plan_of(one, segments, chip, fresh(one, torch.Generator("cuda").manual_seed(0)))
    return lambda given: form(**given, plan=plan)


def plan_of(one: Merged, segments: int, chip: str, tensors: Tensors) -> Schedule:
    """The rules' plan with these parts, merged in the launch."""
    plan = fused(one.form).lower(chip, **problem(fused(one.form), tensors)).plan
    return with_choices(plan, **{"segments": segments, "merge": "launch", "warp_specialized": False, **one.plan})


def draws(one: Merged, seed: int) -> Iterator[dict[str, torch.Tensor]]:
    generator = torch.Generator("cuda").manual_seed(seed)
    for _ in range(REPEATS):
        yield fresh(one, generator)


def is_right(one: Merged, made: Any, tensors: Tensors) -> bool:
    return worst_error(made, fused(one.form).reference(**tensors)) <= one.bound


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize("name", MERGED)
def test_launches_one_after_another(name: str, segments: int) -> None:
    one = MERGED[name]
    call = called(one, segments)
    wrong = [place for place, given in enumerate(draws(one, segments)) if not is_right(one, call(given), given)]
    assert not wrong


@pytest.mark.parametrize("name", MERGED)
def test_launches_without_waiting(name: str) -> None:
    """Many in flight, which write the memory of those before; every result is the one that a call alone gives."""
    one = MERGED[name]
    call = called(one, 4)
    given = list(zip(range(16), draws(one, 1), strict=False))
    alone = []
    for _, tensors in given:
        alone.append(call(tensors))
        torch.cuda.synchronize()
    for _ in range(20):
        made = [call(tensors) for _, tensors in given]
        torch.cuda.synchronize()
        for first, again in zip(alone, made, strict=True):
            assert same(first, again)


def same(first: Any, again: Any) -> bool:
    """To the last bit: parts are merged in their order, whichever block comes last."""
    pairs = [(first, again)] if isinstance(first, torch.Tensor) else list(zip(first, again, strict=True))
    return all(torch.equal(a, b) for a, b in pairs)


@dataclass(frozen=True)
class Captured:
    """A graph of several launches in a row, with the tensors that it reads and what it makes."""

    graph: torch.cuda.CUDAGraph
    given: list[dict[str, torch.Tensor]]
    made: list[Any]


def captured(one: Merged, call: Callable[[Tensors], Any], launches: int = 3) -> Captured:
    given = [fresh(one, torch.Generator("cuda").manual_seed(place)) for place in range(launches)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for tensors in given:
            call(tensors)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = [call(tensors) for tensors in given]
    return Captured(graph, given, made)


def filled(into: Captured, one: Merged, generator: torch.Generator) -> None:
    for tensors in into.given:
        for name, array in fresh(one, generator).items():
            tensors[name].copy_(array)


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize("name", MERGED)
def test_a_graph_replayed(name: str, segments: int) -> None:
    one, generator = MERGED[name], torch.Generator("cuda").manual_seed(segments)
    graph = captured(one, called(one, segments))
    for _ in range(REPEATS):
        filled(graph, one, generator)
        graph.graph.replay()
        torch.cuda.synchronize()
        assert all(is_right(one, made, given) for made, given in zip(graph.made, graph.given, strict=True))


@pytest.mark.parametrize("name", ["one query", "variance, tiles", "columns"])
def test_graphs_and_calls_side_by_side(name: str) -> None:
    """Two graphs, captured on one stream, and plain calls, on three streams at once: they share no counter."""
    one, generator = MERGED[name], torch.Generator("cuda").manual_seed(7)
    call = called(one, 4)
    graphs, streams = [captured(one, call) for _ in range(2)], [torch.cuda.Stream() for _ in range(3)]
    for _ in range(REPEATS // 4):
        for graph in graphs:
            filled(graph, one, generator)
        plain = [fresh(one, generator) for _ in range(3)]
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.graph.replay()
        with torch.cuda.stream(streams[2]):
            made = [call(tensors) for tensors in plain]
        torch.cuda.synchronize()
        for graph in graphs:
            assert all(is_right(one, got, given) for got, given in zip(graph.made, graph.given, strict=True))
        assert all(is_right(one, got, given) for got, given in zip(made, plain, strict=True))


def test_sizes_that_change() -> None:
    """One kernel, called as it is: counters are arguments, of as many places as there are tiles."""
    form, chip = fused("attention"), target_of("cuda:0")
    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(nb: int, nh: int, nq: int, nk: int) -> dict[str, torch.Tensor]:
        shapes = {"Q": (nb, nh, nq, 64), "K": (nb, nh, nk, 64), "V": (nb, nh, nk, 64)}
        made = {name: torch.randn(shape, generator=generator, device="cuda") for name, shape in shapes.items()}
        return {name: one.half() for name, one in made.items()}

    options = problem(form, drawn(1, 2, 70, 3000))
    plan = form.lower(chip, **options, varying="bhqk").plan
    plan = with_choices(plan, segments=4, stages=1, merge="launch", warp_specialized=False)
    lowered = form.lower(chip, **options, varying="bhqk", plan=plan)
    run = compile_source(lowered.source).run
    for extents in ((1, 2, 70, 3000), (2, 3, 5, 1000), (1, 1, 129, 65), (2, 1, 1, 1)):
        tensors = drawn(*extents)
        sizes = sizes_in(lowered.program.parameters, {name: tuple(one.shape) for name, one in tensors.items()})
        made = {}
        for one in lowered.program.parameters:
            make = torch.zeros if one.role == "counter" else torch.empty
            if one.role != "input":
                made[one.name] = make(shape_at(one.shape, sizes), dtype=getattr(torch, one.dtype), device="cuda")
        for _ in range(REPEATS // 4):
            run(*(tensors[name] for name in form.cascade.inputs()), *made.values())
            assert worst_error(made["out"], form.reference(**tensors)) <= 2e-3
        assert not made["done"].any()
