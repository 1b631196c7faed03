"""Parts of the axis that is split, each of which has a state of its own: one for each rank, or of fixed length.

    parts of fixed length  cut where the whole says, not the ranks; copied, so that every part lies alike in memory
    merge                  a tree over the parts in order: it has one shape, however many ranks hold them

So the numbers do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from redalg.errors import InputError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm

Edges = list[tuple[int, int]]
"""(first, stop) of the parts of a rank, in the whole."""


def check_parts(parts: Any) -> None:
    """Refuse a number of parts that is none."""
    if parts is not None and (isinstance(parts, bool) or not isinstance(parts, int) or parts < 1):
        raise InputError(f"distributed: deterministic={parts!r} is no number of parts. Pass an int such as 64, a "
                         "multiple of every number of ranks that should agree, or leave it out.")  # fmt: skip


def part_edges(lengths: Sequence[int], parts: int | None, names: Sequence[int]) -> list[Edges]:
    """The parts of every rank, from the lengths of all shards; at most `parts` in all, or one a rank if it is None.

    Raises:
        InputError: a shard ends within a part.

    >>> part_edges([4, 2], 3, (0, 1))
    [[(0, 2), (2, 4)], [(4, 6)]]
    """
    stops = list(accumulate(lengths))
    firsts, total = [0, *stops[:-1]], stops[-1]
    if parts is None or total == 0:
        return [[edge] for edge in zip(firsts, stops, strict=True)]
    part = -(-total // parts)
    for name, stop in zip(names, stops, strict=True):
        if stop % part and stop != total:
            raise InputError(
                f"distributed: the shard of rank {name} ends at element {stop}, and deterministic={parts} cuts {total} "
                f"elements into parts of {part}: shards have to end at multiples of that. Give ranks whole parts."
            )
    return [[(at, min(at + part, total)) for at in range(first, stop, part)]
            for first, stop in zip(firsts, stops, strict=True)]  # fmt: skip


def part_tensors(form: FusedForm, tensors: Mapping[str, Any], axis: Axis, span: tuple[int, int]) -> dict[str, Any]:
    """Tensors of which those with an axis are copies of a part; `span` counts from their first element."""
    dimensions = {one.name: one.indices.index(axis) for one in form.cascade.elements() if axis in one.indices}
    first, stop = span
    return {name: array.narrow(dimensions[name], first, stop - first).clone(memory_format=torch.contiguous_format)
            if name in dimensions else array for name, array in tensors.items()}  # fmt: skip


def join_outputs(outputs: Sequence[Any], form: FusedForm, axis: Axis) -> Any:
    """The outputs of several parts together: along the axis if they have it, else those of the first."""
    if len(outputs) == 1:
        return outputs[0]

    def join(axes: tuple[Axis, ...], *arrays: torch.Tensor) -> torch.Tensor:
        return torch.cat(arrays, axes.index(axis)) if axis in axes else arrays[0]

    axes = [one.axes for one in form.outputs]
    if isinstance(outputs[0], torch.Tensor):
        return join(axes[0], *outputs)
    return type(outputs[0])(*map(join, axes, *outputs))


def map_outputs(change: Callable[..., torch.Tensor], outputs: Any, *others: Sequence[Any]) -> Any:
    """One output, or a namedtuple of them, with each changed; `others` have further arguments for each, in order.

    >>> map_outputs(lambda output, factor: factor * output, torch.ones(2), [3])
    tensor([3., 3.])
    """
    if isinstance(outputs, torch.Tensor):
        return change(outputs, *(arguments[0] for arguments in others))
    return type(outputs)(*map(change, outputs, *others))
