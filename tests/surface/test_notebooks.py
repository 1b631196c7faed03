"""Every notebook runs from top to bottom on the CPU, in a fresh kernel and an empty folder."""

from pathlib import Path

import pytest

from tests.house.source import ROOT

SECONDS_PER_CELL = 300
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    import nbformat  # here, so that a GPU machine without it can collect the tests that it is there for
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
