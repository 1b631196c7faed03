"""Attention: a softmax over the keys, contracted with the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sympy import Expr, Max, exp, log, oo, sqrt
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression import Element, Tensor, axes, let, tensors, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.sugar import softmax

STATISTICS = ("lse", "top")


def attention(
    score: Callable[[Expr], Expr] | None = None,
    mask: Boolean | None = None,
    *,
    groups: int = 1,
    page: int | None = None,
    sinks: bool = False,
    also: Sequence[str] = (),
) -> Fused:
    """Scaled dot-product attention, softmax(Q Kᵀ / √d) V, of Q[b,h,q,d], K[b,h,k,d] and V[b,h,k,e].

    Args:
        score: what becomes of the scaled score s[b,h,q,k], a function of one expression: a bias `s + A`, a soft cap
            `30*tanh(s/30)`, ALiBi `s - slope*(q - k)` with `slope = ra.tensor("slope[h]")`.
        mask: where a key counts for a query, a Boolean over axes and data: `k <= q`, a window
            `(k <= q) & (k > q - 128)`, lengths `k < length` with `length = ra.tensor("length[b]")`, or `ra.ne(M, 0)`
            with a tensor M.
        groups: query heads that share a K/V head (GQA; all of them: MQA): K[b, h // groups, k, d].
        page: positions of a page of the K/V cache, which is then read through an integer tensor pages[b, number]:
            K[pages[b, k // page], k % page, h // groups, d] (give the call the extent of k, `sizes={"k": …}`).
        sinks: a logit sinks[h] that takes part in every query's denominator and has no value.
        also: further outputs, `"lse"` (log of the denominator, [b,h,q]) and `"top"` (largest score, [b,h,q]); the call
            then gives a namedtuple (out, …).

    Returns:
        The fused function, with the output out[b,h,q,e]; a query that no key counts for is a ratio over an empty row,
        so it gives what the call's `empty` says.

    Raises:
        ExpressionError: `also` names no output, or `groups` or `page` is not a positive int.

    Source: Vaswani et al. (2017), Eq. 1; RedFuser (ASPLOS '26), Eq. 29; sinks: Xiao et al. (2024). Its derived form is
    FlashAttention's.

    >>> import numpy as np
    >>> from redalg.expression import axes
    >>> q, k = axes("q k")
    >>> causal = attention(mask=k <= q)
    >>> ones = np.ones((1, 1, 2, 4), np.float32)
    >>> causal(Q=ones, K=ones, V=np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)).tolist()
    [[[[0.0, 1.0], [1.0, 2.0]]]]
    >>> attention(groups=4, also=["lse"]).cascade.outputs[1].expr
    log(l) + m
    """
    check_attention_options(groups, page, also)
    k, d = axes("k d")
    Q, sink = tensors("Q[b,h,q,d] sinks[h]")
    s = sum_over(Q * cache_element("K", "d", groups, page), d) / sqrt(d.extent)
    s = s if score is None else score(s)
    s = s if mask is None else where(mask, s, -oo)
    m = let("m", max_over(s, k))
    total = let("l", sum_over(exp(s - m), k))
    lse = m + log(total)
    if sinks:
        above = Max(m, sink)  # the exponential of sink - m alone may overflow: nothing in a ratio, not in a logarithm
        lse = above + log(total * exp(m - above) + exp(sink - above))
        total = total + exp(sink - m)
    out = sum_over(exp(s - m) / total * cache_element("V", "e", groups, page), k)
    statistics = {"lse": (lse, "b h q"), "top": (m, "b h q")}
    if not also:
        return fuse(out, axes="b h q e")
    return fuse({"out": (out, "b h q e"), **{name: statistics[name] for name in also}})


def cache_element(name: str, width: str, groups: int, page: int | None) -> Element:
    """An element of the K/V cache for a query's head."""
    b, h, k, last = axes(f"b h k {width}")
    head = h // groups
    if page is None:
        return Tensor(name)[b, head, k, last]
    return Tensor(name)[Tensor("pages")[b, k // page], k % page, head, last]


def check_attention_options(groups: int, page: int | None, also: Sequence[str]) -> None:
    """Refuse what names no attention."""
    for name, value in (("groups", groups), ("page", page)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ExpressionError(f"attention: {name}={value!r} should be a positive int.")
    unknown = [name for name in also if name not in STATISTICS]
    if unknown or isinstance(also, str):
        said = also if isinstance(also, str) else unknown[0]
        raise ExpressionError(
            f"attention: also={said!r} is not an output. Name some of {', '.join(STATISTICS)} in a list."
        )


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
