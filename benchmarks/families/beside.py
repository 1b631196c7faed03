"""Shapes that no other family holds, beside PyTorch: short rows, few columns, one long row, small grids.

A row is named after its operation and its shape. The rules for schedules were fitted to the other families; these rows
show what the rules give beside them.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sympy import Abs, Expr, Rational, oo, sqrt
from torch.nn.functional import rms_norm, scaled_dot_product_attention

import redalg as ra
from benchmarks.families import columns
from benchmarks.families.workloads import Workload, Workloads, wide

b, c, d, e, h, i, j, k, n, q = ra.axes("b c d e h i j k n q")
x = ra.tensor("x[b,n]")
ROW, COLUMNS, HEADS = {"x": "b n"}, {"x": "n c"}, {"x": "b h q d", "y": "b h k d", "w": "b h k e"}


def moment(order: int) -> Expr:
    """A central moment of every row."""
    return ra.mean((x - ra.mean(x, n)) ** order, n)


def statistics() -> ra.Fused:
    """Six statistics of every row: three moments, both extrema, and the logarithm of the sum of exponentials."""
    values = (ra.mean(x, n), moment(2), moment(4), ra.max(x, n), ra.min(x, n), ra.logsumexp(x, n))
    return ra.fuse({f"s{place}": (value, "b") for place, value in enumerate(values)})


def statistics_in_torch(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """See `statistics`."""
    mean = x.mean(1)
    away = x - mean[:, None]
    moments = ((away**order).mean(1) for order in (2, 4))
    return (mean, *moments, x.amax(1), x.amin(1), torch.logsumexp(x, 1))


def softmax() -> ra.Fused:
    """The weights of every row."""
    return ra.fuse(ra.softmax(x, n), axes="b n")


def layer_norm() -> ra.Fused:
    """Every row about its mean, over its standard deviation."""
    return ra.fuse(ra.layer_norm(x, n), axes="b n")


def variance() -> ra.Fused:
    """The variance of every row."""
    return ra.fuse(moment(2), axes="b")


def kurtosis() -> ra.Fused:
    """The kurtosis of every row."""
    return ra.fuse(moment(4) / moment(2) ** 2, axes="b")


def kurtosis_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `kurtosis`."""
    away = x - x.mean(1, keepdim=True)
    return (away**4).mean(1) / (away**2).mean(1) ** 2


def best() -> ra.Fused:
    """The largest number of every row, and its place."""
    return ra.fuse({"place": (ra.argmax(x, n), "b"), "value": (ra.max(x, n), "b")})


def best_in_torch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See `best`."""
    value, place = x.max(1)
    return place, value


def covariance() -> ra.Fused:
    """The covariances of the columns."""
    data = ra.Tensor("x")
    return ra.fuse(ra.covariance(data[n, i], data[n, j], n), axes="i j")


def covariance_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `covariance`."""
    return torch.cov(x.T, correction=0)


def covariance_in_long_double(x: torch.Tensor) -> torch.Tensor:
    """See `covariance`, in NumPy's long double."""
    columns = np.ascontiguousarray(x.T.cpu().numpy().astype(np.longdouble))
    columns -= columns.mean(1, keepdims=True)
    return torch.from_numpy((columns @ columns.T / columns.shape[1]).astype(np.float64)).to(x.device)


def attention(*, causal: bool) -> ra.Fused:
    """Values weighed by scores, of the keys up to a query's place where `causal`."""
    x, y, w = ra.tensors("x[b,h,q,d] y[b,h,k,d] w[b,h,k,e]")
    scores = ra.sum(x * y, d) / sqrt(d.extent)
    scores = ra.where(k <= q, scores, -oo) if causal else scores
    return ra.fuse(ra.sum(ra.softmax(scores, k) * w, k), axes="b h q e")


def attention_in_torch(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """See `attention`."""
    return scaled_dot_product_attention(x, y, w, is_causal=causal)


def distances() -> ra.Fused:
    """The sums of absolute differences of all pairs of points."""
    x, y = ra.tensors("x[i,d] y[j,d]")
    return ra.fuse(ra.sum(Abs(x - y), d), axes="i j")


def residual_norm() -> ra.Fused:
    """The sums of two matrices, and their rows over their root mean square."""
    total = x + ra.tensor("y[b,n]")
    scaled = total / sqrt(ra.mean(total**2, n) + Rational(1, 100000)) * ra.tensor("w[n]")
    return ra.fuse({"total": (total, "b n"), "scaled": (scaled, "b n")})


def residual_norm_in_torch(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See `residual_norm`."""
    total = x + y
    return total, rms_norm(total, w.shape, w, 1e-5)


def pooling() -> ra.Fused:
    """Rows of a matrix weighed by the exponentials of their scores."""
    return ra.fuse(ra.sum(ra.softmax(ra.tensor("x[b,n]"), n) * ra.tensor("y[b,n,c]"), n), axes="b c")


def pooling_in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """See `pooling`."""
    return torch.bmm(torch.softmax(x, 1)[:, None], y)[:, 0]


def assignment() -> ra.Fused:
    """The nearest centre of every point, by differences, and the square of its distance."""
    x, y = ra.tensors("x[i,d] y[j,d]")
    square = ra.sum((x - y) ** 2, d)
    return ra.fuse({"place": (ra.argmin(square, j), "i"), "square": (ra.min(square, j), "i")})


def assignment_in_torch(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """See `assignment`; the square is expanded, so that a product makes it."""
    square, place = ((x * x).sum(1)[:, None] - 2 * x @ y.T + (y * y).sum(1)).min(1)
    return place, square


def rows_of(form: Any, written: Any, shape: tuple[int, int], axes: str = "b n", dtype: str = "float32") -> Workload:
    """A workload of one matrix that is reduced row by row."""
    sizes, small = dict(zip("bn", shape, strict=True)), {"b": min(37, shape[0]), "n": min(200, shape[1])}
    return Workload(form, axes, written, ROW, sizes, small, dtype)


def columns_of(form: Any, written: Any, shape: tuple[int, int], axes: str, dtype: str = "float32") -> Workload:
    """A workload of one matrix that is reduced column by column; axes i and j are as long as c."""
    names = {"n": shape[0]} | dict.fromkeys(("i", "j") if "i" in axes else ("c",), shape[1])
    small = names | {"n": 300}
    return Workload(form, axes, written, {"x": "n i"} if "i" in axes else COLUMNS, names, small, dtype)


def heads_of(heads: int, length: int, width: int, dtype: str, *, causal: bool) -> Workload:
    """A workload of one sequence, of `width` numbers a head."""
    sizes = {"b": 1, "h": heads, "q": length, "k": length, "d": width, "e": width}
    small = sizes | {"h": 2, "q": 96, "k": 96}
    form, written = partial(attention, causal=causal), partial(attention_in_torch, causal=causal)
    return Workload(form, "b h q e", written, HEADS, sizes, small, dtype, products="b h q k d")


def softmax_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `softmax`."""
    return torch.softmax(wide(x), 1).to(x.dtype)


def layer_norm_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `layer_norm`."""
    return torch.nn.functional.layer_norm(x, x.shape[1:])


def variance_in_torch(x: torch.Tensor) -> torch.Tensor:
    """See `variance`."""
    return torch.var(x, 1, correction=0)


SIX = "b, b, b, b, b, b"
MOMENTS = columns.DEFINITIONS["variance-columns"], columns.formula("variance-columns")
"""Mean and variance of every column, and the same in PyTorch."""
SHAPES: dict[str, Workload] = {
    "variance 262144x3": rows_of(variance, variance_in_torch, (262144, 3), "b"),
    "variance 1000000x17": rows_of(variance, variance_in_torch, (1_000_000, 17), "b"),
    "softmax 262144x3 bfloat16": rows_of(softmax, softmax_in_torch, (262144, 3), dtype="bfloat16"),
    "softmax 262144x17": rows_of(softmax, softmax_in_torch, (262144, 17)),
    "softmax 131072x64 bfloat16": rows_of(softmax, softmax_in_torch, (131072, 64), dtype="bfloat16"),
    "layer norm 500000x17": rows_of(layer_norm, layer_norm_in_torch, (500_000, 17)),
    "kurtosis 262144x33": rows_of(kurtosis, kurtosis_in_torch, (262144, 33), "b"),
    "statistics 65536x100": rows_of(statistics, statistics_in_torch, (65536, 100), SIX),
    "argmax 65536x100": rows_of(best, best_in_torch, (65536, 100), "b, b"),
    "argmax 4096x50257": rows_of(best, best_in_torch, (4096, 50257), "b, b"),
    "softmax 1x16777216": rows_of(softmax, softmax_in_torch, (1, 1 << 24)),
    "statistics 1x16777216": rows_of(statistics, statistics_in_torch, (1, 1 << 24), SIX),
    "variance columns 4000000x3": columns_of(
        *MOMENTS, (4_000_000, 3), "c, c"),
    "variance columns 1000000x17 float16": columns_of(
        *MOMENTS, (1_000_000, 17), "c, c", "float16"),
    "covariance 1000000x3": columns_of(covariance, covariance_in_torch, (1_000_000, 3), "i j"),
    "covariance 1000000x17": columns_of(covariance, covariance_in_torch, (1_000_000, 17), "i j"),
    "covariance 262144x64 float64": replace(
        columns_of(covariance, covariance_in_torch, (262144, 64), "i j", "float64"), exact=covariance_in_long_double),
    "attention 1x8x1024x64 float32": heads_of(8, 1024, 64, "float32", causal=False),
    "causal attention 1x8x4096x64 float16": heads_of(8, 4096, 64, "float16", causal=True),
    "causal attention 1x16x4096x128 float16": heads_of(16, 4096, 128, "float16", causal=True),
    "softmax 511x50257": rows_of(softmax, softmax_in_torch, (511, 50257)),
    "softmax 4096x20000 bfloat16": rows_of(softmax, softmax_in_torch, (4096, 20000), dtype="bfloat16"),
    "softmax 131072x255 bfloat16": rows_of(softmax, softmax_in_torch, (131072, 255), dtype="bfloat16"),
    "layer norm 262144x101 bfloat16": rows_of(layer_norm, layer_norm_in_torch, (262144, 101), dtype="bfloat16"),
    "layer norm 131072x384 bfloat16": rows_of(layer_norm, layer_norm_in_torch, (131072, 384), dtype="bfloat16"),
    "softmax 65536x1001 bfloat16": rows_of(softmax, softmax_in_torch, (65536, 1001), dtype="bfloat16"),
    "softmax 4096x32000 bfloat16": rows_of(softmax, softmax_in_torch, (4096, 32000), dtype="bfloat16"),
    "softmax 2048x50257 bfloat16": rows_of(softmax, softmax_in_torch, (2048, 50257), dtype="bfloat16"),
    "softmax 1024x128256 bfloat16": rows_of(softmax, softmax_in_torch, (1024, 128256), dtype="bfloat16"),
    "layer norm 1024x128257 bfloat16": rows_of(layer_norm, layer_norm_in_torch, (1024, 128257), dtype="bfloat16"),
    "layer norm 16384x4095 bfloat16": rows_of(layer_norm, layer_norm_in_torch, (16384, 4095), dtype="bfloat16"),
    "layer norm 2048x32000": rows_of(layer_norm, layer_norm_in_torch, (2048, 32000)),
    "residual norm 8192x4096 bfloat16": Workload(
        residual_norm, "b n, b n", residual_norm_in_torch, {"x": "b n", "y": "b n", "w": "n"},
        {"b": 8192, "n": 4096}, {"b": 9, "n": 300}, "bfloat16"),
    "residual norm 4096x16384 bfloat16": Workload(
        residual_norm, "b n, b n", residual_norm_in_torch, {"x": "b n", "y": "b n", "w": "n"},
        {"b": 4096, "n": 16384}, {"b": 9, "n": 300}, "bfloat16"),
    "pooling 256x4096x512": Workload(
        pooling, "b c", pooling_in_torch, {"x": "b n", "y": "b n c"}, {"b": 256, "n": 4096, "c": 512},
        {"b": 3, "n": 130, "c": 40}),
    "assignment 200000x1024x64": Workload(
        assignment, "i, i", assignment_in_torch, {"x": "i d", "y": "j d"}, {"i": 200_000, "j": 1024, "d": 64},
        {"i": 130, "j": 70, "d": 16}, checked="i"),
    "distances 4096x4096x100": Workload(
        distances, "i j", lambda x, y: torch.cdist(x, y, p=1), {"x": "i d", "y": "j d"},
        {"i": 4096, "j": 4096, "d": 100}, {"i": 40, "j": 70, "d": 20}),
}  # fmt: skip
BESIDE = Workloads("beside", "shapes that no other family holds, beside eager PyTorch and torch.compile", SHAPES)
