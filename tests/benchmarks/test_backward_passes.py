"""The table of docs/TRAINING.md: the passes of derived backwards are those of the kernels that a call takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.backward_passes import ROWS, Row
from redalg.strategies.table import markdown_line

PAGE = Path(__file__).parents[2] / "docs" / "TRAINING.md"
HEADER = markdown_line(("backward of", "redalg", "by hand", "whose"))


def rows_of_page() -> dict[str, str]:
    """The lines of the table by the names of their rows."""
    found = re.search(re.escape(HEADER) + r"\n\|-.*\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return {one.split(" | ")[0].removeprefix("| "): one for one in found[1].splitlines()}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.name)
def test_the_page_tells_the_passes(row: Row) -> None:
    """If they changed: `python -m benchmarks.backward_passes` prints the table."""
    assert rows_of_page()[row.name] == markdown_line(row.cells)


def test_the_page_has_the_rows() -> None:
    assert list(rows_of_page()) == [row.name for row in ROWS]
