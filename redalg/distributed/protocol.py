"""The agreement of ranks on calls of one kind, which spares later calls the exchange of headers.

    kind      := the dtype, device and shape of every tensor; scalars, sizes and options
    message   := status …        as `packed` lays it out
    status    := 0 and a digest of the agreement | 1 and the reason why this rank fails | 2: a call of another kind

All ranks remember the same last agreement. A rank whose call is of another kind therefore knows how long a message the
others expect: it sends one that says so, and all exchange headers again.

Ranks may have agreed on two functions, and call them in unlike order now: the digests differ, and all raise an error.
A rank that fails tells all others, so that the group stays in step and may be used again. On CUDA a host may go on
before it has read the statuses: `read_reports` raises the error later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Generic, TypeVar, final

import torch

from redalg.decompose.cascade import Cascade
from redalg.distributed.header import Header, check_headers, failure_message, ranks_in_words
from redalg.distributed.packed import (
    ANEW,
    agreement_word,
    failures_in,
    first_words,
    new_message,
    status_of,
    write_failure,
)
from redalg.distributed.ranks import Ranks, Report
from redalg.distributed.window import Window
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.runtime.bind.private import is_transforming

MOST_REPORTS = 64
"""Calls on CUDA that may run before the host looks whether the first of them went well."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Agreement(Generic[T]):
    """An agreement of all ranks.

    Attributes:
        kind: of this rank's call.
        device: on which messages lie.
        nbytes: of a message, beyond its status.
        rows: the number of rows of a message, if it has one for every rank.
        terms: all else that calls of this kind share.
        word: the first of a message that says that all is well.
        window: memory through which messages go, if they do; else they go by a collective.
    """

    kind: Hashable
    device: str
    nbytes: int
    terms: T
    rows: tuple[int, ...] = ()
    word: int = 0
    window: Window | None = None

    def new_message(self) -> torch.Tensor:
        """A message that says that all is well."""
        return new_message(self.nbytes, self.device, self.rows, self.word)

    def exchange(self, ranks: Ranks, message: torch.Tensor) -> torch.Tensor:
        """The messages of all ranks to this one, a row for each.

        Raises:
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        if self.window is None:
            return ranks.exchange(message)
        with ranks.in_step():
            return self.window.gather(message)


@final
class Protocol(Generic[T]):
    """The protocol of a function that ranks call together.

    Attributes:
        ranks: the group.
        last: the last agreement.
        reports: of calls that were not yet read.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.last: Agreement[T] | None = None
        self.reports = deque[Report]()
        self._statuses: Iterator[torch.Tensor] | None = None

    @contextmanager
    def stops_all(self, device: torch.device | None) -> Iterator[None]:
        """If something fails within, tell the others that this rank takes no part in the call."""
        try:
            yield
        except Exception as error:
            if self.last is None:
                self.ranks.gather_headers(Header(reason_of(error)), device)
            else:
                message = self.last.new_message()
                write_failure(reason_of(error), message)
                self.last.exchange(self.ranks, message)
            raise

    @contextmanager
    def stops_headers(self, device: torch.device | None) -> Iterator[None]:
        """If something fails within, tell the others, who expect a header."""
        try:
            yield
        except Exception as error:
            self.ranks.gather_headers(Header(reason_of(error)), device)
            raise

    def agree(self, header: Header, device: torch.device | None,
              make: Callable[[list[Header]], Agreement[T]]) -> Agreement[T]:  # fmt: skip
        """The agreement that `make` makes of the headers of all ranks; all remember it.

        Raises:
            InputError: a rank fails, or ranks differ; it is raised on all.
        """
        headers = self.ranks.gather_headers(header, device)
        check_headers(headers, self.ranks.names)
        word = agreement_word(b"".join(one.to_bytes() for one in headers))
        self.last = replace(make(headers), word=word)
        return self.last

    def ask_anew(self, known: Agreement[T], *, late: bool) -> None:
        """Tell the others, who may expect a call of the last kind, that this one is of another.

        `late`: those would learn of it after their call, so that it fails.
        """
        message = known.new_message()
        message[..., 0] = ANEW
        statuses = self.statuses(known.exchange(self.ranks, message))
        if late and set(statuses) != {ANEW}:
            raise InputError(unlike_message(statuses, self.ranks.names))

    def statuses(self, messages: torch.Tensor) -> list[int]:
        """The statuses of all ranks, for which the host waits.

        Raises:
            BackendError: they have not come within the group's timeout.
            InputError: a rank failed, or ranks called several functions; it is raised on all.
        """
        return self._statuses_of(messages, self.ranks.to_host(first_words(messages)).tolist())

    def _statuses_of(self, messages: torch.Tensor, words: list[int]) -> list[int]:
        statuses, names = [status_of(word) for word in words], self.ranks.names
        if failed := failures_in(messages, statuses):
            raise InputError(failure_message({names[number]: why for number, why in failed.items()}))
        if ANEW not in statuses and len(set(words)) > 1:
            others = [name for name, word in zip(names, words, strict=True) if word != words[0]]
            raise InputError(
                f"distributed: {ranks_in_words(others)} called another function than rank {names[0]}, or one on which "
                "other ranks agreed, so no rank has a result. Call the same functions in one order on all ranks."
            )
        return statuses

    def keep_report(self, messages: torch.Tensor) -> None:
        """Remember the statuses of messages, which the host reads later."""
        if self._statuses is None:  # places in pinned memory, each used again after the last
            size = MOST_REPORTS + 2, len(self.ranks.names)
            with torch.inference_mode(mode=False):  # whose tensors nobody writes outside it
                self._statuses = cycle(torch.empty(size, dtype=torch.int64, pin_memory=torch.cuda.is_available()))
        self.reports.append(self.ranks.report(messages, next(self._statuses)))

    def read_reports(self, *, waits: bool) -> None:
        """Raise the error of an earlier call that waited for nobody: of those that are done, or of all."""
        reports = self.reports
        while reports and (waits or len(reports) > MOST_REPORTS or reports[0].is_done):
            report = reports.popleft()
            words = report.read()
            if len(set(words)) > 1 or status_of(words[0]):
                reports.clear()
                raise InputError(unlike_message(self._statuses_of(report.messages, words), self.ranks.names))


def call_device(positional: Sequence[Any], tensors: Mapping[str, Any]) -> torch.device | None:
    """The device of the first tensor of a call; None if there is none."""
    return next((one.device for one in (*positional, *tensors.values()) if isinstance(one, torch.Tensor)), None)


def call_kind(
    cascade: Cascade, inputs: Mapping[str, Any], axis: Axis | None, options: Sequence[Hashable]
) -> Hashable:  # fmt: skip
    """The kind of a call; the length of `axis` is no part of it (None: all lengths are)."""
    dimensions = {one.name: one.indices.index(axis) for one in cascade.elements() if axis in one.indices}
    tensors = [(name, *_tensor_kind(one, dimensions.get(name))) for name, one in sorted(inputs.items())]
    autocast = tuple((one, torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in ("cpu", "cuda"))
    return (*tensors, autocast, *options)


def _tensor_kind(given: Any, free: int | None) -> tuple[Hashable, ...]:
    if not isinstance(given, torch.Tensor):
        return type(given).__name__, given if isinstance(given, int | float) else None
    shape = tuple(-1 if dimension == free else size for dimension, size in enumerate(given.shape))
    if type(given) is torch.Tensor:
        return shape, given.dtype, given.device
    return shape, given.dtype, given.device, type(given), *_mesh_kind(given)


def _mesh_kind(given: torch.Tensor) -> tuple[Hashable, ...]:
    """The mesh and the placements of a DTensor, and its shapes, which say where shards end."""
    local = given.to_local() if hasattr(given, "to_local") else given
    return getattr(given, "device_mesh", None), getattr(given, "placements", None), tuple(given.shape), local.shape


def refuse_transforms() -> None:
    """Refuse a call within a transform, which messages do not pass."""
    if is_transforming():
        raise InputError(
            "distributed: a call within `torch.func.vmap`, `grad` or another transform is not made across ranks. Call "
            "it outside, with one more axis in place of `vmap`."
        )


def unlike_message(statuses: Sequence[int], names: Sequence[int]) -> str:
    """The message if some ranks called with tensors as in the call before, and some did not."""
    unlike = [name for name, status in zip(names, statuses, strict=True) if status]
    return (
        f"distributed: {ranks_in_words(unlike)} called with tensors of other shapes, dtypes or numbers than before, "
        "and the other ranks did not, so no rank has a result. Pass tensors of one kind on all ranks."
    )


def reason_of(error: Exception) -> str:
    """The reason that other ranks are told."""
    return f"{type(error).__name__}: {error}"
