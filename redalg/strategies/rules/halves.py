"""The rule for symmetric products: blocks take the tiles on one side of the diagonal, and those that lie on it.

    s[a, b] = Σ_n f(n, a, b),  f(n, a, b) = f(n, b, a)   →   s[a, b] for blocks of a ≥ b;  s[b, a] = s[a, b]

Exact: the term with a and b exchanged is the same expression. Of t² tiles t·(t + 1)/2 are computed. Outputs need not be
symmetric: where parts are merged, they are made of the sums for all a and b.
"""

from __future__ import annotations

from sympy import Expr

from redalg.expression import Axis, Let
from redalg.incremental.form import FusedForm
from redalg.strategies.plan import Plan, Problem


def takes_half(form: FusedForm, plan: Plan, problem: Problem) -> bool:
    """Tell if blocks of a plan need half of the tiles of rows and columns; its pivots must be fixed.

    Parts must be merged by a kernel, which reads s[b, a] for s[a, b].
    """
    row, column = plan.binding.row, plan.binding.column
    if row is None or column is None or not (plan.is_serial and plan.binding.contracted):
        return False
    size, length = problem.sizes[row.name], plan.block_row
    alike = size == problem.sizes[column.name] and length == plan.block_column
    if not alike or {row.name, column.name} & problem.varying or size <= length:
        return False
    if plan.segments == 1 or plan.merge != "kernel":
        return False
    others = form.slot_pivots or form.extrema or form.structures or form.cascade.producers
    products = [one for one in form.accumulators if {row, column} <= {*one.value.indices}]
    exchanged: dict[Axis, Axis] = {row: column, column: row}
    return (
        not others
        and not any(output.carries for output in form.outputs)
        and form.cascade.domain == form.cascade.domain.xreplace(exchanged)
        and all(not one.weight and is_unchanged(one.term, exchanged) for one in products)
    )


def is_unchanged(term: Expr, exchanged: dict[Axis, Axis]) -> bool:
    """Tell if an expression is the same when axes are exchanged, whatever its parts are called."""
    plain = term.replace(lambda node: isinstance(node, Let), lambda node: node.expr)
    return bool(plain == plain.xreplace(exchanged))
