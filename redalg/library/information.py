"""Information theory: entropies and divergences of distributions, given as such or by their scores."""

from __future__ import annotations

from typing import Any

from sympy import Abs, Expr, exp, log, sqrt

from redalg import sugar
from redalg.expression import axes, eq, scalars, tensor, tensors, where
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("information", b=4096, n=4096)
def shannon_entropy() -> Fused:
    """-Σ p log p of the distributions p[b,n], in nats, with 0 log 0 = 0, as out[b].

    Source: Shannon (1948), "A mathematical theory of communication", section 6.

    >>> import numpy as np
    >>> shannon_entropy()(p=np.array([[0.5, 0.5, 0.0]])).round(6).tolist()
    [0.693147]
    """
    return fuse(sugar.entropy(tensor("p[b,n]"), axes("n")), axes="b")


@pattern("information", b=4096, n=32000)
def softmax_entropy() -> Fused:
    """-Σ p log p of p = softmax(s), of scores s[b,n], as out[b].

    Source: Shannon (1948); Jaynes (1957) for its value log Σ exp(s) - Σ p s.

    >>> import numpy as np
    >>> softmax_entropy()(s=np.array([[700.0, 700.0, -700.0]])).round(6).tolist()
    [0.693147]
    """
    return fuse(entropy_of_scores(tensor("s[b,n]"), axes("n")), axes="b")


@pattern("information", b=4096, n=32000)
def perplexity() -> Fused:
    """exp of the entropy of softmax(s), of scores s[b,n], as out[b]: the number of equally likely words.

    Source: Jelinek et al. (1977), "Perplexity - a measure of the difficulty of speech recognition tasks".

    >>> import numpy as np
    >>> perplexity()(s=np.zeros((1, 5))).round(6).tolist()
    [5.0]
    """
    return fuse(exp(entropy_of_scores(tensor("s[b,n]"), axes("n"))), axes="b")


@pattern("information", b=4096, v=32000, dtype="bfloat16")
def kl_divergence(temperature: Any = 1) -> Fused:
    """Σ softmax(y) (log softmax(y) - log softmax(x)) of scores x[b,v] and y[b,v], as out[b].

    Args:
        temperature: a positive number, by which the scores are divided.

    Source: Kullback, Leibler (1951), "On information and sufficiency".

    >>> import numpy as np
    >>> kl_divergence()(x=np.zeros((1, 2)), y=np.array([[0.0, np.log(3)]])).round(6).tolist()
    [0.130812]
    """
    v, T = axes("v"), temperature
    x, y = tensors("x[b,v] y[b,v]")
    apart = sugar.log_softmax(y / T, v) - sugar.log_softmax(x / T, v)
    return fuse(sum_over(sugar.softmax(y / T, v) * apart, v), axes="b")


@pattern("information", b=4096, n=4096)
def js_divergence() -> Fused:
    """The divergence of Jensen and Shannon of the distributions p[b,n] and q[b,n], in nats, as out[b].

    (Σ p log p + Σ q log q) / 2 - Σ m log m with m = (p + q) / 2 and 0 log 0 = 0; log 2 at most.

    Source: Lin (1991), "Divergence measures based on the Shannon entropy".

    >>> import numpy as np
    >>> js_divergence()(p=np.array([[1.0, 0.0]]), q=np.array([[0.0, 1.0]])).round(6).tolist()
    [0.693147]
    """
    n = axes("n")
    p, q = tensors("p[b,n] q[b,n]")
    middle = (p + q) / 2
    own = _times_log(p, p / middle) + _times_log(q, q / middle)
    return fuse(sum_over(where(eq(middle, 0), 0, own / 2), n), axes="b")


@pattern("information", b=64, n=512, m=512, shapes={"p": "b n m"})
def mutual_information() -> Fused:
    """Σ p log(p / (p(n) p(m))) of joint distributions p[b,n,m], in nats, with 0 log 0 = 0, as out[b].

    Source: Shannon (1948), section 12.

    >>> import numpy as np
    >>> mutual_information()(p=np.array([[[0.5, 0.0], [0.0, 0.5]]])).round(6).tolist()
    [0.693147]
    """
    n, m = axes("n m")
    p = tensor("p[b,n,m]")
    rows, columns = sum_over(p, m), sum_over(p, n)
    of_columns = sum_over(sum_over(_times_log(p, p / rows), m), n)
    return fuse(of_columns - sum_over(_times_log(columns, columns), m), axes="b")


@pattern("information", b=4096, n=32000)
def renyi_entropy() -> Fused:
    """log Σ pᵅ / (1 - α) of p = softmax(s), of scores s[b,n] and a scalar alpha that is not 1, as out[b].

    Source: Rényi (1961), "On measures of entropy and information", Eq. 1.21.

    >>> import numpy as np
    >>> renyi_entropy()(s=np.log(np.array([[1.0, 3.0]])), alpha=2.0).round(6).tolist()
    [0.470004]
    """
    n, s, alpha = axes("n"), tensor("s[b,n]"), scalars("alpha", positive=True)
    return fuse((sugar.logsumexp(alpha * s, n) - alpha * sugar.logsumexp(s, n)) / (1 - alpha), axes="b")


@pattern("information", b=4096, n=4096)
def tsallis_entropy() -> Fused:
    """1 - Σ p² of p = softmax(s), of scores s[b,n], as out[b]: Gini's impurity.

    Source: Tsallis (1988), of order 2; Breiman et al. (1984).

    >>> import numpy as np
    >>> tsallis_entropy()(s=np.zeros((1, 4))).tolist()
    [0.75]
    """
    n, s = axes("n"), tensor("s[b,n]")
    return fuse(1 - sum_over(sugar.softmax(s, n) ** 2, n), axes="b")


@pattern("information", b=4096, n=4096)
def hellinger_distance() -> Fused:
    """√(Σ (√(p / Σ p) - √(q / Σ q))² / 2) of the counts p[b,n] and q[b,n], as out[b].

    It is √(1 - Σ √(p q) / √(Σ p Σ q)), whose difference may round to less than 0.

    Source: Hellinger (1909).

    >>> import numpy as np
    >>> hellinger_distance()(p=np.array([[2.0, 0.0]]), q=np.array([[0.0, 3.0]])).round(9).tolist()
    [1.0]
    """
    n = axes("n")
    p, q = tensors("p[b,n] q[b,n]", nonnegative=True)
    apart = sqrt(p / sum_over(p, n)) - sqrt(q / sum_over(q, n))
    return fuse(sqrt(sum_over(apart**2, n) / 2), axes="b")


@pattern("information", b=4096, n=4096)
def chi_square() -> Fused:
    """Σ (p - q)² / q of the counts p[b,n] and those expected, q[b,n], as out[b].

    Source: Pearson (1900).

    >>> import numpy as np
    >>> chi_square()(p=np.array([[3.0, 1.0]]), q=np.array([[2.0, 2.0]])).tolist()
    [1.0]
    """
    p, q = tensors("p[b,n] q[b,n]")
    return fuse(sum_over((p - q) ** 2 / q, axes("n")), axes="b")


@pattern("information", b=4096, n=4096)
def variation_distance() -> Fused:
    """Σ |p - q| / 2 of the distributions p[b,n] and q[b,n], as out[b].

    Source: Levin, Peres, Wilmer (2009), section 4.1.

    >>> import numpy as np
    >>> variation_distance()(p=np.array([[0.5, 0.5]]), q=np.array([[1.0, 0.0]])).tolist()
    [0.5]
    """
    p, q = tensors("p[b,n] q[b,n]")
    return fuse(sum_over(Abs(p - q), axes("n")) / 2, axes="b")


def entropy_of_scores(s: Any, axis: Any) -> Expr:
    """The entropy of softmax(s), as log Σ exp(s) less the mean of s: no logarithm of a probability that is 0."""
    return sugar.logsumexp(s, axis) - sum_over(sugar.softmax(s, axis) * s, axis)


def _times_log(p: Any, ratio: Any) -> Expr:
    """p·log(ratio), 0 where p is."""
    return p * log(where(eq(p, 0), 1, ratio))
