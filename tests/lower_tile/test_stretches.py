"""Rows that lie in stretches of their tensor: lanes load them 16 bytes at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.ir.program import Parallel, nested_statements
from redalg.lower_tile.passes.join import copies
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowered import Lowered
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule

n, c, s = ra.axes("n c s")
[x] = ra.tensors("x[n,c,s]")
MEAN, VARIANCE = ra.mean(x, n, s), ra.var(x, n, s)
BY_CHANNEL = ra.fuse({"mean": (MEAN, "c"), "var": (VARIANCE, "c")})
OF_ALL = ra.fuse(ra.var(x, n, c, s))


def lowered(sizes: tuple[int, int, int], target: str = "c", *, dtype: str = "float32", parts: int = 1) -> Lowered:
    cut = [Parts("n_s", parts)] if parts > 1 else []
    plan = Schedule(Grid("c"), *cut, Lanes("n_s", 32), Loop("n_s", 256 if target == "c" else 1024))
    extents = dict(zip("ncs", sizes, strict=True))
    found: Lowered = BY_CHANNEL.lower(target, sizes=extents, dtypes={"x": dtype}, plan=plan)
    return found


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("sizes", [(4, 3, 96), (5, 2, 7), (1, 1, 1), (3, 2, 256), (7, 1, 300)])
def test_any_stretch_means_the_definition(sizes: tuple[int, int, int], parts: int) -> None:
    """Of lengths that divide a tile, that a tile divides, and that do neither."""
    numbers = np.random.default_rng(0).normal(1e3, 1.0, sizes).astype("f")
    found = interpret(lowered(sizes, parts=parts).program, {"x": numbers})
    exact = numbers.astype("d")
    np.testing.assert_allclose(found["mean"], exact.mean((0, 2)), rtol=1e-6)
    np.testing.assert_allclose(found["var"], exact.var((0, 2)), rtol=2e-5, atol=1e-12)


def test_the_c_target_computes_it() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(6, 5, 70)
    plan = Schedule(Grid("c"), Lanes("n_s", 32), Loop("n_s", 256))
    mean, var = BY_CHANNEL(x=numbers, backend="tilelang", plan=plan)
    torch.testing.assert_close(mean, numbers.mean((0, 2)))
    torch.testing.assert_close(var, numbers.var((0, 2), correction=0))
    torch.testing.assert_close(OF_ALL(x=numbers, backend="tilelang"), numbers.var(correction=0))


def test_a_tile_is_loaded_by_a_loop_of_its_own() -> None:
    """Joined with what computes, TileLang would load one element at a time."""
    [kernel] = lowered((4, 3, 96)).program.kernels
    buffers = frozenset(one.name for one in kernel.buffers)
    loads = [one for one in nested_statements(kernel.body) if copies(one, buffers)]
    assert loads
    for one in loads:
        assert isinstance(one, Parallel)
        assert [store.target.startswith("x_tile") for store in one.body] == [True]


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("dtype", "stretch", "vector"), [("float32", 784, "float4"), ("float16", 3136, "uint4")])
def test_cuda_loads_16_bytes_at_a_time(dtype: str, stretch: int, vector: str) -> None:
    [kernel] = compile_only(lowered((64, 16, stretch), "sm_90a", dtype=dtype).source)
    reads = [line for line in kernel.cuda.splitlines() if "(x + " in line or " x[" in line or ")x[" in line]
    assert reads
    assert all(f"*({vector}*)(x + " in line for line in reads)
    assert kernel.spill_bytes == 0
