"""The pages of the site, side by side in one folder, for Sphinx to read; those that have not changed stay as they are.

docs/STATES.md           →  STATES.md
docs/concepts/rank.md    →  concepts/rank.md, with outputs and tables
notebooks/01….ipynb      →  notebooks/01….ipynb
CONTRIBUTING.md          →  CONTRIBUTING.md
PATTERNS                 →  gallery/
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import final

import redalg
from docs.generate.blocks import as_site_blocks, with_outputs
from docs.generate.gallery import gallery_pages
from docs.generate.links import OUTSIDE, address_from, link_names, rewrite_links, target_of
from docs.generate.reference import reference_text
from docs.generate.tables import TABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the checkout's root that the site has."""
FOR = {"README.md": "index.md"}
"""Files that the site has no page of: the page that links to them lead to instead."""
MARK = re.compile(r"^<!-- (table|reference): ([^>]+?) -->$(?:\n(?:(?!<!--).*\n)*?<!-- /table -->$)?", re.MULTILINE)
"""A mark of a page; a table that the page holds itself, up to `<!-- /table -->`, belongs to it."""
LOST = re.compile(r"^<!-- .*? -->$\n?", re.MULTILINE | re.DOTALL)


def page_files() -> dict[str, str]:
    """Every file of the checkout that the site has -> its place in the site."""
    written = [path for path in sorted(DOCS.rglob("*")) if path.suffix in (".md", ".svg")]
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    files = {path.relative_to(ROOT).as_posix(): path.relative_to(DOCS).as_posix() for path in written}
    files |= {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix() for path in notebooks}
    return files | {name: name for name in BESIDE}


def is_run(page: str) -> bool:
    """Tells if the blocks of a page are run when the site is built: not those of pages in capitals, which take minutes.

    >>> is_run("docs/how_to/masks.md"), is_run("docs/GRAPHS.md")
    (True, False)
    """
    return page.startswith("docs/") and page.endswith(".md") and not Path(page).stem.isupper()


def site_links(text: str, page: str, files: Mapping[str, str]) -> str:
    """The page with its links as the site has its files; a link to a file that the site lacks is text.

    >>> site_links("[a](../README.md), [b](../redalg/fused.py)", "docs/TUNING.md", {"docs/TUNING.md": "TUNING.md"})
    '[a](index.md), b'
    """

    def rewrite(label: str, address: str) -> str:
        if OUTSIDE.match(address):
            return f"{label}({address})"
        target, anchor = target_of(address, page)
        if target in files:
            return f"{label}({anchor if target == page else address_from(files[page], files[target]) + anchor})"
        if target in FOR:
            return f"{label}({address_from(files[page], FOR[target])})"
        if (ROOT / target).exists():
            return label.removeprefix("!").removeprefix("[").removesuffix("]")
        return f"{label}({address})"  # Sphinx refuses it

    return rewrite_links(text, rewrite)


def with_generated(text: str) -> str:
    """The page with what its marks name: tables, and entries of the reference."""

    def written(mark: re.Match[str]) -> str:
        return TABLES[mark[2]]() if mark[1] == "table" else reference_text(mark[2].split())

    return MARK.sub(written, text)


def notebook_text(text: str, page: str, files: Mapping[str, str]) -> str:
    """A notebook with the links of its Markdown cells as the site has its files."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            source = "".join(cell["source"])
            cell["source"] = site_links(source, page, files).splitlines(keepends=True)
    return json.dumps(notebook, ensure_ascii=False)


@final
class Staging:
    """A folder of pages, and what was computed for them before.

    Attributes:
        folder: that of the pages.
        kept: that of pages by the digest of all that they are made of.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept = folder, kept
        self.names: set[str] = set()
        library = sorted(path for path in (ROOT / "redalg").rglob("*.py"))
        makers = sorted((DOCS / "generate").glob("*.py"))
        self.sources = sha256(b"".join(path.read_bytes() for path in (*library, *makers))).hexdigest()

    def keep(self, key: str, make: Callable[[], str]) -> str:
        """The text that `make` gives, from the last build if neither the key nor the library has changed."""
        path = self.kept / sha256(f"{self.sources} {key}".encode()).hexdigest()
        if not path.exists():
            text = make()
            self.kept.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return path.read_text(encoding="utf-8")

    def put(self, name: str, content: str | bytes) -> None:
        """Write a page, if it is another than before."""
        path, data = self.folder / name, content.encode() if isinstance(content, str) else content
        self.names.add(name)
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def remove_others(self) -> None:
        """Remove the pages that an earlier build put and this one did not."""
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if path.relative_to(self.folder).as_posix() not in self.names:
                path.unlink()


def page_text(page: str, files: Mapping[str, str], run: Callable[[str, str], str]) -> str:
    """The text of a page as the site has it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        return notebook_text(text, page, files)
    text = run(text, page) if is_run(page) else text
    text = link_names(site_links(text, page, files), redalg.__all__)
    return as_site_blocks(LOST.sub("", with_generated(text)))


def stage(staging: Staging, *, whole: bool) -> None:
    """Put every page of the site into the folder.

    Args:
        staging: the folder.
        whole: with the outputs of blocks, and with the gallery. Without, the pages have all their links and words.
    """
    files = page_files()

    def run(text: str, page: str) -> str:
        return staging.keep(page + text, lambda: with_outputs(text, page)) if whole else text

    for page, place in files.items():
        content = (ROOT / page).read_bytes() if page.endswith(".svg") else page_text(page, files, run)
        staging.put(place, content)
    for name, text in _gallery(staging, whole=whole):
        staging.put(name, text)
    staging.remove_others()


def _gallery(staging: Staging, *, whole: bool) -> Iterator[tuple[str, str]]:
    """The pages of the gallery."""
    for name, make in gallery_pages(whole=whole):
        yield name, staging.keep(name, make) if whole else make()
