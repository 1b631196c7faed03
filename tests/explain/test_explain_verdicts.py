"""What is explained beyond a plain sum: extrema of mixed terms, roundings, two passes, pivots of every kind, refusals.

κ is checked with numbers: it is what its definition gives on data, it is at least 1, and float32 loses no more than κ·ε
times the number of operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from sympy import Abs, Expr, erf, exp, floor, log, sqrt

import redalg as ra
from redalg.explain import explain_html, explain_latex, explain_refusal, explain_text
from redalg.explain.condition import the_condition
from redalg.explain.model import Equation, Equations
from redalg.explain.moves import Moves
from redalg.explain.text import WIDTH, text_width
from redalg.fuse import Fused
from tests.conftest import Golden
from tests.explain.test_explain import Reader, Tags, is_balanced, of_segment

n, k, e, j = ra.axes("n k e j")
x, y, w = ra.tensors("x[b,n] y[b,n] w[b,n]")
LARGEST = ra.max(Abs(x), n)
ROUNDED = ra.sum(ra.cast(x / LARGEST * 448, "float8_e4m3fn") * LARGEST / 448 * w, n)


def residuals(u: Expr, v: Expr) -> Expr:
    top, side = u - ra.mean(u, n), v - ra.mean(v, n)
    slope = ra.sum(top * side, n) / ra.sum(top**2, n)
    return ra.sum((side - slope * top) ** 2, n)


def selection() -> Fused:
    places = ra.axis("j", size=2)
    values, indices = ra.topk(x, n, places)
    return ra.fuse({"values": (values, "b j"), "indices": (indices, "b j"), "best": (ra.argmax(x, n), "b")})


def several_axes() -> Fused:
    z = ra.tensor("z[b,n,k]")
    return ra.fuse(ra.mean((z - ra.mean(z, n, k)) ** 2, n, k))


def weighted_moments() -> Fused:
    """Raw moments under weights of unknown sign: no sum of weights says where a centre lies."""
    total = ra.sum(w, n)
    return ra.fuse(ra.sum(w * x**2, n) / total - (ra.sum(w * x, n) / total) ** 2)


SHOWN: dict[str, Callable[[], Fused]] = {
    "convex_maximum": lambda: ra.fuse(ra.max(Abs(x - ra.mean(x, n)), n)),
    "rounded": lambda: ra.fuse(ROUNDED),
    "rounded_exactly": lambda: ra.fuse(ROUNDED, exact=True),
    "raw_moments": lambda: ra.fuse(ra.sum(x**2, n) / n.extent - (ra.sum(x, n) / n.extent) ** 2),
    "residuals": lambda: ra.fuse(residuals(x, y)),
    "euclidean_norm": lambda: ra.fuse(LARGEST * sqrt(ra.sum((x / LARGEST) ** 2, n))),
    "selection": selection,
}
MORE: dict[str, Callable[[], Fused]] = {
    "branches": lambda: ra.fuse(ra.max(ra.where(x > 0, (x - ra.mean(x, n)) ** 2, x * Abs(ra.mean(x, n))), n)),
    "falling": lambda: ra.fuse(ra.max(ra.mean(x, n) - x, n)),
    "selected by a rising function": lambda: ra.fuse(ra.argmax(exp(x - ra.mean(x, n)), n)),
    "several axes": several_axes,
    "normalised": lambda: ra.fuse(ra.layer_norm(x, n)),
    "power of two": lambda: ra.fuse(
        ra.sum(ra.cast(x / 2 ** floor(log(LARGEST, 2)), "float8_e4m3fn") * 2 ** floor(log(LARGEST, 2)) * w, n)
    ),
    "no weight": weighted_moments,
}
ALL = {**SHOWN, **MORE}


def written(fused: Fused, medium: Callable[..., str]) -> str:
    return medium(fused.decomposition, fused.passes)


# ---- what is printed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHOWN)
def test_text(name: str, golden: Golden) -> None:
    golden(f"{name}_text", written(SHOWN[name](), explain_text))


@pytest.mark.parametrize("name", ["convex_maximum", "rounded"])
def test_latex(name: str, golden: Golden) -> None:
    golden(f"{name}_latex", written(SHOWN[name](), explain_latex))


@pytest.mark.parametrize("name", ALL)
def test_every_medium_is_well_formed(name: str) -> None:
    fused = ALL[name]()
    for line in written(fused, explain_text).splitlines():
        assert text_width(line) <= WIDTH, line
    well_formed(written(fused, explain_latex), written(fused, explain_html))


def well_formed(latex: str, page: str) -> None:
    blocks = latex.split("$$")
    assert all(not outside.strip() for outside in blocks[::2])
    for block in blocks[1::2]:
        assert is_balanced(re.sub(r"\\[{}]", "", block))
        assert block.count(r"\left") == block.count(r"\right")
        for prose in re.findall(r"\\(?:text|textbf|textit|texttt){((?:\\[{}]|[^{}])*)}", block):
            assert not re.search(r"(?<!\\)[_%&#$^]", prose), prose
            assert "`" not in prose
    reader = Tags()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert page.count(r"\(") == page.count(r"\)")


# ---- what is said ----------------------------------------------------------------------------------------------------


def flat(fused: Fused) -> str:
    return " ".join(written(fused, explain_text).split())


def test_a_convex_maximum_says_where_it_lies_and_why() -> None:
    text = flat(SHOWN["convex_maximum"]())
    assert "max_n F = max(|max_n x[b,n] − sum_0/count|, |min_n x[b,n] − sum_0/count|)" in text
    assert "φ is convex in x[b,n] whatever d is" in text
    assert "lies beyond RedFuser" not in text
    assert "Where max_0_max < max_0_min, no element was met, and the extremum is −∞." in text


def test_a_falling_function_has_its_maximum_at_the_minimum() -> None:
    text = flat(MORE["falling"]())
    assert "falls with x[b,n] whatever d is, so that its max lies at the min of x[b,n]" in text


def test_roundings_are_told_with_their_bounds() -> None:
    text = flat(SHOWN["rounded"]())
    assert "rounds each element at the running scale 448/max_0" in text
    assert "`ra.fuse(…, exact=True)`" in text
    fused = SHOWN["rounded"]()
    [sums] = [one for one in flatten(fused, "What is rounded") if "sum_0" in str(one.left)]
    assert sums.relation == "≤"
    assert sums.right == fused.bound["sum_0"]


def flatten(fused: Fused, title: str) -> list[Equation]:
    from redalg.explain.whole import derivation

    content = derivation(fused.decomposition, fused.passes)
    return [one for section, one in content.equations() if section.startswith(title)]


def test_two_passes_are_both_shown() -> None:
    fused = SHOWN["rounded_exactly"]()
    text = flat(fused)
    assert text.startswith("out[b] in two passes over n")
    assert "Pass 1: the cascade" in text
    assert "Pass 2: finish" in text
    assert len(fused.passes) == 2
    shown = {str(getattr(one.left, "name", one.left)) for one in flatten(fused, "Pass")}
    assert {slot.name for form in fused.passes for slot in form.slots} <= shown


def test_a_pivot_that_no_term_was_written_about_says_so() -> None:
    told = "No term was written about a centre"
    assert told in flat(SHOWN["raw_moments"]())
    assert told not in flat(ra.fuse(ra.var(x, n)))
    text = flat(MORE["no weight"]())
    assert told in text
    assert "Block mean: the state holds no sum of weights of one sign" in text
    assert "more axes" not in text


def test_scales_and_slopes_say_how_they_move() -> None:
    assert "A scale moves by a ratio" in flat(SHOWN["euclidean_norm"]())
    text = flat(SHOWN["residuals"]())
    assert "a slope of y[b,n] on x[b,n]" in text
    assert " 0 −" not in text
    assert "+ 0" not in text


# ---- κ ---------------------------------------------------------------------------------------------------------------

p, q = ra.tensors("x[n] w[n]")


def kappa(fused: Fused, data: Mapping[str, np.ndarray]) -> dict[str, float]:
    """κ by name, evaluated as the equations stand."""
    reader = Reader(data, range(len(data["x"])), names=of_segment(Moves(fused.form), data, range(len(data["x"]))))
    reader.read([Equation(one.value, one.expr) for one in fused.form.assignments])
    for one in fused.form.outputs:
        reader.names[one.name] = reader.value(one.expr)
    rows = [row for line in the_condition(fused.decomposition, fused.form) if isinstance(line, Equations)
            for row in line.rows]  # fmt: skip
    return {one.left.args[0].name: reader.value(one.right) for [one] in rows}


def test_kappa_of_a_variance_is_1_however_far_the_data_lie() -> None:
    data = {"x": 1e4 + np.random.default_rng(0).standard_normal(9)}
    for spelling in (ra.var(p, n), ra.mean(p**2, n) - ra.mean(p, n) ** 2):
        for value in kappa(ra.fuse(spelling, axes=""), data).values():
            assert 1 <= value < 1 + 1e-6


def test_kappa_of_a_covariance_is_that_of_its_products() -> None:
    rng = np.random.default_rng(1)
    data = {"x": rng.standard_normal(9), "w": rng.standard_normal(9)}
    dx, dw = (one - one.mean() for one in data.values())
    [found] = kappa(ra.fuse(ra.mean(p * q, n) - ra.mean(p, n) * ra.mean(q, n), axes=""), data).values()
    assert found == pytest.approx(np.abs(dx * dw).sum() / abs((dx * dw).sum()), rel=1e-6)


def test_kappa_of_a_weighted_sum_is_that_of_its_terms() -> None:
    rng = np.random.default_rng(2)
    data = {"x": rng.standard_normal(9), "w": rng.standard_normal(9)}
    [found] = kappa(ra.fuse(ra.sum(ra.softmax(p, n) * q, n), axes=""), data).values()
    terms = np.exp(data["x"]) * data["w"]
    assert found == pytest.approx(np.abs(terms).sum() / abs(terms.sum()))


@pytest.mark.parametrize("far", [1e-2, 1e-4, 1e-6])
def test_float32_loses_no_more_than_kappa_says(far: float) -> None:
    """Σ over |terms|: n roundings of each of at most 2^-24, and as many of the products and of the centre."""
    rng = np.random.default_rng(3)
    half = rng.standard_normal(8)
    data = {"x": np.concatenate([half, -half + far]), "w": np.ones(16)}
    fused = ra.fuse(ra.sum(p * q, n), axes="")
    single = {name: one.astype(np.float32) for name, one in data.items()}
    wanted = float(np.sum(single["x"].astype(np.float64)))
    [found] = kappa(fused, {name: one.astype(np.float64) for name, one in single.items()}).values()
    got = float(fused(**single, backend="numpy"))
    assert abs(got - wanted) <= 16 * 2**-24 * found * abs(wanted)


def test_what_cannot_cancel_has_condition_1() -> None:
    text = flat(SHOWN["euclidean_norm"]())
    assert "κ" not in text
    assert "For out the condition number is 1" in text


# ---- refusals --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Expr, str]] = {
    "theorem": (ra.mean(Abs(x - ra.mean(x, n)), n), "Not fusible: no state of fixed size exists"),
    "samples": (ra.sum(erf(x - ra.sum(x, n)), n), "Not fusible, as far as samples show"),
    "undecided": (ra.sum(ra.scalars("base") ** (x - ra.sum(x, n)), n), "Undecided: no form found, and none excluded"),
}


@pytest.mark.parametrize("medium", ["text", "latex", "html"])
def test_refusal(medium: str, golden: Golden) -> None:
    refused = ra.analyze(REFUSED["theorem"][0])
    assert isinstance(refused, ra.Refused)
    golden(f"refusal_{medium}", explain_refusal(refused, medium))


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_well_formed_and_say_how_sure_they_are(name: str) -> None:
    expr, heading = REFUSED[name]
    value = ra.analyze(expr)
    assert not isinstance(value, ra.Exact | ra.Approximate)
    with pytest.raises((ra.NotFusible, ra.NotDecided)) as error:
        ra.fuse(expr)
    text = explain_refusal(value)
    assert text.startswith(heading)
    assert text == explain_refusal(error.value)
    assert all(text_width(line) <= WIDTH for line in text.splitlines())
    well_formed(value._repr_latex_(), value._repr_html_())
    for part in (value.reason, value.hint):
        assert " ".join(part.split()) in " ".join(text.split())


def test_a_verdict_with_a_form_shows_its_derivation() -> None:
    for expr in (ra.mean(x, n), ROUNDED):
        made = ra.analyze(expr)
        assert isinstance(made, ra.Exact | ra.Approximate)
        assert made._repr_latex_() == written(made.fused, explain_latex)
        assert made._repr_html_() == written(made.fused, explain_html)
    exact = ra.analyze(ra.mean(x, n))
    assert isinstance(exact, ra.Exact)
    assert exact.explain() == str(exact) == written(exact.fused, explain_text)


THRESHOLDS: dict[str, tuple[Callable[[], Expr], str]] = {
    "above": (lambda: ra.max(ra.where(x + w > ra.max(y, n), x + w, ra.max(y, n)), n), "rises with w[b,n] + x[b,n]"),
    "below": (lambda: ra.min(ra.where(x <= ra.max(y, n), x, ra.max(y, n)), n), "rises with x[b,n]"),
    "turned": (lambda: ra.max(ra.where(x <= ra.max(y, n), -x, -ra.max(y, n)), n), "falls with x[b,n]"),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_choice_at_a_threshold_is_explained(name: str) -> None:
    """Found by the fuzzer: the explanation knew curvature alone, and raised StopIteration."""
    expr, said = THRESHOLDS[name]
    verdict = ra.analyze(expr(), "b")
    assert isinstance(verdict, ra.Exact)
    assert said in " ".join(str(verdict).split())
