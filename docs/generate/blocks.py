"""The Python blocks of a page: run from top to bottom, in one namespace, with what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any

FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WIDE = 120
"""Columns that a page has room for."""


def python_blocks(text: str, kind: str = "python") -> list[str]:
    r"""The Python blocks of a page, each on the lines that it has there, so that errors point at them.

    Args:
        text: the page.
        kind: the word after the fence: `python`, or `py` of blocks that need the packages of tests/integration.

    >>> python_blocks("words\n```python\nprint(1)\n```\n")
    ['\n\nprint(1)\n']
    """
    found = (fence for fence in FENCE.finditer(text) if fence[1] == kind)
    return ["\n" * text.count("\n", 0, fence.start(2)) + fence[2] for fence in found]


def outputs_of(text: str, name: str) -> Iterator[str]:
    """The text that each block prints, run as one program.

    Args:
        text: the page.
        name: of the page, for tracebacks.
    """
    namespace: dict[str, Any] = {"__name__": name}
    for block in python_blocks(text):
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(block, name, "exec"), namespace)
        yield printed.getvalue()


def with_outputs(text: str, name: str) -> str:
    r"""The page with a block `output` after every Python block that prints something and has none yet.

    >>> with_outputs("```python\nprint(6 * 7)\n```\n", "page.md")
    '```python\nprint(6 * 7)\n```\n\n```output\n42\n```\n'
    """
    with TemporaryDirectory() as folder, chdir(folder):
        printed = outputs_of(text, name)

        def written(fence: re.Match[str]) -> str:
            output = next(printed) if fence[1] == "python" else ""
            follows = text[fence.end() :].lstrip().startswith("```output")
            return f"{fence[0]}\n\n```output\n{output.rstrip()}\n```" if output.strip() and not follows else fence[0]

        return FENCE.sub(written, text)


def as_site_blocks(text: str) -> str:
    r"""The page with its outputs as Sphinx's code blocks, of a class of their own; prose wraps.

    ```output  →  ```{code-block} text, :class: output-block

    >>> print(as_site_blocks("```output\n42\n```"))
    ```{code-block} text
    :class: output-block
    <BLANKLINE>
    42
    ```
    """

    def written(fence: re.Match[str]) -> str:
        return output_block(fence[2]) if fence[1] == "output" else fence[0]

    return FENCE.sub(written, text)


def output_block(text: str) -> str:
    """A block that shows what was printed; lines beyond `WIDE` columns are prose, which wraps."""
    wraps = any(len(line) > WIDE for line in text.splitlines())
    return f"```{{code-block}} text\n:class: output-block{' wrapped' if wraps else ''}\n\n{text.rstrip()}\n```"
