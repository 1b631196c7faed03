"""Statistics of rows, each written as its definition: a mean first, then what is taken about it."""

from __future__ import annotations

from sympy import Rational, atan2, cos, exp, log, sin, sqrt

from redalg import sugar
from redalg.expression import Tensor, axes, let, tensor, tensors
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("statistics", b=1024, n=8192)
def variance() -> Fused:
    """Population variance of the rows of x[b,n]: Σ (x - mean)² / n, as out[b].

    Source: RedFuser (ASPLOS '26), Eq. 44. Its derived form is Welford's (1962), merged as by Chan et al. (1979).

    >>> import numpy as np
    >>> variance()(x=np.array([[1.0, 2.0, 3.0, 4.0]])).tolist()
    [1.25]
    """
    return fuse(sugar.var(tensor("x[b,n]"), axes("n")), axes="b")


@pattern("statistics", b=1024, n=8192)
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


@pattern("statistics", b=1024, n=8192)
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


@pattern("statistics", b=1024, n=8192)
def logsumexp() -> Fused:
    """log Σ exp(x) of the rows of x[b,n], written with its maximum so that nothing overflows, as out[b].

    Source: RedFuser (ASPLOS '26), Eq. 29 (m and l); Milakov and Gimelshein (2018) derive the online form by hand.

    >>> import numpy as np
    >>> round(float(logsumexp()(x=np.array([[1000.0, 1000.0]]))[0]), 6)
    1000.693147
    """
    return fuse(sugar.logsumexp(tensor("x[b,n]"), axes("n")), axes="b")


@pattern("statistics", b=1024, n=8192)
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


@pattern("statistics", b=1024, n=8192)
def moments() -> Fused:
    """Mean, variance, skewness and kurtosis of the rows of x[b,n], as a tuple of outputs over b.

    Skewness is Σ (x - mean)³ / n / variance^(3/2), kurtosis Σ (x - mean)⁴ / n / variance² (3 of a normal population).

    Source: Pébay (2008), Eqs. 1.1 and 1.2, merges them in one pass.

    >>> import numpy as np
    >>> [round(float(one[0]), 6) for one in moments()(x=np.array([[0.0, 0.0, 0.0, 4.0]]))]
    [1.0, 3.0, 1.154701, 2.333333]
    """
    x, n = tensor("x[b,n]"), axes("n")
    mean, variance = sugar.mean(x, n), sugar.var(x, n)
    third, fourth = (sugar.mean((x - mean) ** power, n) for power in (3, 4))
    skewness, kurtosis = third / variance ** Rational(3, 2), fourth / variance**2
    named = {"mean": mean, "variance": variance, "skewness": skewness, "kurtosis": kurtosis}
    return fuse({name: (one, "b") for name, one in named.items()})


@pattern("statistics", b=1024, n=8192)
def skewness() -> Fused:
    """Σ (x - mean)³ / n / variance^(3/2) of the rows of x[b,n], as out[b].

    Source: Pearson (1895); Pébay (2008), Eq. 1.2.

    >>> import numpy as np
    >>> skewness()(x=np.array([[0.0, 0.0, 0.0, 4.0]])).round(6).tolist()
    [1.154701]
    """
    x, n = tensor("x[b,n]"), axes("n")
    return fuse(sugar.mean((x - sugar.mean(x, n)) ** 3, n) / sugar.var(x, n) ** Rational(3, 2), axes="b")


@pattern("statistics", b=1024, n=8192)
def kurtosis() -> Fused:
    """Σ (x - mean)⁴ / n / variance² of the rows of x[b,n], as out[b]: 3 of a normal population.

    Source: Pearson (1905); Pébay (2008), Eq. 1.2.

    >>> import numpy as np
    >>> kurtosis()(x=np.array([[0.0, 0.0, 0.0, 4.0]])).round(6).tolist()
    [2.333333]
    """
    x, n = tensor("x[b,n]"), axes("n")
    return fuse(sugar.mean((x - sugar.mean(x, n)) ** 4, n) / sugar.var(x, n) ** 2, axes="b")


@pattern("statistics", b=1024, n=8192)
def weighted_skewness() -> Fused:
    """Skewness of the rows of x[b,n] about their mean with weights w[b,n], as out[b].

    Source: Rimoldini (2014), "Weighted skewness and kurtosis unbiased by sample size".

    >>> import numpy as np
    >>> weighted_skewness()(x=np.array([[0.0, 4.0]]), w=np.array([[3.0, 1.0]])).round(6).tolist()
    [1.154701]
    """
    n = axes("n")
    x, w = tensors("x[b,n] w[b,n]")
    total = sum_over(w, n)
    mean = sum_over(w * x, n) / total
    second, third = (sum_over(w * (x - mean) ** power, n) / total for power in (2, 3))
    return fuse(third / second ** Rational(3, 2), axes="b")


@pattern("statistics", b=8192, n=8192)
def correlation() -> Fused:
    """Pearson's correlation of the rows of x[b,n] and y[b,n], between -1 and 1, as out[b].

    Source: Pearson (1895); Pébay (2008), Eq. 3.3, merges the covariance in one pass.

    >>> import numpy as np
    >>> correlation()(x=np.array([[1.0, 2.0, 3.0]]), y=np.array([[5.0, 7.0, 9.0]])).tolist()
    [1.0]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    mx, my = sugar.mean(x, n), sugar.mean(y, n)
    return fuse(sum_over((x - mx) * (y - my), n) / sqrt(sum_over((x - mx) ** 2, n) * sum_over((y - my) ** 2, n)), "b")


@pattern("statistics", n=1000000, i=64, j=64, shapes={"x": "n i"})
def covariance_matrix(correction: int = 1) -> Fused:
    """Covariances of the columns of x[n,i]: Σ (x_i - mean_i)(x_j - mean_j) / (n - correction), as out[i,j].

    Args:
        correction: 1 for the unbiased estimate, 0 for a population.

    Source: Chan, Golub, LeVeque (1979); Pébay (2008), Eq. 3.3.

    >>> import numpy as np
    >>> covariance_matrix()(x=1e8 + np.array([[1.0, 2.0], [3.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    n, i, j = axes("n i j")
    x = Tensor("x")
    return fuse(sugar.covariance(x[n, i], x[n, j], n, correction=correction), axes="i j")


@pattern("statistics", n=1000000, i=64, j=64, shapes={"x": "n i"})
def correlation_matrix() -> Fused:
    """Pearson's correlations of the columns of x[n,i], as out[i,j].

    Source: Pearson (1895).

    >>> import numpy as np
    >>> correlation_matrix()(x=np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    n, i, j = axes("n i j")
    a, c = Tensor("x")[n, i], Tensor("x")[n, j]
    return fuse(sugar.covariance(a, c, n) / (sugar.std(a, n) * sugar.std(c, n)), axes="i j")


@pattern("statistics", n=1000000, i=64, j=64, shapes={"x": "n i"})
def weighted_covariance() -> Fused:
    """Σ w (x_i - mean_i)(x_j - mean_j) / Σ w of the columns of x[n,i] about their means with weights w[n], as out[i,j].

    Source: Price (1972), "Extension of covariance selection mathematics".

    >>> import numpy as np
    >>> weighted_covariance()(x=np.array([[0.0, 0.0], [4.0, 8.0]]), w=np.array([3.0, 1.0])).tolist()
    [[3.0, 6.0], [6.0, 12.0]]
    """
    n, i, j = axes("n i j")
    w, total = tensor("w[n]"), sum_over(tensor("w[n]"), n)
    a, c = (Tensor("x")[n, one] for one in (i, j))
    about = [one - sum_over(w * one, n) / total for one in (a, c)]
    return fuse(sum_over(w * about[0] * about[1], n) / total, axes="i j")


@pattern("statistics", b=1024, n=8192)
def concordance() -> Fused:
    """Lin's concordance of the rows of x[b,n] and y[b,n]: 2 cov / (var x + var y + (mean x - mean y)²), as out[b].

    Source: Lin (1989), "A concordance correlation coefficient to evaluate reproducibility".

    >>> import numpy as np
    >>> concordance()(x=np.array([[1.0, 3.0]]), y=np.array([[2.0, 4.0]])).round(6).tolist()
    [0.666667]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    apart = sugar.mean(x, n) - sugar.mean(y, n)
    return fuse(2 * sugar.covariance(x, y, n) / (sugar.var(x, n) + sugar.var(y, n) + apart**2), axes="b")


@pattern("statistics", b=1024, n=8192)
def least_squares_line() -> Fused:
    """The line through the points x[b,n], y[b,n]: a tuple (slope[b], intercept[b], r2[b]).

    Source: Gauss (1809); r2 is the square of the correlation.

    >>> import numpy as np
    >>> line = least_squares_line()(x=np.array([[0.0, 1.0, 2.0]]), y=np.array([[1.0, 3.0, 5.0]]))
    >>> [float(one[0]) for one in line]
    [2.0, 1.0, 1.0]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    both, own, other = sugar.covariance(x, y, n), sugar.var(x, n), sugar.var(y, n)
    slope = both / own
    intercept = sugar.mean(y, n) - slope * sugar.mean(x, n)
    return fuse({"slope": (slope, "b"), "intercept": (intercept, "b"), "r2": (both**2 / (own * other), "b")})


@pattern("statistics", b=1024, n=8192)
def geometric_mean() -> Fused:
    """exp(Σ log x / n) of the rows of x[b,n], all above 0, as out[b].

    Source: Hardy, Littlewood, Pólya (1934), section 2.1.

    >>> import numpy as np
    >>> geometric_mean()(x=np.array([[2.0, 8.0]])).round(6).tolist()
    [4.0]
    """
    return fuse(exp(sugar.mean(log(tensor("x[b,n]")), axes("n"))), axes="b")


@pattern("statistics", b=1024, n=8192)
def harmonic_mean() -> Fused:
    """n / Σ (1/x) of the rows of x[b,n], as out[b].

    Source: Hardy, Littlewood, Pólya (1934), section 2.1.

    >>> import numpy as np
    >>> harmonic_mean()(x=np.array([[1.0, 3.0]])).tolist()
    [1.5]
    """
    return fuse(1 / sugar.mean(1 / tensor("x[b,n]"), axes("n")), axes="b")


@pattern("statistics", b=1024, n=8192)
def circular_mean() -> Fused:
    """The mean direction of the angles x[b,n] and its length, from 0 to 1: a tuple (direction[b], length[b]).

    Source: Mardia (1972), "Statistics of directional data", section 2.2.

    >>> import numpy as np
    >>> direction, length = circular_mean()(x=np.array([[0.0, np.pi / 2]]))
    >>> direction.round(6).tolist(), length.round(6).tolist()
    ([0.785398], [0.707107])
    """
    n, x = axes("n"), tensor("x[b,n]")
    across, along = sugar.mean(sin(x), n), sugar.mean(cos(x), n)
    return fuse({"direction": (atan2(across, along), "b"), "length": (sqrt(across**2 + along**2), "b")})


@pattern("statistics", b=1024, n=8192)
def coefficient_of_variation() -> Fused:
    """Standard deviation over mean of the rows of x[b,n], as out[b].

    Source: Pearson (1896).

    >>> import numpy as np
    >>> coefficient_of_variation()(x=np.array([[1.0, 3.0]])).tolist()
    [0.5]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse(sugar.std(x, n) / sugar.mean(x, n), axes="b")
