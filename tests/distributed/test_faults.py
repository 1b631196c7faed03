"""Ranks that differ, fail or die: an error on every rank that names them, and a group that can be used again."""

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import redalg as ra
from redalg.distributed import header, shard
from redalg.distributed.header import HEADER_BYTES, Header, check_headers
from redalg.distributed.ranks import group_ranks, header_device
from redalg.runtime.bind import identity
from tests.distributed import pool
from tests.distributed.cases import b, n, split_call
from tests.distributed.pool import Pool

x, y, scale = ra.tensor("x[b,n]"), ra.tensor("y[b]"), ra.scalars("scale")
total, cubes = ra.fuse(ra.sum(x, n)), ra.fuse(ra.sum(x**3, n))
scaled = ra.fuse(ra.sum(x * scale, n) * y)
gathered = ra.fuse(ra.sum(x * ra.Tensor("t")[ra.tensor("I[n]")], n))


def one_of(rank: int, mine: Any, others: Any) -> Any:
    """`mine` on rank 1, `others` on rank 0."""
    return mine if rank == 1 else others


def ones(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(*shape, **options)


def other_sizes(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(one_of(rank, 3, 2), 5))


def other_form(rank: int, _: int) -> Any:
    return one_of(rank, cubes, total).distributed(axis=n)(x=ones(2, 5))


def other_dtype(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(2, 5, dtype=one_of(rank, torch.float64, torch.float32)))


def other_scalar(rank: int, _: int) -> Any:
    return scaled.distributed(axis=n)(x=ones(2, 5), y=ones(2), scale=one_of(rank, 2.0, 1.0))


def other_option(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(2, 5), empty=one_of(rank, "zero", "nan"))


def other_state_format(rank: int, _: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard, "VERSION", identity.VERSION + rank)
        return total.distributed(axis=n)(x=ones(2, 5))


def other_message_format(rank: int, _: int) -> Any:
    original = Header.to_bytes
    newer = lambda self: original(replace(self, format=header.FORMAT + 1))  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Header, "to_bytes", one_of(rank, newer, original))
        return total.distributed(axis=n)(x=ones(2, 5))


def other_call(rank: int, _: int) -> Any:
    if rank == 0:
        return total.distributed(axis=n)(x=ones(2, 5))
    return group_ranks(None).gather(torch.zeros(HEADER_BYTES, dtype=torch.uint8))


def bad_input(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=one_of(rank, ones(5), ones(2, 5)))


def bad_option(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(2, 5), **one_of(rank, {"empty": "none"}, {}))


def with_a_gradient(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(2, 5, requires_grad=rank == 1))


def foreign_array(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=one_of(rank, np.ones((2, 5), np.float32), ones(2, 5)))


def bad_leaf(rank: int, _: int) -> Any:
    places = torch.arange(5) + one_of(rank, 3, 0)
    return gathered.distributed(axis=n)(x=ones(2, 5), t=ones(5), I=places)


DIFFER = {
    other_sizes: "size of axis b: 2 on rank 0; 3 on rank 1",
    other_form: "the form: ",
    other_dtype: "dtype of tensor x: float32 on rank 0; float64 on rank 1",
    other_scalar: "scalar scale: 1.0 on rank 0; 2.0 on rank 1",
    other_option: "option `empty`: nan on rank 0; zero on rank 1",
    other_state_format: "format of states: 2 on rank 0; 3 on rank 1",
    other_message_format: f"format of messages: {header.FORMAT} on rank 0; {header.FORMAT + 1} on rank 1",
}
FAIL = {  # what rank 0 is told of rank 1, whose own error is the second
    bad_input: ("rank 1: InputError: tensor `x` has 1 dimensions", "tensor `x` has 1 dimensions"),
    bad_option: ("rank 1: InputError: distributed: empty='none'", "empty='none' is not an option"),
    with_a_gradient: ("rank 1: InputError: tensor `x` requires a gradient", "pass `x.detach()`"),
    foreign_array: ("rank 1: InputError: distributed: tensor `x` is a ndarray", "is a ndarray"),
    bad_leaf: ("rank 1: InputError: ", "leaves the range of dimension 0"),
}


def is_in_step(two: Pool) -> bool:
    """Tell if the group still works."""
    found = two.values(split_call, "variance", [4, 3], 0)
    return np.array_equal(*(one[0] for one in found))


@pytest.mark.parametrize("function", DIFFER, ids=lambda one: one.__name__)
def test_ranks_that_differ_are_named_on_every_rank(two: Pool, function: Callable[..., Any]) -> None:
    first, second = two.outcomes(function)
    assert first.error == second.error == "InputError"
    assert first.text == second.text
    assert DIFFER[function] in first.text
    assert "rank 0" in first.text
    assert "rank 1" in first.text
    assert is_in_step(two)


@pytest.mark.parametrize("function", FAIL, ids=lambda one: one.__name__)
def test_a_rank_that_fails_is_named_on_the_others(two: Pool, function: Callable[..., Any]) -> None:
    first, second = two.outcomes(function)
    assert first.error == second.error == "InputError"
    assert FAIL[function][0] in first.text
    assert FAIL[function][1] in second.text
    assert "rank 1 made no state" not in second.text
    assert is_in_step(two)


def test_another_call_is_no_header(two: Pool) -> None:
    first, second = two.outcomes(other_call)
    assert first.error == "InputError"
    assert "no header of redalg" in first.text
    assert second.error == ""


def known_functions(rank: int, _: int) -> Any:
    """Of two functions that both ranks have called, each calls another."""
    calls = [one.distributed(axis=n) for one in (total, cubes)]
    for call in calls:
        call(x=2 * ones(2, 5))
    return calls[rank](x=2 * ones(2, 5))


def kept_functions(rank: int, _: int) -> Any:
    calls = [one.distributed(axis=n) for one in (total, cubes)]
    for call in 3 * calls:
        call(x=2 * ones(2, 5))
    return calls[rank](x=2 * ones(2, 5))


def functions_of_rows(rank: int, _: int) -> Any:
    w = ra.tensor("w[n]")
    calls = [ra.fuse(ra.sum(y * w**power, n), axes="b").distributed(axis=n, rows=b) for power in (1, 3)]
    for call in calls:
        call(y=ones(2), w=2 * ones(5))
    return calls[rank](y=ones(2), w=2 * ones(5))


@pytest.mark.parametrize("function", [known_functions, kept_functions, functions_of_rows], ids=lambda one: one.__name__)
def test_functions_in_another_order_give_no_number(two: Pool, function: Callable[..., Any]) -> None:
    for outcome in two.outcomes(function):
        assert outcome.error == "InputError"
        assert "rank 1 called another function than rank 0" in outcome.text
    assert is_in_step(two)


def list_of_axes(rank: int, _: int) -> Any:
    axes: Any = [n]
    return total.distributed(axis=axes)


def forgotten_group(rank: int, _: int) -> Any:
    group = dist.new_group([0, 1])
    dist.destroy_process_group(group)
    return total.distributed(group, axis=n)


def device_of_no_backend(rank: int, _: int) -> Any:
    return total.distributed(axis=n)(x=ones(2, 5, device="meta"))


def within_vmap(rank: int, _: int) -> Any:
    call = total.distributed(axis=n)
    return torch.vmap(lambda one: call(x=one))(ones(3, 2, 5))


def copied(rank: int, _: int) -> Any:
    return deepcopy(total.distributed(axis=n))


EVERYWHERE = {
    list_of_axes: "axis=[n] is not reduced",
    forgotten_group: "the process group was destroyed",
    device_of_no_backend: "the tensors lie on meta, and the process group sends from cpu",
    within_vmap: "within `torch.func.vmap`",
    copied: "a process group belongs to its process",
}


def test_no_number_as_a_scalar_is_one_number(two: Pool) -> None:
    for found in two.values(of_nan):
        assert np.isnan(found).all()


def of_nan(rank: int, _: int) -> Any:
    call = scaled.distributed(axis=n)
    return [call(x=ones(2, 5), y=ones(2), scale=float("nan")).tolist() for _ in range(3)]


@pytest.mark.parametrize("function", EVERYWHERE, ids=lambda one: one.__name__)
def test_what_no_rank_may_ask_is_refused_on_all(two: Pool, function: Callable[..., Any]) -> None:
    for outcome in two.outcomes(function):
        assert outcome.error == "InputError"
        assert EVERYWHERE[function] in outcome.text
    assert is_in_step(two)


# ---- ranks that are gone ---------------------------------------------------------------------------------------------


def late(rank: int, size: int) -> Any:
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=1))
    return rank == 1 or total.distributed(group, axis=n)(x=ones(2, 5))


def death(rank: int, _: int) -> Any:
    if rank == 1:
        os._exit(1)
    return total.distributed(axis=n)(x=ones(2, 5))


def test_a_rank_that_does_not_come_is_an_error_in_time(two: Pool) -> None:
    first, second = two.outcomes(late)
    assert second.value is True
    assert first.error == "BackendError"
    assert "within the group's timeout" in first.text
    assert is_in_step(two)


def test_a_rank_that_dies_is_an_error_on_the_others(tmp_path) -> None:
    with pool.ranks(2, tmp_path) as alone:
        first, second = alone.outcomes(death)
    assert second.error == "died"
    assert first.error == "BackendError"
    assert "one is gone" in first.text


# ---- what is refused before any rank is asked ------------------------------------------------------------------------


def test_without_a_group_it_is_refused() -> None:
    with pytest.raises(ra.InputError, match="init_process_group"):
        total.distributed(axis=n)


def test_an_axis_that_is_not_reduced_is_refused() -> None:
    with pytest.raises(ra.InputError, match=r"axis=b is not reduced.*axis=n"):
        total.distributed(axis=b)


def test_several_passes_are_refused() -> None:
    spread = ra.mean(ra.where(abs(x - ra.mean(x, n)) > ra.mean(abs(x - ra.mean(x, n)), n), 1, 0), n)
    with pytest.raises(ra.InputError, match="three passes"):
        ra.fuse(spread, passes=3).distributed(axis=n)


def test_a_tensor_under_two_indices_is_refused() -> None:
    one = ra.Tensor("v")
    with pytest.raises(ra.InputError, match="two indices"):
        ra.fuse(one[n] - one[0] - ra.max(one[n], n)).distributed(axis=n)


def test_an_output_of_places_alone_is_refused() -> None:
    v = ra.tensor("v[n]")
    with pytest.raises(ra.InputError, match="no tensor in it"):
        ra.fuse(ra.where(ra.eq(n, ra.argmax(v, n)), 1.0, 0.0), axes="n").distributed(axis=n)


def foreign_group(rank: int, _: int) -> Any:
    alone = dist.new_group([0])
    return rank == 0 or total.distributed(alone, axis=n)


def test_a_group_of_others_is_refused(two: Pool) -> None:
    _, second = two.outcomes(foreign_group)
    assert second.error == "InputError"
    assert "no process group of this process" in second.text


def test_long_headers_are_told_by_digests() -> None:
    many = {f"tensor_{number}": "float32" for number in range(400)}
    texts = [
        Header(form="f", dtypes=many, meaning="m" * 9000),
        Header(form="f", dtypes={**many, "tensor_7": "float64"}),
    ]
    found = [Header.of_bytes(one.to_bytes()) for one in texts]
    assert [len(one.to_bytes()) for one in texts] == [HEADER_BYTES] * 2
    with pytest.raises(ra.InputError, match=r"dtype of tensor \(digest\)"):
        check_headers(found, (0, 1))


def test_headers_of_a_device_go_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_backend_config", lambda _: "cuda:nccl")
    assert header_device(None, torch.device("cuda", 3)) == torch.device("cuda", 3)
    monkeypatch.setattr(dist, "get_backend_config", lambda _: "cpu:gloo,cuda:nccl")
    assert header_device(None, torch.device("cuda", 3)) == torch.device("cpu")
