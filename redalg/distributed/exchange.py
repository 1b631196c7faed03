"""The exchange of states: all ranks choose one alike, from the headers of all.

    symmetric memory   every rank reads the others' states where they lie (`window`): states below 512 KB, of ranks
                       whose GPUs are in one machine and read each other's memory
    all-gather         a collective; of slices of states where the cost model says that this is sooner (`slices`)

What keeps ranks from symmetric memory is told by `Distributed.explain`; where it is asked for it is an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any, final
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from redalg.distributed.header import Header
from redalg.distributed.ranks import Ranks
from redalg.distributed.window import MOST_BYTES, WINDOW_BYTES, Window
from redalg.errors import BackendError, InputError
from redalg.expression import Axis
from redalg.runtime.bind.private import symmetric_backend, symmetric_memory, timeout_of
from redalg.strategies.device import device_for
from redalg.strategies.model.exchange import gathered_us, pulled_us

SYMMETRIC, GATHER = "symmetric", "gather"
NATIVE_ATOMICS = 3
"""CUDA's CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED."""
EXCHANGES = {SYMMETRIC: "symmetric memory", GATHER: "all-gather"}


@final
@dataclass(frozen=True)
class Reach:
    """The memory that a rank reads, as its header tells it.

    Attributes:
        card: this rank's GPU, with its machine.
        cards: those whose memory it reads.
        obstacle: why others cannot read this rank's memory; empty if they may.
    """

    card: str = ""
    cards: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a header."""
        return {"card": self.card, "reach": " ".join(self.cards), "obstacle": self.obstacle}


@final
@dataclass(frozen=True)
class Choice:
    """The exchange on which ranks agreed.

    Attributes:
        window: the memory through which states go; None if they go by a collective.
        obstacle: why they do not go through memory.
        nbytes: of the states of a rank.
        times_us: the predicted time of each exchange that is possible, by its name in words.
    """

    window: Window | None
    obstacle: str
    nbytes: int
    times_us: Mapping[str, float]


def exchange_in_words(choice: Choice | None, size: int, axis: Axis, cut: Axis | None) -> str:
    """The exchange of states along an axis between so many ranks, and others with their predicted times.

    `cut`: the free axis of which ranks merge slices; without a choice they keep the slices too.
    """
    ranks = "1 rank merges" if size == 1 else f"{size} ranks merge"
    if choice is None:
        return f"{ranks} slices of states along {axis}, cut along {cut}, and each keeps its own: one collective"
    taken = EXCHANGES[GATHER if choice.window is None else SYMMETRIC]
    found = [f"{ranks} states of {choice.nbytes:,} bytes along {axis}"]
    found += [f"    {name}: {time_us:.0f} us predicted{', taken' if name == taken and cut is None else ''}"
              for name, time_us in choice.times_us.items()]  # fmt: skip
    if cut is not None or taken not in choice.times_us:
        found.append(f"    {taken}{'' if cut is None else f' of slices along {cut}'}: taken")
    if choice.obstacle:
        found.append(f"    {EXCHANGES[SYMMETRIC]}: not possible: {choice.obstacle}")
    return "\n".join(found)


def check_exchange(exchange: Any, *, alone: bool) -> None:
    """Refuse a name that is no exchange; `alone`: outputs are not split, so that ranks have a choice.

    Raises:
        InputError: there is no such exchange, or no choice.
    """
    if exchange is not None and exchange not in EXCHANGES:
        raise InputError(f"distributed: exchange={exchange!r} is not an option. Pass "
                         f"{' or '.join(map(repr, EXCHANGES))}, or leave it out.")  # fmt: skip
    if exchange is not None and not alone:
        raise InputError(f"distributed: exchange={exchange!r} is for states that all ranks merge whole, and `rows=` "
                         "and `sharded=` split the outputs. Leave it out.")  # fmt: skip


def reach_of_rank(ranks: Ranks, device: torch.device) -> Reach:
    """The memory that this rank reads, and why others may not read its own."""
    if device.type != "cuda":
        return Reach(obstacle=f"the tensors lie on {device.type}")
    if "cuda:nccl" not in dist.get_backend_config(ranks.group).split(","):
        return Reach(obstacle="the group sends by another backend than NCCL")
    return _reach_of_card(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _reach_of_card(index: int) -> Reach:
    backend = symmetric_backend(torch.device("cuda", index))
    if backend != "CUDA":
        return Reach(obstacle=f"PyTorch's symmetric memory is {backend or 'missing'} there, not CUDA's")
    cards = [_card(one) for one in range(torch.cuda.device_count())]
    near = [one for one in range(len(cards)) if one != index and reads_and_signals(index, one)]
    return Reach(cards[index], tuple(cards[one] for one in near))


def reads_and_signals(index: int, other: int) -> bool:
    """Tell if a GPU reads the memory of another, and changes a number there in one step, as barriers do.

    NVLink does both. PCI Express may do the first alone, and a barrier would hang.
    """
    if not torch.cuda.can_device_access_peer(index, other):
        return False
    driver, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    devices = ctypes.c_int(), ctypes.c_int()
    faults = [driver.cuDeviceGet(ctypes.byref(one), place) for one, place in zip(devices, (index, other), strict=True)]
    faults.append(driver.cuDeviceGetP2PAttribute(ctypes.byref(found), NATIVE_ATOMICS, *devices))
    return not any(faults) and found.value == 1


def _card(index: int) -> str:
    """A GPU and its machine, in few characters."""
    return f"{machine()}/{str(torch.cuda.get_device_properties(index).uuid).removeprefix('GPU-')[:13]}"


@cache
def machine() -> str:
    """The machine of this process: its name, and the time for which it runs."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{gethostname()[:32]}:{boot.read_text()[:8] if boot.exists() else ''}"


def obstacle_between(headers: Sequence[Header], names: Sequence[int], nbytes: int) -> str:
    """The reason why ranks cannot read each other's states of so many bytes; empty if they can."""
    told = dict(zip(names, headers, strict=True))
    found = [f"rank {name}: {one.obstacle}" for name, one in told.items() if one.obstacle]
    if found:
        return found[0]
    if len(headers) == 1:
        return "the group has one rank"
    if nbytes >= MOST_BYTES:
        return f"a rank's states have {nbytes:,} bytes, and less than {MOST_BYTES:,} go through it"
    near = {name: header.reach.split(" ") for name, header in told.items()}
    far = [(name, other) for name in near for other in near if name != other and told[other].card not in near[name]]
    if not far:
        return ""
    [name, other], *_ = far
    return (
        f"rank {name} does not read the memory of rank {other}'s GPU: it is the same one, in another machine, not "
        "visible to the process (CUDA_VISIBLE_DEVICES), or linked without peer access or atomic operations"
    )


def choose_exchange(ranks: Ranks, headers: list[Header], nbytes: int, device: str) -> Choice:
    """The exchange of states of so many bytes, the same on all ranks. All call it, since memory is mapped by all.

    Raises:
        BackendError: symmetric memory is asked for, and not possible; it is raised on all ranks.
    """
    target, wish, size = headers[0].target, headers[0].exchange, len(headers)
    obstacle = obstacle_between(headers, ranks.names, nbytes)
    times_us = {}
    if target:
        times_us[EXCHANGES[GATHER]] = gathered_us(nbytes, size, device_for(target))
        if not obstacle:
            times_us[EXCHANGES[SYMMETRIC]] = pulled_us(nbytes, size, device_for(target))
    best = min(times_us, key=times_us.__getitem__, default=EXCHANGES[GATHER])
    window = None
    if not obstacle and (wish == SYMMETRIC or (not wish and best == EXCHANGES[SYMMETRIC])):
        window, obstacle = common_window(ranks, [one.card for one in headers], torch.device(device))
    if wish == SYMMETRIC and window is None:
        raise BackendError(f"distributed: exchange={SYMMETRIC!r} is not possible: {obstacle}. Leave it out, and states "
                           "are gathered.")  # fmt: skip
    if obstacle:
        times_us.pop(EXCHANGES[SYMMETRIC], None)
    return Choice(window, obstacle, nbytes, times_us)


# ---- windows ---------------------------------------------------------------------------------------------------------

_WINDOWS: WeakKeyDictionary[Any, dict[Hashable, tuple[Window | None, str]]] = WeakKeyDictionary()
"""Group -> the windows of its ranks, by their GPUs; None and the reason if some rank could not map its memory."""


def common_window(ranks: Ranks, cards: Sequence[str], device: torch.device) -> tuple[Window | None, str]:
    """The window of a group whose ranks have these GPUs, mapped when it is first asked for; None and the reason if not.

    Every rank of the group has to call it.
    """
    known = _WINDOWS.setdefault(ranks.group, {})
    key = tuple(cards)
    if key not in known:
        known[key] = _new_window(ranks, device)
    return known[key]


def _new_window(ranks: Ranks, device: torch.device) -> tuple[Window | None, str]:
    window, reason = None, ""
    try:
        with torch.inference_mode(mode=False):  # whose tensors nobody writes outside it
            window = open_window(ranks, device)
    except Exception as error:  # noqa: BLE001 - ranks that could map it have to learn of it
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    headers = ranks.gather_headers(Header(error=reason), device)
    failed = [f"rank {name}: {one.error}" for name, one in zip(ranks.names, headers, strict=True) if one.error]
    return (None, f"the memory was not mapped: {failed[0]}") if failed else (window, "")


def open_window(ranks: Ranks, device: torch.device) -> Window:
    """The window of a group in PyTorch's symmetric memory.

    Raises:
        BackendError: it is mapped with NVLink's multicast.
        RuntimeError: PyTorch could not map it.
    """
    own, handle = symmetric_memory(WINDOW_BYTES, device, ranks.group)
    if handle.multicast_ptr:
        raise BackendError("the memory is mapped with NVLink's multicast, through which barriers might go")
    limit_ms = max(1, int(timeout_of(ranks.group, device) * 1000))  # 0 would be no limit
    buffers = [own if number == ranks.number else handle.get_buffer(number, (WINDOW_BYTES,), torch.uint8)
               for number in range(len(ranks.names))]  # fmt: skip
    return Window(ranks.number, buffers, lambda channel: handle.barrier(channel, limit_ms))
