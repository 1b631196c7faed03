"""Selections, running sums, counts and scatters mean what PyTorch's mean, or stay with PyTorch and say why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from redalg.errors import GraphError
from redalg.graphs.compose import compose_outputs
from redalg.graphs.interpret import interpret_program
from redalg.graphs.subprograms import subprograms_of
from redalg.torch import gate, places, regions
from redalg.torch.aten import Imported
from redalg.torch.decisions import Decision
from tests.graphs.test_exploration import check_plan, found_in
from tests.sweeps import draws
from tests.torch.test_aten import Called, drawn, exported
from tests.torch.test_backend import PREDICTED, compiled
from tests.torch.test_subprograms import CARD, TOGETHER

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("anew")]
DRAWN = settings(max_examples=draws(60), suppress_health_check=list(HealthCheck), deadline=None)
SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 5)), min_size=1, max_size=3).map(tuple)
SHAPE = (4, 9)
Function = Callable[..., Any]


def numbers(shape: tuple[int, ...], seed: int, *, few: bool = False, odd: bool = False) -> torch.Tensor:
    """Numbers in float64: of a few values, so that many are equal; with infinities and NaN among them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-2, 3, shape, generator=generator).double() if few else torch.randn(
        shape, generator=generator, dtype=torch.float64)  # fmt: skip
    for value, share in ((torch.nan, 0.1), (torch.inf, 0.1), (-torch.inf, 0.1)) if odd else ():
        x = x.masked_fill(torch.rand(shape, generator=generator) < share, value)
    return x


def whole(shape: tuple[int, ...], seed: int, low: int, high: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def results(function: Function, *given_: torch.Tensor) -> tuple[Imported, list[Any], list[torch.Tensor]]:
    """The program of a function, what it gives, and what PyTorch does."""
    imported, arrays = exported(Called(function), given_)
    found = [torch.as_tensor(one) for one in interpret_program(imported.program, arrays, imported.compute).values()]
    wanted = function(*given_)
    return imported, found, [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)


def check_equal(function: Function, *given_: torch.Tensor) -> None:
    """The program of a function leaves nothing to PyTorch, and gives what it gives."""
    imported, found, wanted = results(function, *given_)
    assert [one.reason for one in imported.program.live().externals() if one.operator != "empty"] == []
    for got, each in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (each.shape, each.dtype)
        torch.testing.assert_close(got, each, rtol=1e-12, atol=1e-12, equal_nan=True)


def check_left(function: Function, reason: str, *given_: torch.Tensor) -> None:
    """A function stays with PyTorch for a reason, and gives what it gives."""
    imported, found, wanted = results(function, *given_)
    assert reason in [one.reason for one in imported.program.externals()]
    for got, each in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, each, rtol=0, atol=0, equal_nan=True)


# ---- selections ------------------------------------------------------------------------------------------------------


@DRAWN
@given(SHAPES, st.integers(-3, 2), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_the_largest_elements(shape: tuple[int, ...], dim: int, count: int, few: bool, seed: int) -> None:
    """Equal elements may have other places than PyTorch's, at which they are equal."""
    assume(-len(shape) <= dim < len(shape) and count <= shape[dim])
    x = numbers(shape, seed, few=few, odd=True)
    imported, (values, indices), (wanted, _) = results(lambda x: x.topk(count, dim), x)
    assert not [*imported.program.externals()]
    torch.testing.assert_close(values, wanted, rtol=0, atol=0, equal_nan=True)
    assert indices.dtype == torch.int64
    torch.testing.assert_close(x.gather(dim, indices), wanted, rtol=0, atol=0, equal_nan=True)
    if count > 1:
        ordered = indices.sort(dim).values
        assert bool((ordered.narrow(dim, 1, count - 1) > ordered.narrow(dim, 0, count - 1)).all())


@DRAWN
@given(SHAPES, st.integers(-3, 2), st.booleans(), st.integers(0, 99))
def test_elements_in_falling_order(shape: tuple[int, ...], dim: int, few: bool, seed: int) -> None:
    assume(-len(shape) <= dim < len(shape) and shape[dim])
    check_equal(lambda x: x.sort(dim, descending=True).values * 2, numbers(shape, seed, few=few, odd=True))


@pytest.mark.parametrize("largest", [True, False])
def test_selections_of_integers(largest: bool) -> None:
    x = whole((3, 7), 0, -9, 9).int()
    check_equal(lambda x: x.topk(4, largest=largest).values, x)
    check_equal(lambda x: x.sort(0, descending=largest).values, x)


PLACED = "its places are used, and which of equal elements they are of is PyTorch's choice"
LEFT: dict[str, tuple[Function, str]] = {
    "experts by places": (lambda x: x.gather(1, x.softmax(-1).topk(2).indices), PLACED),
    "places in arithmetic": (lambda x: x.topk(2).indices + 1, PLACED),
    "argsort": (lambda x: x[0][x[0].argsort()], PLACED),
    "least elements": (
        lambda x: x.topk(2, largest=False).values,
        "from the least element on, NaN comes last, and in the engine's selections first",
    ),
    "rising order": (
        lambda x: x.sort().values,
        "from the least element on, NaN comes last, and in the engine's selections first",
    ),
    "no order": (lambda x: x.topk(3, sorted=False).values, "it selects elements in an order that is PyTorch's choice"),
    "none": (lambda x: x.topk(0).values, "it selects 0 elements of a row, and the engine from 1 to 256"),
    "too many": (
        lambda x: x.flatten().repeat(8).sort(descending=True).values,
        "it selects 288 elements of a row, and the engine from 1 to 256",
    ),
    "large integers": (lambda x: x.long().topk(2).values, "it compares truths, or integers of 64 bits"),
    "one number": (lambda x: x[0, 0].sort().values, "it selects from one number"),
    "products written": (
        lambda x: x.scatter(1, (x > 0).long(), x * 2),
        "a place may be written twice, and which of both stays is PyTorch's choice",
    ),
    "a shorter index": (
        lambda x: x.scatter(1, (x[:2] > 0).long(), 2.0),
        "its index is shorter than what it writes to",
    ),
    "reductions written": (
        lambda x: x.scatter(1, (x > 0).long(), x, reduce="multiply"),
        "it joins what it writes with what was there",
    ),
    "places of two dimensions": (
        lambda x: x.index_put(((x[:, 0] > 0).long(), (x[:, 1] > 0).long()), x[:, 0]),
        "it writes to places that several numbers say",
    ),
    "bins of fractions": (
        lambda x: x.histc(5, 0, 4),
        "it counts numbers in bins, of which rounding decides at their edges",
    ),
    "wide bins": (
        lambda x: x.int().float().histc(4, 0, 4),
        "it counts numbers in bins, of which rounding decides at their edges",
    ),
    "a long sum": (
        lambda x: x.flatten().repeat(20).cumsum(0),
        "as a reduction it takes 518400 steps, and a library's algorithm far fewer",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_the_rest_stays_with_pytorch(name: str) -> None:
    function, reason = LEFT[name]
    check_left(function, reason, numbers(SHAPE, 1))


# ---- sums and counts -------------------------------------------------------------------------------------------------


@DRAWN
@given(SHAPES, st.integers(-3, 2), st.integers(0, 99))
def test_running_sums(shape: tuple[int, ...], dim: int, seed: int) -> None:
    assume(-len(shape) <= dim < len(shape))
    x = numbers(shape, seed)
    check_equal(
        lambda x: (x.cumsum(dim), (x > 0).cumsum(dim), (x * 4).cumsum(dim, dtype=torch.int32), x[..., :1].cumsum(dim)),
        x,
    )


def test_a_running_sum_reads_nothing_beyond_its_place() -> None:
    x = numbers((3, 5), 0).index_fill(1, torch.tensor([3]), torch.inf).index_fill(1, torch.tensor([4]), torch.nan)
    check_equal(lambda x: x.cumsum(1), x)
    check_equal(lambda x: x[0, 0].cumsum(0), x)


@DRAWN
@given(SHAPES, st.integers(-2, 3), st.integers(2, 6), st.integers(0, 99))
def test_counts_of_whole_numbers(shape: tuple[int, ...], first: int, bins: int, seed: int) -> None:
    """Numbers beyond both ends do not count; a bin for each of the others."""
    check_equal(lambda i: i.float().histc(bins, first, first + bins - 1).cumsum(0), whole(shape, seed, -4, 9))


@pytest.mark.parametrize("bins", [2, 3, 7, 64, 100, 1000, places.MOST_BINS])
def test_bins_hold_one_number_each(bins: int) -> None:
    """PyTorch's rounding moves none across an edge."""
    numbers_ = torch.arange(bins)
    assert torch.equal(numbers_.float().histc(bins, 0, bins - 1), torch.ones(bins))
    assert torch.equal((numbers_ - 7).float().histc(bins, -7, bins - 8), torch.ones(bins))


# ---- scatters --------------------------------------------------------------------------------------------------------


@DRAWN
@given(SHAPES, st.integers(-3, 2), st.sampled_from((0, 1, 4)), st.integers(0, 99))
def test_scatters_of_a_number_and_sums(shape: tuple[int, ...], dim: int, count: int, seed: int) -> None:
    """Indices hold some places twice."""
    assume(-len(shape) <= dim < len(shape) and (shape[dim] or not count))
    x = numbers(shape, seed)
    index = whole((*shape[: dim % len(shape)], count, *shape[dim % len(shape) + 1 :]), seed, 0, max(shape[dim], 1))
    source = numbers((*(size + 1 for size in index.shape),), seed + 1)
    check_equal(lambda x, i, s: (x.scatter(dim, i, 7.5), x.scatter_add(dim, i, s)), x, index, source)


@DRAWN
@given(st.sampled_from((1, 2, 5)), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_scatters_to_places_of_a_selection(rows: int, count: int, negative: bool, seed: int) -> None:
    """No place stands twice: routers spread weights so, and turn an order round."""
    x = numbers((rows, 6), seed)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, indices = x.topk(count, -1)
        order = x[0].argsort()
        turned = torch.empty(6, dtype=torch.int64).index_put((order,), torch.arange(6))
        dim = -1 if negative else 1
        return x.scatter(dim, indices, values * 2), torch.zeros_like(x).scatter(dim, indices, values), turned

    imported, found, wanted = results(function, x)
    assert {one.operator for one in imported.program.externals()} == {"topk", "sort", "empty"}
    for got, each in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, each, rtol=0, atol=0)


@DRAWN
@given(st.sampled_from((1, 2, 5)), st.sampled_from((0, 1, 3)), st.integers(0, 99))
def test_rows_that_indices_name_are_written(rows: int, count: int, seed: int) -> None:
    """From the end too, if an index is negative."""
    x, index = numbers((rows, 4), seed), whole((count,), seed, -rows, rows)
    check_equal(lambda x, i, s: x.index_put((i,), s, accumulate=True), x, index, numbers((count, 4), seed))
    check_equal(lambda x, i, s: x.index_put((i,), s[0, 0] * 0 + 3), x, index, numbers((1, 4), seed))
    check_equal(lambda x, s: (x.index_put((x > 0,), s), x.index_put((x > 0,), s, accumulate=True)), x,
                torch.tensor(2.5, dtype=torch.float64))  # fmt: skip


def test_memory_that_is_not_set_is_joined_with_what_is_written_to_it() -> None:
    """Floating-point numbers; integers stay with PyTorch, as a trial may read at them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty(4, 7, dtype=x.dtype)
        made[:, :3], made[:, 3:] = x[:, :3].exp(), x[:, :4]
        return made * 2

    check_equal(function, numbers(SHAPE, 0))


# ---- in groups -------------------------------------------------------------------------------------------------------


def weights_of_best(x: torch.Tensor) -> torch.Tensor:
    values = x.softmax(-1).topk(2, -1).values
    return values / values.sum(-1, keepdim=True)


GROUPS: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "values": (lambda x: (x * 2).topk(3, -1).values, (drawn(40, 90),)),
    "values and places": (lambda x: (x * 2).topk(3, 0), (drawn(9, 4),)),
    "sums of values": (lambda x: (x * 2).topk(2, -1).values.sum(-1), (drawn(4, 3, 9),)),
    "weights of values": (weights_of_best, (drawn(4, 9),)),
    "ordered weights": (lambda x: x.softmax(-1).sort(-1, descending=True).values, (drawn(4, 9),)),
    "running sums": (lambda x: x.softmax(-1).cumsum(1), (drawn(4, 9),)),
    "counts": (lambda i: i.float().histc(4, 0, 3).cumsum(0, dtype=torch.int32), (whole((7,), 0, -1, 6),)),
    "sums at places": (
        lambda x, i: torch.zeros(4, 6).scatter_add(1, i, x).softmax(-1),
        (drawn(4, 9), whole((4, 9), 0, 0, 6)),
    ),
    "masks at places": (
        lambda x, i: x.scatter(1, i, -torch.inf).softmax(-1),
        (drawn(4, 9), whole((4, 3), 0, 0, 9)),
    ),
    "an order turned round": (
        lambda x, y: y[torch.empty(9, dtype=torch.int64).index_put((x.argsort(),), torch.arange(9))].softmax(-1),
        (drawn(9), drawn(9) * 2),
    ),
}


@pytest.mark.parametrize("options", [PREDICTED, TOGETHER], ids=["groups", "subprograms"])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_hold_them(name: str, options: dict[str, Any]) -> None:
    function, given_ = GROUPS[name]
    with torch.no_grad():
        found, [report] = compiled(Called(function), *given_, options=options)
        torch.testing.assert_close(found, function(*given_), rtol=1e-5, atol=1e-6)
    assert [str(group.decision) for group in report.groups] == ["put, not measured"] * len(report.groups)
    assert report.groups
    if name == "masks at places":  # the kernel's shapes are no axes
        assert all("T.Kernel(" in str(group.lower()) for group in report.groups)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).topk(3, -1).values[:, :2] * 2,
        lambda x: (x * 2).topk(3, -1).values[:, 1].exp(),
        lambda x: (x * 2).topk(4, -1).values.reshape(4, 2, 2).sum(-1),
    ],
    ids=["first", "second", "pairs"],
)
def test_what_reads_some_of_them_is_in_another_group(function: Function) -> None:
    imported, arrays = exported(Called(function), (drawn(4, 9),))
    program = imported.program.live()
    _, plan = found_in(program)
    check_plan(program, plan, arrays, imported.compute)
    names = [name for statement in program.statements for name in statement.results]
    with pytest.raises(GraphError, match="selects"):
        compose_outputs(program, names, program.outputs)


def test_no_part_indexes_by_a_sum() -> None:
    """A sum of integers is a floating-point number in a launch."""

    def function(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        counts = (x > 0).cumsum(-1) - 1
        return (t[counts.clamp_min(0)].softmax(-1).sum(-2).softmax(-1) @ t.T).softmax(-1)

    given_ = drawn(1, 6), drawn(6, 5)
    imported, _ = exported(Called(function), given_)
    program = imported.program.live()
    members = {name for each in subprograms_of(program, CARD)[1] for name in each.members}
    assert not any("cumsum" in name for name in members)
    with torch.no_grad():
        found, [report] = compiled(Called(function), *given_, options=TOGETHER)
        torch.testing.assert_close(found, function(*given_), rtol=1e-5, atol=1e-6)
    assert all(group.decision.is_put for group in report.groups)


def test_a_trial_draws_places_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to places of an order is compared at places of which none stands twice."""
    tried, trial = list[regions.Region](), gate.try_region

    def try_region(region: regions.Region) -> Decision:
        tried.append(region)
        return trial(region)

    monkeypatch.setattr(gate, "try_region", try_region)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.scatter(-1, y.topk(3).indices, y[:, :3].exp()).softmax(-1)

    with torch.no_grad():
        found, _ = compiled(Called(function), drawn(4, 9), drawn(4, 9) * 3, options=PREDICTED)
    torch.testing.assert_close(found, function(drawn(4, 9), drawn(4, 9) * 3))
    [region] = tried
    [(place, dim)] = [(place, dim) for place, dim in enumerate(region.distinct) if dim is not None]
    assert torch.equal(region.draw()[place], torch.arange(3).expand(4, 3))
    assert gate.agrees(region, region.draw())
    assert f"places along {dim} of {place}" in region.text
    assert region.text != replace(region, distinct=()).text
