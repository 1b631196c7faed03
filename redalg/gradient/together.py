"""Stages of one pass: rows that are read once, and products whose operands are computed of the same products.

a[r, c] = f(x[r, c], Σ_c …);  b[c] = Σ_r g(x[r, c])              →  both over r, with Σ_m in place of a's own Σ_c
a[r] = Σ_e …;  z[r] = f(…) or Σ_e …                              →  both of one pass, where neither reads the other
a[r, d] = Σ_q u(s)·X[q, d];  b[r, e] = Σ_q v(s)·Y[q, e]          →  both over q, with one column for d and e
where s[r, q] = Σ_c …                                               if these have one size when it runs
a[x, d] = Σ_y w(x, y)·U[y, d];  b[y, e] = Σ_x w(x, y)·T[x, e]    →  of one operand w (`operand`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import final

from sympy import Expr

from redalg.decompose.parse.axes import outermost_reductions
from redalg.errors import GradientError
from redalg.expression import Axis, Cast
from redalg.expression.contents import inner_reductions
from redalg.expression.rebuild import replace_nodes
from redalg.gradient.operand import OperandStage, shared_operand
from redalg.gradient.stage import AnyStage, JointStage, Stage, axes_text
from redalg.gradient.stages import Stages, of_fewest_passes


def join_stages(stages: Sequence[Stage], make: Stages) -> list[AnyStage]:
    """The stages, in order, with those of one pass as one; then those of one operand, of what is left.

    Of tensors in more than 16 bits, rows and columns alone.
    """
    joins = Joins(make)
    found = join_by(joins.of_rows_and_columns, stages)
    return join_by(joins.of_one_operand, join_by(joins.of_one_pass, found)) if make.dtypes else found


def join_by(join: Callable[[Stage, Sequence[Stage]], Iterator[AnyStage | None]],
            stages: Sequence[AnyStage]) -> list[AnyStage]:  # fmt: skip
    """The stages, in order; `join` yields what a stage may be made with, of those that may run as early."""
    left, found = list(stages), list[AnyStage]()
    while left:
        first = left.pop(0)
        names = {part.name for stage in (first, *left) for part in stage.parts}
        others = [one for one in left if isinstance(one, Stage) and not one.inputs & names]
        tried = join(first, others) if isinstance(first, Stage) else iter(())
        joint = next((one for one in tried if one is not None), None)
        found.append(first if joint is None else joint)
        left = left if joint is None else [one for one in left if one not in joint.parts]
    return found


@final
class Joins:
    """Tries what a stage may be made with."""

    def __init__(self, make: Stages) -> None:
        self.make = make

    def of_rows_and_columns(self, first: Stage, others: Sequence[Stage]) -> Iterator[JointStage | None]:
        """Yield a tensor whose rows are reduced and written with the sums of its columns; None where no form does."""
        group = [one for one in (first, *others) if not inner_reductions(one.expr)]
        for row in group:
            along = _bound_axes(row)
            across = {*row.axes} - along
            columns = [one for one in group if {*one.axes} == along and _bound_axes(one) == across]
            if columns and along < {*row.axes} and first in (row, *columns):
                yield self._with_columns(row, columns)

    def _with_columns(self, row: Stage, columns: Sequence[Stage]) -> JointStage | None:
        """Columns that are summed over rows, and the rows: their own reductions bind other axes."""
        own = {axis: axis.renamed(self.make.axis_names.fresh(axis.name)) for axis in sorted(_bound_axes(row), key=str)}
        reductions = {one: one.xreplace(own) for one in outermost_reductions(row.expr)}
        exprs = [*(part.expr for part in columns), replace_nodes(row.expr, reductions)]
        renamed = {new.name: old.name for old, new in own.items()}
        return self._join((*columns, row), exprs, axes=[part.axes for part in (*columns, row)], renamed=renamed)

    def of_one_pass(self, first: Stage, others: Sequence[Stage]) -> Iterator[JointStage | None]:
        """Yield a stage with others of the same rows; None where no form makes them together."""
        rows = [] if inner_reductions(first.expr) else [one for one in others if _is_alike(first, one)]
        if rows and any(one.fused is not None for one in (first, *rows)):
            alike = (first, *rows)
            yield self._join(alike, [self._as_row(part.expr) for part in alike], [part.axes for part in alike])
        has_columns = bool(first.axes) and bool(inner_reductions(first.expr))
        for other in others if has_columns else ():
            if other.axes and inner_reductions(other.expr) and other.axes[:-1] == first.axes[:-1]:
                yield self._with_column((first, other))

    def of_one_operand(self, first: Stage, others: Sequence[Stage]) -> Iterator[OperandStage | None]:
        """Yield a product with others; None where they share no operand."""
        for other in others:
            if inner_reductions(first.expr) and inner_reductions(other.expr):
                yield shared_operand((first, other), self.make)

    def _as_row(self, expr: Expr) -> Expr:
        """A number of a row, which is not rounded to 16 bits."""
        return expr if isinstance(expr, Cast) else self.make.wide(expr)

    def _with_column(self, parts: tuple[Stage, ...]) -> JointStage | None:
        """Stages of products over one axis, with one column; None if nothing that they compute is the same."""
        column = Axis(self.make.axis_names.fresh(parts[0].axes[-1].name))
        exprs = [part.in_axes_of_inputs(column) for part in parts]
        bound = {one.bound for expr in exprs for one in outermost_reductions(expr)}
        shared = set.intersection(*({*inner_reductions(expr)} for expr in exprs))
        order = (*parts[0].axes[:-1], column)
        if len(bound) != 1 or not shared:
            return None
        alike = tuple(part.axes[-1].name for part in parts)
        return self._join(parts, exprs, [order] * len(parts), {column.name: alike[0]}, alike)

    def _join(
        self, parts: tuple[Stage, ...], exprs: Sequence[Expr], axes: Sequence[tuple[Axis, ...]],
        renamed: Mapping[str, str] | None = None, alike: tuple[str, ...] = (),
    ) -> JointStage | None:  # fmt: skip
        """The stages as one function; None if no form makes them in one pass."""
        orders = map(axes_text, axes)
        outputs = {part.name: (expr, order) for part, expr, order in zip(parts, exprs, orders, strict=True)}
        try:
            fused = of_fewest_passes(self.make.fuse, outputs, None, "stages together")
        except GradientError:
            return None
        own = {new: old for part in parts for new, old in part.renamed.items()} | dict(renamed or {})
        return JointStage(parts, fused, own, alike) if len(fused.passes) == 1 else None


def _bound_axes(stage: Stage) -> set[Axis]:
    """The axes that the outermost reductions of a stage bind."""
    return {axis for one in outermost_reductions(stage.expr) for axis in one.bound}


def _is_alike(first: Stage, other: Stage) -> bool:
    """Tell if two stages without products are of the same rows, and read them along the same axes or not at all."""
    bound = [_bound_axes(stage) for stage in (first, other)]
    read = bound[0] == bound[1] or not all(bound)
    return other.axes == first.axes and read and not inner_reductions(other.expr)
