"""Equalities under any and all: the theorem that no state of fixed size tells which values were met.

    any_l (u(x_l) = v(d)), and all_l (u(x_l) ≠ v(d))

Data sets hold the same elements x_1 … x_N, the prefix, and others of their own, the completion. An element is passed if
v(d) lies above u(x_i) for one completion and below it for another of as many elements.

Theorem. Let v be continuous in d, and d made of r sums and products, of continuous terms, and of extrema of elements
that u does not hold. A state of the prefix that varies continuously with its elements holds at least W − r numbers, W
being how many of the different u(x_i) are passed.

Proof. Completions of one number of elements are connected, and v(d) is continuous on them, so that v(d) = u(x_i) for
some. The completion's own elements may be moved on while v(d) stays, since they are several and v holds no extremum of
them: u of none of them is v(d). Then the answer is yes by x_i alone. Let two prefixes give d the same r numbers, and
differ in u(x_i) alone: the answers differ, and so do their states. So the state is a one-to-one function of the W
values u(x_i) where r numbers are given, and W − r of them fill an open set: it holds as many numbers (invariance of
domain).

W is counted on samples: more than 8, and more of all N than of the first half, so that it grows with N.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sympy import Abs, Add, Eq, Expr, Max, Min, Mul, Ne, Pow, S, cos, cosh, exp, log, sin, sinh, tanh
from sympy.core.basic import Basic

from redalg.decompose.cascade import Reduction
from redalg.decompose.samples.rank import SMALL, Setting, Sizes, Unavailable
from redalg.decompose.separate.signs import STRICT, UP, sign_of
from redalg.decompose.separate.theorems import NotSeparable
from redalg.expression import Axis, Element, Scalar, Value, Where
from redalg.expression.contents import elements_of, free_axes, values_of

MEMBERS = {"any": Eq, "all": Ne}
"""The relation that each kind asks for."""
CONTINUOUS = (Add, Mul, Max, Min, Abs, exp, sin, cos, sinh, cosh, tanh, Element, Scalar, Value)
PLAN: Sizes = (48, 192, 1.0)
"""Numbers of elements and of completions, and the size of the elements."""
SEEDS = 8
"""Draws, in which tensors differ in size."""
TAKEN = 12.0
"""The number of times that every completion takes each of its elements."""


def apply_memberships(finding: NotSeparable, reduction: Reduction, term: Expr, setting: Setting) -> NotSeparable:
    """The finding, with the theorem as its reason if the theorem holds for a reduction's term."""
    relation = MEMBERS.get(reduction.monoid.name)
    if relation is None or not isinstance(term, Where) or term.args[1:] != (S.One, S.Zero):
        return finding
    if not isinstance(term.condition, relation) or (parts := _parts(term.condition, setting)) is None:
        return finding
    for seed in range(SEEDS):
        half, passed = _count_passed(*parts, replace(setting, seed=seed))
        if passed > max(SMALL, half):
            return NotSeparable(term.condition, f"asks whether an element equals d, which passes {passed} of "
                                f"{PLAN[0]} elements in data that hold them all", certain=True)  # fmt: skip
    return finding


def _parts(condition: Eq | Ne, setting: Setting) -> tuple[Expr, Expr] | None:
    """u(x) and v(d) of u = v if the theorem covers them; else None."""
    axes = {setting.axes} if isinstance(setting.axes, Axis) else set(setting.axes)
    values = set(setting.values)
    terms = Add.make_args((condition.lhs - condition.rhs).expand())
    of_x = [one for one in terms if not free_axes(one).isdisjoint(axes)]
    of_d = [one for one in terms if one not in of_x]
    u, v = Add(*of_x), Add(*(-one for one in of_d))
    if values & values_of(u) or not values & values_of(v) or not elements_of(u):
        return None
    return (u, v) if _is_continuous(v, setting) and _is_free(v, setting, elements_of(u)) else None


def _is_continuous(node: Basic, setting: Setting) -> bool:
    """Tell if a node is seen to be continuous in its elements and values."""
    if not isinstance(node, Expr):
        return False
    if isinstance(node, log):
        return sign_of(node.args[0], setting.facts) == "positive" and _is_continuous(node.args[0], setting)
    if isinstance(node, Pow):
        natural = node.exp.is_Integer and node.exp.is_positive
        known = sign_of(node.base, setting.facts) in (UP if node.exp.is_positive else STRICT)
        return node.exp.is_number and bool(natural or known) and _is_continuous(node.base, setting)
    if node.is_number or isinstance(node, Element | Scalar | Value):
        return True
    return isinstance(node, CONTINUOUS) and all(_is_continuous(arg, setting) for arg in node.args)


def _is_free(node: Expr, setting: Setting, elements: frozenset[Element] | set[Element]) -> bool:
    """Tell if the theorem covers every value in a node."""
    for value in values_of(node) & set(setting.values):
        kind, term = setting.facts.get(value, ("", S.NaN))
        extremum = kind in ("max", "min") and elements.isdisjoint(elements_of(term))
        if not (extremum or kind in ("sum", "prod")) or not _is_continuous(term, setting):
            return False
        if not _is_free(term, setting, elements):
            return False
    return True


def _count_passed(u: Expr, v: Expr, setting: Setting) -> tuple[int, int]:
    """Count the different u(x_i) that are passed, in the first half of the elements and in all."""
    import numpy as np

    from redalg.decompose.samples.arithmetic import Floats

    [samples] = setting.samples([u, v], PLAN, (Floats(np.float64),), positive=False)
    draws: Any = samples.draws
    draws.times[draws.rows :] = TAKEN
    samples.weights = samples.arithmetic.array(draws.times)
    try:
        levels, edges = samples.matrix(u)[:, 0], samples.matrix(v)[0]
    except Unavailable:
        return 0, 0
    edges = edges[np.isfinite(edges)]
    if not edges.size or not np.isfinite(levels).all():
        return 0, 0
    inside = (levels > edges.min()) & (levels < edges.max())
    half = draws.rows // 2
    return len(set(levels[:half][inside[:half]])), len(set(levels[inside]))
