"""Every notebook runs from top to bottom on the CPU, in a fresh kernel and an empty folder, and shows what it stores.

Texts are compared word by word and number by number: reals to a thousandth, below 1e-5 not at all, which is where
rounding lies. Pictures and HTML are compared by their kind alone, and so is everything in a cell with the tag `varies`,
as times do. `pytest --update-golden tests/surface/test_notebooks.py` stores the outputs of a notebook that shows
something else now; to have a picture anew, clear its outputs first.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.house.source import ROOT

SECONDS_PER_CELL = 300
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = ("text/plain", "text/latex", "text/markdown")
WORD = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d]+|[^\w\s═─]")
PASSING = re.compile(r"0x[0-9a-f]{6,}|\S*ipykernel_\S+|\d+(?= times (?:less|more))")
"""Addresses in memory, files of this run, and ratios of roundings, which differ by the processor's vectors."""
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("REDALG_TUNED", "pack")  # the plans that ship, as a reader has them
    import nbformat  # here, so that a GPU machine without it can collect the tests that it is there for
    from nbclient import NotebookClient

    stored, notebook = (nbformat.read(path, as_version=4) for _ in range(2))
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    differences = [text for cells in zip(stored.cells, notebook.cells, strict=True) for text in differing(*cells)]
    if differences and request.config.getoption("--update-golden"):
        notebook.metadata = stored.metadata
        join_streams(notebook)
        nbformat.write(notebook, path)
        return
    assert not differences, "\n\n".join([*differences, "if the change is meant, pass --update-golden"])


def join_streams(notebook: Any) -> None:
    """Make one output of a cell's prints, which arrive as the kernel flushes them."""
    for cell in notebook.cells:
        for before, output in pairwise(cell.get("outputs", [])):
            if before.output_type == output.output_type == "stream" and before.name == output.name:
                output.text, before.text = before.text + output.text, ""
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if one.output_type != "stream" or one.text]


def differing(stored: Any, cell: Any) -> list[str]:
    """The outputs of a cell that are not the stored ones."""
    before, after = (shown(one) for one in (stored, cell))
    agree = [kind for kind, _ in before] == [kind for kind, _ in after]
    if "varies" not in cell.metadata.get("tags", ()):
        agree = agree and all(same_text(a, b) for (_, a), (_, b) in zip(before, after, strict=True))
    return [] if agree else [f"cell {cell.id} has stored\n{before}\nand shows\n{after}"]


def shown(cell: Any) -> list[tuple[str, str]]:
    """The kinds of a cell's outputs, in order, each with its text if it is one; warnings are left out."""
    found: list[tuple[str, str]] = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if found and found[-1][0] == "stdout":
                found[-1] = ("stdout", found[-1][1] + output.text)
            else:
                found.append(("stdout", output.text))
        else:
            found += [(kind, text if kind in TEXTS else "") for kind, text in sorted(output.data.items())]
    return found


def same_text(a: str, b: str) -> bool:
    first, second = (WORD.findall(PASSING.sub("passing", text)) for text in (a, b))
    return len(first) == len(second) and all(map(same_word, first, second))


def same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (a[0].isdigit() and b[0].isdigit()) or (a.isdigit() and b.isdigit()):
        return False
    return abs(float(a) - float(b)) <= ABSOLUTE + RELATIVE * max(abs(float(a)), abs(float(b)))


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        ("error 2.1e-07 of 3 rows", "error   5.4e-08\nof 3 rows", True),
        ("Loop(n, 512) 12.300 µs", "Loop(n, 512) 12.301 µs", True),
        ("Loop(n, 512)", "Loop(n, 256)", False),
        ("12.3 µs", "12.4 µs", False),
        ("<f at 0x7f12ab34>", "<f at 0x7f99ff00>", True),
        ("ipykernel_1/7.py:3 x", "ipykernel_2/7.py:3 x", True),
        ("1.8e-07 8 times less", "2.9e-07 5 times less", True),
        ("1.8e-07 8 times less", "2.9e-07 5 times more", False),
        ("Exact", "Refused", False),
        ("a b", "a b c", False),
    ],
)
def test_texts_are_compared(a: str, b: str, agree: bool) -> None:
    assert same_text(a, b) is agree


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_reader_on_a_code_host_sees_outputs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", ())]
    assert outputs, "no outputs are stored"
    assert not [output for output in outputs if output.get("name") == "stderr"], "a warning is stored"
    assert path.stat().st_size < 400_000, "too large for a code host to show"


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
