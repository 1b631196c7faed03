"""The gate: what a group costs and gains, and in what order the time of a budget is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from redalg.runtime.tune import compiling
from redalg.runtime.tune.timing import Timing
from redalg.torch import ahead, backend, gate
from redalg.torch.backend import GroupPass
from redalg.torch.decisions import Decision
from redalg.torch.regions import Region

pytestmark = pytest.mark.usefixtures("anew")


@pytest.mark.parametrize(
    ("fused", "plain", "host", "is_put"),
    [
        ((5, 40), (8, 15), False, True),  # the device alone
        ((5, 40), (8, 15), True, False),  # a small kernel waits for the host
        ((90, 40), (120, 60), True, True),
        ((20, 40), (30, 60), True, True),  # of many small kernels
        ((120, 20), (90, 60), True, False),
    ],
)
def test_a_call_costs_the_longer_of_device_and_host(
    fused: tuple[int, int], plain: tuple[int, int], host: bool, is_put: bool
) -> None:
    timings = [Timing("cuda graph", (float(device),), float(of_host), 8, 1) for device, of_host in (fused, plain)]
    decision = gate.decision_by(timings, host=host)
    assert decision.is_put is is_put
    assert (decision.fused_us, decision.plain_us) == (fused[0], plain[0])
    assert ("a call takes the host 40 and" in str(decision)) is (host and fused[1] == 40)


def test_the_host_has_no_part_in_replayed_calls() -> None:
    assert backend.read_options(None, None)[0] == "measured"
    assert backend.read_options("reduce-overhead", None)[0] == "replayed"
    assert backend.read_options(None, {"triton.cudagraphs": True})[0] == "replayed"
    assert backend.read_options("reduce-overhead", {"redalg.gate": "predicted"})[0] == "predicted"
    with inductor.patch({"triton.cudagraphs": True}):
        assert backend.read_options(None, None)[0] == "replayed"
    assert GroupPass("measured").uuid() != GroupPass("replayed").uuid()


def region_of_gain(gain_us: float) -> Region:
    return Region(GraphModule({}, Graph()), GraphModule({}, Graph()), (), (), gain_us)


def test_integers_that_are_read_as_truths_hold_in_a_trial() -> None:
    """A mask of zeros would mask all: a trial would compare rows in which nothing counts."""

    def part(x: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(mask.bool() & (places > 0), x, -1.0), x[places]]

    inputs = torch.ones(3), torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)
    plain = make_fx(part, tracing_mode="fake")(*inputs)
    _, mask, places = Region(plain, plain, inputs, (False,) * 3).draw()
    assert mask.tolist() == [1, 1, 1]
    assert places.tolist() == [0, 0, 0]


def test_regions_that_gain_most_are_decided_first() -> None:
    found = gate.by_gain("abcbb", [region_of_gain(gain) for gain in (5.0, 2.0, 1.0, 2.0, 2.0)])
    assert [*found] == ["b", "a", "c"]


def test_the_budget_is_not_spent_on_regions_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on with each compilation: what is not compiled ahead is compiled when it is measured."""
    clock, calls = [0.0], list[str]()

    def step(what: str) -> Callable[..., Any]:
        def take(region: Region, *_: Any, **__: Any) -> Any:
            clock[0] += 10.0
            calls.append(f"{what} {region.gain_us:.0f}")
            return Decision(is_put=True) if what == "measure" else abs

        return take

    monkeypatch.setattr(gate, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gate, "compile_plain", step("compile"))
    monkeypatch.setattr(gate, "measure_region", step("measure"))
    regions = {f"{number:064}": region_of_gain(number) for number in range(4)}
    found = gate.measure_regions(regions, torch.device("cpu"), 50.0, is_replayed=True)
    assert calls == ["compile 0", "compile 1", "compile 2", "measure 0", "measure 1", "measure 2"]
    assert [decision.is_put for decision in found.values()] == [True, True, True, False]
    assert found[f"{3:064}"] == gate.LATE


def test_a_kernel_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are waited for; what compiles still when the time is over is late."""
    clock = [0.0]
    monkeypatch.setattr(ahead, "monotonic", lambda: clock[0])
    monkeypatch.setattr(compiling, "monotonic", lambda: clock[0])

    class Timed:
        """A result that is there at a time; whoever waits moves the clock."""

        def __init__(self, end: float) -> None:
            self.end = end

        def result(self, seconds: float) -> str:
            clock[0] = min(clock[0] + seconds, max(clock[0], self.end))
            if clock[0] < self.end:
                raise TimeoutError
            return ""

    def job(started: float, seconds: float) -> Any:
        made: Any = compiling.Job(None)
        made.started, made.failure = started, Timed(started + seconds)
        return made

    jobs: dict[Any, Any] = {"short": job(0, 5), "long": job(2, 500), "next": job(40, 50), "last": job(80, 59)}
    sources: dict[str, Any] = {"a": ["short", "next"], "b": ["short", "long"], "c": ["last"], "none": []}
    kernels = ahead.Ahead(jobs, sources)
    kernels.wait(100.0)
    assert clock[0] == 100.0
    assert [name for name in kernels.sources if kernels.is_given_up(name)] == ["b"]
    assert [name for name in kernels.sources if kernels.is_ready(name)] == ["a", "none"]
    put = Decision(is_put=True)
    found = [gate.with_kernels(kernels, name, lambda: put, math.inf) for name in kernels.sources]
    assert found == [put, gate.SLOW, gate.LATE, put]
    assert gate.SLOW.lasts
    assert not gate.LATE.lasts
