"""A product by cuBLAS before a kernel's pass, on a GPU: right in every dtype, within the memory, chosen in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sympy import Eq

import redalg as ra

pytestmark = pytest.mark.gpu
b, i, v, d = ra.axes("b i v d")
TARGET = ra.tensor("t[i]")


def loss(scores: Any) -> Any:
    return ra.logsumexp(scores, v) - ra.sum(ra.where(Eq(v, TARGET), scores, 0), v)


LOSS = ra.fuse(loss(ra.sum(ra.tensor("h[i,d]") * ra.tensor("w[v,d]"), d)), axes="i")
BATCH = ra.fuse(ra.var(ra.sum(ra.tensor("q[b,i,d]") * ra.tensor("k[b,v,d]"), d), v), axes="b i")


def tensors(rows: int, words: int, width: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    h = torch.randn(rows, width, generator=generator, device="cuda")
    w = torch.randn(words, width, generator=generator, device="cuda") / width**0.5
    return {"h": h.to(dtype), "w": w.to(dtype), "t": torch.randint(0, words, (rows,), device="cuda")}


@pytest.mark.parametrize("rows", [None, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_is_the_definition(dtype: torch.dtype, rows: int | None) -> None:
    given = tensors(300, 1000, 96, dtype)
    found = LOSS(**given, plan=ra.LibraryProduct(rows))
    wanted = LOSS.reference(**given)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batches_are_multiplied_together(dtype: torch.dtype) -> None:
    q, k = (torch.randn(4, n, 48, device="cuda").to(dtype) for n in (130, 700))
    found = BATCH(q=q, k=k, plan=ra.LibraryProduct(64))
    torch.testing.assert_close(found.double(), BATCH.reference(q=q, k=k), rtol=1e-2, atol=1e-4)


def test_true_float32_is_chosen_and_keeps_to_the_memory() -> None:
    given, limit = tensors(2048, 8192, 512, torch.float32), 2**23
    LOSS(**given, memory=limit)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = LOSS(**given, memory=limit)
    assert torch.cuda.max_memory_allocated() - before <= limit + 2**20
    torch.testing.assert_close(found.double(), LOSS.reference(**given), rtol=1e-5, atol=1e-5)
    sizes = {"i": 2048, "v": 8192, "d": 512}
    plan = LOSS.plan(sizes, {"h": "float32", "w": "float32", "t": "int64"}, "H100", memory=limit)
    assert plan == ra.LibraryProduct(256)


def test_it_is_captured_in_a_graph() -> None:
    given = tensors(256, 1000, 64, torch.float32)
    plan = ra.LibraryProduct(64)
    wanted = LOSS(**given, plan=plan)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = LOSS(**given, plan=plan)
    graph.replay()
    torch.testing.assert_close(found, wanted)
