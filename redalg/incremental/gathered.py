"""A form by group over elements in the order of their keys: a group is a row, which reads its own run of them.

    d[g] = ⊕_{n: key(n) = g} F(x[n], n)   →   d[g] = ⊕_{n < counts[g]} F(x'[p], order[p])
                                              p = min(first[g] + n, last[g])

`x'` is x in the order of keys, `order` the places that its elements had, `first` and `last` the ends of a group's run,
and `counts` its length. Exact where elements of a group keep their order. So the states of groups are those of rows of
different lengths, and have all their schedules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from sympy import And, Expr, Min
from sympy.core.basic import Basic

from redalg.expression import Axis, Element
from redalg.expression.rebuild import with_args
from redalg.expression.tensor import Label
from redalg.incremental.form import FusedForm
from redalg.incremental.grouped import group_axis, grouped_form
from redalg.incremental.mapped import map_form
from redalg.incremental.names_apart import names_apart

STEMS = ("group_order", "group_first", "group_last", "group_counts")
"""Of the names of the tensors that a form by group reads."""


@final
@dataclass(frozen=True)
class GatheredForm:
    """A form by group, and the integer tensors that it reads.

    Attributes:
        form: the form.
        order: the name of the tensor of the places that elements had.
        first, last, counts: those of each group's first and last element, and of the number of its elements.
    """

    form: FusedForm
    order: str
    first: str
    last: str
    counts: str


def with_gathered_groups(form: FusedForm) -> GatheredForm:
    """The form by group over elements in the order of their keys, of a form without sums within its terms."""
    axis, group = form.cascade.axis, group_axis(form)
    names = GatheredForm(form, *map(names_apart(form), STEMS))
    first, last = (Element(Label(one), group) for one in (names.first, names.last))
    run = Run(axis, Min(first + axis, last), names.order)
    grouped = map_form(grouped_form(form), run.read)
    within = axis < Element(Label(names.counts), group)
    cascade = replace(grouped.cascade, domain=And(within, grouped.cascade.domain))
    return replace(names, form=replace(grouped, cascade=cascade))


@final
@dataclass(frozen=True)
class Run:
    """A group's run of the elements.

    Attributes:
        axis: of the elements.
        place: of an element in the order of keys.
        order: the name of the tensor of the places that elements had.
    """

    axis: Axis
    place: Expr
    order: str

    def read(self, node: Any) -> Any:
        """An expression as elements of a run read it."""
        if node == self.axis:
            return Element(Label(self.order), self.place)
        if not isinstance(node, Basic) or self.axis not in node.free_symbols:
            return node
        if isinstance(node, Element):
            indices = (self.place if index == self.axis else self.read(index) for index in node.indices)
            return Element(node.label, *indices)
        return with_args(node, [self.read(one) for one in node.args])
