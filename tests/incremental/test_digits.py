"""No form loses digits that the definition, evaluated plainly in float32, keeps: whole, in pieces, as a kernel."""

from collections.abc import Callable

import numpy as np
import pytest
from sympy import Expr, atan2, cos, sin, sqrt

import redalg as ra
from tests.cases.digits import LENGTH, ROWS, Case, Draw, beside, in_pieces, measured, named_axes, normal, of, single
from tests.oracle import Oracle

b, n, g, q, k, e = ra.axes("b n g q k e")
x, y, z, s, t = ra.tensors("x[b,n] y[b,n] z[b,n] s[b,n] t[b,n]")
u, label, weight, group, S, V, U = ra.tensors("u[n] label[n] weight[g,n] group[g] S[q,k] V[k,e] U[k]")


def mean(term: Expr) -> Expr:
    return ra.sum(term, n) / n.extent


# ---- weights about a centre that is not theirs -----------------------------------------------------------------------

FOREIGN = [
    of("softmax-weighted square about another mean", lambda: ra.sum(ra.softmax(s, n) * (x - mean(z)) ** 2, n),
       s=beside(60), x=beside(1e4), z=normal(1e4)),
    of("softmax-weighted cube about another mean", lambda: ra.sum(ra.softmax(s, n) * (x - mean(z)) ** 3, n),
       s=beside(60), x=beside(1e4), z=normal(1e4)),
    of("softmax-weighted square about the plain mean", lambda: ra.sum(ra.softmax(s, n) * (x - mean(x)) ** 2, n),
       s=beside(60), x=beside(1e4, -1e4)),
    of("weighted square about a first element", lambda: ra.sum(z**2 * (x - ra.max(y, n)) ** 2, n) / ra.sum(z**2, n),
       z=beside(1e6), x=beside(1e4), y=normal(1e4)),
]  # fmt: skip


# ---- weights that have axes of their own -----------------------------------------------------------------------------


def within(weigh: Expr) -> Expr:
    """The weighted variance of u, row by row of the weights."""
    total = ra.sum(weigh, n)
    return ra.sum(weigh * (u - ra.sum(weigh * u, n) / total) ** 2, n) / total


def within_by_moments(weigh: Expr) -> Expr:
    total = ra.sum(weigh, n)
    return ra.sum(weigh * u**2, n) / total - (ra.sum(weigh * u, n) / total) ** 2


def segments(gap: float) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    """Four segments, at random places, `gap` apart; weights that are 0 outside the segment."""

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        labels = rng.integers(0, 4, LENGTH)
        own = single(labels == np.arange(4)[:, None]) * single(rng.uniform(0.5, 1, (4, LENGTH)))
        made = {"u": single(gap * labels + rng.standard_normal(LENGTH)), "weight": own}
        return made | {"label": single(labels), "group": single(np.arange(4))}

    return draw


def picked(*names: str, gap: float = 1e3) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    return lambda rng: {name: one for name, one in segments(gap)(rng).items() if name in names}


def attending(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Eight queries, each of which attends to its own stretch of a trend."""
    places, keys = np.linspace(0, LENGTH, 8)[:, None], np.arange(LENGTH)
    return {"S": single(-((keys - places) ** 2) / 50), "U": single(keys + rng.standard_normal(LENGTH))}


chosen = ra.where(ra.eq(label, group), 1, 0)
OWN_AXES = [
    Case("segments 1e3 apart", lambda: (within(chosen), "g"), picked("u", "label", "group")),
    Case("segments 1e6 apart", lambda: (within(chosen), "g"), picked("u", "label", "group", gap=1e6)),
    Case("segments, by moments", lambda: (within_by_moments(chosen), "g"), picked("u", "label", "group")),
    Case("weights by segment", lambda: (within(weight), "g"), picked("u", "weight")),
    Case("weights by segment, by moments", lambda: (within_by_moments(weight), "g"), picked("u", "weight")),
    Case("third moment of a segment", lambda: (third(chosen), "g"), picked("u", "label", "group")),
    Case("attention's variance of a row", lambda: (ra.sum(
        ra.softmax(S, k) * (U - ra.sum(ra.softmax(S, k) * U, k)) ** 2, k), "q"), attending),
]  # fmt: skip


def third(weigh: Expr) -> Expr:
    total = ra.sum(weigh, n)
    return ra.sum(weigh * (u - ra.sum(weigh * u, n) / total) ** 3, n) / total


# ---- squares of two generators ---------------------------------------------------------------------------------------


def near(offset: float, apart: float) -> dict[str, Draw]:
    """x, and y within `apart` of it: their differences are small, and drawn from one generator."""
    common = np.random.default_rng(7).standard_normal((ROWS, LENGTH)) + offset
    return {"x": lambda _: single(common), "y": lambda rng: single(common + apart * normal()(rng))}


def length(term: Expr) -> Expr:
    return sqrt(ra.sum(term**2, n))


slope = ra.sum(x, n) / ra.sum(y, n)
step = ra.sum(x * x, n) / ra.sum(x * y, n)
PAIRS = [
    of("distance of normalised rows", lambda: ra.sum((x / length(x) - y / length(y)) ** 2, n), **near(0, 1e-3)),
    of("distance of normalised rows, far", lambda: ra.sum((x / length(x) - y / length(y)) ** 2, n), **near(1e3, 0.1)),
    of("distance of shares", lambda: ra.sum((x / ra.sum(x, n) - y / ra.sum(y, n)) ** 2, n), **near(5, 1e-3)),
    of("residual of a step", lambda: ra.sum((x - step * y) ** 2, n), **near(0, 1e-3)),
    of("variance of x − αy", lambda: ra.var(x - slope * y, n), **near(5, 1e-3)),
    of("variance of x − αy about its regression", lambda: ra.var(x - y * ra.mean(
        (x - mean(x)) * (y - mean(y)), n) / ra.var(y, n), n), **near(5, 1e-3)),
    of("masked, weighted by a third", lambda: ra.sum(
        ra.where(x > 0, z**2, 0) * (x / length(x) - y / length(y)) ** 2, n),
       z=normal(), **near(0, 1e-3)),
]  # fmt: skip


# ---- rotations -------------------------------------------------------------------------------------------------------


def heading(term: Expr) -> Expr:
    """The circular mean."""
    return atan2(mean(sin(term)), mean(cos(term)))


def circular_correlation() -> Expr:
    first, second = sin(x - heading(x)), sin(y - heading(y))
    return ra.sum(first * second, n) / sqrt(ra.sum(first**2, n) * ra.sum(second**2, n))


ROTATIONS = [
    of("squared sine about the mean", lambda: mean(sin(x - mean(x)) ** 2), x=normal(1, 1e-3)),
    of("squared sine about a mean near a right angle", lambda: mean(sin(x - mean(x)) ** 2), x=normal(np.pi / 2, 1e-3)),
    of("fourth power of a sine, weighted", lambda: ra.sum(ra.softmax(s, n) * sin(x - mean(x)) ** 4, n),
       s=normal(), x=normal(2, 0.05)),
    of("circular correlation", circular_correlation, **near(1, 0.5)),
    of("products that nearly cancel", lambda: ra.sum((ra.sum(y, n) * x - ra.sum(x, n) * y) ** 2, n), **near(5, 1e-3)),
]  # fmt: skip


def test_a_rotation_by_a_right_angle_divides_by_nothing() -> None:
    """Σ (x·cos d − y·sin d)², where a slope tan d would be infinite: where one factor is 0 the other counts."""
    expr = ra.sum((x * ra.sum(z, n) - y * ra.sum(s, n)) ** 2, n)
    rng, made = np.random.default_rng(0), ra.fuse(expr, axes="b")
    given = {name: rng.standard_normal((2, 8)) for name in "xyzs"}
    for none in ("z", "s"):
        data = given | {none: np.zeros((2, 8))}
        np.testing.assert_allclose(made(**data), made.reference(**data), rtol=1e-12)


@pytest.mark.parametrize("term", [
    (sqrt(ra.var(x, n)) * x / ra.sum(x, n) - x**2 + 1) ** 2,
    (x / ra.std(x, n) - y / ra.std(y, n) + 1) ** 4,
    ra.softmax(s, n) * (x / (1 + ra.max(x, n)) - y / ra.sum(1 + y**2, n)) ** 3,
], ids=str)  # fmt: skip
@pytest.mark.parametrize("beside", [ra.var(x, n), ra.var(y, n), ra.var(x**2, n)], ids=str)
def test_a_slope_beside_other_centres_is_exact(term: Expr, beside: Expr) -> None:
    """Lines share their generators' pivots with what is centred elsewhere."""
    expr = ra.sum(term, n) + beside
    made = ra.fuse(expr, axes="b")
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((2, 17)) + 3 for name in sorted(made.cascade.inputs())}
    want, bound = Oracle(given, {}, {"b": 2, "n": 17}).output(expr, "b")
    for got in (made(**given, backend="numpy"), in_pieces(made, given, named_axes(expr, given), n, 17, rng, parts=4)):
        assert (np.abs(got - want) <= 64 * np.finfo(float).eps * bound).all()


def two_regressors() -> Expr:
    """Gram-Schmidt: z on x, then y on x and on what is left of z."""
    left = z - x * ra.sum(z * x, n) / ra.sum(x * x, n)
    fit = x * ra.sum(y * x, n) / ra.sum(x * x, n) + left * ra.sum(y * left, n) / ra.sum(left * left, n)
    return ra.sum((y - fit) ** 2, n)


def collinear(rng: np.random.Generator) -> dict[str, np.ndarray]:
    first = normal()(rng)
    second = single(first + 1e-3 * normal()(rng))
    return {"x": first, "z": second, "y": single(2 * first + normal()(rng))}


REGRESSIONS = [
    Case("two regressors", lambda: (two_regressors(), "b"), lambda rng: {name: normal()(rng) for name in "xyz"}),
    Case("two collinear regressors", lambda: (two_regressors(), "b"), collinear),
]


def test_chained_lines_move_together() -> None:
    """The transition of y moved it by z, where the sum was about what is left of z."""
    expr = two_regressors()
    made, rng = ra.fuse(expr, axes="b"), np.random.default_rng(0)
    given = {name: rng.standard_normal((2, 40)) + 3 for name in "xyz"}
    want, _ = Oracle(given, {}, {"b": 2, "n": 40}).output(expr, "b")
    for got in (made(**given), in_pieces(made, given, named_axes(expr, given), n, 40, rng, parts=4)):
        np.testing.assert_allclose(got, want.astype(float), rtol=1e-10)


CASES = [*FOREIGN, *OWN_AXES, *PAIRS, *ROTATIONS, *REGRESSIONS]
COMPILED = {FOREIGN[0], OWN_AXES[0], PAIRS[0], ROTATIONS[0]}
"""The others' kernels take two seconds each to compile, and run with the slow tests."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_form_keeps_the_digits_of_the_definition(case: Case) -> None:
    found = measured(case, kernel=case in COMPILED)
    assert not found.lost, found


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for one in CASES if one not in COMPILED], ids=str)
def test_a_kernel_keeps_the_digits_of_the_definition(case: Case) -> None:
    found = measured(case, seed=1)
    assert not found.lost, found
