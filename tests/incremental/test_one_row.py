"""A query that is written without an axis costs what it does with an axis of one element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import floor

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import numbers_of
from tests.sweeps import draws

b, h, q, k, d, e = ra.axes("b h q k d e")
Q, K, V, S, X = map(ra.Tensor, "QKVSX")


def decode(group: int, *query: ra.Axis) -> ra.Fused:
    """Heads over keys that `group` of them share; the query has an axis of its own, or none."""
    score = ra.sum(Q[b, h, *query, d] * K[b, floor(h / group), k, d], d)
    whole = ra.sum(ra.softmax(score, k) * V[b, floor(h / group), k, e], k)
    return ra.fuse(whole, axes=" ".join(map(str, (b, h, *query, e))))


PATTERNS: dict[str, tuple[ra.Fused, dict[str, tuple[Any, ...]]]] = {
    "heads": (decode(1), {"Q": ("b", "h", "d"), "K": ("b", "h", "k", "d"), "V": ("b", "h", "k", "e")}),
    "shared heads": (decode(2), {"Q": ("b", "h", "d"), "K": ("b", 2, "k", "d"), "V": ("b", 2, "k", "e")}),
    "pooled": (ra.fuse({"mean": (ra.sum(ra.softmax(S[b, k], k) * X[b, k, e], k), "b e"),
                        "lse": (ra.logsumexp(S[b, k], k), "b")}), {"S": ("b", "k"), "X": ("b", "k", "e")}),
    "moments": (ra.fuse(ra.sum(ra.softmax(S[b, k], k) * X[b, k, e] ** 2, k), axes="b e"),
                {"S": ("b", "k"), "X": ("b", "k", "e")}),
}  # fmt: skip


def problem(name: str, sizes: dict[str, int], dtype: str, target: str) -> Any:
    """The pattern lowered for sizes."""
    form, dimensions = PATTERNS[name]
    shapes = {key: tuple(sizes.get(one, one) for one in shape) for key, shape in dimensions.items()}
    return form.lower(target, sizes, dict.fromkeys(dimensions, dtype), shapes=shapes)


@settings(max_examples=draws(12), deadline=None)
@given(st.sampled_from(sorted(PATTERNS)), st.sampled_from(["float16", "float32"]), st.sampled_from(["sm_90a", "c"]),
       st.integers(1, 70), st.sampled_from([3, 32, 40]), st.integers(0, 2**31))  # fmt: skip
def test_any_program_means_the_definition(
    name: str, dtype: str, target: str, keys: int, columns: int, seed: int
) -> None:
    """In the tile interpreter: shared keys and own ones, columns enough for a tile and not."""
    form, dimensions = PATTERNS[name]
    sizes = {"b": 2, "h": 4, "d": 16, "e": columns, "k": keys}
    sizes = {axis: sizes[axis] for axis in sizes if any(axis in shape for shape in dimensions.values())}
    made, rng = problem(name, sizes, dtype, target), np.random.default_rng(seed)
    tensors = {key: rng.normal(size=[sizes.get(one, one) for one in shape]).astype(dtype)
               for key, shape in dimensions.items()}  # fmt: skip
    wanted = form.reference(**{key: one.astype("float64") for key, one in tensors.items()})
    found = interpret(made.program, tensors)
    outputs = wanted._asdict() if hasattr(wanted, "_asdict") else {"out": wanted}
    for key, one in outputs.items():
        np.testing.assert_allclose(found[key].astype("float64"), one, atol=4e-3 if dtype == "float16" else 2e-5)


@pytest.mark.parametrize("group", [1, 4])
def test_a_query_without_an_axis_has_the_kernel_of_an_axis_of_one(group: int) -> None:
    sizes = {"b": 32, "h": 32, "k": 8192, "d": 128, "e": 128}
    keys = dict.fromkeys("KV", (32, 32 // group, 8192, 128))
    dtypes = dict.fromkeys("QKV", "float16")
    without = decode(group).lower("H200", sizes, dtypes, shapes={"Q": (32, 32, 128), **keys}).plan
    with_axis = decode(group, q).lower("H200", {**sizes, "q": 1}, dtypes, shapes={"Q": (32, 32, 1, 128), **keys}).plan
    numbers = [replace(numbers_of(one), binding=None) for one in (without, with_axis)]
    assert numbers[0] == numbers[1]
    assert numbers_of(without).multiplies


@pytest.mark.parametrize(("columns", "dtype"), [(3, "float16"), (256, "float32")])
def test_few_columns_and_wide_numbers_are_summed_as_they_were(columns: int, dtype: str) -> None:
    """A tile of 16 columns computes 13 for nothing; and of float32 there are no matrix units."""
    plan = problem("pooled", {"b": 256, "k": 4096, "e": columns}, dtype, "H200").plan
    assert not numbers_of(plan).multiplies
