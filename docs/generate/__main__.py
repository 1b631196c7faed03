"""Build the site: `python -m docs.generate html`, `links` or `check`; every warning is an error.

html     build/docs, all of it
check    every page without the outputs of its code, the gallery's without derivations and kernels
links    as `check`, and every address outside of the site is asked for
tables   writes the tables that the pages of docs/ hold themselves; builds nothing
look     every page of build/docs in a headless Chromium, wide and narrow, light and dark: what is cut off or broken;
         `look PATTERN …` writes pictures of the pages of these names into build/docs-pictures
"""

from __future__ import annotations

import os
import sys
from asyncio import run
from collections.abc import Sequence
from pathlib import Path

from docs.generate.stage import DOCS, ROOT, Staging, stage
from docs.generate.tables import write_tables

BUILDERS = {"html": "html", "links": "linkcheck", "check": "dummy"}


def build(verb: str, folder: Path) -> int:
    """Stage the pages and give them to Sphinx; gives Sphinx's exit code.

    Args:
        verb: a key of `BUILDERS`.
        folder: where builds are kept: pages in `docs-source`, doctrees in `docs-trees`, the site in `docs`.
    """
    from sphinx.cmd.build import build_main

    whole = verb == "html"
    os.environ.setdefault("REDALG_CACHE_DIR", str(folder / "docs-kernels"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are small here: threads would wait for each other
    name = "docs" if whole else "docs-check"
    staging = Staging(folder / f"{name}-source", folder / "docs-kept")
    stage(staging, whole=whole)
    place = folder / ("docs-links" if verb == "links" else name)
    strict = ["--quiet", "--fail-on-warning", "--keep-going", "--write-all"]
    folders = ["--conf-dir", str(DOCS), "--doctree-dir", str(folder / f"{name}-trees"), str(staging.folder), str(place)]
    return build_main([*strict, "--builder", BUILDERS[verb], *folders])


def look_at(folder: Path, patterns: Sequence[str]) -> int:
    """Look at the pages of the built site; gives 1 if one has a fault.

    Args:
        folder: where builds are kept.
        patterns: names of pages, such as `guide/*`, of which pictures are written; none for all pages, without.
    """
    from docs.generate.browser import VIEWS, look

    site, pictures = folder / "docs", folder / "docs-pictures"
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    pages = [page for page in pages if not patterns or any(page.match(f"{one}.html") for one in patterns)]
    pictures.mkdir(exist_ok=True)
    faults = run(look(pages, pictures if patterns else None))
    for view, found in faults.items():
        print(f"{view}: {'; '.join(found)}")
    print(f"{len(pages)} pages, {len(pages) * len(VIEWS)} views, {len(faults)} with a fault")
    return int(bool(faults))


if __name__ == "__main__":
    verb = sys.argv[1] if len(sys.argv) > 1 else "html"
    if verb == "tables":
        write_tables()
        raise SystemExit
    if verb == "look":
        raise SystemExit(look_at(ROOT / "build", sys.argv[2:]))
    if verb not in BUILDERS:
        raise SystemExit(f"{verb}: no such build. Ask for {', '.join(BUILDERS)}, tables or look.")
    raise SystemExit(build(verb, ROOT / "build"))
