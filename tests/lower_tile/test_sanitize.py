"""What a sanitizer says is read rightly, launch by launch; a line says where nothing can be checked."""

from __future__ import annotations

import pytest
import torch

from tests import sanitize
from tests.cases.kernels import problem
from tests.cases.small_kernels import given, plan_of, smalls
from tests.sanitize import BEGIN, DONE, Outcome, read, read_all

MEMCHECK = f"""
========= COMPUTE-SANITIZER
{BEGIN}0
{DONE}0 right
{BEGIN}1
========= Invalid __global__ read of size 4 bytes
=========     at main_kernel+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0 is out of bounds
========= Invalid __shared__ write of size 2 bytes
{DONE}1 RuntimeError: unspecified launch failure
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = f"""
{BEGIN}0
========= Error: Race reported between Write access at main_kernel+0x10 and Read access at main_kernel+0x20 [8 hazards]
{DONE}0 right
{BEGIN}1
{DONE}1 right
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = f"{BEGIN}0\n{DONE}0 right\n========= ERROR SUMMARY: 0 errors\n"


def test_errors_belong_to_their_launch() -> None:
    made, outside, total = read(MEMCHECK, 3)
    assert made == [Outcome(0, "right"), Outcome(2, "RuntimeError: unspecified launch failure"), Outcome()]
    assert (outside, total) == (0, 2)
    made, outside, total = read(RACECHECK, 2)
    assert made == [Outcome(1, "right"), Outcome(0, "right")]
    assert (outside, total) == (0, 1)
    assert read(CLEAN, 1) == ([Outcome(0, "right")], 0, 0)
    assert read("", 1)[2] == -1


def test_kinds_hold_every_way_that_kernels_are_built() -> None:
    changed = {key for one in smalls() for key in one.plan}
    assert {"segments", "splits", "level", "merge", "persistent"} <= changed
    assert len({(one.kind, one.name) for one in smalls()}) == len(smalls())
    assert {one.kind for one in smalls(["stay", "masks"])} == {"blocks that stay", "masks"}


@pytest.mark.slow
def test_every_launch_has_a_plan() -> None:
    """On a GPU: a plan that the rules refuse since is checked no more."""
    for one in smalls():
        tensors = given(one)
        options = {**problem(one.form(), tensors, one.sizes), "empty": one.empty}
        one.form().lower("sm_90a", **options, plan=plan_of(one, tensors, "sm_90a"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to check on")
def test_a_line_says_that_nothing_was_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["sanitize"])
    assert sanitize.main() == 0
    assert "nothing was checked" in capsys.readouterr().out


def test_processes_that_share_the_launches_are_read_together() -> None:
    first, second = CLEAN, f"{BEGIN}1\n{DONE}1 right\n========= ERROR SUMMARY: 0 errors\n"
    assert read_all([first, second], 2) == ([Outcome(0, "right"), Outcome(0, "right")], 0, 0)
    assert read_all([MEMCHECK, "stopped after 3 s"], 3)[1:] == (0, -1)
