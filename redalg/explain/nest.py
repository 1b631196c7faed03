"""A schedule as a loop nest, a level a line, and its predicted time by what bounds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from textwrap import wrap

from redalg.explain.page import cell_table
from redalg.explain.text import pad_right, text_width
from redalg.strategies.levels import (
    Grid,
    Lanes,
    Level,
    Loop,
    Pad,
    Parts,
    Persistent,
    ScalarCores,
    TensorCores,
    Whole,
)
from redalg.strategies.schedule import AnySchedule, Schedule

COLUMNS, LEAST_NOTE = 80, 24
"""Columns of a screen, and of a note beside loops that are deeply nested."""
BAR = 24
"""Columns of the longest bar."""
LEAST = 0.005
"""The share of the longest term below which a term is left out."""


def loop_nest(schedule: AnySchedule) -> str:
    """The levels of a schedule as nested loops, with what each does beside it.

    >>> from redalg.strategies.schedule import Schedule
    >>> print(loop_nest(Schedule(Grid("b"), Grid("q", 64), Loop("k", 64, stages=2), TensorCores(128))))
    for b in grid:                  # a block for each b
        for q_block in grid:        # a block for every 64 of q
            for k_tile in order:    # 64 of k at a time, loads 2 tiles ahead; the
                                    # state is merged at every tile
                multiply            # tensor cores, 128 threads
    """
    if not isinstance(schedule, Schedule):
        return str(schedule)
    rows, depth = list[tuple[str, str]](), 0
    for place, level in enumerate(schedule.levels):
        head, note = level_words(level, schedule.levels[place + 1 :])
        rows.append(("    " * depth + head, note))
        depth += head.endswith(":")
    size = max(text_width(head) for head, _ in rows) + 4
    return "\n".join(line for head, note in rows for line in level_lines(head, note, size))


def level_lines(head: str, note: str, size: int) -> Iterator[str]:
    """A level's line; what its note has no room for in the columns of a screen follows below."""
    for part in wrap(note, max(LEAST_NOTE, COLUMNS - size - 2)) or [""]:
        yield f"{pad_right(head, size)}# {part}"
        head = ""


WORDS_OF_MERGES = {
    "kernel": "a second kernel merges their states",
    "launch": "the block that is done last merges their states",
    "cluster": "each block of a cluster stores its sums in the shared memory of the others",
}
"""The place where states of parts are merged -> what happens there."""


def level_words(level: Level, inside: tuple[Level, ...]) -> tuple[str, str]:
    """The head of a level's line, and what it does."""
    if isinstance(level, Persistent):
        return "for block in turn:", f"{level.blocks} on each multiprocessor, which take tiles until none is left"
    if isinstance(level, Grid):
        if level.tile == 1:
            return f"for {level.axis} in grid:", f"a block for each {level.axis}"
        return f"for {level.axis}_block in grid:", f"a block for every {level.tile} of {level.axis}"
    if isinstance(level, Pad):
        return f"rows = {level.rows}", "rows of a tile that no axis gives; one is used"
    if isinstance(level, Parts):
        return "for part in grid:", f"{level.axis} in {level.count} parts side by side; {WORDS_OF_MERGES[level.merge]}"
    if isinstance(level, Loop):
        return f"for {level.axis}_tile in order:", loop_words(level, inside)
    if isinstance(level, Whole):
        memory = " in shared memory; threads compute elements where they need them" * (level.memory == "shared")
        return f"all of {level.axis}:", f"one tile of {level.tile}{memory or ', so that nothing is merged'}"
    if isinstance(level, Lanes):
        keeps = any(isinstance(one, Loop) for one in inside)
        how = "each keeps a state; merged after the loop" if keeps else "their results are merged at once"
        return (
            "for lane in parallel:" if keeps else "lanes",
            f"{level.width} thread{'s' if level.width > 1 else ''} along {level.axis}; {how}",
        )
    unit = "tensor cores" if isinstance(level, TensorCores) else "CUDA cores, in true float32 or float64"
    assert isinstance(level, TensorCores | ScalarCores)
    return "multiply", f"{unit}, {level.threads} threads"


def loop_words(level: Loop, inside: tuple[Level, ...]) -> str:
    """The words for a loop: its tiles, its loads, its merges."""
    ahead = f", loads {level.stages} tile{'s' if level.stages > 1 else ''} ahead" if level.stages else ""
    ahead += ", by warps of their own" if level.specialised else ""
    merged = "; the state is merged at every tile" if inside else ""
    return f"{level.tile} of {level.axis} at a time{ahead}{merged}"


# ---- predicted time --------------------------------------------------------------------------------------------------


def time_lines(predicted_us: float, terms: Mapping[str, float], premises: str = "") -> Iterator[str]:
    """The predicted time, then the time that each unit would take alone, longest first, with bars; what is assumed."""
    yield f"predicted {predicted_us:.2f} µs; each alone would take"
    size, longest = max(map(len, terms)), max(terms.values())
    for name, alone in terms_that_count(terms):
        yield f"  {name:<{size}}  {alone:>9.2f} µs  {'█' * max(1, round(BAR * alone / longest))}"
    if premises:
        yield premises


def time_page(predicted_us: float, terms: Mapping[str, float], premises: str = "") -> str:
    """The predicted time as HTML, and what is assumed."""
    longest = max(terms.values())
    rows = ([escape(name), f"{alone:.2f}", bar(alone / longest)] for name, alone in terms_that_count(terms))
    table = cell_table(("", "µs", ""), rows)
    note = f"<p>{escape(premises)}.</p>" if premises else ""
    return f"<p>Predicted {predicted_us:.2f} µs. Each alone would take:</p>{table}{note}"


def bar(share: float) -> str:
    """A bar of a share of its column."""
    style = f"width:{max(1, round(160 * share))}px;height:.8em;background:currentColor;opacity:.5"
    return f'<div style="{style}"></div>'


def terms_that_count(terms: Mapping[str, float]) -> list[tuple[str, float]]:
    """The terms that count, longest first."""
    longest = max(terms.values())
    return sorted(((name, one) for name, one in terms.items() if one >= LEAST * longest), key=lambda one: -one[1])
