"""Rows brought to one scale, and what rows of scores lose for their targets."""

from __future__ import annotations

from typing import Any

from sympy import Rational, oo

from redalg import sugar
from redalg.expression import Element, Tensor, axes, tensor, tensors, where
from redalg.expression import max as max_over
from redalg.expression import min as min_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern


@pattern("normalization", b=4096, n=4096, dtype="bfloat16")
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


@pattern("normalization", b=4096, n=4096, dtype="bfloat16")
def log_softmax(mask: Any = None) -> Fused:
    """x - log Σ exp(x) along the rows of x[b,n], as out[b,n]; `mask` as for `softmax` (what it hides is -inf).

    Source: Milakov and Gimelshein (2018), Algorithm 3, less its last division.

    >>> import numpy as np
    >>> np.exp(log_softmax()(x=np.array([[1000.0, 1000.0]]))).round(6).tolist()
    [[0.5, 0.5]]
    """
    return fuse(sugar.log_softmax(_masked_input(mask), axes("n")), axes="b n")


@pattern("normalization", b=4096, n=4096, dtype="bfloat16")
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


@pattern("normalization", b=4096, n=4096, dtype="bfloat16")
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


@pattern("losses", b=4096, n=32000, dtype="bfloat16", shapes={"x": "b n"})
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


@pattern("normalization", b=16384, n=768)
def l2_normalize() -> Fused:
    """x / √(Σ x²) along the rows of x[b,n], as out[b,n]; it is in range wherever x is, though x² may not be.

    Source: Wang et al. (2017), "NormFace"; Blue (1978) for the scale.

    >>> import numpy as np
    >>> l2_normalize()(x=np.array([[3e200, -4e200]])).round(6).tolist()
    [[0.6, -0.8]]
    """
    return fuse(sugar.normalize(tensor("x[b,n]"), axes("n")), axes="b n")


@pattern("normalization", b=32, g=32, c=10, s=1024, dtype="float16")
def group_norm(*, eps: Any = sugar.EPS) -> Fused:
    """(x - mean) / √(variance + eps) over the channels c of a group g and over space s, of x[b,g,c,s].

    The result is times weight[g,c] plus bias[g,c], as out[b,g,c,s].

    Args:
        eps: a positive number, in units of x².

    Source: Wu, He (2018), "Group Normalization", Eq. 1 and 2.

    >>> import numpy as np
    >>> one = np.ones((1, 2))
    >>> group_norm(eps=0)(x=np.array([[[[1.0, 3.0], [1.0, 3.0]]]]), weight=one, bias=0 * one).tolist()
    [[[[-1.0, 1.0], [-1.0, 1.0]]]]
    """
    c, s = axes("c s")
    x, weight, bias = tensors("x[b,g,c,s] weight[g,c] bias[g,c]")
    return fuse(sugar.layer_norm(x, c, s, eps=eps, weight=weight, bias=bias), axes="b g c s")


@pattern("normalization", o=4096, n=4096)
def weight_norm() -> Fused:
    """g v / ‖v‖, the direction of every row of v[o,n] times its length g[o], as out[o,n].

    Source: Salimans, Kingma (2016), Eq. 2.

    >>> import numpy as np
    >>> weight_norm()(v=np.array([[3.0, 4.0]]), g=np.array([10.0])).tolist()
    [[6.0, 8.0]]
    """
    v, g = tensors("v[o,n] g[o]")
    return fuse(g * sugar.normalize(v, axes("n")), axes="o n")


@pattern("normalization", o=4096, n=4096)
def weight_standardization() -> Fused:
    """(v - mean) / std along the rows of v[o,n], as out[o,n].

    Source: Qiao et al. (2019), "Weight Standardization", Eq. 2.

    >>> import numpy as np
    >>> weight_standardization()(v=np.array([[1e30, 3e30]])).tolist()
    [[-1.0, 1.0]]
    """
    return fuse(sugar.layer_norm(tensor("v[o,n]"), axes("n"), eps=0), axes="o n")


@pattern("normalization", b=64, n=3136, c=256)
def batch_statistics() -> Fused:
    """Mean and variance over the batch b and the places n of x[b,n,c], as a tuple (mean[c], var[c]).

    Source: Ioffe, Szegedy (2015), Algorithm 1.

    >>> import numpy as np
    >>> mean, var = batch_statistics()(x=np.array([[[1.0], [3.0]], [[5.0], [7.0]]]))
    >>> mean.tolist(), var.tolist()
    ([4.0], [5.0])
    """
    b, n = axes("b n")
    x = tensor("x[b,n,c]")
    return fuse({"mean": (sugar.mean(x, b, n), "c"), "var": (sugar.var(x, b, n), "c")})


@pattern("normalization", b=64, n=3136, c=256)
def instance_norm(*, eps: Any = sugar.EPS) -> Fused:
    """(x - mean) / √(variance + eps) over the places n of every channel of x[b,n,c], as out[b,n,c].

    Args:
        eps: a positive number, in units of x².

    Source: Ulyanov, Vedaldi, Lempitsky (2016), Eq. 2.

    >>> import numpy as np
    >>> instance_norm(eps=0)(x=np.array([[[1.0], [3.0]]])).tolist()
    [[[-1.0], [1.0]]]
    """
    return fuse(sugar.layer_norm(tensor("x[b,n,c]"), axes("n"), eps=eps), axes="b n c")


@pattern("normalization", b=4096, n=4096)
def min_max_scaling() -> Fused:
    """(x - min) / (max - min) along the rows of x[b,n], from 0 to 1, as out[b,n].

    Source: Han, Kamber (2000), section 3.3.

    >>> import numpy as np
    >>> min_max_scaling()(x=np.array([[2.0, 4.0, 3.0]])).tolist()
    [[0.0, 1.0, 0.5]]
    """
    n = axes("n")
    x = tensor("x[b,n]")
    return fuse((x - min_over(x, n)) / (max_over(x, n) - min_over(x, n)), axes="b n")


@pattern("normalization", b=64, n=3136, c=2048, m=2048, shapes={"x": "b n c"})
def response_norm(*, eps: Any = sugar.EPS) -> Fused:
    """x ‖x‖ₙ / (meanₘ ‖x‖ₙ + eps): every channel of x[b,n,c] by its norm over the places, beside the channels' mean.

    Args:
        eps: a positive number, in units of x.

    Returns:
        The fused function, with the output out[b,n,c]. The norms are reduced again, over the channels.

    Source: Woo et al. (2023), "ConvNeXt V2", Algorithm 1 (global response normalization).

    >>> import numpy as np
    >>> response_norm(eps=0)(x=np.array([[[3.0, 1.0], [4.0, 0.0]]])).round(3).tolist()
    [[[5.0, 0.333], [6.667, 0.0]]]
    """
    b, n, m = axes("b n m")
    x, X = tensor("x[b,n,c]"), Tensor("x")
    norm, norms = (sum_over(one**2, n) ** Rational(1, 2) for one in (x, X[b, n, m]))
    return fuse(x * norm / (sugar.mean(norms, m) + eps), axes="b n c")


def _masked_input(mask: Any) -> Any:
    x: Element = tensor("x[b,n]")
    return x if mask is None else where(mask, x, -oo)
