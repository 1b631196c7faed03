"""The code in README.md and docs/ runs as it stands there; what they name exists."""

import re
from pathlib import Path

import pytest

from tests.house.source import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """The Python blocks of a document, each on the lines that it has there, so that errors point at them."""
    text = path.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1]
            for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]  # fmt: skip


# of torch.func's forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_the_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))  # what a spawned process inherits
    namespace: dict[str, object] = {"__name__": path.stem}
    for block in blocks(path):
        exec(compile(block, path.name, "exec"), namespace)


def test_documents_have_code() -> None:
    assert {path.name for path in DOCUMENTS if blocks(path)} >= {"README.md", "STREAMING.md"}


def test_its_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_its_paths_exist(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_document_is_linked() -> None:
    assert [path.name for path in DOCUMENTS[1:] if f"(docs/{path.name})" not in README] == []


def test_the_glossary_names_what_exists() -> None:
    """Every identifier of a row stands in one of the row's files."""
    table = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8").split("|---|---|---|\n")[1]
    for _, meaning, places in (row.strip("| ").split(" | ") for row in table.strip().splitlines()):
        text = "".join((ROOT / "redalg" / one).read_text(encoding="utf-8") for one in re.findall(r"`([^`]+)`", places))
        words = {word for code in re.findall(r"`([^`]+)`", meaning) for word in re.findall(r"[A-Za-z]\w+", code)}
        assert [word for word in sorted(words) if not re.search(rf"\b{word}", text)] == [], meaning
