"""Tiles beside a product that read no tile in registers take the product's layout."""

from __future__ import annotations

from typing import Any

import redalg as ra
from redalg.lower_tile.ir.program import Parallel, TileProgram, nested_statements
from tests.cases.kernels import fused

SIZES = {"t": 2048, "c": 2048, "n": 32000}


def program_of(form: str, dtype: str, sizes: dict[str, int] = SIZES) -> TileProgram:
    one = fused(form)
    dtypes = {name: "int64" if name == "target" else dtype for name in one.cascade.inputs()}
    return one.lower("sm_90a", sizes, dtypes).program


def doubled(program: TileProgram) -> list[tuple[str, Any]]:
    """The tiles that a loop writes twice, with what it writes first."""
    loops = (one for kernel in program.kernels for one in nested_statements(kernel.body) if isinstance(one, Parallel))
    pairs = ((first, second) for loop in loops for first, second in zip(loop.body, loop.body[1:], strict=False))
    return [(first.target, str(first.expr)) for first, second in pairs if first.target == second.target]


def test_sums_of_weights_alone_are_laid_as_the_scores() -> None:
    """Two: Σ u, and Σ [n = target]·u. TileLang finds "no available layout" of them otherwise (`test_nvcc`)."""
    found = doubled(program_of("weights of scores", "bfloat16"))
    assert len(found) == 2
    assert {product for _, product in found} == {"sum_c_0[i, j]"}


def test_only_tiles_beside_products_on_tensor_cores_are() -> None:
    assert doubled(program_of("weights of scores", "float32")) == []
    assert doubled(program_of("long inner axis", "bfloat16")) == []
    assert doubled(program_of("variance", "bfloat16", {"b": 64, "n": 4096})) == []


def test_sums_that_no_row_has_leave_the_rows_to_the_others() -> None:
    """Σ u is of no row: the scores' tiles keep their 128 rows."""
    n, c = ra.axes("n c")
    scores = ra.sum(ra.tensor("X[t,c]") * ra.tensor("W[n,c]"), c)
    form = ra.fuse(ra.logsumexp(scores, n) * ra.sum(ra.tensor("u[n]"), n), axes="t")
    schedule = str(form.plan(SIZES, "bfloat16", "sm_90a"))
    assert schedule.startswith("Grid(t, 128)")
