"""Time series: what depends on the order of elements, or on their place along the axis."""

from __future__ import annotations

from sympy import Abs, cos, exp, log, pi, sin

from redalg import sugar
from redalg.expression import Tensor, affine, axes, last, scalars, tensor, tensors, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("time series", b=256, n=65536, shapes={"x": "b n"})
def autocorrelation(lag: int = 1) -> Fused:
    """Σ (x_n - mean)(x_(n-lag) - mean) / Σ (x_n - mean)² of the rows of x[b,n], as out[b].

    Args:
        lag: by how many places the row is moved against itself.

    Source: Box, Jenkins (1970), "Time series analysis", section 2.1.

    >>> import numpy as np
    >>> autocorrelation(2)(x=np.array([[1.0, -1.0, 1.0, -1.0]])).tolist()
    [0.5]
    """
    b, n = axes("b n")
    x = Tensor("x")
    mean = sugar.mean(x[b, n], n)
    moved = where(n >= lag, x[b, n - lag] - mean, 0)
    return fuse(sum_over((x[b, n] - mean) * moved, n) / sum_over((x[b, n] - mean) ** 2, n), axes="b")


@pattern("time series", b=256, n=65536)
def exponential_smoothing() -> Fused:
    """The last value of h_n = rate·h_(n-1) + (1 - rate)·x_n, from 0, of the rows of x[b,n], as out[b].

    The rate is a scalar from 0 to 1. It is a monoid of affine maps: pieces are merged in order.

    Source: Brown (1956), "Exponential smoothing for predicting demand"; Blelloch (1990), section 1.4.

    >>> import numpy as np
    >>> exponential_smoothing()(x=np.array([[8.0, 0.0, 4.0]]), rate=0.5).tolist()
    [3.0]
    """
    rate = scalars("rate")
    return fuse(affine(rate, (1 - rate) * tensor("x[b,n]"), axes("n"))[1], axes="b")


@pattern("time series", b=256, n=65536)
def exponentially_weighted_mean() -> Fused:
    """Σ rate^(|n| - 1 - n) x_n / Σ rate^(|n| - 1 - n) of the rows of x[b,n], as out[b]; the rate is a scalar.

    Source: Hunter (1986), "The exponentially weighted moving average".

    >>> import numpy as np
    >>> exponentially_weighted_mean()(x=np.array([[6.0, 0.0]]), rate=0.5).tolist()
    [2.0]
    """
    n, rate = axes("n"), scalars("rate", positive=True)
    weight = rate ** (n.extent - 1 - n)
    return fuse(sum_over(weight * tensor("x[b,n]"), n) / sum_over(weight, n), axes="b")


@pattern("time series", b=256, n=65536)
def linear_recurrence() -> Fused:
    """The last value of h_n = a_n h_(n-1) + x_n, from 0, of a[b,n] and x[b,n], as out[b].

    Source: Blelloch (1990), "Prefix sums and their applications", section 1.4.

    >>> import numpy as np
    >>> linear_recurrence()(a=np.array([[9.0, 2.0, 0.5]]), x=np.array([[1.0, 1.0, 1.0]])).tolist()
    [2.5]
    """
    a, x = tensors("a[b,n] x[b,n]")
    return fuse(affine(a, x, axes("n"))[1], axes="b")


@pattern("time series", b=256, n=65536)
def discounted_return() -> Fused:
    """Σ discount^n x_n of the rows of x[b,n], as out[b]; the discount is a scalar.

    Source: Sutton (1988), "Learning to predict by the methods of temporal differences".

    >>> import numpy as np
    >>> discounted_return()(x=np.array([[1.0, 1.0, 1.0]]), discount=0.5).tolist()
    [1.75]
    """
    n, discount = axes("n"), scalars("discount", positive=True)
    return fuse(sum_over(discount**n * tensor("x[b,n]"), n), axes="b")


@pattern("time series", b=256, n=65536, shapes={"x": "b n"})
def durbin_watson() -> Fused:
    """Σ (x_n - x_(n-1))² / Σ x_n² of the residuals x[b,n], as out[b]: 2 where they are uncorrelated.

    Source: Durbin, Watson (1950).

    >>> import numpy as np
    >>> durbin_watson()(x=np.array([[1.0, -1.0, 1.0, -1.0]])).tolist()
    [3.0]
    """
    b, n = axes("b n")
    x = Tensor("x")
    apart = where(n >= 1, x[b, n] - x[b, n - 1], 0)
    return fuse(sum_over(apart**2, n) / sum_over(x[b, n] ** 2, n), axes="b")


@pattern("time series", b=256, n=65536, shapes={"x": "b n"})
def total_variation() -> Fused:
    """Σ |x_n - x_(n-1)| of the rows of x[b,n], as out[b].

    Source: Jordan (1881); Rudin, Osher, Fatemi (1992).

    >>> import numpy as np
    >>> total_variation()(x=np.array([[1.0, 4.0, 2.0]])).tolist()
    [5.0]
    """
    b, n = axes("b n")
    x = Tensor("x")
    return fuse(sum_over(where(n >= 1, Abs(x[b, n] - x[b, n - 1]), 0), n), axes="b")


@pattern("time series", b=256, n=65536)
def linear_trend() -> Fused:
    """The slope of the least squares line of the rows of x[b,n] against the place n, as out[b].

    Source: Gauss (1809).

    >>> import numpy as np
    >>> linear_trend()(x=np.array([[5.0, 7.0, 9.0]])).tolist()
    [2.0]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse(sugar.covariance(x, n, n) / sugar.var(n, n), axes="b")


@pattern("time series", b=256, n=65536, f=64)
def periodogram() -> Fused:
    """|Σ x_n exp(-2πi f n / |n|)|² / |n| of the rows of x[b,n] at the frequencies f = 0, 1, …, as out[b,f].

    Source: Schuster (1898); Goertzel (1958).

    >>> import numpy as np
    >>> periodogram()(x=np.array([[1.0, 0.0, -1.0, 0.0]]), sizes={"f": 2}).round(6).tolist()
    [[0.0, 1.0]]
    """
    n, f = axes("n f")
    x, phase = tensor("x[b,n]"), 2 * pi * f * n / n.extent
    return fuse((sum_over(x * cos(phase), n) ** 2 + sum_over(x * sin(phase), n) ** 2) / n.extent, axes="b f")


@pattern("time series", b=65536, n=1025)
def spectral_flatness() -> Fused:
    """Geometric mean over mean, and maximum over mean, of the power spectra x[b,n]: a tuple (flat[b], crest[b]).

    Source: Gray, Markel (1974), "A spectral-flatness measure".

    >>> import numpy as np
    >>> [round(float(one[0]), 6) for one in spectral_flatness()(x=np.array([[2.0, 8.0]]))]
    [0.8, 1.6]
    """
    n, x = axes("n"), tensor("x[b,n]")
    mean = sugar.mean(x, n)
    return fuse({"flat": (exp(sugar.mean(log(x), n)) / mean, "b"), "crest": (max_over(Abs(x), n) / mean, "b")})


@pattern("time series", b=256, n=65536)
def sharpe_ratio() -> Fused:
    """Mean over standard deviation of the returns x[b,n], and the last of them: a tuple (ratio[b], last[b]).

    Source: Sharpe (1966), "Mutual fund performance".

    >>> import numpy as np
    >>> ratio, latest = sharpe_ratio()(x=np.array([[1.0, 3.0]]))
    >>> ratio.tolist(), latest.tolist()
    ([2.0], [3.0])
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse({"ratio": (sugar.mean(x, n) / sugar.std(x, n), "b"), "last": (last(x, n), "b")})
