"""Links of Markdown pages: read, and rewritten where pages come to lie elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from posixpath import dirname, join, normpath, relpath

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
"""`[text](address)` or `![text](address)`; the text may hold one pair of brackets."""
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`(?!\])", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"`(ra\.(\w+)(?:\([^`<>]*\))?)`")
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links(text: str) -> Iterator[str]:
    """The addresses of a page's links, code left out.

    >>> list(links("see [a](b.md#c), ![d](e.svg), not `x[i](y)`"))
    ['b.md#c', 'e.svg']
    """
    yield from (found[2] for found in LINK.finditer(CODE.sub("", text)))


def rewrite_links(text: str, rewrite: Callable[[str, str], str]) -> str:
    """The page with `rewrite(label, address)` in the place of every link, code left as it is.

    >>> rewrite_links("[a](b.md) `[a](b.md)`", lambda label, address: f"{label}({address[:-3]}.html)")
    '[a](b.html) `[a](b.md)`'
    """
    parts, at = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(lambda link: rewrite(link[1], link[2]), text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, LINK.sub(lambda link: rewrite(link[1], link[2]), text[at:])])


def target_of(address: str, page: str) -> tuple[str, str]:
    """The file that a link of a page leads to, from the root of the checkout, and the anchor in it.

    >>> target_of("../README.md#install", "docs/TUNING.md"), target_of("#caches", "docs/KERNELS.md")
    (('README.md', '#install'), ('docs/KERNELS.md', '#caches'))
    """
    path, mark, anchor = address.partition("#")
    return normpath(join(dirname(page), path)) if path else page, mark + anchor


def address_from(page: str, target: str) -> str:
    """The link from one page of the site to another.

    >>> address_from("concepts/rank.md", "STATES.md")
    '../STATES.md'
    """
    return relpath(target, dirname(page) or ".")


def link_names(text: str, names: Collection[str]) -> str:
    """The page with a link to the reference in the place of each `ra.name` in code within a line.

    >>> link_names("`ra.fuse(e)`, `ra.other`, [`ra.fuse`](a.md)", ["fuse"])
    '{py:obj}`ra.fuse(e) <redalg.fuse>`, `ra.other`, [`ra.fuse`](a.md)'
    """

    def written(code: re.Match[str]) -> str:
        name = NAME.fullmatch(code[0])
        return f"{{py:obj}}`{name[1]} <redalg.{name[2]}>`" if name and name[2] in names else code[0]

    return CODE.sub(written, text)
