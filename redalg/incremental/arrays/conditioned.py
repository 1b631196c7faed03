"""The condition of `finish`: how much it amplifies the rounding errors of the values in a state.

Along with every value v that `finish` computes, a bound e(v) on its error is carried. It is in units of the unit
roundoff, to first order (Higham 2002, sections 1.6 and 3.3):

    a slot             |a| of a sum; 0 of an extremum, an index, a count and a pivot, which are exact
    u + v              e(u) + e(v)
    f(u, v, …)         |∂f/∂u|·e(u) + |∂f/∂v|·e(v) + … + |f|          0 where no argument has an error
    where(p, u, v)     that of the branch taken;  |u|: e(u);  max(u, v): the larger of the two
    Σ u                Σ e(u), along an output's own axes;  max u: the largest

    κ = max(1, e / |v|) of an output, so that about κ·ε of it is lost in a type of unit roundoff ε

A sum is taken to be as exact as its own last digit. If its terms cancel each other, it is less exact: a state holds no
Σ|terms|, and `explain` names those sums.
"""

from __future__ import annotations

from typing import Any, final

from sympy import Abs, Add, Expr, Max, Min

from redalg.expression import Label, Let, Reduce, Value, Where
from redalg.expression.contents import is_indicator, values_of
from redalg.incremental.arrays.evaluate import Scope
from redalg.incremental.form import FormOutput, FusedForm

ALIKE = ("sum", "max", "min")
"""Reductions over an output's own axes that propagate an error; for others, the error is of the result's size."""


@final
class Conditioned:
    """Error bounds of the values that `finish` has made. `errors` is filled in the order of assignments."""

    def __init__(self, form: FusedForm, scope: Scope) -> None:
        """`scope` knows the value of every slot and assignment."""
        self.scope, self.ops = scope, scope.ops
        sums = (one.value for one in form.accumulators if not one.is_count)
        inexact = (value for structure in form.structures if not structure.monoid.exact for value in structure.values
                   if value not in structure.integers)  # fmt: skip
        produced = (one.value for one in form.parameters)
        self.errors = {value: self._size(value) for value in (*sums, *inexact, *produced)}
        for assignment in form.assignments:
            self.errors[assignment.value] = self.error(assignment.expr)

    def of(self, output: FormOutput) -> Any:
        """κ of an output: NaN if the output is not finite, ∞ if it is 0 and its error bound is not."""
        size, error = self._size(output.expr), self.error(output.expr)
        ratio = error / self.ops.where(size == 0, self.ops.scalar(1.0), size)
        zero = self.ops.where(error == 0, self.ops.scalar(1.0), self.ops.scalar(float("inf")))
        kappa = self.ops.functions["Max"](self.ops.where(size == 0, zero, ratio), self.ops.scalar(1.0))
        return self.ops.where(self.ops.isfinite(size), kappa, self.ops.scalar(float("nan")))

    def error(self, node: Expr) -> Any:
        """The error bound of an expression."""
        if isinstance(node, Value):
            return self.errors.get(node, self.ops.scalar(0.0))
        if not values_of(node) & self.errors.keys():
            return self.ops.scalar(0.0)
        if isinstance(node, Let):
            return self.error(node.expr)
        if isinstance(node, Add):
            return sum(map(self.error, node.args), self.ops.scalar(0.0))
        if isinstance(node, Where):
            return self.ops.where(self.scope.evaluate(node.condition), *map(self.error, node.args[1:]))
        if isinstance(node, Abs | Max | Min):
            first, *rest = map(self.error, node.args)
            for other in rest:
                first = self.ops.functions["Max"](first, other)
            return first
        if isinstance(node, Reduce):
            return self._reduction_error(node)
        return self._function_error(node)

    def _function_error(self, node: Expr) -> Any:
        """Σ |∂f/∂u|·e(u) + |f| of a function."""
        inner = [Value(Label(f"operand_{place}")) for place in range(len(node.args))]
        opened = node.func(*(value if isinstance(arg, Expr) and values_of(arg) else arg
                             for value, arg in zip(inner, node.args, strict=True)))  # fmt: skip
        known = {value: self.scope.number(arg) for value, arg in zip(inner, node.args, strict=True)
                 if values_of(opened) & {value}}  # fmt: skip
        scope, total = self.scope.with_values(known), self._size(node)
        for value, arg in zip(inner, node.args, strict=True):
            if value not in known or not values_of(arg) & self.errors.keys():
                continue
            try:
                slope = opened.diff(value)
                part = self._absolute(scope.number(slope)) * self.error(arg)
            except (ValueError, TypeError, NotImplementedError):  # a step, a cast: its error is that of the result
                continue
            total = total + part
        for guard in filter(is_indicator, node.args if node.is_Mul else ()):  # 0 where the mask is off
            total = self.ops.where(self.scope.passes(guard), total, self.ops.scalar(0.0))
        return total

    def _reduction_error(self, node: Reduce) -> Any:
        if node.kind not in ALIKE or len(node.operands) != 1:
            return self._size(node)
        error = self.error(node.expr)
        for axis in node.bound if len(error.shape) else ():
            place = self.scope.place(axis)
            shape = [self.scope.length(axis) if one == place else size for one, size in enumerate(error.shape)]
            kind = "sum" if node.kind == "sum" else "max"
            error = self.ops.reduce(kind, self.ops.expand(error, shape), place)
        return error

    def _size(self, expr: Expr) -> Any:
        return self._absolute(self.scope.number(expr))

    def _absolute(self, array: Any) -> Any:
        return self.ops.functions["Abs"](array)
