"""Selections in the tile program, against the definition: ties, masks, NaN, rows of nothing, in one part and three."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import numbers_of, with_choices
from tests.cases.selections import FUSED, KINDS, LENGTHS, SELECTIONS, example, relaxed
from tests.sweeps import draws


@pytest.mark.sweep(3)
@relaxed
@given(
    st.sampled_from(KINDS),
    st.sampled_from(LENGTHS[1:]),
    st.integers(0, 99),
    st.sampled_from([1, 3]),
    st.sampled_from(["float32", "float64"]),
)
@pytest.mark.parametrize("name", [name for name in SELECTIONS if "arg" in name or "top" in name])
def test_the_tile_program_selects_what_the_definition_does(
    name: str, kind: str, length: int, seed: int, segments: int, dtype: str
) -> None:
    fused = FUSED[name]
    data = {one: array for one, array in example(kind, length, seed, dtype).items() if one in fused.cascade.inputs()}
    options = {"sizes": {"t": 3, "n": length}, "dtypes": {one: str(array.dtype) for one, array in data.items()}}
    plan = with_choices(fused.lower("c", **options).plan, level="block", segments=segments, block_streamed=16)
    out = interpret(fused.lower("c", **options, plan=plan).program, data)["out"]
    np.testing.assert_array_equal(out, fused.reference(**data).astype(out.dtype))


n, j = ra.axis("n"), ra.axis("j", size=4)
x = ra.tensor("x[t,n]")
BOTH = ra.fuse({"best": (ra.topk(x, n, j)[0], "t j"), "first": (ra.first(x, n), "t")})


v = ra.tensor("v[n,e]")
JOINS = {
    "both": BOTH,
    "first and last": ra.fuse({"first": (ra.first(x, n), "t"), "last": (ra.last(ra.where(x > 0, x, 0), n), "t")}),
    "product": ra.fuse(ra.prod(1 + x / 8, n)),
    "beside columns": ra.fuse(ra.prod(1 + x / 8, n) * ra.sum(x * v, n), axes="t e"),
    "place, beside columns": ra.fuse(ra.argmax(x, n) * ra.last(x, n) + ra.sum(x * v, n), axes="t e"),
}


@pytest.mark.sweep(2)
@settings(relaxed, max_examples=draws(12))
@given(
    st.sampled_from([1, 5, 16, 40]),
    st.integers(0, 99),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([("block", 1), ("block", 3), ("row", 1)]),
)
@pytest.mark.parametrize("name", JOINS)
def test_elements_are_joined_tile_by_tile(name: str, length: int, seed: int, tile: int, by: tuple[str, int]) -> None:
    """e ⊕ (a tree of neighbours) at every level and part by part, in order, beside ranks and matrix products."""
    fused, rng, (level, segments) = JOINS[name], np.random.default_rng(seed), by
    data = {
        "x": rng.uniform(-2, 2, (3, length)).astype("float32"),
        "v": rng.uniform(-1, 1, (length, 5)).astype("float32"),
    }
    data = {one: array for one, array in data.items() if one in fused.cascade.inputs()}
    extents = {"t": 3, "n": length, "e": 5}
    sizes = {axis.name: extents[axis.name] for axis in fused.cascade.axes() if axis.size is None}
    options: Any = {"sizes": sizes, "dtypes": dict.fromkeys(data, "float32")}
    plan = fused.lower("c", **options).plan
    whole = level == "row" and not numbers_of(plan).multiplies
    plan = with_choices(plan, level="row" if whole else "block", block_streamed=max(tile, length) if whole else tile)
    plan = with_choices(plan, segments=segments)
    out, wanted = interpret(fused.lower("c", **options, plan=plan).program, data), fused.reference(**data)
    for one in fused.cascade.outputs:
        want = getattr(wanted, one.name) if len(fused.cascade.outputs) > 1 else wanted
        np.testing.assert_allclose(out[one.name], want, rtol=2e-5, atol=2e-5)


def test_lanes_hold_one_element_each() -> None:
    options: Any = {"sizes": {"t": 3, "n": 100}, "dtypes": {"x": "float32"}}
    plan = with_choices(FUSED["argmax"].lower("c", **options).plan, level="thread")
    with pytest.raises(ra.PlanError, match=r"which keeps several elements, .* Use level 'block'"):
        FUSED["topk values"].lower("c", **options, plan=plan)


@pytest.mark.parametrize("name", ["topk values", "topk indices"])
def test_doubles_that_differ_in_their_last_bit_are_told_apart(name: str) -> None:
    """The order of 64 bits and the place beside it, on the C target too."""
    data = {"x": 1 + np.arange(40)[None] % 7 * np.finfo(float).eps * np.ones((3, 1))}
    np.testing.assert_array_equal(FUSED[name](**data, backend="tilelang"), FUSED[name].reference(**data))


@pytest.mark.parametrize("target", ["c", "sm_90a"])
def test_what_is_kept_along_an_axis_that_no_output_has_is_refused_by_name(target: str) -> None:
    """Results that are reduced after the pass ended in a KeyError, or in a read that TileLang gets wrong."""
    n, e = ra.axes("n e")
    j = ra.axis("j", size=2)
    y, z = ra.tensors("y[b,n,e] z[b,n]")
    values, _ = ra.topk(z, n, j)
    for expr, said in ((ra.first(ra.sum(y * ra.mean(z, n), e), n), "`first_0` is kept for every e, which no"),
                       (ra.sum(values, j), "`topk_values_0` is kept for every j"),
                       (ra.sum(z * ra.min(values, j), n), "or use backend='torch'")):  # fmt: skip
        fused = ra.fuse(expr, axes="b")
        sizes = {axis.name: 4 for axis in fused.cascade.axes() if axis.size is None}
        with pytest.raises(ra.PlanError, match=said):
            fused.source(target, sizes=sizes, dtypes="float32")


def test_a_place_beyond_the_integers_of_float32_is_exact() -> None:
    """A place that several components read stays an integer."""
    both = ra.fuse({"first": (ra.argmax(x, n), "t"), "last": (ra.argmin(x, n), "t"), "total": (ra.sum(x, n), "t")})
    place = 2**24 + 3
    data = np.zeros((1, place + 2), np.float32)
    data[0, place] = 2.0
    found = both(x=data, backend="tilelang")
    assert [one.item() for one in found] == [place, 0, 2.0]
