"""Tensors of a mesh (`DTensor`) as tensors of a rank, and outputs as tensors of the mesh again.

    dimension of the mesh      tensors that have the axis      the others       outputs
    that of the group          Shard along the split axis      Replicate        Replicate; Shard along the split axis
    the same, rows are split   Shard along the rows, else      Replicate        Shard along the rows
                               along the split axis
    any other, axis f is free  Shard along f                   Replicate        Replicate; Shard along f
    any other                  Replicate                       Replicate        Replicate

Anything else is refused: partial sums, an axis over two dimensions of the mesh, an axis that a product sums over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.distributed as dist

from redalg.distributed.ranks import Ranks
from redalg.errors import InputError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.blocks import whole_axes


@final
@dataclass(frozen=True)
class MeshPlaces:
    """The places of tensors in a mesh.

    Attributes:
        mesh: PyTorch's.
        axes: the axis that is split along each dimension of the mesh; None if none is.
        lengths: of these axes in the whole.
    """

    mesh: Any
    axes: tuple[Axis | None, ...]
    lengths: Mapping[Axis, int]

    @property
    def global_lengths(self) -> str:
        """The lengths in words, of which those of split axes are the same on all ranks."""
        return ", ".join(f"{axis}={length}" for axis, length in sorted(self.lengths.items(), key=str))

    def to_mesh(self, output: torch.Tensor, axes: Sequence[Axis]) -> Any:
        """An output with these axes, of which this rank holds a part, as a tensor of the mesh."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        places = {axis: Shard(dimension) for dimension, axis in enumerate(axes)}
        placements = [Replicate() if axis is None else places.get(axis, Replicate()) for axis in self.axes]
        shape = torch.Size(self.lengths.get(axis, size) for axis, size in zip(axes, output.shape, strict=True))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(output, self.mesh, placements, run_check=False, shape=shape, stride=stride)


@final
@dataclass(frozen=True)
class Split:
    """The dimension of a mesh that is the group's, and what is split over it: an axis, and the rows if any."""

    place: int
    axis: Axis
    rows: Axis | None = None

    def of_tensor(self, form: FusedForm, name: str) -> Axis:
        """The axis along which a tensor is split over the group, if it is."""
        has_rows = any(self.rows in one.indices for one in form.cascade.elements() if one.name == name)
        return self.rows if self.rows is not None and has_rows else self.axis

    @property
    def remedy(self) -> str:
        """The advice for tensors that are split otherwise."""
        rows = "" if self.rows is None else f", and tensors with axis {self.rows} along that,"
        split = f"This function is split along axis {self.axis}{rows} over dimension {self.place}"
        return f"{split}: pass all else whole, `Replicate()`."


def local_tensors(
    form: FusedForm, inputs: Mapping[str, Any], axis: Axis, ranks: Ranks, rows: Axis | None = None
) -> tuple[Mapping[str, Any], dict[Axis, int], MeshPlaces | None]:
    """The tensors of this rank, the first places of free axes of which they hold a part, and their mesh if any.

    Raises:
        InputError: some tensors are DTensors and some are not, or they are placed as this module does not take them.
    """
    tensors = {name: inputs[name] for name in form.cascade.inputs() if name in inputs}
    if all(type(tensor) is torch.Tensor for tensor in tensors.values()):  # DTensor's module need not be imported
        return inputs, {}, None
    from torch.distributed.tensor import DTensor

    in_mesh = {name: one for name, one in tensors.items() if isinstance(one, DTensor)}
    if not in_mesh:
        return inputs, {}, None
    first = next(iter(in_mesh))
    mesh = in_mesh[first].device_mesh
    for name in tensors:
        if name not in in_mesh:
            raise InputError(f"distributed: tensor `{first}` is a DTensor, and `{name}` is none. Pass it as "
                             f"`distribute_tensor({name}, mesh, …)`, or all of them as plain tensors.")  # fmt: skip
        if in_mesh[name].device_mesh != mesh:
            raise InputError(f"distributed: tensors `{first}` and `{name}` lie in different meshes. Place them in one.")
    return _of_mesh(form, inputs, in_mesh, Split(group_dimension(form, in_mesh, axis, ranks), axis, rows))


def _of_mesh(
    form: FusedForm, inputs: Mapping[str, Any], in_mesh: Mapping[str, Any], split: Split
) -> tuple[Mapping[str, Any], dict[Axis, int], MeshPlaces]:
    """The local tensors, the first places of axes that stay split, and the places of outputs."""
    mesh = next(iter(in_mesh.values())).device_mesh
    axes: list[Axis | None] = [None] * mesh.ndim
    sharded = [found for name, tensor in in_mesh.items() for found in sharded_axes(form, name, tensor)]
    for name, place, axis in sharded:
        axes[split.place] = own = split.of_tensor(form, name)
        if axis in (*form.cascade.reduced_axes, split.rows) and (axis, place) != (own, split.place):
            raise InputError(f"distributed: tensor `{name}` is split along axis {axis} over dimension {place} of its "
                             f"mesh. {split.remedy}")  # fmt: skip
        if axes[place] not in (None, axis) or any(one == axis for i, one in enumerate(axes) if i != place):
            raise InputError(f"distributed: tensor `{name}` is split along axis {axis} over dimension {place} of its "
                             f"mesh, over which {axes[place] or 'another dimension'} is split. Split an axis over one "
                             "dimension of the mesh, and all tensors alike.")  # fmt: skip
        if place != split.place:
            check_free(form, name, axis)
        axes[place] = axis
    lengths = dict[Axis, int]()
    for name, tensor in in_mesh.items():
        axes[split.place] = split.of_tensor(form, name)
        lengths |= dict(check_alike(form, name, tensor, axes))
    axes[split.place] = split.rows or split.axis
    starts = {axis: _span(lengths[axis], mesh, place)[0] for place, axis in enumerate(axes)
              if axis in lengths and place != split.place}  # fmt: skip
    local = {name: to_local(one) for name, one in inputs.items()}
    return local, starts, MeshPlaces(mesh, tuple(axes), lengths)


def to_local(given: Any) -> Any:
    """The part of a DTensor that this rank has; all else as it is."""
    return given.to_local() if hasattr(given, "to_local") else given


def group_dimension(form: FusedForm, in_mesh: Mapping[str, Any], axis: Axis, ranks: Ranks) -> int:
    """The dimension of the mesh whose ranks are those of the group; of several (of length 1) that of the split axis."""
    mesh = next(iter(in_mesh.values())).device_mesh
    places = [place for place in range(mesh.ndim)
              if tuple(dist.get_process_group_ranks(mesh.get_group(place))) == ranks.names]  # fmt: skip
    if not places:
        raise InputError(f"distributed: the tensors lie in {mesh}, no dimension of which has the group's ranks "
                         f"{', '.join(map(str, ranks.names))}. Pass `distributed((mesh, dimension), …)`.")  # fmt: skip
    if len(places) > 1:
        split = {place for name, tensor in in_mesh.items() for _, place, found in sharded_axes(form, name, tensor)
                 if found == axis}  # fmt: skip
        places = [place for place in places if place in split] or places
    return places[0]


def sharded_axes(form: FusedForm, name: str, tensor: Any) -> Iterator[tuple[str, int, Axis]]:
    """The axes along which a tensor is split: its name, the dimension of the mesh, and the axis."""
    from torch.distributed.tensor import Replicate, Shard

    for place, placement in enumerate(tensor.placements):
        if isinstance(placement, Replicate):
            continue
        if type(placement) is not Shard:
            raise InputError(
                f"distributed: tensor `{name}` is placed as {placement!r} over dimension {place} of its mesh. Bring it "
                f"to `Shard(…)` or `Replicate()` first, by `{name}.redistribute(placements=…)`."
            )
        found = {element.indices[placement.dim % tensor.ndim] for element in form.cascade.elements()
                 if element.name == name and len(element.indices) == tensor.ndim}  # fmt: skip
        if len(found) != 1 or not isinstance(next(iter(found)), Axis):
            shown = ", ".join(sorted(map(str, found))) or "none"
            raise InputError(
                f"distributed: tensor `{name}` is split along its dimension {placement.dim}, whose index in the "
                f"expression is {shown} and no single axis. Pass it whole: `Replicate()`."
            )
        yield name, place, next(iter(found))


def check_free(form: FusedForm, name: str, axis: Axis) -> None:
    """Refuse a split along an axis that a product or an output sums over, or whose extent the expression holds."""
    if axis in whole_axes(form.cascade):
        raise InputError(f"distributed: tensor `{name}` is split along axis {axis}, which the expression sums over on "
                         "its own: parts of it would be partial sums. Pass it whole: `Replicate()`.")  # fmt: skip
    if axis.name in form.cascade.extents():
        raise InputError(f"distributed: tensor `{name}` is split along axis {axis}, whose extent stands in the "
                         "expression. Pass it whole: `Replicate()`.")  # fmt: skip


def check_alike(form: FusedForm, name: str, tensor: Any, axes: Sequence[Axis | None]) -> Iterator[tuple[Axis, int]]:
    """The lengths of the axes of a tensor that are split; it must be split along all of these, as DTensor splits."""
    places = {axis: place for _, place, axis in sharded_axes(form, name, tensor)}
    indices = next((one.indices for one in form.cascade.elements() if one.name == name), ())
    for dimension, axis in enumerate(indices[: tensor.ndim]):
        if axis not in axes:
            continue
        place = axes.index(axis)
        if places.get(axis) != place:
            raise InputError(f"distributed: axis {axis} is split over dimension {place} of the mesh, and tensor "
                             f"`{name}` is whole along it. Place it as `Shard({dimension})` there.")  # fmt: skip
        length = tensor.shape[dimension]
        first, stop = _span(length, tensor.device_mesh, place)
        own = tensor.to_local().shape[dimension]
        if own != stop - first:
            raise InputError(f"distributed: tensor `{name}` has {own} elements of axis {axis} on this rank, and "
                             f"`Shard({dimension})` of {length} gives it {stop - first}. Pass shards of other lengths "
                             "as plain tensors.")  # fmt: skip
        yield axis, length


def _span(length: int, mesh: Any, place: int) -> tuple[int, int]:
    """The first element of this rank along a dimension of a mesh, and the end: as `torch.chunk` cuts."""
    part = -(-length // mesh.size(place))
    first = min(length, part * mesh.get_local_rank(place))
    return first, min(length, first + part)
