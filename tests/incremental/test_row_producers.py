"""A reduction of rows within the terms of a loop is made once for each row, ahead of a long loop."""

from __future__ import annotations

import pytest
import torch
from sympy import exp

import redalg as ra
from redalg.lower_tile.check.interpret import interpret

b, q, k, d, e = ra.axes("b q k d e")
G, O, K, V, z = ra.tensors("G[b,q,e] O[b,q,e] K[b,k,d] V[b,k,e] z[b,q]")
UNDER = ra.sum((ra.sum(V * G, e) - ra.sum(G * O, e)) * exp(-(z**2)) * K, k)
FUSED = ra.fuse(UNDER, "b q d")


def sizes(keys: int) -> dict[str, int]:
    """Of two heads of 48 rows."""
    return {"b": 2, "q": 48, "k": keys, "d": 16, "e": 32}


@pytest.mark.parametrize(("keys", "stages"), [(16, 1), (32, 1), (64, 2), (4096, 2)])
@pytest.mark.parametrize("target", ["sm_90a", "c"])
def test_a_reduction_of_rows_is_a_stage_where_the_loop_is_long(keys: int, stages: int, target: str) -> None:
    lowered = FUSED.lower(target, sizes=sizes(keys), dtypes="float32")
    assert len(lowered.stages.forms) == stages
    loop = lowered.stages.loop.cascade
    assert loop.axis == k
    assert {str(one.cascade.axis) for one in loop.producers} == {"e"}
    assert len(loop.producers) == 3 - stages


@pytest.mark.parametrize("keys", [16, 64, 100])
def test_both_ways_are_the_definition(keys: int) -> None:
    generator = torch.Generator().manual_seed(keys)
    own = sizes(keys)
    shapes = {one.name: [own[str(axis)] for axis in one.indices] for one in (G, O, K, V, z)}
    given = {str(name): torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    lowered = FUSED.lower("c", sizes=own, dtypes="float32")
    made = interpret(lowered.program, {name: one.numpy() for name, one in given.items()})
    wide = {name: one.double() for name, one in given.items()}
    inner = torch.einsum("bke,bqe->bqk", wide["V"], wide["G"]) - (wide["G"] * wide["O"]).sum(-1, keepdim=True)
    wanted = torch.einsum("bqk,bkd->bqd", inner, wide["K"]) * torch.exp(-(wide["z"] ** 2))[..., None]
    [out] = [one for name, one in made.items() if name == "out"]
    torch.testing.assert_close(torch.from_numpy(out).double(), wanted, rtol=1e-4, atol=1e-4)
