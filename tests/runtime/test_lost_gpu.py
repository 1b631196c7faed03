"""Tuning where a kernel breaks the device's context: in a process of its own, which can run nothing on it any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch
from redalg.runtime.tune import tuner
from tests.cases.kernels import fused

timed, run = tuner.Measuring.check_and_time, []


def breaking(self, step):
    run.append(step)
    if len(run) == 3:  # an index that the device refuses, which ends its context
        torch.zeros(8, device="cuda")[torch.tensor([8], device="cuda")]
    return timed(self, step)


tuner.Measuring.check_and_time = breaking
given = {name: torch.randn(1, 2, 64, 64, device="cuda", dtype=torch.float16) for name in "QKV"}
made = fused("attention").tune(**given, budget_s=150.0)
assert len(run) == 3, run
assert [one.measured_us is not None for one in made.trials][:2] == [True, True]
assert "assert" in made.trials[2].failure.lower(), made.trials[2].failure
assert all(one.failure.startswith("not measured: this process lost the device") for one in made.trials[3:5])
assert made.best is not None and made.path is not None
try:
    torch.zeros(8, device="cuda")
except RuntimeError:
    print("lost, and remembered")
"""


def test_what_was_measured_before_is_remembered(tmp_path: Path) -> None:
    """A device-side assertion, not a simulated one."""
    environment = {
        "REDALG_CACHE_DIR": str(tmp_path),
        "REDALG_TUNED": "on",
        "PYTHONPATH": ":".join([str(ROOT), *sys.path]),
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env={**os.environ, **environment}, text=True,
        capture_output=True, timeout=400, check=False,
    )  # fmt: skip
    assert process.stdout.strip().endswith("lost, and remembered"), process.stdout[-500:] + process.stderr[-2000:]
    assert list((tmp_path / "tuned").glob("*.json"))
