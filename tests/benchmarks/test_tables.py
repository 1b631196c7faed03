"""Tables of what was measured, in 80 and 120 columns: nothing is cut off, and the ratios come first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.ablations import ABLATIONS
from benchmarks.accuracy import report as accuracy
from benchmarks.environment import ROOT
from redalg.strategies.table import Table

FILES = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
TIMED = [one for one in FILES if "contestants" in str(report.load(one).get("rows", ""))[:2000]]
ABLATED = [one for one in FILES if one.stem.startswith("ablation-")]
JUDGED = report.load(ROOT / "benchmarks" / "results" / "accuracy.json")["families"]
WIDTHS = (80, 120)


def assert_whole(table: Table, width: int) -> None:
    text = table.text(width)
    assert "…" not in text
    note = set(table.note.splitlines())
    assert [line for line in text.splitlines() if len(line) > width and line not in note] == []
    words = set(text.split())
    for row in table.rows:
        for cell in row[1:]:
            assert words >= set(cell.split()), row


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
@pytest.mark.parametrize("make", [report.table, report.full_table])
def test_tables_of_times(path: Any, make: Callable[..., Table]) -> None:
    content = report.load(path)
    for width in WIDTHS:
        assert_whole(make(content), width)


@pytest.mark.parametrize("path", ABLATED, ids=lambda path: path.stem)
def test_tables_of_ablations(path: Any) -> None:
    content = report.load(path)
    for width in WIDTHS:
        lines = ABLATIONS[content["ablation"]].shown(content).text(width).splitlines()
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", JUDGED)
def test_tables_of_errors(name: str) -> None:
    for width in WIDTHS:
        assert_whole(accuracy.table(JUDGED[name]), width)


def test_the_ratio_comes_first() -> None:
    found = report.table(report.load(ROOT / "benchmarks" / "results" / "quant.json"))
    assert found.columns[:4] == ("row", "redalg, online", "redalg, power of two", "eager")
    assert found.columns[-2:] == ("redalg, ms", "error")
    [first] = [row for row in found.rows if row[0] == "Q1"]
    assert first[1] == "0.50"


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(report.load(ROOT / "benchmarks" / "results" / "step.json"), style="markdown")
    assert capsys.readouterr().out.startswith("| row | sizes | redalg, ms |")


RESULTS = str(ROOT / "benchmarks" / "results")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", f"{RESULTS}/wide.json"], "wide.json: it should be a document of `python -m benchmarks`, a JSON"),
        (["report", f"{RESULTS}/nothing.json"], "it cannot be read (No such file or directory)."),
        (["report", str(ROOT / "README.md")], "README.md: it should be a document of `python -m benchmarks`"),
        (["fit", "constants", f"{RESULTS}/wide.json"], "it has what, device, dtype, commit, rows."),
        (["judge", "--from", f"{RESULTS}/rows.json"], "a JSON object whose `benchmark` is accuracy; it is rows."),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_a_file_of_another_kind_is_told(arguments: list[str], said: str) -> None:
    with pytest.raises(report.WrongFileError) as caught:
        main(arguments)
    assert said in str(caught.value)


def test_a_document_without_pictures_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", f"{RESULTS}/calls.json", "--out", str(tmp_path)]) == 0
    assert "there are pictures of families, ablations and sweeps alone" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_families_are_among_them() -> None:
    assert {"quant", "mha", "backwards", "models", "selection"} <= {path.stem for path in TIMED}
