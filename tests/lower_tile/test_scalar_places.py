"""Scalars that are compared with places are exact: a float32 holds no place beyond 2^24, and no half beyond 2^23."""

from __future__ import annotations

import pytest
import torch

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from tests.cases.kernels import problem

b, n = ra.axes("b n")
x = ra.tensor("x[b,n]")
L, step = ra.scalars("L step")
FAR = 2**24
BETWEEN = FAR + 1.5
"""float32 has FAR + 2 for it."""
ROWS = torch.arange(1.0, 13).reshape(2, 6)


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize(("limit", "first"), [(BETWEEN, 2), (FAR + 3.0, 4), (FAR + 0.25, 1), (float(FAR), 1)])
def test_places_are_compared_with_scalars_exactly(backend: str, limit: float, first: int) -> None:
    """FAR + n ≤ L, of n from 0 to 5."""
    form = ra.fuse(ra.sum(ra.where(n + FAR <= L, x, 0), n), axes="b")
    wanted = ROWS[:, :first].sum(1).tolist()
    given = ROWS.numpy() if backend == "numpy" else ROWS
    assert form(x=given, L=limit, backend=backend).tolist() == wanted
    assert form.reference(x=given, L=limit).tolist() == wanted


@pytest.mark.parametrize(("limit", "first"), [(BETWEEN, 2), (FAR + 3.0, 4)])
def test_the_tile_program_compares_alike(limit: float, first: int) -> None:
    form = ra.fuse(ra.sum(ra.where(n + FAR <= L, x, 0), n), axes="b")
    program = form.lower("c", **problem(form, {"x": ROWS})).program
    out = interpret(program, {"x": ROWS.numpy(), "L": limit})["out"]
    assert out.tolist() == ROWS[:, :first].sum(1).tolist()


@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_what_is_computed_of_scalars_is_compared_exactly(backend: str) -> None:
    """step·n ≤ L with a step of 2^22 + 1/2: n = 4 is at 2^24 + 2, L beyond it by 1/2."""
    form = ra.fuse(ra.sum(ra.where(step * n <= L, x, 0), n), axes="b")
    for limit, first in ((FAR + 2.0, 5), (FAR + 1.5, 4)):
        given = ROWS.numpy() if backend == "numpy" else ROWS
        out = form(x=given, L=limit, step=2.0**22 + 0.5, backend=backend)
        assert out.tolist() == ROWS[:, :first].sum(1).tolist()


def test_a_scalar_that_is_compared_with_data_has_their_type() -> None:
    """x ≤ L in float32, as before; of one scalar in both, each comparison has its own type."""
    form = ra.fuse(ra.sum(ra.where(ra.logical_and(x <= L, n + FAR <= L * FAR), x, 0), n), axes="b")
    assert form(x=ROWS, L=1.0 + 2**-22, backend="tilelang").tolist() == form.reference(x=ROWS, L=1.0 + 2**-22).tolist()
    source = ra.fuse(ra.sum(ra.where(x <= L, x, 0), n)).source("c", sizes={b: 2, n: 6}, dtypes="float32")
    assert "L: T.float32" in source
    text = form.source("c", sizes={b: 2, n: 6}, dtypes="float32")
    assert "L: T.float64" in text
    assert 'T.cast(L, "float32")' in text
