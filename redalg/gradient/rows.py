"""Row values: the reductions that vary along no streamed axis, which the forward saves.

r_k = ⊕_B u(x, r_j)   j < k     inner ones first; each is a tensor to the expressions of the backward
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, final

from sympy import Expr

from redalg.expression import Element, Label, Reduce
from redalg.expression.contents import axes_by_name, elements_of, free_axes, reductions_of
from redalg.expression.rebuild import replace_nodes


@final
@dataclass(frozen=True)
class RowValues:
    """The row values of a function, and the names of the tensors that hold them."""

    names: Mapping[Reduce, str]

    @classmethod
    def of(cls, fused: Any, written: Mapping[str, Expr]) -> RowValues:
        """Those of its outputs' expressions."""
        cascades = [*(one.cascade for one in fused.earlier), fused.decomposition.cascade]
        streamed = {axis for one in cascades for axis in one.reduced_axes}
        taken = tensor_names(written.values()) | written.keys()
        found = {one for expr in written.values() for one in reductions_of(expr)}
        names = dict[Reduce, str]()
        for reduce in sorted(found, key=lambda one: (len(reductions_of(one)), str(one))):
            if reduce.place is None and not free_axes(reduce) & streamed:
                names[reduce] = untaken_name(f"row_{reduce.kind}", taken | set(names.values()), first=0)
        return cls(names)

    def element(self, reduce: Reduce) -> Element:
        """The element of the tensor that holds a row value."""
        return Element(Label(self.names[reduce]), *axes_by_name(free_axes(reduce)))

    def read(self, expr: Expr) -> Expr:
        """An expression with elements of tensors for its row values."""
        return replace_nodes(expr, {one: self.element(one) for one in self.names})

    def definition(self, reduce: Reduce) -> Reduce:
        """A row value as a reduction of the others' tensors."""
        return reduce.rebuilt(self.read(reduce.expr), reduce.bound)


def tensor_names(exprs: Iterable[Expr]) -> set[str]:
    """The names of the tensors that expressions read."""
    return {element.name for expr in exprs for element in elements_of(expr)}


def untaken_name(wanted: str, taken: set[str], *, first: int | None = None) -> str:
    """A name that is not taken: as wanted, or with a number behind it, which is there at once if `first` is given."""
    numbered = (f"{wanted}_{number}" for number in count(first or 0))
    names = numbered if first is not None else (name for part in ([wanted], numbered) for name in part)
    return next(name for name in names if name not in taken)
