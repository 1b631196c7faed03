"""States through windows of two ranks: the numbers of a collective, errors on all ranks, and the choice of all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import redalg as ra
from redalg.distributed import exchange
from redalg.distributed.exchange import (
    GATHER,
    SYMMETRIC,
    Choice,
    exchange_in_words,
    obstacle_between,
    reach_of_rank,
)
from redalg.distributed.header import Header
from redalg.distributed.packed import first_words
from redalg.distributed.ranks import Ranks, Report, group_ranks
from redalg.distributed.window import MOST_BYTES, WINDOW_BYTES
from redalg.strategies.device import device_for
from redalg.strategies.model.exchange import gathered_us, pulled_us
from tests.distributed.cases import CASES, as_arrays, fused, n, x
from tests.distributed.pool import TIMEOUT, Pool, ranks
from tests.distributed.shared import shared_windows
from tests.distributed.test_again import Done, counted, parts_of, told_by

total, cubes = ra.fuse(ra.sum(x, n)), ra.fuse(ra.sum(x**3, n))
KINDS = [[6, 7], [6, 7], [6, 7], [3, 5], [6, 7]]


def error_of(function: Any) -> str:
    try:
        function()
    except (ra.InputError, ra.BackendError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


# ---- numbers ---------------------------------------------------------------------------------------------------------


def both_ways(
    rank: int, size: int, name: str, folder: Path, kinds: list[list[int]] = KINDS
) -> tuple[list[Any], list[Any], list[int]]:
    """The outputs of several calls through a window, those by a collective, and the collectives of the first kind."""
    with shared_windows(rank, size, folder):
        calls = [fused(name).distributed(axis=CASES[name].axis, exchange=one) for one in (SYMMETRIC, GATHER)]
        found: tuple[list[Any], list[Any]] = ([], [])
        numbers = []
        for seed, lengths in enumerate(kinds):
            for call, outputs in zip(calls, found, strict=True):
                with counted() as messages:
                    outputs.append(as_arrays(call(**parts_of(name, rank, lengths, seed))))
                numbers.append(len(messages))
        assert "symmetric memory: 8 us predicted, taken" in calls[0].explain()
        assert f"{size} ranks merge states of" in calls[0].explain()
        assert "all-gather: 300 us predicted, taken" in calls[1].explain()
    return *found, numbers[0::2]


@pytest.mark.parametrize("name", CASES)
def test_windows_give_the_bits_of_a_collective(two: Pool, name: str, tmp_path: Path) -> None:
    for through, gathered, numbers in two.values(both_ways, name, tmp_path):
        assert numbers[:3] == [2, 0, 0]  # headers, and how the mapping went; then none
        for outputs, wanted in zip(through, gathered, strict=True):
            for output, want in zip(outputs, wanted, strict=True):
                np.testing.assert_array_equal(output, want)


@pytest.mark.slow
def test_four_ranks_read_each_other(tmp_path: Path) -> None:
    with ranks(4, tmp_path) as pool:
        for name in ("variance", "weighted mean", "argmax", "affine"):
            for through, gathered, _ in pool.values(both_ways, name, tmp_path / name, [[6, 7, 0, 3]] * 3):
                for outputs, wanted in zip(through, gathered, strict=True):
                    np.testing.assert_array_equal(outputs[0], wanted[0])


def parts_and_groups(rank: int, size: int, folder: Path) -> list[bool]:
    data = torch.arange(32.0).reshape(2, 16)[:, 8 * rank : 8 * rank + 8] ** 1.5
    keys = torch.arange(8) % 3
    found = list[Any]()
    with shared_windows(rank, size, folder):
        for one in (SYMMETRIC, GATHER):
            call = fused("variance").distributed(axis=n, deterministic=4, exchange=one)
            by_group = fused("variance").distributed(axis=n, exchange=one)
            found.append((call(x=data), by_group(x=data, by=keys, groups=4)))
    return [torch.equal(*each) for each in zip(*(one[0:1] for one in found), strict=True)] + [
        torch.allclose(found[0][1], found[1][1], rtol=0, atol=0, equal_nan=True)
    ]


def test_parts_and_groups_go_through_windows(two: Pool, tmp_path: Path) -> None:
    assert two.values(parts_and_groups, tmp_path) == [[True, True]] * 2


def many_calls(rank: int, size: int, folder: Path) -> list[float]:
    """Two functions in turn, of states of several sizes, through one window."""
    found = []
    with shared_windows(rank, size, folder):
        calls = [one.distributed(axis=n, exchange=SYMMETRIC) for one in (total, cubes)]
        for at in range(60):
            rows = 1 + at % 3
            given = torch.full((rows, 4), float(at + rank))
            found.append(float(calls[at % 2](x=given)[rows - 1]))
        assert len(exchange._WINDOWS[calls[0].ranks.group]) == 1
    return found


def test_functions_share_a_window(two: Pool, tmp_path: Path) -> None:
    wanted = [4 * (at ** (3 if at % 2 else 1) + (at + 1) ** (3 if at % 2 else 1)) for at in range(60)]
    assert two.values(many_calls, tmp_path) == [wanted] * 2


def in_inference_mode(rank: int, size: int, folder: Path) -> list[float]:
    """Calls of which the first are made in inference mode, and the last are not."""
    found = list[float]()
    with shared_windows(rank, size, folder) as patch:
        patch.setattr("redalg.distributed.call.may_learn_late", lambda *_: True)
        patch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
        patch.setattr(Ranks, "report", copied_report)
        call = total.distributed(axis=n, exchange=SYMMETRIC)
        for at in range(6):
            with torch.inference_mode(mode=at < 3):
                found.append(float(call(x=torch.full((2, 3), float(at)))[0]))
        call.check()
    return found


def copied_report(ranks: Ranks, sent: torch.Tensor, statuses: torch.Tensor) -> Any:
    statuses.copy_(first_words(sent))
    return Report(ranks, sent, statuses.clone(), Done())


def test_memory_is_written_in_and_out_of_inference_mode(two: Pool, tmp_path: Path) -> None:
    assert two.values(in_inference_mode, tmp_path) == [[6.0 * at for at in range(6)]] * 2


# ---- ranks that fail or differ ---------------------------------------------------------------------------------------


def fails(rank: int, size: int, second: str, folder: Path) -> tuple[str, float]:
    """A good call, one that goes wrong on rank 1, and a good one."""
    with shared_windows(rank, size, folder):
        calls = [one.distributed(axis=n, exchange=SYMMETRIC) for one in (total, cubes)]
        for call in 2 * calls:
            call(x=torch.ones(2, 3))
        wrong = {
            "option": lambda: calls[1](x=torch.ones(2, 3), empty="none"),
            "dtype": lambda: calls[1](x=torch.ones(2, 3).double()),
            "order": lambda: calls[0](x=torch.ones(2, 3)),
        }[second]
        text = error_of(wrong if rank == 1 else lambda: calls[1](x=torch.ones(2, 3)))
        return text, float(calls[0](x=torch.ones(2, 4))[0])


@pytest.mark.parametrize(("second", "told"), [
    ("option", "InputError: distributed: rank 1 made no state"), ("dtype", "differ in the dtype of tensor x"),
    ("order", "rank 1 called another function than rank 0"),
])  # fmt: skip
def test_a_rank_that_goes_wrong_is_told_on_all(two: Pool, second: str, told: str, tmp_path: Path) -> None:
    (first, one), (other, again) = two.values(fails, second, tmp_path)
    assert told in first
    assert other
    assert one == again == 8


def late(rank: int, size: int, folder: Path) -> Any:
    """As ranks on CUDA, which do not wait for statuses: one fails."""
    with shared_windows(rank, size, folder) as patch:
        patch.setattr("redalg.distributed.call.may_learn_late", lambda *_: True)
        patch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
        patch.setattr(Ranks, "report", lambda ranks, sent, *_: Report(ranks, sent, first_words(sent).clone(), Done()))
        call = total.distributed(axis=n, exchange=SYMMETRIC)
        call(x=torch.ones(2, 3))
        options = {"empty": "none"} if rank == 1 else {}
        outputs = told_by(lambda: call(x=torch.ones(2, 3), **options).tolist())
        return outputs, told_by(call.check) or "", call(x=torch.ones(2, 4)).tolist()


def test_outputs_are_nan_where_a_rank_failed(two: Pool, tmp_path: Path) -> None:
    (outputs, told, after), (error, _, also) = two.values(late, tmp_path)
    assert np.isnan(outputs).all()
    assert "rank 1 made no state" in told
    assert "empty=" in error
    assert after == also == [8, 8]


def absent(rank: int, size: int, folder: Path) -> Any:
    """Rank 1 leaves after the first call."""
    with shared_windows(rank, size, folder, 0.3):
        call = total.distributed(axis=n, exchange=SYMMETRIC)
        call(x=torch.ones(2, 3))
        return rank == 1 or error_of(lambda: call(x=torch.ones(2, 3)))


def test_a_rank_that_does_not_come_is_an_error_in_time(two: Pool, tmp_path: Path) -> None:
    first, second = two.values(absent, tmp_path)
    assert second is True
    assert "BackendError: distributed: rank 0 could not exchange states" in first
    assert "within the group's timeout" in first


# ---- the choice ------------------------------------------------------------------------------------------------------


def chosen(rank: int, size: int, second: str, wish: str | None, folder: Path) -> tuple[str, str]:
    """The exchange on which ranks agree, of which one may lack what it takes; then the group is used again."""
    with shared_windows(rank, size, folder) as patch:
        if second == "tensors":
            patch.setattr("redalg.distributed.call.reach_of_rank", reach_of_rank)
        elif rank == 1 and second == "card":
            patch.setattr("redalg.distributed.call.reach_of_rank", lambda *_: exchange.Reach("there/1"))
        elif rank == 1 and second == "mapping":
            patch.setattr(exchange, "symmetric_memory", refuse)
            patch.setattr(exchange, "open_window", OPEN)
        call = total.distributed(axis=n, exchange=wish)
        rows = MOST_BYTES // 4 - 4 * (second == "small") if second in ("small", "large") else 2
        text = error_of(lambda: call(x=torch.ones(rows, 2))) or call.explain()
        after = error_of(lambda: total.distributed(axis=n, exchange=GATHER)(x=torch.ones(2, 3)))
        return text, after


OPEN = exchange.open_window


def refuse(*_: Any) -> Any:
    raise RuntimeError("CUDA driver error: not permitted\nat some line")


OBSTACLES = {
    "tensors": "rank 0: the tensors lie on cpu",
    "card": "rank 0 does not read the memory of rank 1's GPU",
    "mapping": "the memory was not mapped: rank 1: RuntimeError: CUDA driver error: not permitted",
    "large": "a rank's states have 524,288 bytes, and less than 524,288 go through it",
}


@pytest.mark.parametrize("second", OBSTACLES)
def test_all_ranks_gather_if_one_cannot_be_read(two: Pool, second: str, tmp_path: Path) -> None:
    for text, after in two.values(chosen, second, None, tmp_path):
        assert "all-gather: " in text
        assert f"symmetric memory: not possible: {OBSTACLES[second]}" in text
        assert after == ""


@pytest.mark.parametrize("second", OBSTACLES)
def test_what_is_asked_for_and_not_there_is_an_error_on_all(two: Pool, second: str, tmp_path: Path) -> None:
    for text, after in two.values(chosen, second, SYMMETRIC, tmp_path):
        assert f"BackendError: distributed: exchange='symmetric' is not possible: {OBSTACLES[second]}" in text
        assert after == ""


@pytest.mark.parametrize(("second", "wish", "taken"), [
    ("", None, "symmetric memory: 8 us predicted, taken"), ("", GATHER, "all-gather: 300 us predicted, taken"),
    ("small", SYMMETRIC, "predicted, taken"),
])  # fmt: skip
def test_the_model_chooses_between_those_that_are_possible(
    two: Pool, second: str, wish: str | None, taken: str, tmp_path: Path
) -> None:
    for text, _ in two.values(chosen, second, wish, tmp_path):
        assert taken in text


def unlike_wishes(rank: int, _: int) -> str:
    return error_of(lambda: total.distributed(axis=n, exchange=(GATHER, None)[rank])(x=torch.ones(2, 3)))


def test_ranks_that_ask_for_several_are_told(two: Pool) -> None:
    for text in two.values(unlike_wishes):
        assert "the ranks differ in the option `exchange`: gather on rank 0; none on rank 1" in text


def foreign_options(_: int, __: int) -> list[str]:
    b = ra.axes("b")
    w = ra.tensor("w[n]")
    weighted = ra.fuse(ra.sum(x * w, n), axes="b")
    with_exchange: dict[str, Any] = {"exchange": GATHER}
    return [
        error_of(lambda: total.distributed(axis=n, exchange="nvlink")),
        error_of(lambda: total.distributed(axis=n, sharded=b, exchange=SYMMETRIC)),
        error_of(lambda: weighted.distributed(axis=n, rows=b, **with_exchange)),
        total.distributed(axis=n).explain(),
    ]


def test_options_that_are_none(two: Pool) -> None:
    for unknown, of_sharded, of_rows, before in two.values(foreign_options):
        assert "exchange='nvlink' is not an option. Pass 'symmetric' or 'gather'" in unknown
        assert "`rows=` and `sharded=` split the outputs" in of_sharded
        assert "`rows=` and `sharded=` split the outputs" in of_rows
        assert before == "Ranks agree on an exchange when they are called."


def sharded_call(rank: int, _: int) -> str:
    call = total.distributed(axis=n, sharded=ra.axes("b"))
    call(x=torch.ones(2, 3))
    return call.explain()


def test_slices_are_told_too(two: Pool) -> None:
    for text in two.values(sharded_call):
        assert text == "2 ranks merge slices of states along n, cut along b, and each keeps its own: one collective"
    [k] = [ra.axes("k")]
    choice = Choice(None, "", 1 << 20, {"all-gather": 100.0})
    assert exchange_in_words(choice, 4, n, k).endswith("    all-gather of slices along k: taken")


def test_cards_that_do_not_reach_each_other() -> None:
    first, second = (Header(card=f"a/{one}", reach=f"a/{1 - one} a/7") for one in range(2))
    assert obstacle_between([first, second], (0, 1), MOST_BYTES - 1) == ""
    assert "have 524,288 bytes" in obstacle_between([first, second], (0, 1), MOST_BYTES)
    assert "one rank" in obstacle_between([first], (0,), 16)
    assert "rank 4 does not read the memory of rank 6's" in obstacle_between(
        [first, replace(second, card="b/1")], (4, 6), 16
    )
    assert "rank 0 does not read" in obstacle_between([first, first], (0, 1), 16)  # one GPU
    told = obstacle_between([first, replace(second, obstacle="no such memory")], (0, 3), 16)
    assert told == "rank 3: no such memory"


def test_a_card_reaches_those_that_it_reads_and_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four GPUs the first reads two, and one of those by a link without atomic operations."""
    links = {(0, 1): 1, (0, 3): 0}

    class Driver:
        def cuDeviceGet(self, device: Any, place: int) -> int:
            device._obj.value = place + 10
            return 0

        def cuDeviceGetP2PAttribute(self, found: Any, which: int, first: Any, second: Any) -> int:
            assert which == 3
            found._obj.value = links[first.value - 10, second.value - 10]
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda _: Driver())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=f"{index}234567-x"))
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *pair: pair in links)
    monkeypatch.setattr(exchange, "symmetric_backend", lambda _: "CUDA")
    exchange._reach_of_card.cache_clear()
    try:
        found = exchange._reach_of_card(0)
        machine = exchange.machine()
        assert found == exchange.Reach(f"{machine}/0234567-x", (f"{machine}/1234567-x",))
        exchange._reach_of_card.cache_clear()
        monkeypatch.setattr(exchange, "symmetric_backend", lambda _: "NVSHMEM")
        assert "PyTorch's symmetric memory is NVSHMEM there" in exchange._reach_of_card(0).obstacle
    finally:
        exchange._reach_of_card.cache_clear()


def test_memory_that_is_mapped_with_multicast_is_refused(two: Pool) -> None:
    for text in two.values(opened_with_multicast):
        assert text == "the memory is mapped with NVLink's multicast, through which barriers might go"


def opened_with_multicast(rank: int, size: int) -> str:
    handle = SimpleNamespace(multicast_ptr=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "symmetric_memory", lambda *_: (torch.zeros(1), handle))
        try:
            exchange.open_window(group_ranks(None), torch.device("cpu"))
        except ra.BackendError as error:
            return str(error)
    return ""


def opened(rank: int, size: int) -> list[Any]:
    """The calls of PyTorch's handle that a window makes."""
    called = list[Any]()

    def note(*given: Any) -> torch.Tensor:
        called.append(given)
        return torch.zeros(1)

    handle = SimpleNamespace(multicast_ptr=0, get_buffer=note, barrier=note)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "symmetric_memory", lambda *_: (torch.zeros(1), handle))
        exchange.open_window(group_ranks(None), torch.device("cpu")).barrier(2)
    return called


def test_barriers_end_with_the_timeout_of_the_group(two: Pool) -> None:
    for rank, called in enumerate(two.values(opened)):
        assert called == [(1 - rank, (WINDOW_BYTES,), torch.uint8), (2, TIMEOUT * 1000)]


def test_the_model_prices_barriers_below_collectives() -> None:
    for name in ("H200", "H100", "A100"):
        for size in (2, 4, 8):
            for nbytes in (16, 1 << 14, MOST_BYTES - 1):
                assert pulled_us(nbytes, size, device_for(name)) < gathered_us(nbytes, size, device_for(name))


def world(rank: int, size: int) -> list[str]:
    """The obstacles of this CPU's ranks, for tensors here and as if they lay on a GPU."""
    ranks = group_ranks(dist.group.WORLD)
    return [reach_of_rank(ranks, torch.device(one)).obstacle for one in ("cpu", "cuda:0")]


def test_ranks_without_nccl_gather(two: Pool) -> None:
    for on_cpu, on_gpu in two.values(world):
        assert on_cpu == "the tensors lie on cpu"
        assert on_gpu == "the group sends by another backend than NCCL"
