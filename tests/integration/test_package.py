"""The wheel in an environment of its own: it installs, its command runs, README's example works without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT
from tests.wheels import TYPED

LIGHT = """\
import numpy as np
from redalg.library import variance
print(variance()(x=np.array([[1.0, 3.0]]), backend="numpy").tolist())
"""


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run([str(one) for one in command], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return sorted(folder.iterdir())


def test_the_index_would_take_both(archives: list[Path], tmp_path: Path) -> None:
    assert [one.suffix for one in archives] == [".whl", ".gz"]
    assert run(sys.executable, "-m", "twine", "check", "--strict", *archives, folder=tmp_path).count("PASSED") == 2


def test_the_wheel_installs_and_runs(archives: list[Path], tmp_path: Path) -> None:
    """Without extras: derivations, kernels as text, NumPy."""
    run(sys.executable, "-m", "venv", tmp_path / "env", folder=tmp_path)
    binaries = tmp_path / "env" / "bin"
    run(binaries / "pip", "install", "--quiet", archives[0], folder=tmp_path)
    assert run(binaries / "python", "-c", LIGHT, folder=tmp_path) == "[1.0]\n"
    assert "attention" in run(binaries / "redalg", "list", folder=tmp_path)
    assert "prim_func" in run(binaries / "redalg", "source", "variance", "--target", "c", folder=tmp_path)
    assert "pip install 'redalg[tilelang]'" in run(binaries / "redalg", "doctor", folder=tmp_path)


def test_users_files_are_checked_by_mypy(archives: list[Path], tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "env", folder=tmp_path)
    binaries = tmp_path / "env" / "bin"
    run(binaries / "pip", "install", "--quiet", archives[0], "mypy", folder=tmp_path)
    (tmp_path / "mine.py").write_text(TYPED, encoding="utf-8")
    command = [str(binaries / "mypy"), "--strict", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert [line.split(":")[1] for line in done.stdout.splitlines() if " error: " in line] == [
        str(len(TYPED.splitlines()))
    ], done.stdout
