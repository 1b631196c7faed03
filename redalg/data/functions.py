"""A fused function as a data engine asks of it: what may be cut, what `finish` needs, and a name for it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from uuid import uuid4

from redalg.decompose.parse.written import unread_inputs
from redalg.decompose.verdict.passes import refuse_states
from redalg.errors import ExpressionError, InputError
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from redalg.fused import Fused
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.blocks import output_axes
from redalg.runtime.bind.leaf import check_piece_indices
from redalg.runtime.bind.places import finished_exprs, leaf_exprs, places_matter

BY_NUMPY = "library"
"""The backend of `leaf` and `merge`: engines give NumPy's arrays, and the default would import torch for them."""
Cuts = Mapping[str, tuple[Axis | None, ...]]
"""Tensor -> the axis that each dimension may be cut along; None where every piece needs all of it."""


def streamable_form(fused: Fused, caller: str) -> FusedForm:
    """The form of a function whose outputs a state gives by itself.

    Raises:
        InputError: it takes several passes, an output keeps a reduced axis, or a piece of a tensor is not enough.
    """
    refuse_states(caller, fused.cascade, fused.earlier)
    form = fused.form
    check_piece_indices((*leaf_exprs(form), *finished_exprs(form)), form, caller)
    kept = next((output for output in form.outputs if output.carries), None)
    if kept is not None:
        reduced = ", ".join(str(axis) for axis in kept.axes if axis in form.cascade.reduced_axes)
        raise InputError(
            f"{caller}: output `{kept.name}` keeps axis {reduced}, which is reduced: its elements need the data once "
            f"more, after the last piece was read. Reduce to values without {reduced} here, and compute the elements "
            "from them with the engine's own operations; or make the output piece by piece, `fused.finish(state, "
            "piece)`."
        )
    for name, axes in cut_dimensions(form).items():
        axis = next((axis for axis in axes if axis in form.cascade.reduced_axes), None)
        if axis is not None and name in finished_tensors(form):
            raise InputError(
                f"{caller}: an output holds tensor `{name}` outside of the reductions, and only pieces of it along "
                f"axis {axis} are at hand. Pass what the output needs as a tensor of another name."
            )
    return form


def orderless_form(fused: Fused, caller: str, engine: str) -> FusedForm:
    """The form of a function for an engine that gives rows in any order.

    Raises:
        InputError: it depends on the places of rows, or a state does not give its outputs by itself.
    """
    form = streamable_form(fused, caller)
    if places_matter(form):
        raise InputError(
            f"{caller}: the expression depends on the places of elements along {form.cascade.axis} (an index, a mask "
            f"by place, the order), and {engine} gives rows in any order. Reduce in the data's own order, "
            "`redalg.data.arrow.state_of`, or compare a column that holds the place."
        )
    return form


def cut_dimensions(form: FusedForm) -> dict[str, tuple[Axis | None, ...]]:
    """The axis that each dimension of every tensor may be cut along: reduced ones, and those of all outputs and values.

    A dimension that is read by other indices than one axis is whole, and so is each axis that reads it.

    >>> from redalg import axes, fuse, sum, tensor
    >>> i, j, n = axes("i j n")
    >>> cut_dimensions(fuse(sum(tensor("x[i,n]") * tensor("y[j,n]"), n), axes="i j").form)
    {'x': (i, n), 'y': (j, n)}
    """
    cascade = form.cascade
    indices: dict[str, list[set[object]]] = {}
    for element in cascade.elements():
        places = indices.setdefault(element.name, [set() for _ in element.indices])
        for place, index in zip(places, element.indices, strict=True):
            place.add(index)
    reduced = cascade.reduced_axes[:1] if form.is_ordered else cascade.reduced_axes
    whole = {index for places in indices.values() for place in places if len(place) > 1 for index in place}
    cut = {*reduced, *output_axes(cascade)} - whole
    return {name: tuple(_only(place & cut) for place in places) for name, places in indices.items()}


def _only(axes: set[object]) -> Axis | None:
    return next((axis for axis in axes if isinstance(axis, Axis)), None)


def finished_tensors(form: FusedForm) -> frozenset[str]:
    """The names of the tensors that stand in the outputs themselves, which `finish` needs."""
    return frozenset(element.name for expr in finished_exprs(form) for element in elements_of(expr))


def read_names(fused: Fused) -> tuple[list[str], list[str]]:
    """The tensors, and then the scalars, that the reductions read."""
    cascade = fused.form.cascade
    return list(cascade.inputs()), [scalar.name for scalar in cascade.scalars()]


def unread_names(fused: Fused) -> frozenset[str]:
    """The inputs that were written and that no reduction reads: they may be given, and change nothing."""
    return frozenset(unread_inputs(fused.written, [fused.decomposition.cascade]))


def definition_digest(fused: Fused) -> str:
    """A digest of the definition, the same in every process; a new one if no text can hold the definition."""
    try:
        return sha256(fused.to_json().encode()).hexdigest()
    except ExpressionError:
        return uuid4().hex
