"""Products of which a block takes the tiles on one side of the diagonal: they are the same for rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.runtime.compile.compile import compile_only
from tests.lower_tile import test_tall_products
from tests.lower_tile.test_serial import results
from tests.lower_tile.test_tall_products import XA, XB, W, b, check, covariance, drawn, n, schedule, weighted

G = ra.tensor("g[a]")
FORMS: dict[str, ra.Fused] = {
    "Gram": test_tall_products.FORMS["Gram"],
    "covariance": test_tall_products.FORMS["covariance"],
    "correlation": ra.fuse(
        covariance(XA, XB) / (ra.std(XA, n) * ra.std(XB, n)),
        axes="a b",
    ),
    "weighted": ra.fuse(
        ra.sum(W * (XA - weighted(XA)) * (XB - weighted(XB)), n) / ra.sum(W, n),
        axes="a b",
    ),
    "an output that is not": ra.fuse(ra.sum(XA * XB, n) / ra.sum(XA**2 + 1, n), axes="a b"),
}
OTHERS = {
    "two tensors": test_tall_products.FORMS["of two tensors"],
    "powers": ra.fuse(ra.sum(XA**2 * XB, n), axes="a b"),
    "shifted rows": ra.fuse(ra.sum(abs(XA - G) * XB, n), axes="a b"),
}


def known(form: ra.Fused, columns: int, length: int) -> dict[str, Any]:
    sizes = {"a": columns, "b": columns, "n": length}
    return {"sizes": sizes, "dtypes": dict.fromkeys(form.cascade.inputs(), "float32")}


def is_folded(lowered: Any) -> bool:
    """Whether blocks find the numbers of their tiles from their place in a folded triangle."""
    return "row_tile :=" in str(lowered.program)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=2)
def test_half_of_the_tiles_means_the_definition(name: str, data: st.DataObject) -> None:
    """In the tile interpreter: squares of 2 to 4 tiles, ragged ones, parts that hold nothing."""
    form, draw = FORMS[name], data.draw
    columns, length = draw(st.integers(5, 14)), draw(st.integers(4, 20))
    tensors = drawn(form, (columns, columns, length), draw(st.integers(0, 9)), draw(st.sampled_from([0, 10])))
    plan = schedule(4, 4, draw(st.sampled_from([2, 8])), draw(st.integers(2, 3)))
    lowered = form.lower("c", **known(form, columns, length), plan=plan)
    tiles = -(-columns // 4)
    assert is_folded(lowered)
    assert np.prod([extent for _, extent in lowered.program.kernels[0].grid[:2]]) == tiles * (tiles + 1) // 2
    inputs = (one for one in lowered.program.parameters if one.role == "input")
    check(form, interpret(lowered.program, {one.key: tensors[one.key] for one in inputs}), tensors)


@pytest.mark.parametrize(
    ("name", "columns"),
    [("Gram", 20), ("an output that is not", 16), pytest.param("covariance", 9, marks=pytest.mark.slow)],
)
def test_the_c_target_runs_half_of_the_tiles(name: str, columns: int) -> None:
    form = FORMS[name]
    tensors = drawn(form, (columns, columns, 101), 0, 3)
    given = {key: torch.from_numpy(one) for key, one in tensors.items()}
    found = form(**given, backend="tilelang", plan=schedule(4, 4, 8, 3))
    check(form, found, tensors)
    if name != "an output that is not":
        [out] = results(form, found).values()
        np.testing.assert_array_equal(out, out.T)


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_takes_every_tile(name: str) -> None:
    form = OTHERS[name]
    lowered = form.lower("c", **known(form, 16, 40), plan=schedule(4, 4, 8, 2))
    assert not is_folded(lowered)


@pytest.mark.parametrize(
    ("rows", "columns", "tiles", "parts"),
    [
        (16, 12, (4, 4), 2),  # another extent
        (16, 16, (4, 8), 2),  # tiles that are no squares
        (16, 16, (4, 4), 1),  # blocks that write outputs themselves
        (4, 4, (4, 4), 2),  # one tile
    ],
)
def test_other_tiles_are_all_taken(rows: int, columns: int, tiles: tuple[int, int], parts: int) -> None:
    form = ra.fuse(ra.sum(ra.tensor("x[n,a]") * ra.Tensor("x")[n, b], n), axes="a b")
    known = {"sizes": {"a": rows, "b": columns, "n": 40}, "dtypes": {"x": "float32"}, "shapes": {"x": (40, 16)}}
    assert not is_folded(form.lower("c", **known, plan=schedule(*tiles, 8, parts)))


def test_rules_take_half_of_128_columns() -> None:
    """Three tiles of four; with 64 columns there is one."""
    form = FORMS["covariance"]
    assert is_folded(form.lower("H200", **known(form, 128, 200_000)))
    assert not is_folded(form.lower("H200", **known(form, 64, 200_000)))


@pytest.mark.parametrize("name", ["Gram", pytest.param("covariance", marks=pytest.mark.slow)])
def test_nvcc_spills_no_register(name: str) -> None:
    form = FORMS[name]
    assert all(one.spill_bytes == 0 for one in compile_only(form.lower("sm_90a", **known(form, 256, 200_000)).source))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("columns", [128, 200, 256])
def test_on_a_gpu(name: str, columns: int) -> None:
    form = FORMS[name]
    tensors = drawn(form, (columns, columns, 20_000), 2, 3)
    check(form, form(**{key: torch.from_numpy(one).cuda() for key, one in tensors.items()}), tensors)
