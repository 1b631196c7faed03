"""The ranks of a process group, and the collectives of calls: messages of one length, to all ranks or to each its own.

Messages are gathered on the device of the tensors. Headers are read by the host: where the group has a backend for the
CPU too (`cpu:gloo,cuda:nccl`), they are gathered there, and otherwise on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, NoReturn, final

import torch
import torch.distributed as dist

from redalg.distributed.header import HEADER_BYTES, Header
from redalg.distributed.packed import first_words
from redalg.errors import BackendError, InputError
from redalg.runtime.bind.private import timeout_of


@final
@dataclass(frozen=True)
class Ranks:
    """A process group, as one of its ranks sees it.

    Attributes:
        group: PyTorch's.
        number: of this rank in the group.
        names: the ranks' numbers in the whole job, in the order of the group.
    """

    group: Any
    number: int
    names: tuple[int, ...]

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "distributed: a process group belongs to its process, so that a function over it is neither pickled nor "
            "copied. Send the function itself, and call `distributed` on it in every rank."
        )

    def check_device(self, device: str) -> None:
        """Refuse tensors on a device that the group does not send from."""
        kinds = [part.partition(":")[0] for part in dist.get_backend_config(self.group).split(",")]
        if device.partition(":")[0] not in kinds:
            raise InputError(f"distributed: the tensors lie on {device}, and the process group sends from "
                             f"{' and '.join(kinds)}. Move them there, or give the group a backend for {device}, as in "
                             '`init_process_group("cpu:gloo,cuda:nccl")`.')  # fmt: skip

    def gather(self, message: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """The messages of all ranks, a row for each; every rank calls it with a message of the same length.

        `rows`: where they are written; `message` may be this rank's row of them.

        Raises:
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        if rows is None:
            rows = torch.empty(len(self.names), *message.shape, dtype=message.dtype, device=message.device)
        all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        with self.in_step():
            all_gather(rows.view(-1), message, group=self.group)
        return rows

    def exchange(self, message: torch.Tensor) -> torch.Tensor:
        """The messages of all ranks to this one, a row for each: every rank's only one, or its row for this rank.

        Raises:
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        if message.dim() == 1:
            return self.gather(message)
        rows = torch.empty_like(message)
        with self.in_step():
            dist.all_to_all_single(rows, message, group=self.group)
        return rows

    def send_on(self, tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]]) -> Travel:
        """Begin to send tensors to the next rank, and to receive those of the rank before, which have these shapes."""
        size = len(self.names)
        after, before = self.names[(self.number + 1) % size], self.names[(self.number - 1) % size]
        coming = {name: tensors[name].new_empty(shape) for name, shape in shapes.items()}
        moves = [dist.P2POp(dist.isend, one, after, self.group) for one in tensors.values() if one.numel()]
        moves += [dist.P2POp(dist.irecv, one, before, self.group) for one in coming.values() if one.numel()]
        with self.in_step():
            return Travel(self, tensors, coming, tuple(dist.batch_isend_irecv(moves)) if moves else ())

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """Say that a rank is gone, if PyTorch says that a message was not exchanged."""
        try:
            yield
        except BackendError:
            raise
        except RuntimeError as error:
            raise BackendError(self._gone_message(f"PyTorch says: {error}")) from error

    def _gone_message(self, why: str) -> str:
        return (
            f"distributed: rank {self.names[self.number]} could not exchange states with the others of its group "
            f"({len(self.names)} ranks): one is gone, or has not come within the group's timeout. Find the first error "
            f"of the others, and start the job again. {why}"
        )

    def wait_for(self, done: torch.cuda.Event) -> None:
        """Let the host wait for an event on CUDA, behind which messages are there.

        PyTorch ends a process whose messages don't come, and takes a minute longer than the timeout to do so.

        Raises:
            BackendError: they have not come within the group's timeout.
        """
        limit = timeout_of(self.group, torch.device("cuda"))
        begin = monotonic()
        with self.in_step():  # a barrier that nobody came to ends all work of the GPU
            while not done.query():
                if monotonic() - begin > limit:
                    raise BackendError(self._gone_message(f"It waited for {limit:g} s."))
                sleep(0)

    def to_host(self, messages: torch.Tensor) -> torch.Tensor:
        """A copy of messages in the host's memory, for which the host waits.

        Raises:
            BackendError: they have not come within the group's timeout.
        """
        if not messages.is_cuda:
            return messages.cpu()
        with self.in_step():
            there = torch.empty(messages.shape, dtype=messages.dtype, pin_memory=True)
            there.copy_(messages, non_blocking=True)
            self.wait_for(event_of_now())
        return there

    def report(self, messages: torch.Tensor, statuses: torch.Tensor) -> Report:
        """The statuses of messages on CUDA, on their way into pinned memory."""
        with self.in_step():
            statuses.copy_(first_words(messages), non_blocking=True)
            return Report(self, messages, statuses, event_of_now())

    def gather_headers(self, header: Header, device: torch.device | None) -> list[Header]:
        """The headers of all ranks, in the order of the group. `device` is that of the tensors, if there are any."""
        message = torch.frombuffer(bytearray(header.to_bytes()), dtype=torch.uint8)
        rows = self.to_host(self.gather(message.to(header_device(self.group, device))))
        data = rows.numpy().tobytes()
        return [Header.of_bytes(data[start : start + HEADER_BYTES]) for start in range(0, len(data), HEADER_BYTES)]


@final
@dataclass(frozen=True)
class Travel:
    """Tensors on their way around the ranks.

    Attributes:
        ranks: the group.
        going, coming: the tensors of this rank and of the one before, by name; neither is to be changed meanwhile.
        works: PyTorch's, of each message.
    """

    ranks: Ranks
    going: Mapping[str, torch.Tensor]
    coming: Mapping[str, torch.Tensor]
    works: tuple[Any, ...]

    def wait(self) -> Mapping[str, torch.Tensor]:
        """The tensors that came, for which the current stream (the host, on CPUs) waits."""
        with self.ranks.in_step():
            for work in self.works:
                work.wait()
        return self.coming


@final
@dataclass(frozen=True)
class Report:
    """The statuses that ranks sent with their messages, on their way to the host.

    Attributes:
        ranks: the group.
        messages: a row for each rank.
        statuses: their first words, in the host's memory.
        done: the event that says that they are there.
    """

    ranks: Ranks
    messages: torch.Tensor
    statuses: torch.Tensor
    done: torch.cuda.Event

    @property
    def is_done(self) -> bool:
        """Tell if the statuses are there."""
        with self.ranks.in_step():
            return self.done.query()

    def read(self) -> list[int]:
        """The statuses, for which the host waits.

        Raises:
            BackendError: they have not come within the group's timeout.
        """
        self.ranks.wait_for(self.done)
        found: list[int] = self.statuses.tolist()
        return found


def event_of_now() -> torch.cuda.Event:
    """An event of the current stream. It is done when all work before it is done."""
    event = torch.cuda.Event()
    event.record()
    return event


def header_device(group: Any, device: torch.device | None) -> torch.device:
    """The device on which headers are gathered: the CPU if the group has a backend for it."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    if "cpu" in kinds:
        return torch.device("cpu")
    if device is not None and device.type in kinds:
        return device
    return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())


def group_ranks(group: Any) -> Ranks:
    """The ranks of a process group (None: all), of a mesh of one dimension, or of `(mesh, name of a dimension)`.

    Raises:
        InputError: no process group was initialised, a mesh has several dimensions, or this process is no member.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InputError(
            "distributed: this process has no process group. Call `torch.distributed.init_process_group` in every "
            "rank first; a job of one process may do so too."
        )
    mesh, place = mesh_of(group)
    group = dist.group.WORLD if group is None else group if mesh is None else mesh.get_group(place)
    if not isinstance(group, dist.ProcessGroup):
        raise InputError(
            f"distributed: {group!r} is no process group of this process. Pass one that has this process as a member, "
            "a mesh of one dimension, or None for all ranks."
        )
    try:
        number = dist.get_rank(group)
    except ValueError as error:  # of a group that PyTorch has forgotten
        raise InputError(
            "distributed: the process group was destroyed, or is of another process. Make one by "
            "`torch.distributed.new_group` in every rank of the job, and pass that."
        ) from error
    if mesh is not None and mesh.get_local_rank(place) != number:
        raise InputError(
            f"distributed: the mesh {mesh} lists its ranks in another order than its process group, and shards lie in "
            "order of ranks. Make the mesh of ranks in ascending order."
        )
    return Ranks(group, number, tuple(dist.get_process_group_ranks(group)))


def mesh_of(group: Any) -> tuple[Any, int]:
    """The mesh of `group` if there is one, and the number of its dimension that is meant."""
    from torch.distributed.device_mesh import DeviceMesh

    mesh, name = group if isinstance(group, tuple) and len(group) == 2 else (group, None)
    if not isinstance(mesh, DeviceMesh):
        return None, 0
    names = mesh.mesh_dim_names or ()
    if name is None and mesh.ndim == 1:
        return mesh, 0
    if name in names:
        return mesh, names.index(name)
    if isinstance(name, int) and 0 <= name < mesh.ndim:
        return mesh, name
    example = repr(names[-1]) if names else mesh.ndim - 1
    raise InputError(
        f"distributed: {mesh} has {mesh.ndim} dimensions, and states are merged along one of them"
        f"{'' if name is None else f'; {name!r} is none'}. Pass `(mesh, {example})`."
    )
