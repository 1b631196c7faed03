"""The places that kernels tell apart, and the numbers that they are given of a piece."""

from __future__ import annotations

from typing import Any

from sympy.core.relational import Relational

from redalg.expression import Axis
from redalg.expression.contents import elements_of, of_kind
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.inputs import Bound
from redalg.runtime.bind.places import axes_by_place, axes_in_arithmetic, leaf_exprs, placed_axes

MOST_COUNTED = 1 << 24
"""Elements that kernels count exactly: they count in float32."""
FARTHEST = 1 << 30
"""The place up to which kernels number elements by 32-bit integers."""


def axes_of_pieces(form: FusedForm) -> frozenset[Axis]:
    """The axes of which a piece needs to know its first place or the length of the whole."""
    return axes_by_place(form) | {axis for axis in form.cascade.axes() if axis.name in form.cascade.extents()}


def farthest_place(form: FusedForm, bound: Bound) -> int:
    """The place up to which a kernel tells elements apart."""
    return FARTHEST if compares_integers_alone(form, bound) else MOST_COUNTED


def compares_integers_alone(form: FusedForm, bound: Bound) -> bool:
    """Tell if places stand in comparisons of integers alone, which kernels make in integers."""
    if axes_in_arithmetic(form):
        return False
    compared = {one for one in of_kind(Relational, *leaf_exprs(form)) if placed_axes(one)}
    return all("int" in bound.dtypes[element.name] for one in compared for element in elements_of(one))


def integer_for(bound: Bound, number: int) -> Any:
    """A tensor of one integer, beside tensors bound as `bound` says; it is filled, so that a graph may capture it."""
    if bound.library == "torch":
        import torch

        return torch.full((), number, dtype=torch.int32, device=bound.device)
    import numpy as np

    return np.full((), number, np.int32)
