"""Extrema that are attained at other elements for other d: the theorem that no state of fixed size holds them.

    max_l F(x_l, d), and min, argmax, argmin, topk and sum_at_max of F alike

Data sets hold the same elements x_1 … x_N, the prefix, and others of their own, the completion c_j, and d_j is what the
reductions make of both. W elements of the prefix are winners: F(x_i, d_j) exceeds F of all others for some c_j.

Theorem. A state of the prefix from which the result of prefix and completion follows, and that varies smoothly with the
elements, holds at least W − r numbers, r being those of which d is made.

Proof. What wins by a margin still wins when all elements move a little, so that near the prefix the result for c_j is
F(x_j, d_j). As functions of x_1 … x_W the W results have the Jacobian D + E: D is diagonal, with ∂F/∂x_j, which is not
0 at almost all x_j where F has no flat parts, and E is what moves by way of d, which the prefix enters through r
numbers: its rank is at most r. So the rank is at least W − r. If the results follow from s numbers it is at most s.
(The places that argmax gives tell where winners change: there F(x_i, d) = F(x_j, d), of which the same is true.)

W is counted on samples: more than 8, or 16 of a term with several kinks or masks, each of which may hold two ends
apart, and more of all N than of the first half, so that it grows with N. What is bounded in what it holds has a bounded
W: an extremum of x has 1, both ends of a range have 2, a part of a whole that exceeds a quarter of it is among the 4
largest. A completion's own elements are compared too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sympy import Abs, Expr, Max, Min, Mod, Tuple, ceiling, floor, sign
from sympy.core.basic import Basic

from redalg.decompose.cascade import Reduction
from redalg.decompose.samples.rank import Setting, Unavailable
from redalg.decompose.separate.theorems import NotSeparable
from redalg.expression import Cast, Value, Where
from redalg.expression.contents import of_kind, values_of

ENDS = {"max": 1, "min": -1, "argmax": 1, "argmin": -1, "topk": 1, "sum_at_max": 1, "sum_below_max": 1}
"""The end of F that decides, by monoid."""
SELECTING = frozenset(ENDS) - {"max", "min"}
FLAT = (floor, ceiling, sign, Mod, Cast)
"""Functions that are flat beside their jumps."""
PLANS = (((48, 192, 1.0), 3), ((48, 768, 4.0), 3))
"""Numbers of elements and of completions, the size of the elements, and the number of draws.

The second is drawn where the first shows more than half as many winners as are needed.
"""
LEAST = 16
"""Winners that a state of fixed size may well hold, of a term with several kinks or masks; half as many of others."""
MARGIN = 1e-6
"""The least lead of a winner over all others, as a share of the spread of F."""


def apply_winners(finding: NotSeparable, reduction: Reduction, term: Expr, setting: Setting) -> NotSeparable:
    """The finding, with the theorem as its reason if the theorem holds for a reduction's term."""
    kind, compared = reduction.monoid.name, term.args[0] if isinstance(term, Tuple) else term
    if (wins := winners(kind, compared, setting)) is None:
        return finding
    number, rows = wins
    what = "selects" if kind in SELECTING else f"has its {kind} at"
    return NotSeparable(compared, f"{what} other elements for other d: of {rows} elements {number} win alone, each at "
                        "d of data that hold them all", certain=True)  # fmt: skip


def winners(kind: str, term: Expr, setting: Setting) -> tuple[int, int] | None:
    """The numbers of winners and of elements if the winners are more than a state of fixed size holds; else None.

    Args:
        kind: the monoid.
        term: F, which holds x and d.
        setting: the reduced axes and the meaning of the values.
    """
    if kind not in ENDS or _is_flat(term, setting) or not _has_rules(term, setting):
        return None
    least = LEAST if len(of_kind(Where, term)) + len(term.atoms(Max, Min, Abs)) > 2 else LEAST // 2
    for plan, copies in PLANS:
        most = 0
        for half, all_of_them in _winner_counts(ENDS[kind], term, replace(setting, copies=copies), plan):
            if all_of_them > max(least, half):
                return all_of_them, plan[0]
            most = max(most, all_of_them)
        if 2 * most <= least:
            return None
    return None


def _is_flat(term: Expr, setting: Setting) -> bool:
    """Tell if a node that mixes x and d has flat parts."""
    return any(values_of(node) & set(setting.values) for node in of_kind(Basic, term) if isinstance(node, FLAT))


def _has_rules(term: Expr, setting: Setting) -> bool:
    """Tell if samples have rules for every value that the term is made of."""
    from redalg.decompose.samples.reduced import REDUCED

    seen, todo = set[Value](), [*(values_of(term) & set(setting.values))]
    while todo:
        value = todo.pop()
        kind, part, result = setting.meanings.get(value, ("", value, ""))
        if (kind, result) not in REDUCED:
            return False
        todo += [one for one in values_of(part) & set(setting.values) if one not in seen and one != value]
        seen.add(value)
    return True


def _winner_counts(end: int, term: Expr, setting: Setting, plan: tuple[int, int, float]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of winners in the first half of the elements and in all, for each draw where F is evaluated."""
    import numpy as np

    from redalg.decompose.samples.arithmetic import Floats

    for positive in (False, True):
        try:
            [samples] = setting.samples([term], plan, (Floats(np.float64),), positive=positive)
            values = end * np.array(samples.whole(term), dtype=float)
        except Unavailable:
            return
        rows, counted = plan[0], False
        for copy in range(setting.copies):
            whole = values[:, np.isfinite(values[..., copy]).mean(axis=0) > 0.5, copy]
            if whole.shape[1] > LEAST:
                half, counted = np.concatenate([whole[: rows // 2], whole[rows:]]), True
                yield _number(half, rows // 2), _number(whole, rows)
        if counted:
            return


def _number(whole: Any, rows: int) -> int:
    """Count those of the first `rows` that are alone the largest of a column, by a margin."""
    import numpy as np

    whole = np.where(np.isnan(whole), -np.inf, whole)[:, ~(whole == np.inf).any(axis=0)]  # of ∞ none wins alone
    if not whole.size:
        return 0
    first, largest = whole.argmax(axis=0), whole.max(axis=0)
    of_prefix = (first < rows) & np.isfinite(largest)
    whole, first, largest = whole[:, of_prefix], first[of_prefix], largest[of_prefix]
    second = np.where(np.arange(len(whole))[:, None] == first, -np.inf, whole).max(axis=0)
    with np.errstate(all="ignore"):
        ahead = largest - second > MARGIN * (largest - np.median(whole, axis=0))
    return len(set(first[ahead].tolist()))
