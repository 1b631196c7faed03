"""The asynchronous mode: Inductor's code first, the code with groups later, and the same numbers all the while."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore

import redalg.torch
from redalg.errors import PlanError
from redalg.torch import asynchronous, backend, gate
from redalg.torch.decisions import Decision
from redalg.torch.records import recorded_reports
from redalg.torch.report import GraphReport
from tests.torch.test_aten import Called, Decoder, drawn
from tests.torch.test_backend import normed

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
LATER: dict[str, Any] = {"redalg.gate": "predicted", "redalg.asynchronous": True}
LIMIT_S = 120


def compiled_later(model: Callable[..., Any], **options: Any) -> Any:
    """A model that swaps."""
    return torch.compile(model, backend="redalg", options={**LATER, **options})


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The background looks for groups once this is set."""
    go, look = threading.Event(), asynchronous.Work.look

    def wait_and_look(work: asynchronous.Work) -> GraphReport:
        assert go.wait(LIMIT_S)
        return look(work)

    monkeypatch.setattr(asynchronous.Work, "look", wait_and_look)
    return go


def test_the_first_calls_run_inductors_code_and_later_ones_the_groups(gated: threading.Event) -> None:
    model, given = Decoder().eval(), drawn(2, 9, 24)
    with torch.no_grad(), recorded_reports() as reports:
        wanted, compiled = model(given), compiled_later(model)
        for _ in range(3):
            torch.testing.assert_close(compiled(given), wanted, rtol=1e-5, atol=1e-5)
        assert [each.swap for each in reports] == ["pending"]
        assert operators_in(compiled, given) == 0
        gated.set()
        assert redalg.torch.wait_for_swaps(LIMIT_S)
        assert [each.swap for each in reports] == [asynchronous.READY]
        for _ in range(3):
            torch.testing.assert_close(compiled(given), wanted, rtol=1e-5, atol=1e-5)
        assert operators_in(compiled, given) == 3
    [report] = reports
    assert "3 of 3 groups put, swapped after" in report.summary


def operators_in(compiled: Callable[..., Any], given: torch.Tensor) -> int:
    """The operators of redalg that a call runs."""
    with torch.profiler.profile() as profile:
        compiled(given)
    return sum(event.name.startswith("redalg::compute") for event in profile.events())


def test_results_are_right_while_two_threads_call(gated: threading.Event) -> None:
    model, given = Decoder().eval(), drawn(2, 9, 24)
    with torch.no_grad(), recorded_reports() as reports:
        wanted, compiled = model(given), compiled_later(model)
        compiled(given)
        stop, failures, calls = threading.Event(), list[BaseException](), [0, 0]

        def loop(number: int) -> None:
            try:
                with torch.no_grad():
                    while not stop.is_set():
                        torch.testing.assert_close(compiled(given), wanted, rtol=1e-5, atol=1e-5)
                        calls[number] += 1
            except BaseException as failure:  # noqa: BLE001 - the test tells it
                failures.append(failure)

        threads = [threading.Thread(target=loop, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        sleep(0.2)
        gated.set()
        until = monotonic() + LIMIT_S
        while monotonic() < until and not failures and "swapped" not in reports[0].swap:
            sleep(0.05)
        before = [*calls]
        while monotonic() < until and not failures and not all(a < b for a, b in zip(before, calls, strict=True)):
            sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert reports[0].swap.startswith("swapped after")
    assert min(before) > 0


class Counter(nn.Module):
    """It changes a buffer, and what it is given, in place."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(20))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        x.mul_(2)
        return normed(y), x + self.count


def test_what_is_changed_in_place_is_changed_once_a_call() -> None:
    model, want, mine, its, other = Counter(), Counter(), drawn(6, 20), drawn(6, 20), drawn(6, 20)
    its.copy_(mine)
    place = model.count.data_ptr()
    with torch.no_grad(), recorded_reports() as reports:
        compiled = compiled_later(model)
        for _ in range(4):
            torch.testing.assert_close(compiled(mine, other), want(its, other), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(mine, its)
            assert redalg.torch.wait_for_swaps(LIMIT_S)
    assert reports[0].swap.startswith("swapped after")
    torch.testing.assert_close(model.count, torch.full((20,), 4.0))
    assert model.count.data_ptr() == place


def test_random_numbers_go_on_as_if_nothing_was_compiled() -> None:
    given = drawn(6, 20)
    torch.manual_seed(1)
    wanted = [torch.rand(3) for _ in range(4)]
    with torch.no_grad():
        compiled = compiled_later(Called(normed))
        compiled(given)
        torch.manual_seed(1)
        found = [torch.rand(3)]
        assert redalg.torch.wait_for_swaps(LIMIT_S)
        found.append(torch.rand(3))
        compiled(given)
        found += [torch.rand(3), torch.rand(3)]
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_an_explanation_tells_of_the_swap_and_of_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        told = redalg.torch.explain(normed, drawn(6, 20), options=LATER)
        assert "1 of 1 groups put, swapped after" in str(told)
        assert told.picture().startswith("<svg")
        torch._dynamo.reset()
        monkeypatch.setattr("redalg.torch.explanation.wait_for_swaps", lambda _: False)
        assert "in the background: pending" in str(redalg.torch.explain(normed, drawn(6, 20), options=LATER))


# ---- the gate --------------------------------------------------------------------------------------------------------


def test_nothing_is_measured_in_the_background(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gate, "measure_region", lambda *_: pytest.fail("calls would disturb it"))
    with torch.no_grad():
        told = redalg.torch.explain(normed, drawn(6, 20), options={"redalg.asynchronous": True})
    assert [str(each.decision) for each in told.graphs[0].groups] == ["put, not measured"]
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize("is_put", [True, False])
def test_what_was_measured_before_holds(is_put: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = Decision(is_put=is_put, fused_us=1.0, plain_us=2.0)
    monkeypatch.setattr(gate, "measure_region", lambda *_, **__: decision)
    with torch.no_grad():
        redalg.torch.explain(normed, drawn(6, 20))
        torch._dynamo.reset()
        told = redalg.torch.explain(normed, drawn(6, 20), options={"redalg.asynchronous": True})
    [report] = told.graphs
    assert [each.decision for each in report.groups] == [decision]
    assert report.swap.startswith("swapped after" if is_put else "not swapped, as no group was put")


# ---- faults ----------------------------------------------------------------------------------------------------------


def failing(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


@pytest.mark.parametrize("fails", ["copy_of", "Work.look", "Work.compile"])
def test_a_failure_keeps_inductors_code(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    monkeypatch.setattr(f"redalg.torch.asynchronous.{fails}", failing)
    given = drawn(6, 20)
    with torch.no_grad(), recorded_reports() as reports, caplog.at_level(logging.WARNING, "redalg.torch"):
        compiled = compiled_later(Called(normed))
        for _ in range(3):
            torch.testing.assert_close(compiled(given), normed(given), rtol=1e-5, atol=1e-5)
            assert redalg.torch.wait_for_swaps(LIMIT_S)
    assert [each.failure for each in reports] == ["RuntimeError: planted"]
    assert [one.message for one in caplog.records].count(
        "Inductor's code of a graph goes on: RuntimeError: planted") == 1  # fmt: skip


def test_another_graph_the_second_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = asynchronous.snapshot_of
    monkeypatch.setattr(asynchronous, "description_of", lambda _: (("other",),))
    monkeypatch.setattr(asynchronous, "snapshot_of", lambda graph: replace(snapshot(graph), nodes=()))
    given = drawn(6, 20)
    with torch.no_grad():
        told = redalg.torch.explain(normed, given, options=LATER)
    assert told.graphs[0].failure.endswith("GraphError: Inductor made another graph the second time")


@pytest.mark.slow
def test_a_process_that_ends_while_a_graph_is_pending_does_not_hang(tmp_path: Path) -> None:
    program = """
import time, torch
from redalg.torch import asynchronous
def look(work):
    print("looking", flush=True)
    while True:
        time.sleep(0.01)
asynchronous.Work.look = look
model = torch.compile(lambda x: torch.softmax(x, -1), backend="redalg", options={"redalg.asynchronous": True})
with torch.no_grad():
    model(torch.randn(6, 20))
while not asynchronous.background().thread.is_alive():
    time.sleep(0.01)
time.sleep(0.2)
print("end", flush=True)
"""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "REDALG_CACHE_DIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True,
                           timeout=LIMIT_S, check=False, env=environment)  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "looking\nend\n"), found.stderr
    assert "Traceback" not in found.stderr


# ---- graphs that do not swap -----------------------------------------------------------------------------------------


def at_once(compiled: Callable[..., Any], given: torch.Tensor, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons for which a call's graph was compiled at once; it has its groups already."""
    with caplog.at_level(logging.WARNING, "redalg.torch"), recorded_reports() as reports:
        for _ in range(2):
            compiled(given)
    assert not any(each.swap for each in reports)
    head = "a graph is compiled at once, and not in the background: "
    return [one.message.removeprefix(head) for one in caplog.records if one.message.startswith(head)]


def test_a_graph_that_is_trained_is_compiled_at_once(caplog: pytest.LogCaptureFixture) -> None:
    [reason] = at_once(compiled_later(Called(normed)), drawn(6, 20).requires_grad_(), caplog)
    assert reason.startswith("it is trained")


def test_sizes_that_vary_are_compiled_at_once(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(Called(normed), backend="redalg", options=LATER, dynamic=True)
    with torch.no_grad():
        assert at_once(compiled, drawn(6, 20), caplog) == ["its sizes vary, or numbers that it takes"]


def test_processes_that_work_together_compile_at_once(caplog: pytest.LogCaptureFixture) -> None:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        with torch.no_grad():
            [reason] = at_once(compiled_later(Called(normed)), drawn(6, 20), caplog)
    finally:
        distributed.destroy_process_group()
    assert "torch.distributed" in reason


def test_processes_that_meet_later_keep_inductors_code() -> None:
    given = drawn(6, 20)
    with torch.no_grad(), recorded_reports() as reports:
        compiled = compiled_later(Called(normed))
        compiled(given)
        assert redalg.torch.wait_for_swaps(LIMIT_S)
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        try:
            torch.testing.assert_close(compiled(given), normed(given), rtol=1e-5, atol=1e-5)
        finally:
            distributed.destroy_process_group()
        assert operators_in(compiled, given) == 0
    assert [each.swap for each in reports] == ["not swapped, as processes work together now"]


@pytest.mark.parametrize("option", ["freezing", "triton.cudagraphs"])
def test_options_that_fix_the_code_compile_at_once(option: str, caplog: pytest.LogCaptureFixture) -> None:
    with torch.no_grad():
        assert at_once(compiled_later(Called(normed), **{option: True}), drawn(6, 20), caplog) == [
            f"Inductor's option is on: {option}"]  # fmt: skip


def test_calls_that_are_replayed_are_compiled_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with torch.no_grad():
        [reason] = at_once(compiled_later(Called(normed), **{"redalg.gate": "replayed"}), drawn(6, 20), caplog)
    assert "CUDA graphs" in reason


@pytest.mark.parametrize("word", ["yes", 1, None])
def test_the_option_is_true_or_false(word: Any) -> None:
    with pytest.raises(PlanError, match="should be True or False"):
        backend.read_options(None, {"redalg.asynchronous": word})
    assert backend.read_options(None, None).asynchronous is False
