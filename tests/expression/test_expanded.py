"""Terms written out node by node are what SymPy's `expand` makes of them, and counts are those of what is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sympy import Add, Expr, Max, Symbol, log

from redalg.errors import ExpressionError
from redalg.expression.contents import operations_of, reductions_of
from redalg.expression.expanded import addends_of, expansion
from redalg.expression.rebuild import COMPARED_LIMIT, extremum_as_written
from tests.fuzz import one_axis, two_axes

a, b, c = (Symbol(name, extended_real=True) for name in "abc")
SEEDS = 12


def terms() -> Iterator[Expr]:
    """The terms of random cascades."""
    for seed in range(SEEDS):
        for generator in (one_axis, two_axes):
            try:
                outputs = generator.case(seed).outputs
            except ExpressionError:
                continue
            yield from (one.expr for expr, _ in outputs.values() for one in reductions_of(expr))


def test_terms_are_written_out_as_by_sympy() -> None:
    found = [term for term in terms() if isinstance(term, Expr)]
    changed = [term for term in found if term.expand() != term]
    assert len(changed) > SEEDS
    assert [expansion(term) for term in changed] == [term.expand() for term in changed]
    assert all(expansion(term) == term for term in set(found) - set(changed))


@pytest.mark.parametrize("term", [(a + b) ** 3 * (c - 1), (a + b) * (a - c) * c, a * b, (a + log(b + c)) ** 2])
def test_addends_are_at_least_those_of_the_expansion(term: Expr) -> None:
    assert addends_of(term) >= len(Add.make_args(term.expand()))
    assert addends_of(expansion(term)) == len(Add.make_args(term.expand()))


@pytest.mark.parametrize("term", [a - b, -a * b, a / b, a**-2, 2 * a / 3 - b, log(a + 1) / (b - c), -a - b])
def test_operations_are_counted_as_by_sympy(term: Expr) -> None:
    assert operations_of(term) == term.count_ops()


def test_a_large_maximum_keeps_its_numbers_and_drops_what_another_holds() -> None:
    large = Add(*(log(a + number) for number in range(COMPARED_LIMIT)))
    assert extremum_as_written(Max, [large, Max(1, 2), Symbol("d", extended_real=True), Max(3, 0)]).args[0] == 3
    assert extremum_as_written(Max, [large, Max(a, b, evaluate=False), Max(b, large, evaluate=False)]) == Max(
        large, a, b
    )
