"""Sums of products whose rows lie in groups: one place for every element, in kernels of GPUs that compile."""

from __future__ import annotations

import numpy as np
import pytest

from redalg.lower_tile.ir.program import Buffer
from redalg.lower_tile.passes.grouped import divides_in_groups
from tests.lower_tile.test_centres import CORRELATION, result
from tests.lower_tile.test_tall_products import FORMS


def text_of(name: str, target: str, columns: int = 64, dtype: str = "float32") -> str:
    form = FORMS[name]
    sizes = {"n": 1_000_000, "a": columns, "b": columns}
    return str(form.source(target, sizes, dict.fromkeys(form.cascade.inputs(), dtype)))


@pytest.mark.parametrize(("target", "has_groups"), [("H200", True), ("sm_86", True), ("c", False)])
def test_sums_of_products_lie_in_groups_on_gpus(target: str, has_groups: bool) -> None:
    assert (' = grouped((64, 64), "float32")' in text_of("covariance", target)) is has_groups


@pytest.mark.parametrize(
    ("shape", "dtype", "threads", "divides"),
    [
        ((64, 64), "float32", 64, True),
        ((64, 64), "float64", 128, True),
        ((64, 32), "float32", 64, False),
        ((8, 64), "float32", 64, False),
        ((64,), "float32", 64, False),
        ((64, 64), "float32", 40, False),
    ],
)
def test_a_tile_divides_into_groups(shape: tuple[int, ...], dtype: str, threads: int, divides: bool) -> None:
    assert divides_in_groups(Buffer("s", "fragment", shape, dtype), threads) is divides


@pytest.mark.parametrize(("dtype", "threads"), [("float32", 64), ("float64", 128)])
def test_every_element_has_a_place_of_its_own(dtype: str, threads: int) -> None:
    """The layout that the header writes, evaluated: rows of a thread come in groups of one load."""
    text = text_of("covariance", "H200", dtype=dtype)
    body = text[text.index("def grouped") : text.index("# ---- end of binding")]
    layout = body[body.index("lambda i, j: (") + len("lambda i, j: ") : body.index("))})") + 1]
    wide = 16 // np.dtype(dtype).itemsize
    known = {"wide": wide, "width": 64 // 16, "groups": threads // 16}
    places = {(i, j): eval(layout, {}, {**known, "i": i, "j": j}) for i in range(64) for j in range(64)}
    assert len(set(places.values())) == 64 * 64
    assert {thread for thread, _ in places.values()} == set(range(threads))
    assert {place for _, place in places.values()} == set(range(64 * 64 // threads))
    assert all(places[i, 0][0] == places[i - i % wide, 0][0] for i in range(64))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("digits", ["float16", "float32"])
@pytest.mark.parametrize("length", [500, 4096, 5000])
def test_numbers_of_few_digits_keep_them(length: int, digits: str) -> None:
    """The centre is one of the data: differences from it have few digits, and their sums round no element alike.

    The kernels of the longer data take each tile in two runs.
    """
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(5, 1, (length, columns)).astype(digits).astype("float32")
               for name, columns in (("x", 5), ("y", 6))}  # fmt: skip
    tensors["y"][:, :5] += tensors["x"]
    wanted = CORRELATION.reference(**{name: one.astype("float64") for name, one in tensors.items()})
    np.testing.assert_allclose(result(CORRELATION, tensors, None, "H200"), wanted, atol=5e-7)
