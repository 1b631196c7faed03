"""Outputs that are split along rows: shards travel, and every rank has the rows of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import And, Eq, Or, oo

import redalg as ra
from redalg.distributed.spans import Span, excludes, spans_in_order, spans_in_zigzag
from tests.distributed.cases import as_arrays, here
from tests.distributed.pool import Pool, ranks

h, q, k, d, e = ra.axes("h q k d e")
Q, K, V, B = ra.tensors("Q[h,q,d] K[h,k,d] V[h,k,e] B[q,k]")
own, other = ra.tensors("own[q] other[k]")
SCORES = ra.sum(Q * K, d) / 2
AXES = {"Q": "hqd", "K": "hkd", "V": "hke", "B": "qk", "own": "q", "other": "k"}
SIZES = {"h": 2, "d": 4, "e": 3}


def weighted(mask: Any, scores: Any = SCORES) -> Any:
    """The mean of V, weighted by the softmax of the scores that a mask leaves, and the logarithm of their sum."""
    masked = ra.where(mask, scores, -oo)
    return {"out": (ra.sum(ra.softmax(masked, k) * V, k), "h q e"), "lse": (ra.logsumexp(masked, k), "h q")}


MAKE: dict[str, Callable[[], Any]] = {
    "all": lambda: weighted(k >= 0),
    "causal": lambda: weighted(k <= q),
    "window": lambda: weighted(And(k <= q, k > q - 5)),
    "window and sinks": lambda: weighted(Or(k < 2, And(k <= q, k > q - 5))),
    "documents": lambda: weighted(And(k <= q, Eq(own, other))),
    "bias": lambda: weighted(k <= q, SCORES + B),
}
MASKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "all": lambda i, j, _: j >= 0,
    "causal": lambda i, j, _: j <= i,
    "window": lambda i, j, _: (j <= i) & (j > i - 5),
    "window and sinks": lambda i, j, _: (j < 2) | ((j <= i) & (j > i - 5)),
    "documents": lambda i, j, data: (j <= i) & (data["own"][:, None] == data["other"][None]),
    "bias": lambda i, j, _: j <= i,
}
FUSED = dict[str, Any]()


def fused(name: str) -> Any:
    if name not in FUSED:
        FUSED[name] = ra.fuse(MAKE[name]())
    return FUSED[name]


def whole_data(name: str, rows: int, streamed: int) -> dict[str, torch.Tensor]:
    random = np.random.default_rng(rows + streamed)
    sizes = {**SIZES, "q": rows, "k": streamed}
    shapes = {one.name: [sizes[axis] for axis in AXES[one.name]] for one in fused(name).cascade.elements()}
    data = {key: torch.tensor(random.normal(size=shape)).float() for key, shape in sorted(shapes.items())}
    if "own" in data:
        data["own"], data["other"] = (torch.arange(length) * 3 // length for length in (rows, streamed))
    return data


def wanted(name: str, rows: int, streamed: int) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of the whole in float64."""
    data = {key: one.double().numpy() for key, one in whole_data(name, rows, streamed).items()}
    scores = np.einsum("hqd,hkd->hqk", data["Q"], data["K"]) / 2 + data.get("B", 0)
    mask = MASKS[name](np.arange(rows)[:, None], np.arange(streamed)[None], data)
    weights = np.where(mask, np.exp(scores), 0)
    return np.einsum("hqk,hke->hqe", weights, data["V"]) / weights.sum(2)[..., None], np.log(weights.sum(2))


def part(name: str, data: dict[str, torch.Tensor], rows: Sequence[Span], streamed: Sequence[Span]) -> Any:
    """The tensors of a rank."""
    shard = {}
    for key, one in data.items():
        shard[key] = one
        for axis, spans in (("q", rows), ("k", streamed if key != "B" else ())):
            if axis in AXES[key] and spans:
                places = torch.cat([torch.arange(span.first, span.stop) for span in spans])
                shard[key] = shard[key].index_select(AXES[key].index(axis), places)
    return here(shard)


def spans_of(lengths: list[int], zigzag: bool, axis: Any) -> list[list[Span]]:
    return spans_in_zigzag(lengths, range(len(lengths)), axis) if zigzag else spans_in_order(lengths)


def rows_call(rank: int, size: int, name: str, lengths: list[tuple[list[int], list[int]]], zigzag: bool) -> Any:
    """The outputs of calls, each with rows and streamed elements in these lengths."""
    call, found = fused(name).distributed(axis=k, rows=q, zigzag=zigzag), []
    for rows, streamed in lengths:
        data = whole_data(name, sum(rows), sum(streamed))
        mine = [spans_of(one, zigzag, axis)[rank] for one, axis in ((rows, q), (streamed, k))]
        found.append(as_arrays(call(**part(name, data, *mine))))
    return found


def check(pool: Pool, name: str, lengths: list[tuple[list[int], list[int]]], zigzag: bool, rtol: float = 1e-4) -> None:
    outcomes = pool.values(rows_call, name, lengths, zigzag)
    for number, (rows, streamed) in enumerate(lengths):
        spans = spans_of(rows, zigzag, q)
        for output, want in enumerate(wanted(name, sum(rows), sum(streamed))):
            for rank, found in enumerate(outcomes):
                places = np.concatenate([np.arange(one.first, one.stop) for one in spans[rank]])
                np.testing.assert_allclose(found[number][output], want[:, places], rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", MAKE)
def test_rows_of_two_ranks(two: Pool, name: str) -> None:
    check(two, name, [([6, 8], [6, 8]), ([6, 8], [6, 8]), ([3, 9], [7, 5]), ([12, 0], [5, 7])], zigzag=False)
    check(two, name, [([8, 8], [8, 8]), ([8, 8], [8, 8]), ([4, 4], [4, 4])], zigzag=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_rows_of_many_ranks(size: int, tmp_path) -> None:
    with ranks(size, tmp_path) as pool:
        for name in MAKE:
            check(pool, name, [([6, 8, 2, 5][:size], [7, 3, 6, 5][:size])], zigzag=False)
            check(pool, name, [([8] * size, [8] * size)] * 2, zigzag=True)


@given(st.integers(0, 9), st.integers(1, 9), st.integers(0, 9), st.integers(1, 9))
def test_boxes_without_live_places_are_known(first: int, rows: int, start: int, streamed: int) -> None:
    box = {q: Span(first, first + rows), k: Span(start, start + streamed)}
    places = [(i, j) for i in range(first, first + rows) for j in range(start, start + streamed)]
    for mask, holds in (
        (k <= q, lambda i, j: j <= i),
        (k < q - 2, lambda i, j: j < i - 2),
        (And(k <= q, k > q - 3), lambda i, j: i - 3 < j <= i),
        (Or(k < 2, k >= q), lambda i, j: j < 2 or j >= i),
    ):
        parts = [holds(i, j) for i, j in places]
        assert not excludes(mask, box) or not any(parts)
        if not isinstance(mask, And):  # its parts may be live at other places each
            assert excludes(mask, box) or any(parts)


def otherwise(rank: int, size: int, fault: str, again: bool) -> Any:
    """The error of a call that goes wrong on rank 1, or on all: the first call, or one after a good one."""
    call = fused("causal").distributed(axis=k, rows=q, zigzag=fault in ("odd", "unlike"))

    def given(lengths: list[int]) -> dict[str, Any]:
        spans = spans_in_order(lengths)[rank]
        return dict(part("causal", whole_data("causal", sum(lengths), sum(lengths)), spans, spans))

    if again:
        call(**given([4, 4]))
    wrong = given({"odd": [3, 3], "unlike": [4, 6]}.get(fault, [4, 4]))
    if rank == 1 and fault == "dtype":
        wrong = {key: one.double() for key, one in wrong.items()}
    if rank == 1 and fault == "missing":
        del wrong["V"]
    if rank == 1 and fault == "array":
        wrong["V"] = wrong["V"].numpy()
    try:
        return str(call(**wrong))
    except ra.RedalgError as error:
        return str(error)


FAULTS = {
    "dtype": "the ranks differ in the dtype of tensor K",
    "missing": "rank 1 made no state",
    "array": "rank 1 made no state",
    "odd": "cuts shards into two halves, and along axis q they have 3",
    "unlike": "takes shards of one length, and along axis q rank 0 has 4 elements, and rank 1 not",
}


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("fault", FAULTS)
def test_ranks_that_do_not_fit_are_told(two: Pool, fault: str, again: bool) -> None:
    first, second = two.values(otherwise, fault, again)
    assert FAULTS[fault] in first
    assert FAULTS[fault] in second or fault in ("missing", "array")
    check(two, "causal", [([4, 4], [4, 4])], zigzag=True)


x, w = ra.tensor("x[q,k]"), ra.tensor("w[k]")
REFUSED = {
    "zigzag alone": (lambda: weighted(k <= q), {"axis": k, "zigzag": True}, "zigzag=True is an order of rows"),
    "no axis": (lambda: weighted(k <= q), {"axis": k, "rows": "r"}, "rows=r is no free axis"),
    "reduced rows": (lambda: weighted(k <= q), {"axis": k, "rows": k}, "rows=k is no free axis"),
    "no parts": (lambda: weighted(k <= q), {"axis": k, "rows": q, "deterministic": 0}, "is no number of parts"),
    "an output without": ({"a": (ra.sum(x * w, k), "q"), "b": (ra.sum(w, k), "")}, {"axis": k, "rows": q},
                          "rows=q is no axis of output `b`"),
    "an extent": (ra.sum(ra.where(k <= q + k.extent - q.extent, w, 0), k), {"axis": k, "rows": q},
                  "the extent of this axis stands in the expression"),
    "softmax": (ra.softmax(x * w, k), {"axis": k, "rows": q}, "an output holds `"),
    "nothing travels": (ra.sum(x, k), {"axis": k, "rows": q}, "no tensor has axis k without rows q"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_split_by_rows_is_refused(name: str) -> None:
    what, options, message = REFUSED[name]
    axes = {"softmax": "q k", "an extent": "q"}.get(name)
    with pytest.raises(ra.InputError, match=message):
        ra.fuse(what() if callable(what) else what, **({"axes": axes} if axes else {})).distributed(**options)


GROUPS = 4
"""Of which the last has no element."""


def keys_of(length: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(length).integers(0, GROUPS - 1, length))


def groups_call(rank: int, size: int, name: str, lengths: tuple[list[int], list[int]], options: dict[str, Any]) -> Any:
    """The outputs of two calls by group, the second of a known kind; keys of two dtypes."""
    rows, streamed = lengths
    mine = [spans_of(one, "zigzag" in options, axis)[rank] for one, axis in ((rows, q), (streamed, k))]
    places = torch.cat([torch.arange(span.first, span.stop) for span in mine[1]])
    keys = keys_of(sum(streamed))[places].to(torch.int32 if rank else torch.int64)
    call, data = fused(name).distributed(axis=k, rows=q, **options), whole_data(name, sum(rows), sum(streamed))
    given = part(name, data, *mine)
    return [as_arrays(call(**given, by=here({"": keys})[""], groups=GROUPS)) for _ in range(2)]


@pytest.mark.parametrize("options", [{}, {"zigzag": True}, {"deterministic": 4}], ids=["in order", "zigzag", "parts"])
@pytest.mark.parametrize("name", ["causal", "documents", "bias"])
def test_rows_have_a_state_for_every_group(two: Pool, name: str, options: dict[str, Any]) -> None:
    rows, streamed = ([8, 8], [8, 8]) if options else ([6, 8], [0, 9])
    whole = as_arrays(
        fused(name)(**whole_data(name, sum(rows), sum(streamed)), by=keys_of(sum(streamed)), groups=GROUPS)
    )
    for rank, calls in enumerate(two.values(groups_call, name, (rows, streamed), options)):
        spans = spans_of(rows, "zigzag" in options, q)[rank]
        places = np.concatenate([np.arange(one.first, one.stop) for one in spans])
        for found in calls:
            for output, want in zip(found, whole, strict=True):
                np.testing.assert_allclose(output, want[:, :, places], rtol=1e-4, atol=1e-5)


def faulty_keys_call(rank: int, size: int) -> Any:
    """A call by group, whose keys are floats on rank 1."""
    spans, keys = spans_in_order([4, 4])[rank], torch.tensor([0, 1, 1, 0])
    given = part("causal", whole_data("causal", 8, 8), spans, spans)
    return fused("causal").distributed(axis=k, rows=q)(**given, by=keys.float() if rank else keys, groups=2)


def test_keys_that_cannot_travel_are_refused_as_of_any_call(two: Pool) -> None:
    for outcome in two.outcomes(faulty_keys_call):
        assert "distributed: by= holds the group of every element along k as an integer, and is fl" in outcome.text


def gradient_call(rank: int, size: int, name: str, rows: list[int], streamed: list[int], zigzag: bool) -> Any:
    """The gradients of this rank's tensors, of random cotangents of both outputs."""
    data = whole_data(name, sum(rows), sum(streamed))
    spans = [spans_of(one, zigzag, axis)[rank] for one, axis in ((rows, q), (streamed, k))]
    given = part(name, data, *spans)
    wanted = [key for key in given if key not in ("own", "other", "B")]
    call, found = fused(name).distributed(axis=k, rows=q, zigzag=zigzag), []
    for _ in range(2):
        for key in wanted:
            given[key] = given[key].detach().requires_grad_()
        out, lse = call(**given)
        weights = here(part(name, cotangents(sum(rows)), *spans))
        ((out * weights["out"]).sum() + (lse * weights["lse"]).sum()).backward()
        found.append({key: given[key].grad.cpu().numpy() for key in wanted})
    return found


AXES |= {"out": "hqe", "lse": "hq"}


def cotangents(rows: int) -> dict[str, torch.Tensor]:
    random = np.random.default_rng(7)
    return {"out": torch.tensor(random.normal(size=(2, rows, 3))).float(),
            "lse": torch.tensor(random.normal(size=(2, rows))).float()}  # fmt: skip


def gradients_of_whole(name: str, rows: int, streamed: int) -> dict[str, np.ndarray]:
    """The gradients in float64, by PyTorch."""
    data = {key: one.double() for key, one in whole_data(name, rows, streamed).items()}
    for key in "QKV":
        data[key].requires_grad_()
    scores = torch.einsum("hqd,hkd->hqk", data["Q"], data["K"]) / 2 + data.get("B", torch.zeros(()))
    places = {key: one.detach().numpy() for key, one in data.items()}
    mask = torch.tensor(MASKS[name](np.arange(rows)[:, None], np.arange(streamed)[None], places))
    scores = torch.where(mask, scores, -torch.inf)
    weights = {key: one.double() for key, one in cotangents(rows).items()}
    out = torch.einsum("hqk,hke->hqe", scores.softmax(2), data["V"])
    ((out * weights["out"]).sum() + (scores.logsumexp(2) * weights["lse"]).sum()).backward()
    return {key: data[key].grad.numpy() for key in "QKV"}  # type: ignore[union-attr]


@pytest.mark.parametrize("zigzag", [False, True], ids=["in order", "in zigzag"])
@pytest.mark.parametrize("name", MAKE)
def test_gradients_of_two_ranks(two: Pool, name: str, zigzag: bool) -> None:
    rows, streamed = ([8, 8], [8, 8]) if zigzag else ([6, 8], [5, 9])
    wanted = gradients_of_whole(name, sum(rows), sum(streamed))
    outcomes = two.values(gradient_call, name, rows, streamed, zigzag)
    for rank, calls in enumerate(outcomes):
        for found in calls:
            for key, output in found.items():
                spans = spans_of(rows if key == "Q" else streamed, zigzag, q)[rank]
                places = np.concatenate([np.arange(one.first, one.stop) for one in spans])
                np.testing.assert_allclose(output, wanted[key][:, places], rtol=2e-4, atol=2e-5)


def bias_call(rank: int, size: int) -> str:
    data = whole_data("bias", 8, 8)
    spans = spans_in_order([4, 4])[rank]
    given = {key: one.requires_grad_() for key, one in part("bias", data, spans, spans).items()}
    out, _ = fused("bias").distributed(axis=k, rows=q)(**given)
    try:
        out.sum().backward()
    except ra.GradientError as error:
        return str(error)
    return ""


def test_a_gradient_of_both_axes_is_refused(two: Pool) -> None:
    for text in two.values(bias_call):
        assert "grad_B" in text
        assert "detach the others" in text
