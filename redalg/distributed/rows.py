"""A call whose outputs are split along rows: shards of the streamed tensors travel around the ranks.

    1  ranks agree as in any other call (`protocol`)
    2  W times: the shard that is here is sent on, and the next one comes, while this rank makes the states of its rows
       over the shard that is here, and merges them
    3  every rank finishes its own rows
    4  statuses are gathered: a rank that failed within 2 or 3 says why, and all raise that

A pair of spans, of rows and of streamed elements, takes no work if the mask excludes it (`spans`). A rank that fails
still passes shards on, so that no other waits for them. Every rank merges shards as they come, and so in an order of
its own. With `deterministic` spans are cut at fixed places, and every pair has a state: those of a row are merged in
the order of the axis, once all are there. With `by=` the keys travel too, and a row has a state for every group.
Source: Liu et al. (2023), arXiv 2310.01889.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch

from redalg.distributed.header import Header
from redalg.distributed.packed import ANEW, write_failure
from redalg.distributed.parts import join_outputs, map_outputs
from redalg.distributed.placements import MeshPlaces, local_tensors, to_local
from redalg.distributed.protocol import Agreement, Protocol, call_device, call_kind, reason_of, refuse_transforms
from redalg.distributed.ranks import Ranks, Travel
from redalg.distributed.shard import cast_inputs, check_keys, finished_elements, header_of
from redalg.distributed.spans import Span, cut_spans, excludes, spans_in_order, spans_in_zigzag
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.incremental.grouped import grouped_form
from redalg.runtime.bind.blocks import whole_axes
from redalg.runtime.bind.groups import check_key_array
from redalg.runtime.bind.inputs import Bound, bind, by_name, check_choice, is_recorded, refuse_scalar_gradients
from redalg.runtime.bind.options import named_sizes

if TYPE_CHECKING:
    from redalg.incremental.form import FusedForm
    from redalg.runtime.bind.options import Sizes
    from redalg.runtime.bind.state import State

Tensors = Mapping[str, torch.Tensor]
BY = "by="
"""The groups among the tensors that travel: no tensor has such a name."""


@final
@dataclass(frozen=True)
class RowTerms:
    """The terms of calls of one kind.

    Attributes:
        rows, streamed: the spans of every rank along both axes.
        extents: sizes that no tensor has, and totals.
        starts: first place of the other free axes, where the tensors hold a part of them.
        places: where the tensors lie in a mesh, if they are DTensors.
        groups: how many groups the elements have; None without groups.
    """

    rows: list[list[Span]]
    streamed: list[list[Span]]
    extents: Mapping[str, int]
    starts: Mapping[Axis, int]
    places: MeshPlaces | None
    groups: int | None

    @property
    def has_elements(self) -> bool:
        """Tell if some rank has elements of the streamed axis."""
        return any(span.length for of_rank in self.streamed for span in of_rank)


Agreed = Agreement[RowTerms]


@final
@dataclass(frozen=True)
class DistributedRows:
    """A fused function whose outputs are split along a free axis over the ranks of a group, and its tensors along two.

    Attributes:
        fused: the function.
        ranks: the group.
        axis: the reduced axis that is split.
        rows: the free axis that is split.
        zigzag: every shard has two spans of either axis, one of the first half and one of the second.
        deterministic: the number of parts of both axes, each pair of which has a state of its own; None for spans.
        wide_travel: tensors with both axes travel: a shard of them has all rows. Else it has all of the reduced axis.

    >>> import redalg as ra, torch, torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x, w, n = *ra.tensors("x[b,n] w[n]"), ra.axes("n")
    >>> spread = ra.fuse(ra.sum(x * w, n), axes="b").distributed(axis="n", rows="b")
    >>> tensors = {"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "w": torch.ones(2)}
    >>> spread(**tensors), spread.form is spread.fused.form
    (tensor([3., 7.]), True)
    >>> spread.own_part(tensors)["x"].shape
    torch.Size([2, 2])
    >>> spread.check()
    >>> dist.destroy_process_group()
    """

    fused: Any
    ranks: Ranks
    axis: Axis
    rows: Axis
    zigzag: bool = False
    deterministic: int | None = None
    wide_travel: bool = False

    @cached_property
    def form(self) -> FusedForm:
        """The form of the function, whose states the ranks merge."""
        form: FusedForm = self.fused.form
        return form

    @property
    def _backend(self) -> str | None:
        """The backend of leaves and merges; a plan of a kernel, which may be tuned anywhere, decides no last bit."""
        return None if self.deterministic is None else "library"

    @cached_property
    def _protocol(self) -> Protocol[RowTerms]:
        return Protocol(self.ranks)

    @cached_property
    def _dimensions(self) -> dict[Axis, dict[str, int]]:
        """Of both axes the dimension that each tensor has for it, by name."""
        elements = self.form.cascade.elements()
        return {axis: {one.name: one.indices.index(axis) for one in elements if axis in one.indices}
                for axis in (self.axis, self.rows)}  # fmt: skip

    @torch.compiler.disable  # a graph that is traced breaks here
    def __call__(self, /, *positional: Any, empty: str = "nan", sizes: Sizes | None = None, by: Any = None,
                 groups: int | None = None, **tensors: Any) -> Any:  # fmt: skip
        """The outputs of this rank's rows. Every rank of the group has to call it.

        Args:
            positional, tensors: as in a call of the function; tensors of torch. Those with the reduced axis or the rows
                hold this rank's shard; those with both hold its rows, and all of the reduced axis. All others are
                whole.
            empty, sizes: as in a call of the function; `sizes` gives axes that no tensor has.
            by: the group of every element of this rank's shard of the reduced axis, an integer from 0 to `groups` - 1;
                it travels with the shard. A row has a state for every group.
            groups: the number of groups, the same on every rank.

        Returns:
            What a call gives, for this rank's rows. For tensors that are DTensors, DTensors with `Shard` along the
            rows, and along the free axes that are split over other dimensions of the mesh.

        Raises:
            InputError: the tensors do not fit the expression on some rank, ranks differ in the form, the sizes, the
                dtypes or the scalars, or a rank fails on the way. It is raised on every rank, and names the ranks; on
                CUDA the other ranks may learn of a failure on the way from `check`, or from their next call.
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        protocol = self._protocol
        device = call_device(positional, tensors)
        with protocol.stops_all(device):
            refuse_transforms()
            named = by_name(self.fused, positional, tensors) if positional else tensors
            check_options(self, named, by)
            of_keys = check_keys(self.form, by, groups, fixed=self.deterministic is not None)
            refuse_scalar_gradients(self.fused.passes.scalars, named)
        if is_recorded(named):
            from redalg.distributed.row_gradients import recorded_rows

            return recorded_rows(self, named, empty, named_sizes(self.fused.cascade, sizes, "distributed"))
        with protocol.stops_all(device):
            check_choice("empty", empty, "distributed: ")
            inputs = self.fused._pass_inputs(self.fused._bind((), named))
            extents = named_sizes(self.fused.cascade, sizes, "distributed")
            shape = () if by is None else (tuple(by.shape),)
            kind = call_kind(self.form.cascade, inputs, None, (empty, *of_keys, *shape, *sorted(extents.items())))
        known, cast = protocol.last, cast_inputs(self.fused, inputs)
        if known is not None and known.kind == kind:
            statuses = protocol.statuses(self.ranks.gather(known.new_message()))
            protocol.read_reports(waits=True)  # of the calls before, which are done
            if ANEW not in statuses:
                return self._outputs(known, (cast, by), empty)
        elif known is not None:
            protocol.ask_anew(known, late=False)
        with protocol.stops_headers(device):
            local, starts, places = local_tensors(self.form, cast, self.axis, self.ranks, self.rows)
            bound = self._bound(local, extents)
            self.ranks.check_device(bound.device)
            if by is not None:
                check_key_array(by, bound, self.axis, "distributed")
            layout = "zigzag" if self.zigzag else "in order"
            rows = {"rows": bound.sizes[self.rows.name], "rows_axis": self.rows.name, "layout": layout}
            header = header_of(self.form, self.axis, bound, empty, **rows, deterministic=self.deterministic or 0,
                               whole="" if places is None else places.global_lengths, groups=groups or 0,
                               starts={axis.name: first for axis, first in starts.items()})  # fmt: skip
            terms = RowTerms([], [], extents, starts, places, groups)
        agreed = protocol.agree(header, device, lambda headers: self._agreement(kind, bound, terms, headers))
        protocol.read_reports(waits=True)
        return self._outputs(agreed, (cast, by), empty)

    def check(self) -> None:
        """Wait for the calls that were made, and raise the error of one that failed on the way on some rank.

        Raises:
            InputError: a rank made no state of its rows.
        """
        self._protocol.read_reports(waits=True)

    def _outputs(self, agreed: Agreed, given: tuple[Mapping[str, Any], Any], empty: str) -> Any:
        """The outputs of this rank's rows, once all ranks say that they have theirs; given are tensors and keys."""
        inputs, by = given
        places = agreed.terms.places
        tensors = inputs if places is None else {name: to_local(one) for name, one in inputs.items()}
        ring = Ring(self, agreed.terms, tensors, by)
        outputs = ring.outputs(empty)
        message = agreed.new_message()
        if ring.failure is not None:
            write_failure(reason_of(ring.failure), message)
        messages = self.ranks.gather(message)
        if agreed.device.startswith("cuda"):
            self._protocol.keep_report(messages)
        if ring.failure is not None:
            raise ring.failure
        if not agreed.device.startswith("cuda"):
            self._protocol.statuses(messages)
        if places is None:
            return outputs
        return map_outputs(places.to_mesh, outputs, [one.axes for one in ring.state_form.outputs])

    def _bound(self, inputs: Mapping[str, Any], extents: Mapping[str, int]) -> Bound:
        """The tensors of a rank, checked; those with both axes for their own rows and streamed elements alone."""
        for name in self.form.cascade.inputs():
            if name in inputs and type(inputs[name]) not in (torch.Tensor, torch.nn.Parameter):
                raise InputError(f"distributed: tensor `{name}` is a {type(inputs[name]).__name__}, and rows are split "
                                 "of tensors of torch. Pass one.")  # fmt: skip
        return bind(self.form.cascade, self.own_part(inputs), extents, chunked=True)

    def own_part(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of which those with both axes are cut to as much of either as this rank has."""
        streamed, rows = self._dimensions[self.axis], self._dimensions[self.rows]
        whole, other = (rows, streamed) if self.wide_travel else (streamed, rows)
        lengths = {inputs[name].shape[place] for name, place in whole.items()
                   if name not in other and name in inputs and inputs[name].ndim > place}  # fmt: skip
        cut = dict(inputs)
        for name in streamed.keys() & rows.keys() & inputs.keys():
            cut[name] = inputs[name].narrow(whole[name], 0, min(lengths, default=0))
        return cut

    def _agreement(self, kind: Any, bound: Bound, own: RowTerms, headers: list[Header]) -> Agreed:
        """The agreement of all ranks; `own` has what this one knew before."""
        streamed, rows = [one.elements for one in headers], [one.rows for one in headers]
        names = self.ranks.names

        def spans(axis: Axis, lengths: list[int]) -> list[list[Span]]:
            found = spans_in_zigzag(lengths, names, axis) if self.zigzag else spans_in_order(lengths)
            return found if self.deterministic is None else cut_spans(found, self.deterministic, names, axis)

        totals = {self.axis.name: sum(streamed)} if self.axis.name in self.form.cascade.extents() else {}
        terms = replace(own, rows=spans(self.rows, rows), streamed=spans(self.axis, streamed),
                        extents={**own.extents, **totals})  # fmt: skip
        return Agreement(kind, bound.device, 0, terms)


@final
class Ring:
    """A call: the shard that is here, and the states of this rank's rows.

    Attributes:
        number, size: of this rank in the group, and of the group.
        streamed: the dimension along which each tensor that travels is cut into shards.
        travelling: the names of the tensors that travel.
        rows: for each span of rows of this rank, its tensors that do not travel.
        here: the tensors of the shard that is here, and the keys of its elements.
        steps: how many shards were here before it.
        states: for each span of rows, its state as merged so far; of a deterministic call the states of all streamed
            spans, by their first element.
        failure: the error of this rank, if it failed; it passes shards on all the same.
    """

    def __init__(self, of: DistributedRows, terms: RowTerms, tensors: Mapping[str, Any], by: Any = None) -> None:
        self.of, self.terms = of, terms
        self.number, self.size = of.ranks.number, len(of.ranks.names)
        self.state_form = of.form if by is None else grouped_form(of.form)
        streamed, rows = of._dimensions[of.axis], of._dimensions[of.rows]
        self.streamed = {**streamed, BY: 0}
        self.travelling = {name for name in streamed if of.wide_travel or name not in rows}
        self.rows = [self._of_rows(tensors, span) for span in terms.rows[self.number]]
        self.here: Tensors = {name: tensors[name].contiguous() for name in sorted(self.travelling)}
        if by is not None:
            self.here = {**self.here, BY: by.long().contiguous()}
        self.steps = 0
        self.states: list[dict[int, State]] = [{} for _ in self.rows]
        self.failure: Exception | None = None

    def _of_rows(self, tensors: Mapping[str, Any], span: Span) -> dict[str, Any]:
        """The tensors of a span of rows, but for those that travel."""
        rows = self.of._dimensions[self.of.rows]
        own = {name: tensor for name, tensor in tensors.items() if name not in self.travelling}
        return own | {name: self._part(own[name], rows[name], span.at, span.length) for name in rows if name in own}

    def _part(self, tensor: torch.Tensor, dimension: int, at: int, length: int) -> torch.Tensor:
        """A part of a tensor along a dimension, which lies alone in memory; a copy if the call is deterministic."""
        part = tensor.narrow(dimension, at, length)
        if self.of.deterministic is None:
            return part.contiguous()
        return part.clone(memory_format=torch.contiguous_format)

    @contextmanager
    def _goes_on(self) -> Iterator[None]:
        """Keep an error for the end: others wait for the shards that this rank passes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is raised when all shards were here
            self.failure = error

    def step(self) -> None:
        """Send the shard that is here on, and merge the states of this rank's rows over it."""
        owner = (self.number - self.steps) % self.size
        self.steps += 1
        travel = self._send((owner - 1) % self.size) if self.steps < self.size else None
        if self.failure is None:
            with self._goes_on():
                self._take_shard(owner)
        if travel is not None:
            self.here = travel.wait()

    def _take_shard(self, owner: int) -> None:
        """Merge the states of this rank's rows over the shard that is here, which is that of a rank."""
        for span in self.terms.streamed[owner]:
            here = {name: self._part(part, self.streamed[name], span.at, span.length)
                    for name, part in self.here.items()}  # fmt: skip
            for place, (rows, tensors) in enumerate(zip(self.terms.rows[self.number], self.rows, strict=True)):
                self._take(place, {self.of.rows: rows, self.of.axis: span}, {**tensors, **here})

    def _take(self, place: int, box: Mapping[Axis, Span], tensors: Mapping[str, Any]) -> None:
        """Merge the state of a pair of spans into that of its rows, unless the mask excludes the pair."""
        of, states = self.of, self.states[place]
        if self._skips(states, box):
            return
        streamed, rows = of._dimensions[of.axis], of._dimensions[of.rows]
        whole, span = (rows, box[of.rows]) if of.wide_travel else (streamed, box[of.axis])
        both = {name: self._part(tensors[name], whole[name], span.first, span.length)
                for name in streamed if name in rows}  # fmt: skip
        starts = {**self.terms.starts, **{axis: one.first for axis, one in box.items()}}
        inputs = {name: one for name, one in tensors.items() if name != BY} | both
        piece = of.fused.leaf(inputs, starts, self.terms.extents, backend=of._backend, by=tensors.get(BY),
                              groups=self.terms.groups)  # fmt: skip
        if of.deterministic is not None:
            states[box[of.axis].first] = piece
        else:
            states[0] = of.fused.merge(states[0], piece) if states else piece

    def _skips(self, states: Mapping[int, State], box: Mapping[Axis, Span]) -> bool:
        """Tell if a pair of spans takes no work; every span of rows has one state at least."""
        of, span = self.of, box[self.of.axis]
        if of.deterministic is None:
            return bool(states) and not of.form.structures and excludes(of.form.cascade.domain, box)
        if not span.length:
            return self.terms.has_elements  # which ranks have none decides no last bit
        return span.first > 0 and not of.form.structures and excludes(of.form.cascade.domain, box)

    def _send(self, owner: int) -> Travel:
        """The journey of the shard that is here to the next rank, and of another's to this one."""
        length = sum(span.length for span in self.terms.streamed[owner])
        shapes = {}
        for name, tensor in self.here.items():
            place = self.streamed[name]
            shapes[name] = (*tensor.shape[:place], length, *tensor.shape[place + 1 :])
        return self.of.ranks.send_on(self.here, shapes)

    def outputs(self, empty: str) -> Any:
        """The outputs of this rank's rows, when all shards were here; None if this rank failed."""
        while self.steps < self.size:
            self.step()
        if self.failure is None:
            with self._goes_on():
                return join_outputs(list(self._finish(empty)), self.state_form, self.of.rows)
        return None

    def _finish(self, empty: str) -> Iterator[Any]:
        names = {element.name for element in finished_elements(self.of.form)}
        for span, tensors, states in zip(self.terms.rows[self.number], self.rows, self.states, strict=True):
            needed = {name: one for name, one in tensors.items() if name in names}
            state = self.of.fused.merge(*(states[first] for first in sorted(states)), backend=self.of._backend)
            yield self.of.fused.finish(state, needed, empty, {**self.terms.starts, self.of.rows: span.first})


def check_options(call: DistributedRows, inputs: Mapping[str, Any], by: Any) -> None:
    """Refuse what a call whose rows are split does not do with keys, with DTensors, or with fixed parts.

    Raises:
        InputError: it is one of these.
    """
    if by is not None and is_recorded(inputs):
        raise InputError("distributed: a tensor requires a gradient, which calls by group have not. `detach` it.")
    in_mesh = next((name for name, one in inputs.items() if hasattr(one, "device_mesh")), None)
    if in_mesh is not None and call.zigzag:
        raise InputError(f"distributed: zigzag=True gives a rank two spans of the rows, and those of `{in_mesh}`, a "
                         "DTensor, follow each other. Pass local tensors, or leave it out.")  # fmt: skip
    if in_mesh is not None and is_recorded(inputs):
        raise InputError(f"distributed: `{in_mesh}` is a DTensor, and a tensor requires a gradient, which ranks may "
                         "hold parts of as sums. Pass local tensors, `to_local()`, or `detach` it.")  # fmt: skip
    if call.deterministic is not None and is_recorded(inputs):
        raise InputError("distributed: deterministic= cuts the forward at fixed places, and the backward computes over "
                         "all rows of a rank at once. Leave it out, or `detach` the tensors.")  # fmt: skip


def check_rows(form: FusedForm, axis: Axis, rows: Axis) -> None:
    """Refuse rows of which a rank's part has no outputs of its own.

    Raises:
        InputError: an output lacks the axis, or something is computed over the whole of it.
    """
    lacking = [one.name for one in form.outputs if rows not in one.axes]
    if lacking:
        raise InputError(f"distributed: rows={rows} is no axis of output `{lacking[0]}`. Rows are a free axis that all "
                         "outputs have; leave `rows=` out to have whole outputs on all ranks.")  # fmt: skip
    if rows.name in form.cascade.extents():
        raise InputError(f"distributed: rows={rows}: the extent of this axis stands in the expression, and a rank has "
                         "a part of it. Pass the number as a scalar.")  # fmt: skip
    if rows in whole_axes(form.cascade):
        raise InputError(f"distributed: rows={rows}: the expression sums over this axis on its own, and a rank has a "
                         "part of it. Give that sum a function of its own.")  # fmt: skip
    carried = [str(one) for one in sorted(finished_elements(form), key=str) if axis in one.indices]
    if carried:
        raise InputError(f"distributed: an output holds `{carried[0]}`, of which axis {axis} is split over ranks, and "
                         "its rows are split too. Leave `rows=` out, or give the sums as outputs.")  # fmt: skip
    if not any(axis in one.indices and rows not in one.indices for one in form.cascade.elements()):
        raise InputError(f"distributed: no tensor has axis {axis} without rows {rows}, so that nothing would travel. "
                         f"Call the function itself on the rows of each rank.")  # fmt: skip
