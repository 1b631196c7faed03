"""Products of matrices: of three that are never held whole, and over other semirings than (+, ×)."""

from __future__ import annotations

from sympy import Abs

from redalg import sugar
from redalg.expression import argmax, axes, tensors
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("products", b=1, m=512, k=64, n=512, h=64, dtype="float16")
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


@pattern("products", i=4096, j=512, k=512)
def log_product() -> Fused:
    """log Σ_k exp(x + y) of x[i,k] and y[k,j], the product of matrices of logarithms, as out[i,j].

    Source: Mohri (2002), "Semiring frameworks and algorithms for shortest-distance problems", the log semiring.

    >>> import numpy as np
    >>> log_product()(x=np.array([[1000.0, 1000.0]]), y=np.zeros((2, 1))).round(6).tolist()
    [[1000.693147]]
    """
    x, y = tensors("x[i,k] y[k,j]")
    return fuse(sugar.logsumexp(x + y, axes("k")), axes="i j")


@pattern("products", i=1024, j=1024, k=1024)
def max_plus_product() -> Fused:
    """max_k (x + y) of x[i,k] and y[k,j], and the k that gives it, as a tuple (best[i,j], through[i,j]).

    Source: Cuninghame-Green (1979), "Minimax algebra"; of equals the lowest k.

    >>> import numpy as np
    >>> best, through = max_plus_product()(x=np.array([[1.0, 5.0]]), y=np.array([[3.0], [0.0]]))
    >>> best.tolist(), through.tolist()
    ([[5.0]], [[1]])
    """
    k = axes("k")
    x, y = tensors("x[i,k] y[k,j]")
    return fuse({"best": (max_over(x + y, k), "i j"), "through": (argmax(x + y, k), "i j")})


@pattern("products", i=2048, j=2048, k=256)
def manhattan_distances() -> Fused:
    """Σ_k |x - z| of the rows of x[i,k] and z[j,k], as out[i,j].

    Source: Minkowski (1910), of order 1.

    >>> import numpy as np
    >>> manhattan_distances()(x=np.array([[1.0, 2.0]]), z=np.array([[4.0, 0.0]])).tolist()
    [[5.0]]
    """
    x, z = tensors("x[i,k] z[j,k]")
    return fuse(sum_over(Abs(x - z), axes("k")), axes="i j")
