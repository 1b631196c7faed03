"""Products of matrices that are never held whole."""

from __future__ import annotations

from redalg.expression import axes, tensors
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse


def chained_product() -> Fused:
    """(A B) D of A[b,m,k], B[b,k,n] and D[b,n,h], as out[b,m,h]; the product A B exists tile by tile.

    Source: Zhang et al. (2024), "MCFuser", Table II.

    >>> import numpy as np
    >>> A, B, D = np.ones((1, 2, 3)), np.ones((1, 3, 4)), np.ones((1, 4, 1))
    >>> chained_product()(A=A, B=B, D=D).tolist()
    [[[12.0], [12.0]]]
    """
    k, n = axes("k n")
    A, B, D = tensors("A[b,m,k] B[b,k,n] D[b,n,h]")
    return fuse(sum_over(sum_over(A * B, k) * D, n), axes="b m h")
