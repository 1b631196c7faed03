"""The explanation that is asked for: brief, by section, in a width and a format; of refusals too."""

import sys
from io import StringIO

import pytest
from sympy import Abs, Expr, S, erf, exp

import redalg as ra
from redalg.display import SCREEN, Printed
from redalg.errors import InputError
from redalg.explain import explain_text
from redalg.explain.ask import columns_of_terminal, known_word
from redalg.explain.model import Matrices
from redalg.explain.steps import the_transition
from redalg.explain.text import text_width
from redalg.fuse import Fused
from redalg.incremental.form import FusedForm
from redalg.library import PATTERNS
from tests.explain.test_explain import is_balanced

n = ra.axes("n")
x, y = ra.tensors("x[b,n] y[b,n]")
NAMES = ("cascade", "decomposition", "state", "forms", "finish", "cost", "condition", "steps", "transition")
WIDTHS = (60, 80, 120)
REFUSED = {
    "theorem": ra.mean(Abs(x - ra.mean(x, n)), n),
    "samples": ra.sum(erf(x - ra.sum(x, n)), n),
    "undecided": ra.sum(ra.scalars("base") ** (x - ra.sum(x, n)), n),
}


def variance() -> Fused:
    return ra.fuse(ra.var(x, n))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_fit_every_width_and_the_brief_form_a_screen(name: str) -> None:
    fused = PATTERNS[name].build()
    for width in WIDTHS:
        for text in (fused.explain(width=width), fused.explain(["steps", "transition"], width=width)):
            assert [line for line in text.splitlines() if text_width(line) > width] == []
        brief = fused.explain(brief=True, width=width).splitlines()
        assert [line for line in brief if text_width(line) > width] == []
        assert len(brief) < SCREEN or width < 80
    assert repr(fused) == fused.explain(brief=True, width=80)


def test_a_mask_is_said_wherever_terms_are() -> None:
    """An update without it would be another function's."""
    fused = ra.fuse(ra.sum(ra.where(n < ra.tensor("length[b]"), x, 0), n))
    assert "\nCounts     an element where n < length[b], and no other.\n" in repr(fused)
    assert "Of elements where n < length[b]; no other changes the state." in fused.explain(section="forms")
    assert "Counts" not in repr(variance())


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("width", WIDTHS)
def test_refusals_fit_every_width_and_end_with_the_call(name: str, width: int) -> None:
    found = ra.analyze(REFUSED[name])
    text = found.explain(width=width)
    assert [line for line in text.splitlines() if text_width(line) > width] == []
    labels = [line.split()[0] for line in text.partition("─\n")[2].splitlines() if not line.startswith(" ")]
    assert labels[:3] == ["reduction", "means", "because"]
    assert labels[-1] == "call"
    assert text.splitlines()[-1].endswith("`ra.fuse(…, passes=2)`")
    assert "\nevidence " not in found.explain(brief=True)
    assert "\nevidence " in found.explain("evidence")
    assert repr(found) == found.explain(brief=True)
    ra.fuse(REFUSED[name], passes=2)


def test_the_brief_form_says_verdict_state_update_cost_and_condition(golden) -> None:
    golden("variance_brief", variance().explain(brief=True, width=80))
    golden("refusal_brief", ra.analyze(REFUSED["theorem"]).explain(brief=True, width=80))


def test_the_whole_is_what_it_was() -> None:
    fused = variance()
    assert fused.explain(width=100) == explain_text(fused.decomposition, fused.passes)
    assert isinstance(fused.explain(), Printed)
    assert repr(fused.explain()) == str(fused.explain())


@pytest.mark.parametrize("name", NAMES)
def test_every_section_has_a_name(name: str) -> None:
    text = variance().explain(section=name, width=80)
    assert text.count(" ────") == 1
    assert len(text.splitlines()) > 4


def test_sections_come_in_the_order_that_is_asked() -> None:
    text = variance().explain(["cost", "state"], width=80)
    assert text.index("1  Cost") < text.index("2  The state")


def test_rounding_is_a_section_where_something_is_rounded() -> None:
    rounded = ra.analyze(ra.sum(ra.cast(x * 448 / ra.max(Abs(x), n), "float8_e4m3fn"), n))
    assert isinstance(rounded, ra.Approximate)
    assert "running scale" in rounded.explain(section="rounding")
    assert repr(rounded).splitlines()[2].startswith("Approximate.")
    assert str(rounded).startswith("One pass approximates")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"section": "stat"}, "no section 'stat'. Did you mean 'state'? There are cascade, decomposition, state"),
        ({"section": "update"}, "no section 'update'. Did you mean 'forms'? There are cascade"),
        (
            {"section": "approximate"},
            "no section 'approximate'. There are cascade",
        ),  # no rounding here, which it would mean
        ({"section": "rounding"}, "no section 'rounding'. "),
        (
            {"format": "markdwon"},
            "no format 'markdwon'. Did you mean 'markdown'? There are text, latex, html, mark",
        ),
        ({"width": 12}, "width=12 should be a number of columns, 40 or more"),
        ({"brief": True, "section": "state"}, "brief=True has no sections"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as error:
        variance().explain(**options)
    assert says in str(error.value)


@pytest.mark.parametrize("word", ["zzz", "foo"])
def test_a_word_far_from_all_has_no_neighbour(word: str) -> None:
    with pytest.raises(InputError, match=rf"no section '{word}'\. There are state, cost, forms\."):
        known_word("section", word, ["state", "cost", "forms"])


def test_text_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    assert columns_of_terminal(100) == 100
    monkeypatch.setenv("COLUMNS", "64")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert columns_of_terminal(100) == 64
    lines = variance().explain().splitlines()
    monkeypatch.undo()
    assert max(map(text_width, lines)) == 64


# ---- formats ---------------------------------------------------------------------------------------------------------


def test_every_format_shows_itself_in_a_notebook() -> None:
    fused = variance()
    shown = {one: fused.explain(format=one) for one in ("latex", "html", "markdown")}
    assert shown["latex"]._repr_latex_() == fused._repr_latex_()  # type: ignore[attr-defined]
    assert shown["html"]._repr_html_().startswith("<article>")  # type: ignore[attr-defined]
    assert shown["markdown"]._repr_markdown_() == fused._repr_markdown_()  # type: ignore[attr-defined]


def test_markdown(golden) -> None:
    golden("variance_markdown", variance().explain(["state", "transition", "cost"], format="markdown"))
    golden("refusal_markdown", ra.analyze(REFUSED["theorem"]).explain(format="markdown"))


@pytest.mark.parametrize("name", ["variance", "attention", "topk", "passes"])
def test_markdown_is_well_formed(name: str) -> None:
    made = {
        "variance": variance,
        "attention": PATTERNS["attention"].build,
        "topk": PATTERNS["routing"].build,
        "passes": lambda: ra.fuse(REFUSED["theorem"], passes=2),
    }[name]()
    text = made.explain(format="markdown")
    *_, last = (*[line for line in text.splitlines() if line == "$$"], "")
    assert last == ""
    assert text.count("$$") % 2 == 0
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == line.count(" | ") + 2, line
        if not line.startswith("$$"):
            assert is_balanced(line.replace("\\{", "").replace("\\}", "")), line


# ---- steps and moves -------------------------------------------------------------------------------------------------


def test_every_step_has_its_rewrite_and_its_condition() -> None:
    text = " ".join(variance().explain("steps", width=120).split())
    assert "1. (x[b,n] − sum_0/count)² → x[b,n]² +" in text
    assert "2. x[b,n] → x[b,n] − c_0. Exact: any finite c_0 is put back in finish" in text
    assert text.count("→") == text.count("Exact: ") == 3


def test_steps_of_exponentials_extrema_and_order() -> None:
    weights = " ".join(ra.fuse(ra.sum(ra.softmax(x, n) * y, n)).explain("steps").split())
    assert "exp(x[b,n]) → exp(x[b,n] − max_0)" in weights
    assert "1/sum_0 once, in finish. Exact: this factor reads no data" in weights
    ends = " ".join(ra.fuse(ra.max(Abs(x - ra.mean(x, n)), n)).explain("steps").split())
    assert "rises or falls with" in ends
    ordered = " ".join(ra.fuse(ra.last(x, n)).explain("steps").split())
    assert "the earlier before the later" in ordered


def matrix(form: FusedForm) -> Matrices:
    [found] = the_transition(form)
    assert isinstance(found, Matrices)
    return found


def test_the_moves_of_a_state_are_a_matrix_of_binomials() -> None:
    found = matrix(variance().form)
    values = [one.value for one in variance().form.accumulators]
    delta = variance().form.pivots[0].displacement
    moved: dict[tuple[int, int], Expr] = {(0, 0): S.One, (1, 0): -delta, (1, 1): S.One,
                                          (2, 0): delta**2, (2, 1): -2 * delta, (2, 2): S.One}  # fmt: skip
    assert found.second == tuple((one,) for one in values)
    assert {(i, j): one for i, row in enumerate(found.first) for j, one in enumerate(row) if one != 0} == moved


def test_the_moves_of_weights_are_diagonal() -> None:
    found = matrix(ra.fuse(ra.sum(exp(x) * y, n) / ra.sum(exp(x), n)).form)
    assert [[one == 0 for one in row] for row in found.first] == [[False, True], [True, False]]
    assert {str(row[place]) for place, row in enumerate(found.first)} == {"exp(max_0 - max_0′)"} or all(
        row[place].func is exp for place, row in enumerate(found.first)
    )


def test_affine_maps_are_a_product_of_matrices() -> None:
    found = matrix(PATTERNS["linear_recurrence"].build().form)
    assert [row[-1] == 1 for row in (found.left[1], found.first[1], found.second[1])] == [True] * 3
    fused = PATTERNS["linear_recurrence"].build()
    assert "⎣·" in fused.explain("transition", width=160)
    narrow = " ".join(fused.explain("transition", width=80).split())
    assert "affine_shift_0_scale′ = affine_shift_0_scale·affine_shift_0_scaleˆ" in narrow
    assert "affine_shift_0′ = affine_shift_0·affine_shift_0_scaleˆ + affine_shift_0ˆ" in narrow
    assert "0 = 0" not in narrow


def test_a_state_that_no_pivot_moves_says_so() -> None:
    assert "joined slot by slot" in ra.fuse(ra.max(x, n)).explain("transition")
