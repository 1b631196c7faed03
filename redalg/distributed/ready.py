"""Ready calls: a call that ranks agreed on, and that was made before, as the launches that are left of it.

    signature  of every tensor name, shape, strides, dtype and device; options
    ready      rows for the messages of all ranks → the leaf's kernel writes into this rank's → gathered in place
               → the merging kernel reads all rows → the finishing kernel writes the outputs
    in window  the leaf's kernel writes into this rank's memory → barrier → the merging kernel reads the memory of all
               ranks, if it takes states where they lie; else rows are read from it → the finishing kernel

Ready calls belong to an agreement, and end with it. Headers, checks, layouts and kernels are those of the call before;
statuses are exchanged and read as in any call. A call that needs more than three kernels has no ready one, and is made
step by step: with places, scalars, slices, parts, a tensor of another class, autocast or tangents.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch

from redalg.distributed.packed import ANEW, STATUS_BYTES, first_words, write_failure
from redalg.distributed.protocol import Protocol, reason_of
from redalg.distributed.ranks import Ranks
from redalg.distributed.shard import Shard
from redalg.distributed.window import LEAVING, STATUSES, Window
from redalg.errors import InputError, PlanError
from redalg.runtime.bind.inputs import may_have_tangents
from redalg.runtime.bind.packing import MOST_CLEARED, Packed, Packing
from redalg.runtime.call.finish_kernels import PreparedFinish, prepared_finish
from redalg.runtime.call.kernels import Recipe
from redalg.runtime.call.merge_kernels import Merge
from redalg.runtime.call.prepared import times_forgotten
from redalg.runtime.call.states import merging_kernel, prepared_recipe

MOST_READY = 512
"""Ready calls of an agreement; beyond them, all are forgotten at once."""
Place = tuple[str, Any, tuple[int, ...], tuple[int, ...], int]
"""The name of an array, its dtype, shape and strides, and its first element."""
Arrays = Mapping[str, torch.Tensor]


@final
@dataclass(frozen=True)
class Ready:
    """A call of one signature.

    Attributes:
        ranks: the group.
        device: of messages.
        leaf: writes this rank's state.
        merge: of all states; None of one rank.
        finish: makes the outputs.
        packing: the layout of a state.
        word: the first of a message that says that all is well.
        window: memory through which messages go, if they do.
    """

    ranks: Ranks
    device: torch.device
    leaf: Recipe
    merge: Merge | None
    finish: PreparedFinish
    packing: Packing
    word: int
    window: Window | None = None

    @cached_property
    def _size(self) -> tuple[int, int]:
        return len(self.ranks.names), STATUS_BYTES + self.packing.nbytes

    @cached_property
    def _template(self) -> torch.Tensor:
        """A message that says that all is well, as a whole or its status alone: bytes of other memory do not travel."""
        whole = self.packing.has_gaps or self._size[1] <= MOST_CLEARED
        message = torch.zeros(self._size[1] if whole else STATUS_BYTES, dtype=torch.uint8, device=self.device)
        first_words(message).fill_(self.word)
        return message

    @cached_property
    def _own_places(self) -> tuple[Place, ...]:
        """The places of the leaf's outputs in the message of this rank."""
        packing: Packing = self.leaf.allocate.packing  # type: ignore[attr-defined]
        return _places(packing, (), self._size[1])

    @cached_property
    def _state_places(self) -> tuple[Place, ...]:
        """The places of the slots of a rank in its message."""
        return _places(self.packing, (), self._size[1])

    @cached_property
    def _all_places(self) -> tuple[Place, ...]:
        """The places of the slots of all ranks, in the rows."""
        return _places(self.packing, (self._size[0],), self._size[1])

    def run(self, protocol: Protocol[Any], inputs: Mapping[str, Any], *, late: bool) -> dict[str, Any] | None:
        """The outputs by name; None if ranks have to agree anew. `late`: the host does not wait for statuses."""
        if self.window is not None:
            return self._run_in(self.window, protocol, inputs, late=late)
        rows, own = self.new_rows()
        try:
            self.write_state(inputs, own)
        except Exception as error:
            write_failure(reason_of(error), own)
            self.ranks.gather(own, rows)
            raise
        self.ranks.gather(own, rows)
        if not late:
            return None if ANEW in protocol.statuses(rows) else self.outputs(inputs, rows)
        if not torch.cuda.is_current_stream_capturing():
            protocol.keep_report(rows)
        outputs = self.outputs(inputs, rows)
        fill_where((first_words(rows) != self.word).any(), outputs)
        return outputs

    def _run_in(self, window: Window, protocol: Protocol[Any], inputs: Mapping[str, Any], *,
                late: bool) -> dict[str, Any] | None:  # fmt: skip
        """As `run`, through a window."""
        nbytes = self._size[1]
        with self.ranks.in_step():
            region = window.begin()
            with window.beside(region, STATUSES):
                window.write_word(region, self.word)
        try:
            self.leaf.launch_into(inputs, self._arrays_in(window, region)[0])
        except Exception as error:
            with self.ranks.in_step():
                window.fail(region, reason_of(error))
            raise
        with self.ranks.in_step():
            window.join(region, STATUSES)
            window.meet(region)
            rows = None if self.merges_in_place else window.read(region, nbytes)
            with window.beside(region, STATUSES):
                statuses = window.read(region, STATUS_BYTES) if rows is None else rows
                failed = (first_words(statuses) != self.word).any() if late else None
        slots = self._merge_in(window, region) if rows is None else None
        with self.ranks.in_step(), window.beside(region, LEAVING):
            window.leave(region)
        if not late:
            if ANEW in protocol.statuses(statuses):
                return None
        elif not window.is_captured:
            protocol.keep_report(statuses)
        outputs = self.outputs(inputs, statuses) if slots is None else self._outputs_of(inputs, slots)
        window.join(region, STATUSES)
        if failed is not None:
            fill_where(failed, outputs)
        window.join(region, LEAVING)
        return outputs

    @property
    def merges_in_place(self) -> bool:
        """Tell if the merging kernel takes the states of a window where they lie."""
        return self.merge is not None and self.merge.takes_apart

    def _merge_in(self, window: Window, region: int) -> dict[str, Any]:
        """The slots of all states together, which lie in a region of a window."""
        if self.merge is None:
            raise AssertionError("one rank has no window")
        return self.merge.of_apart(self._arrays_in(window, region)[1])

    def _arrays_in(self, window: Window, region: int) -> tuple[Arrays, Sequence[Arrays]]:
        """The arrays in a region that the leaf writes, and those of the states of all ranks."""
        found = self._regions.get(region)
        if found is None:
            messages = window.messages(region, self._size[1])
            own = _arrays_at(messages[window.number], self._own_places)
            found = self._regions[region] = own, [_arrays_at(one, self._state_places) for one in messages]
        return found

    @cached_property
    def _regions(self) -> dict[int, tuple[Arrays, Sequence[Arrays]]]:
        return {}

    def new_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows for the messages of all ranks, and this rank's of them, which says that all is well."""
        rows = torch.empty(self._size, dtype=torch.uint8, device=self.device)
        own = rows.select(0, self.ranks.number)
        own.narrow(0, 0, len(self._template)).copy_(self._template)
        return rows, own

    def write_state(self, inputs: Mapping[str, Any], own: torch.Tensor) -> None:
        """Write the state of this rank's shard into its message."""
        self.leaf.launch_into(inputs, _arrays_at(own, self._own_places))

    def outputs(self, inputs: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
        """The outputs by name, of the states of all ranks; they share no memory with the rows."""
        slots = _arrays_at(rows, self._all_places)
        slots = {name: one[0] for name, one in slots.items()} if self.merge is None else self.merge.of_rows(slots)
        return self._outputs_of(inputs, slots)

    def _outputs_of(self, inputs: Mapping[str, Any], slots: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, of the slots of the merged state."""
        return self.finish.step({**inputs, **{name: slots[slot] for name, slot in self.finish.slots.items()}})


def fill_where(failed: torch.Tensor, outputs: Mapping[str, torch.Tensor]) -> None:
    """Make outputs NaN where a condition of one element holds, which the host does not read: nobody else has them."""
    for output in outputs.values():
        output.masked_fill_(failed, torch.nan)


def _places(packing: Packing, rows: tuple[int, ...], row_bytes: int) -> tuple[Place, ...]:
    """The places of arrays in a message, or in so many `rows` of messages."""
    found = list[Place]()
    for name, dtype_name, shape, strides, at in packing.view_places:
        dtype = getattr(torch, dtype_name)
        width = dtype.itemsize
        step = row_bytes // width
        found.append((name, dtype, (*rows, *shape), (*(step for _ in rows), *strides), STATUS_BYTES // width + at))
    return tuple(found)


def _arrays_at(rows: torch.Tensor, places: Sequence[Place]) -> dict[str, torch.Tensor]:
    """The arrays at places in a message, or in rows of them; they share its memory."""
    typed = dict[Any, torch.Tensor]()
    found = dict[str, torch.Tensor]()
    for name, dtype, shape, strides, first in places:
        elements = typed.get(dtype)
        if elements is None:
            elements = typed[dtype] = rows.view(dtype)
        found[name] = elements.as_strided(shape, strides, elements.storage_offset() + first)
    return found


def signature(positional: Sequence[Any], tensors: Mapping[str, Any], empty: str) -> Hashable:
    """The signature of a call without other options, as a glance tells it; None if that does not tell enough."""
    if (
        not isinstance(empty, str)
        or torch.is_autocast_enabled("cuda")
        or torch.is_autocast_enabled("cpu")
        or may_have_tangents()
    ):
        return None
    key: list[Any] = [times_forgotten(), empty, tuple(tensors)]
    for given in (*positional, *tensors.values()):
        if (
            type(given) is not torch.Tensor
            or given.layout is not torch.strided
            or given.requires_grad
            or given.is_neg()
        ):
            return None
        key += (given.shape, given.stride(), given.dtype, given.device)
    return tuple(key)


def ready_call(fused: Any, ranks: Ranks, shard: Shard, packing: Packing, *, empty: str, word: int,
               backends: tuple[str | None, str | None], finished: Collection[str],
               window: Window | None) -> Ready | None:  # fmt: skip
    """The ready call of a shard in which places do not matter; None if it takes more than three kernels.

    Args:
        fused, ranks, shard: of a call that was made.
        packing: the layout on which ranks agreed.
        empty: its option.
        word: the first of the agreement's messages.
        backends: of the leaf and the merge, and of the outputs.
        finished: the names of the tensors that outputs hold.
        window: of the agreement.
    """
    form, backend = fused.form, backends[0]
    if shard.places is not None or shard.bound.scalars:
        return None
    recipe = prepared_recipe(form, shard.tensors, shard.extents, backend)
    if recipe is None:
        return None
    state = fused.leaf(shard.tensors, shard.starts, shard.extents, backend=backend)
    if not isinstance(state.slots, Packed) or state.slots.packing.key != packing.key:
        return None
    merge, states = None, [state] * len(ranks.names)
    if len(states) > 1:
        try:
            merge = merging_kernel(form, states)
        except (PlanError, InputError):  # so merges are made by the library
            return None
    needed = {name: array for name, array in shard.tensors.items() if name in finished}
    finish = prepared_finish(form, state, needed, empty, backends[1])
    if finish is None:
        return None
    return Ready(ranks, torch.device(state.device), recipe, merge, finish, packing, word, window)
