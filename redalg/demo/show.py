"""Derivation and kernel of one of the library's patterns, in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.syntax import Syntax

from redalg import Fused, InputError, library
from redalg.strategies.device import CARDS, targets

TARGETS = (*targets(), *CARDS)
ROWS = {"b": 1024, "n": 8192}


@final
@dataclass(frozen=True)
class Pattern:
    """A pattern, and the sizes by axis name and the dtype that its kernel is shown for."""

    build: Callable[[], Fused]
    sizes: dict[str, int]
    dtype: str = "float32"


SHOWN = {
    "attention": Pattern(library.attention, {"b": 1, "h": 8, "q": 4096, "k": 4096, "d": 64, "e": 64}, "float16"),
    "variance": Pattern(library.variance, ROWS),
    "weighted_mean": Pattern(library.weighted_mean, ROWS),
    "weighted_variance": Pattern(library.weighted_variance, ROWS),
    "inertia": Pattern(library.inertia, ROWS),
    "logsumexp": Pattern(library.logsumexp, ROWS),
    "softmax_denominator": Pattern(library.softmax_denominator, ROWS),
}


PATTERNS = tuple(library.__all__)


def pattern_of(name: str) -> Pattern:
    """A function of the library, and what its kernel is shown for: long streamed axes, and tiles for the others."""
    if name in SHOWN:
        return SHOWN[name]
    build: Callable[[], Fused] = getattr(library, name)
    cascade = build().cascade
    return Pattern(build, {str(axis.name): 4096 if axis == cascade.axis else 64 for axis in cascade.axes()}, "float16")


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


def with_sizes(pattern: Pattern, sizes: dict[str, int]) -> dict[str, int]:
    """A pattern's sizes, some of them changed; an axis that it does not have is refused by name."""
    foreign = [axis for axis in sizes if axis not in pattern.sizes]
    if foreign:
        raise InputError(f"sizes: there is no axis `{foreign[0]}` here. The axes are {', '.join(pattern.sizes)}.")
    return pattern.sizes | sizes


def show(console: Console, name: str, target: str, sizes: str = "", dtype: str | None = None) -> None:
    """Print a pattern's derivation, and its kernel with its plan; as plain text where the output is no terminal."""
    pattern = pattern_of(name)
    fused = pattern.build()
    all_sizes = with_sizes(pattern, parse_sizes(sizes))
    source = fused.source(target, sizes=all_sizes, dtypes=dtype or ("float32" if target == "c" else pattern.dtype))
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
