"""The rank test: what it measures, that its samples lie inside the facts, and that it agrees with every verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Expr, Float, Function, Max, Min, Mod, Piecewise, S, cos, erf, exp, floor, log, sin, sqrt, tanh
from sympy.codegen.cfunctions import expm1, log1p
from sympy.core.relational import Relational

import redalg as ra
from redalg import verdicts
from redalg.decompose.parse.foreign import adopt
from redalg.decompose.parse.parse import parse
from redalg.decompose.samples.arithmetic import Arithmetic, Digits, Floats
from redalg.decompose.samples.digits import context
from redalg.decompose.samples.draws import integers
from redalg.decompose.samples.rank import (
    DIGITS,
    FLOATS,
    RankTest,
    Setting,
    _audit_in_digits,
    equal_on_samples,
    rank,
    rank_test,
)
from redalg.decompose.samples.reduced import _first, _order
from redalg.decompose.samples.samples import BLOCK, Samples
from redalg.decompose.samples.singular import ranks_of
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.signs import sign_of
from redalg.expression import Cast, Label, Value, Where
from redalg.expression.operators import OPERATORS
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.runtime.bind.torch_ops import TorchOps
from tests.cases.patterns import PATTERNS

b, n = ra.axes("b n")
x, y, s, t, M = ra.tensors("x[b,n] y[b,n] s[b,n] t[b,n] M[b,n]")
v, m, c, low = (Value(Label(name), b) for name in ("v", "m", "c", "low"))
gamma = ra.scalars("gamma", positive=True)
FACTS = {v: ("sum", x), m: ("max", Abs(x)), c: ("sum", S.One), low: ("min", x)}


def figures(term: Expr) -> tuple[int, ...]:
    return rank_test(term, n, FACTS, FACTS).ranks


# ---- what it measures ------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(-9, 9), min_size=5, max_size=5), min_size=1, max_size=5))
def test_rank_of_a_matrix(rows: list[list[int]]) -> None:
    made = rank([[context().mpf(one) for one in row] for row in rows])
    assert made == np.linalg.matrix_rank(np.array(rows, float))


@pytest.mark.parametrize("degree", range(1, 7))
def test_a_moment_about_d_has_rank_one_more_than_its_degree(degree: int) -> None:
    assert figures((x - v) ** degree * y) == (degree + 1, degree + 1)


RANKS = {
    exp(x - m) * y: (1, 1),
    x / m + y * v: (2, 2),
    sin(x + v): (2, 2),
    x * log(Abs(x) / m): (2, 2),
    Where(M > 0, x * v, y): (2, 2),
    Where(ra.ne(M, 0), x - v, -1): (2, 2),
    Max(x, m): (1, 1),
    (x**2 - v**2) / (x - v): (2, 2),
    x * v - x * v: (0, 0),
}
INFINITE = (
    exp(x * v), 1 / (x - v), tanh(x - v), exp(-((x - v) ** 2)), Abs(x - v), Max(x, v), Where(x > v, 1, 0),
    Min(x, v / c), floor(9 * x / m), erf(x * v), Abs(x**2 - v**2), log(x**2 + v**2),
)  # fmt: skip


@pytest.mark.parametrize(("term", "wanted"), RANKS.items(), ids=str)
def test_ranks_of_known_kernels(term: Expr, wanted: tuple[int, int]) -> None:
    assert figures(term) == wanted


@pytest.mark.parametrize("term", INFINITE, ids=str)
def test_infinite_ranks_grow(term: Expr) -> None:
    small, large = figures(term)
    assert small <= 8 < large
    assert rank_test(term, n, FACTS, FACTS).grows


@pytest.mark.parametrize("term", [*RANKS, *INFINITE], ids=str)
def test_digits_agree_with_floats(term: Expr) -> None:
    """16 × 16 samples at 120 digits see no more of a finite rank, and no less of what is analytic."""
    found = _audit_in_digits(Setting(n, tuple(FACTS), FACTS), term, positive=False).test.ranks[1]
    assert found == RANKS[term][1] if term in RANKS else found > 2


def test_a_rank_that_stands_still_is_no_proof() -> None:
    """The moments of an exponential series look finite before they grow: more is drawn where the rank is at most 8."""
    assert RankTest((5, 12)).grows
    assert RankTest((5, 5)).settles
    assert not RankTest((), "why").grows


def test_what_cannot_be_evaluated_is_said() -> None:
    unknown = Function("f")(x * v)
    assert str(rank_test(unknown, n, FACTS, FACTS)) == (
        "unavailable: `f(x[b, n]*v)` applies `f`, which the test cannot evaluate"
    )
    outside = rank_test(log(-exp(x) * v**2), n, FACTS, FACTS)
    assert str(outside) == "unavailable: `log(-exp(x[b, n])*v**2)` is not a real number at the samples"


# ---- samples ---------------------------------------------------------------------------------------------------------


def samples(arithmetic: Arithmetic, plan: tuple[int, int, float] = FLOATS[0], *, positive: bool = False) -> Samples:
    return Setting(n, tuple(FACTS), FACTS).samples(list(FACTS), plan, (arithmetic,), positive=positive)[0]


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("plan", FLOATS)
def test_samples_lie_inside_the_facts(plan: tuple[int, int, float], positive: bool) -> None:
    """Every d_j is what the reductions make of data that hold all x_i."""
    drawn = samples(Floats(np.float64), plan, positive=positive)
    of_x, total, most, count, least = map(drawn.whole, (x, v, m, c, low))
    assert (most == np.abs(of_x).max(0)).all()
    assert (least == of_x.min(0)).all()
    assert (count == count.astype(int)).all()
    assert (count > drawn.whole(n).max()).all()
    np.testing.assert_allclose(total, (of_x * drawn.draws.times).sum(0) + 0 * total, rtol=1e-9, atol=1e-9)
    assert (drawn.matrix(x) == drawn.matrix(x)[:, :1]).all()
    assert (drawn.matrix(v) == drawn.matrix(v)[:1]).all()
    assert len(np.unique(total[0])) == len(total[0])
    assert len(np.unique(drawn.matrix(x)[:, 0])) == plan[0]


JOINT = {
    "a share": Abs(x) / ra.sum(Abs(x), n) <= 1, "its logarithm": log(Abs(x)) <= log(ra.sum(Abs(x), n)),
    "a square": x**2 <= ra.sum(x**2, n), "the largest": x <= ra.max(x, n), "a truth": ra.any(x > 0, n) <= 1,
    "a place": n <= n.extent - 1, "the least sign": ra.min(ra.where(x > 0, 1, -1), n) >= -1,
    "the first": ra.eq(ra.argmax(ra.where(x >= ra.max(x, n), 1, 0), n), ra.argmax(x, n)),
    "second": ra.max(ra.where(x < ra.max(x, n), x, -1000), n) <= ra.max(x, n),
    "beside": Abs(ra.sum_at_max(x, y, n) + ra.sum(ra.where(x < ra.max(x, n), y, 0), n) - ra.sum(y, n)) < 1e-9,
}  # fmt: skip


@pytest.mark.parametrize("name", JOINT)
def test_what_holds_of_all_data_holds_at_every_sample(name: str) -> None:
    cascade = parse({"out": (adopt(ra.sum(ra.where(JOINT[name], 1, 0) * x, n)), None)})
    facts = {one.value: (one.monoid.name, one.term) for one in cascade.reductions if one.is_scalar}
    others = {one.value: one for one in cascade.reductions if not one.is_scalar}
    *_, last = cascade.reductions
    for plan in FLOATS:
        setting = Setting(n, cascade.values, facts, others)
        [drawn] = setting.samples([last.term], plan, (Floats(np.float64),), positive=False)
        assert (drawn.whole(last.term) == drawn.whole(x)).all()


def test_samples_are_the_same_every_time() -> None:
    first, second = samples(Floats(np.float64)), samples(Floats(np.float64))
    assert (first.matrix(x * v) == second.matrix(x * v)).all()


CASES = [
    sqrt(Abs(x)) * exp(y - v) + log(m), sin(x) / cos(v), Max(x, y, v) - Min(x, v), Where(x < v, x, v**-3), erf(x / 3),
    Mod(x, m), floor(x * v), gamma**x, (n + 1) * x, expm1(x) * log1p(m),
]  # fmt: skip


ARITHMETICS = {
    "float64": (Floats(np.float64), 13),
    "long double": (Floats(np.longdouble), 15),
    "digits": (Digits(), 50),
}


@pytest.mark.parametrize("kind", ARITHMETICS)
@pytest.mark.parametrize("term", CASES, ids=str)
def test_values_are_those_of_sympy(term: Expr, kind: str) -> None:
    arithmetic, digits = ARITHMETICS[kind]
    drawn, exact = Setting(n, tuple(FACTS), FACTS).samples([term], DIGITS, (arithmetic, Digits()), positive=False)
    leaves = term.atoms(Value) | {one for one in (x, y, n, gamma) if term.has(one)}
    got = drawn.matrix(term)
    for i, j in ((0, 0), (3, 7), (15, 15)):
        point = {leaf: Float(str(exact.matrix(leaf)[i, j]), 130) for leaf in leaves}
        wanted = term.xreplace({one: one.xreplace(point) for one in term.atoms(Relational)}).xreplace(point).evalf(60)
        if wanted.is_extended_real:
            made = context().mpf(str(got[i, j]))
            assert abs(made - context().mpf(str(wanted))) < context().mpf(10) ** -digits * (1 + abs(made))
        else:
            assert got[i, j] != got[i, j]


@pytest.mark.parametrize("arithmetic", [Floats(np.float64), Floats(np.longdouble), Digits()])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_casts_round_as_numpy_does(dtype: str, arithmetic: Arithmetic) -> None:
    drawn = samples(arithmetic, DIGITS)
    given = drawn.matrix(x).astype(float)
    wanted = np.rint(given).astype(dtype) if dtype == "int8" else np.float64(given.astype(dtype))
    assert (drawn.matrix(Cast(x, dtype)).astype(float) == wanted).all()


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_function_that_runs_can_be_sampled(name: str) -> None:
    import sympy
    from sympy.codegen import cfunctions

    function = getattr(sympy, name, None) or getattr(cfunctions, name)
    inside = {"acosh": 1 + exp(x), "atanh": tanh(x), "asin": tanh(x), "acos": tanh(x), "log": exp(x) + 1}
    args = [inside.get(name, Abs(x))] + [y] * (name in ("atan2", "Mod", "Max", "Min"))
    assert len(figures(function(*args) * v)) == 2


@pytest.mark.parametrize("ops", [NumpyOps("float64"), TorchOps("float64", "cpu")], ids=lambda one: type(one).__name__)
def test_every_function_that_is_accepted_is_evaluated(ops: Any) -> None:
    assert OPERATORS.keys() - {"Mod"} <= ops.functions.keys()


@pytest.mark.parametrize("name", ["tanh", "exp", "sin", "cosh", "atan", "log1p", "erf"])
def test_arguments_too_long_to_write_are_left_out(name: str) -> None:
    """Of a number of 2·10⁹ bits mpmath would write every bit before the point."""
    digits = Digits()
    function, power = digits.function(name), digits.power
    assert function is not None
    long = digits.ctx.exp(digits.ctx.exp(21))
    given = np.array([digits.ctx.mpf("0.5"), long, digits.ctx.mpf("inf")], dtype=object)
    made = digits.is_finite(function(given))
    assert made[0]
    assert not made[1]
    assert not digits.is_finite(power(given, given))[1]
    assert digits.is_finite(digits.function("sign")(given))[1]  # type: ignore[misc]


def test_compared_elements_are_integers() -> None:
    label, length = ra.tensor("label[n]"), ra.tensor("length[b]")
    made = integers([Where(ra.eq(label, 1), x, 0) + Where(n < length, x, 0)], 16)
    assert set(made) == {label, length}


# ---- audits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_every_yes_has_the_rank_that_is_measured(name: str) -> None:
    """Rank r by exact algebra, and r at both sizes: no wrong yes, and no accumulator too many."""
    made = ra.fuse(PATTERNS[name].expr, axes=PATTERNS[name].axes).decomposition
    facts = made.separator.facts
    for one in made.separations:
        monoid, term = facts[one.reduction.value]
        if monoid == "sum":
            assert rank_test(term, made.cascade.axis, made.cascade.values, facts).ranks == (one.rank, one.rank)


DOUBTFUL = {
    "a positive d": sqrt(x * m) + log(Abs(x) * m),
    "a positive x": log(exp(x) * v) * sqrt(x**2 * v),
    "roots of products": (exp(x) * y**2 * m) ** (S.One / 3),
    "a ratio": log(exp(x - m) / c) * (Abs(y) / c) ** (S.One / 2),
}


@pytest.mark.parametrize("term", DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_rests_on_a_sign_is_the_term(term: Expr) -> None:
    separator = Separator(n, FACTS, FACTS)
    made = separator.atoms.polynomial_expr(separator.separate(term))
    assert equal_on_samples(term, made, n, FACTS, FACTS)


@pytest.mark.parametrize("term", [sqrt(x * ra.sum(y, n)), log(x / ra.sum(y, n)), gamma * (x * ra.sum(y, n)) ** 1.5])
def test_signs_that_are_not_known_are_not_taken_on_trust(term: Expr) -> None:
    """√x·√d is NaN where both are negative, and √(x·d) is not; where the signs differ that is NaN too."""
    fused = ra.fuse(ra.sum(term, n))
    values, scale = np.random.default_rng(0).uniform(0.5, 2, (1, 9)), {"gamma": 0.7} if term.has(gamma) else {}
    mixed = np.where(np.arange(9) == 4, -values, values)
    for of_x, of_y, real in (
        (values, values, True), (-values, -values, True), (values, -values, False), (mixed, values, False),
        (mixed, -values, False), (np.where(np.arange(9) == 4, 0, -values), -values, True),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            wanted = fused.reference(x=of_x, y=of_y, **scale)
            got = fused(x=of_x, y=of_y, backend="numpy", **scale)
        assert np.isnan(wanted) != real
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_a_theorem_that_the_samples_contradict_is_no_refusal() -> None:
    """|x + |x|·d²| has kinks of its own, which do not move: rank 2, whatever is said of its node."""
    total = ra.sum(x, n)
    made = ra.analyze(ra.sum(Abs(x + Abs(x) * total**2), n))
    assert isinstance(made, verdicts.Undecided)
    assert made.evidence[-1] == "the rank looks like 2; no separation was found"


def test_a_node_of_finite_rank_is_no_reason_to_refuse_a_term_of_a_high_one() -> None:
    """|x + |x|·d²| has rank 2: times (y − e)⁵·(w − d)³ the term has 48, which fills both matrices."""
    total, other = ra.sum(x, n), ra.sum(y, n)
    made = ra.analyze(ra.sum(Abs(x + Abs(x) * total**2) * (y - other) ** 5 * (s - total) ** 3, n))
    assert isinstance(made, verdicts.Undecided)
    assert made.evidence[-1] == "the rank looks like 2; no separation was found"


CANCELLING = {
    "a difference of squares": lambda d: (x**2 - d**2) / (x - d),
    "a common factor": lambda d: (x * d**2 + x) / (d * y + y * d**3),
    "exponentials": lambda d: (exp(2 * x) - exp(2 * d)) / (exp(x) + exp(d)),
    "of rank 12": lambda d: (x**4 - d**4) / (x - d) * (s**3 + d**3) / (s + d) * y,
    "a sum of cubes": lambda d: (x**3 + d**3) / (x**2 - x * d + d**2),
}


@pytest.mark.parametrize("term", CANCELLING.values(), ids=CANCELLING)
def test_what_separates_after_rewriting_is_fused(term: Any) -> None:
    made = ra.fuse(ra.sum(term(ra.sum(s, n)), n))
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal((2, 9)) for name in made.cascade.inputs()}
    np.testing.assert_allclose(made(**tensors, backend="numpy"), made.reference(**tensors), rtol=1e-9)


def test_piecewise_and_where_agree() -> None:
    total = ra.sum(x, n)
    one = ra.fuse(ra.sum(Piecewise((x, x < 0), (x * total, True)), n))
    two = ra.fuse(ra.sum(ra.where(x < 0, x, x * total), n))
    assert one.rank == two.rank == {"sum_0": 1, "sum_1": 2}


# ---- signs -----------------------------------------------------------------------------------------------------------

SIGNS = {
    exp(x) * m: "nonnegative",
    m + 1: "positive",
    m - x: "nonnegative",
    m + x: "nonnegative",
    low - x: "nonpositive",
    2 * x - 2 * low: "nonnegative",
    c * exp(v): "positive",
    -(x**2): "nonpositive",
    (x - v) ** 2 + m: "nonnegative",
    sqrt(gamma) / c: "positive",
    Where(x > 0, exp(x), m): "nonnegative",
    Max(x, m): "nonnegative",
    Min(-m, x): "nonpositive",
    Abs(gamma): "positive",
    tanh(m): "nonnegative",
    x * v: None,
    m - 1: None,
    log(m): None,
}


@pytest.mark.parametrize(("expr", "sign"), SIGNS.items(), ids=str)
def test_signs(expr: Expr, sign: str | None) -> None:
    assert sign_of(expr, FACTS) == sign


@pytest.mark.parametrize("expr", SIGNS, ids=str)
def test_a_sign_holds_at_every_sample(expr: Expr) -> None:
    if (sign := sign_of(expr, FACTS)) is not None:
        found = samples(Floats(np.longdouble)).whole(expr)
        assert (found >= 0 if sign in ("positive", "nonnegative") else found <= 0).all()


def test_the_range_of_a_maximum_and_a_minimum() -> None:
    top = Value(Label("top"), b)
    facts = {**FACTS, top: ("max", x)}
    assert sign_of(top - low, facts) == "nonnegative"
    assert sign_of(low - top, facts) == "nonpositive"


# ---- what samples prove ----------------------------------------------------------------------------------------------


def audited(term: Expr) -> Any:
    return Setting((n,), tuple(FACTS), FACTS).audit(term)


@pytest.mark.parametrize(
    "term", [erf(x - v), Abs(x - v) * y, tanh(floor(4 * x - v)), Max(x, low + v) * erf(x)], ids=str
)
def test_a_rank_that_grows_is_proven_in_digits(term: Expr) -> None:
    audit = audited(term)
    assert audit.test.grows
    assert audit.in_digits(term).proven
    assert audit.again(term).in_digits(term).proven


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8), st.sampled_from([1, 4, 30]))
def test_no_rank_of_few_products_is_proven_large(weights: list[int], scale: int) -> None:
    """A sum of at most 8 products, of which only the functions of x are nearly dependent."""
    term = sum((one * sin(x + number) * cos(scale * v * number) for number, one in enumerate(weights[:8])), S.Zero)
    audit = audited(term)
    assert not audit.in_digits(term).proven


def test_some_data_sets_are_those_of_the_draw() -> None:
    term = exp(x - m) * y + v
    for audit in (audited(term), audited(Abs(x - v)).again(Abs(x - v))):
        whole = audit.floats[0] if not audit.floats[0].draws.copies else audit.floats[0].alone(0)
        columns = np.array([1, 5, 9])
        want = np.asarray(whole.matrix(term), dtype=float)[:, columns]
        got = np.asarray(whole.of_some(columns, Digits()).matrix(term), dtype=float)
        np.testing.assert_allclose(got, want, rtol=1e-9)


def test_some_draws_are_those_of_all() -> None:
    term = Abs(x - v) * y + gamma
    setting = Setting((n,), tuple(FACTS), FACTS, seed=1, copies=2 * BLOCK)
    [whole] = setting.samples([term], FLOATS[0], (Floats(np.float64),), positive=False)
    blocks = [block.matrix(term) for _, block in whole.blocks()]
    assert len(blocks) == 2
    np.testing.assert_array_equal(np.concatenate(blocks, axis=-1), whole.matrix(term))
    np.testing.assert_array_equal(whole.alone(BLOCK).matrix(term), whole.matrix(term)[..., BLOCK])


# ---- ranks of matrices in floats -------------------------------------------------------------------------------------


def test_long_double_shows_what_float64_hides() -> None:
    rng = np.random.default_rng(1)
    products = np.outer(rng.uniform(-1, 1, 24), rng.uniform(-1, 1, 64)) / 5
    coarse, fine = np.exp(products), np.exp(products.astype(np.longdouble))
    assert ranks_of(coarse, fine, finer=False) is None
    assert ranks_of(coarse, fine, finer=True) == (8, 9)


@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(0, 40))
def test_no_matrix_of_a_small_rank_seems_to_have_a_large_one(seed: int, products: int, falls: float) -> None:
    """Σ c_k·g_k·h_k, of which the last weigh 10^-falls: in float64 and in long double both are rounded."""
    rng = np.random.default_rng(seed)
    weights = np.longdouble(10) ** np.linspace(0, -falls, products).astype(np.longdouble)
    matrix = (rng.normal(size=(24, products)) * weights) @ rng.normal(size=(products, 64)).astype(np.longdouble)
    found = ranks_of(matrix.astype(np.float64), matrix, finer=True)
    assert found is None or found[1] <= products


@given(st.integers(0, 2**32))
def test_the_first_of_the_largest(seed: int) -> None:
    """Without a sort the same as by a sort, NaN and −∞ among the elements."""
    rng = np.random.default_rng(seed)
    [samples] = Setting(n, (), {}).samples([x + n], FLOATS[0], (Floats(np.float64),), positive=False)
    u = rng.integers(-2, 3, samples.whole(x).shape).astype(float)
    u[rng.random(u.shape) < 0.3] = np.nan
    u[rng.random(u.shape) < 0.3] = -np.inf
    np.testing.assert_array_equal(_first(samples, u), _order(samples, u)[0])
