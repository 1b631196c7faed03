"""Sugar: each function expands to reductions of `expression`, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sympy import Abs, Expr, Max, Mul, Rational, S, exp, log, oo, sqrt, sympify

from redalg.errors import ExpressionError
from redalg.expression import Reduce, eq, where
from redalg.expression import max as _max
from redalg.expression import sum as _sum
from redalg.expression.arguments import answer_arguments
from redalg.expression.operand import as_operand
from redalg.expression.reduce import checked_axes, term_of
from redalg.expression.spelling import REDUCTIONS, no_other

EPS = Rational(1, 10**5)
"""What `layer_norm` adds to a variance unless told otherwise."""

LAYER_NORM = "ra.layer_norm(x, n, eps=1e-5, weight=w, bias=b)"
_NAMES = ("mean", "var", "std", "norm", "logsumexp", "softmax", "log_softmax", "layer_norm", "rms_norm", "normalize",
          "cosine_similarity")  # fmt: skip
REDUCTIONS |= {name: name for name in _NAMES}
REDUCTIONS |= {"amax": "max", "amin": "min", "average": "mean", "cov": "covariance"}


def _check(caller: str, axes: tuple[Any, ...], options: Mapping[str, Any], known: tuple[str, ...] = ()) -> None:
    """Refuse what is no axis and the options of other libraries, in the caller's name."""
    no_other(caller, options, known)
    checked_axes(caller, axes)


def _no_truth_value(caller: str, eps: Any, written: str) -> None:
    if isinstance(eps, bool):
        raise ExpressionError(f"{caller}: eps={eps} should be a number, in units of expr². Write `{written}`.")


def extent(reduction: Reduce) -> Expr:
    """Number of reduced elements, as the count that streams with the data: Σ 1 over the same axes."""
    return Mul(*(axis.extent for axis in reduction.bound))


@answer_arguments(ExpressionError, "Write `ra.mean(x, n)`.")
def mean(expr: Any, *axes: Any, **options: Any) -> Expr:
    """Σ expr / n over the axes; over an empty axis 0/0.

    >>> from redalg import axes, tensor
    >>> mean(tensor("x[b,n]"), axes("n"))
    sum(x[b, n], n)/|n|
    """
    _check("mean", axes, options)
    total = _sum(expr, *axes)
    return total / extent(total)


def _mean_but(expr: Any, axes: tuple[Any, ...], correction: Any) -> Expr:
    """Σ expr / (n - correction), the divisor at least 0."""
    total, less = _sum(expr, *axes), as_operand("correction", correction, "ra.var(x, n, correction=1)")
    return total / (extent(total) if less == 0 else Max(0, extent(total) - less))


@answer_arguments(ExpressionError, "Write `ra.var(x, n)`.")
def var(expr: Any, *axes: Any, correction: Any = 0, **options: Any) -> Expr:
    """Variance, Σ (expr - mean)² / (n - correction): the definition as written, two passes on paper.

    Args:
        expr: the term.
        axes: what to sum over.
        correction: what is taken from the number n of elements: 0 for the variance of a population, 1 (Bessel's) for
            the unbiased estimate from a sample, or another number or scalar. Where n ≤ correction it is 0/0 or ∞.

    >>> import numpy as np, redalg as ra
    >>> x, n = ra.tensor("x[n]"), ra.axes("n")
    >>> [float(ra.fuse(var(x, n, correction=c))(x=np.array([1.0, 2.0, 6.0]))) for c in (0, 1)]
    [4.666666666666667, 7.0]
    """
    _check("var", axes, options, ("correction",))
    return _mean_but((expr - mean(expr, *axes)) ** 2, axes, correction)


@answer_arguments(ExpressionError, "Write `ra.logsumexp(x, n)`.")
def logsumexp(expr: Any, *axes: Any, **options: Any) -> Expr:
    """log Σ exp(expr), written with its maximum: m + log Σ exp(expr - m). Over an empty axis -inf.

    >>> from redalg import axes, tensor
    >>> logsumexp(tensor("x[b,n]"), axes("n"))
    log(sum(exp(x[b, n] - max(x[b, n], n)), n)) + max(x[b, n], n)
    """
    _check("logsumexp", axes, options)
    largest = _max(expr, *axes)
    return largest + log(_sum(exp(expr - largest), *axes))


@answer_arguments(ExpressionError, "Write `ra.softmax(x, n)`.")
def softmax(expr: Any, *axes: Any, **options: Any) -> Expr:
    """exp(expr - max) / Σ exp(expr - max) over the axes: it still carries them.

    >>> from redalg import axes, tensor
    >>> softmax(tensor("s[k]"), axes("k"))
    exp(s[k] - max(s[k], k))/sum(exp(s[k] - max(s[k], k)), k)
    """
    _check("softmax", axes, options)
    weight = exp(expr - _max(expr, *axes))
    return weight / _sum(weight, *axes)


@answer_arguments(ExpressionError, "Write `ra.log_softmax(x, n)`.")
def log_softmax(expr: Any, *axes: Any, **options: Any) -> Expr:
    """expr - log Σ exp(expr) over the axes, written with the maximum: it still carries them.

    >>> from redalg import axes, tensor
    >>> log_softmax(tensor("s[k]"), axes("k"))
    -log(sum(exp(s[k] - max(s[k], k)), k)) + s[k] - max(s[k], k)
    """
    _check("log_softmax", axes, options)
    return expr - logsumexp(expr, *axes)


@answer_arguments(ExpressionError, "Write `ra.std(x, n)`.")
def std(expr: Any, *axes: Any, correction: Any = 0, **options: Any) -> Expr:
    """Standard deviation, √(Σ (expr - mean)² / (n - correction)), correction as in `var`: the axes are gone.

    Fused, it is in range wherever expr is, though its square is not.

    >>> import numpy as np, redalg as ra
    >>> deviation = ra.fuse(std(ra.tensor("x[n]"), ra.axes("n"), correction=1))
    >>> float(deviation(x=np.array([1.0, 2.0, 3.0])))
    1.0
    """
    _check("std", axes, options, ("correction",))
    return sqrt(var(expr, *axes, correction=correction))


@answer_arguments(ExpressionError, "Write `ra.covariance(a, b, n)`.")
def covariance(a: Any, b: Any, *axes: Any, correction: Any = 0, **options: Any) -> Expr:
    """Covariance, Σ (a - mean a)(b - mean b) / (n - correction), correction as in `var`: the axes are gone.

    Source: Pébay (2008), Eq. 3.3, merges it in one pass.

    >>> import numpy as np, redalg as ra
    >>> a, b = ra.tensors("a[n] b[n]")
    >>> both = ra.fuse(covariance(a, b, ra.axes("n"), correction=1))
    >>> float(both(a=np.array([1.0, 2.0, 3.0]), b=np.array([4.0, 6.0, 8.0])))
    2.0
    """
    _check("covariance", axes, options, ("correction",))
    return _mean_but((a - mean(a, *axes)) * (b - mean(b, *axes)), axes, correction)


@answer_arguments(ExpressionError, "Write `ra.norm(x, n)`.")
def norm(expr: Any, *axes: Any, p: Any = 2, **options: Any) -> Expr:
    """The p-norm (Σ |expr|^p)^(1/p), of a matrix over two axes with p = 2 Frobenius': the axes are gone.

    Fused, it is in range wherever the norm is: the powers are taken of expr/2^k, 2^k near max |expr|, since nothing but
    their root is asked for. Beside Σ |expr|^p as an output the plain sum is kept, whose range is that of |expr|^p.

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
    _check("norm", axes, options, ("p",))
    expr = term_of("norm", expr)
    power = sympify(p, rational=True)
    if power == oo:
        return _max(Abs(expr), *axes)
    if not (isinstance(power, Rational) and power > 0):
        raise ExpressionError(f"norm: p={p!r} is not a positive rational number or oo. Write the norm with `ra.sum`.")
    return _sum(expr**power if power % 2 == 0 else Abs(expr) ** power, *axes) ** (1 / power)


@answer_arguments(ExpressionError, "Write `ra.entropy(x, n)`.")
def entropy(expr: Any, *axes: Any, **options: Any) -> Expr:
    """-Σ p log p of a distribution p = expr over the axes, in nats, with 0 log 0 = 0: the axes are gone.

    Source: Shannon (1948), section 6.

    >>> import numpy as np, redalg as ra
    >>> nats = ra.fuse(entropy(ra.tensor("p[n]"), ra.axes("n")))
    >>> round(float(nats(p=np.array([0.5, 0.5, 0.0]))), 4)
    0.6931
    """
    _check("entropy", axes, options)
    expr = term_of("entropy", expr)
    term = expr * log(expr)
    return -_sum(term if expr.has(Reduce) else where(eq(expr, 0), 0, term), *axes)


@answer_arguments(ExpressionError, "Write `ra.cosine_similarity(a, b, n)`.")
def cosine_similarity(a: Any, b: Any, *axes: Any, **options: Any) -> Expr:
    """Σ a·b / √(Σ a² · Σ b²), between -1 and 1; of a zero vector 0/0: the axes are gone.

    >>> import numpy as np, redalg as ra
    >>> a, b = ra.tensors("a[n] b[n]")
    >>> cosine = ra.fuse(cosine_similarity(a, b, ra.axes("n")))
    >>> float(cosine(a=np.array([1.0, 0.0]), b=np.array([3.0, 4.0])))
    0.6
    """
    _check("cosine_similarity", axes, options)
    a, b = term_of("cosine_similarity", a), term_of("cosine_similarity", b)
    return _sum(a * b, *axes) / sqrt(_sum(a**2, *axes) * _sum(b**2, *axes))


@answer_arguments(ExpressionError, "Write `ra.normalize(x, n)`.")
def normalize(expr: Any, *axes: Any, p: Any = 2, **options: Any) -> Expr:
    """expr / norm(expr) over the axes; of a zero vector 0/0: it still carries the axes.

    >>> from redalg import axes, tensor
    >>> normalize(tensor("x[n]"), axes("n"))
    x[n]/sqrt(sum(x[n]**2, n))
    """
    _check("normalize", axes, options, ("p",))
    return expr / norm(expr, *axes, p=p)


@answer_arguments(ExpressionError, "Write `ra.layer_norm(x, n)`.")
def layer_norm(
    expr: Any, *axes: Any, eps: Any = EPS, weight: Any = 1, bias: Any = 0, correction: Any = 0, **options: Any
) -> Expr:
    """(expr - mean) / √(var + eps) · weight + bias: it still carries the axes.

    Args:
        expr: the term.
        axes: those of the mean and of the variance.
        eps: a positive number or scalar, in units of expr².
        weight: a tensor's element over the axes.
        bias: a tensor's element over the axes.
        correction: of the variance, as in `var`.

    Source: Ba, Kiros, Hinton (2016), Eq. 4.

    >>> from redalg import axes, tensor
    >>> layer_norm(tensor("x[n]"), axes("n"), eps=0)
    (x[n] - sum(x[n], n)/|n|)/sqrt(sum((x[n] - sum(x[n], n)/|n|)**2, n)/|n|)
    """
    _check("layer_norm", axes, options, ("eps", "weight", "bias", "correction"))
    _no_truth_value("layer_norm", eps, LAYER_NORM)
    eps, weight, bias = (as_operand("layer_norm", one, LAYER_NORM) for one in (eps, weight, bias))
    return (expr - mean(expr, *axes)) / sqrt(var(expr, *axes, correction=correction) + eps) * weight + bias


@answer_arguments(ExpressionError, "Write `ra.rms_norm(x, n)`.")
def rms_norm(expr: Any, *axes: Any, eps: Any = S.Zero, weight: Any = 1, **options: Any) -> Expr:
    """expr / √(Σ expr² / n + eps) · weight: it still carries the axes.

    Source: Zhang, Sennrich (2019), Eq. 4.

    >>> from redalg import axes, tensor
    >>> rms_norm(tensor("x[n]"), axes("n"), weight=tensor("w[n]"))
    w[n]*x[n]/sqrt(sum(x[n]**2, n)/|n|)
    """
    _check("rms_norm", axes, options, ("eps", "weight"))
    expr, written = term_of("rms_norm", expr), "ra.rms_norm(x, n, eps=1e-6, weight=w)"
    _no_truth_value("rms_norm", eps, written)
    eps, weight = as_operand("rms_norm", eps, written), as_operand("rms_norm", weight, written)
    return expr / sqrt(mean(expr**2, *axes) + eps) * weight
