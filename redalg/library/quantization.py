"""Quantization: rows and blocks rounded to 8 bits at their own scales, and products of what is so rounded."""

from __future__ import annotations

from sympy import Abs, Float, Max, floor, log

from redalg.expression import axes, cast, let, tensor, tensors
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.expression.dtypes import DTYPES
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern

SMALLEST_ROW = Float(1e-30)
"""A row is scaled as if its largest magnitude were at least this, so that a row of zeros gives zeros."""


@pattern("quantization", m=4096, n=4096, k=4096, dtype="float16", tensors={"W": "float8_e4m3fn", "w": "float32"})
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


@pattern("quantization", b=4096, n=4096, dtype="bfloat16")
def row_quantization() -> Fused:
    """Rows of x[b,n] rounded to 8-bit integers at their own scale, max |x| / 127, as a tuple (q[b,n], scale[b]).

    Source: Dettmers et al. (2022), "LLM.int8()", Eq. 2.

    >>> import numpy as np
    >>> q, scale = row_quantization()(x=np.array([[12.7, -6.4, 0.0]]))
    >>> q.tolist(), scale.round(6).tolist()
    ([[127, -64, 0]], [0.1])
    """
    n = axes("n")
    x = tensor("x[b,n]")
    scale = Max(let("amax", max_over(Abs(x), n)), SMALLEST_ROW) / 127
    return fuse({"q": (cast(x / scale, "int8"), "b n"), "scale": (scale, "b")})


@pattern("quantization", b=4096, g=32, n=128, dtype="bfloat16")
def block_quantization(dtype: str = "float8_e4m3fn") -> Fused:
    """Blocks of x[b,g,n] rounded to 8-bit floats at their own scale, as a tuple (q[b,g,n], scale[b,g]).

    Args:
        dtype: `float8_e4m3fn` or `float8_e5m2`.

    Source: Rouhani et al. (2023), "Microscaling data formats", section 5; DeepSeek-AI (2024), section 3.3.2.

    >>> import numpy as np
    >>> q, scale = block_quantization()(x=np.array([[[448.0, -30.9, 0.0]]]))
    >>> q.tolist(), scale.tolist()
    ([[[448.0, -30.0, 0.0]]], [[1.0]])
    """
    n = axes("n")
    x = tensor("x[b,g,n]")
    scale = Max(let("amax", max_over(Abs(x), n)), SMALLEST_ROW) / DTYPES[dtype].largest
    return fuse({"q": (cast(x / scale, dtype), "b g n"), "scale": (scale, "b g")})


@pattern("quantization", b=4096, n=4096)
def quantization_error() -> Fused:
    """Σ (x - y)² / Σ x², the noise that rounding x[b,n] to y[b,n] adds beside the signal, as out[b].

    Source: Jacob et al. (2018), "Quantization and training of neural networks", section 2.

    >>> import numpy as np
    >>> quantization_error()(x=np.array([[3.0, 4.0]]), y=np.array([[3.0, 3.0]])).tolist()
    [0.04]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    return fuse(sum_over((x - y) ** 2, n) / sum_over(x**2, n), axes="b")
