"""The shard of a rank: its tensors, checked; and, once all lengths are known, its place in the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch

from redalg.distributed.header import Header
from redalg.distributed.parts import part_tensors
from redalg.distributed.placements import MeshPlaces, local_tensors, to_local
from redalg.distributed.ranks import Ranks
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.runtime.bind.autocast import cast_as_autocast, multiplied_names
from redalg.runtime.bind.backends import ops_for
from redalg.runtime.bind.groups import check_by, check_grouped
from redalg.runtime.bind.identity import VERSION, identity
from redalg.runtime.bind.inputs import Bound, bind, dtypes_of_floats
from redalg.runtime.bind.leaf import check_piece_indices
from redalg.runtime.bind.places import finished_exprs, finished_producers, leaf_exprs


@final
@dataclass(frozen=True)
class Shard:
    """The tensors of a rank.

    Attributes:
        tensors: by name, as a leaf takes them; scalars too.
        bound: the same, checked.
        starts: first place of axes that are not reduced, where the tensors hold a part of them.
        places: where the tensors lie in a mesh, if they are DTensors.
        extents: sizes that no tensor of the rank has.
        first, total: of the split axis, the place of the shard's first element, and the elements of the whole.
        by, groups: the group of each of the shard's elements, and how many groups there are; None without groups.
    """

    tensors: Mapping[str, Any]
    bound: Bound
    starts: Mapping[Axis, int]
    places: MeshPlaces | None
    extents: Mapping[str, int]
    form: FusedForm
    first: int = 0
    total: int = 0
    by: Any = None
    groups: int | None = None

    @property
    def is_far(self) -> bool:
        """Tell if places of some rank lie beyond the integers that the dtype of arithmetic holds."""
        ends = [self.bound.sizes[axis.name] + first for axis, first in self.starts.items()]
        return max([self.total, *ends, *self.bound.sizes.values()]) > ops_for(self.bound, "torch").integers

    @property
    def state_form(self) -> FusedForm:
        """The form of the shard's state."""
        return self.form if self.groups is None else grouped_form(self.form)

    @property
    def state_sizes(self) -> dict[str, int]:
        """The sizes of axes, that of the groups too."""
        groups = {} if self.groups is None else {group_axis(self.form).name: self.groups}
        return {**self.bound.sizes, **groups}

    def with_tensors(self, inputs: Mapping[str, Any], by: Any) -> Shard:
        """The shard of another call of this kind."""
        if self.places is None:
            return replace(self, tensors=inputs, by=by)
        return replace(self, tensors={name: to_local(one) for name, one in inputs.items()}, by=by)

    def within(self, axis: Axis, first: int, total: int) -> Shard:
        """The shard, which begins at `first` of the `total` elements of the split axis."""
        reduced = {str(one.name) for one in self.form.cascade.reduced_axes} & set(self.form.cascade.extents())
        totals = {name: total if name == axis.name else self.bound.sizes[name] for name in reduced}
        return replace(self, extents={**self.extents, **totals}, first=first, total=total)

    def part(self, axis: Axis, edge: tuple[int, int], *, copied: bool) -> dict[str, Any]:
        """The tensors of a part, told by its place in the whole; the shard's own unless they are to be copied."""
        first, stop = edge
        span = first - self.first, stop - self.first
        return part_tensors(self.form, self.tensors, axis, span) if copied else dict(self.tensors)

    def part_keys(self, edge: tuple[int, int], *, copied: bool) -> Any:
        """The groups of the elements of a part, told as in `part`; None without groups."""
        return self.by[edge[0] - self.first : edge[1] - self.first] if copied and self.by is not None else self.by

    def in_mesh(self, output: Any, axes: Sequence[Axis]) -> Any:
        """An output as a tensor of the mesh in which the inputs lie."""
        return output if self.places is None else self.places.to_mesh(output, axes)


def shard_of(fused: Any, ranks: Ranks, axis: Axis, inputs: Mapping[str, Any], extents: Mapping[str, int]) -> Shard:
    """The shard that a rank was given: tensors and scalars by name, and sizes that no tensor has.

    Raises:
        InputError: they do not fit the expression, or are no tensors of torch.
    """
    foreign = [name for name in fused.form.cascade.inputs() if not isinstance(inputs.get(name, None), torch.Tensor)]
    if foreign and foreign[0] in inputs:
        raise InputError(f"distributed: tensor `{foreign[0]}` is a {type(inputs[foreign[0]]).__name__}, and process "
                         "groups send tensors of torch. Pass one.")  # fmt: skip
    if axis.name in extents:
        raise InputError(f"distributed: sizes gives axis {axis} a length, which is that of each rank's shard. Leave it "
                         "out.")  # fmt: skip
    local, starts, places = local_tensors(fused.form, cast_inputs(fused, inputs), axis, ranks)
    bound = bind(fused.form.cascade, local, extents, chunked=True)
    ranks.check_device(bound.device)
    return Shard(local, bound, starts, places, extents, fused.form)


def check_keys(form: FusedForm, by: Any, groups: Any, *, fixed: bool) -> tuple[Any, ...]:
    """The kind of the keys of a call by group, checked; `fixed`: parts are cut at fixed places.

    Raises:
        InputError: the function has no states by group, or the keys are no tensor of this rank.
    """
    check_by(by, groups, "distributed")
    if by is None:
        return ()
    check_grouped(form, "distributed")
    if type(by) is not torch.Tensor:
        raise InputError(f"distributed: by= holds the group of every element of this rank's shard, and is a "
                         f"{type(by).__name__}. Pass a tensor of torch: of a DTensor its `to_local()`.")  # fmt: skip
    if fixed and by.device.type != "cpu":
        raise InputError(f"distributed: elements of a group are added in any order on {by.device}, so that no call by "
                         "group is the same to the last bit. Leave `deterministic=` out.")  # fmt: skip
    return int(groups), by.dtype, by.device


def header_of(form: FusedForm, axis: Axis, bound: Bound, empty: str, **terms: Any) -> Header:
    """The header of a call with these bound tensors; `terms` are further fields."""
    own, split = identity(form), {axis.name, terms.get("rows_axis", "")}
    return Header(
        elements=bound.sizes[axis.name],
        state_format=VERSION,
        form=own.digest,
        meaning="; ".join(own.lines),
        axis=axis.name,
        device=bound.device.partition(":")[0],
        empty=empty,
        sizes={name: size for name, size in bound.sizes.items() if name not in split},
        dtypes=dtypes_of_floats(bound.dtypes),
        scalars={name: repr(number) for name, number in bound.scalars.items()},
        **terms,
    )


def cast_inputs(fused: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a call, those of products cast as autocast says."""
    multiplied = multiplied_names(fused)
    return {name: cast_as_autocast(one) if name in multiplied else one for name, one in inputs.items()}


def check_form(form: FusedForm, axis: Axis) -> None:
    """Refuse a form whose outputs cannot be made of shards along an axis: it would take a shard for the whole.

    Raises:
        InputError: no tensor has the axis, an index or an output needs more of it than a rank has, or an output that
            has the axis does not tell how long a shard is.
    """
    check_piece_indices(leaf_exprs(form), form, "distributed", beside=finished_exprs(form))
    check_piece_indices(finished_exprs(form), form, "distributed")
    if not any(axis in one.indices for one in form.cascade.elements()):
        raise InputError(f"distributed: no tensor has axis {axis}, so there is nothing to split. Call the function.")
    in_outputs = any(axis in one.indices for one in finished_elements(form))
    if in_outputs and any(axis in one.cascade.axes() for one in finished_producers(form)):
        raise InputError(f"distributed: an output sums over axis {axis} itself, of which a rank has a part. Give that "
                         "sum a reduction of its own, or pass it as a tensor.")  # fmt: skip
    carrying = [one for one in form.outputs if one.carries and axis in one.axes]
    lone = [one.name for one in carrying if not any(axis in at.indices for at in elements_of(one.expr))]
    if lone:
        raise InputError(f"distributed: output `{lone[0]}` has axis {axis}, and no tensor in it has, which would tell "
                         "how many of its elements belong to a rank. Make it of the other outputs.")  # fmt: skip


def finished_elements(form: FusedForm) -> set[Any]:
    """The tensor elements that outputs hold, which `finish` is given once more."""
    return {element for expr in finished_exprs(form) for element in elements_of(expr)}
