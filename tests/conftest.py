"""Shared set-up: Hypothesis profiles, golden files, fixed seeds, and what to skip without a GPU.

Golden files lie at `tests/golden/<module>/<name>.txt`, where `tests/monoids/test_selection.py` gives the module
`selection`. A missing golden file fails, as a changed one does; `make golden` rewrites them from what the code prints.

Profiles of Hypothesis: `ci`, with the same examples in every run, by which a plain `pytest` repeats what CI ran;
`thorough`, with all that `make slow` draws; `random`, with new examples in every run (`make random`).

Kernels for C are compiled with `QUICK` flags, in half the time of a user's, and kept in a cache of their own. Under
`thorough` they are what a user has.

Python collects garbage less often here, and SymPy remembers more: which takes some 15 % off the time of CI.

Workers of pytest-xdist compute with one thread each, and so do the processes that they start: a team of threads a
worker would be more threads than cores, and those that wait for the others take a core's time.
"""

import gc
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and PyTorch are imported, which read it then
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.sweeps import draws, mark_slow

TESTS = Path(__file__).parent

gc.set_threshold(100_000, 50, 1000)
os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # SymPy reads it when it is first imported
os.environ["REDALG_TUNED"] = "off"  # what someone has tuned on this machine is no part of a test
settings.register_profile(
    "random",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=False,
    max_examples=draws(100),
)
settings.register_profile("ci", settings.get_profile("random"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=100)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
settings.load_profile(PROFILE)
QUICK = ["-O1", "-w"]
if PROFILE != "thorough" and "REDALG_CACHE_DIR" not in os.environ:
    from platformdirs import user_cache_path

    os.environ["REDALG_CACHE_DIR"] = str(user_cache_path("redalg-tests"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what the code prints now")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not cuda_is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: torch.cuda.is_available() is False"))


def cuda_is_available() -> bool:
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(autouse=True, scope="session")
def quick_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile kernels for C without the optimisations that take half of the time, their header once."""
    from redalg.runtime.compile import compile as compiling

    load, header = compiling.load, tmp_path_factory.mktemp("header") / "kernel.h"

    def load_quick(source: Any) -> dict[str, Any]:
        module = load(source)
        if "compile_flags" in module["TARGET"]:
            if not header.exists():
                precompile(header)
            module["TARGET"]["compile_flags"] = [*QUICK, "-include", str(header)]
        return module

    with pytest.MonkeyPatch.context() as patch:
        if PROFILE != "thorough":
            patch.setattr(compiling, "load", load_quick)
        yield


def precompile(header: Path) -> None:
    """Write a header that includes TileLang's for C, and what g++ reads in its place."""
    import tilelang

    header.write_text("#include <tl_templates/cpp/common.h>\n", encoding="utf-8")
    sources = Path(tilelang.__file__).parent / "src"
    command = ["g++", "-std=c++17", "-fPIC", *QUICK, f"-I{sources}", "-x", "c++-header", str(header)]
    subprocess.run(command, check=False, capture_output=True)


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Start every test from the same state of every global random generator."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Caches of lowerings and kernels that know nothing yet; the kernels that a test's calls compile."""
    from redalg.runtime.call import kernels, sizes

    for name in ("_LOWERED", "_FIRST", "_VARIED"):
        monkeypatch.setattr(sizes, name, {})
    made: dict[str, Any] = {}
    monkeypatch.setattr(kernels, "_KERNELS", made)
    return made


@dataclass(frozen=True)
class Golden:
    """Compares text with the golden files of one test module."""

    folder: Path
    update: bool

    def __call__(self, name: str, text: str) -> None:
        path = self.folder / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        shown = path.relative_to(TESTS.parent)
        assert path.exists(), f"{shown} does not exist; 'make golden' writes it:\n{text}"
        expected = path.read_text(encoding="utf-8")
        assert text == expected, f"the text differs from {shown}; if the change is meant, run 'make golden'"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("attention_form", str(form))` compares with `tests/golden/<module>/attention_form.txt`."""
    module = request.path.stem.removeprefix("test_")
    return Golden(TESTS / "golden" / module, request.config.getoption("--update-golden"))
