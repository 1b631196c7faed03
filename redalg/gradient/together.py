"""Stages of one pass: rows that are read once, and products whose operands are computed of the same products.

a[r] = Σ_e …;  z[r] = f(…) or Σ_e …                              →  both of one pass, where neither reads the other
a[r, d] = Σ_q u(s)·X[q, d];  b[r, e] = Σ_q v(s)·Y[q, e]          →  both over q, with one column for d and e
where s[r, q] = Σ_c …                                               if these have one size when it runs
a[x, d] = Σ_y w(x, y)·U[y, d];  b[y, e] = Σ_x w(x, y)·T[x, e]    →  of one operand w (`operand`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

from sympy import Expr

from redalg.decompose.parse.axes import outermost_reductions
from redalg.errors import GradientError
from redalg.expression import Axis, Cast
from redalg.expression.contents import inner_reductions
from redalg.gradient.operand import OperandStage, shared_operand
from redalg.gradient.stage import AnyStage, JointStage, Stage, axes_text
from redalg.gradient.stages import Stages, of_fewest_passes


def join_stages(stages: Sequence[Stage], make: Stages) -> list[AnyStage]:
    """The stages, in order, with those of one pass as one; then those of one operand, of what is left."""
    joins = Joins(make)
    return join_by(joins.of_one_operand, join_by(joins.of_one_pass, stages))


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

    def of_one_pass(self, first: Stage, others: Sequence[Stage]) -> Iterator[JointStage | None]:
        """Yield a stage with others of the same rows; None where no form makes them together."""
        rows = [] if inner_reductions(first.expr) else [one for one in others if _is_alike(first, one)]
        if rows and any(one.fused is not None for one in (first, *rows)):
            yield self._join((first, *rows), [self._as_row(part.expr) for part in (first, *rows)])
        for other in others:
            if inner_reductions(first.expr) and inner_reductions(other.expr) and other.axes[:-1] == first.axes[:-1]:
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
        return self._join(parts, exprs, order) if len(bound) == 1 and shared else None

    def _join(self, parts: tuple[Stage, ...], exprs: Sequence[Expr], order: tuple[Axis, ...] = ()) -> JointStage | None:
        """The stages as one function; None if no form makes them in one pass."""
        axes = axes_text(order or parts[0].axes)
        outputs = {part.name: (expr, axes) for part, expr in zip(parts, exprs, strict=True)}
        try:
            fused = of_fewest_passes(self.make.fuse, outputs, None, "stages together")
        except GradientError:
            return None
        return JointStage(parts, fused, str(order[-1]) if order else "") if len(fused.passes) == 1 else None


def _is_alike(first: Stage, other: Stage) -> bool:
    """Tell if two stages without products are of the same rows, and read them along the same axes or not at all."""
    bound = [{axis for one in outermost_reductions(stage.expr) for axis in one.bound} for stage in (first, other)]
    read = bound[0] == bound[1] or not all(bound)
    return other.axes == first.axes and read and not inner_reductions(other.expr)
