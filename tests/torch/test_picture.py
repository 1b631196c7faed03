"""Pictures of graphs: every statement and every line is there, lines go down, groups hold their members alone."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from xml.etree import ElementTree as ET

import pytest
import torch

import redalg.torch
from redalg.errors import PlanError
from redalg.torch.drawing import BOX, FAR, ROW_BOXES, Area, Box, Drawing
from redalg.torch.explanation import Explanation
from redalg.torch.picture import BOX_HEIGHT, KINDS, draw_graph
from redalg.torch.report import GraphReport
from tests.torch.test_aten import Called, drawn
from tests.torch.test_explanation import PREDICTED, centred

pytestmark = pytest.mark.filterwarnings("ignore")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert('&\"')</script>]]>\0\x1b\ud800 ü😀"


def marks(picture: str, kind: str) -> list[ET.Element]:
    """The marks of a class, by the picture's own XML."""
    return [each for each in ET.fromstring(picture).iter() if each.get("class") == kind]


def title(mark: ET.Element) -> str:
    return mark.findtext(f"{SVG}title") or ""


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", text)]


def corners(picture: str) -> dict[str, tuple[float, float]]:
    """The first result of every box -> its upper left corner."""
    found = {
        title(box).split(" = ")[0].split(",")[0]: numbers(box.attrib["transform"]) for box in marks(picture, "box")
    }
    return {name: (x, y) for name, (x, y) in found.items()}


def contains(polygon: ET.Element, x: float, y: float) -> bool:
    """Tell if a point is in a polygon: a ray from it meets an odd number of sides."""
    values = numbers(polygon.attrib["points"])
    points = [*zip(values[::2], values[1::2], strict=True)]
    sides = [*pairwise([*points, points[0]])]
    return sum((b > y) != (d > y) and x < a + (y - b) * (c - a) / (d - b) for (a, b), (c, d) in sides) % 2 == 1


def random_drawing(count: int, span: int) -> Drawing:
    random, kinds, boxes = Random(count), [*KINDS], list[Box]()
    for number in range(count):
        before = [number - 1 - random.randrange(min(span, number)) for _ in range(random.randrange(4) if number else 0)]
        reads = tuple(f"t{source}" for source in before)
        boxes.append(Box((f"t{number}",), "mul", kinds[number % len(kinds)], "float32[4, 8]", reads))
    areas = [Area(tuple(f"t{n}" for n in range(first, first + 6)), first % 2 == 0) for first in range(0, count - 6, 15)]
    return Drawing(tuple(boxes), tuple(areas), 3)


@pytest.mark.parametrize(("count", "span"), [(1, 1), (20, 4), (200, 6), (200, 200)])
def test_every_statement_and_line_is_drawn(count: int, span: int) -> None:
    graph = random_drawing(count, span)
    picture = draw_graph(graph)
    places = corners(picture)
    assert [*places] == [f"t{number}" for number in range(count)]
    assert len(marks(picture, "box")) == count
    lines = {title(edge): numbers(edge.attrib["d"].replace("V", f"V{0},")) for edge in marks(picture, "edge")}
    wanted = {f"{source} → {box.names[0]}" for box in graph.boxes for source in box.reads}
    named = sum("from t" in (text.text or "") for text in ET.fromstring(picture).iter(f"{SVG}text"))
    assert lines.keys() <= wanted
    assert len(lines) == len(wanted) or named
    for name, values in lines.items():
        source, reader = name.split(" → ")
        assert (values[0], values[1]) == pytest.approx(
            (places[source][0] + BOX / 2, places[source][1] + BOX_HEIGHT), abs=1
        )
        assert values[-1] == places[reader][1]
        assert values[1::2] == sorted(values[1::2])


def test_boxes_lie_apart_and_inside() -> None:
    picture = draw_graph(random_drawing(200, 6))
    width, height = (int(ET.fromstring(picture).attrib[side]) for side in ("width", "height"))
    places = sorted(corners(picture).values(), key=lambda corner: (corner[1], corner[0]))
    assert all(first[1] != second[1] or second[0] - first[0] > BOX for first, second in pairwise(places))
    assert all(0 < x < width - BOX and 0 < y < height - BOX_HEIGHT for x, y in places)


@pytest.mark.parametrize(("count", "span"), [(20, 4), (200, 6)])
def test_groups_hold_their_members_alone(count: int, span: int) -> None:
    graph = random_drawing(count, span)
    picture = draw_graph(graph)
    groups = marks(picture, "group")
    for number, area in enumerate(graph.areas):
        polygons = [mark[1] for mark in groups if title(mark) == f"group {number}"]
        held = {name for name, (x, y) in corners(picture).items()
                if any(contains(polygon, x + BOX / 2, y + BOX_HEIGHT / 2) for polygon in polygons)}  # fmt: skip
        assert held == {*area.members}
        assert all(("stroke-dasharray" in polygon.attrib) != area.is_put for polygon in polygons)


def test_a_long_row_is_wrapped_and_a_far_reader_names_its_tensor() -> None:
    heads = [Box((f"h{number}",), "exp", "elementwise", "float32[]", ("h",)) for number in range(3 * ROW_BOXES)]
    picture = draw_graph(Drawing((Box(("h",), "sum", "reduction", "float32[]"), *heads)))
    assert len({y for _, y in corners(picture).values()}) == 4
    chain = [Box((f"t{number}",), "exp", "elementwise", "float32[]", (f"t{number - 1}",)) for number in range(FAR + 2)]
    picture = draw_graph(Drawing((*chain, Box(("end",), "add", "elementwise", "float32[]", ("t0", f"t{FAR + 1}")))))
    assert "t0 → end" not in picture
    assert ">from t0<" in picture
    assert picture.count(">read further down<") == 1


def test_statements_of_inputs_alone_stand_above_their_reader() -> None:
    chain = [Box((f"t{number}",), "exp", "elementwise", "float32[]", (f"t{number - 1}",)) for number in range(5)]
    scale = Box(("scale",), "sum", "reduction", "float32[]", ("x",))
    places = corners(draw_graph(Drawing((scale, *chain, Box(("end",), "mul", "elementwise", "", ("t4", "scale"))))))
    assert places["scale"][1] == places["t4"][1]


def test_names_are_escaped() -> None:
    box = Box((HOSTILE,), HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), f"a.py:3 f: {HOSTILE}", HOSTILE, is_output=True)
    picture = draw_graph(Drawing((box,), (Area((HOSTILE,), is_put=True, text=HOSTILE),)))
    assert "<script" not in picture
    assert picture.encode()
    [mark] = marks(picture, "box")
    assert "<script>alert('&\"')</script>]]>" in title(mark)
    assert "ü😀" in title(mark)


def test_the_empty_graph_says_so() -> None:
    picture = draw_graph(Drawing())
    assert marks(picture, "box") == marks(picture, "edge") == []
    assert "No statement of this graph computes anything." in picture


def test_a_picture_depends_on_the_drawing_alone() -> None:
    assert draw_graph(random_drawing(60, 5)) == draw_graph(random_drawing(60, 5))
    assert "id=" not in draw_graph(random_drawing(60, 5))


def test_an_explanation_has_pictures() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return centred(x.cumprod(0)) @ x.T

    found = [redalg.torch.explain(Called(function), drawn(6, 20), options=PREDICTED) for _ in range(2)]
    picture = found[0].picture()
    assert picture == found[1].picture()
    [graph] = found[0].graphs
    titles = {title(box).split(" = ")[0]: title(box) for box in marks(picture, "box")}
    assert {*titles} >= {"cumprod", *graph.groups[0].group.members}
    assert "left to PyTorch: redalg has no expression for cumprod" in titles["cumprod"]
    assert any("product of matrices" in each and "an output" in each for each in titles.values())
    assert all("test_picture.py" in each or "test_explanation.py" in each for each in titles.values())
    assert any(title(edge).startswith("cumprod → ") for edge in marks(picture, "edge"))
    [group] = marks(picture, "group")
    assert title(group).startswith("group 0: put")
    assert f"{picture}</div></details>" in found[0]._repr_html_()


def test_a_picture_that_is_not_there_is_refused() -> None:
    failed = Explanation((GraphReport(0, (), {}, "of two devices"),))
    with pytest.raises(PlanError, match=r"picture\(1\): .* graphs that were compiled: 1. Ask for a number from 0 to 0"):
        failed.picture(1)
    with pytest.raises(PlanError, match="a graph left to Inductor: of two devices"):
        failed.picture()
    with pytest.raises(PlanError, match="no graph was compiled"):
        Explanation(()).picture()
    assert "<svg" not in failed._repr_html_()
