"""Extrema on which no output depends: pivots, which have no gradient.

    o[m := π] is fused, and holds no π any more   ⇒   o is the same for every π, so that ∂o/∂m = 0

The engine derives forms by ring identities, e^u·e^v = e^(u + v) and log(e^u·r) = u + log r. A form without π is a proof
of them; a form with π proves nothing, and the extremum is then differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sympy import Expr
from sympy.core.basic import Basic

from redalg.errors import RedalgError
from redalg.expression import Reduce, Scalar
from redalg.expression.contents import nodes_of
from redalg.expression.rebuild import replace_nodes

PIVOT = Scalar("pivot_of_the_proof", real=True)
EXTREMA = ("max", "min")
INVARIANT = "No output depends on it: their forms are the same with any number in its place."


def pivots_among(reductions: Iterable[Reduce], outputs: Sequence[tuple[Expr, str]],
                 fuse: Callable[..., Any]) -> tuple[Reduce, ...]:  # fmt: skip
    """The extrema that are proved to have no derivative, of outputs (expression, axes)."""
    return tuple(one for one in reductions if one.kind in EXTREMA and is_invariant(one, outputs, fuse))


def is_invariant(extremum: Reduce, outputs: Iterable[tuple[Expr, str]], fuse: Callable[..., Any]) -> bool:
    """Tell if outputs (expression, axes) are proved not to depend on an extremum."""
    return all(_is_free(replace_nodes(expr, {extremum: PIVOT}), axes, fuse)
               for expr, axes in outputs if extremum in nodes_of(expr))  # fmt: skip


def _is_free(expr: Expr, axes: str, fuse: Callable[..., Any]) -> bool:
    """Tell if the fused form of an expression lost the scalar that stands for a pivot."""
    try:
        form = fuse(expr, axes, None).form
    except RedalgError:
        return False
    shown: list[Basic] = [*(one.expr for one in form.outputs), *(one.expr for one in form.assignments)]
    shown += [one.term for one in (*form.accumulators, *form.extrema, *form.structures)]
    shown += [part for pivot in form.pivots for part in (pivot.base, pivot.source)]
    return not any(PIVOT in nodes_of(one) for one in shown)
