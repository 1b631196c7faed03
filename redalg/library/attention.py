"""Attention: a softmax over the keys, contracted with the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sympy import And, Expr, Max, exp, log, oo, sqrt, tanh
from sympy.logic.boolalg import Boolean

from redalg.errors import ExpressionError
from redalg.expression import Element, Tensor, axes, let, tensor, tensors, where
from redalg.expression import max as max_over
from redalg.expression import sum as sum_over
from redalg.fuse import Fused, fuse
from redalg.library.pattern import pattern
from redalg.sugar import softmax

STATISTICS = ("lse", "top")


@pattern("attention", b=1, h=32, q=4096, k=4096, d=128, e=128, dtype="float16")
def attention(
    score: Callable[[Expr], Expr] | None = None,
    mask: Boolean | None = None,
    *,
    groups: int = 1,
    page: int | None = None,
    lengths: bool = False,
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
        lengths: an integer tensor length[b] tells how many keys of a row count. What lies beyond is never read, and its
            entries of `pages` may be anything, as -1.
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
    within = k < tensor("length[b]") if lengths else None
    s = sum_over(Q * cache_element("K", "d", groups, page, within), d) / sqrt(d.extent)
    s = s if score is None else score(s)
    counts = [one for one in (mask, within) if one is not None]
    s = where(And(*counts), s, -oo) if counts else s
    m = let("m", max_over(s, k))
    total = let("l", sum_over(exp(s - m), k))
    lse = m + log(total)
    if sinks:
        above = Max(m, sink)  # the exponential of sink - m alone may overflow: nothing in a ratio, not in a logarithm
        lse = above + log(total * exp(m - above) + exp(sink - above))
        total = total + exp(sink - m)
    out = sum_over(exp(s - m) / total * cache_element("V", "e", groups, page, within), k)
    statistics = {"lse": (lse, "b h q"), "top": (m, "b h q")}
    if not also:
        return fuse(out, axes="b h q e")
    return fuse({"out": (out, "b h q e"), **{name: statistics[name] for name in also}})


def cache_element(name: str, width: str, groups: int, page: int | None, within: Boolean | None) -> Element:
    """An element of the K/V cache for a query's head; page 0 stands for those of places that do not count."""
    b, h, k, last = axes(f"b h k {width}")
    head = h // groups
    if page is None:
        return Tensor(name)[b, head, k, last]
    number = Tensor("pages")[b, k // page]
    return Tensor(name)[number if within is None else where(within, number, 0), k % page, head, last]


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


@pattern("attention", b=1, h=32, q=4096, k=4096, d=128, e=128, dtype="float16")
def causal_attention() -> Fused:
    """Attention in which a query takes the keys up to its own place: `attention(mask=k <= q)`.

    Source: Vaswani et al. (2017), section 3.2.3.

    >>> import numpy as np
    >>> ones, V = np.ones((1, 1, 3, 2)), np.arange(3.0).reshape(1, 1, 3, 1)
    >>> causal_attention()(Q=ones, K=ones, V=V).ravel().tolist()
    [0.0, 0.5, 1.0]
    """
    q, k = axes("q k")
    return attention(mask=k <= q)


@pattern("attention", b=1, h=32, q=16384, k=16384, d=128, e=128, dtype="float16")
def sliding_window_attention(window: int = 1024, *, sinks: bool = False) -> Fused:
    """Causal attention over the last keys alone, `window` of them with the query's own.

    Args:
        window: the number of keys that count.
        sinks: a logit sinks[h] beside them, as in `attention`.

    Source: Beltagy, Peters, Cohan (2020), "Longformer"; with sinks: Xiao et al. (2024).

    >>> import numpy as np
    >>> ones, V = np.ones((1, 1, 3, 2)), np.arange(3.0).reshape(1, 1, 3, 1)
    >>> sliding_window_attention(2)(Q=ones, K=ones, V=V).ravel().tolist()
    [0.0, 0.5, 1.5]
    """
    q, k = axes("q k")
    return attention(mask=(k <= q) & (k > q - window), sinks=sinks)


@pattern("attention", b=1, h=64, q=4096, k=4096, d=64, e=64, dtype="float16")
def sink_attention() -> Fused:
    """Causal attention with a logit sinks[h] in every denominator, which has no value: `attention(…, sinks=True)`.

    Source: Xiao et al. (2024), "Efficient streaming language models with attention sinks".

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 1, 2))
    >>> sink_attention()(Q=zeros, K=zeros, V=np.ones((1, 1, 1, 1)), sinks=np.zeros(1)).ravel().tolist()
    [0.5]
    """
    q, k = axes("q k")
    return attention(mask=k <= q, sinks=True)


@pattern("attention", b=1, h=16, q=4096, k=4096, d=256, e=256, dtype="float16")
def softcap_attention(cap: float = 50) -> Fused:
    """Causal attention of capped scores: cap·tanh(s / cap).

    Args:
        cap: the largest magnitude of a score, a positive number.

    Source: Gemma Team (2024), "Gemma 2", section 2.

    >>> import numpy as np
    >>> Q, K = np.array([[[[9.0]] * 2]]), np.array([[[[9e9], [-9e9]]]])
    >>> softcap_attention(1)(Q=Q, K=K, V=np.array([[[[1.0], [0.0]]]])).ravel().round(6).tolist()
    [1.0, 0.880797]
    """
    q, k = axes("q k")
    return attention(lambda s: cap * tanh(s / cap), k <= q)


@pattern("attention", b=1, h=32, q=4096, k=4096, d=128, e=128, dtype="float16")
def alibi_attention() -> Fused:
    """Causal attention whose scores fall with the distance of the key: s - slope[h]·(q - k).

    Source: Press, Smith, Lewis (2022), "Train short, test long", section 3.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 1, 2, 1))
    >>> alibi_attention()(Q=zeros, K=zeros, V=np.eye(2)[None, None], slope=np.array([np.log(3)])).round(6).tolist()
    [[[[1.0, 0.0], [0.25, 0.75]]]]
    """
    q, k = axes("q k")
    slope = tensor("slope[h]")
    return attention(lambda s: s - slope * (q - k), k <= q)


@pattern("attention", b=32, h=32, q=1, k=4096, d=128, e=128, dtype="float16",
         shapes={"K": "b h/4 k d", "V": "b h/4 k e"})  # fmt: skip
def grouped_query_attention(groups: int = 4) -> Fused:
    """Attention in which `groups` query heads share a head of keys and values: `attention(groups=…)`.

    Args:
        groups: how many; all of them is multi-query attention (Shazeer, 2019).

    Source: Ainslie et al. (2023), "GQA".

    >>> import numpy as np
    >>> Q, K = np.ones((1, 4, 1, 2)), np.ones((1, 2, 3, 2))
    >>> grouped_query_attention(2)(Q=Q, K=K, V=np.arange(6.0).reshape(1, 2, 3, 1)).ravel().tolist()
    [1.0, 1.0, 4.0, 4.0]
    """
    return attention(groups=groups)


@pattern("attention", b=32, h=32, q=1, k=4096, d=128, e=128, dtype="float16",
         shapes={"K": "8192 16 h/4 d", "V": "8192 16 h/4 e", "pages": "b k/16"})  # fmt: skip
def paged_attention(page: int = 16, groups: int = 4, *, lengths: bool = True) -> Fused:
    """Attention over the first length[b] keys of a cache in pages, which an integer tensor pages[b, number] finds.

    It is `attention(page=…, lengths=True)`.

    Args:
        page: positions of a page.
        groups: query heads that share a head of the cache.
        lengths: whether rows have lengths; without, all k positions count, and every entry of `pages` is a page.

    Returns:
        The fused function. Entries of `pages` beyond a row's length may be anything, as -1: neither they nor what a
        page holds beyond it is read. `sizes={"k": …}` tells the call the most positions of a row.

    Source: Kwon et al. (2023), "PagedAttention".

    >>> import numpy as np
    >>> K, V = np.zeros((2, 2, 1, 1)), np.arange(4.0).reshape(2, 2, 1, 1)
    >>> pages, length = np.array([[1, 0], [0, -1]]), np.array([3, 1])
    >>> decode = paged_attention(page=2, groups=1)
    >>> decode(Q=np.zeros((2, 1, 1, 1)), K=K, V=V, pages=pages, length=length, sizes={"k": 4}).ravel().round(3).tolist()
    [1.667, 0.0]
    """
    return attention(groups=groups, page=page, lengths=lengths)


@pattern("attention", b=32, h=32, q=512, k=512, d=64, e=64, dtype="float16")
def padded_attention() -> Fused:
    """Attention over the first length[b] keys of each sequence of a padded batch; what lies beyond is never read.

    Source: Vaswani et al. (2017), Eq. 1, of sequences of several lengths.

    >>> import numpy as np
    >>> zeros, V = np.zeros((1, 1, 3, 1)), np.array([[[[1.0], [3.0], [np.nan]]]])
    >>> padded_attention()(Q=zeros[:, :, :1], K=zeros, V=V, length=np.array([2])).ravel().tolist()
    [2.0]
    """
    return attention(lengths=True)


@pattern("attention", b=32, h=128, k=4096, c=512, r=64, e=512, dtype="float16")
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
