"""Why a term has no finite separation: findings, and the theorems that they rest on.

    |x − d|, max(x, d)        kinks at different places are independent functions
    [x > d], ⌊x·d⌋, sign      so are jumps
    1/P(x, d)                 so are poles: where Σ c_j/P(x, d_j) = 0, P(x, d_j) divides the product of the others
    log P, P^q                so are branch points
    exp(x·d), sin(x·d)        so are exponentials of different rates

Each is a theorem about the node it names. Pieces of a term may still cancel, so a refusal takes the rank test as well.
"""

from __future__ import annotations

from typing import final

from sympy import Abs, Expr, Max, Min, ceiling, floor, sign
from sympy.core.basic import Basic

from redalg.expression import Cast, Where

X, D = 1, 2
"""The sides of a term: what carries the streamed axis, and the reduced values."""


@final
class NotSeparable(Exception):  # noqa: N818 - a finding, turned into a verdict
    """`node` has no finite separation, for `reason`; `certain` where that is a theorem rather than ignorance.

    `hint` says what to write instead, where that depends on the reason.
    """

    def __init__(self, node: Basic, reason: str, *, certain: bool, hint: str = "") -> None:
        super().__init__(f"`{node}` {reason}")
        self.node, self.reason, self.certain, self.hint = node, reason, certain, hint


KINK = ("has a kink where its argument is 0, which moves with d: the matrix |x_i − d_j| is nonsingular for distinct "
        "points, so the rank is infinite")  # fmt: skip
CLIPS = "clips x at a threshold that moves with d: every element may change side, so the rank is infinite"
JUMP = "jumps at places that move with d: every element may cross one, so the rank is infinite"
THRESHOLD = "compares x with d: the threshold moves with d and every element may change side, so the rank is infinite"
PIECEWISE = (Where, Abs, Max, Min, floor, ceiling, sign, Cast)


def pole(argument: Expr, what: str) -> tuple[str, bool]:
    """Why 1/P does not separate, and whether that is a theorem (it is one about analytic P)."""
    if argument.has(*PIECEWISE):
        return f"is a {what} of a sum that mixes x and d", False
    return (f"has a pole where `{argument}` is 0, which moves with d: functions with poles at different places are "
            "independent, so the rank is infinite"), True  # fmt: skip


def singularity(argument: Expr, what: str) -> tuple[str, bool]:
    """Why log P and P^q do not separate, and whether that is a theorem (it is one about analytic P)."""
    if argument.has(*PIECEWISE):
        return f"is a {what} of a sum that mixes x and d", False
    return (f"is a {what} of a sum that mixes x and d, singular where that is 0, which moves with d: functions "
            "singular at different places are independent, so the rank is infinite"), True  # fmt: skip


def coupled(term: Expr, function: str) -> str:
    """Why exp(… + x·d) does not separate."""
    where = "in an exponent" if function == "exp" else f"in `{function}`"
    return (f"couples x and d through the product `{term}` {where}: functions {function}(x·d) are independent for "
            "distinct d, so the rank is infinite")  # fmt: skip
