"""The benchmark of a training step: a small one runs here, and both contestants learn alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import documents, training_step
from benchmarks.__main__ import main
from benchmarks.compete import OWN, Measurement
from benchmarks.timing import Timing


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
def test_a_training_step_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "SAMPLES", 1)
    assert main(["step", "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))
    [row] = content["rows"]
    own, peer = (row["contestants"][name]["losses"] for name in (OWN, training_step.PEER))
    assert own == pytest.approx(peer, rel=1e-4)
    assert own == sorted(own, reverse=True)  # it learns its batch
    assert len(own) == training_step.FIRST
    assert row["source_sha256"]
    assert main(["report", str(tmp_path / "step.json"), "--out", str(tmp_path)]) == 0
    [section] = [one for one in documents.sections(documents.Results({}, {}, None, {}, content)) if "## step" in one]
    assert "llama-2x16" in section


def test_losses_that_differ_are_a_failure() -> None:
    row = training_step.step_row(training_step.SMALL, "float32")
    right = Measurement(None, Timing("wall", (1.0,), 1.0, 1, 1))
    assert training_step.judge_losses(row, right, 1e-6) == replace(right, error=1e-6)
    assert training_step.judge_losses(row, right, None) == right
    for error in (1e-2, float("nan")):
        wrong = training_step.judge_losses(row, right, error)
        assert (wrong.timing, "losses differ" in wrong.failure) == (None, True)


def test_a_steps_functions_are_known_without_a_gpu() -> None:
    """Loss and attention with their backwards; all of the model's products are counted."""
    row = training_step.step_row(training_step.LLAMA, "bfloat16")
    assert len(training_step.problems(row)) == 4 + 6  # the loss has an operand of two lengths of parts
    assert row.flops == pytest.approx(3 * 2 * 8192 * (4 * 45_088_768 + 65_536_000) + 3.5 * 4 * 68_719_476_736)
