"""Tables in a terminal: every cell whole, in any width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.strategies.table import Table, output_columns

CELLS = st.text("0123456789.e-", min_size=1, max_size=12)
NAMES = st.text("abcdefgh-", min_size=1, max_size=20)


def contents(count: int) -> st.SearchStrategy[tuple[list[str], list[list[str]]]]:
    """Headings, and rows of so many figures."""
    rows = st.lists(st.lists(CELLS, min_size=count, max_size=count), min_size=1, max_size=4)
    return st.tuples(st.lists(NAMES, min_size=count + 1, max_size=count + 1), rows)


@given(st.integers(1, 9).flatmap(contents), st.integers(40, 120))
def test_no_figure_is_cut(content: tuple[list[str], list[list[str]]], width: int) -> None:
    columns, rows = content
    text = Table("", tuple(columns), tuple(("row", *row) for row in rows), figures_last=True).text(width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    shown = text.split()
    for row in rows:
        for cell in row:
            assert cell in shown


def test_text_is_folded_between_its_words() -> None:
    table = Table("plans", ("", "µs", "plan"), (("0", "1.5", "Grid(b) Lanes(n, 128) Loop(n, 512); sm_90a"),))
    assert table.text(80).splitlines()[-1] == " 0   1.5   Grid(b) Lanes(n, 128) Loop(n, 512); sm_90a"
    assert table.text(40).splitlines()[-2:] == [
        " 0   1.5   Grid(b) Lanes(n, 128)",
        "           Loop(n, 512); sm_90a",
    ]


@pytest.mark.parametrize(("told", "width"), [("120", 120), ("", 80), ("none", 80), ("0", 80)])
def test_the_width_of_a_pipe(monkeypatch: pytest.MonkeyPatch, told: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", told)
    assert output_columns() == width
