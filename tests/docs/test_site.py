"""The site builds without a warning, names everything that is public, and works without a network."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import redalg as ra
from docs.generate.__main__ import build
from docs.generate.gallery import code_of
from docs.generate.reference import entry, markdown, members
from docs.generate.stage import DOCS, MARK, page_files
from docs.generate.tables import TABLES, functions
from redalg.expression.operators import OPERATORS
from redalg.fused import Fused
from redalg.library import PATTERNS
from tests.house.source import ROOT

builds = pytest.mark.filterwarnings(  # of Sphinx, about its extensions
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"
)


def marks(kind: str) -> Iterator[str]:
    """The marks of a kind in all pages."""
    for path in DOCS.rglob("*.md"):
        yield from (text for found, text in MARK.findall(path.read_text(encoding="utf-8")) if found == kind)


@builds
def test_every_link_and_reference_leads_somewhere(tmp_path: Path) -> None:
    """Sphinx reads every page, without the outputs of blocks and without derivations and kernels."""
    assert build("check", tmp_path) == 0
    pages = {path.relative_to(tmp_path / "docs-check-source").as_posix() for path in tmp_path.rglob("*.md")}
    assert pages >= {"index.md", "STATES.md", "concepts/rank.md", "gallery/variance.md", "CONTRIBUTING.md"}


@builds
def test_a_link_to_nowhere_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from docs.generate import stage

    text = "# A page\n\n[there](nowhere.md#at-all)\n"
    monkeypatch.setattr(stage, "page_files", lambda: {"docs/index.md": "index.md"})
    monkeypatch.setattr(stage, "gallery_pages", lambda whole: iter(()))
    monkeypatch.setattr(stage, "page_text", lambda page, files, run: text)
    assert build("check", tmp_path) != 0
    assert "nowhere.md" in capfd.readouterr().err


@builds
@pytest.mark.slow
def test_the_whole_site_builds_and_asks_no_network(tmp_path: Path) -> None:
    assert build("html", tmp_path) == 0
    site = tmp_path / "docs"
    asked = {}
    for path in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)[^>]*>", path.read_text(encoding="utf-8"))
        asked[path.name] = [tag for tag in tags if re.search(r"(?:src|href)=\"(?:https?:)?//", tag)]
    assert {name: tags for name, tags in asked.items() if tags} == {}
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"@import|url\(['\"]?(?:https?:)?//", styles) == []
    assert (site / "_static" / "mathjax" / "tex-svg.js").exists()
    assert "One more element" in (site / "gallery" / "variance.html").read_text(encoding="utf-8")


def test_mathjax_is_vendored_with_its_licence() -> None:
    folder = DOCS / "_static" / "mathjax"
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert (folder / "tex-svg.js").stat().st_size > 1e6


def test_every_public_name_is_in_the_reference() -> None:
    named = {name for text in marks("reference") for name in text.split()}
    assert {f"redalg.{name}" for name in ra.__all__} - {"redalg.Fused"} <= named
    assert "redalg.Fused" in named


def test_every_public_method_of_a_function_is_in_its_entry() -> None:
    text = entry("redalg.Fused", Fused)
    public = {name for name in dir(Fused) if not name.startswith("_") and callable(getattr(Fused, name))}
    assert [name for name in sorted(public) if f"{{py:method}} {name}(" not in text] == []
    assert "{py:method} __call__(" in text
    assert sum(1 for _ in members(Fused)) == text.count("{py:method}") + text.count("{py:property}")


def test_every_table_that_a_page_names_exists() -> None:
    assert set(marks("table")) == TABLES.keys()


def test_the_table_of_functions_has_a_row_for_each() -> None:
    assert len(functions().splitlines()) == len(OPERATORS) + 2


def test_sections_of_docstrings_are_lists() -> None:
    text = markdown("Sum.\n\nRaises:\n    ValueError: x is\n        no number.\n\n    code\n\n>>> 1\n1")
    assert "- `ValueError`: x is no number." in text
    assert "```pycon\n>>> 1\n1\n```" in text


def test_the_definition_of_a_pattern_has_no_docstring() -> None:
    code = code_of(PATTERNS["variance"])
    assert code.startswith("def variance(")
    assert '"""' not in code
    assert "fuse(" in code


def test_pages_of_the_checkout_are_pages_of_the_site() -> None:
    files = page_files()
    assert files["docs/STATES.md"] == "STATES.md"
    assert files["notebooks/01_first_fusion.ipynb"] == "notebooks/01_first_fusion.ipynb"
    assert all((ROOT / path).exists() for path in files)
