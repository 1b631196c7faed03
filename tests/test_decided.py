"""Cascades that earlier versions left undecided: each explains itself, and means what it says of no elements too."""

import pickle

import numpy as np
import pytest
from sympy import Expr

import redalg as ra
from redalg.expression import UNDEFINED, Reduce
from tests.decided import CASCADES, ROWS, defined


@pytest.mark.parametrize("expr", CASCADES, ids=str)
def test_it_explains_itself(expr: Expr) -> None:
    verdict = ra.analyze(expr)
    assert isinstance(verdict, ra.Exact)
    assert "one pass over n" in verdict.fused.explain()
    assert verdict.fused._repr_latex_()


@pytest.mark.parametrize("expr", CASCADES, ids=str)
def test_no_elements_have_the_value_of_the_definition(expr: Expr) -> None:
    fused = ra.fuse(expr)
    none = {name: np.zeros((ROWS, 0)) for name in fused.cascade.inputs()}
    with np.errstate(all="ignore"):
        wanted = defined(expr, none, length=0)
        got = fused(**none, backend="numpy")
    np.testing.assert_array_equal(np.array(got, dtype=np.float64), wanted)


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
