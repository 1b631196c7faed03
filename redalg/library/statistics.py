"""Statistics of rows, each written as its definition: a mean first, then what is taken about it."""

from __future__ import annotations

from sympy import exp

from redalg import sugar
from redalg.expression import Tensor, axes, axis, let, tensor, tensors
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse


def variance() -> Fused:
    """Population variance of the rows of x[b,n]: Σ (x - mean)² / n, as out[b].

    Source: RedFuser (ASPLOS '26), Eq. 44. Its derived form is Welford's (1962), merged as by Chan et al. (1979).

    >>> import numpy as np
    >>> variance()(x=np.array([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [1.25]
    """
    return fuse(sugar.var(tensor("x[b,n]"), axes("n")), axes="b")


def weighted_mean() -> Fused:
    """Mean of the rows of x[b,n] with weights w[b,n]: Σ w x / Σ w, as out[b].

    Source: West (1979), "Updating mean and variance estimates".

    >>> import numpy as np
    >>> weighted_mean()(x=np.array([[1.0, 2.0]]), w=np.array([[3.0, 1.0]])).tolist()
    [1.25]
    """
    n = axes("n")
    x, w = tensors("x[b,n] w[b,n]")
    return fuse(sum_over(w * x, n) / sum_over(w, n), axes="b")


def weighted_variance() -> Fused:
    """Variance of the rows of x[b,n] about their weighted mean: Σ w (x - mean)² / Σ w, as out[b].

    Source: West (1979), "Updating mean and variance estimates".

    >>> import numpy as np
    >>> weighted_variance()(x=np.array([[1.0, 2.0]]), w=np.array([[3.0, 1.0]])).tolist()
    [0.1875]
    """
    n = axes("n")
    x, w = tensors("x[b,n] w[b,n]")
    weight = sum_over(w, n)
    mean = sum_over(w * x, n) / weight
    return fuse(sum_over(w * (x - mean) ** 2, n) / weight, axes="b")


def inertia() -> Fused:
    """Moment of inertia of bodies of n points about their centres of mass, Σ m |r - c|², as out[b].

    The masses are m[b,n], the positions r[b,n,i] with i of size 3, and the centre is c = Σ m r / Σ m.

    Source: RedFuser (ASPLOS '26), Eq. 45.

    >>> import numpy as np
    >>> ends = np.array([[[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]])
    >>> inertia()(m=np.ones((1, 2)), r=ends + 5).tolist()
    [2.0]
    """
    b, n = axes("b n")
    i = axis("i", size=3)
    m, r = tensor("m[b,n]"), Tensor("r")[b, n, i]
    centre = sum_over(m * r, n) / sum_over(m, n)
    return fuse(sum_over(m * sum_over((r - centre) ** 2, i), n), axes="b")


def logsumexp() -> Fused:
    """log Σ exp(x) of the rows of x[b,n], written with its maximum so that nothing overflows, as out[b].

    Source: RedFuser (ASPLOS '26), Eq. 29 (m and l); Milakov and Gimelshein (2018) derive the online form by hand.

    >>> import numpy as np
    >>> round(float(logsumexp()(x=np.array([[1000.0, 1000.0]]))[0]), 6)
    1000.693147
    """
    return fuse(sugar.logsumexp(tensor("x[b,n]"), axes("n")), axes="b")


def softmax_denominator() -> Fused:
    """The maximum m and the denominator l = Σ exp(x - m) of the rows of x[b,n], as a tuple (m[b], l[b]).

    Source: RedFuser (ASPLOS '26), Eq. 29; Milakov and Gimelshein (2018), Algorithm 3.

    >>> import numpy as np
    >>> m, l = softmax_denominator()(x=np.array([[5.0, 5.0, 5.0]]))
    >>> m.tolist(), l.tolist()
    ([5.0], [3.0])
    """
    n = axes("n")
    x = tensor("x[b,n]")
    m = let("m", max_over(x, n))
    return fuse({"m": (m, "b"), "l": (sum_over(exp(x - m), n), "b")})
