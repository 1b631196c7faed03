"""Findings that a term has no finite separation, and the theorems that they rest on.

`THEOREMS` holds every theorem that a refusal can rest on, with its proof. Each is about the node that it names; pieces
of a term may still cancel, and facts may bound what d can be. A refusal therefore takes, beside the theorem, samples of
the whole term and of the node whose rank exceeds 8 (of extrema: elements that attain them), every d of data that hold
all x; and x and d that take infinitely many values (`conditions`). What none of these show is said without a theorem.

What all proofs share: a state of k numbers is what a merge knows of the elements x_1 … x_N read so far. Let later data
bring d to d_1 … d_M. The M values that must follow are functions of the state; where they move with N elements in N
independent ways, k ≥ N less the number of values d, as no continuous map of N dimensions into fewer is one to one
(invariance of domain). A sum moves with x_i as ∂F(x_i, d_j) does: in as many ways as the functions F(·, d_j) are
independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

from sympy import Abs, Expr, Max, Min, Mod, ceiling, floor, sign
from sympy.core.basic import Basic

from redalg.errors import Text
from redalg.expression import Cast, Scalar, Where
from redalg.expression.contents import nodes_of
from redalg.expression.operators import OPERATORS

X, D = 1, 2
"""The sides of a term: what carries the streamed axis, and the reduced values."""


@final
class NotSeparable(Exception):  # noqa: N818 - a finding, turned into a verdict
    """`node` has no finite separation, for `reason`; `certain` if that is a theorem rather than ignorance.

    What takes samples to tell is told when it is first asked for: most findings are raised on the way to another.
    `hint` says what to write instead, if that depends on the reason.
    """

    def __init__(
        self, node: Basic, reason: object, *, certain: bool | Callable[[], bool], hint: object = ""
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.node, self.reason, self.hint = node, reason, hint
        self._is_certain = certain

    @cached_property
    def certain(self) -> bool:
        """Tell if the reason is a theorem."""
        return self._is_certain() if callable(self._is_certain) else self._is_certain

    @property
    def text(self) -> Text:
        """The finding as a sentence without its end."""
        return Text("`", self.node, "` ", self.reason)

    def __str__(self) -> str:
        return str(self.text)


@final
@dataclass(frozen=True)
class Theorem:
    """A statement with the conditions under which it holds and its proof.

    Attributes:
        name: a word for it.
        states: what holds of which nodes.
        where: the conditions, and what checks them.
        proof: in a few sentences.
        raised: "file:function" of every place that rests on it.
    """

    name: str
    states: str
    where: str
    proof: str
    raised: tuple[str, ...]


MOVING = "P(x, d) is no product g(x)·h(d), and x and d take infinitely many values (`rank_one`, `conditions.speaks`)."
KINKS = Theorem(
    "kinks",
    "|P(x, d)| has infinite rank.",
    MOVING,
    "Where P is no product, its zeros in x move with d: take d_1 … d_N with zeros z_1 … z_N that differ. Let "
    "Σ c_j |P(x, d_j)| = 0 for all x. At z_i every term but one has a derivative, so that c_i = 0 wherever P(·, d_i) "
    "crosses 0 there. So any N such functions are independent. Where P never crosses 0 there is no kink, which the "
    "samples then show.",
    ("piecewise.py:abs_rule",),
)
CLIPPING = Theorem(
    "clips",
    "max and min of two terms that are not h(d) times functions of x have infinite rank.",
    "The difference P of the two changes its sign at places that move with d (`rank_one`, `conditions.speaks`).",
    "max(a, b) = (a + b + |a − b|)/2, where a and b have finite rank and |a − b| has infinite rank by the kinks.",
    ("piecewise.py:_take_out_factor",),
)
JUMPS = Theorem(
    "jumps",
    "sign, floor, ceiling and remainders of P(x, d) have infinite rank.",
    MOVING,
    "P(x, d) = q, q where the function jumps, moves with d: take d_1 … d_N with jumps at places that differ. A linear "
    "combination that is 0 for all x has no jump at the i-th place, to which the i-th function alone contributes one: "
    "its coefficient is 0. So any N such functions are independent.",
    ("piecewise.py:sign_rule", "piecewise.py:steps_rule"),
)
THRESHOLDS = Theorem(
    "thresholds",
    "[P(x, d) > 0], and any other relation of x with d, has infinite rank.",
    MOVING,
    "[P > 0] = (1 + sign P)/2 where P is not 0: it jumps where sign P does. Equality picks out single x, one for every "
    "d, and indicators of different points are independent.",
    ("piecewise.py:_relation",),
)
POLES = Theorem(
    "poles",
    "1/P(x, d)^n has infinite rank.",
    MOVING + " P is analytic on some interval of x (`is_analytic`).",
    "Let Σ c_j/P(x, d_j)^n = 0. Continue it to complex x, and go to a zero of P(·, d_i) that is none of the others: "
    "one term alone has no bound there, so that c_i = 0. What has kinks in x alone is analytic between them. Zeros "
    "of P move with d as P is no product; where it has none "
    "even in the complex plane, the samples show a finite rank.",
    ("separate.py:_power",),
)
BRANCHES = Theorem(
    "branch points",
    "log P(x, d) and P(x, d)^q with a fractional q have infinite rank.",
    MOVING + " P is analytic on some interval of x (`is_analytic`).",
    "As for poles: on a circle about a zero of P(·, d_i) that is no zero of the others, a combination that is 0 comes "
    "back as itself plus 2πi·c_i (for a power: with one term times a root of unity), so that "
    "c_i = 0. A product over F is exp(Σ log F).",
    ("separate.py:_log", "separate.py:_power", "verdict.py:separate_product"),
)
COUPLINGS = Theorem(
    "couplings",
    "exp, sin, cos, sinh and cosh of u(x)·v(d) + … have infinite rank.",
    "u and v take infinitely many values (`conditions.speaks`).",
    "With t = u(x) the functions exp(t·v_j) of different v_j are independent on any infinite set with a limit point: "
    "let Σ c_j exp(t·v_j) = 0 and derive it N times at one t, which gives a Vandermonde matrix in the v_j, whose "
    "determinant is not 0. Sines and cosines are sums of two such exponentials with imaginary v.",
    ("separate.py:exponential", "separate.py:_addition"),
)
HULL = Theorem(
    "hull",
    "max and min of h_1(d)·g_1(x) + … + h_r(d)·g_r(x), r > 1, have no state of fixed size.",
    "Derivatives of g_1 … g_r have rank 2 at a sample (`conditions.independent`), the weights move "
    "(`varies_with_side`), and at least three elements attain the extremum alone in samples (`count_strict_extrema`); "
    "no kink that mixes x and d stands in it. Of a term that holds more, three elements do so that would not "
    "without it (`decides`).",
    "The values of g fill an open set, so that any N points on a small arc of a circle in it are those of N elements. "
    "The directions (h_1, h_2) pass continuously over more than one: choose the arc that has them for normals. Then "
    "each of the N points is the farthest in some direction, and what follows moves with each of the N elements alone.",
    ("extremal.py:_extremum_of_product",),
)
STAIRCASE = Theorem(
    "staircase",
    "max and min of where(u(x) > d, w(x), z(x)) have no state of fixed size.",
    "u and w (or z) have derivatives of rank 2 at a sample, or w is strictly monotone in u alone and the choice is not "
    "(`stepped`); d moves, and at least three elements attain the extremum alone in samples, by this (`decides`).",
    "Take N elements with u rising and w falling, which fill no more than an open set: as d passes between them the "
    "largest w above the threshold is that of each in turn. Where w rises with u and the choice takes what lies below "
    "d, the largest is the element next below the threshold, each in turn again.",
    ("extremal.py:_threshold",),
)
SINGULAR = Theorem(
    "singular values",
    "tanh, tan, atan, asinh and their like of P(x, d) have infinite rank.",
    MOVING + " P is analytic on some interval of x (`is_analytic`).",
    "Let c be a finite complex number at which the function is singular, as tanh is at πi/2. Continued to complex x, "
    "f(P(·, d_i)) is singular where P(x, d_i) = c, at places that move with d. In a combination that is 0 the i-th "
    "term alone is singular there, so that c_i = 0.",
    ("separate.py:separate",),
)
WINNERS = Theorem(
    "winners",
    "Extrema of F(x, d), and what selects by F, have no state of fixed size where other elements win for other d.",
    "Of a prefix more elements than a form with so many kinks and masks holds are each alone the largest for some "
    "later data, and more of all than of half of them; F has no flat parts (`winners`).",
    "What wins by a margin wins still when all elements move a little. So the values that follow are F(x_i, d_i), "
    "each of which moves with one element alone.",
    ("winners.py:apply_winners",),
)
MEMBERSHIPS = Theorem(
    "memberships",
    "any of u(x) = v(d), and all of u(x) ≠ v(d), have no state of fixed size.",
    "v is continuous in sums, products and extrema of elements that u does not hold, themselves of continuous terms; "
    "more than 8 of the x_i, and more of all than of half of them, are passed by v(d) as a completion moves "
    "(`memberships`).",
    "Completions of one number of elements are connected: for some v(d) is u(x_i), and u of none of their own "
    "elements. The answer then tells prefixes apart that differ in u(x_i) alone, so that a state is a one-to-one "
    "function of those u(x_i).",
    ("memberships.py:apply_memberships",),
)
THEOREMS = (
    KINKS, CLIPPING, JUMPS, THRESHOLDS, POLES, BRANCHES, COUPLINGS, HULL, STAIRCASE, SINGULAR, WINNERS, MEMBERSHIPS,
)  # fmt: skip

KINK = ("has a kink where its argument is 0, which moves with d: functions with kinks at different places are "
        "independent, so the rank is infinite")  # fmt: skip
CLIPS = "clips x at a threshold that moves with d: every element may change side, so the rank is infinite"
JUMP = "jumps at places that move with d: every element may cross one, so the rank is infinite"
THRESHOLD = "compares x with d: the threshold moves with d and every element may change side, so the rank is infinite"
FLAT = (Where, floor, ceiling, sign, Mod, Cast)
PIECEWISE = (*FLAT, Abs, Max, Min)


def is_analytic(argument: Expr, side: Callable[[Basic], int]) -> bool:
    """Tell if P(x, d) is analytic on some interval of x: no kink or jump mixes x and d, and none is flat in x."""
    return not any(side(node) == X | D or (side(node) & X and isinstance(node, FLAT))
                   for node in nodes_of(argument) if isinstance(node, PIECEWISE))  # fmt: skip


def pole(argument: Expr, what: str, *, analytic: bool) -> tuple[object, bool]:
    """The reason that 1/P does not separate, and True if that is a theorem (it is one about analytic P)."""
    if not analytic:
        return f"is a {what} of a sum that mixes x with d", False
    return Text("has a pole where `", argument, "` is 0, which moves with d: functions with poles at different places "
                 "are independent, so the rank is infinite"), True  # fmt: skip


def singularity(what: str, *, analytic: bool) -> tuple[str, bool]:
    """The reason that log P and P^q do not separate, and True if that is a theorem (it is one about analytic P)."""
    if not analytic:
        return f"is a {what} of a sum that mixes x with d", False
    return (f"is a {what} of a sum that mixes x with d, singular where that is 0, which moves with d: functions "
            "singular at different places are independent, so the rank is infinite"), True  # fmt: skip


UNKNOWN = "applies `{}` to what mixes x with d, and has no addition theorem known to redalg"


def singular(argument: Expr, what: str, *, analytic: bool) -> tuple[object, bool]:
    """The reason that tanh P and its like do not separate, and True if that is a theorem (one about analytic P)."""
    if what not in OPERATORS or not OPERATORS[what].singular or not analytic:
        return UNKNOWN.format(what), False
    return Text("is singular where `", argument, "` has a certain complex value, which moves with d: functions "
                 "singular at different places are independent, so the rank is infinite"), True  # fmt: skip


def coupling_reason(term: Expr, function: str) -> Text:
    """The reason that exp(… + x·d) does not separate."""
    where = "in an exponent" if function == "exp" else f"in `{function}`"
    return Text("couples x with d through the product `", term, f"` {where}: different factors give "
                 "independent functions, so the rank is infinite")  # fmt: skip


def declaration_advice(base: Expr) -> str:
    """The advice that makes a power real if its base's sign is not known: declare a scalar, or write an exponential.

    >>> from redalg import scalars
    >>> declaration_advice(scalars("rate"))
    "Declare it: `ra.scalars('rate', positive=True)`."
    """
    symbols = base.free_symbols
    if isinstance(base, Scalar):
        return f"Declare it: `ra.scalars('{base}', positive=True)`."
    if symbols and all(isinstance(one, Scalar) for one in symbols):
        used = {one.name for one in symbols}
        name = next(name for name in ("beta", "rate", "base", *(f"base_{i}" for i in range(len(used))))
                    if name not in used)  # fmt: skip
        return (
            f"Name it: write `{name}` for `{base}`, with `{name} = ra.scalars('{name}', positive=True)`, and pass its "
            "value at the call."
        )
    return "Where it is positive, write the power as an exponential: `exp(q*log(b))` for `b**q`."
