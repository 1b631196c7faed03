"""Attention as it is used: rows, functions, the definition, peers; of its families and of the proof of accuracy.

    Use     := mask, score, groups, page, sinks, outputs beside the first, the value of an empty row
    Row.use := a Use

One unfused function is the definition: in float64, on sampled batches and heads, every result is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
from sympy import tanh
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, outputs, picks, relative_error, width
from redalg.library import attention

WINDOW, CAP = 512, 30.0
TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
SAMPLED = 1 << 26
"""Scores of the reference, in all: half a gibibyte of float64."""
BACKENDS = {
    "FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@dataclass(frozen=True)
class Use:
    """A use of attention in a row.

    Attributes:
        mask: causal, window, lengths, boolean; empty: none.
        score: linear, capped, additive; empty: as it is.
        groups: heads that share a K/V head.
        page: positions of a page of the K/V cache; 0: no pages.
        also: outputs beside `out`: `lse`, `top`.
        empty: the value of a row that no key counts for.
    """

    mask: str = ""
    score: str = ""
    groups: int = 1
    page: int = 0
    sinks: bool = False
    also: tuple[str, ...] = ()
    empty: str = "nan"

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("out", *self.also)


PLAIN = Use()


def row(name: str, size: str, use: Use = PLAIN, dtype: str = "float16") -> Row:
    """One row of batch x heads x queries x keys x width x width of the values (as long as the width, if not said)."""
    b, h, q, k, d, *wide = map(int, size.split("x"))
    e = wide[0] if wide else d
    cached = (b, h // use.groups, k) if not use.page else (b * -(-k // use.page), use.page, h // use.groups)
    shapes = {"Q": (b, h, q, d), "K": (*cached, d), "V": (*cached, e)}
    dtypes = dict.fromkeys(shapes, dtype)
    beside = {
        "length": (use.mask == "lengths", (b,), "int32"),
        "M": (use.mask == "boolean", (q, k), "bool"),
        "A": (use.score == "additive", (q, k), dtype),
        "slope": (use.score == "linear", (h,), dtype),
        "sinks": (use.sinks, (h,), dtype),
        "pages": (use.page > 0, (b, -(-k // max(1, use.page))), "int32"),
    }
    asked = {tensor: (shape, kind) for tensor, (needed, shape, kind) in beside.items() if needed}
    live = {"causal": 0.5, "window": min(1.0, WINDOW / k)}.get(use.mask, 1)
    return Row(
        name,
        sizes={"b": b, "h": h, "q": q, "k": k, "d": d, "e": e},
        shapes={**shapes, **{tensor: shape for tensor, (shape, _) in asked.items()}},
        dtypes={**dtypes, **{tensor: kind for tensor, (_, kind) in asked.items()}},
        flops=2 * b * h * q * k * (d + e) * live,
        out_bytes=width(dtype) * b * h * q * e,
        use=use,
    )


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


@final
class Attention(Family):
    """Attention of given rows: some on CUDA, small ones on the CPU."""

    def __init__(self, name: str, title: str, cuda: tuple[Row, ...], cpu: tuple[Row, ...]) -> None:
        self.name, self.title, self.cuda, self.cpu = name, title, cuda, cpu

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return self.cuda if device.type == "cuda" else self.cpu

    def fused(self, row: Row) -> Any:
        return fused(row.use)

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        """PyTorch's kernels; none but two take a window through PyTorch, as a boolean mask."""
        if device.type != "cuda":
            return {"SDPA": sdpa(row, None)}
        names = ("memory-efficient", "cuDNN") if row.use.mask == "window" else ("FlashAttention-2", "cuDNN")
        return {name: sdpa(row, BACKENDS[name]) for name in names}

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["Q"]]

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        """On sampled batches and heads."""
        parts = sampled_outputs(row, out)
        return max(relative_error(parts[name], wanted) for name, wanted in reference(row, inputs).items())


# ---- the definition --------------------------------------------------------------------------------------------------


def unfused(use: Use, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **other: torch.Tensor) -> list[torch.Tensor]:
    """Attention step by step, in the tensors' own dtype."""
    s = scores(use, Q, K, **other)
    i, j = places(s)
    allowed = allowed_keys(use, i, j, other)
    s = s if allowed is None else s.masked_fill(~allowed, -torch.inf)
    whole = s
    if use.sinks:
        whole = torch.cat([s, other["sinks"][:, None, None].expand(*s.shape[:2], s.shape[2], 1)], -1)
    p = torch.softmax(whole, -1)[..., : s.shape[-1]]
    found = {"out": p @ V.repeat_interleave(use.groups, 1), "lse": torch.logsumexp(whole, -1), "top": s.amax(-1)}
    if use.empty == "zero":
        found["out"] = found["out"].nan_to_num(0.0)
    return [found[name] for name in use.outputs]


def scores(use: Use, Q: torch.Tensor, K: torch.Tensor, **other: torch.Tensor) -> torch.Tensor:
    """Scaled products, with what the use makes of them."""
    s = Q @ K.repeat_interleave(use.groups, 1).mT / Q.shape[-1] ** 0.5
    if use.score == "linear":
        i, j = places(s)
        return s - other["slope"][:, None, None] * (i - j)
    if use.score == "capped":
        return CAP * torch.tanh(s / CAP)
    return s + other["A"] if use.score == "additive" else s


def places(s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries as a column, keys as a row."""
    return torch.arange(s.shape[-2], device=s.device)[:, None], torch.arange(s.shape[-1], device=s.device)


def allowed_keys(use: Use, i: torch.Tensor, j: torch.Tensor, other: Tensors) -> torch.Tensor | None:
    """The mask, to be broadcast to [b, h, q, k]."""
    if use.mask == "lengths":
        return j < other["length"][:, None, None, None]
    if use.mask == "boolean":
        return other["M"]
    return {"": None, "causal": j <= i, "window": (j <= i) & (j > i - WINDOW)}[use.mask]


# ---- samples ---------------------------------------------------------------------------------------------------------


def reference(row: Row, tensors: Tensors) -> Tensors:
    """Sampled batches and heads in float64."""
    part = sample(row, tensors, *sampled(row))
    wide = {name: one.double() if one.is_floating_point() else one for name, one in part.items()}
    return dict(zip(row.use.outputs, unfused(row.use, **wide), strict=True))


def sampled(row: Row) -> tuple[list[int], list[int]]:
    """Batches and heads of K and V."""
    (b, h, q, k, *_), shared = row.sizes.values(), row.use.groups
    many = max(1, SAMPLED // (shared * q * k))
    groups = picks(h // shared, max(1, min(4, many)))
    return picks(b, max(1, many // len(groups))), groups


def heads_of(row: Row, groups: list[int]) -> list[int]:
    """The query heads of heads of K and V."""
    return [group * row.use.groups + one for group in groups for one in range(row.use.groups)]


def sample(row: Row, tensors: Tensors, batches: list[int], groups: list[int]) -> Tensors:
    """The part of the inputs that these batches and heads need; pages become plain keys."""
    heads, part = heads_of(row, groups), dict(tensors)
    part["Q"] = tensors["Q"][batches][:, heads]
    for name in "KV":
        part[name] = (paged(row, tensors, name) if row.use.page else tensors[name])[batches][:, groups]
    part.pop("pages", None)
    for name, kept in (("length", batches), ("slope", heads), ("sinks", heads)):
        if name in part:
            part[name] = part[name][kept]
    return part


def paged(row: Row, tensors: Tensors, name: str) -> torch.Tensor:
    """The keys or values that the pages hold, as [b, h, k, d]."""
    return tensors[name][tensors["pages"].long()].flatten(1, 2)[:, : row.sizes["k"]].transpose(1, 2)


def sampled_outputs(row: Row, out: Any) -> Tensors:
    """A contestant's outputs on the sampled batches and heads; PyTorch's fused kernels give the first alone."""
    batches, groups = sampled(row)
    heads = heads_of(row, groups)
    return {name: one[batches][:, heads] for name, one in zip(row.use.outputs, outputs(out), strict=False)}


# ---- peers -----------------------------------------------------------------------------------------------------------


def sdpa(row: Row, backend: SDPBackend | None) -> Contestant:
    """PyTorch's attention of plain, causal or windowed keys; a window's mask is made once."""
    masks: dict[torch.device, torch.Tensor | None] = {}

    def call(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        if row.use.mask == "window" and Q.device not in masks:
            i, j = torch.arange(row.sizes["q"], device=Q.device)[:, None], torch.arange(row.sizes["k"], device=Q.device)
            masks[Q.device] = allowed_keys(row.use, i, j, {})
        mask = masks.get(Q.device)
        return dot_product(backend, Q, K, V, attn_mask=mask, is_causal=row.use.mask == "causal", **shared(row.use))

    return call


def shared(use: Use) -> dict[str, bool]:
    """PyTorch's name for heads that share a K/V head."""
    return {"enable_gqa": use.groups > 1}


def dot_product(
    backend: SDPBackend | None, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **options: Any
) -> torch.Tensor:
    """PyTorch's attention, by one of its backends if one is named."""
    if backend is None:
        return scaled_dot_product_attention(Q, K, V, **options)
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(Q, K, V, **options)
