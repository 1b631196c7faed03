"""Every rewrite that a module's docstring states has a property test here; a new line without one fails.

A rewrite of `separate` is checked at random points, of the term and of its polynomial; one of `parse`, `domain`,
`unroll` and `join` by what the rewritten cascade computes, beside what was written.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import (
    Abs,
    And,
    Eq,
    Expr,
    Ge,
    Gt,
    Le,
    Lt,
    Max,
    Min,
    Nand,
    Ne,
    Nor,
    Or,
    Pow,
    Rational,
    S,
    cos,
    cosh,
    exp,
    log,
    oo,
    sign,
    sin,
    sinh,
    sqrt,
)  # fmt: skip
from sympy.codegen.cfunctions import expm1, log1p

import redalg as ra
from redalg.decompose.domain import live_term
from redalg.decompose.parse.names import without_names
from redalg.decompose.separate import laurent
from redalg.decompose.separate.separate import Separator
from redalg.expression import Label, Value, Where
from redalg.incremental.arrange.unroll import unroll_axis
from tests.cases import (
    decided,
    extrema,
    rewrites_foreign,
    rewrites_of_cases,
    rewrites_of_choices,
    rewrites_of_exponents,
    rewrites_of_extrema,
    rewrites_of_forms,
)
from tests.surface.rewrites_elsewhere import ELSEWHERE

ROOT = Path(ra.__file__).parent
MODULES = ("decompose/parse/axes", "decompose/parse/same_axes", "decompose/parse/parse", "decompose/separate/separate",
           "decompose/separate/piecewise", "incremental/derive/centre", "decompose/domain", "decompose/parse/foreign",
           "decompose/extrema/extremal", "decompose/separate/curvature", "decompose/extrema/ties",
           "decompose/separate/finite", "decompose/separate/guarded", "decompose/separate/identities",
           "decompose/parse/merged", "decompose/extrema/truth", "decompose/parse/distribute", "lower_tile/passes/join",
           "decompose/parse/totals", "decompose/separate/bounds", "decompose/verdict/passes", "incremental/fix_pivots",
           "incremental/derive/carried", "incremental/arrange/unroll", "incremental/derive/cancel",
           "incremental/derive/auxiliary", "incremental/derive/placement", "incremental/derive/scales",
           "incremental/derive/exponents", "incremental/arrange/orient", "incremental/derive/doubtful",
           "lower_tile/place/operands", "incremental/arrays/structured", "lower_tile/place/carried",
           "lower_tile/passes/loops", "incremental/derive/weights", "lower_tile/passes/subexpressions",
           "lower_tile/place/producers", "lower_tile/ir/powers", "incremental/arrange/coalesce",
           "incremental/arrange/stages", "incremental/arrange/arrange_products", "incremental/arrange/vectors",
           "incremental/arrange/bounded_weights", "incremental/arrange/one_row", "incremental/arrange/share_stages",
           "decompose/separate/whole", "decompose/separate/products", "decompose/separate/choices")  # fmt: skip

b, n, j = ra.axes("b n j")
x, y, r = ra.tensors("x[b,n] y[b,n] r[b,n,j]")
m, v = Value(Label("m"), b), Value(Label("v"), b)
a = ra.scalars("a", positive=True)


def stated() -> list[str]:
    """The rewrites in the modules' docstrings: what stands before the first arrow, or right after one that leads."""
    found = []
    for module in MODULES:
        text = ast.get_docstring(ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))) or ""
        found += [named(line) for line in text.splitlines() if "→" in line and "separate(F)" not in line]
    return found


def named(line: str) -> str:
    """`a` of `a → b`; `→ b` of a line that goes on from the one before it."""
    before, after = line.split("→")[:2]
    return before.strip() or "→ " + after.split("  ")[0].strip()


def at(expr: Expr, point: dict[Expr, float]) -> float:
    """A number: elements and values replaced by numbers, masks decided."""
    made = expr.xreplace({symbol: S(value) for symbol, value in point.items()})
    return float(made.doit() if hasattr(made, "doit") else made)


def separates(term: Expr, facts: dict[Value, tuple[str, Expr]] | None = None, *, signed: bool = False) -> None:
    """The polynomial of a term has the term's value wherever the facts hold; `signed` where x, y, v may be negative."""
    separator = Separator(n, (m, v), facts or {})
    made = separator.atoms.polynomial_expr(separator.separate(term))
    rng = np.random.default_rng(0)
    for _ in range(20):
        draws = rng.uniform(0.2, 2.0, 4)
        if signed:
            draws *= rng.choice((-1, 1), 4)
        above = abs(draws[0]) + abs(draws[1]) + abs(draws[2])
        point = {x: draws[0], y: draws[1], m: above, v: draws[3], a: 1.7}
        before, after = at(term, point), at(made, point)
        assert math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-9), f"{term} became {made}"
    assert len(laurent.columns(separator.separate(term))) >= 1


def all_separate(*terms: Expr) -> None:
    """`separates`, of data of either sign, for each of the terms."""
    for term in terms:
        separates(term, signed=True)


def same_value(first: Expr, second: Expr, **tensors: np.ndarray) -> None:
    """Two spellings of one cascade compute the same, by the definition and fused."""
    one, two = ra.fuse(first), ra.fuse(second)
    wanted = one.reference(**tensors)
    for got in (two.reference(**tensors), two(**tensors, backend="numpy"), one(**tensors, backend="numpy")):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def alpha_renaming() -> None:
    i = ra.axes("i")
    inner = ra.max(ra.tensor("x[b,i]"), i)
    one, two = ra.fuse(ra.sum(exp(x - inner), n)), ra.fuse(ra.sum(exp(x - ra.max(x, n)), n))
    assert one.cascade == two.cascade


def joining() -> None:
    means = ra.mean(ra.mean(r, j), n)
    one, two = ra.fuse(ra.mean(r**2, n, j) - means**2), ra.fuse(ra.mean(r**2, n, j) - ra.mean(r, n, j) ** 2)
    assert str(one.form) == str(two.form)
    same_value(ra.mean(r**2, n, j) - means**2, ra.var(r, n, j), r=data(2, 7, 3))


def first_name() -> None:
    """Moran's I, whose means may go over either axis of the pairs."""
    k = ra.axes("k")
    w, here, there = ra.tensors("w[n,k] z[n] z[k]")
    one, other = ra.mean(here, n), ra.mean(there, k)
    below = ra.sum((here - one) ** 2, n)
    first, second = (ra.sum(w * (here - one) * (there - mean), n, k) / below for mean in (one, other))
    same_value(first, second, w=data(7, 7), z=data(7))


def length() -> None:
    """A variance whose mean goes over an axis of another name, beside an output over that axis alone."""
    k = ra.axes("k")
    own = ra.tensor("x[b,k]")
    one, two = (ra.sum((x - mean) ** 2, n) for mean in (ra.mean(own, k), ra.mean(x, n)))
    assert ra.fuse(one).cascade == ra.fuse(two).cascade
    same_value(one, two, x=data(2, 7))
    named = ra.fuse(ra.sum((x - ra.let("mu", ra.mean(own, k))) ** 2, n))
    assert "mu" in named.explain("cascade")


def splitting() -> None:
    """The ratio of variances between and within groups, whose sums over all elements stand beside sums over each."""
    means = ra.mean(r, j)
    within, between = (r - means) ** 2, (means - ra.mean(r, n, j)) ** 2
    ratio = ra.sum(between, n) / ra.sum(within, n, j)
    assert ra.fuse(ratio).cascade.axis == n
    written = ra.sum((means - ra.mean(means, n)) ** 2, n) / ra.sum(ra.sum(within, j), n)
    same_value(ratio, written, r=data(2, 7, 3))
    same_value(ra.max(means, n) - ra.max(r, n, j) + ra.sum(means**2, n),
               ra.max(means, n) - ra.max(ra.max(r, j), n) + ra.sum(means**2, n), r=data(2, 7, 3))  # fmt: skip


def total() -> None:
    made = ra.fuse(ra.sum(r, n, j) / (n.extent**2 * j.extent**2))
    assert made.cascade.extents() == ()
    np.testing.assert_allclose(made(r=data(2, 7, 3)), data(2, 7, 3).sum((1, 2)) / 21**2)
    sized = r.xreplace({j: ra.axis("j", size=3)})
    alone = ra.fuse(ra.sum(sized, n, ra.axis("j", size=3)) / n.extent)
    assert alone.cascade.extents() == ()
    np.testing.assert_allclose(alone(r=data(2, 7, 3)), data(2, 7, 3).sum((1, 2)) / 7)


def in_a_second_pass(expr: Expr, plain: Expr, values: np.ndarray) -> None:
    """What the second pass evaluates, as the definition gives it where that neither overflows nor cancels."""
    made = ra.fuse(expr)
    assert without_names(made.form.outputs[0].expr) == plain
    np.testing.assert_allclose(made(x=values), made.reference(x=values), rtol=1e-12)


def logarithm_of_an_exponential() -> None:
    m, l = Value(Label("max_0"), b), Value(Label("sum_0"), b)
    in_a_second_pass(log(ra.softmax(x, n)), x - m - log(l), data(2, 7))


def exponentials_in_one() -> None:
    m, l = Value(Label("aux_0"), b), Value(Label("sum_0_scaled"), b)
    in_a_second_pass(exp(x) / ra.sum(exp(x), n), exp(x - m) / l, data(2, 7))
    assert np.isfinite(ra.fuse(exp(x) / ra.sum(exp(x), n))(x=1e4 * data(2, 7))).all()


def about_a_pivot() -> None:
    c = Value(Label("c_0"), b)
    made = ra.fuse(x - ra.mean(x, n)).form
    [shift] = made.assignments
    assert (shift.expr * -made.accumulators[0].value / made.accumulators[1].value) == 1
    assert made.outputs[0].expr.xreplace({c: S.Zero}).has(shift.value)
    in_a_second_pass(x - ra.mean(x, n), x - c + shift.value, data(2, 7))


def beside_its_maximum() -> None:
    made = ra.fuse(ra.log_softmax(x, n)).form.outputs[0].expr
    assert [one.expr for one in made.atoms(ra.expression.Let)] == [x - Value(Label("max_0"), b)]
    far = data(2, 7) - 1e15  # in eighths: x − m is exact, and log l is lost beside x
    logs = ra.fuse(ra.log_softmax(x, n))(x=far)
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, rtol=1e-14)


def unrolling() -> None:
    three = ra.axis("j", size=3)
    centre = ra.mean(r, n)
    written = sum((ra.mean((r - centre) ** 2, n).subs(j, place) for place in range(3)), S.Zero)
    same_value(ra.mean(ra.sum((r - centre) ** 2, three), n), written, r=data(2, 7, 3))


def exchange() -> None:
    centre = ra.mean(r, n)
    same_value(
        ra.sum(y * ra.sum((r - centre) ** 2, j) + x, n),
        ra.sum(ra.sum(y * (r - centre) ** 2, n), j) + ra.sum(x, n),
        r=data(2, 7, 3), x=data(2, 7, seed=1), y=data(2, 7, seed=2),
    )  # fmt: skip


def exponents() -> None:
    """Π exp(u) with exp(u) out of range for a part of u; and beside other factors."""
    far = data(2, 7) + 1e4
    made = ra.fuse(ra.prod(exp(x - ra.max(x, n)), n))
    wanted = np.exp((far - far.max(1, keepdims=True)).sum(1))
    np.testing.assert_allclose(made(x=far), wanted, rtol=1e-9)  # 1e4 holds 12 digits of a difference
    same_value(
        ra.prod(y * exp(x - ra.max(x, n)) * exp(-ra.mean(x, n)), n),
        exp(ra.sum(x - ra.max(x, n) - ra.mean(x, n), n)) * ra.prod(y, n),
        x=data(2, 7), y=data(2, 7, seed=1),
    )  # fmt: skip


def count() -> None:
    made = ra.fuse(ra.mean(x, n))
    assert made.cascade.extents() == ()
    parts = [made.leaf({"x": part}) for part in np.split(data(2, 12), [5], axis=1)]
    np.testing.assert_allclose(made.finish(made.merge(*parts)), data(2, 12).mean(1))


def centring() -> None:
    mean = ra.mean(x, n)
    same_value(ra.mean((x - mean) ** 2, n), ra.mean(x**2 - 2 * x * mean + mean**2, n), x=data(2, 9))


def slopes() -> None:
    """The squared residuals of a regression, as its definition and written out."""
    top, side = x - ra.mean(x, n), y - ra.mean(y, n)
    slope = ra.sum(top * side, n) / ra.sum(top**2, n)
    squares = ra.sum((side - slope * top) ** 2, n)
    same_value(squares, ra.sum(side**2 - 2 * slope * side * top + slope**2 * top**2, n), x=data(2, 9),
               y=data(2, 9, seed=1))  # fmt: skip


def domain() -> None:
    term = exp(ra.where(n <= b, x, -oo) - m)
    assert live_term(term, n <= b) == exp(x - m)
    same_value(
        ra.sum(ra.softmax(ra.where(n <= b, x, -oo), n) * y, n),
        ra.sum(ra.softmax(x + ra.where(n <= b, 0, -oo), n) * y, n),
        x=data(3, 5), y=data(3, 5, seed=1),
    )  # fmt: skip


def nothing() -> None:
    made = ra.fuse(ra.sum(x, n) + ra.sum(y - y, n) + ra.prod(Pow(y, 0), n))
    assert [one.term for one in made.cascade.reductions] == [x]
    np.testing.assert_allclose(made(x=data(2, 9)), data(2, 9).sum(1) + 1)


def writing_out() -> None:
    form = ra.fuse(ra.mean(ra.sum((r - ra.mean(r, n)) ** 2, j), n)).form
    made = unroll_axis(form, j, 3)
    made.verify()
    assert len(made.accumulators) > len(form.accumulators)
    assert not any(j in one.axes for one in made.slots)


PROPERTIES: dict[str, Callable[[], None]] = {
    **rewrites_foreign.PROPERTIES,
    **rewrites_of_exponents.PROPERTIES,
    **rewrites_of_cases.PROPERTIES,
    **rewrites_of_choices.PROPERTIES,
    **rewrites_of_extrema.PROPERTIES,
    "α-renaming       Σ_i f(X[i])": alpha_renaming,
    "joining          Σ_i A·Σ_j f": joining,
    "first name       Σ_j f(X[j])": first_name,
    "length           |i|": length,
    "splitting        Σ_{i,j} f": splitting,
    "total            |i|·|j|": total,
    "exponents        Π_n A·exp(u)": exponents,
    "log(exp(u)·v)": logarithm_of_an_exponential,
    "exp(u(x))·exp(λ)·v": exponentials_in_one,
    "q·u(x) + v(d)": about_a_pivot,
    "q·u − q·m + …": beside_its_maximum,
    "unrolling        Σ_j f(j)": unrolling,
    "exchange         Σ_n A·Σ_j g + C": exchange,
    "count            |n|": count,
    "nothing          Σ_n 0": nothing,
    "a + b": lambda: separates(x + m * y),
    "a · b": lambda: separates((x + m) * (y - v)),
    "a^n": lambda: separates((x - m) ** 3),
    "(g(x)·h(d))^q": lambda: separates(sqrt(x * m) + (y * exp(v)) ** Rational(-2, 3), {m: ("max", Abs(x))}),
    "(a^2n)^q": lambda: separates(Pow((x * v) ** 2, Rational(3, 2), evaluate=False), signed=True),
    "|a|^2n": lambda: all_separate(Pow(Abs(x * v - y), 2, evaluate=False) * x),
    "where(c, a, 0)^n": lambda: separates(Where(x > 0, x - v, 0) ** 3 * y + Where(y < 1, x * m, 0) ** 2, signed=True),
    "expm1(u + v)": lambda: separates(expm1(x - v) + log1p(exp(x) * v**2 - 1), signed=True),
    "sin(u + v)": lambda: all_separate(*(f(2 * x - v + a) * y for f in (sin, cos))),
    "cosh z": lambda: all_separate(*(f(2 * x - v + a) * y for f in (sinh, cosh))),
    "exp(u(x) + v(d))": lambda: separates(exp(x - m + log(v)) * y),
    "b^(u + v)": lambda: separates(2 ** (x - m) + a ** (x + v)),
    "log(g(x)·h(d))": lambda: separates(log(exp(x - m) / v)),
    "|g(x)·h(d)|": lambda: separates(Abs(x * (v - 3)), signed=True),
    "sign(g(x)·h(d))": lambda: separates(sign(x * v) * y, signed=True),
    "where(c, a, b)": lambda: separates(Where(x > 1, x * m, v) + Where(v > 1, x, y)),
    "[a ∧ b]": lambda: all_separate(*(Where(f(x > 0, v > 0), y, x * v) for f in (And, Or, Nand, Nor))),
    "[u ≤ d]": lambda: decided.as_defined(*decided.BY_FACTS),
    "[g(x)·h(d) > 0]": lambda: all_separate(*(Where(f(x * v, 0), y, x * v) for f in (Gt, Ge, Lt, Le, Eq, Ne))),
    "|u − d|, max": lambda: separates(Abs(x - m) * y + Max(x, m) * Min(m, x), {m: ("max", x)}),
    "max(u + v, w + v)": lambda: separates(Max(x + v, y + v, v) - Min(x - v, y - v), signed=True),
    "max(u·h, w·h)": lambda: separates(Max(x * v, 0) + Min(x * v, y * v, 0) + Max(x / v, 2 * y / v), signed=True),
    "P(X, …)": centring,
    "P(Y, X', …)": slopes,
    "where(c, a, b) ": domain,
    "a[b, j]": writing_out,
    "max_l φ_d(u_l)": lambda: extrema.extrema_are(extrema.RISING),
    "→ φ_d(min u)": lambda: extrema.extrema_are(extrema.FALLING),
    "→ max(φ_d(max u), φ_d(min u))": lambda: extrema.extrema_are(extrema.CONVEX),
    "max_l max(a, b)": lambda: extrema.extrema_are(extrema.LATTICE),
    "max_l (k·max(a, b) + v)": lambda: extrema.extrema_are(extrema.INWARD),
    "max_l where(c, a, b)": lambda: extrema.extrema_are(extrema.BRANCHES),
    "max_l (g(x)·h(d) + v(d))": lambda: extrema.extrema_are(extrema.SCALED),
    "argmax_l, topk_l φ_d(u_l)": lambda: extrema.selections_are(extrema.SELECTED),
    "Σ where(u = max u, w, z)": lambda: rewrites_of_forms.at_the_extremum(ra.max),
    "Σ where(u = min u, w, z)": lambda: rewrites_of_forms.at_the_extremum(ra.min),
    "Σ where(n = argmax u, w, z)": lambda: decided.as_defined(*decided.AT_PLACE),
    "max where(u = max u, w, z)": lambda: decided.as_defined(*decided.OF_EXTREMA),
    "Σ where(…, h·w, z)": lambda: decided.as_defined(*decided.WEIGHED),
    "Σ where(n = argmax u, φ(w, d), 0)": lambda: decided.as_defined(*decided.PLACED),
    "where(p ∧ c, w, z)": lambda: decided.as_defined(*decided.TOGETHER),
    "where(p ∨ c, w, z)": lambda: decided.as_defined(*decided.APART),
    "any_l (u = max u)": lambda: decided.as_defined(*decided.ATTAINED),
    "Σ (A + where(…))": lambda: decided.as_defined(*decided.BESIDE),
    "Σ sign(u − max u)·w": lambda: decided.as_defined(*decided.DEVIATIONS),
    "first φ(u, …, d)": lambda: decided.as_defined(*decided.FIRSTS),
    "affine(a, b·h).shift": lambda: decided.as_defined(*decided.SCANS),
    "sum_at_max(u + v, w·h)": lambda: decided.as_defined(*decided.SHIFTED),
    "any_l (u > v)": lambda: decided.as_defined(*decided.SOME),
    "all_l (u ≤ v)": lambda: decided.as_defined(*decided.ALL),
    "any_l (p ∨ q)": lambda: decided.as_defined(*decided.JOINED),
    "any_l (c ∧ p)": lambda: decided.as_defined(*decided.GUARDED),
    "all_l (u = v)": lambda: decided.as_defined(*decided.EQUAL),
    "f(x, a)": lambda: decided.as_defined(*decided.BY_TRUTH),
    "f(x, where(c, p, q))": lambda: decided.as_defined(*decided.BY_CONDITION),
    "(g·h)^q, log g·h": lambda: decided.as_defined(*decided.OF_ONE_SIGN),
    "k·max(a, b) + k·min(a, b)": lambda: decided.as_defined(*decided.KINKS),
    "|a|^q·sign(a)": lambda: decided.as_defined(*decided.SIGNED),
    **{name: partial(decided.as_defined, *exprs) for name, exprs in decided.MASKED.items()},
    "u·0": lambda: decided.as_defined(*decided.BY_ZERO),
    "Q/n − (S/n)²": rewrites_of_forms.raw_moments,
    "max u − S/n": rewrites_of_forms.extremum_less_mean,
    "d_i = ⊕ F_i(x; d_1 … d_{i-1})": rewrites_of_forms.two_passes,
    "Σ cast(g(x)·h(d))·f(x, e)": rewrites_of_forms.rounded_once,
    "F(x; Σ_n 1)": rewrites_of_forms.number_of_elements_known,
    "exp(q·(u − m))": rewrites_of_forms.weights_in_outputs,
    "Σ f(n,k)·g(m,k)": rewrites_of_forms.turned_products,
    "Σ f(x; c)·g,  c moving": rewrites_of_forms.fixed_pivots,
    "r(i)·f(i, j)": rewrites_of_forms.row_factors_leave_the_loop,
    "fold     (e₀, e₁, …)": rewrites_of_forms.folds,
    "Σ (u/max|u|)^p": rewrites_of_forms.scale_that_a_term_takes,
    "f(Σ u^p)": rewrites_of_forms.scale_that_a_root_takes,
    "(m·2^e)·h^n": rewrites_of_forms.power_of_a_factor,
    "exp(k·v − k·d)": rewrites_of_forms.rate_of_a_difference,
}


def test_every_stated_rewrite_has_a_property() -> None:
    known = [name.strip() for name in (*PROPERTIES, *(ELSEWHERE.keys() - PROPERTIES.keys()))]
    found = stated()
    missing = [line for line in found if found.count(line) > known.count(line)]
    assert not missing, f"rewrites without a property test: {missing}"


def test_those_tested_elsewhere_are() -> None:
    for place in ELSEWHERE.values():
        file, name = place.split("::")
        assert f"def {name}(" in (ROOT.parent / file).read_text(encoding="utf-8")


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [name for name in PROPERTIES if name not in ELSEWHERE])
def test_rewrite(name: str) -> None:
    PROPERTIES[name]()


@given(st.lists(st.sampled_from(["x + m", "x - v", "exp(x - m)", "y * m", "2"]), min_size=1, max_size=3))
def test_products_of_what_separates_separate(parts: list[str]) -> None:
    names: dict[str, Any] = {"x": x, "y": y, "m": m, "v": v, "exp": exp}
    term = S.One
    for part in parts:
        term = term * eval(part, {}, names)
    separates(term)


def test_facts_hold_for_every_prefix() -> None:
    """|x − max x| = max x − x needs x ≤ max x, which is true of any part of the data with its own maximum."""
    made = ra.fuse(ra.sum(Abs(x - ra.max(x, n)), n))
    values = data(2, 11)
    wanted = (values.max(1, keepdims=True) - values).sum(1)
    for first, second in product((0, 3, 11), (0, 5, 11)):
        cuts = sorted({0, first, second, 11})
        state, *parts = (made.leaf({"x": values[:, i:k]}) for i, k in pairwise(cuts) if k > i)
        for part in parts:
            state = made.merge(part, state)
        np.testing.assert_allclose(made.finish(state), wanted)
