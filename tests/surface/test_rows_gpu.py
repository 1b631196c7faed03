"""On a GPU: every row of the tables of cascades, as kernels, beside its definition in plain NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import redalg as ra
from tests.cases import held_out, review_patterns, reviews
from tests.cases.rows import FACTOR, FLOOR, Row, error

pytestmark = pytest.mark.gpu


def plainly(table: dict[str, tuple[Any, str, Any]], seed: int) -> dict[str, Row]:
    """The rows of a table of (expression, names, definition), on normal numbers; weights are positive."""
    rng = np.random.default_rng(seed)

    def drawn(name: str) -> np.ndarray:
        values = rng.standard_normal((held_out.ROWS, held_out.LENGTH))
        return np.exp(values) if name in "wz" else values

    return {name: Row(expr, "b", {one: drawn(one) for one in names.split()}, definition)
            for name, (expr, names, definition) in table.items()}  # fmt: skip


TABLES: dict[str, Row] = {
    **reviews.VALUES,
    **review_patterns.PATTERNS,
    **plainly(held_out.EXPONENTIALS, 0),
    **plainly(held_out.SEVERAL, 3),
}
KERNELS = {name: row for name, row in TABLES.items() if row.kernel}


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_has_its_value(name: str) -> None:
    """float64 within the row's own bound; float32 within 20 times what the definition loses in float32."""
    row = KERNELS[name]
    fused = ra.fuse(row.expr, axes=row.axes, **({} if row.passes is None else {"passes": row.passes}))
    assert error(on_the_device(row, fused, np.float64), row.defined(np.longdouble)) <= max(row.close, 1e-8)
    if row.single:
        rounded = replace(row, data=row.arrays(np.float32))
        wanted = rounded.defined(np.longdouble)
        bound = FLOOR + FACTOR * error(rounded.defined(np.float32), wanted)
        assert error(on_the_device(rounded, fused, np.float32), wanted) <= bound


def on_the_device(row: Row, fused: ra.Fused, dtype: type[np.floating]) -> np.ndarray:
    given = {name: torch.from_numpy(one.copy()).cuda() for name, one in row.arrays(dtype).items()}
    sizes = {"sizes": dict(row.sizes)} if row.sizes else {}
    made = fused(**given, **row.scalars, **sizes)
    assert made.is_cuda
    return made.cpu().numpy()
