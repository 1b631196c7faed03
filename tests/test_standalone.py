"""A saved kernel runs on its own: redalg cannot be imported where it runs, and the result is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.kernel_cases import CASES, fused, problem, tensors_of, worst_error

SCRIPT = """
import importlib.util, sys
sys.modules["redalg"] = None  # an import of redalg would raise
import torch
spec = importlib.util.spec_from_file_location("saved", "saved.py")
saved = importlib.util.module_from_spec(spec)
spec.loader.exec_module(saved)
arguments = torch.load("arguments.pt")
saved.compiled()(*arguments)
torch.save(arguments, "done.pt")
"""


@pytest.mark.parametrize("name", ["ragged, d ≠ e", "weighted variance"])
def test_a_saved_file_runs_without_redalg(name: str, tmp_path: Path) -> None:
    case = next(one for one in CASES if one.name == name)
    tensors, form = tensors_of(case), fused(case.form)
    known = problem(form, tensors)
    form.save(tmp_path / "saved.py", target="c", sizes=known["sizes"], dtypes=known["dtypes"])
    wanted = form.reference(**tensors)
    out = torch.full(wanted.shape, torch.nan)
    torch.save([*(tensors[name] for name in form.cascade.inputs()), out], tmp_path / "arguments.pt")
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True, capture_output=True)
    *_, out = torch.load(tmp_path / "done.pt")
    assert worst_error(out, wanted) <= case.tolerance


def test_a_saved_file_is_a_program(tmp_path: Path) -> None:
    form = fused("logsumexp")
    path = form.save(tmp_path / "lse.py", target="c", sizes={"b": 3, "n": 77}, dtypes="float32")
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("out (3,) norm ")
