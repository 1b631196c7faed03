"""Sugar: each function expands to reductions of `expression`, and nothing more."""

from __future__ import annotations

from typing import Any

from sympy import Abs, Expr, Mul, Rational, S, exp, log, oo, sqrt, sympify

from redalg.errors import ExpressionError
from redalg.expression import Reduce, eq, where
from redalg.expression import max as _max
from redalg.expression import sum as _sum

EPS = Rational(1, 10**5)
"""What `layer_norm` adds to a variance unless told otherwise."""


def extent(reduction: Reduce) -> Expr:
    """Number of reduced elements, as the count that streams with the data: Σ 1 over the same axes."""
    return Mul(*(axis.extent for axis in reduction.bound))


def mean(expr: Any, *axes: Any) -> Expr:
    """Σ expr / n over the axes; over an empty axis 0/0.

    >>> from redalg import axes, tensor
    >>> mean(tensor("x[b,n]"), axes("n"))
    sum(x[b, n], n)/|n|
    """
    total = _sum(expr, *axes)
    return total / extent(total)


def var(expr: Any, *axes: Any) -> Expr:
    """Population variance, Σ (expr - mean)² / n: the definition as written, two passes on paper."""
    return mean((expr - mean(expr, *axes)) ** 2, *axes)


def logsumexp(expr: Any, *axes: Any) -> Expr:
    """log Σ exp(expr), written with its maximum: m + log Σ exp(expr - m). Over an empty axis -inf."""
    largest = _max(expr, *axes)
    return largest + log(_sum(exp(expr - largest), *axes))


def softmax(expr: Any, *axes: Any) -> Expr:
    """exp(expr - max) / Σ exp(expr - max) over the axes: it still carries them.

    >>> from redalg import axes, tensor
    >>> softmax(tensor("s[k]"), axes("k"))
    exp(s[k] - max(s[k], k))/sum(exp(s[k] - max(s[k], k)), k)
    """
    weight = exp(expr - _max(expr, *axes))
    return weight / _sum(weight, *axes)


def log_softmax(expr: Any, *axes: Any) -> Expr:
    """expr - log Σ exp(expr) over the axes, written with the maximum: it still carries them.

    >>> from redalg import axes, tensor
    >>> log_softmax(tensor("s[k]"), axes("k"))
    -log(sum(exp(s[k] - max(s[k], k)), k)) + s[k] - max(s[k], k)
    """
    return expr - logsumexp(expr, *axes)


def std(expr: Any, *axes: Any) -> Expr:
    """Population standard deviation, √(Σ (expr - mean)² / n): the axes are gone."""
    return sqrt(var(expr, *axes))


def covariance(a: Any, b: Any, *axes: Any) -> Expr:
    """Population covariance, Σ (a - mean a)(b - mean b) / n: the axes are gone.

    Source: Pébay (2008), Eq. 3.3, merges it in one pass.
    """
    return mean((a - mean(a, *axes)) * (b - mean(b, *axes)), *axes)


def norm(expr: Any, *axes: Any, p: Any = 2) -> Expr:
    """The p-norm (Σ |expr|^p)^(1/p), of a matrix over two axes with p = 2 Frobenius': the axes are gone.

    Fused, it is in range wherever the norm is: the powers are taken of expr/2^k, 2^k near max |expr|, since nothing but
    their root is asked for. Beside Σ |expr|^p itself as an output, or as √(Σ expr² + ε), the plain sum is kept, whose
    range is that of |expr|^p.

    Args:
        expr: the term.
        axes: what to sum over.
        p: a positive rational number, or `oo` for the largest |expr|.

    Raises:
        ExpressionError: for another p.

    >>> from redalg import axes, tensor
    >>> norm(tensor("x[i,j]"), *axes("i j"))
    sqrt(sum(x[i, j]**2, i, j))
    """
    power = sympify(p, rational=True)
    if power == oo:
        return _max(Abs(expr), *axes)
    if not (isinstance(power, Rational) and power > 0):
        raise ExpressionError(f"norm: p={p!r} is not a positive rational number or oo. Write the norm with `ra.sum`.")
    return _sum(expr**power if power % 2 == 0 else Abs(expr) ** power, *axes) ** (1 / power)


def entropy(expr: Any, *axes: Any) -> Expr:
    """-Σ p log p of a distribution p = expr over the axes, in nats, with 0 log 0 = 0: the axes are gone.

    Source: Shannon (1948), section 6.
    """
    term = expr * log(expr)
    return -_sum(term if expr.has(Reduce) else where(eq(expr, 0), 0, term), *axes)


def cosine_similarity(a: Any, b: Any, *axes: Any) -> Expr:
    """Σ a·b / √(Σ a² · Σ b²), between -1 and 1; of a zero vector 0/0: the axes are gone."""
    return _sum(a * b, *axes) / sqrt(_sum(a**2, *axes) * _sum(b**2, *axes))


def normalize(expr: Any, *axes: Any, p: Any = 2) -> Expr:
    """expr / norm(expr) over the axes; of a zero vector 0/0: it still carries the axes."""
    return expr / norm(expr, *axes, p=p)


def layer_norm(expr: Any, *axes: Any, eps: Any = EPS, weight: Any = 1, bias: Any = 0) -> Expr:
    """(expr - mean) / √(var + eps) · weight + bias: it still carries the axes.

    Args:
        expr: the term.
        axes: those of the mean and of the variance.
        eps: a positive number or scalar, in units of expr².
        weight: a tensor's element over the axes.
        bias: a tensor's element over the axes.

    Source: Ba, Kiros, Hinton (2016), Eq. 4.

    >>> from redalg import axes, tensor
    >>> layer_norm(tensor("x[n]"), axes("n"), eps=0)
    (x[n] - sum(x[n], n)/|n|)/sqrt(sum((x[n] - sum(x[n], n)/|n|)**2, n)/|n|)
    """
    return (expr - mean(expr, *axes)) / sqrt(var(expr, *axes) + eps) * weight + bias


def rms_norm(expr: Any, *axes: Any, eps: Any = S.Zero, weight: Any = 1) -> Expr:
    """expr / √(Σ expr² / n + eps) · weight: it still carries the axes.

    Source: Zhang, Sennrich (2019), Eq. 4.
    """
    return expr / sqrt(mean(expr**2, *axes) + eps) * weight
