"""Roundings at a running scale: where one pass may round so, and which functions of such a rounding keep a bound of it.

    cast(g(x)·h(d)) ≈ cast(g·h')/h' · h     |g·h'| ≤ L for every element and prefix, h positive and never growing
    cast(q) ≈ q                             otherwise: the rounding is left out (`running_rounding` has the bounds)

What must be known of signs is asked of bounds that are simpler: 2^⌊e⌋ ≤ 2^e, 2^⌈e⌉ ≤ 2^(e + 1), 1/max(ε, d) ≤ 1/d.
"""

from __future__ import annotations

from sympy import Abs, Add, Dummy, Expr, Integer, Max, Min, Mul, Pow, S, ceiling, expand_mul, expand_power_exp, floor
from sympy.core.basic import Basic

from redalg.decompose.separate.curvature import curvature
from redalg.decompose.separate.piecewise import dominant
from redalg.decompose.separate.rounding import Rounding
from redalg.decompose.separate.separating import Separating
from redalg.decompose.separate.signs import is_nonnegative
from redalg.decompose.separate.theorems import D, NotSeparable, X
from redalg.expression import Cast, Where
from redalg.expression.contents import of_kind, values_of
from redalg.expression.dtypes import DTYPES

RISES = {"max": 1, "min": -1}
"""The direction in which an extremum moves while a pass runs."""


def running_rounding(separator: Separating, cast: Cast, g: Expr, h: Expr) -> Rounding:
    """The rounding of g·h in one pass: at the running h if it may, else not at all."""
    largest = Integer(DTYPES[cast.dtype].largest)
    runs = is_within(separator, g * unrounded_bound(h), largest) and never_grows(separator, unrounded_bound(h))
    return Rounding(cast, h if runs else None, is_within(separator, unrounded_bound(cast.args[0]), largest))


def unrounded_bound(scale: Expr) -> Expr:
    """An upper bound of a positive scale without the rounding of its exponent."""
    if not scale.has(floor, ceiling):
        return scale
    plain = scale.replace(floor, lambda e: e).replace(ceiling, lambda e: e + 1)
    return expand_power_exp(plain.replace(Pow, lambda base, e: Pow(base, expand_mul(e))))


def is_within(separator: Separating, rounded: Expr, largest: Expr) -> bool:
    """Tell if the magnitude of what is rounded is known not to exceed a number, for every element and prefix."""
    if isinstance(rounded, Where):
        return all(is_within(separator, branch, largest) for branch in rounded.args[1:])
    choice = next((one for one in Mul.make_args(rounded) if isinstance(one, Where)), None)
    if choice is not None:
        rest = Mul(*(one for one in Mul.make_args(rounded) if one is not choice))
        return all(is_within(separator, rest * branch, largest) for branch in choice.args[1:])
    factor, rest = divide_by_larger(separator, rounded).as_coeff_Mul()
    limits = [(rest, S.One)] * bool(abs(factor) <= largest) + [(factor * rest, largest)]
    return any(separator.sign(limit - part) == 1 == separator.sign(limit + part) for part, limit in limits)


def divide_by_larger(separator: Separating, rounded: Expr) -> Expr:
    """Replace a product that divides by max(ε, d) by one that divides by d, which is larger."""
    factors = []
    for factor in Mul.make_args(rounded):
        floors = [node for node in factor.atoms(Max) if len([arg for arg in node.args if separator.side(arg)]) == 1]
        base = Dummy("base", positive=True)
        if len(floors) == 1 and curvature(1 / factor.xreplace({floors[0]: base}), base, separator.facts).direction == 1:
            [d] = [arg for arg in floors[0].args if separator.side(arg)]
            factors.append(factor.xreplace({floors[0]: d}))
        else:
            factors.append(factor)
    return Mul(*factors)


def never_grows(separator: Separating, scale: Expr) -> bool:
    """Tell if a scale is known to be positive, and to fall while extrema of x alone are still running."""
    values = [one for one in values_of(scale) if separator.side(one) == D]
    kinds = [separator.facts.get(one, ("", S.NaN)) for one in values]
    return is_nonnegative(1 / scale, separator.facts) and all(
        kind in RISES and separator.side(term) == X
        and curvature(1 / scale, value, separator.facts).direction == RISES[kind]
        for value, (kind, term) in zip(values, kinds, strict=True)
    )  # fmt: skip


def rounds(separator: Separating, *nodes: Basic) -> bool:
    """Tell if a rounding of what mixes x and d stands in one of the nodes."""
    return any(separator.side(one) == X | D for node in nodes for one in of_kind(Cast, node))


def refuse_functions(separator: Separating, node: Expr) -> None:
    """Refuse a function of a rounding that keeps no bound of it: all but sums, products, powers and choices."""
    if isinstance(node, Add | Mul) or (node.is_Pow and node.exp.is_Integer and node.exp.is_positive):
        return
    if isinstance(node, Cast):
        if rounds(separator, node.args[0]):
            raise NotSeparable(node, "rounds what another rounding of x and d has moved", certain=False)
        return
    if not rounds(separator, *((node.condition,) if isinstance(node, Where) else node.args)):
        return
    known = isinstance(node, Abs) and separator.sign(node.args[0])
    if not (known or (isinstance(node, Max | Min) and len(dominant(separator, node)) == 1)):
        raise NotSeparable(node, "is a function of a rounding of x and d that one pass only approximates, and may move "
                           "by more than that does", certain=False)  # fmt: skip
