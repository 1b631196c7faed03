"""The agreement of ranks at a call, which spares later calls of the same kind the exchange of headers.

    kind      of every tensor dtype, device and shape; scalars, sizes and options. Without the length of the shard if
              neither the places of elements matter nor how many there are
    message   status  buffer …       status: 0 a state; 1 none, and the reason; 2 none: this call is of another kind

Every rank remembers the last agreement, and all remember the same. So a rank whose call is of another kind still knows
how long a message the others expect: it sends one that says so, and all exchange headers again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch

from redalg.decompose.cascade import Cascade
from redalg.distributed.parts import Edges
from redalg.distributed.shard import Shard, finished_elements
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.packing import Packing
from redalg.runtime.bind.places import places_matter


@final
@dataclass(frozen=True)
class Agreement:
    """An agreement of all ranks.

    Attributes:
        kind: of this rank's call.
        shard: this rank's, of the call at which it was made.
        edges: the parts of all ranks, of that call.
        packing: the layout of a state.
    """

    kind: Hashable
    shard: Shard
    edges: tuple[Edges, ...]
    packing: Packing

    @property
    def parts(self) -> int:
        """The buffers that a message has."""
        return max(1, *map(len, self.edges))


def needs_lengths(form: FusedForm, axis: Axis) -> bool:
    """Tell if a rank must know how long the shards of others are.

    So it is where places or the number of elements stand in an expression, and where an output has the split axis.
    """
    carried = any(axis in element.indices for element in finished_elements(form))
    return places_matter(form) or axis.name in form.cascade.extents() or carried


def may_learn_late(form: FusedForm, device: str) -> bool:
    """Tell if a rank may learn after a call that another failed: the outputs are NaN then, so all must be floats."""
    return device.startswith("cuda") and not any(slot.kind == "index" for slot in form.slots)


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
    """The mesh and the placements of a DTensor, and its shape, which says where shards end."""
    local = given.to_local() if hasattr(given, "to_local") else given
    return getattr(given, "device_mesh", None), getattr(given, "placements", None), tuple(given.shape), local.shape
