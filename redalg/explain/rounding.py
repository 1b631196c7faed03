"""The roundings in which an approximate form differs from its definition, their bounds, and the exact forms."""

from __future__ import annotations

from collections.abc import Iterator

from sympy import Abs, Function

from redalg.decompose.separate.rounding import Rounding, bounds, exact_forms, overflow_fate
from redalg.decompose.verdict.verdict import Decomposition
from redalg.explain.model import Equation, Line, Part, column, sentence

DIFFERENCE = Function("Δ")


def the_roundings(decomposition: Decomposition) -> list[Line]:
    """Each rounding, the bounds for one element and for the sum, and the exact forms."""
    found = decomposition.roundings
    lines: list[Line] = [sentence(*rounding_prose(one)) for _, one in found]
    lines.append(column(("At most, one rounded element differs from the definition's by",), [
        Equation(Abs(DIFFERENCE(rounding.cast), evaluate=False), rounding.bound, "≤") for _, rounding in found
    ]))  # fmt: skip
    lines.append(column(("and a sum by",), list(of_the_sums(decomposition))))
    if any(one.scale is not None for _, one in found):
        lines.append(sentence("By 2u·|…| + η·(1 + |h/h′|), u the unit roundoff of the type, η half its smallest step, ",
                              "h the scale and h′ its running value, |h/h′| ≤ 1 (Higham 2002, section 2.1). Nothing ",
                              "saturates, neither in the definition nor in the pass."))  # fmt: skip
    if any(one.scale is None and not one.within for _, one in found):
        lines.append(sentence("Where the definition saturates, or overflows, the pass does not: by how much a number ",
                              "exceeds the type's largest is a part of the bound."))  # fmt: skip
    lines.append(sentence(exact_forms(found[0][1])))
    return lines


def of_the_sums(decomposition: Decomposition) -> Iterator[Equation]:
    """|Δ sum| ≤ Σ of the largest changes of its terms, for each reduction."""
    for reduction, most in bounds(decomposition.cascade, decomposition.roundings).items():
        yield Equation(Abs(DIFFERENCE(reduction.value), evaluate=False), most, "≤")


def rounding_prose(rounding: Rounding) -> tuple[Part, ...]:
    """The sentence that tells what one pass makes of a rounding."""
    if rounding.scale is None:
        beyond = "" if rounding.within else f" {overflow_fate(rounding)}"
        return (rounding.cast, " rounds what one pass knows only at its end: it leaves the rounding out.", beyond)
    if rounding.by_power_of_two:
        return (
            rounding.cast,
            " is rounded at the running scale ",
            rounding.scale,
            ", a power of 2: alike but for underflow.",
        )
    return (rounding.cast,
            " rounds elements that a running value scales, and rounding does not commute with a later rescaling: ",
            "one pass rounds each element at the running scale ", rounding.scale,
            ", as it is when the element is met.")  # fmt: skip
