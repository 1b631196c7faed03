"""What an approximate form rounds otherwise than its definition does, by how much at most, and what is exact."""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Abs, Expr, Function

from redalg.decompose import Decomposition, Reduction
from redalg.decompose.rounding import EXACT_FORMS, Rounding, bound_within
from redalg.explain.model import Equation, Line, Part, column, sentence
from redalg.expression import Reduce

DIFFERENCE = Function("Δ")


def the_roundings(decomposition: Decomposition) -> list[Line]:
    """Each rounding, the bounds for one element and for the sum, and the exact forms."""
    found = decomposition.roundings
    lines: list[Line] = [sentence(*said(one)) for _, one in found]
    lines.append(column(("At most, one rounded element differs from the definition's by",), [
        Equation(Abs(DIFFERENCE(one.cast), evaluate=False), one.bound, "≤") for _, one in found
    ]))  # fmt: skip
    lines.append(column(("and a sum, to first order in the roundoff, by",), list(of_the_sums(decomposition))))
    lines.append(sentence("Both hold where nothing saturates. By 2u·|…| + η·(1 + |h/h′|), u the unit roundoff of the ",
                          "type, η half its smallest step, h the scale and h′ its running value (Higham 2002, section ",
                          "2.1)."))  # fmt: skip
    lines.append(sentence(EXACT_FORMS))
    return lines


def of_the_sums(decomposition: Decomposition) -> Iterator[Equation]:
    """|Δ sum| ≤ Σ |∂F/∂cast|·bound, by reduction."""
    by_reduction: dict[Reduction, list[Rounding]] = {}
    for reduction, one in decomposition.roundings:
        by_reduction.setdefault(reduction, []).append(one)
    reduced = decomposition.cascade.reduced
    for reduction, several in by_reduction.items():
        most: Expr = sum((Reduce("sum", bound_within(reduction.term, one), reduced) for one in several), start=0)
        yield Equation(Abs(DIFFERENCE(reduction.value), evaluate=False), most, "≤")


def said(one: Rounding) -> tuple[Part, ...]:
    """What one pass makes of a rounding."""
    if one.scale is None:
        return (one.cast, " rounds what mixes x and d otherwise than as g(x)·h(d): one pass leaves the rounding out.")
    if one.by_power_of_two:
        return (one.cast, " is rounded at the running scale ", one.scale, ", a power of 2: alike but for underflow.")
    return (one.cast, " rounds what mixes x and d, and rounding does not commute with a later rescaling: one pass ",
            "rounds each element at the running scale ", one.scale, ", as it is when the element is met.")  # fmt: skip
