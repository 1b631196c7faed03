"""Names for numbers of an element: where a kernel has many, and that they change no result."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Parallel, nested_statements
from redalg.lower_tile.passes.elements import MANY

n, l = ra.axes("n l")
m, r = ra.tensors("m[n] r[n,l]")
CENTRE = ra.sum(m * r, n) / ra.sum(m, n)
INERTIA = ra.sum(m * ra.sum((r - CENTRE) ** 2, l), n)
SIZES = {"n": 3001, "l": 3}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_moment_of_inertia_of_one_row_has_names(target: str) -> None:
    form = ra.fuse(INERTIA, axes="")
    lowered = form.lower(target, sizes=SIZES, dtypes="float32")
    names = [[one for one in kernel.buffers if one.scope == "element"] for kernel in lowered.program.kernels]
    assert max(map(len, names)) >= MANY
    for kernel, elements in zip(lowered.program.kernels, names, strict=True):
        stores = [store for loop in nested_statements(kernel.body) if isinstance(loop, Parallel) for store in loop.body]
        for buffer in elements:
            assert [store.indices for store in stores if store.target == buffer.name] == [()]
            assert f"{buffer.name} = fragment" not in str(lowered.source)
    rng = np.random.default_rng(0)
    data = {"m": rng.random(3001, np.float32), "r": (100 + rng.standard_normal((3001, 3))).astype(np.float32)}
    exact = {name: array.astype(np.float64) for name, array in data.items()}
    np.testing.assert_allclose(interpret(lowered.program, data)["out"], form.reference(**exact), rtol=1e-5)


def test_few_numbers_keep_their_buffers() -> None:
    x = ra.tensor("x[b,n]")
    form = ra.fuse(ra.var(x, n), axes="b")
    for kernel in form.lower("sm_90a", sizes={"b": 64, "n": 3001}, dtypes="float32").program.kernels:
        assert all(buffer.scope != "element" for buffer in kernel.buffers)
