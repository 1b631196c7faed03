"""Rows brought to one scale, and what rows of scores lose for their targets."""

from __future__ import annotations

from typing import Any

from sympy import oo

from redalg import sugar
from redalg.expression import Element, Tensor, axes, tensor, tensors, where
from redalg.fuse import Fused, fuse


def softmax(mask: Any = None) -> Fused:
    """exp(x - max) / Σ exp(x - max) along the rows of x[b,n], as out[b,n].

    Args:
        mask: where an element counts, a Boolean over axes and data, such as `n < length` with `length[b]`; what it
            hides is 0 in the output.

    Source: Milakov and Gimelshein (2018), Algorithm 3: its derived form.

    >>> import numpy as np
    >>> softmax()(x=np.array([[0.0, 0.0, -np.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return fuse(sugar.softmax(_masked_input(mask), axes("n")), axes="b n")


def log_softmax(mask: Any = None) -> Fused:
    """x - log Σ exp(x) along the rows of x[b,n], as out[b,n]; `mask` as for `softmax` (what it hides is -inf).

    Source: Milakov and Gimelshein (2018), Algorithm 3, less its last division.

    >>> import numpy as np
    >>> np.exp(log_softmax()(x=np.array([[1000.0, 1000.0]]))).round(6).tolist()
    [[0.5, 0.5]]
    """
    return fuse(sugar.log_softmax(_masked_input(mask), axes("n")), axes="b n")


def layer_norm(*, eps: Any = sugar.EPS, affine: bool = True) -> Fused:
    """(x - mean) / √(variance + eps) along the rows of x[b,n], times weight[n] plus bias[n], as out[b,n].

    Args:
        eps: a positive number, in units of x².
        affine: whether weight and bias are applied.

    Source: Ba, Kiros, Hinton (2016), Eq. 4. Mean and variance are found in one pass, as by Welford (1962).

    >>> import numpy as np
    >>> layer_norm(eps=0, affine=False)(x=np.array([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """
    x, weight, bias = tensors("x[b,n] weight[n] bias[n]")
    parameters = {"weight": weight, "bias": bias} if affine else {}
    return fuse(sugar.layer_norm(x, axes("n"), eps=eps, **parameters), axes="b n")


def rms_norm(*, eps: Any = sugar.EPS, affine: bool = True) -> Fused:
    """x / √(Σ x² / n + eps) along the rows of x[b,n], times weight[n], as out[b,n].

    Args:
        eps: a positive number, in units of x².
        affine: whether the weight is applied.

    Source: Zhang, Sennrich (2019), Eq. 4.

    >>> import numpy as np
    >>> rms_norm(eps=0, affine=False)(x=np.array([[3.0, -3.0]])).tolist()
    [[1.0, -1.0]]
    """
    x, weight = tensors("x[b,n] weight[n]")
    parameters = {"weight": weight} if affine else {}
    return fuse(sugar.rms_norm(x, axes("n"), eps=eps, **parameters), axes="b n")


def cross_entropy() -> Fused:
    """log Σ exp(x) - x[b, target[b]] of the rows of x[b,n]: what a row of scores loses for its target, as out[b].

    The scores are never normalised in memory: the row is read once, and one element of it again.

    Source: Good (1952), "Rational decisions" (the logarithmic score).

    >>> import numpy as np
    >>> float(cross_entropy()(x=np.array([[0.0, 0.0]]), target=np.array([1]))[0].round(6))
    0.693147
    """
    b, n = axes("b n")
    target = tensor("target[b]")
    return fuse(sugar.logsumexp(tensor("x[b,n]"), n) - Tensor("x")[b, target], axes="b")


def _masked_input(mask: Any) -> Any:
    x: Element = tensor("x[b,n]")
    return x if mask is None else where(mask, x, -oo)
