"""Every workaround is listed with its version and its expiry, and is looked at again in time."""

import ast
import re
import shutil
import subprocess
from datetime import UTC, datetime
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import redalg
from redalg.lower_tile.workarounds.known import GCC, NVCC, TILELANG, TILELANG_VERSION, WORKAROUNDS

ROOM = Path(redalg.__file__).parent / "lower_tile" / "workarounds"
LISTED = {place.rpartition(":")[2] for workaround in WORKAROUNDS for place in workaround.places}


def reads(source: str) -> set[str]:
    """The names that a function's body or a tuple reads."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def stands(place: str) -> bool:
    """True if redalg has what a place names, `module:name`."""
    module, _, name = place.partition(":")
    try:
        return reduce(getattr, name.split("."), import_module(f"redalg.{module}")) is not None
    except (ImportError, AttributeError):
        return False


def test_a_workaround_stands_where_its_row_says() -> None:
    assert [workaround for workaround in WORKAROUNDS if not workaround.places] == []
    assert [place for workaround in WORKAROUNDS for place in workaround.places if not stands(place)] == []


def test_none_has_expired() -> None:
    """A row that fails here: try it on the newest version of its tool, and delete it or give it another day."""
    today = datetime.now(UTC).date()
    assert [one.places[0] for one in WORKAROUNDS if one.expires < today] == []


def test_the_installed_tilelang_is_the_one_that_was_seen() -> None:
    assert version("tilelang") == TILELANG_VERSION
    assert {one.version for one in WORKAROUNDS if one.tool == TILELANG} == {TILELANG_VERSION}


@pytest.mark.parametrize(("tool", "command"), [(NVCC, ("nvcc", "--version")), (GCC, ("gcc", "-dumpversion"))])
def test_the_installed_compilers_are_no_newer(tool: str, command: tuple[str, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {tool} here")
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)" if tool == NVCC else r"(\d+)", said)
    assert found is not None
    installed = [int(part) for part in found.group(1).split(".")]
    for workaround in WORKAROUNDS:
        if workaround.tool == tool:
            assert installed <= [int(part) for part in workaround.version.split(".")]


def test_every_rule_and_every_rewrite_of_the_room_is_listed() -> None:
    """What a listed function calls, and is called by nothing else, is a part of it."""
    for path in sorted(ROOM.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        called = {name for function in functions.values() for name in reads(ast.unparse(function))}
        alone = functions.keys() - called
        assert alone <= LISTED, f"{path.name}: {sorted(alone - LISTED)} in no row of `known`"
