"""Products of 8-bit floats: every row quantized at its own scale, which is found from the row itself."""

from __future__ import annotations

from sympy import Abs, Float, Max, floor, log

from redalg.expression import axes, cast, let, tensors
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.expression.dtypes import DTYPES
from redalg.fuse import Fused, fuse

SMALLEST_ROW = Float(1e-30)
"""A row is scaled as if its largest magnitude were at least this, so that a row of zeros gives zeros."""


def quantized_product(
    *, power_of_two: bool = False, exact: bool = False, dtype: str = "float8_e4m3fn", result: str | None = None
) -> Fused:
    """y = (Σ_k q·W)·s·w with q = x/s rounded to 8 bits and s[m] = max_k |x| / (the largest of the dtype), as out[m,n].

    x[m,k] holds the rows, W[n,k] the weights (of the same 8-bit dtype, or wider) and w[n] their scales.

    Args:
        power_of_two: 1/s is rounded down to a power of 2: one pass is then exact but for underflow.
        exact: the definition in two passes over x, instead of one that rounds at the running scale.
        dtype: `float8_e4m3fn` or `float8_e5m2`.
        result: the output's dtype (None: that of x and w together).

    Source: RedFuser (ASPLOS '26), appendix A.5 (Quant + GEMM); the scales are DeepSeek-V3's (2024), one per row.

    >>> import numpy as np
    >>> x = np.array([[1.0, 2.0], [0.0, 0.0]])
    >>> quantized_product(exact=True)(x=x, W=np.eye(2), w=np.array([1.0, 3.0])).tolist()
    [[1.0, 6.0], [0.0, 0.0]]
    """
    k = axes("k")
    x, W, w = tensors("x[m,k] W[n,k] w[n]")
    inverse = DTYPES[dtype].largest / Max(let("amax", max_over(Abs(x), k)), SMALLEST_ROW)
    inverse = 2 ** floor(log(inverse, 2)) if power_of_two else inverse
    y = sum_over(cast(x * inverse, dtype) * W, k) / inverse * w
    return fuse(y if result is None else cast(y, result), axes="m n", exact=exact)
