"""Statistics that outliers move little, some of them in several passes over the data; measures of inequality."""

from __future__ import annotations

from sympy import Abs, Max, Min, exp, log

from redalg import sugar
from redalg.expression import Tensor, axes, scalars, tensor, where
from redalg.expression import max as max_over
from redalg.expression import min as min_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("statistics", b=1024, n=8192)
def mean_absolute_deviation() -> Fused:
    """Σ |x - mean| / n of the rows of x[b,n] in two passes, as out[b].

    No state of fixed size gives it in one pass: |x - mean| has a kink that moves with the mean.

    Source: Gauss (1816); Huber (1964) on its robustness.

    >>> import numpy as np
    >>> mean_absolute_deviation()(x=np.array([[1.0, 2.0, 6.0]])).tolist()
    [2.0]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse(sugar.mean(Abs(x - sugar.mean(x, n)), n), axes="b", passes=2)


@pattern("statistics", b=1024, n=8192)
def semivariance() -> Fused:
    """Σ min(x - mean, 0)² / n of the rows of x[b,n] in two passes, as out[b].

    Source: Markowitz (1959), "Portfolio selection", chapter 9.

    >>> import numpy as np
    >>> semivariance()(x=np.array([[1.0, 2.0, 6.0]])).round(6).tolist()
    [1.666667]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse(sugar.mean(Min(x - sugar.mean(x, n), 0) ** 2, n), axes="b", passes=2)


@pattern("statistics", b=1024, n=8192)
def winsorized_mean() -> Fused:
    """The mean of the rows of x[b,n], whose elements are brought within width·std of it before: two passes, out[b].

    The width is a scalar.

    Source: Tukey (1962), "The future of data analysis".

    >>> import numpy as np
    >>> winsorized_mean()(x=np.array([[0.0, 0.0, 0.0, 4.0]]), width=1.0).round(6).tolist()
    [0.683013]
    """
    n, x, width = axes("n"), tensor("x[b,n]"), scalars("width", positive=True)
    mean, reach = sugar.mean(x, n), width * sugar.std(x, n)
    return fuse(sugar.mean(Max(mean - reach, Min(x, mean + reach)), n), axes="b", passes=2)


@pattern("statistics", b=1024, n=8192)
def clipped_mean() -> Fused:
    """The mean of those elements of a row of x[b,n] that lie within width·std of its mean: two passes, as out[b].

    The width is a scalar.

    Source: Tukey (1962), of sigma clipping.

    >>> import numpy as np
    >>> clipped_mean()(x=np.array([[0.0, 1.0, 2.0, 9.0]]), width=1.5).tolist()
    [1.0]
    """
    n, x, width = axes("n"), tensor("x[b,n]"), scalars("width", positive=True)
    near = Abs(x - sugar.mean(x, n)) <= width * sugar.std(x, n)
    return fuse(sum_over(where(near, x, 0), n) / sum_over(where(near, 1, 0), n), axes="b", passes=2)


@pattern("statistics", b=1024, n=8192)
def share_beyond_mean_deviation() -> Fused:
    """The share of a row of x[b,n] that lies further from the mean than the mean absolute deviation: three passes.

    Source: Tchebichef (1867) bounds it by 1.

    >>> import numpy as np
    >>> share_beyond_mean_deviation()(x=np.array([[1.0, 2.0, 3.0, 10.0]])).tolist()
    [0.25]
    """
    n, x = axes("n"), tensor("x[b,n]")
    apart = Abs(x - sugar.mean(x, n))
    return fuse(sugar.mean(where(apart > sugar.mean(apart, n), 1, 0), n), axes="b", passes=3)


@pattern("statistics", b=1024, n=8192)
def mean_without_extremes() -> Fused:
    """(Σ x - max - min) / (n - 2) of the rows of x[b,n], as out[b].

    Source: Tukey (1962), the mean trimmed by one element at either end.

    >>> import numpy as np
    >>> mean_without_extremes()(x=np.array([[1.0, 2.0, 3.0, 100.0]])).tolist()
    [2.5]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse((sum_over(x, n) - max_over(x, n) - min_over(x, n)) / (n.extent - 2), axes="b")


@pattern("statistics", n=16384, m=16384, shapes={"x": "n"})
def gini_index() -> Fused:
    """Σ |x_n - x_m| / (2 n² mean) over all pairs of x[n], as out[]: 0 where all have the same.

    Source: Gini (1912).

    >>> import numpy as np
    >>> float(gini_index()(x=np.array([0.0, 0.0, 0.0, 8.0])))
    0.75
    """
    n, m = axes("n m")
    x = Tensor("x")
    return fuse(sum_over(Abs(x[n] - x[m]), n, m) / (2 * n.extent**2 * sugar.mean(x[n], n)), axes="")


@pattern("statistics", b=1024, n=8192)
def theil_index() -> Fused:
    """Σ (x/mean) log(x/mean) / n of the rows of x[b,n], all above 0, as out[b].

    Source: Theil (1967), "Economics and information theory", chapter 4.

    >>> import numpy as np
    >>> theil_index()(x=np.array([[1.0, 3.0]])).round(6).tolist()
    [0.130812]
    """
    n, x = axes("n"), tensor("x[b,n]")
    share = x / sugar.mean(x, n)
    return fuse(sugar.mean(share * log(share), n), axes="b")


@pattern("statistics", b=1024, n=8192)
def atkinson_index() -> Fused:
    """1 - geometric mean / mean of the rows of x[b,n], all above 0, as out[b].

    Source: Atkinson (1970), "On the measurement of inequality", of aversion 1.

    >>> import numpy as np
    >>> atkinson_index()(x=np.array([[2.0, 8.0]])).round(6).tolist()
    [0.2]
    """
    n, x = axes("n"), tensor("x[b,n]")
    return fuse(1 - exp(sugar.mean(log(x), n)) / sugar.mean(x, n), axes="b")


@pattern("statistics", b=1024, n=8192)
def effective_sample_size() -> Fused:
    """(Σ w)² / Σ w² of the weights w[b,n]: the number of equal weights that tell as much, as out[b].

    Source: Kish (1965), "Survey sampling", section 11.7.

    >>> import numpy as np
    >>> effective_sample_size()(w=np.array([[1.0, 1.0, 2.0]])).round(6).tolist()
    [2.666667]
    """
    n, w = axes("n"), tensor("w[b,n]")
    return fuse(sum_over(w, n) ** 2 / sum_over(w**2, n), axes="b")
