"""The benchmark of ranks, over two ranks with Gloo."""

from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.ranks import ROWS


@pytest.mark.slow
def test_every_row_is_measured_and_right(tmp_path: Path) -> None:
    assert main(["ranks", "--out", str(tmp_path)]) == 0
    content = report.load(tmp_path / "ranks.json")
    assert len(content["rows"]) == len(ROWS)
    for row in content["rows"]:
        own = row["contestants"]["redalg"]
        assert own["error"] < 1e-5
        assert own["median_us"] > 0
