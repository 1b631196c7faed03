"""Write out an axis of known length: every slot that has the axis becomes one slot for each of its elements.

    a[b, j]  →  a_0[b], a_1[b], …          Σ_j f(a[b, j])  →  f(a_0[b]) + f(a_1[b]) + …
    out[b, j] = f(a[b, j])                 out[b, 0] = f(a_0[b]), out[b, 1] = f(a_1[b]), …

Exact: it is a change of names. Lowering uses it if an output sums reduced values over a short free axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from sympy import Add, Integer, Max, Min, Mul
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade
from redalg.expression import Axis, Label, Value
from redalg.expression.contents import free_axes, reductions_of, values_of
from redalg.incremental.form import FormOutput, FusedForm
from redalg.incremental.mapped import mapped_accumulator, mapped_output, mapped_pivot

LIMIT = 16
"""Longest axis that is written out."""
WRITTEN = {"sum": Add, "prod": Mul, "max": Max, "min": Min}
"""The operation between the elements that are written out, for each kind of reduction."""


def may_unroll(form: FusedForm, axis: Axis, length: int) -> bool:
    """Tell if an axis is short, and no tensor that is read or made has it; if not, it is a stage (`stages`)."""
    carried = any(axis in one.axes for one in form.outputs) or any(axis in one.axes for one in form.cascade.producers)
    nodes = [node for one in form.outputs for node in reductions_of(one.expr) if axis in node.bound]
    can_be_written = all(node.bound == (axis,) and node.kind in WRITTEN for node in nodes)
    return length <= LIMIT and not carried and can_be_written


def unroll_axis(form: FusedForm, axis: Axis, length: int) -> FusedForm:
    """The form with an axis of `length` elements written out."""
    return _Unrolling(axis, length).form(form)


def components_of(node: Any, axis: Axis, length: int) -> list[Any]:
    """An expression at every element of an axis."""
    unrolling = _Unrolling(axis, length)
    return [unrolling.at(node, place) for place in range(length)]


@final
class _Unrolling:
    def __init__(self, axis: Axis, length: int) -> None:
        self.axis, self.length = axis, length

    def at(self, node: Any, place: int) -> Any:
        """An expression at one element of the axis."""
        values = {one: self.slot(one, place) for one in values_of(node) if self.axis in one.indices}
        return node.xreplace(values).xreplace({self.axis: Integer(place)})

    def change(self, place: int) -> Callable[[Any], Any]:
        """A function that changes an expression to that at one element of the axis."""
        return lambda node: self.at(node, place)

    def slot(self, value: Value, place: int) -> Value:
        """The slot of one element."""
        indices = tuple(one for one in value.indices if one != self.axis)
        return Value(Label(f"{value.name}_{place}"), *indices) if len(indices) < len(value.indices) else value

    def each(self, node: Basic) -> range:
        """The elements for which a node is written out: all of the axis if it depends on the axis, else one."""
        return range(self.length) if self.axis in free_axes(node) else range(1)

    def unroll_sums(self, node: Any) -> Any:
        """Σ_j f(j) → f(0) + f(1) + …, and in the same way for the other kinds."""
        sums = {
            reduction: WRITTEN[reduction.kind](*(self.at(reduction.expr, place) for place in range(self.length)))
            for reduction in reductions_of(node)
            if reduction.bound == (self.axis,)
        }
        return node.xreplace(sums)

    def form(self, form: FusedForm) -> FusedForm:
        """Write out every part of a form."""
        return replace(
            form,
            cascade=self.cascade(form.cascade),
            extrema=tuple(
                replace(extremum, value=self.at(extremum.value, place), term=self.at(extremum.term, place))
                for extremum in form.extrema
                for place in self.each(extremum.value)
            ),
            pivots=tuple(
                mapped_pivot(pivot, self.change(place), self.change(place))
                for pivot in form.pivots
                for place in self.each(pivot.value)
            ),
            accumulators=tuple(
                mapped_accumulator(accumulator, self.change(place), self.change(place))
                for accumulator in form.accumulators
                for place in self.each(accumulator.value)
            ),
            assignments=tuple(
                replace(assignment, value=self.at(assignment.value, place), expr=self.at(assignment.expr, place))
                for assignment in form.assignments
                for place in self.each(assignment.value)
            ),
            outputs=tuple(
                self.output(output, place)
                for output in form.outputs
                for place in (range(self.length) if self.axis in output.axes else range(1))
            ),
        )

    def output(self, output: FormOutput, place: int) -> FormOutput:
        """An output at one element of the axis, stored where the caller has it; one without the axis as it is."""
        output = mapped_output(output, self.unroll_sums)
        if self.axis not in output.axes:
            return output
        caller, indices = output.caller_axes or output.axes, output.places or output.axes
        return replace(
            mapped_output(output, self.change(place)),
            axes=tuple(axis for axis in output.axes if axis != self.axis),
            caller_axes=caller,
            places=tuple(self.at(index, place) for index in indices),
        )

    def cascade(self, cascade: Cascade) -> Cascade:
        """The definition, written out in the same way."""
        reductions = tuple(
            replace(
                reduction,
                name=self.slot(reduction.value, place).name,
                term=self.at(reduction.term, place),
                axes=tuple(axis for axis in reduction.axes if axis != self.axis),
            )
            for reduction in cascade.reductions
            for place in self.each(reduction.value)
        )
        outputs = tuple(replace(one, expr=self.unroll_sums(one.expr)) for one in cascade.outputs)
        return replace(cascade, reductions=reductions, outputs=outputs)
