"""A call across ranks: kind, leaf, message, merge, finish.

    1  a call of another kind than the last        headers are gathered (`header`): ranks that fail or differ stop all
    2  every rank makes the state of its shard     `start` is the sum of the lengths before it
    3  messages are gathered                       a rank without a state says so, and stops all
    4  every rank merges all states in order       the same operations on the same numbers: outputs agree bit by bit

So a call of the last kind is one collective. With `deterministic` a shard has several states, one for each of its parts
(`parts`).

A rank that stops after 1 or 3 does so with all others, so that the group stays in step and may be used again. On CUDA
the host waits for nobody after 3, if all outputs are floats: a rank without a state makes all outputs NaN, and the next
call raises the error, or `check`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch
from torch._compile import _disable_dynamo

from redalg.decompose.verdict.passes import refuse_states
from redalg.distributed.agreement import Agreement, call_kind, may_learn_late, needs_lengths
from redalg.distributed.header import Header, check_headers, failure_message, ranks_in_words
from redalg.distributed.packed import (
    ANEW,
    failures_in,
    message_packing,
    new_message,
    slots_in,
    write_failure,
    write_slots,
    write_status,
)
from redalg.distributed.parts import Edges, check_parts, join_outputs, part_edges
from redalg.distributed.ranks import Ranks, Report, group_ranks
from redalg.distributed.shard import Shard, cast_inputs, check_form, finished_elements, shard_of
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.runtime.bind.identity import VERSION, identity
from redalg.runtime.bind.inputs import check_choice
from redalg.runtime.bind.options import named_sizes
from redalg.runtime.bind.places import Boxes, is_nothing

if TYPE_CHECKING:
    from redalg.incremental.form import FusedForm
    from redalg.runtime.bind.options import Sizes
    from redalg.runtime.bind.state import State

MOST_REPORTS = 64
"""Calls on CUDA that may run before the host looks whether the first of them went well."""


@final
class Memory:
    """The last agreement of a function, and the reports of its calls that were not yet read."""

    def __init__(self) -> None:
        self.last: Agreement | None = None
        self.reports = deque[Report]()


@final
@dataclass(frozen=True)
class Distributed:
    """A fused function whose tensors are split along a reduced axis over the ranks of a group.

    Attributes:
        fused: the function.
        ranks: the group.
        axis: the reduced axis that is split.
        deterministic: the number of parts of the whole, each with a state of its own; None for one a rank.
    """

    fused: Any
    ranks: Ranks
    axis: Axis
    deterministic: int | None = None
    memory: Memory = field(default_factory=Memory, repr=False, compare=False)

    @cached_property
    def form(self) -> FusedForm:
        form: FusedForm = self.fused.form
        return form

    @cached_property
    def _needs_lengths(self) -> bool:
        """Tell if a rank must know how long the shards of others are."""
        return self.deterministic is not None or needs_lengths(self.form, self.axis)

    @property
    def _backend(self) -> str | None:
        """The backend of leaves and merges; a plan of a kernel, which may be tuned anywhere, decides no last bit."""
        return None if self.deterministic is None else "library"

    @_disable_dynamo  # the public name imports PyTorch's compiler at once; a graph that is traced breaks here
    def __call__(self, /, *positional: Any, empty: str = "nan", sizes: Sizes | None = None, **tensors: Any) -> Any:
        """The outputs for the whole, on every rank. Every rank of the group has to call it.

        The first call, and one with tensors of other shapes or dtypes, exchanges headers: two collectives. Others are
        one collective. On CUDA such a call waits for nobody where all outputs are floats, and CUDA graphs capture it.

        Args:
            positional, tensors: as in a call of the function; tensors of torch, those with the split axis hold this
                rank's shard of it. Shards lie in order of ranks, and may differ in length, or be empty. All other
                tensors are whole: they are not compared.
            empty, sizes: as in a call of the function; `sizes` gives axes that no tensor has.

        Returns:
            What a call gives. An output that has the split axis is given for the rank's own shard. For tensors that are
            DTensors, DTensors.

        Raises:
            InputError: the tensors do not fit the expression on some rank, or ranks differ in the form, the sizes, the
                dtypes or the scalars. It is raised on every rank, and names the ranks. Where a call waits for nobody,
                its outputs are NaN, and the next call or `check` raises it.
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        self._read_reports(waits=False)
        device = next((one.device for one in (*positional, *tensors.values()) if isinstance(one, torch.Tensor)), None)
        try:
            check_choice("empty", empty, "distributed: ")
            inputs = self.fused._pass_inputs(self.fused._bind(positional, tensors))
            extents = named_sizes(sizes or {}, "distributed")
            lengthy = None if self._needs_lengths else self.axis
            kind = call_kind(self.form.cascade, inputs, lengthy, (empty, *sorted(extents.items())))
        except Exception as error:
            self._stop_all(error, device)
            raise
        known = self.memory.last
        if known is not None and known.kind == kind:
            found = self._again(known, inputs, empty)
            if found is not None:
                return found[0]
        elif known is not None:
            self._ask_anew(known)
        try:
            shard = shard_of(self.fused, self.ranks, self.axis, inputs, extents)
            header = self._header(shard, empty)
        except Exception as error:
            self.ranks.gather_headers(Header(reason_of(error)), device)
            raise
        agreed = self._agree(shard, header, kind, device)
        messages, own = self._exchange(agreed, agreed.shard)
        self._refuse_failures(messages, self.ranks.statuses(messages))
        return self._outputs(agreed, agreed.shard, (messages, own), empty)

    def check(self) -> None:
        """Wait for the calls that were made, and raise the error of any that had no result.

        Raises:
            InputError: a rank made no state, or called with other tensors than the rest.
        """
        self._read_reports(waits=True)

    def _agree(self, shard: Shard, header: Header, kind: Any, device: torch.device | None) -> Agreement:
        """The agreement of all ranks, which they remember, with this rank's place in the whole."""
        headers = self.ranks.gather_headers(header, device)
        check_headers(headers, self.ranks.names)
        lengths = [one.elements for one in headers]
        edges = tuple(part_edges(lengths, self.deterministic, self.ranks.names))
        whole = shard.within(self.axis, sum(lengths[: self.ranks.number]), sum(lengths))
        bound = whole.bound
        packing = message_packing(self.form.slots, bound.sizes, bound.compute, far=whole.is_far)
        self.memory.last = Agreement(kind, whole, edges, packing)
        return self.memory.last

    def _again(self, known: Agreement, inputs: Mapping[str, Any], empty: str) -> tuple[Any] | None:
        """The outputs of a call of a known kind; None if it is not that of all ranks, and they agree anew."""
        try:
            shard = known.shard.with_tensors(cast_inputs(self.fused, inputs))
        except Exception as error:
            self._stop_all(error, None)
            raise
        messages, own = self._exchange(known, shard)
        if self._learns_late(known):
            if not torch.cuda.is_current_stream_capturing():
                self.memory.reports.append(self.ranks.report(messages))
        else:
            statuses = self.ranks.statuses(messages)
            self._refuse_failures(messages, statuses)
            if ANEW in statuses:
                return None
        return (self._outputs(known, shard, (messages, own), empty),)

    def _learns_late(self, known: Agreement) -> bool:
        """Tell if this host does not wait for the statuses of other ranks."""
        return not self._needs_lengths and may_learn_late(self.form, known.shard.bound.device)

    def _ask_anew(self, known: Agreement) -> None:
        """Tell the others, who may expect a call of the last kind, that this one is of another."""
        message = new_message(known.packing, known.parts, known.shard.bound.device)
        write_status(ANEW, message)
        messages = self.ranks.gather(message)
        statuses = self.ranks.statuses(messages)
        self._refuse_failures(messages, statuses)
        if self._learns_late(known) and set(statuses) != {ANEW}:
            raise InputError(unlike_message(statuses, self.ranks.names))

    def _stop_all(self, error: Exception, device: torch.device | None) -> None:
        """Tell the others that this rank takes no part in the call."""
        known = self.memory.last
        if known is None:
            self.ranks.gather_headers(Header(reason_of(error)), device)
        else:
            message = new_message(known.packing, known.parts, known.shard.bound.device)
            write_failure(reason_of(error), message)
            self.ranks.gather(message)

    def _refuse_failures(self, messages: torch.Tensor, statuses: Sequence[int]) -> None:
        """Raise the error of ranks that made no state."""
        if failed := failures_in(messages, statuses):
            named = {self.ranks.names[number]: why for number, why in failed.items()}
            raise InputError(failure_message(named))

    def _read_reports(self, *, waits: bool) -> None:
        """Raise the error of an earlier call that waited for nobody: of those that are done, or of all."""
        reports = self.memory.reports
        while reports and (waits or len(reports) > MOST_REPORTS or reports[0].is_done):
            report = reports.popleft()
            statuses = report.read()
            if any(statuses):
                reports.clear()
                self._refuse_failures(report.messages, statuses)
                raise InputError(unlike_message(statuses, self.ranks.names))

    def _outputs(self, agreed: Agreement, shard: Shard, exchanged: tuple[torch.Tensor, State], empty: str) -> Any:
        """The outputs on this rank, of the states of all."""
        state = self.fused.merge(*self._states(agreed, shard, exchanged), backend=self._backend)
        outputs = self._finish(shard, state, agreed.edges[self.ranks.number], empty)
        return outputs if shard.places is None else self._in_mesh(shard, outputs)

    def _finish(self, shard: Shard, state: State, edges: Edges, empty: str) -> Any:
        """The outputs on this rank: part by part if they have the split axis, whose places tensors tell."""
        elements = finished_elements(self.form)
        names = {element.name for element in elements}
        if not any(self.axis in element.indices for element in elements):
            needed = {name: array for name, array in shard.tensors.items() if name in names}
            return self.fused.finish(state, needed, empty, shard.starts)
        found = []
        for edge in edges or [(shard.first, shard.first)]:
            tensors = shard.part(self.axis, edge, copied=self.deterministic is not None)
            needed = {name: array for name, array in tensors.items() if name in names}
            found.append(self.fused.finish(state, needed, empty, {**shard.starts, self.axis: edge[0]}))
        return join_outputs(found, self.form, self.axis)

    def _header(self, shard: Shard, empty: str) -> Header:
        own, bound = identity(self.form), shard.bound
        return Header(
            elements=bound.sizes[self.axis.name],
            state_format=VERSION,
            form=own.digest,
            meaning="; ".join(own.lines),
            axis=self.axis.name,
            device=bound.device.partition(":")[0],
            empty=empty,
            deterministic=self.deterministic or 0,
            sizes={name: size for name, size in bound.sizes.items() if name != self.axis.name},
            starts={axis.name: first for axis, first in shard.starts.items()},
            dtypes=shard.float_dtypes,
            scalars={name: repr(number) for name, number in bound.scalars.items()},
        )

    def _exchange(self, agreed: Agreement, shard: Shard) -> tuple[torch.Tensor, State]:
        """The messages of all ranks, a row for each, and a state of this rank."""
        own = agreed.edges[self.ranks.number] or [(shard.first, shard.first)]
        message = new_message(agreed.packing, agreed.parts, shard.bound.device)
        try:
            for number, edge in enumerate(own):
                tensors = shard.part(self.axis, edge, copied=self.deterministic is not None)
                start = {**shard.starts, self.axis: edge[0]} if self._needs_lengths else shard.starts
                state = self.fused.leaf(tensors, start, shard.extents, backend=self._backend)
                write_slots(state.slots, message, agreed.packing, number)
        except Exception as error:
            write_failure(reason_of(error), message)
            self.ranks.gather(message)
            raise
        return self.ranks.gather(message), state

    def _states(self, agreed: Agreement, shard: Shard, exchanged: tuple[torch.Tensor, State]) -> list[State]:
        """The states of the parts of all ranks, in order; those of others lie in this rank's memory."""
        messages, state = exchanged
        return [
            replace(state, slots=slots_in(row, agreed.packing, number), places=self._places(shard, edge))
            for row, of_rank in zip(messages, agreed.edges, strict=True) for number, edge in enumerate(of_rank)
        ]  # fmt: skip

    def _places(self, shard: Shard, edge: tuple[int, int]) -> Boxes:
        """The places of a part; none where they do not matter, and lengths may have changed."""
        if not self._needs_lengths:
            return ()
        sizes = shard.bound.sizes
        box = tuple(edge if axis == self.axis else (0, sizes[axis.name]) for axis in self.form.cascade.reduced_axes)
        return () if is_nothing(box) else (box,)

    def _in_mesh(self, shard: Shard, outputs: Any) -> Any:
        """The outputs as tensors of the mesh of the inputs."""
        named = [(one.name, one.axes) for one in self.fused.cascade.outputs]
        if self.fused.single:
            return shard.in_mesh(outputs, named[0][1])
        arrays: Mapping[str, Any] = outputs._asdict()
        return type(outputs)(**{name: shard.in_mesh(arrays[name], axes) for name, axes in named})


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


def distribute(fused: Any, group: Any, axis: Axis | str | None, deterministic: int | None) -> Distributed:
    """The function across the ranks of a group, split along a reduced axis (None: the only one).

    Raises:
        InputError: there is no such group or axis, or the function cannot be split so.
    """
    refuse_states("distributed", fused.cascade, fused.earlier)
    reduced = {str(one.name): one for one in fused.form.cascade.reduced_axes}
    name = axis.name if isinstance(axis, Axis) else next(iter(reduced)) if axis is None and len(reduced) == 1 else axis
    if name not in reduced:
        raise InputError(
            f"distributed: axis={axis} is not reduced. States are merged along a reduced axis: pass "
            f"{' or '.join(f'axis={one}' for one in reduced)}."
        )
    check_form(fused.form, reduced[name])
    check_parts(deterministic)
    return Distributed(fused, group_ranks(group), reduced[name], deterministic)
