"""Kernels on disk: where they are kept, and that a later process loads one without TileLang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redalg import BackendError
from redalg.runtime.compile import cache, stored
from redalg.runtime.compile.compile import compile_source, digest
from tests.cases.kernels import fused

PROCESS = """
import sys
from tests.cases.kernels import fused
from redalg.runtime.compile.compile import compile_source
source = fused("rows").lower("sm_90a", {"b": 4, "n": 64}, {"x": "float32"}).source
kernel = compile_source(source)
import tvm_ffi
descriptors = tvm_ffi.get_global_func("__tvm_tensormap_create_tiled", allow_missing=True)
print("tilelang" in sys.modules, callable(kernel.run), descriptors is not None)
compile_source(fused("rows").lower("sm_90a", {"b": 4, "n": 65}, {"x": "float32"}).source)
"""


def test_the_folder_is_what_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    assert cache.folder() == tmp_path
    monkeypatch.delenv(cache.VARIABLE)
    assert cache.folder().name == "redalg"


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    source = fused("logsumexp").lower("c", {"b": 3, "n": 5}, {"x": "float32"}).source
    with pytest.raises(BackendError, match=r"file cannot be written .*Set REDALG_CACHE_DIR"):
        compile_source(source)


@pytest.mark.slow
def test_a_second_process_loads_without_tilelang(tmp_path: Path) -> None:
    """TileLang compiles for CUDA on a machine that has none; only a launch needs one."""
    pytest.importorskip("tilelang")
    if not any((Path(one) / "nvcc").is_file() for one in os.environ["PATH"].split(os.pathsep)):
        pytest.skip("nvcc is not installed")
    known = {**os.environ, "REDALG_CACHE_DIR": str(tmp_path)}
    known.pop("TILELANG_CACHE_DIR", None)
    said = [
        subprocess.run([sys.executable, "-c", PROCESS], env=known, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert said == ["True True True\n", "False True True\n"]
    for note in (tmp_path / "kernels").glob("*.json"):
        Path(json.loads(note.read_text(encoding="utf-8"))["library"]).unlink()
    again = subprocess.run([sys.executable, "-c", PROCESS], env=known, check=True, capture_output=True, text=True)
    assert again.stdout.startswith("True")  # what is gone is compiled anew


def test_what_was_not_kept_is_not_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    source = fused("logsumexp").lower("sm_90a", {"b": 3, "n": 5}, {"x": "float32"}).source
    assert stored.find(digest(source)) is None
    stored.note_library(digest(source), object())
    assert stored.find(digest(source)) is None
