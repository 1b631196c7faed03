"""Stages in lists, notebooks and terminals: one line, a page that folds and scrolls, legible in light and dark."""

import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from subprocess import run
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from sympy import Abs

import redalg as ra
from redalg.display import SCREEN, VIEWS, first_lines
from redalg.explain.listing import COLOURS, Listing, coloured_lines
from redalg.explain.nest import loop_nest, time_lines
from redalg.explain.picture import ACCENT, draw_passes
from redalg.explain.views import LONGEST, prediction_of
from redalg.fuse import Fused
from redalg.library import PATTERNS
from redalg.runtime.lowered import Lowered
from redalg.strategies.levels import Grid, Lanes, Loop, Pad, Parts, Persistent, ScalarCores, TensorCores, Whole
from redalg.strategies.schedule import Schedule
from redalg.strategies.table import Table
from tests.house.source import ROOT

n = ra.axes("n")
x = ra.tensor("x[b,n]")
SIZES = {"b": 1, "h": 2, "q": 128, "k": 128, "d": 16, "e": 16}
VOID = {"br", "hr", "img"}


@pytest.fixture(scope="module")
def attention() -> Fused:
    return PATTERNS["attention"].build()


@pytest.fixture(scope="module")
def variance() -> Fused:
    return ra.fuse(ra.var(x, n))


@pytest.fixture(scope="module")
def lowered(attention: Fused) -> Lowered:
    return attention.lower("sm_90a", SIZES, "float16")


@pytest.fixture(scope="module")
def parted(variance: Fused) -> Lowered:
    return variance.lower("sm_90a", {"b": 4, "n": 409600}, "float32")


def every_stage(attention: Fused, variance: Fused, lowered: Lowered) -> Iterator[Any]:
    yield from (variance.cascade, variance.decomposition, variance.form, attention.cascade, attention.form)
    yield from (lowered.plan, lowered.program, lowered.source, lowered, attention.plans(SIZES, "float16", "H100"))
    yield from (variance.leaf({"x": np.ones((2, 3), np.float32)}), variance.vjp(), variance.jvp())
    yield from (ra.fuse(2 * x, axes="b n").form, ra.fuse(2 * x, axes="b n").cascade)
    yield from (variance.passes, lowered.stages, variance.vjp().stages[0])
    yield attention.plans(SIZES, "float16", "H100")[0]


class Reader(HTMLParser):
    """Keeps the tags that are open, the styles, and the text; a wrong closing tag fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.styles: list[str] = []
        self.titles: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self.titles += [value or "" for name, value in attrs if name == "title"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


# ---- every stage -----------------------------------------------------------------------------------------------------


def test_every_stage_is_one_line_in_a_list(attention: Fused, variance: Fused, lowered: Lowered) -> None:
    for stage in every_stage(attention, variance, lowered):
        text = repr(stage)
        if type(stage).__name__ == "Candidates":
            assert len(text.splitlines()) < SCREEN
        elif type(stage).__name__ == "Schedule":
            assert text == str(stage)
        else:
            assert re.fullmatch(rf"<{type(stage).__name__} .+>", text), text
            assert len(text) <= LONGEST + 1


def test_every_stage_is_a_page_that_folds(attention: Fused, variance: Fused, lowered: Lowered) -> None:
    seen = set()
    for stage in every_stage(attention, variance, lowered):
        seen.add(type(stage).__name__)
        page = stage._repr_html_()
        reader = read(page)
        assert page.startswith("<article><details><summary")
        assert "<script" not in page
        assert "http" not in page
        assert " at 0x" not in reader.text
        assert page.count(r"\(") == page.count(r"\)")
        bundle = stage._repr_mimebundle_()
        assert bundle["text/html"] == page
        assert len(bundle["text/plain"].splitlines()) <= SCREEN
        assert "at 0x" not in bundle["text/plain"]
    assert VIEWS.keys() - seen == {"Definition", "LibraryProduct", "Kernel", "LoweredSteps", "ProgramText"}


def test_a_page_takes_its_colours_from_where_it_stands(attention: Fused, variance: Fused, lowered: Lowered) -> None:
    shown = [variance, ra.analyze(ra.mean(Abs(x - ra.mean(x, n)), n)), *every_stage(attention, variance, lowered)]
    styles = {style for one in shown for style in read(one._repr_html_()).styles}
    assert {one for style in styles for one in re.findall(r"background:([^;]*)", style)} <= {
        "transparent", "currentColor"}  # fmt: skip
    colours = {one for style in styles for one in re.findall(r"(?<![-\w])color:([^;]*)", style)}
    assert colours <= {"inherit", *COLOURS.values()}
    wide = [style for style in styles if "white-space:pre" in style]
    assert wide == []


@pytest.mark.parametrize("colour", sorted({*COLOURS.values(), ACCENT}))
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_are_legible_on_light_and_dark(colour: str, page: str) -> None:
    """Contrast as WCAG 2.1 has it; 3 is its least for large and graphical parts."""
    a, b = sorted((luminance(colour), luminance(page)))
    assert (b + 0.05) / (a + 0.05) > 3


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_is_wide_scrolls_by_itself(lowered: Lowered, variance: Fused) -> None:
    for page in (lowered._repr_html_(), variance._repr_html_(), variance.draw()._repr_html_()):
        for tag in re.findall(r"<pre[^>]*>|<table>|<svg", page):
            before = page[: page.index(tag)]
            assert "overflow-x:auto" in tag or before.rstrip().endswith('px 0">') or "overflow-x:auto" in before[-90:]


def test_names_of_a_user_are_escaped() -> None:
    found = ra.analyze(ra.sum(ra.where(x > ra.mean(x, n), x, 0), n))
    assert "&gt;" in found._repr_html_()
    assert read(found._repr_html_()).text.count("x[b, n] > mean(x[b, n], n)") >= 1
    assert "<b>" not in coloured_lines("x = 1  # <b>")[0]


def test_rich_prints_a_form_and_colours_a_kernel(variance: Fused, lowered: Lowered) -> None:
    from rich.console import Console

    console = Console(width=100, record=True, force_terminal=True, file=StringIO())
    console.print(variance, lowered, variance.form)
    text = console.export_text()
    assert "Exact. One pass" in text
    assert "import tilelang" in text
    assert "online form over n" in text
    assert console.file.getvalue().count("\x1b[") > 50  # type: ignore[attr-defined]


def rich_text(*values: object, width: int = 80) -> str:
    """The text that Rich writes."""
    from rich.console import Console

    console = Console(width=width, file=StringIO())
    console.print(*values)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rich_shows_every_stage_in_the_columns_of_its_terminal(variance: Fused, lowered: Lowered) -> None:
    state = variance.leaf({"x": np.ones((2, 3))})
    refused = ra.analyze(ra.sum(abs(x - ra.mean(x, n)), n))
    plans = variance.plans({"b": 64, "n": 4096}, "float32", "H200")
    shown = {
        "variance": (variance, "Exact. One pass"),
        "refusal": (refused, "ra.fuse(…, passes=2)"),
        "verdict": (ra.analyze(ra.sum(x, n)), "Exact."),
        "cascade": (variance.cascade, "one per"),
        "decomposition": (variance.decomposition, "rank"),
        "form": (variance.form, "The state"),
        "plans": (plans, "each alone would take"),
        "candidate": (plans[0], "each alone would take"),
        "schedule": (plans[0].plan, "in grid:"),
        "state": (state, "all rows"),
        "program": (lowered.program, lowered.program.name),
        "source": (lowered.source, "import tilelang"),
    }
    for name, (value, words) in shown.items():
        text = rich_text(value)
        assert words in text, name
        assert max(map(len, text.splitlines())) <= 80, name


def test_a_table_is_one_in_rich_too() -> None:
    table = Table("plans", ("", "µs", "plan"), (("0", "4.27", "Grid(b)"), ("1", "14.30", "Loop(n)")), "of 2")
    lines = rich_text(table).splitlines()
    assert lines[0] == "plans"
    assert lines[-1] == "of 2"
    assert [line.split() for line in lines[3:5]] == [["0", "4.27", "Grid(b)"], ["1", "14.30", "Loop(n)"]]
    assert lines[3].index("4.27") == lines[4].index("14.30") + 1  # figures to the right


def test_import_loads_no_view() -> None:
    code = "import redalg, sys; sys.exit(any(one in sys.modules for one in ('redalg.explain.views', 'rich', 'numpy')))"
    assert run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_text_of_a_screen() -> None:
    assert first_lines("a\nb", 2) == "a\nb"
    assert first_lines("a\nb\nc\nd", 3).splitlines() == ["a", "b", "… 2 more lines: print it"]


# ---- schedules -------------------------------------------------------------------------------------------------------


def test_a_schedule_is_a_nest_of_loops(golden) -> None:
    schedules = [
        Schedule(Grid("b"), Grid("q", 64), Loop("k", 64, stages=2, specialised=True), TensorCores(128)),
        Schedule(Grid("b"), Parts("n", 4, merge="launch"), Lanes("n", 128), Loop("n", 512)),
        Schedule(Grid("b"), Loop("n", 512), Lanes("n", 128)),
        Schedule(Persistent(2), Grid("b"), Whole("n", 4096), Lanes("n", 512)),
        Schedule(Grid("b"), Pad(16), Parts("k", 8), Loop("k", 64), Loop("d", 16), ScalarCores(64)),
        Schedule(Grid("b"), Parts("n", 4, merge="cluster"), Whole("n", 32768, memory="shared"), Lanes("n", 256)),
    ]
    golden("nests", "\n\n".join(map(loop_nest, schedules)))


def test_the_predicted_time_is_broken_into_what_bounds_it(lowered: Lowered, attention: Fused) -> None:
    found = prediction_of(lowered)
    assert found is not None
    head, *lines = time_lines(found.time_us, found.terms)
    assert f"{found.time_us:.2f} µs" in head
    assert lines[0].split()[0] in found.bound
    times = [float(re.findall(r"([\d.]+) µs", line)[0]) for line in lines]
    assert times == sorted(times, reverse=True)
    assert prediction_of(attention.lower("c", SIZES, "float32")) is None
    best = attention.plans(SIZES, "float16", "H100")[0]
    assert max(best.terms, key=lambda one: best.terms[one]) == best.bound


# ---- kernels beside the algebra --------------------------------------------------------------------------------------


def test_the_text_of_a_kernel_shows_itself_as_it_prints(variance: Fused) -> None:
    source = variance.source("c", sizes={"b": 4, "n": 64}, dtypes="float32")
    assert repr(source) == str(source)
    assert "\\n" not in repr(source).splitlines()[0]


def test_lines_know_the_slots_that_they_serve(lowered: Lowered) -> None:
    listing = Listing(lowered.source, lowered.stages)
    assert [one.text for one in listing.lines] == lowered.source.text.splitlines()
    assert [(one.number, one.name) for one in listing.legend] == list(
        enumerate(["m", "l", "sum_0_acc", "sum_d_0", "out"], 1)
    )
    served = {one.text.strip(): listing.numbers(one) for one in listing.lines}
    [product] = [one for one in served if one.startswith("contract_transposed(")]
    [weighted] = [one for one in served if one.startswith("contract(operand")]
    [maximum] = [one for one in served if one.startswith("T.reduce_max(")]
    [weight] = [one for one in served if one.startswith("weight[i, j] =")]
    assert [served[one] for one in (product, weighted, maximum, weight)] == ["4", "3", "1", "2,3"]


def test_a_legend_tells_the_lines_that_write_a_slot(lowered: Lowered) -> None:
    listing = Listing(lowered.source, lowered.stages)
    for entry in listing.legend:
        written = [one for one in listing.lines if one.writes == entry.name]
        assert written
        names = {entry.name, *(one.name for one in lowered.program.parameters if one.key == entry.name)}
        assert all(any(name in one.text for name in names) for one in written)


def test_parts_hand_slots_on_in_workspaces(parted: Lowered) -> None:
    listing = Listing(parted.source, parted.stages)
    stores = {one.text.strip(): one for one in listing.lines if "_parts[z" in one.text}
    assert {one.writes for one in stores.values()} == {"c_0", "count", "sum_0_acc", "sum_1_acc"}
    [first] = [one for text, one in stores.items() if text.startswith("sum_1_acc_parts[")]
    assert first.serves == {"sum_1_acc"}


def test_a_listing_has_a_legend_and_numbers_in_text_and_hover_in_html(lowered: Lowered) -> None:
    text = lowered.listing()
    assert repr(text) == str(text)
    assert text.startswith("for b in grid:")
    assert re.search(r"^  1 m +max of sum_d_0/√\|d\|  \[\d+", text, re.MULTILINE)
    reader = read(lowered._repr_html_())
    hovers = [one for one in reader.titles if "serves" in one]
    assert any(one.startswith("line ") and "writes m; serves 1 m: max of" in one for one in hovers)
    last = len(lowered.source.text.splitlines())
    assert len([one for one in reader.titles if one.startswith("line ")]) == last


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", PATTERNS)
def test_every_line_of_a_kernel_is_found(name: str) -> None:
    pattern = PATTERNS[name]
    fused = pattern.build()
    try:
        found = fused.lower("c", dict.fromkeys(pattern.sizes, 8), pattern.dtypes(fused, "float32"))
    except (ra.InputError, ra.PlanError, ra.BackendError):
        pytest.skip("its sizes or dtypes are bound to each other")
    listing = Listing(found.source, found.stages)
    names = {one.name for one in listing.legend}
    assert {served for one in listing.lines for served in one.serves} <= names | {
        one.key for one in found.program.parameters}  # fmt: skip
    outputs = {one.key for one in found.program.parameters if one.role == "output"}
    assert outputs <= {one.writes for one in listing.lines}


# ---- pictures --------------------------------------------------------------------------------------------------------

PICTURES: dict[str, Callable[[], Fused]] = {
    "variance": lambda: ra.fuse(ra.var(x, n)),
    "carried": lambda: ra.fuse(ra.softmax(x, n)),
    "ordered": lambda: ra.fuse(ra.last(x, n)),
    "passes": lambda: ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n), passes=2),
    "elementwise": lambda: ra.fuse(2 * x, axes="b n"),
    "many": PATTERNS["moments"].build,
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_xml_within_its_view_box(name: str, tmp_path: Path) -> None:
    fused = PICTURES[name]()
    picture = fused.draw()
    assert picture == draw_passes(fused.decomposition, fused.passes)
    for text in (str(picture), picture.svg(), picture.save(tmp_path / "a.svg").read_text(encoding="utf-8")):
        root = ET.fromstring(text)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for one in (*root.iter(f"{SVG}text"), *root.iter(f"{SVG}rect")):
            assert 0 <= float(one.attrib["x"]) < width
            assert 0 <= float(one.attrib["y"]) < height
    assert "<style>" not in picture.svg()
    assert "prefers-color-scheme:dark" in str(picture)
    assert read(picture._repr_html_()).text
    assert len(repr(picture)) < 100


@pytest.mark.parametrize("name", PICTURES)
def test_the_page_of_a_function_folds_the_picture(name: str) -> None:
    fused = PICTURES[name]()
    for shown in (fused, ra.Exact(fused)):
        page = shown._repr_html_()
        assert page.count("<svg") == page.count("</svg>") == 1
        before, picture = page.split(fused.draw()._repr_html_()[:-6], 1)
        assert before.rpartition("<details")[2].startswith("><summary")  # closed
        assert "The tree, drawn</summary>" in before.rpartition("<details")[2]
        assert picture.startswith("</div></div></details>")


def test_a_picture_has_the_words_of_the_explanation(attention: Fused) -> None:
    assert "max_k QK/√|d|" in attention.explain("forms")
    assert "max_k QK/√|d|" in str(attention.draw())
    assert "sum_d_0" not in str(attention.draw())


def test_a_picture_shows_leaf_merge_and_finish_with_their_rules(variance: Fused) -> None:
    root = ET.fromstring(str(variance.draw()))
    words = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert [words.count(one) for one in ("leaf", "merge", "finish")] == [4, 3, 1]
    assert "sum_1_acc = Σ_n (x[b,n] − c_0)²" in words
    assert "count′     = count + countˆ" in words
    assert "out     = sum_1/count" in words
    assert "pass 1 of 2" in str(PICTURES["passes"]().draw())
    assert "in order, as any tree" in str(PICTURES["ordered"]().draw())
    assert "pass 2" in str(PICTURES["carried"]().draw())


def test_a_source_prints_as_it_is_and_has_colours_in_a_notebook() -> None:
    source = ra.library.softmax().source("c", {"b": 4, "n": 64}, {"x": "float32"})
    assert repr(source) == str(source)
    reader = read(source._repr_html_())  # type: ignore[attr-defined]
    assert reader.text.split() == str(source).split()
    assert any("color:" in style for style in reader.styles)
