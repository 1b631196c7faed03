"""Small kernels of every kind: a function, its tensors, and what is changed in the plan that would be chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import redalg as ra
from benchmarks.families.pairs import FORMS, derived
from benchmarks.families.pairs import row as pairs_row
from redalg.library import chained_product, quantized_product
from redalg.strategies.schedule import with_choices
from tests.cases.kernels import CASES, cast, fused, problem, tensors_of

HALF, BFLOAT, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


@dataclass(frozen=True)
class Small:
    """One launch: a kind of kernel, a function, its tensors, and what is changed in the plan that would be chosen."""

    kind: str
    name: str
    form: Callable[[], ra.Fused]
    tensors: Callable[[], Mapping[str, torch.Tensor]]
    dtype: torch.dtype
    plan: Mapping[str, Any] = field(default_factory=dict)
    empty: str = "nan"
    sizes: Mapping[str, int] = field(default_factory=dict)


LAUNCH = {"merge": "launch", "warp_specialized": False, "splits": 1}
LOADING = {"merge": "launch", "warp_specialized": True, "stages": 2}
OF_CASES: dict[str, tuple[torch.dtype, dict[str, Any], tuple[str, ...]]] = {
    "single segment, float16": (HALF, {}, ("ragged, d ≠ e", "one of everything", "width 80", "width 256", "causal")),
    "single segment, bfloat16": (BFLOAT, {}, ("ragged, d ≠ e", "odd widths", "width 192, values of 128")),
    "single segment, float32": (SINGLE, {}, ("ragged, d ≠ e", "causal, more keys", "centred product", "covariance")),
    "three warpgroups": (HALF, {"block_row": 192, "block_streamed": 128, "threads": 384, "stages": 2,
                                "warp_specialized": True}, (
        "ragged, d ≠ e", "width 80", "causal", "lengths", "sinks", "linear bias", "soft cap")),
    "masks": (HALF, {}, (
        "boolean mask", "masked row, zero", "additive mask", "window", "window behind the keys", "band", "lengths",
        "no length", "spans", "sinks", "linear bias", "soft cap", "statistics")),
    "shared heads": (HALF, {}, ("shared heads", "one shared head, one query", "shared heads, causal")),
    "pages": (HALF, {}, ("pages of 4", "pages of 64")),
    "segments and merge, products": (HALF, {"segments": 3}, (
        "one query", "causal", "lengths", "shared heads", "pages of 64", "latent")),
    "segments and merge, rows": (SINGLE, {"segments": 3, "level": "block", "block_streamed": 128}, (
        "rows", "weighted variance", "inertia", "cross_entropy")),
    "merged in the launch, products": (HALF, {"segments": 3, "stages": 1, **LAUNCH}, (
        "one query", "ragged, d ≠ e", "causal", "shared heads", "latent", "routing")),
    "merged in the launch, loading warps": (HALF, {"segments": 3, **LOADING}, ("one query", "latent")),
    "merged in the launch, columns": (HALF, {"segments": 3, "stages": 1, "block_column": 64, **LAUNCH}, (
        "centred product",)),
    "merged in the launch, rows": (SINGLE, {"segments": 3, "level": "block", "block_streamed": 128, **LAUNCH}, (
        "rows", "weighted variance", "softmax", "best of rows")),
    "latent": (HALF, {}, ("latent", "latent, one of everything", "latent, wide")),
    "inner loop": (HALF, {}, ("long inner axis", "long inner axis, transposed", "routing, long tokens")),
    "split contraction": (HALF, {"splits": 2, "block_inner": 32}, ("routing", "routing, long tokens")),
    "selection": (SINGLE, {}, (
        "best of rows", "20 best of rows", "rows and their best", "argmax of equal numbers", "argmax and maximum")),
    "selection in segments": (SINGLE, {"segments": 3}, ("best of rows", "20 best of rows")),
    "selection of doubles": (DOUBLE, {}, ("best of rows of doubles", "20 best of rows of doubles")),
    "selection of doubles, merged in the launch": (DOUBLE, {"segments": 3, **LAUNCH}, ("best of rows of doubles",)),
    "stages": (SINGLE, {}, ("what keys are given", "shares of all", "norm of attention")),
    "routing": (HALF, {}, ("routing", "routing to one")),
    "rows": (SINGLE, {}, ("rows", "logsumexp", "variance", "weighted mean", "inertia", "cross_entropy", "any")),
    "lane by lane": (SINGLE, {}, ("first", "last", "prod, of which parts overflow")),
    "lane by lane, merged": (SINGLE, {"segments": 3}, ("compensated, 1e8 of both signs", "last")),
    "lane by lane, merged in the launch": (SINGLE, {
        "segments": 3, "level": "thread", "block_streamed": 128, **LAUNCH}, ("argmax of equal numbers", "first")),
    "thread level": (SINGLE, {"level": "thread"}, ("rows", "weighted variance")),
    "carried outputs": (SINGLE, {}, ("softmax", "masked softmax, zero", "log_softmax", "layer_norm", "rms_norm")),
    "rows that meet at one barrier": (BFLOAT, {"level": "row", "block_row": 2, "block_streamed": 1024, "threads": 64}, (
        "softmax", "layer_norm", "rms_norm")),
    "carried outputs, bfloat16": (BFLOAT, {}, ("softmax", "layer_norm", "weights and mean")),
}  # fmt: skip

OF_LONG_ROWS: dict[str, tuple[torch.dtype, dict[str, Any], int, tuple[str, ...]]] = {
    "two blocks beside each other": (BFLOAT, {"block_streamed": 16384, "threads": 512}, 16_000, (
        "layer_norm", "softmax")),
    "whole rows in turns": (SINGLE, {"block_row": 1, "block_streamed": 2048, "threads": 64}, 2000, (
        "softmax", "layer_norm")),
    "warps that meet at one barrier": (BFLOAT, {"block_streamed": 4096, "threads": 128}, 4000, (
        "softmax", "layer_norm", "rms_norm")),
    "rows that begin anywhere": (BFLOAT, {"block_row": 1, "block_streamed": 2048, "threads": 64}, 1999, (
        "softmax", "layer_norm", "rms_norm")),
}  # fmt: skip
"""Whole rows, by their length: a tile is not mostly empty."""


def smalls(words: Sequence[str] = ()) -> list[Small]:
    """Every launch, in order; with words, of the kinds whose names have one of them."""
    return [one for one in every() if not words or any(word in one.kind for word in words)]


def every() -> Iterator[Small]:
    known = {one.name: one for one in CASES}
    for kind, (dtype, plan, names) in OF_CASES.items():
        for name in names:
            one = known[name]
            yield Small(kind, name, partial(fused, one.form), partial(tensors_of, one), dtype, plan, one.empty,
                        one.sizes)  # fmt: skip
    for kind, (dtype, plan, length, names) in OF_LONG_ROWS.items():
        for name in names:
            tensors = partial(long_rows, name, length)
            yield Small(kind, name, partial(fused, name), tensors, dtype, {"level": "row", "segments": 1, **plan})
    for words, options in QUANTIZED.items():
        yield Small("8-bit floats", words, partial(quantized_product, **options), quantized, HALF)
    yield Small("products of products", "one kernel", chained_product, chained, BFLOAT)
    for words, plan in STAYING.items():
        yield Small("blocks that stay", words, partial(fused, "attention"), heads, HALF, {"persistent": 1, **plan})
    yield Small("blocks that stay", "rows", partial(fused, "softmax"), rows, SINGLE, {"persistent": 1})
    for use in FORMS:
        yield Small("rows on lanes", use, partial(derived, use), partial(points, use), SINGLE)
    for name, shapes in {"variance": (1500, 300), "variance of few": (5000, 12)}.items():
        yield Small("lanes along columns", name, partial(narrow, "columns"), partial(normal, x=shapes), SINGLE)
    for name, shape in NARROW_SHAPES.items():
        yield Small("narrow", name, partial(narrow, name), partial(normal, **shape), SINGLE)
    for dtype, length in ((SINGLE, 30_000), (DOUBLE, 20_000)):
        tensors = partial(normal, x=(length, 41))
        yield Small("columns by columns", f"covariance, {dtype}", partial(narrow, "covariance"), tensors, dtype)
    yield Small("narrow", "a best of parts", partial(narrow, "a best each"), partial(normal, x=(6, 5000)), SINGLE,
                {"segments": 3})  # fmt: skip
    yield Small("stretches", "statistics of channels", channels, images, HALF)
    for queries in (70, 33):
        yield Small("run-time sizes", f"{queries} queries", runs, partial(drawn, queries), HALF)


QUANTIZED: dict[str, dict[str, Any]] = {
    "online": {}, "power of two": {"power_of_two": True}, "two passes": {"exact": True}
}  # fmt: skip
STAYING: dict[str, dict[str, Any]] = {
    "products": {"stages": 2, "warp_specialized": False},
    "loading warps": {"stages": 2, "warp_specialized": True, "threads": 128, "block_row": 64, "block_streamed": 64},
    "parts": {"stages": 1, "segments": 2, "warp_specialized": False},
}
"""More tiles than there are blocks, on any card."""
RUNS = ra.fuse(ra.sum(ra.softmax(ra.sum(ra.tensor("Q[h,q,d]") * ra.tensor("K[h,k,d]"), ra.axes("d")), ra.axes("k"))
                      * ra.tensor("K[h,k,e]"), ra.axes("k")), axes="h q e")  # fmt: skip
"""Keys that are values too; other sizes of a form met before take its kernel of run-time sizes."""


N, X = ra.axes("n"), ra.tensor("x[b,n]")
NARROW = {
    "columns": ra.fuse(ra.var(ra.tensor("x[n,c]"), N), axes="c"),
    "covariance": ra.fuse(ra.covariance(ra.tensor("x[n,i]"), ra.tensor("x[n,j]"), N), axes="i j"),
    "a best each": ra.fuse({"at": (ra.argmax(X, N), "b"), "best": (ra.max(X, N), "b")}),
    "weighed columns": ra.fuse(ra.sum(ra.softmax(X, N) * ra.tensor("y[b,n,c]"), N), axes="b c"),
    "a thread a row": ra.fuse({
        "a": (ra.mean((X - ra.mean(X, N)) ** 4, N), "b"), "b": (ra.max(X, N), "b"), "c": (ra.min(X, N), "b"),
        "d": (ra.logsumexp(X, N), "b"), "e": (ra.var(X, N), "b"),
    }),
}  # fmt: skip
"""Lanes along columns, as neighbours in memory are; products of columns over a long axis; lanes that keep a best each;
a maximum for many columns; threads that take a row each, which many rows of no power of two have."""
NARROW_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "a best each": {"x": (6, 5000)}, "weighed columns": {"x": (3, 130), "y": (3, 130, 70)},
    "a thread a row": {"x": (34_000, 45)},
}  # fmt: skip


CHANNELS = ra.fuse(ra.var(ra.tensor("x[b,c,s]"), ra.axes("b s")), axes="c")
"""A channel's elements lie in stretches, one for every image."""


def runs() -> ra.Fused:
    return RUNS


def long_rows(name: str, length: int) -> dict[str, torch.Tensor]:
    """Five rows, and the gain and bias that a function of them reads."""
    own = {one.name for one in fused(name).cascade.elements()}
    shapes = {"x": (5, length), "G": (length,), "B": (length,)}
    return normal(**{key: shape for key, shape in shapes.items() if key in own})


def narrow(name: str) -> ra.Fused:
    return NARROW[name]


def normal(**shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    g = generator()
    return {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}


def channels() -> ra.Fused:
    return CHANNELS


def images() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(64, 24, 784, generator=generator())}


def points(use: str) -> dict[str, torch.Tensor]:
    """Targets, sources and weights of a sum over pairs, of which neither fills its blocks."""
    g, row = generator(), pairs_row(use, 300, 1025)
    return {name: torch.randn(shape, generator=g) for name, shape in row.shapes.items()}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def drawn(queries: int) -> dict[str, torch.Tensor]:
    g = generator()
    return {"Q": torch.randn(2, queries, 32, generator=g), "K": torch.randn(2, 200, 32, generator=g)}


def quantized() -> dict[str, torch.Tensor]:
    g = generator()
    W = (50 * torch.randn(80, 200, generator=g)).to(torch.float8_e4m3fn)
    return {"x": torch.randn(70, 200, generator=g), "W": W, "w": torch.rand(80, generator=g)}


def heads() -> dict[str, torch.Tensor]:
    g = generator()
    return {"Q": torch.randn(8, 40, 64, 32, generator=g), "K": torch.randn(8, 40, 128, 32, generator=g),
            "V": torch.randn(8, 40, 128, 32, generator=g)}  # fmt: skip


def rows() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(500, 300, generator=generator())}


def chained() -> dict[str, torch.Tensor]:
    g = generator()
    return {"A": torch.randn(2, 70, 64, generator=g), "B": torch.randn(2, 64, 90, generator=g),
            "D": torch.randn(2, 90, 40, generator=g)}  # fmt: skip


def given(one: Small) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, 8-bit floats as they are."""
    made = dict(one.tensors())
    narrow = {name: array for name, array in made.items() if array.element_size() == 1}
    return cast({name: array for name, array in made.items() if name not in narrow}, one.dtype) | narrow


def plan_of(one: Small, tensors: Mapping[str, torch.Tensor], chip: str) -> Any:
    """The changed plan; None where it is the one that a call chooses."""
    if not one.plan:
        return None
    chosen = one.form().lower(chip, **problem(one.form(), tensors, one.sizes), empty=one.empty).plan
    return with_choices(chosen, **one.plan)
