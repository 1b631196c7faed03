"""States by lane on the data that breaks naive one-pass formulas: as exact as the bound on a lagged centre says."""

import numpy as np
import pytest
from numpy.typing import NDArray

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.place.lanes import GROUP
from redalg.strategies.schedule import with_choices
from tests.cases.data_kinds import KINDS, make, weight_trap

n = ra.axes("n")
x, w, s = ra.tensors("x[b,n] w[b,n] s[b,n]")
MEAN, P = ra.sum(w * x, n) / ra.sum(w, n), ra.softmax(s, n)
FORMS = {
    "variance": ra.fuse(ra.var(x, n), axes="b"),
    "weighted": ra.fuse(ra.sum(w * (x - MEAN) ** 2, n) / ra.sum(w, n), axes="b"),
    "exponential": ra.fuse(ra.sum(P * (x - ra.sum(P * x, n)) ** 2, n), axes="b"),
}
BOUND = 4 * (1 + GROUP) * 2.0**-24
"""Amplification by a lagged centre, times the roundings of a term (a difference, a square, two sums)."""


def error(name: str, tensors: dict[str, NDArray[np.float32]], lanes: int) -> float:
    """Relative error against the definition in float64 (absolute where that is 0)."""
    form, inputs = FORMS[name], {one: np.ascontiguousarray(array) for one, array in tensors.items()}
    rows, length = inputs["x"].shape
    options = {"sizes": {"b": rows, "n": length}, "dtypes": dict.fromkeys(inputs, "float32")}
    plan = with_choices(form.lower("c", **options).plan, level="thread", block_streamed=lanes)
    out = interpret(form.lower("c", **options, plan=plan).program, inputs)["out"]
    wanted = np.asarray(form.reference(**inputs))
    return float(np.max(np.abs(out - wanted) / np.where(wanted == 0, 1, np.abs(wanted))))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("lanes", [16, 128])
@pytest.mark.parametrize("kind", [kind for role, kind in KINDS if role == "value"])
def test_every_kind_of_values(kind: str, lanes: int) -> None:
    values, weights = make("value", kind).T, make("weight").T
    assert error("variance", {"x": values}, lanes) <= BOUND
    assert error("weighted", {"x": values, "w": weights}, lanes) <= BOUND


@pytest.mark.parametrize("lanes", [16, 128])
def test_values_far_off_whose_weights_vanish(lanes: int) -> None:
    logit, value = weight_trap()
    assert error("exponential", {"x": value.T, "s": np.broadcast_to(logit, value.shape).T}, lanes) <= BOUND
