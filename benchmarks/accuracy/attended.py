"""Attention's uses: masks, biases, caps, sinks, shared heads, lengths, pages, statistics, decode, head dimensions.

One unfused function is the reference, in float64 on sampled batches and heads, and a peer, in the inputs' dtype;
PyTorch's fused kernels are peers wherever they can be told the use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from sympy import tanh
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import redalg as ra
from benchmarks.accuracy.case import Case, Outputs, picks
from benchmarks.family import Contestant, Tensors, normal
from redalg.library import attention

WINDOW, CAP = 512, 30.0
NO_SCORE = 1e30
"""What is larger is a mask."""
SAMPLED = 1 << 26
"""Scores of the reference, in all: half a gibibyte of float64."""
BACKENDS = {
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass(frozen=True)
class Use:
    """How attention is used, and at which sizes (batch x heads x queries x keys x width x width of the values)."""

    name: str
    size: str
    mask: str = ""  # causal, window, lengths, boolean
    score: str = ""  # linear, capped, additive
    groups: int = 1
    page: int = 0
    sinks: bool = False
    also: tuple[str, ...] = ()
    dtype: str = "float16"
    empty: str = "nan"

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip("bhqkde", map(int, self.size.split("x")), strict=True))

    @property
    def named(self) -> tuple[str, ...]:
        return ("out", *self.also)


LARGE = (
    Use("causal", "2x16x1024x1024x128x128", "causal"),
    Use("causal, ragged", "2x6x777x1003x64x64", "causal"),
    Use("causal, bfloat16", "2x16x1024x1024x128x128", "causal", dtype="bfloat16"),
    Use("window", "2x8x2048x2048x128x128", "window"),
    Use("window, ragged", "1x8x1500x2003x64x64", "window"),
    Use("linear bias", "2x12x777x777x64x64", "causal", "linear"),
    Use("capped", "2x8x512x512x128x128", "", "capped"),
    Use("capped, causal", "2x8x777x777x64x64", "causal", "capped", dtype="bfloat16"),
    Use("sinks", "2x8x512x512x64x64", "causal", sinks=True, also=("lse",)),
    Use("sinks, window, shared heads", "1x16x1024x1024x64x64", "window", groups=8, sinks=True),
    Use("boolean mask", "2x8x500x700x64x64", "boolean"),
    Use("boolean mask, zero", "2x8x500x700x128x128", "boolean", empty="zero"),
    Use("additive mask", "2x8x500x700x64x64", "", "additive"),
    Use("shared heads", "2x32x512x512x128x128", "causal", groups=4),
    Use("one shared head", "2x16x333x512x64x64", "", groups=16),
    Use("lengths", "5x8x300x1000x128x128", "lengths"),
    Use("lengths, zero", "5x8x300x1000x64x64", "lengths", empty="zero"),
    Use("pages of 16", "4x32x1x2048x128x128", "lengths", groups=8, page=16),
    Use("pages of 64", "4x16x4x3000x128x128", "lengths", groups=4, page=64),
    Use("pages of 128", "3x8x130x1000x64x64", "lengths", page=128),
    Use("statistics", "2x8x777x1003x64x64", "", also=("lse", "top")),
    Use("statistics, lengths", "5x8x300x1000x128x128", "lengths", also=("lse", "top")),
    Use("decode", "8x32x1x4097x128x128", "", groups=8),
    Use("decode, lengths", "8x32x1x4096x128x128", "lengths", groups=4),
    Use("decode, statistics", "2x16x1x20000x64x64", "", also=("lse", "top")),
    Use("four queries", "8x32x4x4097x128x128", "", groups=4),
    Use("four queries, bfloat16", "4x16x4x2048x64x64", "lengths", dtype="bfloat16"),
    *(Use(f"width {d}", f"2x8x300x500x{d}x{d}", "causal") for d in (64, 80, 96, 128, 160, 192, 256)),
    Use("width 192, values of 128", "2x8x300x500x192x128", "causal"),
    Use("width 64, values of 128", "2x8x300x500x64x128"),
    Use("width 128, values of 64", "2x8x300x500x128x64"),
    Use("float32", "1x4x300x500x64x64", "causal", dtype="float32"),
)
SMALL = tuple(
    replace(one, dtype="float32")
    for one in (
        Use("causal", "2x2x70x90x32x32", "causal"),
        Use("window", "1x2x600x600x32x32", "window"),
        Use("linear bias", "1x3x70x70x32x32", "causal", "linear"),
        Use("capped", "1x2x70x70x32x32", "", "capped"),
        Use("sinks", "1x3x70x70x32x32", "causal", sinks=True, also=("lse",)),
        Use("boolean mask", "2x2x50x70x32x48", "boolean"),
        Use("boolean mask, zero", "2x2x50x70x32x48", "boolean", empty="zero"),
        Use("additive mask", "2x2x50x70x32x48", "", "additive"),
        Use("shared heads", "2x4x50x70x32x32", "causal", groups=2),
        Use("lengths, zero", "3x2x50x100x32x32", "lengths", empty="zero"),
        Use("pages of 16", "3x4x1x100x32x32", "lengths", groups=2, page=16),
        Use("statistics", "2x2x50x70x32x32", "", also=("lse", "top")),
        Use("four queries", "2x8x4x300x64x64", "", groups=4),
        Use("width 192, values of 128", "1x2x50x70x192x128", "causal"),
    )
)
KINDS = ("normal", "huge logits", "strided")


def cases(device: torch.device) -> Iterator[Case]:
    """Every use on every kind of inputs."""
    for use in LARGE if device.type == "cuda" else SMALL:
        for kind in KINDS:
            if not (kind == "strided" and use.page):  # a cache of pages is one tensor
                yield case(use, kind, device)


def case(use: Use, kind: str, device: torch.device) -> Case:
    """One use on one kind of inputs."""
    options: dict[str, Any] = {"empty": use.empty} | ({"sizes": {"k": use.sizes["k"]}} if use.page else {})
    return Case(
        "attention", use.name, kind, partial(fused, replace(use, name="", size="", dtype="", empty="")), use.sizes,
        partial(inputs, use, kind), partial(reference, use), partial(outputs, use), peers(use, device), options,
        scores=partial(largest_score, use),
    )  # fmt: skip


@cache
def fused(use: Use) -> Any:
    """The function of a use, derived once for all its sizes."""
    q, k = ra.axes("q k")
    length, slope, A, M = ra.tensors("length[b] slope[h] A[q,k] M[q,k]")
    masks = {"": None, "causal": k <= q, "window": (k <= q) & (k > q - WINDOW), "lengths": k < length,
             "boolean": ra.ne(M, 0)}  # fmt: skip
    scores: dict[str, Callable[[Any], Any] | None] = {
        "": None, "linear": lambda s: s - slope * (q - k), "capped": lambda s: 30 * tanh(s / 30),
        "additive": lambda s: s + A,
    }  # fmt: skip
    return attention(scores[use.score], masks[use.mask], groups=use.groups, page=use.page or None, sinks=use.sinks,
                     also=use.also)  # fmt: skip


# ---- inputs ----------------------------------------------------------------------------------------------------------


def inputs(use: Use, kind: str, generator: torch.Generator) -> Tensors:
    """Q, K, V and what the use asks for; a query's keys may all be masked out, a length may be 0."""
    b, h, q, k, d, e = use.sizes.values()
    heads, scale = h // use.groups, 2000.0 if kind == "huge logits" else 1.0
    rows = (b, heads, k) if not use.page else (b * -(-k // use.page), use.page, heads)
    made = {"Q": scale * normal((b, h, q, d), "float32", generator)}
    made |= {name: normal((*rows, width), "float32", generator) for name, width in (("K", d), ("V", e))}
    made = {name: one.to(getattr(torch, use.dtype)) for name, one in made.items()}
    if kind == "strided":
        made = {name: strided(one, place) for place, (name, one) in enumerate(made.items())}
    return made | more(use, generator)


def strided(one: torch.Tensor, place: int) -> torch.Tensor:
    """The same numbers otherwise laid out: heads innermost but one, every row in a longer one, or transposed."""
    if place == 0:
        return one.transpose(1, 2).contiguous().transpose(1, 2)
    if place == 1:
        return torch.cat([one, one], -1)[..., : one.shape[-1]]
    return one.mT.contiguous().mT


def more(use: Use, generator: torch.Generator) -> Tensors:
    """The tensors that only some uses have."""
    (b, h, q, k, *_), device = use.sizes.values(), generator.device
    made: Tensors = {}
    if use.mask == "lengths":
        drawn = torch.randint(1, k + 1, (b,), generator=generator, device=device, dtype=torch.int32)
        made["length"] = drawn.index_fill(0, torch.tensor([0], device=device), 0 if use.empty == "zero" else k)
    if use.mask == "boolean":
        drawn = torch.rand(q, k, generator=generator, device=device) < 0.5
        made["M"] = drawn & (torch.arange(q, device=device) % 50 != 7)[:, None]
    if use.score == "additive":
        bias = normal((q, k), use.dtype, generator)
        hidden = torch.rand(q, k, generator=generator, device=device) < 0.3
        made["A"] = bias.masked_fill(hidden & (torch.arange(k, device=device) > 0), -torch.inf)
        made["A"][q // 2] = torch.finfo(made["A"].dtype).min  # an all but forbidden row is uniform, not empty
    if use.score == "linear":
        made["slope"] = 2.0 ** -torch.arange(1, h + 1, device=device, dtype=torch.float32).to(getattr(torch, use.dtype))
    if use.sinks:
        made["sinks"] = normal((h,), use.dtype, generator)
    if use.page:
        count = -(-k // use.page)
        made["pages"] = torch.randperm(b * count, generator=generator, device=device).reshape(b, count).int()
    return made


# ---- the definition --------------------------------------------------------------------------------------------------


def reference(use: Use, tensors: Tensors) -> Outputs:
    """Sampled batches and heads in float64."""
    batches, groups = sampled(use)
    part = sample(use, tensors, batches, groups)
    wide = {name: one.double() if one.is_floating_point() else one for name, one in part.items()}
    return dict(zip(use.named, unfused(use, **wide), strict=True))


def sampled(use: Use) -> tuple[list[int], list[int]]:
    """Batches and heads of K and V."""
    b, h, q, k, *_ = use.sizes.values()
    many = max(1, SAMPLED // (use.groups * q * k))
    groups = picks(h // use.groups, max(1, min(4, many)))
    return picks(b, max(1, many // len(groups))), groups


def heads_of(use: Use, groups: list[int]) -> list[int]:
    """The query heads of heads of K and V."""
    return [group * use.groups + one for group in groups for one in range(use.groups)]


def sample(use: Use, tensors: Tensors, batches: list[int], groups: list[int]) -> Tensors:
    """The part of the inputs that these batches and heads need; pages become plain keys."""
    heads, made = heads_of(use, groups), dict(tensors)
    made["Q"] = tensors["Q"][batches][:, heads]
    for name in "KV":
        made[name] = (paged(use, tensors, name) if use.page else tensors[name])[batches][:, groups]
    made.pop("pages", None)
    for name, kept in (("length", batches), ("slope", heads), ("sinks", heads)):
        if name in made:
            made[name] = made[name][kept]
    return made


def paged(use: Use, tensors: Tensors, name: str) -> torch.Tensor:
    """The keys or values that the pages hold, as [b, h, k, d]."""
    return tensors[name][tensors["pages"].long()].flatten(1, 2)[:, : use.sizes["k"]].transpose(1, 2)


def largest_score(use: Use, tensors: Tensors) -> float:
    """The largest magnitude of a score that is no mask's, on the sampled batches and heads."""
    part = sample(use, tensors, *sampled(use))
    s = scores(use, **{name: one.float() if one.is_floating_point() else one for name, one in part.items()}).abs()
    return float(s.masked_fill(s > NO_SCORE, 0.0).max())


def unfused(use: Use, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **other: torch.Tensor) -> list[torch.Tensor]:
    """Attention step by step, in the tensors' own dtype."""
    s = scores(use, Q, K, **other)
    i, j = torch.arange(s.shape[-2], device=s.device)[:, None], torch.arange(s.shape[-1], device=s.device)
    allowed = allowed_keys(use, i, j, other)
    s = s if allowed is None else s.masked_fill(~allowed, -torch.inf)
    whole = s
    if use.sinks:
        whole = torch.cat([s, other["sinks"][:, None, None].expand(*s.shape[:2], s.shape[2], 1)], -1)
    p = torch.softmax(whole, -1)[..., : s.shape[-1]]
    found = {"out": p @ V.repeat_interleave(use.groups, 1), "lse": torch.logsumexp(whole, -1), "top": s.amax(-1)}
    if use.empty == "zero":
        found["out"] = found["out"].nan_to_num(0.0)
    return [found[name] for name in use.named]


def scores(use: Use, Q: torch.Tensor, K: torch.Tensor, **other: torch.Tensor) -> torch.Tensor:
    """Scaled products, with what the use makes of them."""
    s = Q @ K.repeat_interleave(use.groups, 1).mT / Q.shape[-1] ** 0.5
    if use.score == "linear":
        i, j = torch.arange(s.shape[-2], device=s.device)[:, None], torch.arange(s.shape[-1], device=s.device)
        return s - other["slope"][:, None, None] * (i - j)
    if use.score == "capped":
        return CAP * torch.tanh(s / CAP)
    return s + other["A"] if use.score == "additive" else s


def allowed_keys(use: Use, i: torch.Tensor, j: torch.Tensor, other: Tensors) -> torch.Tensor | None:
    """The mask, to be broadcast to [b, h, q, k]."""
    if use.mask == "lengths":
        return j < other["length"][:, None, None, None]
    if use.mask == "boolean":
        return other["M"]
    return {"": None, "causal": j <= i, "window": (j <= i) & (j > i - WINDOW)}[use.mask]


def outputs(use: Use, made: Any, _tensors: Tensors) -> Outputs:
    """A contestant's outputs on the sampled batches and heads; PyTorch's fused kernels give the first alone."""
    batches, groups = sampled(use)
    heads = heads_of(use, groups)
    parts = (made,) if isinstance(made, torch.Tensor) else tuple(made)
    return {name: one[batches][:, heads] for name, one in zip(use.named, parts, strict=False)}


# ---- peers -----------------------------------------------------------------------------------------------------------


def peers(use: Use, device: torch.device) -> dict[str, Contestant]:
    """Eager PyTorch, and its fused kernels where they know the use."""
    made: dict[str, Contestant] = {"eager": partial(eager, use)}
    if use.sinks or use.score == "capped":
        return made
    if device.type != "cuda":
        return made | {"SDPA": partial(sdpa, use, None)}
    return made | {name: partial(sdpa, use, backend) for name, backend in BACKENDS.items()}


def eager(use: Use, **tensors: torch.Tensor) -> list[torch.Tensor]:
    """The definition in the inputs' dtype."""
    b, h = use.sizes["b"], use.sizes["h"] // use.groups
    return unfused(use, **sample(use, tensors, list(range(b)), list(range(h))))


def sdpa(use: Use, backend: SDPBackend | None, **tensors: torch.Tensor) -> torch.Tensor:
    """PyTorch's attention, held to one of its backends; what has no name there is a mask."""
    b, h = use.sizes["b"], use.sizes["h"] // use.groups
    plain = sample(use, tensors, list(range(b)), list(range(h)))
    Q, K, V = (plain[name] for name in "QKV")
    causal = use.mask == "causal" and not use.score and Q.shape[2] == K.shape[2]
    options: dict[str, Any] = {"is_causal": causal, "enable_gqa": use.groups > 1}
    mask = None if causal else mask_of(use, plain)
    if backend is None:
        return scaled_dot_product_attention(Q, K, V, mask, **options)
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(Q, K, V, mask, **options)


def mask_of(use: Use, tensors: Tensors) -> torch.Tensor | None:
    """Boolean, or what is added where a bias is."""
    Q, K = tensors["Q"], tensors["K"]
    i, j = torch.arange(Q.shape[2], device=Q.device)[:, None], torch.arange(K.shape[2], device=Q.device)
    allowed = allowed_keys(use, i, j, tensors)
    if use.score == "additive":
        return tensors["A"]
    if use.score == "linear":
        bias = -tensors["slope"][:, None, None] * (i - j)
        return (bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)).to(Q.dtype)[None]
    if use.mask == "lengths" and allowed is not None:
        return allowed.expand(Q.shape[0], 1, Q.shape[2], K.shape[2])
    return allowed
