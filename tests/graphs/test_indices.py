"""Plain indices are the same numbers, wherever their axes stand."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Add, Expr, Ge, Gt, Integer, Le, Lt, Mod, S, Symbol, floor

from redalg.expression import Axis, Where
from redalg.graphs.indices import (
    axis_to_split,
    divide_relation,
    index_bounds,
    lies_below,
    multiple_of,
    plain_index,
    plain_node,
    quotient_by,
    remainder_of,
    whole_and_rest,
)

I, J, K = (Axis(name) for name in "ijk")
SIZES: dict[Axis, Expr] = {I: S(3), J: S(4), K: S(6)}
B, N = (Symbol(name, integer=True, positive=True) for name in "bn")


def deeper(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    numbers = st.integers(1, 6).map(Integer)
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, c: c * a, inner, numbers),
        st.builds(lambda a, c: floor(a / c), inner, numbers),
        st.builds(Mod, inner, numbers),
        st.builds(lambda a, c: a - c, inner, numbers),
        st.builds(lambda a, c: a - c * floor(a / c), inner, numbers),
        st.builds(lambda a, b, c: Where(a < c, b, b + c), inner, inner, numbers),
        st.builds(lambda a, b, c: Where(a >= c, b - c, b), inner, inner, numbers),
    )


INDICES = st.recursive(st.sampled_from([I, J, K, S.One]), deeper, max_leaves=6)


@given(INDICES)
def test_it_is_the_same_number_everywhere_and_no_longer(index: Expr) -> None:
    plain = plain_index(index, SIZES)
    found = index_bounds(plain, SIZES)
    for i, j, k in product(range(3), range(4), range(6)):
        at: dict[Any, Any] = {I: i, J: j, K: k}
        value = plain.subs(at)
        assert value == index.subs(at)
        assert found is None or found[0] <= value <= found[1]
    assert len(plain.atoms(floor, Mod)) <= len(index.atoms(floor, Mod)) + 1


@given(INDICES, st.lists(st.integers(1, 8), min_size=3, max_size=3))
def test_sizes_tell_answers_apart(index: Expr, lengths: list[int]) -> None:
    """An answer for other sizes is none; sizes of other axes do not matter."""
    sizes = dict(zip((I, J, K), map(Integer, lengths), strict=True))
    assert plain_index(index, sizes) == plain_index(index, {**sizes, Axis("l"): S.One}) == plain_node(index, sizes)


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4), st.integers(1, 24).map(Integer))
def test_what_sympy_is_not_asked_to_evaluate_is_as_it_writes_it(factors: list[int], below: Expr) -> None:
    index = Integer(factors[0]) + factors[1] * I + factors[2] * J + factors[3] * K
    whole, rest = whole_and_rest(index, below)
    assert remainder_of(index, below, {}) == Mod(rest, below)
    assert quotient_by(index, below, {}) == whole + floor(rest / below)
    for term in Add.make_args(index):
        multiple = term / below
        assert multiple_of(term, below) == (multiple if multiple.is_integer else None)


PLAIN = {
    "a quotient of what is joined": (floor((6 * J + K) / 6), J),
    "its remainder": (Mod(6 * J + K, 6), K),
    "of several": (floor((24 * I + 6 * J + K) / 24), I),
    "quotients of quotients": (floor(floor((24 * I + 6 * J + K) / 6) / 4), I),
    "remainders of quotients": (Mod(floor((24 * I + 6 * J + K) / 6), 4), J),
    "a number less what its quotient takes": (J + 6 - 4 * floor((J + 6) / 4), Mod(J + 2, 4)),
    "a choice that is none": (Where(J - 4 * floor((J + 3) / 4) + 3 < 0, I, K), K),
    "a choice that is always the first": (Where(K <= 5, I, K), I),
    "a choice": (Where(K < 5, Mod(J, 4), K), Where(K < 5, J, K)),
    "a part that stays": (floor((6 * J + K) / 3), 2 * J + floor(K / 3)),
    "beyond a whole": (floor((14 * I + 2 * K + 15) / 14), I + 1),
    "its rest": (Mod(14 * I + 2 * K + 15, 14), 2 * K + 1),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_joined_comes_apart(name: str) -> None:
    index, plain = PLAIN[name]
    assert plain_index(index, SIZES) == plain


@given(
    st.sampled_from([Lt, Le, Gt, Ge]), st.integers(-2, 4), st.integers(-2, 4), st.integers(0, 30), st.integers(1, 12)
)
def test_a_divided_relation_holds_where_it_did(kind: Any, a: int, b: int, number: int, below: int) -> None:
    relation = kind(6 * a * I + b * J + K, number)
    divided = divide_relation(relation, Integer(below), SIZES)
    for i, j, k in product(range(3), range(4), range(6)):
        at: dict[Any, Any] = {I: i, J: j, K: k}
        assert divided.subs(at) == relation.subs(at)


def test_what_is_joined_is_compared_by_its_quotient() -> None:
    assert divide_relation(6 * J + K < 12, S(6), SIZES) == (J < 2)
    assert divide_relation(6 * J + K - 6 < 6, S(6), SIZES) == (J < 2)
    assert divide_relation(6 * J + K >= 12, S(6), SIZES) == (J >= 2)
    assert divide_relation(6 * J + K <= 11, S(6), SIZES) == (-J >= -1)
    assert divide_relation(6 * J + K < 13, S(6), SIZES) == (6 * J + K < 13)


def test_sizes_may_be_symbols() -> None:
    sizes: dict[Axis, Expr] = {I: B, J: N}
    assert plain_index(floor((N * I + J) / N), sizes) == I
    assert plain_index(Mod(N * I + J, N), sizes) == J
    assert lies_below(J, N, sizes)
    assert not lies_below(J, N - 1, sizes)
    assert plain_index(Mod(J, N - 1), sizes) == Mod(J, N - 1)


def test_an_axis_is_split_where_its_length_is_a_multiple() -> None:
    assert axis_to_split(floor(K / 3) + Mod(J, 2), SIZES) in ((K, 3), (J, 2))
    assert axis_to_split(Mod(K, 4), SIZES) is None
    assert axis_to_split(Mod(K, 6), SIZES) is None
    assert axis_to_split(floor(I / N), {I: B * N}) == (I, N)
