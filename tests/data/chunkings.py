"""Functions and data of the tests of engines, and Hypothesis's cuts of an axis into pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import redalg as ra

n = ra.axes("n")
x, y = ra.tensors("x[n] y[n]")
b = ra.axes("b")
X, Y = ra.tensors("x[b,n] y[b,n]")

COLUMNS = {  # of columns, whatever the order of rows
    "variance": ra.fuse(ra.var(x, n)),
    "correlation": ra.fuse(ra.covariance(x, y, n) / (ra.std(x, n) * ra.std(y, n))),
    "weighted mean": ra.fuse(ra.sum(ra.softmax(y, n) * x, n)),
    "logsumexp": ra.fuse(ra.logsumexp(x, n)),
    "several": ra.fuse({"least": ra.min(x, n), "mean": ra.mean(y, n), "above": ra.any(x > 1, n)}),
}
PLACED_COLUMNS = {  # of columns, in their order
    "argmax": ra.fuse(ra.argmax(x, n)),
    "first and last": ra.fuse({"first": ra.first(x, n), "last": ra.last(y, n)}),
    "mask by place": ra.fuse(ra.sum(ra.where(n < 3, x, 0), n)),
}
ROWS = {  # of matrices
    "variance": ra.fuse(ra.var(X, n)),
    "correlation": ra.fuse(ra.covariance(X, Y, n) / (ra.std(X, n) * ra.std(Y, n))),
    "weighted mean": ra.fuse(ra.sum(ra.softmax(Y, n) * X, n)),
    "argmax": ra.fuse(ra.argmax(X, n)),
    "logsumexp": ra.fuse(ra.logsumexp(X, n)),
    "first and last": ra.fuse({"first": ra.first(X, n), "last": ra.last(Y, n)}),
    "mask by place": ra.fuse(ra.sum(ra.where(n <= b, X, 0), n)),
    "both axes": ra.fuse({"mean": ra.mean(X, b, n), "triangle": ra.sum(ra.where(b < n, X, 0), b, n)}),
}
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


@st.composite
def cuts(draw: st.DrawFn, length: int) -> tuple[int, ...]:
    """Lengths of pieces that make up `length`, 0 and 1 among them."""
    ends = sorted(draw(st.lists(st.integers(0, length), max_size=5)))
    return tuple(stop - start for start, stop in zip((0, *ends), (*ends, length), strict=True))


def named(outputs: Any) -> Mapping[str, Any]:
    """The outputs of a call by name."""
    return outputs._asdict() if hasattr(outputs, "_asdict") else {"": outputs}


def check(found: Any, fused: ra.Fused, tensors: Mapping[str, np.ndarray], dtype: str) -> None:
    """Compare outputs with the definition of the whole in float64."""
    wide = {name: one.astype("float64") for name, one in tensors.items()}
    want = named(fused.reference(**{name: wide[name] for name in fused.cascade.inputs()}))
    assert named(found).keys() == want.keys()
    for name, one in named(found).items():
        np.testing.assert_allclose(one, want[name], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=name)
