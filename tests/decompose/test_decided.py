"""Cascades that earlier versions left undecided: each explains itself, and means what it says of no elements too."""

import pickle
from typing import Any

import numpy as np
import pytest
from sympy import Expr, sqrt

import redalg as ra
from redalg.expression import UNDEFINED, Reduce
from tests.cases.decided import CASCADES, POSITIVE, ROWS, SCANS, SHIFTED, defined, n, w, x

TOTAL = ra.sum(w, n)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("expr", CASCADES, ids=str)
def test_it_explains_itself(expr: Expr) -> None:
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Exact)
    assert "one pass over n" in verdict.fused.explain()
    assert verdict.fused._repr_latex_()


@pytest.mark.parametrize("expr", [*CASCADES, *SCANS, *SHIFTED], ids=str)
def test_no_elements_have_the_value_of_the_definition(expr: Expr) -> None:
    fused = ra.fuse(expr)
    none = {name: np.zeros((ROWS, 0)) for name in fused.cascade.inputs()}
    with np.errstate(all="ignore"):
        wanted = defined(expr, none, length=0)
        got = fused(**none, backend="numpy")
    np.testing.assert_array_equal(np.array(got, dtype=np.float64), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_that_are_all_zero_under_a_mask_weigh_nothing(dtype: type[np.floating[Any]]) -> None:
    """w > 0 is there to avoid 0/0: of weights that are all 0 the sum is 0, in a kernel too, and beside a NaN."""
    given = {"x": np.ones((ROWS, 5), dtype), "w": np.zeros((ROWS, 5), dtype)}
    given["w"][1], given["w"][2, 3], given["x"][2, 0] = 2, 1, np.nan
    for expr in (ra.sum(ra.where(w > 0, w / POSITIVE * x, 0), n), ra.sum(ra.where(w > 0, sqrt(w / TOTAL) * x, 0), n)):
        for backend in ("numpy", "torch", "tilelang"):
            got = ra.fuse(expr)(**given, backend=backend)
            wanted = np.array([0, 1 if expr.has(POSITIVE) else 5**0.5, 1, 0])
            np.testing.assert_allclose(got, wanted, rtol=8 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("expr", [one for one in CASCADES if isinstance(one, Reduce) and one.kind in ("any", "all")],
                         ids=str)  # fmt: skip
def test_truths_are_truth_values(expr: Reduce) -> None:
    fused = ra.fuse(expr)
    none = fused.finish(fused.leaf({name: np.zeros((ROWS, 0)) for name in fused.cascade.inputs()}))
    assert none.dtype == np.bool_
    assert (none == (expr.kind == "all")).all()
    ones = {name: np.ones((ROWS, 3)) for name in fused.cascade.inputs()}
    assert fused(**ones, backend="numpy").dtype == np.bool_
    assert fused.reference(**ones).dtype == np.bool_


def test_what_is_undefined_is_nan() -> None:
    assert np.isnan(float(UNDEFINED))
    assert pickle.loads(pickle.dumps(UNDEFINED)) is UNDEFINED
    assert str(2 * UNDEFINED) == "2*nan"
