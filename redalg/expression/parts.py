"""Parts of an axis, and expressions as the functions of a part read them.

k < length[b]   →  k + k_first < length[b]     where places are compared; k_first is an integer tensor
f(k)            →  f(k + k_start)              where they are numbers; k_start is a scalar
|k|             →  k_length                    the whole's, a scalar

Places at which tensors are read stay: a part of the tensor is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, final

from sympy import Expr
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression.axis import Axis, Extent, Scalar
from redalg.expression.contents import elements_of, of_kind
from redalg.expression.rebuild import with_args
from redalg.expression.tensor import Element, Label, Value


@final
@dataclass(frozen=True)
class Part:
    """A part of an axis: its elements from `start` to `stop`, of `length`."""

    axis: Axis
    start: int
    stop: int
    length: int

    @property
    def is_whole(self) -> bool:
        """True of the whole axis."""
        return self.stop - self.start == self.length

    def of(self, tensor: Any, indices: Sequence[Expr]) -> Any:
        """The part of a tensor that is read at these indices."""
        if self.axis not in indices:
            return tensor
        return tensor[(*[slice(None)] * indices.index(self.axis), slice(self.start, self.stop))]


@final
@dataclass(frozen=True)
class Places:
    """The names of an axis's numbers in the functions of a part.

    Attributes:
        axis: the axis.
        first, start: where the part begins, as an integer tensor and as a scalar.
        length: the scalar of the elements of the whole axis.
    """

    axis: Axis
    first: str
    start: str
    length: str

    @classmethod
    def of(cls, axis: Axis, fresh: Callable[[str], str]) -> Places:
        """Names that `fresh` makes of stems: those that nothing else has."""
        return cls(axis, *(fresh(f"{axis.name}_{one}") for one in ("first", "start", "length")))


def reads_in_parts(element: Element, axes: AbstractSet[Axis]) -> bool:
    """Tell if a tensor is read alike in a part of some axes: its index is one of them, or computed of other tensors."""
    names = {axis.name for axis in axes}
    return all(isinstance(index, Axis) or not _numbers_of(index) & names for index in element.indices)


def _numbers_of(index: Basic) -> frozenset[str]:
    """The axes of which places or lengths stand in an index, but for those at which it reads tensors."""
    if isinstance(index, Axis | Extent | Element):
        return frozenset() if isinstance(index, Element) else frozenset((str(index.name),))
    return frozenset().union(*map(_numbers_of, index.args))


def in_part(node: Basic, places: Sequence[Places], *, compared: bool = False) -> Expr:
    """An expression as a function of a part reads it; `compared` is true of the sides of a comparison of places."""
    for names in places:
        if node == names.axis:
            return node + (Element(Label(names.first)) if compared else Scalar(names.start))
        if isinstance(node, Extent) and node.name == names.axis.name:
            return Scalar(names.length)
    if isinstance(node, Element | Value) or not (of_kind(Axis, node) or of_kind(Extent, node)):
        return node
    if isinstance(node, Relational):
        compared = all(isinstance(side, Element) or not elements_of(side) for side in node.args)
    return with_args(node, [in_part(one, places, compared=compared) for one in node.args])
