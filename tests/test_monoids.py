"""Every declared law of every monoid and semiring holds on generated data; what is not declared is refuted."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from sympy import Expr, Integer, Max, Min, Rational, S, oo

from redalg.errors import ExpressionError
from redalg.monoids import MONOIDS, SEMIRINGS, Monoid, Semiring, monoid, semirings

fractions = st.fractions(min_value=-5, max_value=5, max_denominator=6)
numbers = fractions.map(lambda one: Rational(one.numerator, one.denominator))
extended = st.one_of(numbers, st.sampled_from((oo, -oo)))
ELEMENTS = {"sum": numbers, "prod": numbers, "max": extended, "min": extended}
DOMAINS = {
    "any": numbers,
    "nonnegative": numbers.map(abs),
    "count": st.integers(0, 5).map(Integer),
}
each_monoid = pytest.mark.parametrize("one", MONOIDS.values(), ids=str)
each_semiring = pytest.mark.parametrize("pair", SEMIRINGS, ids=lambda pair: f"{pair.plus}-{pair.times}")
Dtype = Literal["float64", "float32", "float16"]
WIDTH: dict[Dtype, Literal[16, 32, 64]] = {"float64": 64, "float32": 32, "float16": 16}
quick = settings(max_examples=400, database=None)


@each_monoid
@given(st.data())
def test_declared_monoid_laws_hold(one: Monoid, data: st.DataObject) -> None:
    a, b, c = (data.draw(ELEMENTS[one.name]) for _ in range(3))
    join = one.combine
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(a, b) == join(b, a)
    assert join(a, one.identity) == a
    if one.idempotent:
        assert join(a, a) == a


@each_monoid
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@given(st.data())
def test_exactness_is_as_declared(one: Monoid, dtype: Dtype, data: st.DataObject) -> None:
    """An exact monoid gives one result in every order of merging, bit for bit."""
    import numpy as np

    floats = st.floats(-100, 100, width=WIDTH[dtype])
    values = np.array(data.draw(st.lists(floats, min_size=3, max_size=6)), dtype)
    shuffled = data.draw(st.permutations(list(values)))
    fold = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[one.name]
    if one.exact:
        assert fold.reduce(values) == fold.reduce(np.array(shuffled, dtype))


@pytest.mark.parametrize("name", [one.name for one in MONOIDS.values() if not one.idempotent])
def test_undeclared_idempotence_is_refuted(name: str) -> None:
    a = find(ELEMENTS[name], lambda a: MONOIDS[name].combine(a, a) != a, settings=quick)
    assert MONOIDS[name].combine(a, a) != a


@pytest.mark.parametrize("name", [one.name for one in MONOIDS.values() if not one.exact])
def test_undeclared_exactness_is_refuted(name: str) -> None:
    """In float32 two orders of merging differ, so that an order is part of what a sum is."""
    fold = {"sum": np.add, "prod": np.multiply}[name]
    triples = st.tuples(*[st.floats(0.5, 100, width=32).map(np.float32)] * 3)

    def differs(triple: tuple[np.float32, ...]) -> bool:
        a, b, c = triple
        return bool(fold(fold(a, b), c) != fold(a, fold(b, c)))

    assert differs(find(triples, differs, settings=quick))


@each_semiring
@given(st.data())
def test_declared_pairs_distribute(pair: Semiring, data: st.DataObject) -> None:
    join, times = MONOIDS[pair.plus].combine, pair.apply
    a, b = data.draw(numbers), data.draw(numbers)
    c = data.draw(DOMAINS[pair.domain])
    assert times(join(a, b), c) == join(times(a, c), times(b, c))


UNDECLARED: dict[str, tuple[str, Callable[..., Expr], st.SearchStrategy[Expr]]] = {
    "max, × any": ("max", lambda a, c: a * c, numbers),
    "min, × any": ("min", lambda a, c: a * c, numbers),
    "sum, max": ("sum", Max, numbers),
    "sum, +": ("sum", lambda a, c: a + c, numbers),
    "sum, ^": ("sum", lambda a, c: a**c, DOMAINS["count"]),
    "prod, ×": ("prod", lambda a, c: a * c, numbers),
    "prod, max": ("prod", Max, numbers),
    "sum, min": ("sum", Min, numbers),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_undeclared_pairs_are_refuted(name: str) -> None:
    plus, times, constants = UNDECLARED[name]
    join = MONOIDS[plus].combine
    triples = st.tuples(numbers, numbers, constants)
    a, b, c = find(triples, lambda t: times(join(t[0], t[1]), t[2]) != join(times(t[0], t[2]), times(t[1], t[2])),
                   settings=quick)  # fmt: skip
    assert times(join(a, b), c) != join(times(a, c), times(b, c))


def test_semirings_are_listed_by_their_plus() -> None:
    assert {pair for plus in MONOIDS for pair in semirings(plus)} == set(SEMIRINGS)
    assert semirings("max")[0].times == "add"


def test_identities_are_the_empty_reductions() -> None:
    assert {name: one.identity for name, one in MONOIDS.items()} == {"sum": 0, "prod": 1, "max": -oo, "min": oo}
    assert MONOIDS["max"].combine(S.NegativeInfinity, S.Infinity) == oo


def test_an_unknown_monoid_is_named() -> None:
    with pytest.raises(ExpressionError) as error:
        monoid("median")
    assert str(error.value) == "no monoid is named 'median'. redalg knows sum, prod, max, min."
