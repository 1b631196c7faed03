"""Losses of rows of scores or of pairs of numbers, as they are written in papers."""

from __future__ import annotations

from typing import Any

from sympy import Abs, Expr, Max, Rational, cosh, exp, log, oo, sqrt

from redalg import sugar
from redalg.expression import Tensor, axes, eq, ne, scalars, tensor, tensors, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern

TENTH, SMALL = Rational(1, 10), Rational(1, 10**4)


def _scores() -> tuple[Expr, Expr, Any]:
    """log Σ exp(x) of the rows of x[b,n], the score x[b, label[b]], and the axis."""
    b, n = axes("b n")
    x, label = tensors("x[b,n] label[b]")
    return sugar.logsumexp(x, n), Tensor("x")[b, label], n


@pattern("losses", b=4096, n=32000, dtype="bfloat16", shapes={"x": "b n"})
def label_smoothing(share: Any = TENTH, z: Any = SMALL) -> Fused:
    """Cross entropy with a smoothed target and a z-loss, of x[b,n] and label[b], as out[b].

    log Z - (1 - share)·x[label] - share·mean(x) + z·(log Z)² with log Z = log Σ exp(x).

    Args:
        share: the part of the target that all words have alike.
        z: the factor of the square.

    Source: Szegedy et al. (2016), section 7; z-loss: Chowdhery et al. (2022), "PaLM".

    >>> import numpy as np
    >>> loss = label_smoothing(share=0.5, z=0)(x=np.array([[0.0, 2.0]]), label=np.array([1]))
    >>> loss.round(6).tolist()
    [0.626928]
    """
    total, own, n = _scores()
    return fuse(total - (1 - share) * own - share * sugar.mean(tensor("x[b,n]"), n) + z * total**2, axes="b")


@pattern("losses", b=4096, n=1000, shapes={"x": "b n"})
def focal_loss(gamma: Any = 2) -> Fused:
    """(1 - p)^gamma · (-log p) of the probability p = softmax(x)[label], of x[b,n] and label[b], as out[b].

    Args:
        gamma: how little of the loss an easy row has.

    Source: Lin et al. (2017), "Focal loss for dense object detection", Eq. 4.

    >>> import numpy as np
    >>> focal_loss()(x=np.array([[0.0, 0.0]]), label=np.array([0])).round(6).tolist()
    [0.173287]
    """
    total, own, _ = _scores()
    return fuse((1 - exp(own - total)) ** gamma * (total - own), axes="b")


@pattern("losses", i=8192, j=8192, d=256, dtype="float16", shapes={"y": "j d"})
def info_nce() -> Fused:
    """-log softmax of the cosines of x[i,d] with all y[j,d] over a temperature tau, at j = i, as out[i].

    Source: van den Oord, Li, Vinyals (2018), Eq. 4; with cosines: Chen et al. (2020), "SimCLR", Eq. 1.

    >>> import numpy as np
    >>> info_nce()(x=np.eye(2), y=5 * np.eye(2), tau=1.0).round(6).tolist()
    [0.313262, 0.313262]
    """
    i, j, d = axes("i j d")
    x, y, Y = *tensors("x[i,d] y[j,d]"), Tensor("y")
    tau = scalars("tau", positive=True)

    def score(other: Any) -> Expr:
        return sum_over(x * other, d) / (sugar.norm(x, d) * sugar.norm(other, d)) / tau

    return fuse(sugar.logsumexp(score(y), j) - score(Y[i, d]), axes="i")


@pattern("losses", b=64, n=65536)
def dice_loss() -> Fused:
    """1 - 2 Σ p y / (Σ p + Σ y) of p = 1/(1 + exp(-x)), of x[b,n] and truths y[b,n], as out[b].

    Source: Milletari, Navab, Ahmadi (2016), "V-Net"; without squares: Sudre et al. (2017).

    >>> import numpy as np
    >>> dice_loss()(x=np.array([[9e3, -9e3]]), y=np.array([[1.0, 1.0]])).round(6).tolist()
    [0.333333]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    p = 1 / (1 + exp(-x))
    return fuse(1 - 2 * sum_over(p * y, n) / (sum_over(p, n) + sum_over(y, n)), axes="b")


@pattern("losses", b=64, n=65536)
def tversky_loss(alpha: Any = 3 * TENTH, beta: Any = 7 * TENTH) -> Fused:
    """1 - Σ p y / (Σ p y + alpha Σ p (1 - y) + beta Σ (1 - p) y) of p[b,n] and y[b,n] from 0 to 1, as out[b].

    Args:
        alpha: the weight of what is found and not there.
        beta: the weight of what is there and not found.

    Source: Salehi, Erdogmus, Gholipour (2017), Eq. 3.

    >>> import numpy as np
    >>> tversky_loss()(p=np.array([[1.0, 1.0]]), y=np.array([[1.0, 0.0]])).round(6).tolist()
    [0.230769]
    """
    n = axes("n")
    p, y = tensors("p[b,n] y[b,n]")
    found = sum_over(p * y, n)
    wrong = alpha * sum_over(p * (1 - y), n) + beta * sum_over((1 - p) * y, n)
    return fuse(1 - found / (found + wrong), axes="b")


@pattern("losses", b=4096, n=32000, dtype="bfloat16")
def distillation() -> Fused:
    """T² Σ softmax(t/T) (log softmax(t/T) - log softmax(s/T)) of a student's s[b,n] and a teacher's t[b,n], as out[b].

    The temperature T is a scalar.

    Source: Hinton, Vinyals, Dean (2015), section 2.

    >>> import numpy as np
    >>> distillation()(s=np.zeros((1, 2)), t=np.array([[0.0, np.log(3)]]), T=1.0).round(6).tolist()
    [0.130812]
    """
    n = axes("n")
    s, t = tensors("s[b,n] t[b,n]")
    T = scalars("T", positive=True)
    apart = sugar.log_softmax(t / T, n) - sugar.log_softmax(s / T, n)
    return fuse(T**2 * sum_over(sugar.softmax(t / T, n) * apart, n), axes="b")


@pattern("losses", b=4096, n=4096)
def huber_loss() -> Fused:
    """The mean of e²/2 where |e| ≤ delta, else delta (|e| - delta/2), with e = x - y of x[b,n] and y[b,n], as out[b].

    The bound delta is a scalar.

    Source: Huber (1964), "Robust estimation of a location parameter".

    >>> import numpy as np
    >>> huber_loss()(x=np.array([[1.0, 4.0]]), y=np.zeros((1, 2)), delta=2.0).tolist()
    [3.25]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    delta, apart = scalars("delta", positive=True), Abs(x - y)
    return fuse(sugar.mean(where(apart <= delta, apart**2 / 2, delta * (apart - delta / 2)), n), axes="b")


@pattern("losses", b=4096, n=4096)
def log_cosh_loss() -> Fused:
    """The mean of log cosh(x - y) over the rows of x[b,n] and y[b,n], as out[b].

    Source: Green (1990), "Bayesian reconstructions from emission tomography data".

    >>> import numpy as np
    >>> log_cosh_loss()(x=np.array([[1.0, -1.0]]), y=np.zeros((1, 2))).round(6).tolist()
    [0.433781]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    return fuse(sugar.mean(log(cosh(x - y)), n), axes="b")


@pattern("losses", b=4096, n=1000)
def binary_cross_entropy() -> Fused:
    """The mean of max(s, 0) - s y + log(1 + exp(-|s|)), of scores s[b,n] and truths y[b,n], as out[b].

    Source: Goodfellow, Bengio, Courville (2016), section 6.2.2.

    >>> import numpy as np
    >>> binary_cross_entropy()(s=np.array([[0.0, 1000.0]]), y=np.array([[1.0, 1.0]])).round(6).tolist()
    [0.346574]
    """
    n = axes("n")
    s, y = tensors("s[b,n] y[b,n]")
    return fuse(sugar.mean(Max(s, 0) - s * y + log(1 + exp(-Abs(s))), n), axes="b")


@pattern("losses", b=4096, n=1000, shapes={"x": "b n"})
def margin_loss() -> Fused:
    """max(0, 1 + the largest other score - x[label]) of the rows of x[b,n] and label[b], as out[b].

    Source: Crammer, Singer (2001), "Multiclass kernel-based vector machines".

    >>> import numpy as np
    >>> margin_loss()(x=np.array([[1.0, 0.5, 3.0]]), label=np.array([0])).tolist()
    [3.0]
    """
    b, n = axes("b n")
    x, label = tensors("x[b,n] label[b]")
    other = max_over(where(ne(n, label), x, -oo), n)
    return fuse(Max(0, 1 + other - Tensor("x")[b, label]), axes="b")


@pattern("losses", b=4096, n=4096)
def pinball_loss() -> Fused:
    """The mean of max(tau e, (tau - 1) e), with e = y - x of predictions x[b,n] and truths y[b,n], as out[b].

    The quantile tau is a scalar from 0 to 1.

    Source: Koenker, Bassett (1978), "Regression quantiles".

    >>> import numpy as np
    >>> pinball_loss()(x=np.zeros((1, 2)), y=np.array([[1.0, -1.0]]), tau=0.75).tolist()
    [0.5]
    """
    n, tau = axes("n"), scalars("tau")
    x, y = tensors("x[b,n] y[b,n]")
    return fuse(sugar.mean(Max(tau * (y - x), (tau - 1) * (y - x)), n), axes="b")


@pattern("losses", b=256, n=1024)
def preference_loss() -> Fused:
    """log(1 + exp(-z)) with z = beta Σ (x - y - u + v), of log probabilities of n words, as out[b].

    x[b,n] and y[b,n] are the model's, of the better and of the worse answer; u[b,n] and v[b,n] are the reference's.

    Source: Rafailov et al. (2023), "Direct preference optimization", Eq. 7.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 2))
    >>> preference_loss()(x=zeros, y=zeros, u=zeros, v=zeros, beta=0.1).round(6).tolist()
    [0.693147]
    """
    n, beta = axes("n"), scalars("beta", positive=True)
    x, y, u, v = tensors("x[b,n] y[b,n] u[b,n] v[b,n]")
    z = beta * sum_over(x - y - u + v, n)
    return fuse(Max(-z, 0) + log(1 + exp(-Abs(z))), axes="b")


@pattern("losses", b=64, n=65536)
def signal_distortion_ratio() -> Fused:
    """‖a y‖² / ‖a y - x‖² with a = Σ x y / Σ y², of an estimate x[b,n] and a signal y[b,n], as out[b].

    Source: Le Roux et al. (2019), "SDR - half-baked or well done?", Eq. 5, without its logarithm.

    >>> import numpy as np
    >>> signal_distortion_ratio()(x=np.array([[2.0, 1.0]]), y=np.array([[1.0, 0.0]])).tolist()
    [4.0]
    """
    n = axes("n")
    x, y = tensors("x[b,n] y[b,n]")
    aligned = sum_over(x * y, n) / sum_over(y**2, n) * y
    return fuse(sum_over(aligned**2, n) / sum_over((aligned - x) ** 2, n), axes="b")


@pattern("losses", b=4096, n=512)
def triplet_loss() -> Fused:
    """max(0, ‖x - y‖ - ‖x - z‖ + margin) of anchors x[b,n], like y[b,n] and unlike z[b,n], as out[b].

    The margin is a scalar.

    Source: Schroff, Kalenichenko, Philbin (2015), "FaceNet", Eq. 3, of distances.

    >>> import numpy as np
    >>> rows = {"x": np.zeros((1, 2)), "y": np.array([[3.0, 4.0]]), "z": np.array([[0.0, 2.0]])}
    >>> triplet_loss()(**rows, margin=1.0).tolist()
    [4.0]
    """
    n, margin = axes("n"), scalars("margin")
    x, y, z = tensors("x[b,n] y[b,n] z[b,n]")
    near, far = (sqrt(sum_over((x - one) ** 2, n)) for one in (y, z))
    return fuse(Max(0, near - far + margin), axes="b")


@pattern("losses", b=4096, n=1000)
def masked_mean_loss() -> Fused:
    """The mean of (x - y)² over the places where a mask M[b,n] is not 0, of x[b,n] and y[b,n], as out[b].

    Source: He et al. (2022), "Masked autoencoders", section 3.

    >>> import numpy as np
    >>> masked_mean_loss()(x=np.array([[1.0, 9.0]]), y=np.zeros((1, 2)), M=np.array([[1.0, 0.0]])).tolist()
    [1.0]
    """
    n = axes("n")
    x, y, M = tensors("x[b,n] y[b,n] M[b,n]")
    return fuse(sum_over(where(eq(M, 0), 0, (x - y) ** 2), n) / sum_over(where(eq(M, 0), 0, 1), n), axes="b")
