"""Attention under masks that leave few tiles, beside FlexAttention.

FlexAttention's block mask is made once for the data and not timed; redalg finds its tiles anew in every call. A row is
named after its mask, which is its use, and the shape: `documents-4x16x4096x128`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, final

import torch
from sympy import Eq, floor, oo
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import redalg as ra
from benchmarks.family import Contestant, Family, Row, Tensors, normal, relative_error

MASKS = ("causal", "window", "window-and-first", "prefix", "documents", "causal-documents", "padding", "blocks")
SHAPES = {"cuda": ((4, 16, 4096, 128), (1, 16, 16384, 128)), "cpu": ((2, 2, 256, 32),)}
WINDOW, FIRST, BLOCK, LENGTH = 256, 4, 128, 340
"""Of a window, of the tokens that all see, of a block mask; and of a document on average."""
TOLERANCE = {"float32": 1e-5, "float16": 5e-3}
SAMPLED = 2
"""Heads of a batch that are compared with the definition."""
Given = dict[str, torch.Tensor]

b, h, q, k, d, e = ra.axes("b h q k d e")
PREFIX, KEPT = ra.tensors("prefix[b] kept[b,k]")
SEGMENT, OPEN = ra.Tensor("segment"), ra.Tensor("open")
CONDITIONS: dict[str, Any] = {
    "causal": k <= q,
    "window": (k <= q) & (k > q - WINDOW),
    "window-and-first": (k <= q) & ((k > q - WINDOW) | (k < FIRST)),
    "prefix": (k <= q) | (k < PREFIX),
    "documents": Eq(SEGMENT[b, q], SEGMENT[b, k]),
    "causal-documents": (k <= q) & Eq(SEGMENT[b, q], SEGMENT[b, k]),
    "padding": KEPT > 0,
    "blocks": OPEN[b, floor(q / BLOCK), floor(k / BLOCK)] > 0,
}


class At(NamedTuple):
    """A place of the scores, and the data of the mask."""

    given: Given
    b: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor


def same_document(at: At) -> torch.Tensor:
    """Two tokens of one document."""
    same: torch.Tensor = at.given["segment"][at.b, at.q] == at.given["segment"][at.b, at.k]
    return same


FUNCTIONS: dict[str, Callable[[At], torch.Tensor]] = {
    "causal": lambda at: at.k <= at.q,
    "window": lambda at: (at.k <= at.q) & (at.k > at.q - WINDOW),
    "window-and-first": lambda at: (at.k <= at.q) & ((at.k > at.q - WINDOW) | (at.k < FIRST)),
    "prefix": lambda at: (at.k <= at.q) | (at.k < at.given["prefix"][at.b]),
    "documents": same_document,
    "causal-documents": lambda at: (at.k <= at.q) & same_document(at),
    "padding": lambda at: at.given["kept"][at.b, at.k] > 0,
    "blocks": lambda at: at.given["open"][at.b, at.q // BLOCK, at.k // BLOCK] > 0,
}
"""The masks as PyTorch takes them."""


@cache
def derived(use: str, depth: int) -> Any:
    """Attention under a mask, derived once."""
    queries, keys, values = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
    scores = ra.where(CONDITIONS[use], ra.sum(queries * keys, d) * depth**-0.5, -oo)
    return ra.fuse(ra.sum(ra.softmax(scores, k) * values, k), axes="b h q e")


def row(use: str, shape: tuple[int, int, int, int], dtype: str) -> Row:
    """One row: a mask over as many keys as queries."""
    batch, heads, length, depth = shape
    blocks = -(-length // BLOCK)
    beside = {"prefix": (batch,), "segment": (batch, length), "kept": (batch, length), "open": (batch, blocks, blocks)}
    own = {one.name for one in derived(use, depth).cascade.elements()}
    shapes = dict.fromkeys("QKV", shape) | {name: one for name, one in beside.items() if name in own}
    dtypes = {name: dtype if name in "QKV" else "int32" for name in shapes}
    sizes = {"b": batch, "h": heads, "q": length, "k": length, "d": depth, "e": depth}
    return Row(f"{use}-{'x'.join(map(str, shape))}", sizes, shapes, dtypes, 0, torch.Size(shape).numel() * 2, use)


def flex(use: str, device: torch.device) -> Contestant:
    """FlexAttention, with a block mask for each set of data."""
    torch.compiler.reset()  # a function is compiled for eight masks at most
    kernel = torch.compile(flex_attention, dynamic=False)
    known = dict[tuple[int, ...], Any]()

    def run(*, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        key = tuple(one.data_ptr() for one in given.values())
        if key not in known:
            batch = Q.shape[0] if given else None

            def mask(b: torch.Tensor, _: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
                return FUNCTIONS[use](At(given, b, q, k))

            known[key] = create_block_mask(mask, batch, None, Q.shape[2], K.shape[2], device=device)
        out: torch.Tensor = kernel(Q, K, V, block_mask=known[key])
        return out

    return run


def eager(use: str) -> Contestant:
    """PyTorch's attention, given the mask as a tensor."""

    def run(*, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(Q, K, V, attn_mask=mask_of(use, given, Q))

    return run


def mask_of(use: str, given: Given, queries: torch.Tensor) -> torch.Tensor:
    """A mask as a tensor."""
    places = torch.arange(queries.shape[2], device=queries.device)
    batch = torch.arange(queries.shape[0], device=queries.device)[:, None, None, None]
    return FUNCTIONS[use](At(given, batch, places[:, None], places[None, :]))


@final
class Masks(Family):
    """See the module."""

    name = "masks"
    title = "attention under masks that leave few tiles, beside FlexAttention"

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        dtype = "float16" if device.type == "cuda" else "float32"
        return tuple(row(use, shape, dtype) for shape in SHAPES[device.type] for use in MASKS)

    def fused(self, row: Row) -> Any:
        return derived(row.use, row.sizes["d"])

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        batch, length, device = row.sizes["b"], row.sizes["q"], generator.device
        given: Tensors = {name: normal(row.shapes[name], row.dtypes[name], generator) for name in "QKV"}

        def uniform(*shape: int) -> torch.Tensor:
            return torch.rand(shape, generator=generator, device=device)

        blocks = -(-length // BLOCK)
        diagonal = torch.eye(blocks, device=device, dtype=torch.bool)
        beside = {
            "prefix": length // 8 + (uniform(batch) * (length // 8)).int(),
            "segment": (uniform(batch, length) < 1 / LENGTH).cumsum(1),
            "kept": torch.arange(length, device=device) < length * (0.25 + 0.75 * uniform(batch, 1)),
            "open": (uniform(batch, blocks, blocks) < 0.2) | diagonal,
        }
        return given | {name: one.int() for name, one in beside.items() if name in row.shapes}

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        on_gpu = {"FlexAttention": flex(row.use, device)} if device.type == "cuda" else {}
        return {**on_gpu, "eager": eager(row.use)}

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        part = {name: one[:1, :SAMPLED] if name in "QKV" else one[:1] for name, one in inputs.items()}
        reference = self.fused(row).reference(**part)
        return relative_error(out[:1, :SAMPLED], reference)

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[row.dtypes["Q"]]
