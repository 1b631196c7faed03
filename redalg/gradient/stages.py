"""The stages of a derivation: an expression as a cascade of the fewest passes, or as several if no passes make it.

e                     →  e with shared factors, axes of its own, operands of 16 bits (`spelling`), fused
e(⊕_B u, …)  if refused  →  r = ⊕_B u, e(r, …)         its outermost reductions, each a stage of its own
u(r) = max u(⊕_B v)      →  r = ⊕_B v, u(r) = max u(r)  where one holds another: both sides have the same roundings
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, final

from sympy import Eq, Expr

from redalg.decompose.parse.axes import outermost_reductions
from redalg.definition.outputs import result_dtype
from redalg.errors import ExpressionError, GradientError, NotDecided, NotFusible
from redalg.expression import Axis, Cast, Element, Label, Reduce
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind, reductions_of, sympy_text
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.reverse import holds_product
from redalg.gradient.rows import RowValues
from redalg.gradient.rows_apart import RowsApart
from redalg.gradient.spelling import (
    with_collected_sums,
    with_inner_sums,
    with_joined_exponentials,
    with_narrow_operands,
    with_own_axes,
    with_row_sums,
    with_shared_factors,
    with_told_lengths,
)
from redalg.gradient.stage import Stage, axes_text, dimension, second_axis
from redalg.lower_tile.ir.names import Names

PASSES = (1, 2, 3)
"""Passes over the data that a stage may take; it takes the fewest."""


@final
@dataclass(frozen=True)
class Stages:
    """The stages that are derived, in order.

    Attributes:
        fuse: the function that fuses (outputs, axes, passes), as the user's was.
        rows: the row values that stages read as tensors.
        names, axis_names: those of tensors and stages; of axes.
        dtypes: of the floating-point tensors that have 16 bits or fewer.
        found: the stages.
    """

    fuse: Callable[..., Any]
    rows: RowValues
    names: Names
    axis_names: Names
    dtypes: Mapping[str, str]
    found: list[Stage] = field(default_factory=list)

    @classmethod
    def of(cls, fused: Any, written: Mapping[str, Expr], rows: RowValues, names: Names,
           dtypes: Mapping[str, str]) -> Stages:  # fmt: skip
        """None yet, of a function."""
        fuse = partial(fused.of_outputs, once=holds_product(written.values()))
        axes = {axis.name for axis in of_kind(Axis, *written.values())}
        elements = of_kind(Element, *written.values())
        dimensions = {dimension(x.name, place) for x in elements for place in range(len(x.indices))}
        axes |= {axis.name for axis in (*dimensions, *map(second_axis, dimensions))}
        return cls(fuse, rows, names, Names(tuple(axes)), dtypes)

    def append(self, wanted: str, expr: Expr, order: tuple[Axis, ...], dtype: str | None = None) -> str:
        """Append a stage, in the fewest passes; its name. What no pass makes together are stages of their own.

        `dtype` is that of its result, if it is to be rounded.
        """
        expr = self._with_parts(wanted, expr, sums_compared(expr))
        shared = with_inner_sums(with_collected_sums(with_shared_factors(with_joined_exponentials(expr))))
        shared = self._with_rows_of_products(wanted, shared)
        if self.dtypes:
            shared = self.apart.of_products(shared)
        own, renamed = with_own_axes(
            self.rows.with_differences(self.rows.zero_empty_rows(self.rows.zero_without_weight(shared))),
            order,
            self.axis_names,
        )
        if not self.dtypes:
            own, lengths = with_told_lengths(own, self.axis_names)
            renamed |= lengths
        own = with_narrow_operands(own, self.dtypes)
        result = self.wide(own) if dtype is None else Cast(own, dtype)
        try:
            fused = self._function(wanted, result, order)
        except GradientError:
            apart = _apart(expr)
            if not apart:
                raise
            return self.append(wanted, self._with_parts(wanted, expr, apart), order, dtype)
        name = self.names.fresh(wanted)
        self.found.append(Stage(name, own if fused is None else result, order, fused, renamed))
        return name

    @cached_property
    def apart(self) -> RowsApart:
        """The numbers of rows that the stages of products read, each a stage of its own."""
        return RowsApart(self.rows, self.append, {*self.rows.names.values()})

    def _with_rows_of_products(self, wanted: str, expr: Expr) -> Expr:
        """An expression in which sums of rows of products are tensors, each from a stage of its own."""
        rows = dict[Expr, Element]()
        nested = with_row_sums(expr)
        known = {*outermost_reductions(expr)}
        for total in dict.fromkeys(one for one in outermost_reductions(nested) if one not in known):
            rows[total.expr] = self._part(wanted, total.expr)
        return replace_nodes(nested, rows)

    def wide(self, expr: Expr) -> Expr:
        """A number of a row, which is not rounded to 16 bits; a place is an integer."""
        return Cast(expr, "float32") if self.dtypes and result_dtype(expr) == "float64" else expr

    def _with_parts(self, wanted: str, expr: Expr, apart: Sequence[Reduce]) -> Expr:
        """An expression with tensors for some of its reductions, each from a stage of its own; those within first."""
        parts = dict[Expr, Element]()
        for reduce in sorted(apart, key=lambda each: (len(reductions_of(each)), sympy_text(each))):
            parts[reduce] = self._part(wanted, replace_nodes(reduce, parts))
        return replace_nodes(expr, parts | elsewhere(parts, expr))

    def _part(self, wanted: str, reduce: Reduce) -> Element:
        """A reduction within a stage, from a stage of its own."""
        own = axes_by_name(free_axes(reduce))
        return Element(Label(self.append(f"{wanted}_part", reduce, own)), *own)

    def _function(self, name: str, expr: Expr, order: Sequence[Axis]) -> Any:
        """A stage as a function of the axes that it has; None if it is a tensor as it stands, or a number."""
        if isinstance(expr, Element) or not elements_of(expr):
            return None
        own = order if reductions_of(expr) else [axis for axis in order if axis in free_axes(expr)]
        return of_fewest_passes(self.fuse, expr, axes_text(own), name)


def of_fewest_passes(fuse: Callable[..., Any], expr: Any, axes: str | None, name: str) -> Any:
    """An expression, or outputs by name, as a function of the fewest passes.

    Raises:
        GradientError: there is none of `PASSES`; `name` is what it was to make.
    """
    for passes in PASSES:
        try:
            return fuse(expr, axes, passes)
        except (NotFusible, NotDecided, ExpressionError) as error:
            refused = error
    raise GradientError(f"{name} = {expr} has no form of at most {PASSES[-1]} passes: {refused}")


def sums_compared(expr: Expr) -> list[Reduce]:
    """The reductions in terms that are compared with their extremum, but for products of matrices and their like.

    Two stages, or two places of one, may round a sum in two ways, so that no term would equal the extremum.
    """
    terms = [one for equal in of_kind(Eq, expr) for one in equal.args if isinstance(one, Reduce)]
    found = dict.fromkeys(inner for term in terms for inner in outermost_reductions(term.expr))
    return [one for one in found if reductions_of(one.expr) or len(free_axes(one)) < 2]


def elsewhere(parts: Mapping[Expr, Element], expr: Expr) -> dict[Expr, Element]:
    """The reductions of an expression that are a part at another place along one axis, and its element there."""
    found = dict[Expr, Element]()
    for reduce in reductions_of(expr) - parts.keys():
        for part, element in parts.items():
            own, others = free_axes(part) - free_axes(reduce), free_axes(reduce) - free_axes(part)
            if len(own) == len(others) == 1 and part.xreplace(place := dict(zip(own, others, strict=True))) == reduce:
                found[reduce] = element.xreplace(place)
    return found


def _apart(expr: Expr) -> list[Reduce]:
    """The reductions of an expression to make apart: the outermost ones, or those within the only one."""
    outer = list(dict.fromkeys(outermost_reductions(expr)))
    if len(outer) == 1 and expr == outer[0]:
        return list(dict.fromkeys(outermost_reductions(outer[0].expr)))
    return outer
