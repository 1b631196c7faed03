"""Attention with weights other than the softmax of scaled products: other scores, other functions of them."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Max, exp, sqrt, tanh

from redalg import sugar
from redalg.expression import Tensor, axes, let, scalars, tensors, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.information import entropy_of_scores
from redalg.library.pattern import pattern


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=128, dtype="float16")
def differential_attention() -> Fused:
    """(softmax(s) - rate·softmax(s2)) V, the difference of two attentions with values V[b,h,k,e], as out[b,h,q,e].

    The scores are s = Q Kᵀ / √d and s2 = Q2 K2ᵀ / √d of Q[b,h,q,d], K[b,h,k,d], Q2 and K2 alike; rate is a scalar.

    Source: Ye et al. (2024), "Differential Transformer", Eq. 1.

    >>> import numpy as np
    >>> one = np.ones((1, 1, 1, 1))
    >>> differential_attention()(Q=one, K=one, Q2=one, K2=one, V=one, rate=0.25).ravel().tolist()
    [0.75]
    """
    k, d = axes("k d")
    Q, K, Q2, K2, V = tensors("Q[b,h,q,d] K[b,h,k,d] Q2[b,h,q,d] K2[b,h,k,d] V[b,h,k,e]")
    first, second = (sum_over(a * c, d) / sqrt(d.extent) for a, c in ((Q, K), (Q2, K2)))
    weights = sugar.softmax(first, k) - scalars("rate") * sugar.softmax(second, k)
    return fuse(sum_over(weights * V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def linear_attention() -> Fused:
    """Σ φ(Q)·φ(K) V / Σ φ(Q)·φ(K) over the keys, with φ(x) = elu(x) + 1, as out[b,h,q,e].

    Source: Katharopoulos et al. (2020), "Transformers are RNNs", Eq. 7.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 2, 3))
    >>> linear_attention()(Q=zeros, K=zeros, V=np.array([[[[1.0], [3.0]]]])).ravel().tolist()
    [2.0, 2.0]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    phi = [where(one > 0, one + 1, exp(one)) for one in (Q, K)]
    return fuse(_average(sum_over(phi[0] * phi[1], d), V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def power_attention(power: int = 4) -> Fused:
    """Σ (q·k)ᵖ V / Σ (q·k)ᵖ over the keys, for an even power p, as out[b,h,q,e].

    Args:
        power: an even number.

    Source: Kacham, Mirrokni, Zhong (2024), "PolySketchFormer", section 2.1.

    >>> import numpy as np
    >>> Q, K = np.ones((1, 1, 1, 1)), np.array([[[[1.0], [-2.0]]]])
    >>> power_attention(2)(Q=Q, K=K, V=np.array([[[[0.0], [5.0]]]])).ravel().tolist()
    [4.0]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    return fuse(_average(sum_over(Q * K, d) ** power, V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def sigmoid_attention() -> Fused:
    """Σ V / (1 + exp(-s - shift)) over the keys, of scores s = Q Kᵀ / √d and a scalar shift, as out[b,h,q,e].

    Source: Ramapuram et al. (2024), "Sigmoid self-attention", Eq. 3; the shift is -log k there.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 4, 1))
    >>> sigmoid_attention()(Q=zeros[:, :, :1], K=zeros, V=zeros + 1, shift=-np.log(3)).ravel().round(6).tolist()
    [1.0]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = sum_over(Q * K, d) / sqrt(d.extent) + scalars("shift")
    return fuse(sum_over(V / (1 + exp(-s)), k), axes="b h q e")


@pattern("attention", b=64, h=12, q=144, k=144, d=32, e=32, dtype="float16")
def cosine_attention() -> Fused:
    """Attention whose scores are cosines of queries and keys, over a temperature tau[h], as out[b,h,q,e].

    Source: Liu et al. (2022), "Swin Transformer V2", Eq. 2, without its bias.

    >>> import numpy as np
    >>> Q, K = np.array([[[[1e-30, 0.0]]]]), np.array([[[[1e30, 0.0], [0.0, 1.0]]]])
    >>> V = np.array([[[[1.0], [0.0]]]])
    >>> cosine_attention()(Q=Q, K=K, V=V, tau=np.array([1 / np.log(3)])).ravel().round(6).tolist()
    [0.75]
    """
    k, d = axes("k d")
    Q, K, V, tau = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] tau[h]")
    s = sum_over(Q * K, d) / (sugar.norm(Q, d) * sugar.norm(K, d)) / tau
    return fuse(sum_over(sugar.softmax(s, k) * V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def off_by_one_attention() -> Fused:
    """Σ exp(s) V / (1 + Σ exp(s)) over the keys: a query may attend to nothing. s = Q Kᵀ / √d, out[b,h,q,e].

    Source: Miller (2023), "Attention is off by one".

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 3, 1))
    >>> off_by_one_attention()(Q=zeros[:, :, :1], K=zeros, V=zeros + 1).ravel().tolist()
    [0.75]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = sum_over(Q * K, d) / sqrt(d.extent)
    top = let("top", Max(max_over(s, k), 0))
    weight = exp(s - top)
    return fuse(sum_over(weight * V, k) / (exp(-top) + sum_over(weight, k)), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def retention() -> Fused:
    """Σ rate^(q - k) (q·k) V over the keys up to the query: decay in place of a softmax, as out[b,h,q,e].

    The rates are rate[h], from 0 to 1.

    Source: Sun et al. (2023), "Retentive Network", Eq. 5.

    >>> import numpy as np
    >>> ones = np.ones((1, 1, 3, 1))
    >>> retention()(Q=ones, K=ones, V=ones, rate=np.array([0.5])).ravel().tolist()
    [1.0, 1.5, 1.75]
    """
    q, k, d = axes("q k d")
    Q, K, V, rate = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e] rate[h]")
    return fuse(sum_over(where(k <= q, rate ** (q - k) * sum_over(Q * K, d), 0) * V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, e=64, dtype="float16")
def rectified_attention() -> Fused:
    """Σ max(s, 0) V / k over the keys, of scores s = Q Kᵀ / √d, as out[b,h,q,e].

    Source: Wortsman et al. (2023), "Replacing softmax with ReLU in vision transformers".

    >>> import numpy as np
    >>> Q, K = np.ones((1, 1, 1, 1)), np.array([[[[2.0], [-1.0]]]])
    >>> rectified_attention()(Q=Q, K=K, V=np.ones((1, 1, 2, 1))).ravel().tolist()
    [1.0]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = sum_over(Q * K, d) / sqrt(d.extent)
    return fuse(sum_over(Max(s, 0) * V, k) / k.extent, axes="b h q e")


@pattern("attention", b=16, q=64, k=256, f=128, e=128)
def additive_attention() -> Fused:
    """Attention with the scores Σ_f v tanh(Q + K), of projected Q[b,q,f] and K[b,k,f], as out[b,q,e].

    Source: Bahdanau, Cho, Bengio (2015), appendix A.1.2.

    >>> import numpy as np
    >>> Q, K, V = np.zeros((1, 1, 1)), np.array([[[100.0], [-100.0]]]), np.array([[[1.0], [0.0]]])
    >>> additive_attention()(Q=Q, K=K, V=V, v=np.array([np.log(3) / 2])).ravel().round(6).tolist()
    [0.75]
    """
    k, f = axes("k f")
    Q, K, V, v = tensors("Q[b,q,f] K[b,k,f] V[b,k,e] v[f]")
    return fuse(sum_over(sugar.softmax(sum_over(v * tanh(Q + K), f), k) * V, k), axes="b q e")


@pattern("attention", b=8, h=12, q=512, k=512, d=64, e=64, dtype="float16", shapes={"bias": "h 1023"})
def relative_bias_attention() -> Fused:
    """Attention with a bias of the key's place beside the query's: bias[h, q - k + |k| - 1], as out[b,h,q,e].

    Source: Raffel et al. (2020), "T5", section 2.1, with a bias for every distance.

    >>> import numpy as np
    >>> zeros, V = np.zeros((1, 1, 2, 1)), np.array([[[[1.0], [0.0]]]])
    >>> bias = np.log(np.array([[1.0, 1.0, 3.0]]))
    >>> relative_bias_attention()(Q=zeros, K=zeros, V=V, bias=bias).ravel().round(6).tolist()
    [0.5, 0.75]
    """
    h, q, k, d = axes("h q k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = sum_over(Q * K, d) / sqrt(d.extent) + Tensor("bias")[h, q - k + k.extent - 1]
    return fuse(sum_over(sugar.softmax(s, k) * V, k), axes="b h q e")


@pattern("attention", b=1, h=16, q=4096, k=4096, d=64, dtype="float16")
def attention_entropy() -> Fused:
    """-Σ p log p of the attention p = softmax(Q Kᵀ / √d) of every query, as out[b,h,q].

    Source: Zhai et al. (2023), "Stabilizing Transformer training", Eq. 3.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 4, 1))
    >>> attention_entropy()(Q=zeros[:, :, :1], K=zeros).ravel().round(6).tolist()
    [1.386294]
    """
    k, d = axes("k d")
    Q, K = tensors("Q[b,h,q,d] K[b,h,k,d]")
    s = sum_over(Q * K, d) / sqrt(d.extent)
    return fuse(entropy_of_scores(s, k), axes="b h q")


@pattern("attention", b=32, n=4096, m=8, c=64)
def slot_attention() -> Fused:
    """Inputs x[b,n,c] averaged by slots: weights softmax(s) over the slots m, normalised over the inputs n.

    Returns:
        The fused function of scores s[b,n,m], with the output out[b,m,c].

    Source: Locatello et al. (2020), "Object-centric learning with slot attention", Eq. 1 and 2.

    >>> import numpy as np
    >>> slot_attention()(s=np.zeros((1, 2, 2)), x=np.array([[[1.0], [3.0]]])).ravel().tolist()
    [2.0, 2.0]
    """
    n, m = axes("n m")
    s, x = tensors("s[b,n,m] x[b,n,c]")
    weight = sugar.softmax(s, m)
    return fuse(sum_over(weight * x, n) / sum_over(weight, n), axes="b m c")


def _average(weight: Any, values: Any, axis: Any) -> Expr:
    """The mean of the values by a weight that sums to anything."""
    return sum_over(weight * values, axis) / sum_over(weight, axis)
