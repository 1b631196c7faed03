"""The plots of the gallery: every family and every unit is drawn where its number stands, in the page's own colours."""

from math import inf, nan
from xml.etree import ElementTree as ET

import pytest

import redalg as ra
from docs.generate.gallery import errors_text
from docs.generate.plots import LEFT, WIDTH, errors_plot, time_plot, x_of
from redalg.commands.subject import Subject
from redalg.instruments.accuracy import Accuracy, AccuracyRow
from redalg.instruments.families import DATA_FAMILIES
from redalg.strategies.model.cost import Prediction

ROWS = (
    AccuracyRow("ordinary", "float32", "a", 1e-7, 1e-7, 1e-8),
    AccuracyRow("offset 1e6", "float32", "a", 1e-7, 1e-1, 1e-3),
    AccuracyRow("offset 1e6", "float32", "b", 1e-5, nan, 1e-3),
    AccuracyRow("huge", "float32", "a", 0.0, inf, 1e-8),
    AccuracyRow("one +inf", "float32", "a", nan, nan, nan),
)


def marks(svg: str, family: str) -> list[tuple[str, float]]:
    """The marks of a family: the tag of each, and its pixel."""
    groups = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    [group] = [one for one in groups if (one[0].text or "").startswith(f"{family}:")]
    return [(one.get("fill", ""), float(one.get("cx", "nan"))) for one in group if one.tag.endswith("circle")]


def test_an_error_stands_at_its_power_of_ten() -> None:
    svg = errors_plot(Accuracy("", ROWS)).svg()
    assert [x for _, x in marks(svg, "ordinary")] == pytest.approx([x_of(1e-7)] * 2, abs=0.1)
    (_, naive), (_, own) = marks(svg, "offset 1e6")  # of two outputs the larger error, which each contestant has
    assert (naive, own) == pytest.approx((x_of(1e-1), x_of(1e-5)), abs=0.1)
    (_, naive), (_, own) = marks(svg, "huge")
    assert naive > LEFT + WIDTH > LEFT == own
    assert marks(svg, "one +inf") == []
    assert "the definition has no value" in svg


def test_bars_are_as_long_as_their_times() -> None:
    found = [Prediction(20.0, {"memory": 16.0, "arithmetic": 4.0, "latency": 1e-6}), Prediction(10.0, {"loads": 8.0})]
    tree = ET.fromstring(time_plot(found).svg())
    lengths = [float(one.get("width", 0)) for one in tree if one.tag.endswith("rect")]
    assert lengths == pytest.approx([WIDTH * share for share in (1.0, 0.8, 0.2, 0.5, 0.4)], abs=0.1)
    words = [one.text for one in tree if one.tag.endswith("text")]
    assert words[:4] == ["pass 1 of 2", "20.00 µs", "memory", "16.00 µs"]
    assert "latency" not in words  # too short for a bar


@pytest.mark.parametrize(
    "svg", [errors_plot(Accuracy("", ROWS)).svg(), time_plot([Prediction(1.0, {"L2": 1.0})]).svg()]
)
def test_plots_take_the_colours_of_the_page_and_nothing_from_outside(svg: str) -> None:
    assert 'fill="currentColor"' in svg
    assert not any(word in svg for word in ("<style", "href", "url(", "#000", "#fff"))
    assert len(svg) < 10_000


def test_a_page_tells_what_was_measured() -> None:
    n = ra.axis("n", size=4)
    text = errors_text(Subject("mean", ra.fuse(ra.mean(ra.Tensor("x")[n], n))))
    assert "Measured by `accuracy()`" in text
    assert all(f"<title>{one.name}:" in text for one in DATA_FAMILIES)
