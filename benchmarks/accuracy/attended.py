"""Attention's uses: masks, biases, caps, sinks, shared heads, lengths, pages, statistics, decode, head dimensions.

One unfused function (`families.attention`) is the reference, in float64 on sampled batches and heads, and a peer, in
the inputs' dtype; PyTorch's fused kernels are peers wherever they can be told the use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from benchmarks.accuracy.case import Case
from benchmarks.families.attention import (
    BACKENDS,
    Use,
    allowed_keys,
    dot_product,
    fused,
    reference,
    row,
    sample,
    sampled,
    sampled_outputs,
    scores,
    shared,
    unfused,
)
from benchmarks.family import Contestant, Row, Tensors, normal

NO_SCORE = 1e30
"""A larger score is a mask."""

LARGE = (
    row("causal", "2x16x1024x1024x128x128", Use("causal")),
    row("causal, ragged", "2x6x777x1003x64x64", Use("causal")),
    row("causal, bfloat16", "2x16x1024x1024x128x128", Use("causal"), "bfloat16"),
    row("window", "2x8x2048x2048x128x128", Use("window")),
    row("window, ragged", "1x8x1500x2003x64x64", Use("window")),
    row("linear bias", "2x12x777x777x64x64", Use("causal", "linear")),
    row("capped", "2x8x512x512x128x128", Use(score="capped")),
    row("capped, causal", "2x8x777x777x64x64", Use("causal", "capped"), "bfloat16"),
    row("sinks", "2x8x512x512x64x64", Use("causal", sinks=True, also=("lse",))),
    row("sinks, window, shared heads", "1x16x1024x1024x64x64", Use("window", groups=8, sinks=True)),
    row("boolean mask", "2x8x500x700x64x64", Use("boolean")),
    row("boolean mask, zero", "2x8x500x700x128x128", Use("boolean", empty="zero")),
    row("additive mask", "2x8x500x700x64x64", Use(score="additive")),
    row("shared heads", "2x32x512x512x128x128", Use("causal", groups=4)),
    row("one shared head", "2x16x333x512x64x64", Use(groups=16)),
    row("lengths", "5x8x300x1000x128x128", Use("lengths")),
    row("lengths, zero", "5x8x300x1000x64x64", Use("lengths", empty="zero")),
    row("pages of 16", "4x32x1x2048x128x128", Use("lengths", groups=8, page=16)),
    row("pages of 64", "4x16x4x3000x128x128", Use("lengths", groups=4, page=64)),
    row("pages of 128", "3x8x130x1000x64x64", Use("lengths", page=128)),
    row("statistics", "2x8x777x1003x64x64", Use(also=("lse", "top"))),
    row("statistics, lengths", "5x8x300x1000x128x128", Use("lengths", also=("lse", "top"))),
    row("decode", "8x32x1x4097x128x128", Use(groups=8)),
    row("decode, lengths", "8x32x1x4096x128x128", Use("lengths", groups=4)),
    row("decode, statistics", "2x16x1x20000x64x64", Use(also=("lse", "top"))),
    row("four queries", "8x32x4x4097x128x128", Use(groups=4)),
    row("four queries, bfloat16", "4x16x4x2048x64x64", Use("lengths"), "bfloat16"),
    *(row(f"width {d}", f"2x8x300x500x{d}x{d}", Use("causal")) for d in (64, 80, 96, 128, 160, 192, 256)),
    row("width 192, values of 128", "2x8x300x500x192x128", Use("causal")),
    row("width 64, values of 128", "2x8x300x500x64x128"),
    row("width 128, values of 64", "2x8x300x500x128x64"),
    row("float32", "1x4x300x500x64x64", Use("causal"), "float32"),
)
SMALL = tuple(
    row(*asked, dtype="float32")
    for asked in (
        ("causal", "2x2x70x90x32x32", Use("causal")),
        ("window", "1x2x600x600x32x32", Use("window")),
        ("linear bias", "1x3x70x70x32x32", Use("causal", "linear")),
        ("capped", "1x2x70x70x32x32", Use(score="capped")),
        ("sinks", "1x3x70x70x32x32", Use("causal", sinks=True, also=("lse",))),
        ("boolean mask", "2x2x50x70x32x48", Use("boolean")),
        ("boolean mask, zero", "2x2x50x70x32x48", Use("boolean", empty="zero")),
        ("additive mask", "2x2x50x70x32x48", Use(score="additive")),
        ("shared heads", "2x4x50x70x32x32", Use("causal", groups=2)),
        ("lengths, zero", "3x2x50x100x32x32", Use("lengths", empty="zero")),
        ("pages of 16", "3x4x1x100x32x32", Use("lengths", groups=2, page=16)),
        ("statistics", "2x2x50x70x32x32", Use(also=("lse", "top"))),
        ("four queries", "2x8x4x300x64x64", Use(groups=4)),
        ("width 192, values of 128", "1x2x50x70x192x128", Use("causal")),
    )
)
KINDS = ("normal", "huge logits", "strided")


def cases(device: torch.device) -> Iterator[Case]:
    """Every use on every kind of inputs."""
    for asked in LARGE if device.type == "cuda" else SMALL:
        for kind in KINDS:
            if not (kind == "strided" and asked.use.page):  # a cache of pages is one tensor
                yield case(asked, kind, device)


def case(row: Row, kind: str, device: torch.device) -> Case:
    """One row on one kind of inputs."""
    options: dict[str, Any] = {"empty": row.use.empty} | ({"sizes": {"k": row.sizes["k"]}} if row.use.page else {})
    return Case(
        "attention", row, kind, partial(fused, row.use), partial(inputs, row, kind), partial(reference, row),
        partial(outputs, row), peers(row, device), options, scores=partial(largest_score, row),
    )  # fmt: skip


def outputs(row: Row, out: Any, _: Tensors) -> Tensors:
    """A contestant's, on the sampled batches and heads."""
    return sampled_outputs(row, out)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def inputs(row: Row, kind: str, generator: torch.Generator) -> Tensors:
    """Q, K, V and what the use asks for; a query's keys may all be masked out, a length may be 0."""
    scale = 2000.0 if kind == "huge logits" else 1.0
    wide = {name: normal(row.shapes[name], "float32", generator) for name in "QKV"}
    wide["Q"] *= scale
    tensors = {name: one.to(getattr(torch, row.dtypes[name])) for name, one in wide.items()}
    if kind == "strided":
        tensors = {name: strided(one, place) for place, (name, one) in enumerate(tensors.items())}
    return tensors | more(row, generator)


def strided(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The same numbers otherwise laid out: heads innermost but one, every row in a longer one, or transposed."""
    if place == 0:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if place == 1:
        return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]
    return tensor.mT.contiguous().mT


def more(row: Row, generator: torch.Generator) -> Tensors:
    """The tensors that only some uses have."""
    use, (b, h, q, k, *_), device = row.use, row.sizes.values(), generator.device
    found: Tensors = {}
    if use.mask == "lengths":
        lengths = torch.randint(1, k + 1, (b,), generator=generator, device=device, dtype=torch.int32)
        found["length"] = lengths.index_fill(0, torch.tensor([0], device=device), 0 if use.empty == "zero" else k)
    if use.mask == "boolean":
        random = torch.rand(q, k, generator=generator, device=device) < 0.5
        found["M"] = random & (torch.arange(q, device=device) % 50 != 7)[:, None]
    if use.score == "additive":
        bias = normal((q, k), row.dtypes["A"], generator)
        hidden = torch.rand(q, k, generator=generator, device=device) < 0.3
        found["A"] = bias.masked_fill(hidden & (torch.arange(k, device=device) > 0), -torch.inf)
        found["A"][q // 2] = torch.finfo(found["A"].dtype).min  # an all but forbidden row is uniform, not empty
    if use.score == "linear":
        powers = -torch.arange(1, h + 1, device=device, dtype=torch.float32)
        found["slope"] = 2.0 ** powers.to(getattr(torch, row.dtypes["slope"]))
    if use.sinks:
        found["sinks"] = normal((h,), row.dtypes["sinks"], generator)
    if use.page:
        pages = row.shapes["pages"]
        order = torch.randperm(torch.Size(pages).numel(), generator=generator, device=device)
        found["pages"] = order.reshape(pages).int()
    return found


def largest_score(row: Row, tensors: Tensors) -> float:
    """The largest magnitude of a score that is no mask's, on the sampled batches and heads."""
    part = sample(row, tensors, *sampled(row))
    s = scores(row.use, **{name: one.float() if one.is_floating_point() else one for name, one in part.items()}).abs()
    return float(s.masked_fill(s > NO_SCORE, 0.0).max())


# ---- peers -----------------------------------------------------------------------------------------------------------


def peers(row: Row, device: torch.device) -> dict[str, Contestant]:
    """Eager PyTorch, and its fused kernels where they know the use."""
    found: dict[str, Contestant] = {"eager": partial(eager, row)}
    if row.use.sinks or row.use.score == "capped":
        return found
    if device.type != "cuda":
        return found | {"SDPA": partial(sdpa, row, None)}
    return found | {name: partial(sdpa, row, backend) for name, backend in BACKENDS.items()}


def plain(row: Row, tensors: Tensors) -> Tensors:
    """All inputs, without pages."""
    return sample(row, tensors, list(range(row.sizes["b"])), list(range(row.sizes["h"] // row.use.groups)))


def eager(row: Row, **tensors: torch.Tensor) -> list[torch.Tensor]:
    """The definition in the inputs' dtype."""
    return unfused(row.use, **plain(row, tensors))


def sdpa(row: Row, backend: SDPBackend | None, **tensors: torch.Tensor) -> torch.Tensor:
    """PyTorch's attention of any use; what has no name there is a mask."""
    part = plain(row, tensors)
    Q, K, V = (part[name] for name in "QKV")
    causal = row.use.mask == "causal" and not row.use.score and Q.shape[2] == K.shape[2]
    mask = None if causal else mask_of(row.use, part)
    return dot_product(backend, Q, K, V, attn_mask=mask, is_causal=causal, **shared(row.use))


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
