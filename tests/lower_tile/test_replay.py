"""The committed list of kernels is that of the sources as they are: whoever changes one says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.families import FAMILIES
from tests.replay import KINDS, LIST, difference, listed, part, sources_at, without_docstring

COMMITTED = LIST.read_text(encoding="utf-8")
TASKS = [*KINDS, *((name,) for name in FAMILIES)]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("task", TASKS, ids=" ".join)
def test_the_list_has_the_sources_of_a_part(
    task: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`python -m tests.replay write` writes it, and `make replay ASKED=HEAD` shows what changed."""
    monkeypatch.delenv("REDALG_TUNED")  # with the plans that are shipped
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    made = listed({name: one["text"] for name, one in part(task).items()})
    assert set(made.splitlines()) <= set(COMMITTED.splitlines())


@pytest.mark.slow
def test_the_list_is_that_of_the_sources() -> None:
    assert listed(sources_at(".", 1)) == COMMITTED


def test_a_docstring_is_no_part_of_a_source() -> None:
    assert without_docstring('"""Version 1."""\n\nimport tilelang\n') == "import tilelang\n"


def test_what_changes_alike_is_shown_once() -> None:
    before, after = {"a": "1\n2\n", "b": "1\n2\n", "c": "1\n"}, {"a": "1\n3\n", "b": "1\n3\n", "c": "1\n"}
    assert list(difference(before, after)) == ["=== a", "=== b", "@@ -1,2 +1,2 @@\n 1\n-2\n+3", "2 of 3 sources differ"]
