"""Reading tensors at axes and numbers, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from redalg.errors import InputError
from redalg.expression import Axis, Element

if TYPE_CHECKING:
    from redalg.incremental.arrays.evaluate import Scope


@final
class View:
    """Reads a tensor at axes and numbers: a view of it with one dimension per axis of the scope."""

    def __init__(self, node: Element, axes: tuple[Axis, ...]) -> None:
        self.node = node
        own = [index for index in node.indices if isinstance(index, Axis)]
        self._order = sorted(range(len(own)), key=lambda place: axes.index(own[place]))
        self._dims = tuple(axis if axis in own else None for axis in axes)

    def __call__(self, scope: Scope) -> Any:
        """The elements in the scope's ranges."""
        tensor, key = scope.tensors[self.node.name], list[Any]()
        for place, index in enumerate(self.node.indices):
            if isinstance(index, Axis):
                start, stop = scope.ranges[index]
                first = scope.offsets.get(index, 0)
                key.append(slice(start - first, stop - first))
            else:
                key.append(self._number(int(index), tensor.shape[place]))
        array = scope.ops.permute(tensor[tuple(key)], self._order)
        shape = []
        for axis in self._dims:
            start, stop = (0, 1) if axis is None else scope.ranges[axis]
            shape.append(stop - start)
        array = array.reshape(shape)
        return scope.ops.to_compute(array) if scope.ops.is_float(array) else array

    def _number(self, index: int, size: int) -> int:
        if not 0 <= index < size:
            raise InputError(f"`{self.node}`: index {index} is out of range for a dimension of {size} elements.")
        return index


def checked_index(node: Element, dim: int, at: Any, size: int, scope: Scope) -> Any:
    """The index array of a gather, clipped; the index of an element that counts must not leave its dimension."""
    index = node.indices[dim]
    first = scope.offsets.get(index, 0) if isinstance(index, Axis) else 0
    if scope.ops.is_float(at):
        raise InputError(f"`{node}`: index `{index}` is a floating-point number. Index by integers.")
    if str(at.dtype).removeprefix("torch.") == "bool":
        raise InputError(f"`{node}`: index `{index}` holds truth values. Index by integers, or choose by `ra.where`.")
    where = at - first + scope.ops.arange(0, 1)  # bytes would be taken for a mask
    outside = (where < 0) | (where >= size)
    if scope.live is not None:
        outside = outside & scope.live
    if bool(outside.any()):
        raise InputError(
            f"`{node}`: index `{index}` leaves the range of dimension {dim}, which has {size} elements. Mask it by "
            "`ra.where`, or mend the indices."
        )
    return where.clip(0, max(size - 1, 0))
