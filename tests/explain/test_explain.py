"""What is explained: the goldens, the shape of each medium, and that every equation shown is true.

The last is tested with numbers: the forms are evaluated as they stand in the explanation, on segments, merges and
single elements, and `finish` of what they give must be the definition's result.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, TypeAlias

import numpy as np
import pytest
from sympy import Abs, Expr, Float, Integer, S, Symbol, exp, log, oo, sqrt

import redalg as ra
from redalg.explain import explain_html, explain_latex, explain_refusal, explain_text
from redalg.explain.latex import WRITER as LATEX
from redalg.explain.model import Equation
from redalg.explain.moves import Moves
from redalg.explain.notation import EACH, HAT, PRIME, mark_value
from redalg.explain.text import WIDTH, text_width
from redalg.explain.text import WRITER as TEXT
from redalg.explain.whole import derivation
from redalg.expression import Element, Label, Reduce, Value
from redalg.fuse import Fused
from tests.conftest import Golden
from tests.house.source import ROOT

q, k, n, d = ra.axes("q k n d")


def attention() -> Fused:
    Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = ra.where(k <= q, ra.sum(Q * K, d) / sqrt(d.extent), -oo)
    return ra.fuse(ra.sum(ra.softmax(s, k) * V, k), axes="b h q e")


def named_logsumexp() -> Fused:
    x = ra.tensor("x[b,n]")
    m = ra.let("m", ra.max(x, n))
    l = ra.let("l", ra.sum(exp(x - m), n))
    return ra.fuse({"top": (m, "b"), "lse": (m + log(l), "b")})


def variance(x: Expr) -> Expr:
    return ra.mean((x - ra.mean(x, n)) ** 2, n)


def weighted_variance(x: Expr, w: Expr) -> Expr:
    total = ra.let("W", ra.sum(w, n))
    return ra.sum(w * (x - ra.sum(w * x, n) / total) ** 2, n) / total


def entropy(x: Expr) -> Expr:
    p = ra.softmax(x, n)
    return ra.sum(-p * log(p), n)


def spread(x: Expr, w: Expr) -> Expr:
    p = ra.softmax(x, n)
    return ra.sum(p * (w - ra.sum(p * w, n)) ** 2, n)


def kurtosis(x: Expr) -> Expr:
    z = x - ra.mean(x, n)
    return ra.mean(z**4, n) / ra.mean(z**2, n) ** 2


def covariance(x: Expr, w: Expr) -> Expr:
    return ra.mean((x - ra.mean(x, n)) * (w - ra.mean(w, n)), n)


def rescaled(x: Expr, w: Expr) -> Expr:
    low, high = ra.min(x, n), ra.max(x, n)
    return ra.sum(w * (x - low) / (high - low), n)


def block_mean() -> Fused:
    s, V = ra.tensors("s[q,k] V[k,e]")
    p = ra.softmax(s, k)
    return ra.fuse(ra.sum(p * (V - ra.sum(p * V, k)) ** 2, k), axes="q e")


def matvec() -> Fused:
    X, W = ra.tensors("X[b,k] W[m,k]")
    eps = ra.scalars("eps", positive=True)
    normal = (X - ra.mean(X, k)) / sqrt(ra.var(X, k) + eps)
    return ra.fuse(ra.sum(normal * W, k), axes="b m")


SHOWN: dict[str, Callable[[], Fused]] = {
    "attention": attention,
    "variance": lambda: ra.fuse(variance(ra.tensor("x[b,n]"))),
    "weighted_variance": lambda: ra.fuse(weighted_variance(*ra.tensors("x[b,n] w[b,n]"))),
    "logsumexp": named_logsumexp,
}
MORE: dict[str, Callable[[], Fused]] = {
    "entropy": lambda: ra.fuse(entropy(ra.tensor("x[b,n]"))),
    "spread": lambda: ra.fuse(spread(*ra.tensors("x[b,n] w[b,n]"))),
    "kurtosis": lambda: ra.fuse(kurtosis(ra.tensor("x[b,n]"))),
    "block_mean": block_mean,
    "matvec": matvec,
    "products": lambda: ra.fuse(ra.prod(ra.tensor("x[n]") / ra.sum(ra.tensor("w[n]"), n), n)),
    "names": lambda: ra.fuse(ra.sum(ra.tensor("long_name[b,n]") * ra.tensor("x_1[n]"), n)),
}
ALL = {**SHOWN, **MORE}


# ---- what is printed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHOWN)
def test_text(name: str, golden: Golden) -> None:
    fused = SHOWN[name]()
    golden(f"{name}_text", explain_text(fused.decomposition, fused.passes))


@pytest.mark.parametrize("name", SHOWN)
def test_latex(name: str, golden: Golden) -> None:
    fused = SHOWN[name]()
    golden(f"{name}_latex", explain_latex(fused.decomposition, fused.passes))


@pytest.mark.parametrize("name", ALL)
def test_text_fits_a_terminal(name: str) -> None:
    fused = ALL[name]()
    lines = explain_text(fused.decomposition, fused.passes).splitlines()
    assert [line for line in lines if text_width(line) > WIDTH or line != line.rstrip() or "\t" in line] == []


@pytest.mark.parametrize("name", ALL)
def test_latex_is_well_formed(name: str) -> None:
    fused = ALL[name]()
    text = explain_latex(fused.decomposition, fused.passes)
    blocks = text.split("$$")
    assert len(blocks) % 2 == 1
    assert all(not outside.strip() for outside in blocks[::2])
    for block in blocks[1::2]:
        assert is_balanced(re.sub(r"\\[{}]", "", block))
        assert block.count(r"\left") == block.count(r"\right") + block.count(r"\leftarrow")
        opened, closed = re.findall(r"\\begin{(\w+)}", block), re.findall(r"\\end{(\w+)}", block)
        assert sorted(opened) == sorted(closed)
        assert "_{}" not in block
        assert not re.search(r"_\{[^{}]*\}_", block)


def is_balanced(text: str) -> bool:
    depth = 0
    for one in text:
        depth += (one == "{") - (one == "}")
        if depth < 0:
            return False
    return depth == 0


@pytest.mark.parametrize("name", ALL)
def test_html_is_well_formed(name: str) -> None:
    fused = ALL[name]()
    page = explain_html(fused.decomposition, fused.passes)
    reader = Tags()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert "<script" not in page
    assert "http" not in page
    assert page.count(r"\(") == page.count(r"\)")


class Tags(HTMLParser):
    """Keeps the open tags; a wrong closing tag fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def printed() -> str:
    """Everything that is explained here, in all three media."""
    made = [one() for one in ALL.values()]
    return "\n".join(
        f(one.decomposition, one.passes) for one in made for f in (explain_text, explain_latex, explain_html)
    )


@pytest.mark.slow
def test_no_hash_seed_changes_a_letter() -> None:
    code = "import sys; from tests.explain.test_explain import printed; sys.stdout.buffer.write(printed().encode())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in "012"
    }  # fmt: skip
    assert len(outputs) == 1
    assert outputs == {printed().encode()}


def test_a_refusal_says_which_why_and_what_next() -> None:
    x = ra.tensor("x[b,n]")
    with pytest.raises(ra.NotFusible) as error:
        ra.fuse(ra.mean(Abs(x - ra.mean(x, n)), n))
    text = explain_refusal(error.value)
    assert text.startswith("Not fusible")
    assert all(text_width(line) <= WIDTH for line in text.splitlines())
    flat = " ".join(text.split())
    for part in (error.value.subject, error.value.reason, error.value.hint):
        assert " ".join(part.split()) in flat


# ---- notation --------------------------------------------------------------------------------------------------------

x, y = Value(Label("x")), Value(Label("y"))
v = Element(Label("v"), n)


@pytest.mark.parametrize(
    ("expr", "text", "latex"),
    [
        (x - y, "x − y", "x - y"),
        (-x * (v - y), "−x·(v[n] − y)", r"-x \, \left(v_{n} - y\right)"),
        ((v - y) * exp(y - x), "exp(y − x)·(v[n] − y)", r"e^{y - x} \, \left(v_{n} - y\right)"),
        (x / (y * sqrt(v)), "x/(y·√v[n])", r"\frac{x}{y \, \sqrt{v_{n}}}"),
        (x**2 / 3, "x²/3", r"\frac{{x}^{2}}{3}"),
        (1 / x, "1/x", r"\frac{1}{x}"),
        (x ** S("2/3"), "x^(2/3)", r"{x}^{\frac{2}{3}}"),
        ((x + y) ** 2, "(x + y)²", r"{\left(x + y\right)}^{2}"),
        (exp(-x / y), "exp(−x/y)", r"\exp\left(-\frac{x}{y}\right)"),
        (d.extent * x, "x·|d|", r"x \, \left|d\right|"),
        (Reduce("sum", v, (n,)) / x, "(Σ_n v[n])/x", r"\frac{\sum_{n} v_{n}}{x}"),
        (Reduce("max", v - x, (n,)), "max_n (v[n] − x)", r"\max_{n} \left(v_{n} - x\right)"),
        (ra.where(n <= k, v, -oo), "where(n ≤ k, v[n], −∞)", None),
        (ra.logical_and(n <= k, n > d), "n ≤ k and n > d", r"n \le k \wedge n > d"),
        (mark_value(x, PRIME), "x′", "x'"),
        (mark_value(Value(Label("sum_0")), HAT), "sum_0ˆ", r"\widehat{\mathrm{sum}}_{0}"),
        (mark_value(x, HAT, EACH["j"]), "x̂ⱼ", r"\hat{x}_{j}"),
        (Value(Label("delta_c_0")), "δ_c_0", r"\delta_{c_{0}}"),
        (Value(Label("mu")), "mu", r"\mu"),
        (Symbol("g_12"), "g₁₂", "g_{12}"),
    ],
)
def test_notation(expr: Expr, text: str, latex: str | None) -> None:
    assert TEXT.write(expr) == text
    assert latex is None or LATEX.write(expr) == latex


# ---- what is said is true --------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Evaluates equations as they stand in an explanation, on numbers."""

    data: Mapping[str, np.ndarray]
    elements: range = range(0)
    pieces: tuple[Mapping[str, float], ...] = ()
    names: dict[str, float] = field(default_factory=dict)

    def read(self, equations: list[Equation]) -> "Reader":
        for one in equations:
            self.names[one.left.name] = self.value(one.right)
        return self

    def value(self, expr: Expr) -> float:
        folds = {one: Float(self.fold(one), 30) for one in expr.atoms(Reduce)}
        expr = expr.xreplace(folds)
        known = {one: Float(float(self.data[one.name][int(one.indices[0])]), 30) for one in expr.atoms(Element)}
        known |= {one: Float(self.names[one.name], 30) for one in expr.atoms(Value)}
        return float(expr.xreplace(known))

    def fold(self, node: Reduce) -> float:
        if node.bound == (n,):
            terms = [self.value(node.expr.xreplace({n: Integer(i)})) for i in self.elements]
        else:
            terms = [Reader(self.data, names={**self.names, **one}).value(node.expr) for one in self.pieces]
        folds: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
        return folds[node.kind](terms)


def of_segment(moves: Moves, data: Mapping[str, np.ndarray], elements: range) -> dict[str, float]:
    return Reader(data, elements).read(moves.first_level()).names


def unprimed(names: Mapping[str, float]) -> dict[str, float]:
    return {name.removesuffix(PRIME): value for name, value in names.items() if name.endswith(PRIME)}


def finished(fused: Fused, names: Mapping[str, float]) -> float:
    reader = Reader({}, names=dict(names))
    reader.read([Equation(one.value, one.expr) for one in fused.form.assignments])
    return reader.value(fused.form.outputs[0].expr)


Case: TypeAlias = tuple[Fused, Moves, dict[str, np.ndarray], float]

TRUE = {
    "variance": lambda x, w: variance(x),
    "weighted variance": weighted_variance,
    "entropy": lambda x, w: entropy(x),
    "spread": spread,
    "kurtosis": lambda x, w: kurtosis(x),
    "covariance": covariance,
    "rescaled": rescaled,
    "logsumexp": lambda x, w: ra.logsumexp(3 * x, n),
    "std": lambda x, w: ra.std(x, n),
    "norm": lambda x, w: ra.norm(x * w, n),
    "no maximum written": lambda x, w: ra.sum(exp(x) * w, n) / ra.sum(exp(x), n),
}


@pytest.fixture(params=TRUE)
def case(request: pytest.FixtureRequest) -> Case:
    x, w = ra.tensors("x[n] w[n]")
    fused = ra.fuse(TRUE[request.param](x, w), axes="")
    random = np.random.default_rng(0)
    data = {"x": random.standard_normal(9), "w": random.uniform(1, 2, 9)}
    data["x"][7] = 0  # of which the magnitude is no scale
    used: dict[str, Any] = {name: data[name] for name in fused.cascade.inputs()}
    return fused, Moves(fused.form), data, float(fused.reference(**used))


def test_the_first_level_is_the_state(case: Case) -> None:
    fused, moves, data, wanted = case
    assert finished(fused, of_segment(moves, data, range(9))) == pytest.approx(wanted, rel=1e-9)


def test_the_next_level_is_the_state_of_all_segments(case: Case) -> None:
    fused, moves, data, wanted = case
    suffix = HAT + EACH[moves.index]
    parts = [of_segment(moves, data, one) for one in (range(2), range(2, 3), range(3, 9))]
    pieces = tuple({name + suffix: value for name, value in one.items()} for one in parts)
    reader = Reader(data, pieces=pieces)
    for one in moves.level():
        if not one.left.name.endswith(suffix):
            reader.read([one])
            continue
        for piece in pieces:
            piece[one.left.name] = Reader(data, names={**reader.names, **piece}).value(one.right)
    assert finished(fused, reader.names) == pytest.approx(wanted, rel=1e-9)


def test_one_more_piece_or_element_keeps_the_state(case: Case) -> None:
    fused, moves, data, wanted = case
    state = of_segment(moves, data, range(3))
    piece = {name + HAT: value for name, value in of_segment(moves, data, range(3, 6)).items()}
    state = unprimed(Reader(data, names={**state, **piece}).read(moves.incremental()).names)
    for i in range(6, 9):
        state = unprimed(Reader(data, names=state).read(at(moves.incremental(moves.element), i)).names)
    assert finished(fused, state) == pytest.approx(wanted, rel=1e-9)


def test_the_update_in_exact_arithmetic_is_the_same(case: Case) -> None:
    _, moves, data, _ = case
    state = of_segment(moves, data, range(3))
    piece = {name + HAT: value for name, value in of_segment(moves, data, range(3, 6)).items()}
    for general, closed in (
        (moves.incremental(), moves.exact()),
        (at(moves.incremental(moves.element), 6), at(moves.exact(moves.element), 6)),
    ):
        if not closed:
            assert not moves.tile_centres or moves.scaled_pivots
            continue
        wanted = Reader(data, names={**state, **piece}).read(general).names
        reader = Reader(data, names={**state, **piece}).read(without(general, moves)).read(closed)
        assert [reader.names[one.left.name] for one in closed] == pytest.approx(
            [wanted[one.left.name] for one in closed]
        )


def without(equations: list[Equation], moves: Moves) -> list[Equation]:
    """The equations that no centre found from the data enters."""
    moved = {mark_value(one.value, PRIME).name for one in moves.moving_sums}
    moved |= {mark_value(one.value, PRIME).name for one in moves.form.slot_pivots}
    return [one for one in equations if one.left.name not in moved and "delta" not in one.left.name]


def at(equations: list[Equation], element: int) -> list[Equation]:
    return [Equation(one.left, one.right.xreplace({n: Integer(element)})) for one in equations]


def test_the_scale_of_zeros_alone_is_said() -> None:
    x = ra.tensor("x[n]")
    said = "Of no elements, or of zeros alone, c_0 is 1: there is nothing to scale by."
    assert said in ra.fuse(ra.std(x, n)).explain(section="forms", width=100)
    assert "Of zeros alone c_0 is 1." in " ".join(ra.fuse(ra.norm(x, n)).explain(brief=True, width=100).split())
    assert "zeros alone" not in ra.fuse(ra.logsumexp(x, n)).explain()


def test_every_slot_and_output_is_explained() -> None:
    fused = attention()
    shown = {
        str(getattr(one.left, "name", one.left)) for _, one in derivation(fused.decomposition, fused.passes).equations()
    }
    assert {one.name for one in fused.form.slots} <= shown
    assert {one.name for one in fused.form.outputs} <= shown
