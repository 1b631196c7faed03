"""Hidden Markov models and clusters: steps of the algorithms that find what is not observed."""

from __future__ import annotations

from sympy import log, pi

from redalg import sugar
from redalg.expression import argmax, argmin, axes, eq, scalars, tensor, tensors, where
from redalg.expression import max as max_over
from redalg.expression import min as min_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("hidden states", b=1024, k=512, n=512)
def forward_step() -> Fused:
    """o + log Σ_k exp(a + T) of logarithms: forward a[b,k], transitions T[k,n], emissions o[b,n], as out[b,n].

    A step of the forward algorithm of a hidden Markov model (HMM).

    Source: Rabiner (1989), "A tutorial on hidden Markov models", Eq. 20.

    >>> import numpy as np
    >>> T = np.log(np.array([[0.5, 0.5], [0.25, 0.75]]))
    >>> np.exp(forward_step()(a=np.log([[0.5, 0.5]]), T=T, o=np.zeros((1, 2)))).round(6).tolist()
    [[0.375, 0.625]]
    """
    a, T, o = tensors("a[b,k] T[k,n] o[b,n]")
    return fuse(o + sugar.logsumexp(a + T, axes("k")), axes="b n")


@pattern("hidden states", b=1024, k=512, n=512)
def backward_step() -> Fused:
    """log Σ_n exp(T + o + c) of logarithms: transitions T[k,n], emissions o[b,n], backward c[b,n], as out[b,k].

    A step of the backward algorithm of a hidden Markov model (HMM).

    Source: Rabiner (1989), "A tutorial on hidden Markov models", Eq. 25.

    >>> import numpy as np
    >>> T, zeros = np.log(np.array([[0.5, 0.5], [0.25, 0.75]])), np.zeros((1, 2))
    >>> np.exp(backward_step()(T=T, o=np.log([[0.5, 1.0]]), c=zeros)).round(6).tolist()
    [[0.75, 0.875]]
    """
    T, o, c = tensors("T[k,n] o[b,n] c[b,n]")
    return fuse(sugar.logsumexp(T + o + c, axes("n")), axes="b k")


@pattern("hidden states", b=1024, k=512, n=512)
def viterbi_step() -> Fused:
    """o + max_k (a + T) of logarithms, and the k that gives it: a tuple (best[b,n], before[b,n]).

    Of a hidden Markov model (HMM): best paths a[b,k], transitions T[k,n], emissions o[b,n].

    Source: Viterbi (1967); Rabiner (1989), Eq. 33; of equals the lowest k.

    >>> import numpy as np
    >>> best, before = viterbi_step()(a=np.array([[0.0, -1.0]]), T=np.array([[-5.0], [-1.0]]), o=np.zeros((1, 1)))
    >>> best.tolist(), before.tolist()
    ([[-2.0]], [[1]])
    """
    k = axes("k")
    a, T, o = tensors("a[b,k] T[k,n] o[b,n]")
    return fuse({"best": (o + max_over(a + T, k), "b n"), "before": (argmax(a + T, k), "b n")})


@pattern("hidden states", n=65536, k=1024, d=64)
def k_means_assignment() -> Fused:
    """The cluster of every point p[n,d], whose centre of c[k,d] is nearest, and |p - c|²: (cluster[n], square[n]).

    Source: Lloyd (1982), "Least squares quantization in PCM"; of equals the lowest.

    >>> import numpy as np
    >>> cluster, square = k_means_assignment()(p=np.array([[0.0], [9.0]]), c=np.array([[1.0], [7.0]]))
    >>> cluster.tolist(), square.tolist()
    ([0, 1], [1.0, 4.0])
    """
    k, d = axes("k d")
    p, c = tensors("p[n,d] c[k,d]")
    square = sum_over((p - c) ** 2, d)
    return fuse({"cluster": (argmin(square, k), "n"), "square": (min_over(square, k), "n")})


@pattern("hidden states", n=65536, k=64, d=64)
def k_means_update() -> Fused:
    """The mean of the points p[n,d] of every cluster k, of integers z[n], as out[k,d] (give a call the size of k).

    Source: Lloyd (1982), "Least squares quantization in PCM".

    >>> import numpy as np
    >>> p = np.array([[1.0], [3.0], [8.0]])
    >>> k_means_update()(p=p, z=np.array([0, 0, 1]), sizes={"k": 2}).tolist()
    [[2.0], [8.0]]
    """
    n, k = axes("n k")
    p, z = tensors("p[n,d] z[n]")
    return fuse(sum_over(where(eq(z, k), p, 0), n) / sum_over(where(eq(z, k), 1, 0), n), axes="k d")


@pattern("hidden states", n=65536, k=64, d=16)
def mixture_likelihood() -> Fused:
    """log Σ_k exp(u - |p - c|²/(2 s)) - d log(2π s)/2 of points p[n,d]: a mixture of Gaussians, as out[n].

    The centres are c[k,d], the logarithms of their shares u[k]; the variance s is a scalar.

    Source: Bishop (2006), "Pattern recognition and machine learning", Eq. 9.14, of equal variances.

    >>> import numpy as np
    >>> mixture_likelihood()(p=np.array([[40.0]]), c=np.zeros((1, 1)), u=np.zeros(1), s=1.0).round(6).tolist()
    [-800.918939]
    """
    k, d, s = axes("k"), axes("d"), scalars("s", positive=True)
    p, c, u = tensors("p[n,d] c[k,d] u[k]")
    near = sugar.logsumexp(u - sum_over((p - c) ** 2, d) / (2 * s), k)
    return fuse(near - d.extent * log(2 * pi * s) / 2, axes="n")


@pattern("hidden states", n=65536, k=64)
def responsibilities() -> Fused:
    """softmax over the components k of the scores s[n,k], and their sums over the points: a tuple (r[n,k], total[k]).

    Source: Dempster, Laird, Rubin (1977), the expectation step; Bishop (2006), Eq. 9.23 and 9.27.

    >>> import numpy as np
    >>> r, total = responsibilities()(s=np.log(np.array([[1.0, 3.0], [1.0, 1.0]])))
    >>> r.round(6).tolist(), total.round(6).tolist()
    ([[0.25, 0.75], [0.5, 0.5]], [0.75, 1.25])
    """
    n, k = axes("n k")
    r = sugar.softmax(tensor("s[n,k]"), k)
    return fuse({"r": (r, "n k"), "total": (sum_over(r, n), "k")})
