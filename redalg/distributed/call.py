"""A call across ranks: kind, leaf, message, merge, finish.

    1  a call of another kind than the last        headers are gathered (`header`): ranks that fail or differ stop all
    2  every rank makes the state of its shard     `start` is the sum of the lengths before it
    3  messages are gathered                       a rank without a state says so, and stops all
    4  every rank merges all states in order       the same operations on the same numbers: outputs agree bit by bit

So a call of the last kind is one collective, or none: small states of GPUs that read each other's memory are merged
where they lie, after one barrier (`exchange`, `window`). Large states are cut into slices, each of which one rank
merges: two collectives (`slices`), if the cost model says that this is sooner. With `deterministic` a shard has several
states, one for each of its parts (`parts`).

A rank that stops after 1 or 3 does so with all others, so that the group stays in step and may be used again. On CUDA
the host waits for nobody after 3, if all outputs are floats: where a rank has no state all outputs are NaN, and a later
call raises the error, or `check`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, final

import torch

from redalg.decompose.cascade import Cascade
from redalg.decompose.verdict.passes import refuse_states
from redalg.distributed.exchange import Choice, check_exchange, choose_exchange, exchange_in_words, reach_of_rank
from redalg.distributed.header import Header
from redalg.distributed.packed import ANEW, first_words, message_packing, slots_in, write_failure, write_slots
from redalg.distributed.parts import Edges, check_parts, join_outputs, map_outputs, part_edges, part_tensors
from redalg.distributed.protocol import Agreement, Protocol, call_device, call_kind, reason_of, refuse_transforms
from redalg.distributed.ranks import Ranks, group_ranks
from redalg.distributed.ready import MOST_READY, Ready, ready_call, signature
from redalg.distributed.rows import DistributedRows, check_rows
from redalg.distributed.shard import Shard, cast_inputs, check_form, check_keys, finished_elements, header_of, shard_of
from redalg.distributed.slices import Slices, check_sharded, choose_slices, slices_along, target_of_rank
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.dtypes import is_float
from redalg.incremental.grouped import group_axis
from redalg.runtime.bind.arrays import output_dtype
from redalg.runtime.bind.inputs import check_choice
from redalg.runtime.bind.options import named_sizes
from redalg.runtime.bind.packing import Packing
from redalg.runtime.bind.places import Boxes, axes_by_place, is_nothing, places_matter
from redalg.runtime.bind.state import copy_with

if TYPE_CHECKING:
    from redalg.incremental.form import FusedForm
    from redalg.runtime.bind.inputs import Bound
    from redalg.runtime.bind.options import Sizes
    from redalg.runtime.bind.state import State


@final
@dataclass(frozen=True)
class Terms:
    """The terms of calls of one kind.

    Attributes:
        shard: this rank's, of the call at which they were agreed.
        edges: the parts of all ranks, of that call.
        packing: the layout of a state, or of a slice of it.
        slices: those that ranks merge for each other; None if every rank merges whole states.
        late: this host does not wait for the statuses of other ranks.
        choice: the exchange of whole states; None of outputs that are split.
        ready: ready calls, by signature; None of one that has none.
        seen: the signatures of calls that were made.
    """

    shard: Shard
    edges: tuple[Edges, ...]
    packing: Packing
    slices: Slices | None
    late: bool
    choice: Choice | None = None
    ready: dict[Hashable, Ready | None] = field(default_factory=dict)
    seen: set[Hashable] = field(default_factory=set)


Agreed = Agreement[Terms]


@final
@dataclass(frozen=True)
class Distributed:
    """A fused function whose tensors are split along a reduced axis over the ranks of a group.

    Attributes:
        fused: the function.
        ranks: the group.
        axis: the reduced axis that is split.
        deterministic: the number of parts of the whole, each with a state of its own; None for one a rank.
        sharded: the free axis along which outputs are split: every rank has its slice; None for whole ones.
        backend: of leaves, merges and outputs; None for that of the tensors.
        exchange: of states: `"symmetric"` memory or `"gather"`; None for the one that the cost model chooses.

    >>> import redalg as ra, torch, torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> n = ra.axes("n")
    >>> spread = ra.fuse(ra.sum(ra.tensor("x[n]"), n)).distributed(axis="n")
    >>> spread(x=torch.tensor([1.0, 2.0])), spread.axis, spread.form is spread.fused.form
    (tensor(3.), n, True)
    >>> spread.check()
    >>> print(spread.explain())
    1 rank merges states of 16 bytes along n
        all-gather: 300 us predicted, taken
        symmetric memory: not possible: rank 0: the tensors lie on cpu
    >>> dist.destroy_process_group()
    """

    fused: Any
    ranks: Ranks
    axis: Axis
    deterministic: int | None = None
    sharded: Axis | None = None
    backend: str | None = None
    exchange: str | None = None

    @cached_property
    def _protocol(self) -> Protocol[Terms]:
        return Protocol(self.ranks)

    @cached_property
    def form(self) -> FusedForm:
        """The form of the function, whose states the ranks merge."""
        form: FusedForm = self.fused.form
        return form

    @cached_property
    def _needs_lengths(self) -> bool:
        """Tell if a rank must know how long the shards of others are."""
        return self.deterministic is not None or needs_lengths(self.form, self.axis)

    @cached_property
    def _output_elements(self) -> frozenset[Any]:
        """The tensor elements that outputs hold."""
        return frozenset(finished_elements(self.form))

    @property
    def _backend(self) -> str | None:
        """The backend of leaves and merges; a plan of a kernel, which may be tuned anywhere, decides no last bit."""
        return self.backend if self.deterministic is None else "library"

    @torch.compiler.disable  # a graph that is traced breaks here
    def __call__(self, /, *positional: Any, empty: str = "nan", sizes: Sizes | None = None, by: Any = None,
                 groups: int | None = None, **tensors: Any) -> Any:  # fmt: skip
        """The outputs for the whole, on every rank. Every rank of the group has to call it.

        The first call, and one with tensors of other shapes or dtypes, exchanges headers: two collectives. Others are
        one collective. On CUDA such a call waits for nobody where all outputs are floats, and CUDA graphs capture it.

        Args:
            positional, tensors: as in a call of the function; tensors of torch, those with the split axis hold this
                rank's shard of it. Shards lie in order of ranks, and may differ in length, or be empty. All other
                tensors are whole: they are not compared.
            empty, sizes: as in a call of the function; `sizes` gives axes that no tensor has.
            by: the group of every element of this rank's shard, an integer from 0 to `groups` - 1; every rank may have
                elements of any group. The states of all groups are merged, and every rank has the outputs of each.
            groups: the number of groups, the same on every rank.

        Returns:
            What a call gives; with `sharded` the rank's slice of it. An output that has the split axis is given for the
            rank's own shard. For tensors that are DTensors, DTensors; groups are whole on every rank.

        Raises:
            InputError: the tensors do not fit the expression on some rank, or ranks differ in the form, the sizes, the
                dtypes or the scalars. It is raised on every rank, and names the ranks. Where a call waits for nobody,
                its outputs are NaN, and `check` raises it, or one of the next calls: not the same one on every rank.
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        protocol = self._protocol
        if not (protocol.reports and torch.cuda.is_current_stream_capturing()):
            protocol.read_reports(waits=False)
        known, found = protocol.last, None
        key = None if sizes or by is not None or groups is not None else signature(positional, tensors, empty)
        ready = None if key is None or known is None else known.terms.ready.get(key)
        if ready is not None and known is not None:
            inputs = self.fused._bind(positional, tensors) if positional else tensors
            outputs = ready.run(protocol, inputs, late=known.terms.late)
            if outputs is not None:
                return self.fused._outputs(outputs)
        device = call_device(positional, tensors)
        with protocol.stops_all(device):
            refuse_transforms()
            check_choice("empty", empty, "distributed: ")
            inputs = self.fused._pass_inputs(self.fused._bind(positional, tensors))
            extents = named_sizes(self.fused.cascade, sizes, "distributed")
            lengthy = None if self._needs_lengths else self.axis
            of_keys = check_keys(self.form, by, groups, fixed=self.deterministic is not None)
            kind = call_kind(self.form.cascade, inputs, lengthy, (empty, *of_keys, *sorted(extents.items())))
        if known is not None and known.kind == kind:
            found = None if ready is not None else self._again(known, (inputs, by), empty)
            if found is not None:
                self._keep_ready(known, key, inputs, empty)
                return found[0]
        elif known is not None:
            protocol.ask_anew(known, late=known.terms.late)
        with protocol.stops_headers(device):
            shard = replace(shard_of(self.fused, self.ranks, self.axis, inputs, extents), by=by, groups=groups)
            if shard.places is not None and self.sharded in shard.places.axes:
                raise InputError(f"distributed: axis {self.sharded} is split over another dimension of the mesh, and "
                                 f"sharded={self.sharded} splits it over the group's. Leave one out.")  # fmt: skip
            header = self._header(shard, empty)
        agreed = protocol.agree(header, device, lambda headers: self._agreement(kind, shard, headers))
        agreed.terms.seen.add(key)
        messages, own = self._exchange(agreed, agreed.terms.shard)
        protocol.statuses(messages)
        return self._outputs(agreed, agreed.terms.shard, (messages, own), empty)

    def check(self) -> None:
        """Wait for the calls that were made, and raise the error of any that had no result.

        Raises:
            InputError: a rank made no state, or called with other tensors than the rest.
        """
        self._protocol.read_reports(waits=True)

    def explain(self) -> str:
        """The exchange of states on which ranks agreed at the last call of another kind, and the times by the model."""
        known = self._protocol.last
        if known is None:
            return "Ranks agree on an exchange when they are called."
        slices, size = known.terms.slices, len(self.ranks.names)
        return exchange_in_words(known.terms.choice, size, self.axis, None if slices is None else slices.axis)

    def _agreement(self, kind: Any, shard: Shard, headers: list[Header]) -> Agreed:
        """The agreement of all ranks, with this rank's place in the whole."""
        lengths = [one.elements for one in headers]
        edges = tuple(part_edges(lengths, self.deterministic, self.ranks.names))
        whole = shard.within(self.axis, sum(lengths[: self.ranks.number]), sum(lengths))
        bound = whole.bound
        far = whole.is_far and bool(axes_by_place(self.form))
        form, sizes = whole.state_form, whole.state_sizes
        packing = message_packing(form.slots, sizes, bound.compute, far=far)
        parts = max(1, *map(len, edges))
        late = not self._needs_lengths and whole.groups is None and may_learn_late(self.form, bound)
        size = len(self.ranks.names)
        choice, window = None, None
        if self.sharded is None:
            choice = choose_exchange(self.ranks, headers, parts * packing.nbytes, bound.device)
            window = choice.window
            slices = None if window else choose_slices(form, sizes, packing, (parts, size), headers[0].target)
        else:
            slices = slices_along(self.sharded, form, packing, sizes[self.sharded.name], size)
        of_message, rows = (packing, ()) if slices is None else (slices.packing, (size,))
        terms = Terms(whole, edges, of_message, slices, late, choice)
        return Agreement(kind, bound.device, parts * of_message.nbytes, terms, rows, window=window)

    def _again(self, known: Agreed, given: tuple[Mapping[str, Any], Any], empty: str) -> tuple[Any] | None:
        """The outputs of a call of a known kind; None if it is not that of all ranks, and they agree anew."""
        with self._protocol.stops_all(None):
            inputs, by = given
            shard = known.terms.shard.with_tensors(cast_inputs(self.fused, inputs), by)
        messages, own = self._exchange(known, shard)
        if not known.terms.late:
            if ANEW in self._protocol.statuses(messages):
                return None
        elif not torch.cuda.is_current_stream_capturing():
            self._protocol.keep_report(messages)
        return (self._outputs(known, shard, (messages, own), empty),)

    def _keep_ready(self, known: Agreed, key: Hashable, inputs: Mapping[str, Any], empty: str) -> None:
        """Keep what is left of a call that was made before: lengths that never come again are not worth a kept one."""
        terms = known.terms
        if key is None:
            return
        if len(terms.seen) >= MOST_READY:
            terms.seen.clear()
            terms.ready.clear()
        if key not in terms.seen:
            terms.seen.add(key)
            return
        if key in terms.ready or terms.slices is not None or self._needs_lengths or (
            known.device.startswith("cuda") and torch.cuda.is_current_stream_capturing()
        ):  # fmt: skip
            return
        names = {element.name for element in self._output_elements}
        terms.ready[key] = ready_call(
            self.fused, self.ranks, terms.shard.with_tensors(inputs, None), terms.packing, empty=empty,
            word=known.word, backends=(self._backend, self.backend), finished=names, window=known.window,
        )  # fmt: skip

    def _outputs(self, agreed: Agreed, shard: Shard, exchanged: tuple[torch.Tensor, State], empty: str) -> Any:
        """The outputs on this rank, of the states of all."""
        state = self.fused.merge(*self._states(agreed, shard, exchanged), backend=self._backend)
        slices = agreed.terms.slices
        if slices is not None and self.sharded is None:
            state = slices.join(state, self.ranks.gather(slices.buffer(state, agreed.device)))
        outputs = self._finish(agreed.terms, shard, state, empty)
        if agreed.terms.late:
            outputs = nan_where((first_words(exchanged[0]) != agreed.word).any(), outputs)
        return outputs if shard.places is None else self._in_mesh(shard, outputs)

    def _finish(self, terms: Terms, shard: Shard, state: State, empty: str) -> Any:
        """The outputs on this rank: part by part if they have the split axis, whose places tensors tell."""
        elements = self._output_elements
        names = {element.name for element in elements}
        if not any(self.axis in element.indices for element in elements):
            needed = {name: array for name, array in shard.tensors.items() if name in names}
            slices, number = terms.slices, self.ranks.number
            if self.sharded is None or slices is None:
                return self.fused.finish(state, needed, empty, shard.starts, backend=self.backend)
            needed = part_tensors(self.form, needed, self.sharded, slices.span(number))
            outputs = self.fused.finish(state, needed, empty, shard.starts, backend=self.backend)
            dimensions = [axes.index(self.sharded) for _, axes in self._named_axes(shard)]
            return map_outputs(partial(slices.keep_own, number), outputs, dimensions)
        found = []
        for edge in terms.edges[self.ranks.number] or [(shard.first, shard.first)]:
            tensors = shard.part(self.axis, edge, copied=self.deterministic is not None)
            needed = {name: array for name, array in tensors.items() if name in names}
            by = shard.part_keys(edge, copied=self.deterministic is not None)
            start = {**shard.starts, self.axis: edge[0]}
            found.append(self.fused.finish(state, needed, empty, start, by=by, backend=self.backend))
        return join_outputs(found, self.form, self.axis)

    def _header(self, shard: Shard, empty: str) -> Header:
        starts = {axis.name: first for axis, first in shard.starts.items()}
        parts = self.deterministic or 0
        target = target_of_rank(shard.bound.device)
        reach = reach_of_rank(self.ranks, torch.device(shard.bound.device))
        return header_of(self.form, self.axis, shard.bound, empty, starts=starts, deterministic=parts, target=target,
                         whole="" if shard.places is None else shard.places.global_lengths,
                         groups=shard.groups or 0, sharded=self.sharded.name if self.sharded else "",
                         exchange=self.exchange or "", **reach.fields)  # fmt: skip

    def _exchange(self, agreed: Agreed, shard: Shard) -> tuple[torch.Tensor, State]:
        """The messages of all ranks, a row for each, and a state of this rank, or the description of a slice of it."""
        own = agreed.terms.edges[self.ranks.number] or [(shard.first, shard.first)]
        message, slices = agreed.new_message(), agreed.terms.slices
        try:
            for number, edge in enumerate(own):
                tensors = shard.part(self.axis, edge, copied=self.deterministic is not None)
                start = {**shard.starts, self.axis: edge[0]} if self._needs_lengths else shard.starts
                by = shard.part_keys(edge, copied=self.deterministic is not None)
                state = self.fused.leaf(tensors, start, shard.extents, backend=self._backend, by=by,
                                        groups=shard.groups)  # fmt: skip
                if slices is None:
                    write_slots(state.slots, message, agreed.terms.packing, number)
                else:
                    slices.write(state, message, number)
        except Exception as error:
            write_failure(reason_of(error), message)
            agreed.exchange(self.ranks, message)
            raise
        return agreed.exchange(self.ranks, message), state if slices is None else slices.of_state(state)

    def _states(self, agreed: Agreed, shard: Shard, exchanged: tuple[torch.Tensor, State]) -> list[State]:
        """The states of the parts of all ranks, in order; those of others lie in this rank's memory."""
        messages, state = exchanged
        return [
            copy_with(state, slots=slots_in(row, agreed.terms.packing, number), places=self._places(shard, edge))
            for row, of_rank in zip(messages, agreed.terms.edges, strict=True) for number, edge in enumerate(of_rank)
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
        if self.sharded is not None and shard.places is not None:
            axes = tuple(self.sharded if one == self.axis else one for one in shard.places.axes)
            lengths = {**shard.places.lengths, self.sharded: shard.bound.sizes[self.sharded.name]}
            shard = replace(shard, places=replace(shard.places, axes=axes, lengths=lengths))
        named = self._named_axes(shard)
        if self.fused.single:
            return shard.in_mesh(outputs, named[0][1])
        arrays: Mapping[str, Any] = outputs._asdict()
        return type(outputs)(**{name: shard.in_mesh(arrays[name], axes) for name, axes in named})

    def _named_axes(self, shard: Shard) -> list[tuple[str, tuple[Axis, ...]]]:
        """The names of outputs and their axes, that of groups first."""
        groups = () if shard.groups is None else (group_axis(self.form),)
        return [(one.name, one.axes if one.carries else (*groups, *one.axes)) for one in self.fused.cascade.outputs]


def needs_lengths(form: FusedForm, axis: Axis) -> bool:
    """Tell if a rank must know how long the shards of others are.

    So it is where places or the number of elements stand in an expression, and where an output has the split axis.
    """
    carried = any(axis in element.indices for element in finished_elements(form))
    return places_matter(form) or axis.name in form.cascade.extents() or carried


def may_learn_late(form: FusedForm, bound: Bound) -> bool:
    """Tell if a rank may learn after a call that another failed: all outputs can be NaN then."""
    dtypes = (output_dtype(one, form, bound.result) for one in form.outputs)
    return bound.device.startswith("cuda") and all(map(is_float, dtypes))


def nan_where(failed: torch.Tensor, outputs: Any) -> Any:
    """One output or a namedtuple of them, NaN where a condition of one element holds, which the host does not read."""
    return map_outputs(lambda output: output.masked_fill(failed, torch.nan), outputs)


def distribute(
    fused: Any, group: Any, axis: Axis | str | None, deterministic: int | None,
    rows: Axis | str | None = None, *, zigzag: bool = False, sharded: Axis | str | None = None,
    exchange: str | None = None,
) -> Distributed | DistributedRows:  # fmt: skip
    """The function across the ranks of a group, split along a reduced axis (None: the only one), and along rows if any.

    Raises:
        InputError: there is no such group or axis, or the function cannot be split so.
    """
    refuse_states("distributed", fused.cascade, fused.earlier)
    form = fused.form
    split = axis_by_name(
        form.cascade, form.cascade.reduced_axes, axis, "axis", "is not reduced. States are merged along a reduced axis"
    )
    check_form(form, split)
    check_parts(deterministic)
    check_exchange(exchange, alone=rows is None and sharded is None)
    free = tuple(one for one in form.cascade.axes() if one not in form.cascade.reduced_axes)
    if rows is None:
        if zigzag:
            raise InputError("distributed: zigzag=True is an order of rows. Pass `rows=` too.")
        if sharded is None:
            return Distributed(fused, group_ranks(group), split, deterministic, exchange=exchange)
        kept = axis_by_name(
            form.cascade, free, sharded, "sharded", "is no free axis. Outputs are split along an axis that all have"
        )
        check_sharded(form, split, kept)
        return Distributed(fused, group_ranks(group), split, deterministic, kept)
    if sharded is not None:
        raise InputError("distributed: rows= splits the outputs along the rows. Leave `sharded=` out.")
    row = axis_by_name(
        form.cascade, free, rows, "rows", "is no free axis. Rows are split along an axis that outputs have"
    )
    check_rows(form, split, row)
    return DistributedRows(fused, group_ranks(group), split, row, zigzag, deterministic)


def axis_by_name(
    cascade: Cascade, axes: Sequence[Axis], given: Axis | str | None, option: str, fault: str
) -> Axis:  # fmt: skip
    """The axis of these that is given by itself or by name; None is the only one."""
    found = axes[0] if given is None and len(axes) == 1 else cascade.find_axis(given, axes)
    if found is None:
        raise InputError(f"distributed: {option}={given} {fault}: pass "
                         f"{' or '.join(f'{option}={one}' for one in axes)}.")  # fmt: skip
    return found
