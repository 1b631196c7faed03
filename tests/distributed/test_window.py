"""Windows: what a rank reads, in whatever order the operations of ranks run; regions, and ranks that never come."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from redalg.distributed.packed import FAILED, STATUS_BYTES, first_words, status_of
from redalg.distributed.window import CAPTURED, MOST_BYTES, REGION_BYTES, WINDOW_BYTES, Window
from tests.distributed.shared import shared_window

NBYTES = STATUS_BYTES + 16
WORD = 7 << 8


class Signals:
    """Barriers whose waits a schedule takes: a rank that has come may go on when all others have."""

    def __init__(self, size: int) -> None:
        self.counts = torch.zeros(size, CAPTURED + 1, dtype=torch.int64)
        self.wanted: list[tuple[int, int]] = [(0, 0)] * size

    def barrier(self, number: int, channel: int) -> None:
        self.counts[number, channel] += 1
        self.wanted[number] = channel, int(self.counts[number, channel])

    def may_go(self, number: int) -> bool:
        channel, count = self.wanted[number]
        return int(self.counts[:, channel].min()) >= count


def windows_of(size: int, signals: Signals) -> list[Window]:
    buffers = [torch.zeros(WINDOW_BYTES, dtype=torch.uint8) for _ in range(size)]
    return [Window(one, buffers, partial(signals.barrier, one)) for one in range(size)]


def value(number: int, at: int) -> int:
    return 1 + number + 16 * (at % 15)


def steps(window: Window, kinds: Sequence[bool], size: int, patch: pytest.MonkeyPatch) -> Generator[None, None, None]:
    """The operations of a rank, one after another: writes, comes to the barrier, reads."""
    for at, captured in enumerate(kinds):
        patch.setattr(Window, "is_captured", captured)
        region = window.begin()
        window.own(region, NBYTES).fill_(value(window.number, at))
        yield
        window.meet(region)
        yield
        found = window.read(region, NBYTES)
        assert found.tolist() == [[value(one, at)] * NBYTES for one in range(size)], f"call {at}"
        yield
        window.leave(region)
        yield


def play(size: int, kinds: Sequence[bool], turns: Sequence[int], patch: pytest.MonkeyPatch) -> None:
    """Run the operations of all ranks in an order that `turns` gives, of those that no barrier holds back."""
    signals = Signals(size)
    running = dict(enumerate(steps(one, kinds, size, patch) for one in windows_of(size, signals)))
    turn = iter(turns)
    while running:
        free = [number for number in running if signals.may_go(number)]
        assert free, "all wait"
        number = free[next(turn, 0) % len(free)]
        try:
            next(running[number])
        except StopIteration:
            del running[number]


@given(st.integers(2, 4), st.lists(st.booleans(), min_size=1, max_size=8), st.lists(st.integers(0, 3), max_size=120))
def test_every_order_of_operations_gives_the_messages_of_the_call(
    size: int, kinds: list[bool], turns: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        play(size, kinds, turns, patch)


FIRST_RUNS_AHEAD = [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
"""The first rank writes its second message before the other has read the first."""


def test_one_half_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    play(2, [False] * 2, FIRST_RUNS_AHEAD, monkeypatch)

    def stay(window: Window, region: int) -> None:
        window.barrier(region)

    monkeypatch.setattr(Window, "meet", stay)
    with pytest.raises(AssertionError, match="call 0"):
        play(2, [False] * 2, FIRST_RUNS_AHEAD, monkeypatch)


def test_a_graph_waits_for_those_that_read(monkeypatch: pytest.MonkeyPatch) -> None:
    play(2, [True] * 2, FIRST_RUNS_AHEAD, monkeypatch)
    monkeypatch.setattr(Window, "leave", lambda *_: None)
    with pytest.raises(AssertionError, match="call 0"):
        play(2, [True] * 2, FIRST_RUNS_AHEAD, monkeypatch)


def test_ranks_in_unlike_regions_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """One captures a graph, and the other does not: neither reads what was left in a region."""
    signals = Signals(2)
    first, second = windows_of(2, signals)
    assert first.begin() == 0
    first.meet(0)
    monkeypatch.setattr(Window, "is_captured", True)
    second.meet(second.begin())
    assert not signals.may_go(0)
    assert not signals.may_go(1)


def test_regions_do_not_overlap() -> None:
    window = windows_of(1, Signals(1))[0]
    for region in range(CAPTURED + 1):
        window.own(region, REGION_BYTES).fill_(region + 1)
    assert window.buffers[0].unique_consecutive().tolist() == [1, 2, 3]
    assert REGION_BYTES == STATUS_BYTES + MOST_BYTES


def words(window: Window, region: int) -> list[int]:
    return first_words(window.read(region, STATUS_BYTES)).tolist()


def test_a_status_is_written_where_it_is_another() -> None:
    window = windows_of(1, Signals(1))[0]
    window.write_word(0, WORD)
    assert words(window, 0) == [WORD]
    first_words(window.own(0, STATUS_BYTES)).fill_(1)  # as nobody does
    window.write_word(0, WORD)
    assert words(window, 0) == [1]  # it is known to stand there
    window.write_word(0, 2 * WORD)
    window.fail(0, "no leaf")
    assert status_of(words(window, 0)[0]) == FAILED
    assert bytes(window.read(0, STATUS_BYTES)[0, 1:8].tolist()) == b"no leaf"
    window.write_word(0, 2 * WORD)
    assert words(window, 0) == [2 * WORD]
    window.begin()
    window.gather(torch.full((NBYTES,), 3, dtype=torch.uint8))  # in the other half, after `fail`
    window.gather(torch.full((NBYTES,), 3, dtype=torch.uint8))
    window.write_word(0, 2 * WORD)
    assert words(window, 0) == [2 * WORD]


def test_a_status_of_graphs_is_always_written() -> None:
    """Two graphs share that region, and the host does not know which was replayed."""
    window = windows_of(1, Signals(1))[0]
    window.write_word(CAPTURED, WORD)
    first_words(window.own(CAPTURED, STATUS_BYTES)).fill_(5)  # as another graph
    window.write_word(CAPTURED, WORD)
    assert words(window, CAPTURED) == [WORD]


def test_messages_of_several_sizes_go_through_one_window(tmp_path: Path) -> None:
    sizes = [NBYTES, REGION_BYTES, STATUS_BYTES, NBYTES, 1024]
    found: dict[int, list[Any]] = {0: [], 1: []}

    def rank(number: int) -> None:
        window = shared_window(tmp_path, number, 2)
        for at, nbytes in enumerate(sizes):
            rows = window.gather(torch.full((nbytes,), value(number, at), dtype=torch.uint8))
            found[number].append((rows.shape, rows[:, 0].tolist(), rows[:, -1].tolist()))

    threads = [Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    wanted = [((2, nbytes), [value(0, at), value(1, at)]) for at, nbytes in enumerate(sizes)]
    assert found[0] == found[1] == [(shape, row, row) for shape, row in wanted]


def test_a_rank_that_never_comes_is_an_error_in_time(tmp_path: Path) -> None:
    window = shared_window(tmp_path, 0, 2, 0.05)
    with pytest.raises(RuntimeError, match="timed out"):
        window.gather(torch.zeros(NBYTES, dtype=torch.uint8))
