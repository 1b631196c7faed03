"""Attention: a softmax over the keys, contracted with the values."""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr, oo, sqrt
from sympy.logic.boolalg import Boolean

from redalg.expression import Tensor, axes, tensors, where
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.sugar import softmax


def attention(score: Callable[[Expr], Expr] | None = None, mask: Boolean | None = None) -> Fused:
    """Scaled dot-product attention, softmax(Q Kᵀ / √d) V, of Q[b,h,q,d], K[b,h,k,d] and V[b,h,k,e].

    Args:
        score: what becomes of the scaled score s[b,h,q,k], a function of one expression: a bias, a soft cap.
        mask: where a key counts for a query, a Boolean over axes and data: `k <= q`, or `ra.ne(M, 0)` with a tensor M.

    Returns:
        The fused function, with the output out[b,h,q,e]; a query that no key counts for is a ratio over an empty row,
        so it gives what the call's `empty` says.

    Source: Vaswani et al. (2017), Eq. 1; RedFuser (ASPLOS '26), Eq. 29. Its derived form is FlashAttention's.

    >>> import numpy as np
    >>> from redalg.expression import axes
    >>> q, k = axes("q k")
    >>> causal = attention(mask=k <= q)
    >>> ones = np.ones((1, 1, 2, 4), np.float32)
    >>> causal(Q=ones, K=ones, V=np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)).tolist()
    [[[[0.0, 1.0], [1.0, 2.0]]]]
    """
    k, d = axes("k d")
    Q, K, V = tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    s = sum_over(Q * K, d) / sqrt(d.extent)
    s = s if score is None else score(s)
    s = s if mask is None else where(mask, s, -oo)
    return fuse(sum_over(softmax(s, k) * V, k), axes="b h q e")


def mla_decode() -> Fused:
    """Latent attention of one query a head: keys and values are one latent tensor, and keys have a part of their own.

    Of q[b,h,c] and latent[b,k,c], the query in the latent's space, and q_rope[b,h,r] and k_rope[b,k,r], the parts that
    tell positions: softmax((q·latent + q_rope·k_rope) / √(c + r)) over k, contracted with latent, as out[b,h,e].

    Returns:
        The fused function; e is as long as c. The latent tile serves both contractions and is loaded once.

    Source: DeepSeek-AI (2024), "DeepSeek-V2", section 2.1, with the projections absorbed; RedFuser (ASPLOS '26), A.5.

    >>> import numpy as np
    >>> ones, latent = np.ones((1, 1, 2)), np.array([[[1.0, 1.0], [3.0, 3.0]]])
    >>> mla_decode()(q=ones, q_rope=ones, k_rope=np.ones((1, 2, 2)), latent=latent).round(3).tolist()
    [[[2.762, 2.762]]]
    """
    b, k, c, r, e = axes("b k c r e")
    q, q_rope, k_rope = tensors("q[b,h,c] q_rope[b,h,r] k_rope[b,k,r]")
    latent = Tensor("latent")
    s = (sum_over(q * latent[b, k, c], c) + sum_over(q_rope * k_rope, r)) / sqrt(c.extent + r.extent)
    return fuse(sum_over(softmax(s, k) * latent[b, k, e], k), axes="b h e")
