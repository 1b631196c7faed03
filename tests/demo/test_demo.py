"""The demo on small sizes: every figure is measured, and every failure is told."""

import math
import subprocess
import sys
from argparse import Namespace
from io import StringIO
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from rich.console import Console

from redalg import RedalgError, optional
from redalg.commands import start
from redalg.demo import tour, trial
from redalg.demo.tour import ERROR_BOUND, complaints, error_bound
from redalg.demo.trial import BLOCKS, KERNEL, SDPA, UNFUSED, Failure, Measurement, Shape, Trial
from redalg.explain.text import text_width
from redalg.instruments.memory import peak_bytes
from tests.house.source import ROOT

SMALL = Shape(b=1, h=2, q=33, k=77, d=16, e=24)
MIB = 2**20


def console() -> tuple[Console, StringIO]:
    stream = StringIO()
    return Console(file=stream, width=80), stream


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "redalg", *arguments]
    return subprocess.run(line, cwd=ROOT, check=False, capture_output=True, text=True)


# ---- measuring -------------------------------------------------------------------------------------------------------


def test_the_peak_of_a_call_counts_what_it_frees() -> None:
    """In a process of its own, where no memory that was freed before is used again."""
    code = f"""if True:
        import torch
        from redalg.instruments.memory import peak_bytes
        print(*peak_bytes(lambda: torch.ones({64 * MIB // 4}).numel(), "cpu"))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result, peak = map(int, run.stdout.split())
    assert result == 16 * MIB
    assert 60 * MIB < peak < 100 * MIB


def test_the_peak_forgets_earlier_calls() -> None:
    torch.ones(64 * MIB // 4).sum()
    _, peak = peak_bytes(lambda: torch.ones(8), "cpu")
    assert peak < 8 * MIB


@pytest.mark.parametrize("contestant", [BLOCKS, KERNEL, SDPA, UNFUSED])
def test_every_contestant_is_right(contestant: str) -> None:
    steps: list[int] = []
    one = Trial(contestant, SMALL, calls=2)
    measured = trial.measure_trial(one, lambda: steps.append(1))
    assert measured.error <= ERROR_BOUND
    assert measured.seconds > 0
    assert len(steps) == one.steps


def test_the_error_of_a_wrong_result_shows() -> None:
    inputs = trial.make_inputs(SMALL, "float32", "cpu")
    right = trial.unfused_attention(**inputs)
    assert trial.relative_error(right * 1.5, inputs) == pytest.approx(0.5, rel=1e-5)
    assert math.isnan(trial.relative_error(right * math.nan, inputs))


@pytest.mark.slow
def test_a_process_of_its_own_sends_what_it_measured() -> None:
    steps: list[int] = []
    one = Trial(UNFUSED, SMALL)
    outcome = trial.measure_apart(one, lambda: steps.append(1))
    assert isinstance(outcome, Measurement)
    assert outcome.error <= ERROR_BOUND
    assert len(steps) == one.steps


def test_what_fails_in_a_process_of_its_own_is_an_outcome() -> None:
    assert trial.measure_apart(Trial("nobody", SMALL)) == Failure("KeyError: 'nobody'")


def test_a_process_that_ends_early_sends_nothing() -> None:
    here, there = Pipe(duplex=False)
    there.close()
    assert trial.receive_outcome(here, lambda: None) is None


# ---- the verdict -----------------------------------------------------------------------------------------------------


def test_float32_has_a_bound_of_its_own_and_float16_twice_sdpas_error() -> None:
    own, peer = Trial(KERNEL, SMALL, "float16", "cuda"), Trial(SDPA, SMALL, "float16", "cuda")
    results: tour.Results = {own: Measurement(3e-4, 1.0, 0), peer: Measurement(2e-4, 1.0, 0)}
    assert error_bound(Trial(BLOCKS, SMALL), results) == ERROR_BOUND
    assert error_bound(own, results) == 4e-4
    assert complaints(results) == []


@pytest.mark.parametrize("error", [2.1e-6, math.nan, math.inf])
def test_an_error_beyond_its_bound_is_told(error: float) -> None:
    told = complaints({Trial(BLOCKS, SMALL): Measurement(error, 1.0, 0)})
    assert told == [f"redalg, blockwise (cpu, float32): error {error:.1e}, allowed 2.0e-06"]


def test_a_failure_is_told_and_fails_the_demo() -> None:
    out, stream = console()
    results: tour.Results = {Trial(KERNEL, SMALL): Failure("its process ended with exit code -9")}
    assert tour.closing_line(out, results) == 1
    assert "redalg, kernel (cpu, float32) failed: its process ended with exit code -9\n" in stream.getvalue()


def test_peers_are_not_held_to_the_bound() -> None:
    out, _ = console()
    assert tour.closing_line(out, {Trial(SDPA, SMALL): Measurement(1.0, 1.0, 0)}) == 0


def test_the_table_has_a_row_for_every_trial() -> None:
    out, stream = console()
    out.print(tour.table({Trial(SDPA, SMALL): Measurement(1e-7, 0.25, 3 * MIB), Trial(UNFUSED, SMALL): Failure("no")}))
    lines = stream.getvalue().splitlines()
    assert lines[0].rstrip() == "b=1 h=2 q=33 k=77 d=16 e=24, float32"
    assert [line.split() for line in lines if "SDPA" in line] == [
        ["PyTorch", "SDPA", "1.0e-07", "3.0", "MiB", "250.00", "ms"]
    ]
    assert any("unfused formula" in line and "failed" in line for line in lines)


def test_the_demo_shows_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "measure_apart", trial.measure_trial)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out, stream = console()
    kernel = tmp_path / "new" / "attention.py"
    assert tour.tour(out, tour.Options(length=128, heads=2, kernel=kernel)) == 0
    text = stream.getvalue()
    assert all(name in text for name in (BLOCKS, SDPA, UNFUSED, "One pass instead of 3", "One more element", "sm_90a",
                                         "The kernel on this CPU", "within their bounds"))  # fmt: skip
    assert len(text.splitlines()) <= 40
    assert max(map(text_width, text.replace(str(kernel), "").splitlines())) <= 80
    assert "Pivot m" not in text
    assert str(kernel) in text.replace("\n", "")
    assert "prim_func" in kernel.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_demo_as_a_command(tmp_path: Path) -> None:
    kernel = tmp_path / "attention.py"
    process = command("demo", "--length", "128", "--heads", "2", "--kernel", str(kernel))
    assert (process.returncode, process.stderr) == (0, "")
    assert kernel.exists()


@pytest.mark.gpu
def test_the_kernel_beside_sdpa_on_the_gpu() -> None:
    shape = Shape(b=1, h=2, q=512, k=512, d=64, e=64)
    trials = [Trial(name, shape, "float16", "cuda") for name in (KERNEL, SDPA)]
    assert complaints({one: trial.measure_apart(one) for one in trials}) == []


@pytest.mark.parametrize("missing", ["torch", "tilelang"])
def test_the_demo_says_what_is_not_installed(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda name: None if name == missing else object())
    out, written = console()
    with pytest.raises(RedalgError) as error:
        start.run_demo(out, Namespace(full=False))
    assert "derived from its definition" in written.getvalue()
    assert "One more element" in written.getvalue()
    assert str(error.value) == (
        f'the rest of the demo needs {missing}, which is not installed. Run: pip install "redalg[tilelang]"'
    )
