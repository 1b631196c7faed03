"""The best elements as a set, to which a loop joins tiles and states: what is kept is what sorting gives, in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import redalg as ra
from redalg.errors import PlanError
from redalg.lower_tile.check.verify import verify
from redalg.lower_tile.ir.program import JoinBest, nested_statements
from redalg.strategies.schedule import AnySchedule, numbers_of, with_choices

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
ROWS, LENGTH = 3, 700


def best(k: int) -> ra.Fused:
    values, places = ra.topk(x, n, ra.axis("k", size=k))
    return ra.fuse({"values": (values, "b k"), "places": (places, "b k")})


def one_row(form: ra.Fused, **choices: int) -> AnySchedule:
    """A plan whose blocks have one row each."""
    plan = form.lower("c", sizes={"b": ROWS, "n": LENGTH}, dtypes="float32").plan
    return with_choices(plan, block_row=1, block_streamed=64, **choices)


def data(kind: str) -> torch.Tensor:
    plain = torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0))
    if kind == "rising":
        return plain.sort(1).values
    if kind == "falling":
        return plain.sort(1, descending=True).values
    if kind == "ties":
        return plain.round()
    if kind == "equal":
        return torch.zeros(ROWS, LENGTH)
    plain[0, 5::7], plain[1, 3], plain[1, 650], plain[2, 9], plain[2, 10:] = (
        -torch.inf,
        torch.nan,
        torch.nan,
        torch.inf,
        -torch.inf,
    )
    return plain


@pytest.mark.sweep(10)
@pytest.mark.parametrize("segments", [1, 3, 10])
@pytest.mark.parametrize("kind", ["plain", "rising", "falling", "ties", "equal"])
@pytest.mark.parametrize("k", [1, 2, 5, 16, 33])
def test_the_best_are_those_of_the_definition(k: int, kind: str, segments: int) -> None:
    form, given = best(k), {"x": data(kind)}
    found = form(**given, backend="tilelang", plan=one_row(form, segments=segments))
    for got, wanted in zip(found, form.reference(**given), strict=True):
        torch.testing.assert_close(
            torch.as_tensor(got).double(), torch.as_tensor(wanted).double(), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("length", [0, 1, 50])
def test_places_without_an_element_are_none(length: int, segments: int) -> None:
    """Of fewer elements than places: what the set was filled with does not come out."""
    form, given = best(60), {"x": data("ties")[:, :length]}
    plan = with_choices(one_row(form, segments=segments), block_streamed=16)
    found = form(**given, backend="tilelang", plan=plan)
    for got, wanted in zip(found, form.reference(**given), strict=True):
        torch.testing.assert_close(torch.as_tensor(got).double(), torch.as_tensor(wanted).double(), rtol=0, atol=0)
    assert (torch.as_tensor(found[1])[:, length:] == -1).all()


def test_two_selections_and_a_sum_stand_side_by_side() -> None:
    largest, _ = ra.topk(x, n, ra.axis("k", size=3))
    least, where = ra.topk(-y, n, ra.axis("l", size=17))
    form = ra.fuse(
        {"largest": (largest, "b k"), "least": (least, "b l"), "where": (where, "b l"), "sum": (ra.sum(x * y, n), "b")}
    )
    given = {"x": data("ties"), "y": data("plain").flip(1).nan_to_num(0, 1, -1)}
    found = form(**given, backend="tilelang", plan=one_row(form, segments=3))
    for got, wanted in zip(found[:3], form.reference(**given)[:3], strict=True):
        torch.testing.assert_close(torch.as_tensor(got).double(), torch.as_tensor(wanted).double(), rtol=0, atol=0)


def test_a_tile_is_joined_at_once() -> None:
    """A tile, and the best of many parts: no element is taken out at a time."""
    text = str(best(64).source("sm_90a", sizes={"b": 1024, "n": 50257}, dtypes="float32"))
    assert "join_best(best, ranked_1, 64, 4096)" in text
    assert "nth" not in text
    macro = text[text.index("def join_best(") : text.index("# ---- end of binding")].rstrip()
    assert macro.splitlines()[-1].startswith("    T.sync_threads()")  # on either branch (racecheck found a read before)
    few = str(best(64).source("sm_90a", sizes={"b": 4, "n": 1_000_000}, dtypes="float32"))
    assert few.count("    join_best(best, ") == 2  # of tiles, and of parts
    assert "join_best(best, best_part, 64, 4096)" in few


@pytest.mark.parametrize(("rows", "length", "k", "tile", "threads", "parts"), [
    (1024, 50257, 64, 4096, 256, 1), (1024, 50257, 256, 8192, 256, 1), (8192, 8192, 32, 1024, 64, 1),
    (32768, 4096, 8, 512, 32, 1), (132, 50257, 64, 8192, 256, 2), (1024, 50257, 8, 2048, 64, 1),
    (16, 1_000_000, 64, 8192, 256, 16), (1, 4_000_000, 64, 8192, 256, 128),
])  # fmt: skip
def test_tiles_grow_with_rows_and_places(
    rows: int, length: int, k: int, tile: int, threads: int, parts: int
) -> None:  # fmt: skip
    plan = numbers_of(best(k).plan({"b": rows, "n": length}, "float32", "H100"))
    assert (plan.block_streamed, plan.threads, plan.segments) == (tile, threads, parts)


def test_more_places_than_a_set_holds_are_taken_in_turn() -> None:
    assert "join_best(" in str(best(1024).source("sm_90a", sizes={"b": 4, "n": 50257}, dtypes="float32"))
    assert "join_best(" not in str(best(1500).source("sm_90a", sizes={"b": 4, "n": 50257}, dtypes="float32"))


def test_a_join_of_other_integers_is_refused() -> None:
    program = best(64).lower("sm_90a", {"b": 4, "n": 50257}, "float32").program
    [kernel, *_] = program.kernels
    join = next(one for one in nested_statements(kernel.body) if isinstance(one, JoinBest))
    short = tuple(replace(one, dtype="int32") if one.name == join.rank else one for one in kernel.buffers)
    with pytest.raises(PlanError, match="not a row of int64"):
        verify(replace(program, kernels=(replace(kernel, buffers=short), *program.kernels[1:])))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["plain", "rising", "equal"])
@pytest.mark.parametrize(
    ("rows", "length", "k"), [(5, 3001, 7), (700, 5003, 33), (2, 200_000, 64), (1100, 3000, 300), (600, 2049, 1)]
)
def test_on_a_gpu(rows: int, length: int, k: int, kind: str, dtype: torch.dtype) -> None:
    x = torch.randn(rows, length, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    x = x.sort(1).values if kind == "rising" else x.round() if kind == "equal" else x
    x[:, 5], x[0, 7] = torch.inf, torch.nan
    x = x.to(dtype)
    values, places = best(k)(x=x, backend="tilelang")
    wanted, order = torch.sort(x, dim=1, descending=True, stable=True)
    assert torch.equal(values.nan_to_num(9e9), wanted[:, :k].to(values.dtype).nan_to_num(9e9))
    assert torch.equal(places, order[:, :k])
