"""Conditions of theorems, checked on the expression and on samples: infinitely many values, and independence.

    varies_with_side(u, side)   u passes x (or d) on other than by signs, steps, truths and conditions, and so takes
                                more values than any state has room for
    independent(g, …)           the derivatives of functions of x with respect to its elements have rank 2 at some
                                sample: their values fill an open set of the plane
    count_strict_extrema(F)     how many of the x_i are the largest of a data set alone, for some d_j

A condition that is not met makes a theorem say nothing; it is never taken for met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sympy import Expr, Tuple, ceiling, floor, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from redalg.decompose.cascade import Reduction
from redalg.decompose.samples.rank import FLOATS, Setting, Unavailable
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, X
from redalg.expression import Cast, Element, Value, Where
from redalg.expression.contents import elements_of, free_axes

if TYPE_CHECKING:
    from redalg.decompose.samples.samples import Samples

PLACES = ("argmax", "argmin")
ATTAINED = ("compensated_sum", "sum_at_max", "sum_below_max", "at_argmax", "sum_beside_argmax")
"""Kinds whose value moves as its second operand does, or its only one."""
CORNERS = 3
"""Elements that must be seen to attain an extremum alone before a theorem says that any number of them may."""
FAR = (48, 96, 4.0)
"""Rows, columns and size of the x_i of a further draw, for parts that exceed others when elements are large."""
STEPS = (sign, floor, ceiling, Cast)
"""Functions that map many values to few."""
SEPARATED = 1e-4
"""The least ratio of two singular values that are both not 0."""


def speaks(node: Basic, separator: Separator) -> bool:
    """Tell if both x and d take infinitely many values in a node that a theorem names, or in a step's arguments."""
    parts = node.args if isinstance(node, (Relational, Where, *STEPS)) else (node,)
    return all(any(varies_with_side(one, side, separator) for one in parts) for side in (X, D))


def varies_with_side(node: Basic, side: int, separator: Separator) -> bool:
    """Tell if a node varies with one side (x or d) other than through functions of few values."""
    if node in separator.values:
        return side == D and _is_free(node, separator)
    if isinstance(node, Element | Value):
        return side == X and not free_axes(node).isdisjoint(separator.axes)
    if isinstance(node, (Boolean, *STEPS)):
        return isinstance(node, Relational) and any(varies_with_side(one, side, separator) for one in node.args)
    parts = node.args[1:] if isinstance(node, Where) else node.args
    return any(varies_with_side(one, side, separator) for one in parts)


def _is_free(value: Basic, separator: Separator) -> bool:
    """Tell if a reduced value takes infinitely many values.

    A sum of any term that is not 0 does, and so does a product. An extremum does if its term does. A value taken at an
    extremum does, since later elements may attain it; a `first` does not, since no later element moves it. An argmax
    of data does, since it may lie at any place that is still to come.
    """
    if value in separator.others:
        return _is_free_of_many(separator.others[value], separator)
    kind, term = separator.facts.get(value, ("", value))
    if kind in ("sum", "prod"):
        return True
    return kind in ("max", "min") and any(varies_with_side(term, side, separator) for side in (X, D))


def _is_free_of_many(reduction: Reduction, separator: Separator) -> bool:
    """Tell if a value of one of the structured monoids takes infinitely many values."""
    kind, term = reduction.monoid.name, reduction.term
    if kind in PLACES:
        return any(varies_with_side(one, X, separator) for one in elements_of(term))
    if kind not in ATTAINED:
        return False
    return varies_with_side(term.args[1] if isinstance(term, Tuple) else term, X, separator)


def setting(separator: Separator) -> Setting:
    """The setting of a separator's samples."""
    axes, values = (tuple(sorted(some, key=str)) for some in (separator.axes, separator.values))
    return Setting(axes, values, separator.facts, nodes=separator.sampled)


def independent(functions: Sequence[Expr], separator: Separator) -> bool:
    """Tell if the derivatives of functions of x alone have rank 2 at some sample."""
    import numpy as np

    from redalg.decompose.samples.arithmetic import Floats

    elements = sorted({one for u in functions for one in elements_of(u)}, key=str)
    leaves = [one for one in elements if varies_with_side(one, X, separator)]
    [samples] = setting(separator).samples(functions, FLOATS[0], (Floats(np.float64),), positive=False)
    for element in elements:  # all are drawn first, in one order
        samples.draws.of(element, on_x=varies_with_side(element, X, separator))
    try:
        slopes = [_slopes(functions, leaf, samples) for leaf in leaves]
    except Unavailable:
        return False
    for jacobian in np.array(slopes).transpose(2, 1, 0) if leaves else ():
        sizes = np.abs(jacobian).max(axis=1, keepdims=True)
        if not np.isfinite(jacobian).all() or (sizes > 0).sum() < 2:
            continue
        singular = np.linalg.svd(jacobian / np.where(sizes > 0, sizes, 1), compute_uv=False)
        if len(singular) > 1 and singular[1] > SEPARATED * singular[0]:
            return True
    return False


def _slopes(functions: Sequence[Expr], leaf: Element, samples: Samples) -> Any:
    """∂u/∂leaf of each function at the x_i, by a difference quotient."""
    import numpy as np

    step = 2.0**-26
    for u in functions:  # draws what is not drawn yet
        samples.matrix(u)
    above, below = (
        np.array([other.matrix(u)[:, 0] for u in functions])
        for other in (samples.shift(leaf, step), samples.shift(leaf, -step))
    )
    return (above - below) / (2 * step)


def count_strict_extrema(node: Expr, kind: str, separator: Separator, without: Expr | None = None) -> int:
    """Count the x_i that are alone the largest (or least) element of a data set, for some d_j: 3 are enough.

    Args:
        node, kind: the compared node, and the extremum: max or min.
        separator: tells x from d.
        without: the node less a part of it; a data set does not count if this has the same extremum there.
    """
    import numpy as np

    from redalg.decompose.samples.arithmetic import Floats

    most, end = 0, 1 if kind == "max" else -1
    for plan in FLOATS[:2] if without is None else (*FLOATS[:2], FAR):
        [samples] = setting(separator).samples([node], plan, (Floats(np.float64),), positive=False)
        try:
            values = end * samples.whole(node)
            rest = values if without is None else end * samples.whole(without)
        except Unavailable:
            return 0
        columns = ~np.isnan(values).any(axis=0)
        if without is not None:
            columns &= values.max(axis=0) > rest.max(axis=0)
        values = values[:, columns]
        alone = (values == values.max(axis=0)).sum(axis=0) == 1 if values.size else np.array([], dtype=bool)
        first = values.argmax(axis=0)[alone] if values.size else np.array([], dtype=int)
        most = max(most, len({int(one) for one in first if one < plan[0]}))
        if most >= CORNERS:
            break
    return most
