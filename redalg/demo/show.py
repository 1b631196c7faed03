"""Derivation and kernel of one of the library's patterns, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.syntax import Syntax

from redalg import InputError
from redalg.library import PATTERNS, Pattern
from redalg.strategies.device import CARDS, targets

TARGETS = (*targets(), *CARDS)


def pattern_of(name: str) -> Pattern:
    """A pattern of the library by its name."""
    return PATTERNS[name]


def parse_sizes(text: str) -> dict[str, int]:
    """Read sizes by axis name.

    >>> parse_sizes("q=1 k=513")
    {'q': 1, 'k': 513}
    """
    pairs = [pair.partition("=") for pair in text.split()]
    wrong = ["".join(pair) for pair in pairs if not pair[0].isidentifier() or not pair[2].isdigit()]
    if wrong:
        raise InputError(f"sizes: `{wrong[0]}` is not a size. Write axis=size, separated by spaces, as in 'q=1 k=513'.")
    return {axis: int(size) for axis, _, size in pairs}


def with_sizes(pattern: Pattern, sizes: Mapping[str, int]) -> dict[str, int]:
    """A pattern's sizes, some of them changed; an axis that it does not have is refused by name."""
    foreign = [axis for axis in sizes if axis not in pattern.sizes]
    if foreign:
        raise InputError(f"sizes: there is no axis `{foreign[0]}` here. The axes are {', '.join(pattern.sizes)}.")
    return {**pattern.sizes, **sizes}


def show(console: Console, name: str, target: str, sizes: str = "", dtype: str | None = None) -> None:
    """Print a pattern's derivation, and its kernel with its plan; as plain text where the output is no terminal."""
    pattern = pattern_of(name)
    fused = pattern.build()
    all_sizes = with_sizes(pattern, parse_sizes(sizes))
    dtypes = pattern.dtypes(fused, dtype or ("float32" if target == "c" else None))
    source = fused.source(target, sizes=all_sizes, dtypes=dtypes, shapes=pattern.tensor_shapes(all_sizes))
    print_text(console, fused.explain())
    console.print()
    print_code(console, source)


def print_text(console: Console, text: str) -> None:
    """Print as it stands: no markup, no colours of Rich's choosing, no line broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_code(console: Console, source: str) -> None:
    """Print Python source, coloured on a terminal, with every line whole so that it can be copied."""
    code = Syntax("", "python", background_color="default").highlight(source)
    code.rstrip()
    console.print(code, soft_wrap=True)
