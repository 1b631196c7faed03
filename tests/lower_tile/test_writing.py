"""The kernel that writes outputs along the streamed axis: where parts are few, its blocks merge them themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sympy import sqrt

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.lower_tile.place.segments import MOST_TO_WRITE
from redalg.runtime.lowered import Lowered
from redalg.strategies.levels import Grid, Lanes, Loop, Parts
from redalg.strategies.schedule import Schedule

n = ra.axis("n")
x, weight = ra.tensors("x[b,n] weight[n]")
CENTRED = (x - ra.mean(x, n)) * weight / sqrt(ra.var(x, n) + 1e-5)
NORM, SOFTMAX = ra.fuse(CENTRED, axes="b n"), ra.fuse(ra.softmax(x, n), axes="b n")
WITH_MEAN = ra.fuse({"y": (CENTRED, "b n"), "mean": (ra.mean(x, n), "b")})


def lowered(form: ra.Fused, parts: int, *, rows: int = 1, merge: Any = "kernel", length: int = 700) -> Lowered:
    plan = Schedule(Grid("b", rows), Parts("n", parts, merge=merge), Loop("n", 32), Lanes("n", 32))
    dtypes = dict.fromkeys(form.cascade.inputs(), "float32")
    found: Lowered = form.lower("c", sizes={"b": 3, "n": length}, dtypes=dtypes, plan=plan)
    return found


def kernels(form: ra.Fused, parts: int, **options: Any) -> list[str]:
    return [one.title for one in lowered(form, parts, **options).program.kernels]


def test_few_parts_are_merged_where_outputs_are_written() -> None:
    merged = ["stream a part of n", "merge the parts, write a part of n"]
    apart = ["stream a part of n", "merge the parts", "write a part of n"]
    assert kernels(NORM, 4) == kernels(SOFTMAX, MOST_TO_WRITE) == merged
    assert kernels(NORM, MOST_TO_WRITE + 1) == kernels(NORM, 4, rows=2) == apart
    assert kernels(WITH_MEAN, 4) == apart
    assert kernels(NORM, 4, merge="launch") == ["stream a part of n, merge the parts", "write a part of n"]


def test_no_workspace_holds_a_merged_state_then() -> None:
    names = [one.name for one in lowered(NORM, 4).program.parameters if one.role == "workspace"]
    assert names
    assert all(name.endswith("_parts") for name in names)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("length", [1, 33, 700])
@pytest.mark.parametrize("parts", [2, 5, MOST_TO_WRITE])
def test_it_means_the_definition(parts: int, length: int) -> None:
    """Of parts that lie beyond the end of a row too."""
    random = np.random.default_rng(1)
    inputs = {"x": random.normal(1e3, 1.0, (3, length)).astype("f"), "weight": random.normal(size=length).astype("f")}
    exact = inputs["x"].astype("d")
    wanted = (exact - exact.mean(1, keepdims=True)) * inputs["weight"] / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    found = interpret(lowered(NORM, parts, length=length).program, inputs)["out"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
    given = {"x": inputs["x"] - 1000}
    raised = np.exp(given["x"].astype("d"))
    found = interpret(lowered(SOFTMAX, parts, length=length).program, given)["out"]
    np.testing.assert_allclose(found, raised / raised.sum(1, keepdims=True), rtol=2e-6)


def test_the_c_target_computes_it() -> None:
    torch.manual_seed(0)
    given = {"x": torch.randn(3, 700), "weight": torch.randn(700)}
    wanted = torch.nn.functional.layer_norm(given["x"], (700,), given["weight"])
    torch.testing.assert_close(NORM(**given, backend="tilelang", plan=lowered(NORM, 4).plan), wanted)
