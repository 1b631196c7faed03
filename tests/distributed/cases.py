"""Cascades and data that ranks split between them, the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import torch
import torch.distributed as dist
from sympy import exp, oo

import redalg as ra

b, n, q, k, d, e = ra.axes("b n q k d e")
j = ra.axis("j", size=3)
x, y = ra.tensors("x[b,n] y[b,n]")
Q, K, V = ra.tensors("Q[q,d] K[k,d] V[k,e]")
SCORES = ra.sum(Q * K, d)
FREE = {"i": 4, "n": 4, "q": 5, "d": 4, "e": 3, "b": 2}


@final
@dataclass(frozen=True)
class Case:
    """A cascade: what it is fused from, the axis that is split, its tensors with their axes."""

    make: Callable[[], Any]
    axis: Any
    tensors: Mapping[str, str]


i = ra.axes("i")
A, L = ra.tensors("A[b,i,n] L[b]")
ROW = {"x": "b n"}
PAIR = {"x": "b n", "y": "b n"}
TABLE = {"A": "b i n"}
PRODUCTS = {"Q": "q d", "K": "k d", "V": "k e"}
mean_x, mean_y = ra.mean(x, n), ra.mean(y, n)
covariance = ra.mean((x - mean_x) * (y - mean_y), n)
CASES: dict[str, Case] = {
    "variance": Case(lambda: ra.fuse(ra.var(x, n)), n, ROW),
    "logsumexp": Case(lambda: ra.fuse(ra.logsumexp(x, n)), n, ROW),
    "weighted mean": Case(lambda: ra.fuse(ra.sum(ra.softmax(SCORES, k) * V, k), axes="q e"), k, PRODUCTS),
    "causal": Case(
        lambda: ra.fuse(ra.sum(ra.softmax(ra.where(k <= 2 * q + 1, SCORES, -oo), k) * V, k), axes="q e"), k, PRODUCTS
    ),
    "argmax": Case(lambda: ra.fuse(ra.argmax(x, n)), n, ROW),
    "topk": Case(
        lambda: ra.fuse({"best": (ra.topk(x, n, j)[0], "b j"), "at": (ra.topk(x, n, j)[1], "b j")}), n, ROW
    ),
    "first and last": Case(lambda: ra.fuse({"a": (ra.first(x, n), "b"), "z": (ra.last(x, n), "b")}), n, ROW),
    "affine": Case(lambda: ra.fuse(ra.affine(exp(-y**2), x, n)[1]), n, PAIR),
    "correlation": Case(
        lambda: ra.fuse(covariance / (ra.std(x, n) * ra.std(y, n))), n, PAIR
    ),
    "place": Case(lambda: ra.fuse(ra.sum(x * n, n) / ra.sum(n + 1, n)), n, ROW),
    "share of rows": Case(lambda: ra.fuse(ra.sum(A, i, n) / i.extent), i, TABLE),
    "triangle by rows": Case(lambda: ra.fuse(ra.sum(ra.where(i < n, A, 0), i, n)), i, TABLE),
    "triangle by columns": Case(lambda: ra.fuse(ra.sum(ra.where(i < n, A, 0), i, n)), n, TABLE),
    "furthest": Case(lambda: ra.fuse(ra.max(x + n, n)), n, ROW),
    "pads": Case(lambda: ra.fuse(ra.logsumexp(ra.where(n < L, x, -oo), n)), n, {**ROW, "L": "b"}),
    "softmax": Case(lambda: ra.fuse(ra.softmax(x, n), axes="b n"), n, ROW),
}  # fmt: skip


@cache
def fused(name: str) -> ra.Fused:
    made: ra.Fused = CASES[name].make()
    return made


def whole_data(name: str, length: int, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """The tensors of a case, `length` along the axis that is split; an offset makes differences of squares hard.

    Pads hold NaN, from the length of a row on: half of the whole for the first row, no element of the second.
    """
    random, case = np.random.default_rng(seed), CASES[name]
    sizes = {**FREE, case.axis.name: length}
    shapes = {tensor: [sizes[one] for one in axes.split()] for tensor, axes in case.tensors.items()}
    offset = 100.0 if name in ("variance", "correlation") else 0.0
    data = {tensor: torch.tensor(random.normal(size=shape) + offset).to(dtype) for tensor, shape in shapes.items()}
    if "L" in data:
        data["L"] = torch.tensor([length / 2, 0]).to(dtype)
        data["x"][torch.arange(length) >= data["L"][:, None]] = torch.nan
    return data


def shard(name: str, data: Mapping[str, torch.Tensor], first: int, stop: int) -> dict[str, torch.Tensor]:
    """The part of a rank."""
    case = CASES[name]
    return {
        tensor: array.narrow(case.tensors[tensor].split().index(case.axis.name), first, stop - first)
        if case.axis.name in case.tensors[tensor].split() else array
        for tensor, array in data.items()
    }  # fmt: skip


def here(data: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors on the device of this rank."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return {name: one.to(device) for name, one in data.items()}


def split_call(
    rank: int, size: int, name: str, lengths: list[int], seed: int, dtype: str = "float32"
) -> list[np.ndarray]:
    """The outputs of a call of which this rank has the part that `lengths` gives it."""
    data, first = whole_data(name, sum(lengths), seed, getattr(torch, dtype)), sum(lengths[:rank])
    part = here(shard(name, data, first, first + lengths[rank]))
    outputs = fused(name).distributed(axis=CASES[name].axis)(**part)
    return as_arrays(outputs)


def part_call(rank: int, size: int, name: str, lengths: list[int], parts: int, using: int) -> list[np.ndarray]:
    """The outputs of a call with parts of fixed length, on the first `using` ranks; empty on the others."""
    group = dist.new_group(list(range(using)))
    if rank >= using:
        return []
    data, first = whole_data(name, sum(lengths), 0), sum(lengths[:rank])
    call = fused(name).distributed(group, axis=CASES[name].axis, deterministic=parts)
    return as_arrays(call(**here(shard(name, data, first, first + lengths[rank]))))


def as_arrays(outputs: Any) -> list[np.ndarray]:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [(one.float() if one.dtype == torch.bfloat16 else one).cpu().numpy() for one in outputs]
