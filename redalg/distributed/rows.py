"""A call whose outputs are split along rows: shards of the streamed tensors travel around the ranks.

    1  ranks agree as in any other call (`protocol`)
    2  W times: the shard that is here is sent on, and the next one comes, while this rank makes the states of its rows
       over the shard that is here, and merges them
    3  every rank finishes its own rows

A pair of spans that the mask excludes takes no work (`spans`). Every rank merges shards in another order, and a rank
that fails within 2 keeps the others waiting for the group's timeout. Source: Liu et al. (2023), arXiv 2310.01889.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import torch

from redalg.distributed.header import Header
from redalg.distributed.packed import ANEW
from redalg.distributed.parts import join_outputs
from redalg.distributed.protocol import Agreement, Protocol, call_kind
from redalg.distributed.ranks import Ranks, Travel
from redalg.distributed.shard import cast_inputs, finished_elements, header_of
from redalg.distributed.spans import Span, excludes, spans_in_order, spans_in_zigzag
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.runtime.bind.blocks import whole_axes
from redalg.runtime.bind.inputs import Bound, bind, by_name, check_choice
from redalg.runtime.bind.options import named_sizes

if TYPE_CHECKING:
    from redalg.incremental.form import FusedForm
    from redalg.runtime.bind.options import Sizes
    from redalg.runtime.bind.state import State

Tensors = Mapping[str, torch.Tensor]


@final
@dataclass(frozen=True)
class RowTerms:
    """The terms of calls of one kind.

    Attributes:
        rows, streamed: the spans of every rank along both axes.
        extents: sizes that no tensor has, and totals.
    """

    rows: list[list[Span]]
    streamed: list[list[Span]]
    extents: Mapping[str, int]


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
    >>> dist.destroy_process_group()
    """

    fused: Any
    ranks: Ranks
    axis: Axis
    rows: Axis
    zigzag: bool = False
    wide_travel: bool = False

    @cached_property
    def form(self) -> FusedForm:
        """The form of the function, whose states the ranks merge."""
        form: FusedForm = self.fused.form
        return form

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
    def __call__(self, /, *positional: Any, empty: str = "nan", sizes: Sizes | None = None, **tensors: Any) -> Any:
        """The outputs of this rank's rows. Every rank of the group has to call it.

        Args:
            positional, tensors: as in a call of the function; tensors of torch. Those with the reduced axis or the rows
                hold this rank's shard; those with both hold its rows, and all of the reduced axis. All others are
                whole.
            empty, sizes: as in a call of the function; `sizes` gives axes that no tensor has.

        Returns:
            What a call gives, for this rank's rows.

        Raises:
            InputError: the tensors do not fit the expression on some rank, or ranks differ in the form, the sizes, the
                dtypes or the scalars. It is raised on every rank, and names the ranks.
            BackendError: a rank is gone, or has not come within the group's timeout.
        """
        protocol = self._protocol
        device = next((one.device for one in (*positional, *tensors.values()) if isinstance(one, torch.Tensor)), None)
        with protocol.stops_all(device):
            named = by_name(self.fused.inputs, positional, tensors) if positional else tensors
        if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in named.values()):
            from redalg.distributed.row_gradients import recorded_rows

            return recorded_rows(self, named, empty, named_sizes(sizes or {}, "distributed"))
        with protocol.stops_all(device):
            check_choice("empty", empty, "distributed: ")
            inputs = self.fused._pass_inputs(self.fused._bind((), named))
            extents = named_sizes(sizes or {}, "distributed")
            kind = call_kind(self.form.cascade, inputs, None, (empty, *sorted(extents.items())))
        known, cast = protocol.last, cast_inputs(self.fused, inputs)
        if known is not None and known.kind == kind:
            if ANEW not in protocol.statuses(self.ranks.gather(known.new_message())):
                return Ring(self, known.terms, cast).outputs(empty)
        elif known is not None:
            protocol.ask_anew(known, late=False)
        with protocol.stops_headers(device):
            bound = self._bound(cast, extents)
            layout = "zigzag" if self.zigzag else "in order"
            rows = {"rows": bound.sizes[self.rows.name], "rows_axis": self.rows.name, "layout": layout}
            header = header_of(self.form, self.axis, bound, empty, **rows)
        agreed = protocol.agree(header, device, lambda headers: self._agreement(kind, bound, extents, headers))
        return Ring(self, agreed.terms, cast).outputs(empty)

    def _bound(self, inputs: Mapping[str, Any], extents: Mapping[str, int]) -> Bound:
        """The tensors of a rank, checked; those with both axes for their own rows and streamed elements alone."""
        for name in self.form.cascade.inputs():
            if name in inputs and type(inputs[name]) not in (torch.Tensor, torch.nn.Parameter):
                raise InputError(f"distributed: tensor `{name}` is a {type(inputs[name]).__name__}, and rows are split "
                                 "of plain tensors of torch. Pass one: of a DTensor its `to_local()`.")  # fmt: skip
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

    def _agreement(self, kind: Any, bound: Bound, extents: Mapping[str, int], headers: list[Header]) -> Agreed:
        """The agreement of all ranks."""
        streamed, rows = [one.elements for one in headers], [one.rows for one in headers]
        names = self.ranks.names

        def spans(axis: Axis, lengths: list[int]) -> list[list[Span]]:
            return spans_in_zigzag(lengths, names, axis) if self.zigzag else spans_in_order(lengths)

        totals = {self.axis.name: sum(streamed)} if self.axis.name in self.form.cascade.extents() else {}
        terms = RowTerms(spans(self.rows, rows), spans(self.axis, streamed), {**extents, **totals})
        return Agreement(kind, bound.device, 0, terms)


@final
class Ring:
    """A call: the shard that is here, and the states of this rank's rows."""

    def __init__(self, of: DistributedRows, terms: RowTerms, tensors: Mapping[str, Any]) -> None:
        self.of, self.terms = of, terms
        self.number, self.size = of.ranks.number, len(of.ranks.names)
        streamed, rows = of._dimensions[of.axis], of._dimensions[of.rows]
        self.travelling = {name for name in streamed if of.wide_travel or name not in rows}
        self.rows = [self._of_rows(tensors, span) for span in terms.rows[self.number]]
        self.here: Tensors = {name: tensors[name].contiguous() for name in sorted(self.travelling)}
        self.steps = 0
        self.states: list[State | None] = [None] * len(self.rows)

    def _of_rows(self, tensors: Mapping[str, Any], span: Span) -> dict[str, Any]:
        """The tensors of a span of rows, but for those that travel."""
        rows = self.of._dimensions[self.of.rows]
        own = {name: tensor for name, tensor in tensors.items() if name not in self.travelling}
        return own | {name: _part(own[name], rows[name], span.at, span.length) for name in rows if name in own}

    def step(self) -> None:
        """Send the shard that is here on, and merge the states of this rank's rows over it."""
        owner = (self.number - self.steps) % self.size
        self.steps += 1
        travel = self._send((owner - 1) % self.size) if self.steps < self.size else None
        for span in self.terms.streamed[owner]:
            along = self.of._dimensions[self.of.axis]
            here = {name: _part(part, along[name], span.at, span.length) for name, part in self.here.items()}
            for place, (rows, tensors) in enumerate(zip(self.terms.rows[self.number], self.rows, strict=True)):
                self._take(place, {self.of.rows: rows, self.of.axis: span}, {**tensors, **here})
        if travel is not None:
            self.here = travel.wait()

    def _take(self, place: int, box: Mapping[Axis, Span], tensors: Mapping[str, Any]) -> None:
        """Merge the state of a pair of spans into that of its rows, unless the mask excludes the pair."""
        of, state = self.of, self.states[place]
        if state is not None and (not of.form.structures and excludes(of.form.cascade.domain, box)):
            return
        streamed, rows = of._dimensions[of.axis], of._dimensions[of.rows]
        whole, span = (rows, box[of.rows]) if of.wide_travel else (streamed, box[of.axis])
        both = {name: _part(tensors[name], whole[name], span.first, span.length) for name in streamed if name in rows}
        piece = of.fused.leaf({**tensors, **both}, {axis: one.first for axis, one in box.items()}, self.terms.extents)
        self.states[place] = piece if state is None else of.fused.merge(state, piece)

    def _send(self, owner: int) -> Travel:
        """The journey of the shard that is here to the next rank, and of another's to this one."""
        length = sum(span.length for span in self.terms.streamed[owner])
        dimensions = self.of._dimensions[self.of.axis]
        shapes = {}
        for name, tensor in self.here.items():
            place = dimensions[name]
            shapes[name] = (*tensor.shape[:place], length, *tensor.shape[place + 1 :])
        return self.of.ranks.send_on(self.here, shapes)

    def outputs(self, empty: str) -> Any:
        """The outputs of this rank's rows, when all shards were here."""
        while self.steps < self.size:
            self.step()
        return join_outputs(list(self._finish(empty)), self.of.form, self.of.rows)

    def _finish(self, empty: str) -> Iterator[Any]:
        names = {element.name for element in finished_elements(self.of.form)}
        for span, tensors, state in zip(self.terms.rows[self.number], self.rows, self.states, strict=True):
            needed = {name: one for name, one in tensors.items() if name in names}
            yield self.of.fused.finish(state, needed, empty, {self.of.rows: span.first})


def _part(tensor: torch.Tensor, dimension: int, at: int, length: int) -> torch.Tensor:
    """A part of a tensor along a dimension, which lies alone in memory."""
    return tensor.narrow(dimension, at, length).contiguous()


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
