"""The plots of the gallery: errors on hostile data, which are measured, and a kernel's time, which is predicted.

SVG of a few kilobytes within the page, in the page's own colours, so that it is legible on a light page and on a dark
one. Errors have one scale in the whole gallery:

    error     0  1e-9 ── 1e-7 ── 1e-5 ── … ── 1 ── 100   not finite       0 and what is less stands at the left end
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby

from redalg.explain.nest import terms_that_count
from redalg.explain.picture import ACCENT, LETTER, Picture
from redalg.explain.text import text_width
from redalg.instruments.accuracy import Accuracy, AccuracyRow
from redalg.instruments.errors import error_text
from redalg.strategies.model.cost import Prediction

LEFT, WIDTH, TOP, ROW = 130, 420, 44, 20
"""The pixels of the labels, of the scale, of the legend, and of a row."""
LEAST, MOST = -9, 2
"""The powers of ten at the ends of the scale of errors."""
BEYOND = 70
"""The pixels from the end of the scale to the column of what is not finite."""


def errors_plot(found: Accuracy) -> Picture:
    """The errors of a function beside those of the formula as written, a row for each family of data.

    Of several outputs a row has the largest error of each contestant.
    """
    families = [(name, worst_row(list(rows))) for name, rows in groupby(found.rows, key=lambda row: row.data)]
    bottom = TOP + ROW * len(families)
    parts = [*scale_parts(bottom), *legend_parts()]
    for place, (name, row) in enumerate(families):
        parts += row_parts(name, row, TOP + ROW * place + ROW / 2)
    return Picture("".join(parts), LEFT + WIDTH + BEYOND + 40, bottom + 24, "errors on hostile data")


def worst_row(rows: Sequence[AccuracyRow]) -> tuple[float, float, float]:
    """The largest errors of redalg, of the naive formula and of rounded inputs; NaN if no output has one."""
    triples = [(row.redalg, row.naive, row.inputs) for row in rows]
    return (largest(triples, 0), largest(triples, 1), largest(triples, 2))


def largest(triples: Sequence[tuple[float, float, float]], place: int) -> float:
    """The largest number at a place, of those that are numbers."""
    return max((one[place] for one in triples if not math.isnan(one[place])), default=math.nan)


def x_of(error: float) -> float:
    """The pixel of an error, from the left.

    >>> x_of(0.0) == x_of(1e-12) == LEFT, x_of(math.inf) > x_of(1e9) == x_of(100.0)
    (True, True)
    """
    if math.isinf(error):
        return LEFT + WIDTH + BEYOND
    power = LEAST if error <= 0 else min(max(math.log10(error), LEAST), MOST)
    return LEFT + WIDTH * (power - LEAST) / (MOST - LEAST)


def scale_parts(bottom: float) -> list[str]:
    """The lines of the scale, and what stands below them."""
    words = {-9: "≤1e-9", -7: "1e-7", -5: "1e-5", -3: "1e-3", -1: "0.1", 2: "≥100"}
    parts = [upright(x_of(10.0**power), bottom) for power in words]
    parts += [text(x_of(10.0**power), bottom + 16, word, "middle") for power, word in words.items()]
    return [*parts, upright(x_of(math.inf), bottom), text(x_of(math.inf), bottom + 16, "not finite", "middle")]


def legend_parts() -> list[str]:
    """The marks with their names."""
    y = 14
    return [
        disc(LEFT + 4, y), text(LEFT + 14, y + 4, "redalg"),
        ring(LEFT + 84, y), text(LEFT + 96, y + 4, "formula as written"),
        tick(LEFT + 240, y), text(LEFT + 250, y + 4, "what rounding the data alone changes"),
    ]  # fmt: skip


def row_parts(name: str, errors: tuple[float, float, float], y: float) -> list[str]:
    """A family's name and its marks; the numbers are the tooltip."""
    own, naive, inputs = errors
    words = f"{name}: redalg {error_text(own)}, as written {error_text(naive)}, rounded data {error_text(inputs)}"
    parts = [text(LEFT - 12, y + 4, name, "end")]
    if math.isnan(own) or math.isnan(naive):
        parts.append(text(LEFT + 8, y + 4, "the definition has no value"))
    else:
        parts.append(f'<path d="M{x_of(own):g} {y:g} H{x_of(naive):g}" stroke="currentColor" opacity=".4"/>')
    marks = ((tick, inputs), (ring, naive), (disc, own))
    parts += [mark(x_of(error), y) for mark, error in marks if not math.isnan(error)]
    return ["<g>", f"<title>{escape(words)}</title>", *parts, "</g>"]


# ---- predicted time --------------------------------------------------------------------------------------------------


def time_plot(predictions: Sequence[Prediction]) -> Picture:
    """The predicted time of the kernels of all passes, and the time that each unit would take alone, as bars."""
    rows = list[tuple[str, float, bool]]()
    for number, found in enumerate(predictions, 1):
        rows.append((f"pass {number} of {len(predictions)}" if len(predictions) > 1 else "kernel", found.time_us, True))
        rows += [(name, alone, False) for name, alone in terms_that_count(found.terms)]
    longest = max(time for _, time, _ in rows)
    parts = list[str]()
    for place, (name, time, whole) in enumerate(rows):
        y = 8 + ROW * place
        parts += bar_parts(name, time, WIDTH * time / longest, y, whole=whole)
    return Picture("".join(parts), LEFT + WIDTH + BEYOND + 40, 8 + ROW * len(rows), "predicted time by what bounds it")


def bar_parts(name: str, time_us: float, length: float, y: float, *, whole: bool) -> list[str]:
    """A bar with its name and time; those of units are paler than those of kernels."""
    colour = f'fill="{ACCENT}"' if whole else 'opacity=".45"'
    return [
        text(LEFT - 12, y + 12, name, "end"),
        f'<rect x="{LEFT}" y="{y + 3:g}" width="{max(1.0, length):.1f}" height="{ROW - 7}" {colour}/>',
        text(LEFT + max(1.0, length) + 8, y + 12, f"{time_us:.2f} µs"),
    ]


# ---- marks -----------------------------------------------------------------------------------------------------------


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words at a place; what is too long for the room of the labels is cut."""
    room = int((LEFT - 12) / LETTER)
    shown = words if anchor != "end" or text_width(words) <= room else words[: room - 1] + "…"
    return f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{escape(shown)}</text>'


def upright(x: float, bottom: float) -> str:
    """A line of the scale."""
    return f'<path d="M{x:.1f} {TOP - 8} V{bottom:g}" stroke="currentColor" opacity=".2"/>'


def disc(x: float, y: float) -> str:
    """The mark of redalg."""
    return f'<circle cx="{x:.1f}" cy="{y:g}" r="4" fill="{ACCENT}"/>'


def ring(x: float, y: float) -> str:
    """The mark of the formula as written: around redalg's where both are alike."""
    return f'<circle cx="{x:.1f}" cy="{y:g}" r="6.5" fill="none" stroke="currentColor" stroke-width="1.3"/>'


def tick(x: float, y: float) -> str:
    """The mark of the error that rounded data make."""
    return f'<path d="M{x:.1f} {y - 7:g} V{y + 7:g}" stroke="currentColor" stroke-width="1.6" opacity=".7"/>'
