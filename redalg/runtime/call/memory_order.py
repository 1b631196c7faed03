"""Tensors whose dimensions lie in memory in another order than they are indexed: kernels index them as they lie.

x[b, h, q, d] of a tensor that is dense as (b, q, h, d)   →   x[b, q, h, d], and the tensor is passed as it lies

Exact: no element is copied. The last dimension stays last where a kernel multiplies matrices, where it writes along the
streamed axis, and where the plan is given: there neighbouring threads take neighbours of that axis. Other tensors are
copied, and those that hold places of others. A plan that was measured for contiguous tensors serves those whose last
dimension stays last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import Expr

from redalg.expression import Element
from redalg.expression.contents import elements_of
from redalg.incremental.form import FusedForm
from redalg.incremental.mapped import map_form
from redalg.incremental.remembered import Remembered
from redalg.runtime.bind.inputs import Bound, native
from redalg.runtime.call.prepared import Step

Orders = Mapping[str, tuple[int, ...]]
"""Tensor -> its dimensions in the order in which they lie."""
_FORMS: Remembered[dict[tuple[Any, ...], FusedForm]] = Remembered(lambda _: {})


def orders_in_memory(form: FusedForm, bound: Bound, *, planned: bool) -> Orders:
    """The tensors of a call that a kernel takes as they lie, though they are not contiguous.

    `planned`: the call's plan says which axis neighbouring threads take.
    """
    if bound.library != "torch":
        return {}
    elements, orders = form.cascade.elements(), dict[str, tuple[int, ...]]()
    places = {one.name for element in elements for index in element.indices for one in elements_of(index)}
    for name, tensor in bound.tensors.items():
        if name not in places and not tensor.is_contiguous() and (order := order_of(tensor)) is not None:
            orders[name] = order
    multiplies = bool(form.cascade.producers) or any(len(one.factors) > 1 for one in form.accumulators)
    last = {indices_in_order(one, orders)[-1] for one in elements if len(one.indices) > 1}
    if not (planned or multiplies or any(one.carries for one in form.outputs)) and len(last) == 1:
        return orders
    return {name: order for name, order in orders.items() if keep_last({name: order})}


def keep_last(orders: Orders) -> bool:
    """Tell if the last dimension of every tensor lies last."""
    return all(order[-1] == len(order) - 1 for order in orders.values())


def order_of(tensor: Any) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is dense; None if it is dense in none."""
    order = tuple(sorted(range(tensor.dim()), key=lambda place: (-tensor.stride(place), place)))
    return order if tensor.permute(order).is_contiguous() else None


def form_in_order(form: FusedForm, orders: Orders) -> FusedForm:
    """The form that indexes tensors in these orders; it is the same object for the same orders."""
    forms, key = _FORMS(form), tuple(sorted(orders.items()))
    if key not in forms:
        elements = (one for one in form.cascade.elements() if one.name in orders)
        moved = {one: Element(one.label, *indices_in_order(one, orders)) for one in elements}
        forms[key] = map_form(form, lambda node: node.xreplace(moved))
    return forms[key]


def indices_in_order(element: Element, orders: Orders) -> tuple[Expr, ...]:
    """The indices of an element in the order in which its tensor's dimensions lie."""
    order = orders.get(element.name)
    return element.indices if order is None else tuple(element.indices[place] for place in order)


def step_in_order(
    form: FusedForm, bound: Bound, orders: Orders, make: Callable[[FusedForm, Bound], Step]
) -> InMemoryOrder:
    """The step on tensors as they lie; `make` gives that of a form on contiguous ones."""
    moved = {name: bound.tensors[name].permute(order) for name, order in orders.items()}
    tensors = {**bound.tensors, **moved}
    return InMemoryOrder(make(form_in_order(form, orders), replace(bound, tensors=tensors)), orders)


@final
@dataclass(frozen=True)
class InMemoryOrder:
    """A step that takes some tensors with their dimensions in another order."""

    step: Step
    orders: Orders

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        moved = {name: native(inputs[name]).permute(order) for name, order in self.orders.items()}
        return self.step({**inputs, **moved})
