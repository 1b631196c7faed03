"""Sugar: each function expands to reductions of `expression`, and nothing more."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Mul, exp, log

from redalg.expression import Axis, Reduce
from redalg.expression import max as _max
from redalg.expression import sum as _sum


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


def softmax(expr: Any, axis: Axis) -> Expr:
    """exp(expr - max) / Σ exp(expr - max) along `axis`: it still carries the axis.

    >>> from redalg import axes, tensor
    >>> softmax(tensor("s[k]"), axes("k"))
    exp(s[k] - max(s[k], k))/sum(exp(s[k] - max(s[k], k)), k)
    """
    weight = exp(expr - _max(expr, axis))
    return weight / _sum(weight, axis)
