"""Verdicts and forms read the same in every process: Python's string hashing, which differs, decides nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.house.source import ROOT

SEEDS = ("0", "1", "4242")


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_every_text_is_the_same_under_any_hash_seed(every: int) -> None:
    command = [sys.executable, "-m", "tests.verdict_texts", str(every)]
    settings = {**os.environ, "PYTHONUTF8": "1"}
    runs = [subprocess.Popen(command, cwd=ROOT, text=True, encoding="utf-8", stdout=subprocess.PIPE,
                             env={**settings, "PYTHONHASHSEED": seed}) for seed in SEEDS]  # fmt: skip
    first, *others = [run.communicate()[0].splitlines() for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert len(first) > 500 // every
    for seed, lines in zip(SEEDS[1:], others, strict=True):
        differing = {a.rsplit(" ", 2)[0] for a, b in zip(first, lines, strict=True) if a != b}
        assert differing == set(), f"PYTHONHASHSEED={seed}"
