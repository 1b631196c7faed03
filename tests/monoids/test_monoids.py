"""Every declared law of every monoid and semiring holds on generated data; what is not declared is refuted."""

import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, Max, Min, Mod, Mul, Rational, S, Symbol, oo

import redalg as ra
from redalg.errors import ExpressionError
from redalg.monoids import MONOIDS, SEMIRINGS, Monoid, Semiring, distributivity_violation, monoid, semirings, violation
from redalg.monoids.functions import Exponent, IsNaN, Mantissa, Scaled
from redalg.monoids.laws import DOMAINS, LAWS, are_equal, declared_laws
from redalg.monoids.monoid import Parts
from redalg.monoids.selection import topk_monoid
from redalg.monoids.table import KNOWN

Dtype = Literal["float64", "float32", "float16"]
WIDTH: dict[Dtype, Literal[16, 32, 64]] = {"float64": 64, "float32": 32, "float16": 16}
quick = settings(max_examples=400, database=None, phases=(Phase.generate,))  # any case will do

fractions = st.fractions(min_value=-5, max_value=5, max_denominator=6)
numbers = fractions.map(lambda one: Rational(one.numerator, one.denominator))
VALUES: dict[str, st.SearchStrategy[Expr]] = {
    "finite": numbers,
    "any": numbers,
    "extended": st.one_of(numbers, st.sampled_from((oo, -oo))),
    "logarithm": st.one_of(numbers, st.just(-oo)),
    "nonnegative": numbers.map(abs),
    "positive": numbers.map(lambda one: abs(one) + 1),
    "count": st.integers(0, 5).map(Integer),
    "natural": st.integers(0, 60).map(Integer),
    "truth": st.integers(0, 1).map(Integer),
}

ALL = {**{one.name: one for one in KNOWN}, **{f"topk of {k}": topk_monoid(k) for k in (1, 2, 3, 4)}}
each_monoid = pytest.mark.parametrize("one", ALL.values(), ids=ALL)
each_semiring = pytest.mark.parametrize("pair", SEMIRINGS, ids=lambda pair: f"{pair.plus}-{pair.times}")
each_law = pytest.mark.parametrize(
    ("name", "law"), [(name, law) for name, one in ALL.items() for law in declared_laws(one)]
)


def elements(one: Monoid) -> st.SearchStrategy[Parts]:
    """What a monoid's elements are: the identity, lifted places, and what joins make of them."""
    operands = st.tuples(*(VALUES[domain] for domain in one.domains), st.integers(0, 9).map(Integer))
    lifted = operands.map(lambda chosen: tuple(one.lift(*chosen)))
    places = st.one_of(st.just(one.empty), lifted)
    return st.one_of(places, st.tuples(places, places).map(lambda pair: one.join(*pair)))


def cases(one: Monoid, law: str) -> st.SearchStrategy[tuple[Parts, ...]]:
    """As many elements as the law is about."""
    return st.tuples(*[elements(one)] * LAWS[law][0])


def sides(one: Monoid, law: str, chosen: tuple[Parts, ...]) -> tuple[Parts, Parts]:
    left, right = LAWS[law][1](one, *chosen)
    return tuple(left), tuple(right)


@pytest.mark.sweep(2)
@each_law
@given(st.data())
def test_declared_laws_hold(name: str, law: str, data: st.DataObject) -> None:
    one = ALL[name]
    left, right = sides(one, law, data.draw(cases(one, law)))
    assert are_equal(left, right)


UNDECLARED = [(one.name, law) for one in KNOWN for law in LAWS if law not in declared_laws(one)]


@pytest.mark.parametrize(("name", "law"), UNDECLARED)
def test_undeclared_laws_are_refuted(name: str, law: str) -> None:
    one = ALL[name]
    case = find(cases(one, law), lambda chosen: not are_equal(*sides(one, law, chosen)), settings=quick)
    assert not are_equal(*sides(one, law, case))
    found = violation(one, [law])
    assert found is not None
    assert found.law == law
    assert not are_equal(found.left, found.right)


@each_monoid
def test_the_checker_passes_what_is_declared(one: Monoid) -> None:
    assert violation(one, seed=1) is None


def test_every_undeclared_law_is_among_those_refuted() -> None:
    assert {name for name, law in UNDECLARED if "commutativity" in law} == {"first", "last", "affine", "affine_tangent"}
    lossless = {"max", "min", "any", "all", "gcd", "argmax", "argmin", "first", "last", "at_argmax", "peak", "argpeak",
                "first_place", "last_place"}  # fmt: skip
    lossless |= {f"{one}_{where}_max" for one in ("max", "min") for where in ("at", "below")}
    assert {name for name, law in UNDECLARED if "idempotence" in law} == {one.name for one in KNOWN} - lossless


FOLDS: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.maximum, "all": np.minimum,
}  # fmt: skip
each_scalar = pytest.mark.parametrize("one", [one for one in KNOWN if one.reduction], ids=str)


@each_scalar
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@given(st.data())
def test_exactness_is_as_declared(one: Monoid, dtype: Dtype, data: st.DataObject) -> None:
    """An exact monoid gives one result in every order of merging, bit for bit."""
    floats = st.floats(-100, 100, width=WIDTH[dtype])
    values = np.array(data.draw(st.lists(floats, min_size=3, max_size=6)), dtype)
    shuffled = data.draw(st.permutations(list(values)))
    fold = FOLDS[one.name]
    if one.exact:
        assert fold.reduce(values) == fold.reduce(np.array(shuffled, dtype))


@pytest.mark.parametrize("name", [one.name for one in KNOWN if one.reduction and not one.exact])
def test_undeclared_exactness_is_refuted(name: str) -> None:
    """In float32 two orders of merging differ, so that an order is part of what a sum is."""
    fold = FOLDS[name]
    triples = st.tuples(*[st.floats(0.5, 100, width=32).map(np.float32)] * 3)

    def differs(triple: tuple[np.float32, ...]) -> bool:
        a, b, c = triple
        return bool(fold(fold(a, b), c) != fold(a, fold(b, c)))

    assert differs(find(triples, differs, settings=quick))


# ---- semirings -------------------------------------------------------------------------------------------------------


def value_join(name: str, a: Expr, b: Expr) -> Expr:
    """a ⊕ b of two values, through the monoid's own elements."""
    plus = MONOIDS[name]
    return plus.lower(*plus.join(plus.lift(a, 0), plus.lift(b, 0)))[0]


@each_semiring
@given(st.data())
def test_declared_pairs_distribute(pair: Semiring, data: st.DataObject) -> None:
    a, b = data.draw(VALUES[pair.elements]), data.draw(VALUES[pair.elements])
    c = data.draw(VALUES[pair.domain])
    left = pair.apply(value_join(pair.plus, a, b), c)
    assert are_equal(left, value_join(pair.plus, pair.apply(a, c), pair.apply(b, c)))


@each_semiring
def test_the_checker_passes_the_declared_pairs(pair: Semiring) -> None:
    assert distributivity_violation(pair) is None


REFUTED: dict[str, tuple[str, Callable[..., Expr], str, str]] = {
    "max, × any": ("max", Mul, "any", "finite"),
    "min, × any": ("min", Mul, "any", "finite"),
    "sum, max": ("sum", Max, "any", "finite"),
    "sum, min": ("sum", Min, "any", "finite"),
    "sum, +": ("sum", lambda a, c: a + c, "any", "finite"),
    "sum, ^": ("sum", lambda a, c: a**c, "count", "finite"),
    "prod, ×": ("prod", Mul, "any", "finite"),
    "prod, max": ("prod", Max, "any", "finite"),
    "logsumexp, ×": ("logsumexp", Mul, "nonnegative", "finite"),
    "any, xor": ("any", lambda a, c: Mod(a + c, 2), "truth", "truth"),
    "gcd, +": ("gcd", lambda a, c: a + c, "natural", "natural"),
}


@pytest.mark.parametrize("name", REFUTED)
def test_undeclared_pairs_are_refuted(name: str) -> None:
    plus, times, constants, values = REFUTED[name]
    found = distributivity_violation(Semiring(plus, "", "⊗", times, constants, values))
    assert found is not None
    (a,), (b,), (c,) = found.elements
    assert not are_equal(times(value_join(plus, a, b), c), value_join(plus, times(a, c), times(b, c)))


def test_a_refutation_names_its_case() -> None:
    assert str(distributivity_violation(Semiring("max", "mul", "×", Mul, "any"))) == (
        "(a ⊕ b) ⊗ c = (a ⊗ c) ⊕ (b ⊗ c) (distributivity) fails at a = 3/2, b = 2, c = -2: the left side is -4, the "
        "right side -3"
    )


def test_semirings_are_listed_by_their_plus() -> None:
    assert {pair for one in KNOWN for pair in semirings(one.name)} == set(SEMIRINGS)
    assert semirings("max")[0].times == "add"
    assert set(DOMAINS) == set(VALUES)
    assert {pair.domain for pair in SEMIRINGS} | {pair.elements for pair in SEMIRINGS} <= set(DOMAINS)


# ---- what monoids are made of ----------------------------------------------------------------------------------------


def test_identities_are_the_empty_reductions() -> None:
    scalars = {one.name: one.identity for one in KNOWN if len(one.components) == 1}
    assert scalars == {"sum": 0, "prod": 1, "max": -oo, "min": oo, "any": 0, "all": 1, "xor": 0, "gcd": 0,
                       "first_place": -1, "last_place": -1}  # fmt: skip
    assert MONOIDS["max"].combine(S.NegativeInfinity, S.Infinity) == oo
    assert MONOIDS["argmax"].empty == (-oo, -1)


def test_an_unknown_monoid_is_named() -> None:
    with pytest.raises(ExpressionError) as error:
        monoid("median")
    known = (
        "sum, prod, max, min, any, all, xor, gcd, argmax, argmin, topk, sum_at_max, max_at_max, min_at_max, "
        "sum_below_max, max_below_max, min_below_max, at_argmax, sum_beside_argmax, max_beside_argmax, "
        "min_beside_argmax, first, last, first_place, last_place, affine, affine_tangent, "
        "scaled_product, compensated_sum, logsumexp"
    )
    assert str(error.value).startswith(f"no monoid is named 'median'. redalg knows {known}")


@each_monoid
def test_monoids_pickle_by_name(one: Monoid) -> None:
    assert pickle.loads(pickle.dumps(one)) is MONOIDS[one.name]


@given(numbers)
def test_a_number_is_its_mantissa_by_a_power_of_two(x: Rational) -> None:
    m, e = Mantissa(x), Exponent(x)
    assert Scaled(m, e) == x
    assert e.is_Integer
    assert m == 0 or Rational(1, 2) <= abs(m) < 1


def test_parts_of_what_is_not_finite() -> None:
    assert (Mantissa(oo), Exponent(oo), Exponent(S.Zero)) == (oo, 0, 0)
    assert (IsNaN(S.NaN), IsNaN(oo), IsNaN(Rational(1, 3))) == (1, 0, 0)
    assert IsNaN(Symbol("x")).func is IsNaN


def test_scaled_products_stay_normalised() -> None:
    product = MONOIDS["scaled_product"]
    element = product.empty
    for power in range(-300, 300, 7):
        element = product.join(element, tuple(product.lift(Rational(3) ** power, 0)))
        assert Rational(1, 2) <= abs(element[0]) < 1
    assert product.lower(*element)[0] == Rational(3) ** sum(range(-300, 300, 7))


# ---- registering one's own -------------------------------------------------------------------------------------------


@pytest.fixture
def registry() -> Any:
    """The table of monoids, put back as it was."""
    before = dict(MONOIDS)
    yield MONOIDS
    MONOIDS.clear()
    MONOIDS.update(before)


def refused(**definition: Any) -> str:
    name = definition.pop("name", "mine")
    with pytest.raises(ra.RedalgError) as error:
        ra.register_monoid(name, **{"components": {"v": 0}, "combine": lambda a, b: a[0] + b[0], **definition})
    return str(error.value)


def test_a_registered_monoid_reduces(registry: Any) -> None:
    ra.register_monoid(
        "span", components={"low": oo, "high": -oo}, domain="extended", idempotent=True, exact=True,
        lift=lambda x, n: (x, x), lower=lambda low, high: high - low,
        combine=lambda a, b: (Min(a[0], b[0]), Max(a[1], b[1])),
    )  # fmt: skip
    n = ra.axes("n")
    fused = ra.fuse(ra.reduce("span", ra.tensor("x[b,n]"), axis=n))
    x = np.random.default_rng(0).standard_normal((3, 77)).astype(np.float32)
    for backend in ("numpy", "torch"):
        np.testing.assert_array_equal(fused(x=x, backend=backend), x.max(1) - x.min(1))
    assert pickle.loads(pickle.dumps(fused))(x=x).shape == (3,)


def test_a_monoid_may_be_registered_again(registry: Any) -> None:
    ra.register_monoid("again", components={"v": -oo}, domain="extended", combine=lambda a, b: Max(a[0], b[0]))
    ra.register_monoid("again", components={"v": oo}, domain="extended", combine=lambda a, b: Min(a[0], b[0]))
    assert registry["again"].combine(Integer(1), Integer(2)) == 1


def test_a_law_that_fails_is_an_error_with_its_case(registry: Any) -> None:
    with pytest.raises(ra.LawViolation) as error:
        ra.register_monoid("mean", components={"v": 0}, combine=lambda a, b: (a[0] + b[0]) / 2)
    assert str(error.value) == (
        "monoid mean is none as declared: a ⊕ e = a (identity) fails at a = 2: the left side is 1, the right side 2. "
        "Mend `combine` or the identity."
    )
    assert error.value.elements == ((2,),)
    assert (error.value.left, error.value.right) == ((1,), (2,))
    assert "mean" not in registry


def test_each_law_is_checked(registry: Any) -> None:
    """a·b + a + b is a monoid; twisted in one place it keeps the other laws and loses the one that is named."""
    assert "associativity) fails at a = " in refused(combine=lambda a, b: a[0] + b[0] + a[0] ** 2 * b[0] ** 2)
    first = {"components": {"v": S.Zero, "is": S.Zero}, "lift": lambda x, n: (x, S.One)}
    keep = {"combine": lambda a, b: (a[0], a[1]) if a[1] == 1 else b}
    said = refused(**first, **keep)
    assert "a ⊕ b = b ⊕ a (commutativity) fails at a = " in said
    assert said.endswith("Mend `combine`, or declare commutative=False: its pieces are then merged in order.")
    ra.register_monoid("keep", **first, **keep, commutative=False, idempotent=True)
    assert refused(idempotent=True).endswith("Mend `combine`, or leave idempotent=True out.")


@pytest.mark.parametrize("top", [10, 255, 1e4])
def test_laws_are_checked_about_the_numbers_of_an_operation(registry: Any, top: float) -> None:
    """A sum that saturates, far beyond the small numbers that are drawn elsewhere."""
    assert " fails at a = " in refused(combine=lambda a, b: Min(a[0] + b[0], top))
    least = {"components": {"v": top}, "domain": "finite", "combine": lambda a, b: Min(a[0], b[0], top)}
    assert " (identity) fails at a = " in refused(**least)


def test_edges_are_checked(registry: Any) -> None:
    """A law that fails at a declared edge alone is found there."""
    odd = Integer(10**9)
    combine = lambda a, b: Max(a[0], b[0]) if odd not in (a[0], b[0]) else a[0]  # noqa: E731
    definition: dict[str, Any] = {"components": {"v": -oo}, "domain": "extended", "combine": combine}
    ra.register_monoid("edge", **definition)
    assert f"fails at a = {odd}" in refused(**definition, edges=((odd,),))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"name": "max"}, "register_monoid: max is redalg's own. Give the monoid another name."),
        ({"name": "two words"}, "register_monoid: 'two words' is not a name. Write an identifier."),
        ({"components": {}}, "register_monoid: mine needs components, name to identity, and there are none."),
        (
            {"integers": ("w",)},
            "register_monoid: mine needs components, name to identity, and integers names w, which is none of them.",
        ),
        (
            {"domain": "reals"},
            (
                "register_monoid: 'reals' is no domain. Use one of finite, any, extended, logarithm, nonnegative, "
                "positive, count, natural, truth."
            ),
        ),
        (
            {"domain": ("finite", "finite")},
            "register_monoid: mine has 1 operands, and 2 domains are given. Give one for each.",
        ),
        (
            {"combine": lambda a, b: (a[0], b[0])},
            "register_monoid: mine: combine gives 2 parts, and 1 are due.",
        ),
        (
            {"lower": lambda v: (v, v), "results": ("one",)},
            "register_monoid: mine gives 2 results, and results= has 1 names.",
        ),
        (
            {"results": ("one", "two")},
            (
                "register_monoid: mine gives 1 results, and results= has 2 names. Give a name to every component, or "
                "choose by `lower=`."
            ),
        ),
    ],
)
def test_a_definition_that_is_none_is_refused(registry: Any, definition: Any, message: str) -> None:
    assert refused(**definition) == message
    assert "mine" not in registry


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (
            {"combine": lambda a, b: (max(a[0], b[0]),)},
            "with TypeError: cannot determine truth value of Relational: b_v > a_v. Its arguments are SymPy expre",
        ),
        ({"combine": lambda a, b: (np.where(a[0] > b[0], a[0], b[0]),)}, "mine: combine fails at ((a_v,), (b_v,)), wi"),
        ({"combine": lambda a: a}, "but 2 were given"),
        ({"combine": lambda a, b: a[0] > b[0]}, "mine: combine gives a_v > b_v, a StrictGreaterThan, and expressions"),
        ({"lift": lambda x, n: np.exp(x)}, "mine: lift fails at (x_0, index), with TypeError"),
        ({"lower": lambda v: max(0, v)}, "mine: lower fails at (a_v), with TypeError"),
        ({"vjp": lambda total, element, g: max(g[0], 0)}, "mine: vjp fails at ((a_v,), (b_v,), (g_v,)), with TypeErr"),
        (
            {"lift": lambda x: (x,)},
            "mine: lift takes x alone, and it is given the operands, then the index of their place. Write lift=lambda",
        ),
        ({"lift": lambda *operands: operands}, "mine: lift does not tell how many operands it takes. Name each, and t"),
        ({"lift": max}, "mine: lift does not tell how many operands it takes."),
        ({"components": {"v": "zero"}}, "the identity of mine has v = 'zero', a str, and a number is due. Write a num"),
        ({"components": {"v": None}}, "the identity of mine has v = None, a NoneType, and a number is due."),
    ],
)
def test_functions_of_numbers_are_refused_at_registration(registry: Any, definition: Any, said: str) -> None:
    """Python's and NumPy's functions may pass the laws, which are tried on numbers, and fail on expressions."""
    assert said in refused(**definition)
    assert "mine" not in registry
