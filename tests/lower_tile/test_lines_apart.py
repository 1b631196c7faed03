"""Numbers of rows and of streamed elements that an operand reads are made once each, in shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Ne, exp, oo

import redalg as ra
from redalg.expression import Cast
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Parallel, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.schedule import numbers_of, with_choices

i, j, d, e = ra.axes("i j d e")
Q, K, V, R, C = ra.tensors("q[i,d] k[j,d] v[j,e] r[i] c[j]")
SIZES = {"i": 100, "j": 150, "d": 32, "e": 32}
SCORES = ra.sum(Q * K, d)
DTYPES = {"q": "float16", "k": "float16", "v": "float16", "r": "float32", "c": "float32"}
WEIGHTS = {
    "of rows": ra.where(Ne(R, -oo), exp(SCORES / 32 - R), 0) / (1 + R**2),
    "of columns": exp(SCORES / 32 - C) / (1 + C**2),
    "of both": (SCORES * R / (2 + R**2) + C) * ra.where(j <= i, exp(SCORES / 32 - C * C), 0),
}


@pytest.mark.parametrize("choices", [{}, {"warp_specialized": True, "stages": 2}], ids=str)
@pytest.mark.parametrize("name", WEIGHTS)
def test_lines(name: str, choices: dict[str, int]) -> None:
    form = ra.fuse(ra.sum(Cast(WEIGHTS[name], "float16") * V, j), axes="i e")
    read = [one.name for one in form.cascade.elements()]
    dtypes = {key: one for key, one in DTYPES.items() if key in read}
    plan = with_choices(form.plan(SIZES, dtypes), segments=1, **choices)
    lowered = form.lower("sm_90a", sizes=SIZES, dtypes=dtypes, plan=plan)
    loops = [one for kernel in lowered.program.kernels for one in nested_statements(kernel.body)
             if isinstance(one, Parallel)]  # fmt: skip
    inputs = {one.name for one in lowered.program.parameters if one.role == "input"}
    for loop in loops:
        reads = {load.name for store in loop.body for load in store.expr.atoms(Load)} & inputs
        by_columns = (
            numbers_of(plan).warp_specialized and "c" in reads
        )  # threads fill no shared tile in a loop of such warps
        assert len(loop.indices) == 1 or not reads & {"r", "c"} or by_columns
    generator = np.random.default_rng(0)
    shapes = {"q": (100, 32), "k": (150, 32), "v": (150, 32), "r": (100,), "c": (150,)}
    data = {key: generator.standard_normal(shapes[key]).astype(np.float32) for key in dtypes}
    data |= {key: one.astype(np.float16) for key, one in data.items() if dtypes[key] == "float16"}
    wanted = form.reference(**{key: one.astype(np.float64) for key, one in data.items()})
    np.testing.assert_allclose(
        interpret(lowered.program, data)["out"], wanted, rtol=0, atol=4e-3 * np.abs(wanted).max()
    )
