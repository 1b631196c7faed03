"""The gallery: a page for every pattern of the library, made of its function, its derivation and its kernel.

`docs/gallery/index.md` lists them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from textwrap import dedent

from docs.generate.reference import entry
from redalg import Fused
from redalg.commands.subject import subject_of
from redalg.library import PATTERNS, Pattern

STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
TARGET = "H100"
"""The card that kernels of the gallery are for."""


def gallery_pages(*, whole: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of every page, and the function that makes its text.

    Args:
        whole: with derivations and kernels, which take time.
    """
    for pattern in PATTERNS.values():
        yield f"gallery/{pattern.name}.md", partial(pattern_text, pattern, whole=whole)


def pattern_text(pattern: Pattern, *, whole: bool) -> str:
    """The page of a pattern."""
    title = pattern.name.replace("_", " ")
    sizes = ", ".join(f"{axis} = {size}" for axis, size in pattern.sizes.items())
    head = f"# {title[0].upper()}{title[1:]}\n\n{entry(f'redalg.library.{pattern.name}', pattern.build)}\n"
    definition = f"## Definition\n\n```python\n{code_of(pattern)}\n```\n"
    return head + definition + (made_text(pattern, sizes) if whole else "")


def made_text(pattern: Pattern, sizes: str) -> str:
    """The derivation and the kernel of a pattern."""
    subject = subject_of(pattern.name)
    fused = subject.function
    kernel = fused.source(TARGET, **subject.problem(TARGET))
    slots = ", ".join(f"`{slot.name}`" for slot in fused.state) or "none"
    passes = len(fused.passes)
    facts = f"Passes over the data: {passes}. Slots of the state: {slots}. Sizes of the kernel below: {sizes}.\n"
    return (
        f"\n## Derivation\n\n{facts}\n{picture_of(fused)}\n\n{fused.explain(format='markdown')}\n"
        f"\n## Kernel\n\nThe program that `source` gives for an {TARGET}, {pattern.dtype} and these sizes.\n\n"
        f"```python\n{kernel.rstrip()}\n```\n"
    )


def picture_of(fused: Fused) -> str:
    """The tree of leaf, merge and finish, in the page's own colours: the rules of the picture are for all of a page."""
    return f'<div class="table-wrapper">{STYLE.sub("", str(fused.draw()))}</div>'


def code_of(pattern: Pattern) -> str:
    """The function of a pattern, without its decorator and docstring."""
    text = dedent(inspect.getsource(pattern.build))
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = text.splitlines()
    body = function.body[1] if ast.get_docstring(function) else function.body[0]
    head = lines[function.lineno - 1 : function.body[0].lineno - 1]
    return "\n".join([*head, *lines[body.lineno - 1 :]]).rstrip()
