"""Kernel methods: sums over pairs of points whose matrix of kernels is never stored. Points are x[i,d] and y[j,d]."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Rational, exp, sqrt

from redalg import sugar
from redalg.expression import Tensor, axes, scalars, tensor, tensors
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern

TENTH = Rational(1, 10)


def _square() -> Expr:
    """|x_i - y_j|²."""
    x, y = tensors("x[i,d] y[j,d]")
    return sum_over((x - y) ** 2, axes("d"))


@pattern("kernel methods", i=30000, j=30000, d=3)
def gaussian_sum(rate: Any = 1) -> Fused:
    """Σ_j w exp(-rate·|x_i - y_j|²) with weights w[j], as out[i].

    Args:
        rate: a positive number, or a scalar of the call; 1/(2σ²) for a bandwidth σ.

    Source: Greengard, Strain (1991), "The fast Gauss transform"; Charlier et al. (2021), KeOps.

    >>> import numpy as np
    >>> gaussian_sum()(x=np.zeros((1, 2)), y=np.array([[0.0, 0.0], [9.0, 9.0]]), w=np.array([3.0, 1.0])).tolist()
    [3.0]
    """
    return fuse(sum_over(exp(-rate * _square()) * tensor("w[j]"), axes("j")), axes="i")


@pattern("kernel methods", i=30000, j=30000, d=3)
def laplacian_sum() -> Fused:
    """Σ_j w exp(-|x_i - y_j|) with weights w[j], as out[i].

    Source: Charlier et al. (2021), "Kernel operations on the GPU, with autodiff, without memory overflows".

    >>> import numpy as np
    >>> laplacian_sum()(x=np.zeros((1, 2)), y=np.array([[3.0, 4.0]]), w=np.exp([5.0])).round(6).tolist()
    [1.0]
    """
    return fuse(sum_over(exp(-sqrt(_square())) * tensor("w[j]"), axes("j")), axes="i")


@pattern("kernel methods", i=16384, j=16384, d=3)
def kernel_regression(rate: Any = 1) -> Fused:
    """Σ_j exp(-rate·|x_i - y_j|²) w / Σ_j exp(-rate·|x_i - y_j|²): the mean of values w[j] near x_i, as out[i].

    It is right, too, where every weight underflows.

    Args:
        rate: a positive number, or a scalar of the call.

    Source: Nadaraya (1964); Watson (1964).

    >>> import numpy as np
    >>> kernel_regression()(x=np.array([[1e3]]), y=np.array([[0.0], [1.0]]), w=np.array([5.0, 7.0])).tolist()
    [7.0]
    """
    j, weight = axes("j"), exp(-rate * _square())
    return fuse(sum_over(weight * tensor("w[j]"), j) / sum_over(weight, j), axes="i")


@pattern("kernel methods", i=16384, j=16384, d=3)
def log_density() -> Fused:
    """log Σ_j exp(-|x_i - y_j|²/2), the logarithm of an estimate of the density but for a constant, as out[i].

    Source: Parzen (1962), "On estimation of a probability density function and mode".

    >>> import numpy as np
    >>> log_density()(x=np.array([[100.0]]), y=np.array([[0.0], [0.0]])).round(6).tolist()
    [-4999.306853]
    """
    return fuse(sugar.logsumexp(-_square() / 2, axes("j")), axes="i")


@pattern("kernel methods", i=8192, j=8192, d=16, e=16, shapes={"x": "i d", "y": "j d"})
def density_score() -> Fused:
    """The gradient of `log_density`, Σ_j k (y_j - x_i) / Σ_j k with k = exp(-|x_i - y_j|²/2), as out[i,e].

    Source: Fukunaga, Hostetler (1975), "The estimation of the gradient of a density function": the mean shift.

    >>> import numpy as np
    >>> density_score()(x=np.array([[100.0]]), y=np.array([[0.0], [1.0]])).tolist()
    [[-99.0]]
    """
    i, j, e = axes("i j e")
    weight = exp(-_square() / 2)
    return fuse(sum_over(weight * (tensor("y[j,e]") - Tensor("x")[i, e]), j) / sum_over(weight, j), axes="i e")


@pattern("kernel methods", n=8192, m=8192, d=64, shapes={"x": "n d", "y": "n d"})
def mean_discrepancy() -> Fused:
    """The mean over all pairs of k(x_n, x_m) + k(y_n, y_m) - 2 k(x_n, y_m), with k = exp(-rate·|a - b|²), as out[].

    The squared maximum mean discrepancy of the samples x[n,d] and y[n,d]; the rate is a scalar.

    Source: Gretton et al. (2012), "A kernel two-sample test", Eq. 5.

    >>> import numpy as np
    >>> x = np.array([[0.0], [1.0]])
    >>> float(mean_discrepancy()(x=x, y=x + 1e3, rate=1.0).round(6))
    1.367879
    """
    n, m, d = axes("n m d")
    x, y, rate = Tensor("x"), Tensor("y"), scalars("rate", positive=True)

    def kernel(a: Any, c: Any) -> Expr:
        return exp(-rate * sum_over((a - c) ** 2, d))

    own = kernel(x[n, d], x[m, d]) + kernel(y[n, d], y[m, d])
    between = kernel(x[n, d], y[m, d])
    return fuse(sum_over(own - 2 * between, n, m) / n.extent**2, axes="")


@pattern("kernel methods", i=8192, j=8192, d=64, e=16, shapes={"x": "i d", "y": "j d"})
def kernel_projection() -> Fused:
    """Σ_j k(x_i, y_j) (w - mean w), of the kernel exp(-rate·|x_i - y_j|²) and columns w[j,e], as out[i,e].

    A product with the kernel's matrix, centred along j: a step of the power iteration of kernel PCA.

    Source: Schölkopf, Smola, Müller (1998), "Nonlinear component analysis as a kernel eigenvalue problem", Eq. 15.

    >>> import numpy as np
    >>> y = np.array([[0.0], [50.0]])
    >>> kernel_projection()(x=y, y=y, w=np.array([[3.0], [1.0]]), rate=1.0).round(6).tolist()
    [[1.0], [-1.0]]
    """
    j, rate = axes("j"), scalars("rate", positive=True)
    w = tensor("w[j,e]")
    return fuse(sum_over(exp(-rate * _square()) * (w - sugar.mean(w, j)), j), axes="i e")


@pattern("kernel methods", i=16384, j=16384, d=8)
def energy_distance() -> Fused:
    """The mean distance of x_i to all y_j, as out[i].

    Source: Székely, Rizzo (2013), "Energy statistics", Eq. 1: its three means are means of this.

    >>> import numpy as np
    >>> energy_distance()(x=np.zeros((1, 2)), y=np.array([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [3.0]
    """
    return fuse(sugar.mean(sqrt(_square()), axes("j")), axes="i")


@pattern("kernel methods", i=16384, j=16384, d=3)
def sinkhorn_step(epsilon: Any = TENTH) -> Fused:
    """-ε log Σ_j exp((w - |x_i - y_j|²/2) / ε), a step of entropic transport with the potentials w[j], as out[i].

    Args:
        epsilon: a positive number, or a scalar of the call.

    Source: Cuturi (2013), "Sinkhorn distances"; in the log domain: Schmitzer (2019).

    >>> import numpy as np
    >>> sinkhorn_step()(x=np.zeros((1, 1)), y=np.array([[2.0], [9.0]]), w=np.zeros(2)).round(6).tolist()
    [2.0]
    """
    return fuse(-sugar.logsumexp((tensor("w[j]") - _square() / 2) / epsilon, axes("j")) * epsilon, axes="i")


@pattern("kernel methods", n=8192, d=64, l=64, shapes={"w": "n d", "w0": "d"})
def mahalanobis() -> Fused:
    """(w - w0)ᵀ A (w - w0) of the points w[n,d] about w0[d], with the inverse A[d,l] of a covariance, as out[n].

    Source: Mahalanobis (1936), "On the generalised distance in statistics".

    >>> import numpy as np
    >>> mahalanobis()(w=np.array([[2.0, 1.0]]), w0=np.zeros(2), A=np.diag([1.0, 4.0])).tolist()
    [8.0]
    """
    n, d, l = axes("n d l")
    w, w0, A = Tensor("w"), Tensor("w0"), tensor("A[d,l]")
    return fuse(sum_over((w[n, d] - w0[d]) * A * (w[n, l] - w0[l]), d, l), axes="n")
