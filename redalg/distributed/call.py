"""A call across ranks: header, leaf, message, merge, finish. Every rank calls two collectives, whatever goes wrong.

    1  every rank binds its shard, or fails        headers are gathered; ranks that fail or differ stop all
    2  every rank makes the state of its shard     `start` is the sum of the lengths before it
    3  messages are gathered                       a rank without a state says so, and stops all
    4  every rank merges all states in order       the same operations on the same numbers: outputs agree bit by bit

With `deterministic` a shard has several states, one for each of its parts (`parts`).

A rank that stops after 1 or 3 does so with all others, so that the group stays in step and may be used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch
from torch._compile import _disable_dynamo

from redalg.decompose.verdict.passes import refuse_states
from redalg.distributed.header import Header, check_headers, failure_message
from redalg.distributed.packed import message_packing, new_message, read_failures, slots_in, write_failure, write_slots
from redalg.distributed.parts import Edges, check_parts, join_outputs, part_edges
from redalg.distributed.ranks import Ranks, group_ranks
from redalg.distributed.shard import Shard, check_form, finished_elements, shard_of
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.runtime.bind.identity import VERSION, identity
from redalg.runtime.bind.inputs import check_choice
from redalg.runtime.bind.places import Boxes, is_nothing

if TYPE_CHECKING:
    from redalg.incremental.form import FusedForm
    from redalg.runtime.bind.options import Sizes
    from redalg.runtime.bind.state import State


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

    @cached_property
    def form(self) -> FusedForm:
        form: FusedForm = self.fused.form
        return form

    @property
    def _backend(self) -> str | None:
        """The backend of leaves and merges; a plan of a kernel, which may be tuned anywhere, decides no last bit."""
        return None if self.deterministic is None else "library"

    @_disable_dynamo  # the public name imports PyTorch's compiler at once; a graph that is traced breaks here
    def __call__(self, /, *positional: Any, empty: str = "nan", sizes: Sizes | None = None, **tensors: Any) -> Any:
        """The outputs for the whole, on every rank. Every rank of the group has to call it.

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
                dtypes or the scalars. It is raised on every rank, and names the ranks.
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        device = next((one.device for one in (*positional, *tensors.values()) if isinstance(one, torch.Tensor)), None)
        try:
            check_choice("empty", empty, "distributed: ")
            shard = shard_of(self.fused, self.ranks, self.axis, (positional, tensors), sizes or {})
            header = self._header(shard, empty)
        except Exception as error:
            self.ranks.gather_headers(Header(reason_of(error)), device)
            raise
        headers = self.ranks.gather_headers(header, device)
        check_headers(headers, self.ranks.names)
        lengths = [one.elements for one in headers]
        edges = part_edges(lengths, self.deterministic, self.ranks.names)
        whole = shard.within(self.axis, sum(lengths[: self.ranks.number]), sum(lengths))
        state = self.fused.merge(*self._gather_states(whole, edges), backend=self._backend)
        outputs = self._finish(whole, state, edges[self.ranks.number], empty)
        return outputs if whole.places is None else self._in_mesh(whole, outputs)

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

    def _gather_states(self, shard: Shard, edges: Sequence[Edges]) -> list[State]:
        """The states of the parts of all ranks, in order; those of others lie in this rank's memory."""
        bound, own = shard.bound, edges[self.ranks.number] or [(shard.first, shard.first)]
        packing = message_packing(self.form.slots, bound.sizes, bound.compute, far=shard.is_far)
        message = new_message(packing, max(1, *map(len, edges)), bound.device)
        try:
            for number, edge in enumerate(own):
                tensors = shard.part(self.axis, edge, copied=self.deterministic is not None)
                start = {**shard.starts, self.axis: edge[0]}
                state = self.fused.leaf(tensors, start, shard.extents, backend=self._backend)
                write_slots(state.slots, message, packing, number)
        except Exception as error:
            write_failure(reason_of(error), message)
            self.ranks.gather(message)
            raise
        messages = self.ranks.gather(message)
        if failed := read_failures(messages):
            raise InputError(failure_message({self.ranks.names[number]: why for number, why in failed.items()}))
        return [
            replace(state, slots=slots_in(row, packing, number), places=self._places(shard, edge))
            for row, of_rank in zip(messages, edges, strict=True) for number, edge in enumerate(of_rank)
        ]  # fmt: skip

    def _places(self, shard: Shard, edge: tuple[int, int]) -> Boxes:
        """The places of a part."""
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
