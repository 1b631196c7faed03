"""The parts of dimensions that groups read, and the reductions that no group holds."""

from __future__ import annotations

import pytest
import torch
from sympy import Integer, Symbol

from redalg.errors import GraphError
from redalg.expression import where
from redalg.graphs import alone
from redalg.graphs.alone import reasons_alone
from redalg.graphs.parts import parts_read
from redalg.graphs.program import TensorType
from tests.graphs.test_exploration import found_in
from tests.graphs.test_lay import A, B, X, laid_of
from tests.torch.test_aten import Called, drawn, exported

LENGTH = Symbol("s", integer=True, positive=True)
TYPES = {"x": TensorType((Integer(8), Integer(16)), "float32")}


def test_first_places_are_a_part() -> None:
    assert parts_read(laid_of(X[A, B], {A: 5, B: 16}, 8, 16), TYPES) == {"x": ((0, 5),)}
    assert parts_read(laid_of(X[A, B], {A: 5, B: 9}, 8, 16), TYPES) == {"x": ((0, 5), (1, 9))}
    assert parts_read(laid_of(X[A, B], {A: 8, B: 16}, 8, 16), TYPES) == {}
    assert parts_read(laid_of(X[A, B + 3], {A: 8, B: 9}, 8, 16), TYPES) == {}, "a computed place"
    assert parts_read(laid_of(where(A < 8, X[A, B], 0), {A: 12, B: 16}, 8, 16), TYPES) == {}, "it runs past the end"


@pytest.mark.parametrize(
    ("term", "sizes", "message"),
    [
        (X[A, B] + X[B, A], {A: 4, B: 8}, "it reads parts of a dimension of `x`: 4, 8 of 8"),
        (X[A, B] + X[A, B + 3], {A: 8, B: 9}, "it reads parts of a dimension of `x`: 16, 9 of 16"),
        (X[A, B], {A: 8, B: LENGTH}, "an axis of s places runs past a dimension of `x`, which has 16"),
    ],
)
def test_other_parts_are_refused(term: object, sizes: dict[object, object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parts_read(laid_of(term, sizes, 8, 16), TYPES)


@pytest.mark.filterwarnings("ignore")
def test_a_reduction_without_a_group_has_a_reason() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(-1), (x[:, :5].exp() + x[:, 3:8]).amax(-1), (x / x.mean(-1, keepdim=True)).square()

    imported, _ = exported(Called(model), (drawn(6, 20),))
    candidates, plan = found_in(imported.program.live())
    found = reasons_alone(candidates, plan, {name for group in plan.groups for name in group.members})
    assert found == {
        "sum_1": alone.APART,
        "amax": "it reads parts of a dimension of `given_0`: 20, 5 of 20",
    }  # fmt: skip
    uncalled = reasons_alone(candidates, plan, ())
    assert uncalled["mean"] == alone.UNCALLED
