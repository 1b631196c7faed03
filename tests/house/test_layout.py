"""Tests lie as the library does: a folder for every room, and nothing that two of them could take for one."""

from collections import Counter
from pathlib import Path

from tests.house.source import ROOT, sources

TESTS = ROOT / "tests"
ROOMS = {path.parent.name for path in (ROOT / "redalg").glob("*/__init__.py")}
BESIDE = {  # folder: what it holds
    "benchmarks": "tests of the benchmarks",
    "cases": "cascades, data and generators",
    "docs": "tests of the site",
    "fuzz": "random cascades, and their tests",
    "golden": "what stages print",
    "house": "rules that a machine reads off the source",
    "integration": "tests with other libraries, in an environment of their own",
    "surface": "tests of what crosses every room",
}


def folders() -> set[Path]:
    return {path for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_every_room_has_its_folder() -> None:
    assert {path.name for path in folders()} == ROOMS | BESIDE.keys()


def test_folders_are_packages() -> None:
    """Files of one name may then stand in two folders."""
    assert [path.name for path in folders() - {TESTS / "golden"} if not (path / "__init__.py").exists()] == []


def test_golden_files_belong_to_one_module() -> None:
    """They lie under the name of the module, whatever its folder is."""
    names = Counter(source.path.stem for source in sources("tests") if source.path.stem.startswith("test_"))
    kept = {path.name for path in (TESTS / "golden").iterdir() if path.is_dir()}
    assert {name for name in kept if names[f"test_{name}"] != 1} == set()
