"""Padded products: a part of one is the product of what was padded, and all that is none stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given, settings
from hypothesis import strategies as st

from redalg.graphs.analysis import Kind
from redalg.graphs.interpret import interpret_program
from redalg.graphs.padding import remove_padding
from redalg.graphs.program import TensorProgram
from redalg.torch.aten import import_graph
from tests.graphs.test_exploration import check_plan, found_in
from tests.sweeps import draws
from tests.torch.test_aten import Called, drawn, exported

pytestmark = pytest.mark.filterwarnings("ignore")
Q, K, V = drawn(4, 7, 6), drawn(4, 6, 5), drawn(4, 5, 3)


def padded_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product of factors that are padded to multiples of 8, and cut, as Inductor makes it for GPUs."""
    rows, inner, columns = (-size % 8 for size in (*a.shape[1:], b.shape[2]))
    found = torch.bmm(nnf.pad(a, (0, inner, 0, rows)), nnf.pad(b, (0, columns, 0, inner)))
    return found[:, : a.shape[1]][:, :, : b.shape[2]]


def weighted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = padded_product(q, k).softmax(-1)
    return padded_product(weights, v)


def program_of(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[TensorProgram, dict[str, Any]]:
    imported, arrays = exported(Called(function), tensors)
    return imported.program, arrays


def operators_of(program: TensorProgram) -> set[str]:
    return {one.origin.partition(":")[0] for one in program.expressions()}


def check_same(program: TensorProgram, other: TensorProgram, arrays: dict[str, Any]) -> None:
    """Two programs give the same outputs."""
    other.verify()
    wanted, found = interpret_program(program, arrays), interpret_program(other, arrays)
    for name, each in wanted.items():
        torch.testing.assert_close(found[name], each, rtol=2e-6, atol=2e-6, equal_nan=True)


def test_padded_products_are_a_group_as_those_without() -> None:
    program, arrays = program_of(weighted, Q, K, V)
    assert "constant_pad_nd" in operators_of(program)
    plain = remove_padding(program)
    assert "constant_pad_nd" not in operators_of(plain)
    check_same(program, plain, arrays)
    candidates, plan = found_in(plain)
    kinds = candidates.vertices.analysis.kinds
    [group] = plan.groups
    assert sum(kinds[name] is Kind.CONTRACTION for name in group.members) == 2
    assert len(group.reads) == 3
    check_plan(plain, plan, arrays, None)


@settings(max_examples=draws(12), deadline=None)
@given(st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_any_padded_product_is_that_of_what_was_padded(sizes: list[int]) -> None:
    batch, rows, inner, columns = sizes
    program, arrays = program_of(padded_product, drawn(batch, rows, inner), drawn(batch, inner, columns))
    plain = remove_padding(program)
    assert "constant_pad_nd" not in operators_of(plain)
    check_same(program, plain, arrays)


STAYS: dict[str, Callable[..., Any]] = {
    "the whole is read": lambda q, k: torch.bmm(nnf.pad(q, (0, 0, 0, 1)), k) + 1,
    "too little is cut": lambda q, k: torch.bmm(nnf.pad(q, (0, 0, 0, 2)), k)[:, :8],
    "another place is read": lambda q, k: torch.bmm(nnf.pad(q, (0, 0, 1, 1)), k)[:, :7],
    "a number is around it": lambda q, k: torch.bmm(nnf.pad(q, (0, 2), value=1.0), nnf.pad(k, (0, 0, 0, 2))),
    "one factor is longer": lambda q, k: torch.bmm(nnf.pad(q, (0, 2)), torch.cat([k, k[:, :2]], 1)),
    "the largest is taken": lambda q, k: nnf.pad(q - 9, (0, 2)).amax(-1),
    "it is repeated": lambda q, k: torch.bmm(nnf.pad(q, (0, 0, 0, 1)), k)[:, :7].repeat(1, 2, 1),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_is_no_part_of_a_padded_product_keeps_its_meaning(case: str) -> None:
    program, arrays = program_of(STAYS[case], Q, K)
    other = remove_padding(program)
    check_same(program, other, arrays)
    assert ("constant_pad_nd" in operators_of(other)) is (case != "it is repeated")


def test_zeros_stay_where_they_meet_what_is_not_finite() -> None:
    """0·∞ is no number: of one padded factor alone the product keeps its length."""
    program, arrays = program_of(lambda q, k: torch.bmm(nnf.pad(q, (0, 1)), k), Q, drawn(4, 7, 5))
    arrays[next(name for name, each in arrays.items() if each.shape[1] == 7 and each.shape[2] == 5)][:] = torch.inf
    other = remove_padding(program)
    assert "constant_pad_nd" in operators_of(other)
    check_same(program, other, arrays)


def test_lengths_that_vary_are_left_as_they_are() -> None:
    length = torch.export.Dim("length", min=2, max=9)
    found = torch.export.export(
        Called(padded_product), (Q, K), dynamic_shapes=(({0: length}, {0: length}),)
    ).run_decompositions()
    program = import_graph(found.graph).program
    arrays = dict(zip(program.inputs, (drawn(3, 7, 6), drawn(3, 6, 5)), strict=True))
    plain = remove_padding(program)
    assert "constant_pad_nd" not in operators_of(plain)
    check_same(program, plain, arrays)
