"""A form of a piece whose places begin beyond 0: comparisons of places take run-time scalars, for kernels.

    k ≤ q   →   w + k ≤ q        w = start of k − start of q

Exact: elements are numbered from 0, and an affine comparison of places differs from that of the whole by a number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, final

from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.errors import PlanError
from redalg.expression import Axis, Element, Extent, Scalar, Value
from redalg.expression.contents import free_axes
from redalg.expression.rebuild import with_args
from redalg.incremental.form import FusedForm
from redalg.incremental.mapped import map_form

Shift = tuple[tuple[Axis, int], ...]
"""Axes, and how often the place of each stands in a comparison."""


@final
@dataclass(frozen=True)
class ShiftedForm:
    """A form whose comparisons of places take scalars.

    Attributes:
        form: the form.
        axes: those along which a piece may begin anywhere.
        shifts: of each scalar, how the starts of axes make it.
    """

    form: FusedForm
    axes: frozenset[Axis]
    shifts: Mapping[str, Shift]

    def scalars(self, start: Mapping[Axis, int]) -> dict[str, float]:
        """The scalars of a piece that starts there."""
        return {name: float(sum(times * start.get(axis, 0) for axis, times in shift))
                for name, shift in self.shifts.items()}  # fmt: skip


def shift_places(form: FusedForm, axes: Collection[Axis]) -> ShiftedForm:
    """The form with a scalar in every comparison that holds the place of one of some axes.

    An axis whose place stands elsewhere, or is multiplied, divided or rounded, stays as it is.
    """
    compared = frozenset(axis for axis in axes if is_compared_alone(form, axis))
    names = {*form.cascade.inputs(), *(str(one.name) for one in form.cascade.scalars())}
    shifting = Shifting(compared, names)
    shifted = map_form(form, shifting.change)
    return ShiftedForm(shifted, compared, {scalar.name: shift for shift, scalar in shifting.scalars.items()})


def is_compared_alone(form: FusedForm, axis: Axis) -> bool:
    """Tell if the places along an axis stand in affine comparisons and nowhere else."""
    try:
        map_form(form, Shifting(frozenset((axis,)), set()).change)
    except PlanError:
        return False
    return True


@final
class Shifting:
    """The rewrite of comparisons, and the scalars that it brings in."""

    def __init__(self, axes: frozenset[Axis], names: set[str]) -> None:
        """`names`: those that no scalar may have."""
        self.axes, self._names = axes, names
        self.scalars = dict[Shift, Scalar]()

    def change(self, node: Any) -> Any:
        """The expression with a scalar in every comparison of places.

        Raises:
            PlanError: a place stands elsewhere.
        """
        if isinstance(node, Relational) and (shift := self._shift_of(node)):
            return node.func(node.lhs + self._scalar_of(shift), node.rhs)
        if isinstance(node, Axis) and node in self.axes:
            raise PlanError(f"the place along axis {node} stands outside comparisons.")
        if isinstance(node, Element):
            computed = {one for index in node.indices if not isinstance(index, Axis) for one in free_axes(index)}
            if computed & self.axes:
                raise PlanError(f"`{node}` is read at a computed place.")
        if not isinstance(node, Basic) or not node.args or isinstance(node, Value | Element | Extent):
            return node
        return with_args(node, [self.change(part) for part in node.args])

    def _shift_of(self, relation: Relational) -> Shift:
        """The axes whose places stand in a comparison, and how often each does."""
        difference = (relation.lhs - relation.rhs).expand()
        shift = tuple((axis, difference.coeff(axis)) for axis in sorted(self.axes, key=str) if difference.coeff(axis))
        if shift and not all(times.is_Integer for _, times in shift):
            raise PlanError(f"the places in {relation} are multiplied.")
        if shift:
            self.change(difference - sum(times * axis for axis, times in shift))
        return tuple((axis, int(times)) for axis, times in shift)

    def _scalar_of(self, shift: Shift) -> Scalar:
        if shift not in self.scalars:
            stem = f"places_before_{len(self.scalars)}"
            name = next(f"{stem}{'_' * more}" for more in count() if f"{stem}{'_' * more}" not in self._names)
            self.scalars[shift] = Scalar(name)
        return self.scalars[shift]
