"""Operations of a form are those of its formulas, counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from sympy import Max, exp

import redalg as ra
from redalg.explain.cost import counts_beside_products, matrix_products, row_products
from redalg.strategies.model.instructions import names
from redalg.strategies.model.operations import form_operations

b, q, k, d, e = ra.axes("b q k d e")
Q, K, V, x, y, z = ra.tensors("Q[q,d] K[k,d] V[k,e] x[b,k] y[b,k] z[d]")
SIZES = {"b": 2, "q": 3, "k": 5, "d": 7, "e": 11}
CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "a sum": (lambda: ra.fuse(ra.sum(x, k), axes="b"), 2 * 5),
    "a dot product": (lambda: ra.fuse(ra.sum(x * y, k), axes="b"), 2 * 2 * 5),
    "a maximum of a choice": (lambda: ra.fuse(ra.max(Max(x, y), k), axes="b"), 2 * 2 * 5),
    "logsumexp": (lambda: ra.fuse(ra.logsumexp(x, k), axes="b"), 4 * 2 * 5),  # max; difference, exponential, sum
    "a part of two terms": (
        lambda: ra.fuse({"s": (ra.sum(exp(x) * y, k), "b"), "t": (ra.sum(exp(x), k), "b")}), 2 * 5 * 6),
    "a matrix product": (lambda: ra.fuse(ra.sum(K * V, k), axes="d e"), 2 * 5 * 7 * 11),
    "a product, a softmax, a product": (
        lambda: ra.fuse(ra.sum(ra.softmax(ra.sum(Q * K, d), k) * V, k), axes="q e"),
        3 * 5 * (2 * 7 + 4 + 2 * 11)),
    "the same of a single row": (
        lambda: ra.fuse(ra.sum(ra.softmax(ra.sum(z * K, d), k) * V, k), axes="e"),
        5 * (2 * 7 + 4 + 2 * 11)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_of_the_formula(name: str) -> None:
    build, wanted = CASES[name]
    form = build().form
    assert form_operations(form, SIZES) == wanted
    products = [*matrix_products(form), *row_products(form)]
    shown = [(names(*factors), 2) for _, _, factors in products] + [*counts_beside_products(form).items()]
    assert sum(count * prod(SIZES[axis] for axis in axes) for axes, count in shown) == wanted  # as `explain` has it


def test_a_single_row_is_said_to_be_a_product() -> None:
    scores = ra.fuse(ra.sum(ra.softmax(ra.sum(z * K, d), k) * V, k), axes="e")
    said = scores.explain("cost")
    assert said.count("matrix product") == said.count("of a single row") == 2
    assert "product" not in ra.fuse(ra.sum(x * y, k), axes="b").explain("cost")


def test_two_passes_count_both() -> None:
    fused = ra.fuse(ra.mean(abs(x - ra.mean(x, k)), k), axes="b", passes=2)
    assert [form_operations(form, SIZES) for form in fused.passes] == [2 * 5, 2 * 2 * 5]


def test_an_axis_of_a_size_of_its_own_needs_none() -> None:
    short = ra.axis("short", size=4)
    assert form_operations(ra.fuse(ra.sum(ra.tensor("z[short]"), short), axes="").form, {}) == 4
