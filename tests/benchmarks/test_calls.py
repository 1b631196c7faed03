"""What `python -m benchmarks run calls` prints is a table for each part, from the stored results too."""

from __future__ import annotations

import json

import pytest

from benchmarks.calls import PARTS, TABLES
from tests.house.source import ROOT

CHANGED = [{"form": "attention", "width": 64, "sizes": 2, "kernels": 1, "errors": {"1 1 1 4": 1e-4, "1 1 1 5": 2e-4}}]
STORED = json.loads((ROOT / "benchmarks" / "results" / "calls.json").read_text()) | {"changing": CHANGED}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_a_table_of_80_columns_with_the_ratio_first(name: str) -> None:
    table = TABLES[name](STORED[name])
    lines = table.text(80).splitlines()
    assert max(map(len, lines)) <= 80
    steps = len(next(iter(STORED["processes"].values())))
    assert len(table.rows) == {"steady": 2, "processes": steps}.get(name, len(STORED[name]))
    assert all(float(row[1]) > 0 for row in table.rows)
    assert sum(line.startswith("─") for line in lines) == 1  # nothing goes into a second table


def test_figures_are_those_of_the_content() -> None:
    [row] = TABLES["changing"](CHANGED).rows
    assert row == ("attention, 64", "0.50", "1", "2", "2.0e-04")
    rows = TABLES["steady"]({"attention": 3.0, "torch SDPA": 2.0, "logsumexp": 1.0, "torch.logsumexp": 4.0}).rows
    assert [row[:2] for row in rows] == [("attention", "1.50"), ("logsumexp", "0.25")]


def test_no_large_tensor_is_said() -> None:
    assert "none on a CPU" in str(TABLES["large"]([]))
