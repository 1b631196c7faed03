"""The derivation that the demo begins with; it needs neither PyTorch nor TileLang."""

from __future__ import annotations

from rich.console import Console

from redalg.demo.printing import print_text, text_columns
from redalg.explain import explain_text
from redalg.fuse import Fused

BRIEF = "One more element"
"""The beginning of the part of a derivation that the demo shows after its summary."""


def begin_tour(console: Console, fused: Fused, *, full: bool) -> None:
    """Print the derivation of attention, or its summary and its update."""
    console.rule("Attention, derived from its definition")
    text = explain_text(fused.decomposition, fused.passes, text_columns(console))
    print_text(console, text if full else brief_text(text))


def brief_text(text: str) -> str:
    r"""The summary of a derivation, and its update by one more element.

    >>> brief_text("f in one pass\n=\nOne pass.\n\n1 …\n\n   One more element:\n     m = 1\n\n5 …")
    'f in one pass\n=\nOne pass.\n\n   One more element:\n     m = 1'
    """
    blocks = text.split("\n\n")
    return "\n\n".join([blocks[0], *(block for block in blocks if block.lstrip().startswith(BRIEF))])
