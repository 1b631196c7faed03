"""What the engine does once, or not at all, gives what doing it every time would give."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Add, Dummy, Expr, Max, Min, S, Symbol, cosh, exp, oo, sympify, tanh
from sympy.core.assumptions import _assume_defined
from sympy.core.basic import Basic

import redalg as ra
from redalg.decompose.parse.parse import parse
from redalg.decompose.parse.written import named_outputs
from redalg.decompose.samples.arithmetic import Digits, Floats
from redalg.decompose.samples.digits import context
from redalg.decompose.samples.rank import FLOATS, Setting, rank
from redalg.decompose.separate import laurent
from redalg.decompose.separate.finite import outermost_first
from redalg.decompose.separate.signs import absolute
from redalg.decompose.verdict.verdict import decompose
from redalg.errors import NotDecided, NotFusible
from redalg.expression import Axis, Label, Reduce, Value, Where
from redalg.expression.contents import free_axes, nodes_of, of_kind, reductions_of
from redalg.expression.known import FACTS
from redalg.expression.rebuild import extremum_as_written, plain_extremum, replace_nodes, with_args
from redalg.incremental.derive.derive import derive
from redalg.incremental.derive.losable import Losable
from tests.cases.random_cascades import case
from tests.verdict_texts import PATTERNS

SEEDS = range(60)
n = ra.axes("n")
x, y = ra.tensors("x[b,n] y[b,n]")
D_OF_X = Value(Label("d"))


def written(seed: int) -> list[Expr]:
    return [expr for expr, _ in case(seed).outputs.values()]


def lifted(node: Basic) -> Basic:
    """The node with values in the stead of reductions, by kind and term, as SymPy evaluates it."""
    if isinstance(node, Reduce):
        return Value(Label(f"{node.kind}{len(str(node)) % 7}"), *sorted(free_axes(node), key=str))
    return node.func(*map(lifted, node.args)) if node.args else node


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_with_other_arguments_is_what_sympy_writes(seed: int) -> None:
    """Values that coincide, as one in seven do here, are collected; what stays apart is put in order."""
    for node in [one for expr in written(seed) for one in nodes_of(expr) if one.args and not isinstance(one, Reduce)]:
        args = [lifted(arg) for arg in node.args]
        assert with_args(node, args) == node.func(*args)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_renaming_is_what_sympy_writes(seed: int) -> None:
    """`xreplace` evaluates every node that it makes."""
    for expr in written(seed):
        inner = {one for node in reductions_of(expr) for one in reductions_of(node.expr)}
        innermost = [one for one in inner | {*of_kind(Reduce, expr)} if not reductions_of(one.expr)]
        names: dict[Any, Value] = {
            one: Value(Label(f"value_{place}"), *sorted(free_axes(one), key=str))
            for place, one in enumerate(sorted(innermost, key=str))
        }
        assert replace_nodes(expr, names) == expr.xreplace(names)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_graph_holds_what_its_tree_holds(seed: int) -> None:
    for expr in written(seed):
        assert of_kind(Reduce, expr) == expr.atoms(Reduce)
        assert of_kind(Where, expr) == expr.atoms(Where)
        assert of_kind(Add, expr) == expr.atoms(Add)
        assert {one for one in nodes_of(expr) if not one.args} == expr.atoms()
        assert free_axes(expr) == {one for one in expr.free_symbols if isinstance(one, Axis)}


@pytest.mark.parametrize(
    "node", [x, ra.sum(x, n), Value(Label("d")), ra.where(x > 0, x, y), ra.cast(x, "int8"), ra.let("a", x)]
)
def test_classes_answer_as_an_extended_real_symbol_does(node: Basic) -> None:
    plain = Symbol("plain", extended_real=True)
    for fact in _assume_defined:
        assert getattr(node, f"is_{fact}") == getattr(plain, f"is_{fact}"), fact


def test_every_fact_that_may_be_asked_is_declared() -> None:
    plain = Symbol("plain", extended_real=True)
    assert {fact for fact in _assume_defined if getattr(plain, f"is_{fact}") is None} - {"polar"} <= set(FACTS)


@pytest.mark.parametrize("parts", [(x,), (x, y), (x, x), (x, Max(x, y)), (x, Min(x, y)), (x, 0 * x), (x**2, 0 * x + 1)])
def test_an_extremum_of_parts_without_an_order_is_what_sympy_writes(parts: tuple[Expr, ...]) -> None:
    assert extremum_as_written(Max, list(parts)) == Max(*parts)
    assert extremum_as_written(Min, list(parts)) == Min(*parts)


@pytest.mark.parametrize("parts", [(x, 0), (x**2, 0), (-exp(x), 0), (x, y, 1), (x, exp(y), -1), (x, -oo), (x, oo, y)])
def test_an_extremum_beside_a_number_is_what_sympy_writes(parts: tuple[Expr, ...]) -> None:
    assert extremum_as_written(Max, map(sympify, parts)) == Max(*parts)
    assert extremum_as_written(Min, map(sympify, parts)) == Min(*parts)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_extremum_is_put_in_the_order_of_sympy(seed: int) -> None:
    for node in of_kind(Max, *written(seed)) | of_kind(Min, *written(seed)):
        made = plain_extremum(node.func, node.args)
        assert (made, made.args, hash(made)) == (node, node.args, hash(node))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_node_is_met_where_it_stands_first(seed: int) -> None:
    def preorder(node: Basic) -> Iterator[Basic]:
        yield node
        for arg in node.args:
            yield from preorder(arg)

    for expr in written(seed):
        assert list(outermost_first(expr)) == list(dict.fromkeys(preorder(expr)))


@pytest.mark.parametrize("copies", [0, 2])
@pytest.mark.parametrize(
    "term", [x, S.One, D_OF_X, x * D_OF_X * y, Max(x, D_OF_X, y), (1 + x**2) ** tanh(D_OF_X), x + n + D_OF_X]
)
def test_a_matrix_is_that_of_the_rows_of_all_elements(term: Expr, copies: int) -> None:
    setting = Setting((n,), (D_OF_X,), {D_OF_X: ("sum", x)}, copies=copies)
    for kind in (Floats(np.float64), Floats(np.longdouble), Digits())[: 3 if not copies else 2]:
        [first], [second] = (setting.samples([term], FLOATS[0], (kind,), positive=False) for _ in range(2))
        rows = second.whole(term)[: second.draws.rows].astype(float)
        np.testing.assert_allclose(first.matrix(term).astype(float), rows, rtol=1e-12)


@pytest.mark.parametrize("known", [{"extended_real": True}, {"nonnegative": True}, {"positive": True}])
@pytest.mark.parametrize(
    "u", [x + y, x - y, y - x, x**2 - y, x**2 + 1, -(x**2) - 1, x * y, tanh(x - y), tanh(x**2), x, -x / y, x - oo]
)
def test_an_absolute_value_is_what_sympy_writes(u: Expr, known: dict[str, bool]) -> None:
    opened = u.xreplace({y: Dummy("u", **known)})
    assert absolute(u, {}) == Abs(u)
    assert absolute(opened, {}) == Abs(opened)


@pytest.mark.parametrize(
    "function", [Abs, tanh, lambda u: Max(u, y), lambda u: (u - y) ** 2 / 2, lambda u: cosh(u - y)]
)
@pytest.mark.parametrize("known", [{"extended_real": True}, {"nonnegative": True}, {"positive": True}])
def test_a_symbol_in_the_stead_of_another_is_what_sympy_writes(function: Any, known: dict[str, bool]) -> None:
    """One of which SymPy knows more is put in with what follows from that."""
    before, after = Dummy("g", extended_real=True), Dummy("slot", **known)
    expr = 3 * function(2 * before + x) + function(before)
    assert replace_nodes(expr, {before: after}) == expr.xreplace({before: after})


def forms(asked: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The form with the pivots that `Losable` lets through, and with all."""
    try:
        decompositions = [decompose(parse(named_outputs(*asked)[0])) for _ in range(2)]
        made = [derive(decompositions[0])]
    except (NotFusible, NotDecided):
        return []
    with monkeypatch.context() as patch:
        patch.setattr(Losable, "among", lambda _, atoms: frozenset(atoms))
        return [*made, derive(decompositions[1])]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.name)
def test_a_pivot_that_is_not_tried_would_not_have_stayed(pattern: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({str(form) for form in forms(pattern.asked(), monkeypatch)}) <= 1


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_pivot_that_is_not_tried_would_not_have_stayed_in_random_cascades(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({str(form) for form in forms((case(seed).outputs, None), monkeypatch)}) <= 1


def test_pivots_are_tried_where_they_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The covariance, and the dot product of what has a mean taken away, try both generators; Σ x·y alone none."""
    asked: list[frozenset[int]] = []
    among = Losable.among

    def noted(self: Losable, atoms: Any) -> frozenset[int]:
        asked.append(among(self, atoms))
        return asked[-1]

    monkeypatch.setattr(Losable, "among", noted)
    count = n.extent
    for expr, tried in (
        (ra.sum(x * y, n) / count - ra.sum(x, n) * ra.sum(y, n) / count**2, 2),
        (ra.sum((x - ra.mean(x, n)) * y, n), 1),
        (ra.sum(x * y, n) / ra.sum(x**2, n), 0),
    ):
        asked.clear()
        ra.fuse(expr)
        assert max(map(len, asked)) == tried


NUMBERS = st.integers(-9, 9) | st.fractions(-9, 9, max_denominator=9)


@given(NUMBERS, NUMBERS.filter(bool), st.integers(-4, 4))
def test_quotients_and_powers_are_exact(a: laurent.Ratio, b: laurent.Ratio, exponent: int) -> None:
    assert laurent.ratio(a, b) == Fraction(a) / Fraction(b)
    assert laurent.whole_power(b, exponent) == Fraction(b) ** exponent
    for made in (laurent.ratio(a, b), laurent.whole_power(b, exponent)):
        assert isinstance(made, int | Fraction)


@pytest.mark.parametrize("seed", SEEDS)
def test_polynomials_hold_exact_numbers(seed: int) -> None:
    verdict = ra.analyze(case(seed).outputs)
    for one in verdict.fused.decomposition.separations if hasattr(verdict, "fused") else ():
        for (of_x, of_d), c in one.polynomial.items():
            assert all(isinstance(number, int | Fraction) for number in (c, *(q for _, q in of_x + of_d)))


@given(st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=4), st.integers(-40, 40))
def test_rank_in_integers_is_the_rank(rows: list[list[Fraction]], magnitude: int) -> None:
    """Whatever the magnitude: the rows, and the same rows again, as numbers of 120 digits."""
    from sympy import Matrix, Rational

    exact = Matrix([[Rational(*Fraction(one).as_integer_ratio()) for one in row] for row in rows])
    ctx = context()
    unit = ctx.mpf(10) ** magnitude
    numbers = [[unit * ctx.mpf(one.p) / one.q for one in exact.row(place)] for place in range(exact.rows)]
    assert rank(numbers + numbers) == exact.rank()
