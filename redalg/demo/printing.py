"""Text and code on a terminal, or plain where the output is none: no line of either is broken."""

from __future__ import annotations

from rich.console import Console
from rich.syntax import Syntax

NARROWEST, WIDEST = 60, 120
"""Columns that text is laid out for, at least and at most."""


def print_text(console: Console, text: str) -> None:
    """Print as it stands: no markup, no colours of Rich's choosing, no line broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_code(console: Console, source: str) -> None:
    """Print Python source, coloured on a terminal, with every line whole so that it can be copied."""
    code = Syntax("", "python", background_color="default").highlight(source)
    code.rstrip()
    console.print(code, soft_wrap=True)


def note(text: str) -> None:
    """Say on the standard error what a command has chosen; the output stays what can be read by a program."""
    Console(stderr=True).print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def text_columns(console: Console) -> int:
    """The columns that text is laid out for: the terminal's, within what is legible."""
    return min(max(console.width, NARROWEST), WIDEST)
