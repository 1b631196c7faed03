"""A picture of a compiled graph, as SVG: its statements, which of them reads which, and its groups.

    box      a statement: its tensor, shape and dtype, and the text of the user's source
    line     a tensor, from the statement that makes it down to one that reads it
    area     a group: its members and the tensors between them; dashed if the group was left to Inductor

The text depends on the drawing alone: no script, no style sheet, nothing from outside. `drawing` has the places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape

from redalg.torch.drawing import BOX, MARGIN, PAD, Box, Drawing, Layout, layout_of

BOX_HEIGHT, ROW_HEIGHT, LEAST_WIDTH = 50, 96, 640
"""The height of a box, the distance of rows, and the width of a small picture."""
FROM_FAR = 2
"""Tensors from far above that a box names."""
INK, PALE, PAPER = "#1f2933", "#66717e", "#ffffff"
KINDS: Mapping[str, tuple[str, str, str]] = {
    "elementwise": ("elementwise", "#ffffff", "#7b8794"),
    "movement": ("movement of elements", "#fff6d6", "#b7902b"),
    "reduction": ("reduction", "#d9ebff", "#2f6fb5"),
    "contraction": ("product of matrices", "#ffdcc2", "#c4581a"),
    "external": ("left to PyTorch", "#d9dde2", "#3e4c59"),
}
"""Kind of a statement -> its name in the legend, and the colours of its box and of the border."""
COLOURS = ("#167f45", "#8e44ad", "#00a3a3", "#d6336c", "#8a9a00", "#4b5fd6", "#a8642a", "#c026d3")
"""The colours of groups, in turn."""
FONT = 'style="max-width:none" font-family="ui-monospace, Menlo, Consolas, monospace"'
"""The font, and against notebooks that make wide pictures smaller."""
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Letters that XML has no place for."""


def draw_graph(graph: Drawing) -> str:
    """A graph as the text of an SVG, with a background of its own; a box tells more where the mouse rests on it.

    Args:
        graph: the graph. Members of groups and tensors that no box makes are left out.
    """
    layout = layout_of(graph)
    right = max((x for (number, row), x in layout.places.items() if row == layout.row[number]), default=0.0)
    right = max(right + BOX / 2, max(layout.places.values(), default=0.0) + PAD)
    width = max(LEAST_WIDTH, round(right) + MARGIN)
    legend, top = legend_of(graph, width)
    height = top + (len(layout.rows) or 1) * ROW_HEIGHT + PAD
    parts = [
        *(part for number in range(len(graph.areas)) for part in draw_area(graph, layout, number)),
        *draw_edges(graph, layout),
        *(draw_box(graph, layout, number) for number in range(len(graph.boxes))),
    ] or [text_at(MARGIN, 30, "No statement of this graph computes anything.", size=12)]
    size = f'width="{width}" height="{height}"'
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" {FONT}>',
        f'<rect {size} rx="6" fill="{PAPER}"/>',
        *legend,
        f'<g transform="translate(0,{top})">',
        *parts,
        "</g>",
        "</svg>",
    ))  # fmt: skip


# ---- marks -----------------------------------------------------------------------------------------------------------


def draw_box(graph: Drawing, layout: Layout, number: int) -> str:
    """A statement: its tensor, type and source in a box, and below it if its tensor goes further."""
    box, row = graph.boxes[number], layout.row[number]
    name = box.names[0] if box.names[0].startswith(box.operator) else f"{box.operator} → {box.names[0]}"
    _, colour, border = KINDS.get(box.kind, KINDS["elementwise"])
    from_far = [graph.boxes[source].names[0] for source in layout.far[number]]
    more = f" and {len(from_far) - FROM_FAR} more" * (len(from_far) > FROM_FAR)
    notes = [text_at(0, -24, f"from {', '.join(from_far[:FROM_FAR])}{more}", colour=PALE, most=32)] if from_far else []
    goes = [*["output"] * box.is_output, *["read further down"] * (number in layout.read_from_far)]
    notes += [text_at(0, BOX_HEIGHT + 19, ", ".join(goes), colour=PALE)] if goes else []
    x, y = layout.places[number, row] - BOX / 2, row * ROW_HEIGHT + MARGIN
    return (
        f'<g class="box" transform="translate({x:.0f},{y})"><title>{xml_text(tooltip(graph, layout, number))}</title>'
        f'<rect width="{BOX}" height="{BOX_HEIGHT}" rx="4" fill="{colour}" stroke="{border}"/>'
        f"{text_at(8, 16, name, size=12, weight='bold', most=22)}"
        f"{text_at(8, 29, box.type.replace(' ', ''), most=26)}"
        f"{text_at(8, 42, source_text(box), colour=PALE, most=26)}{''.join(notes)}</g>"
    )


def tooltip(graph: Drawing, layout: Layout, number: int) -> str:
    """All that is known of a statement, in lines."""
    box = graph.boxes[number]
    group = layout.areas.get((number, layout.row[number]))
    lines = (
        f"{', '.join(box.names)} = {box.operator}({', '.join(box.reads)})",
        f"{box.type}, {KINDS.get(box.kind, (box.kind,))[0]}{': ' * bool(box.reason)}{box.reason}",
        "" if group is None else f"group {group}, {'put' if graph.areas[group].is_put else 'left to Inductor'}",
        "an output of the graph" if box.is_output else "",
        box.line,
    )
    return "\n".join(filter(None, lines))


def source_text(box: Box) -> str:
    """The text of a statement's line of source."""
    return box.line.partition(": ")[2]


def draw_edges(graph: Drawing, layout: Layout) -> Iterator[str]:
    """Yield the line of every tensor to every statement that reads it."""
    stroke = f'fill="none" stroke="{PALE}" stroke-width="1.3"'
    for number, sources in enumerate(layout.near):
        for source in sources:
            names = f"{graph.boxes[source].names[0]} → {graph.boxes[number].names[0]}"
            path = f'<path class="edge" {stroke} d="{edge_path(layout, source, number)}">'
            yield f"{path}<title>{xml_text(names)}</title></path>"


def edge_path(layout: Layout, source: int, reader: int) -> str:
    """The path from a box's lower side to another's upper one: straight through rows, bent between them."""
    x, row = layout.places[source, layout.row[source]], layout.row[source]
    y = row * ROW_HEIGHT + MARGIN + BOX_HEIGHT
    path = [f"M{x:.0f},{y}"]
    while row < layout.row[reader]:
        row += 1
        end = reader if row == layout.row[reader] else source
        last, x, bottom = x, layout.places[end, row], row * ROW_HEIGHT + MARGIN
        middle = (y + bottom) // 2
        bent = f"C{last:.0f},{middle} {x:.0f},{middle} {x:.0f},{bottom}"
        path.append(f"V{bottom}" if round(last) == round(x) else bent)
        y = bottom + BOX_HEIGHT
        path += [f"V{y}"] if end == source else []
    return "".join(path)


def draw_area(graph: Drawing, layout: Layout, number: int) -> Iterator[str]:
    """Yield the marks of a group: one for all rows that follow each other, with the group's number."""
    area, colour = graph.areas[number], COLOURS[number % len(COLOURS)]
    said = f"group {number}: {area.text}" if area.text else f"group {number}"
    look = 'fill-opacity="0.22"' if area.is_put else 'fill-opacity="0.07" stroke-dasharray="7 5"'
    for sides in area_sides(layout, number):
        corners = [*((right, y) for _, right, y in sides), *((left, y) for left, _, y in reversed(sides))]
        points = " ".join(f"{x:.0f},{y}" for x, y in corners)
        left, _, y = sides[0]
        yield (
            f'<g class="group"><title>{xml_text(said)}</title><polygon points="{points}" fill="{colour}" {look} '
            f'stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
            f"{text_at(round(left), y - 4, f'group {number}', colour=colour, weight='bold')}</g>"
        )


def area_sides(layout: Layout, number: int) -> list[list[tuple[float, float, int]]]:
    """The left and right ends of a group at heights, from the top down: a list for all rows that follow each other."""
    found, last = list[list[tuple[float, float, int]]](), -2
    for row in sorted({spot[1] for spot, area in layout.areas.items() if area == number}):
        spots = [spot for spot in layout.rows[row] if layout.areas.get(spot) == number]
        shares = {spot: BOX / 2 if layout.row[spot[0]] == row else 0 for spot in spots}
        left = min(layout.places[spot] - shares[spot] for spot in spots) - PAD
        right = max(layout.places[spot] + shares[spot] for spot in spots) + PAD
        top = row * ROW_HEIGHT + MARGIN
        found += [[]] if row > last + 1 else []
        found[-1] += [(left, right, top - PAD), (left, right, top + BOX_HEIGHT + PAD)]
        last = row
    return found


def legend_of(graph: Drawing, width: int) -> tuple[list[str], int]:
    """The legend, in lines as wide as the picture, and its height."""
    kinds = {box.kind if box.kind in KINDS else "elementwise" for box in graph.boxes}
    entries = [(name, f'fill="{colour}" stroke="{border}"') for kind, (name, colour, border) in KINDS.items()
               if kind in kinds]  # fmt: skip
    look = f'fill="{COLOURS[0]}" stroke="{COLOURS[0]}" stroke-width="2"'
    if any(area.is_put for area in graph.areas):
        entries.append(("group that was put", f'{look} fill-opacity="0.22"'))
    if not all(area.is_put for area in graph.areas):
        entries.append(("group left to Inductor", f'{look} fill-opacity="0.07" stroke-dasharray="4 3"'))
    parts, x, y = [text_at(MARGIN, 26, graph.summary, size=12, weight="bold")], MARGIN, 46
    for name, marks in entries:
        step = 36 + 7 * len(name)
        x, y = (MARGIN, y + 20) if x + step > width else (x, y)
        parts.append(f'<g class="legend"><rect x="{x}" y="{y - 10}" width="16" height="12" rx="2" {marks}/>'
                     f"{text_at(x + 22, y, name, size=11)}</g>")  # fmt: skip
        x += step
    return parts, y + 16


def text_at(x: float, y: float, text: str, **look: str | int) -> str:
    """A line of text; `look` may have its size, weight, colour, and the most letters that there is room for."""
    most = int(look.get("most", 0))
    cut = f"{text[: most - 1]}…" if most and len(text) > most else text
    weight = f' font-weight="{look["weight"]}"' if "weight" in look else ""
    return (f'<text x="{x}" y="{y}" font-size="{look.get("size", 10)}" fill="{look.get("colour", INK)}"{weight}>'
            f"{xml_text(cut)}</text>")  # fmt: skip


def xml_text(text: str) -> str:
    """A text as XML writes it; letters that it has no place for become question marks."""
    return escape(UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text))
