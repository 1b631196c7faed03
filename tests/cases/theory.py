"""THEORY.md section 6 as data: every pattern of its table, in every spelling, and every "no" with its reason.

A row's errors are those of the table: |got − definition| / Σ |summand|, in float32, over every kind of
`tests/cases/data_kinds.py` that its tensors' roles have. `Row.facts` keeps the table's counts; where a
spelling's differ for a good reason, `Row.counted` says how many and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from sympy import Abs, Max, Rational, exp, floor, log, sqrt, tanh

import redalg as ra
from tests.cases.corpus import Pattern

n, c = ra.axes("n c")
s, t, x, y, z, u, v, w, p = ra.tensors("s[n,c] t[n,c] x[n,c] y[n,c] z[n,c] u[n,c] v[n,c] w[n,c] p[n,c]")
cap, scale = ra.scalars("cap scale", positive=True)
eps = Rational(1, 10**6)
N = n.extent

FINITE = ("plain", "huge", "neg", "ramp")
"""The kinds of logits that hold no −∞: −∞ as the logit of a label that counts makes a loss infinite."""


@final
@dataclass(frozen=True)
class Facts:
    """What the table says of a pattern: accumulators (of which droppable), extremal slots."""

    accumulators: int
    droppable: int = 0
    extrema: int = 0


@final
@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        pattern: the spelling of the table, whose definition is the reference.
        redfuser: whether the rank-1 rule accepts every reduction.
        rank: separable rank of the last reduction.
        facts: the table's counts.
        error: the table's figure.
        spellings: equivalent expressions, which must be as good.
        counted: spelling -> its own counts, where they differ from the table's, and why ("" is the table's spelling).
        reference: what defines the value where the spelling itself overflows any arithmetic.
        kinds: tensor -> the kinds of its role that make sense here (all, where it is left out).
        terms: Σ |terms| of `finish`, where they are not the summands: what the condition number is made of.
    """

    pattern: Pattern
    redfuser: bool
    rank: int
    facts: Facts
    error: float
    spellings: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    counted: Mapping[str, tuple[Facts, str]] = field(default_factory=dict)
    reference: Callable[[], Any] | None = None
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    terms: Callable[[], Any] | None = None


def row(name: str, build: Callable[[], Any], roles: Mapping[str, str], redfuser: bool, rank: int, facts: Facts,
        error: float, scalars: Mapping[str, float] | None = None, **more: Any) -> Row:  # fmt: skip
    pattern = Pattern(name, build, "c", roles, "THEORY.md, section 6", scalars or {})
    return Row(pattern, redfuser, rank, facts, error, **more)


# ---- the expressions -------------------------------------------------------------------------------------------------


def mean(expr: Any) -> Any:
    return ra.mean(expr, n)


def total(expr: Any) -> Any:
    return ra.sum(expr, n)


def dev(expr: Any) -> Any:
    """A deviation from the mean."""
    return expr - mean(expr)


def softmax_inside(logit: Any, value: Any) -> Any:
    """Σ (exp(s − m) / l)·v: the definition, with 1/l inside."""
    return total(ra.softmax(logit, n) * value)


def softmax_outside(logit: Any, value: Any) -> Any:
    weight = exp(logit - ra.max(logit, n))
    return total(weight * value) / total(weight)


def entropy() -> Any:
    share = ra.softmax(s, n)
    return total(share * log(share))


def entropy_terms() -> Any:
    """Z1/l − log l: a rounding of l moves log l by as much as a rounding of 1."""
    share = ra.softmax(s, n)
    return total(Abs(share * (s - ra.max(s, n)))) + 1


def weighted_mean() -> Any:
    return total(w * x) / total(w)


def softmax_variance() -> Any:
    share = ra.softmax(s, n)
    return total(share * (v - total(share * v)) ** 2)


def softmax_variance_raw() -> Any:
    share = ra.softmax(s, n)
    return total(share * v**2) - total(share * v) ** 2


def backward_dq() -> Any:
    share = ra.softmax(s, n)
    return total(share * (x - total(share * x)) * v)


def backward_terms() -> Any:
    """a2/l − a1·a3/l² about a pivot that is D rounded to float32, so that a1/l is off 0 by a rounding of D."""
    share = ra.softmax(s, n)
    middle = total(share * x)
    return total(Abs(share * (x - middle) * v)) + Abs(middle) * total(Abs(share * v)) / 2**24


def moment(power: int) -> Any:
    return total((dev(x) / sqrt(mean(dev(x) ** 2) + eps)) ** power)


def moment_outside(power: int) -> Any:
    return total(dev(x) ** power) / (mean(dev(x) ** 2) + eps) ** Rational(power, 2)


def pearson() -> Any:
    return total(dev(x) * dev(y) / sqrt(total(dev(x) ** 2) * total(dev(y) ** 2) + eps))


def pearson_raw() -> Any:
    squares = [N * total(one**2) - total(one) ** 2 for one in (x, y)]
    return (N * total(x * y) - total(x) * total(y)) / sqrt(squares[0] * squares[1] + eps * N**2)


def slope() -> Any:
    return total(dev(x) * dev(y)) / (total(dev(x) ** 2) + eps)


def inertia() -> Any:
    mass = total(w)
    return total(w * sum((one - total(w * one) / mass) ** 2 for one in (x, y, z)))


def inertia_by_axis() -> Any:
    mass = total(w)
    return sum(total(w * (one - total(w * one) / mass) ** 2) for one in (x, y, z))


def centred_quantized() -> Any:
    largest = ra.max(Abs(dev(x)), n)
    return total(127 * dev(x) / (largest + eps) * u)


def min_max() -> Any:
    low, high = ra.min(x, n), ra.max(x, n)
    return total((x - low) / (high - low + eps) * u)


L, LV, V, VU, VV, UU = ({"s": "logit"}, {"s": "logit", "v": "value"}, {"x": "value"}, {"x": "value", "u": "free"},
                        {"x": "value", "y": "value"}, {"x": "free", "y": "free"})  # fmt: skip
VARIANCE = {
    "ra.var": lambda: N * ra.var(x, n),
    "mean of squares less square of mean": lambda: N * (mean(x**2) - mean(x) ** 2),
    "raw moments": lambda: total(x**2) - total(x) ** 2 / N,
    "expanded": lambda: total(x**2 - 2 * x * mean(x) + mean(x) ** 2),
    "count as a sum of ones": lambda: total((x - total(x) / total(1)) ** 2),
    "one deviation": lambda: total(x * dev(x)),
}

SHIFTED = "the other factor is shifted too, and its residual vanishes as well"

ROWS = (
    row("softmax denominator", lambda: total(exp(s - ra.max(s, n))), L, True, 1, Facts(1, 0, 1), 2e-7),
    row("attention, 1/l inside", lambda: softmax_inside(s, v), LV, True, 1, Facts(2, 0, 1), 6e-7,
        spellings={"1/l outside": lambda: softmax_outside(s, v)}),
    row("attention with scale and softcap", lambda: softmax_inside(cap * tanh(scale * s / cap), v), LV, True, 1,
        Facts(2, 0, 1), 6e-7, {"cap": 30.0, "scale": 0.125}),
    row("naive softmax, no max written", lambda: total(exp(s) * v) / total(exp(s)), LV, True, 1, Facts(2, 0, 1), 3e-7,
        spellings={"1/l inside": lambda: total(exp(s) / total(exp(s)) * v)},
        reference=lambda: softmax_inside(s, v)),
    row("entropy Σ p log p", entropy, L, False, 2, Facts(2, 0, 1), 1e-7, terms=entropy_terms,
        spellings={"with the logarithm written out": lambda: total(
            ra.softmax(s, n) * (s - ra.max(s, n) - log(total(exp(s - ra.max(s, n))))))}),
    row("soft-label cross entropy", lambda: total(-p * log(ra.softmax(s, n))), {"s": "logit", "p": "weight"}, False, 2,
        Facts(3, 0, 1), 2e-7, spellings={"by logsumexp": lambda: total(p * (ra.logsumexp(s, n) - s))},
        kinds={"s": FINITE}),
    row("softmax-weighted variance", softmax_variance, LV, False, 3, Facts(3, 1, 1), 3e-7,
        spellings={"raw moments": softmax_variance_raw}),
    row("attention backward dQ", backward_dq, {"s": "logit", "x": "value", "v": "value"}, False, 2, Facts(4, 1, 1),
        9e-6, terms=backward_terms, counted={"": (Facts(4, 2, 1), SHIFTED)}),
    row("variance (any spelling)", lambda: total(dev(x) ** 2), V, False, 3, Facts(3, 1), 5e-7, spellings=VARIANCE),
    row("weighted variance", lambda: total(w * (x - weighted_mean()) ** 2), {"w": "weight", "x": "value"}, False, 3,
        Facts(3, 1), 7e-7, spellings={"raw moments": lambda: total(w * x**2) - total(w * x) ** 2 / total(w)}),
    row("skewness", lambda: moment(3), V, False, 4, Facts(4, 1), 2e-6,
        spellings={"divided outside": lambda: moment_outside(3)}),
    row("kurtosis", lambda: moment(4), V, False, 5, Facts(5, 1), 2e-6,
        spellings={"divided outside": lambda: moment_outside(4)}),
    row("covariance", lambda: total(dev(x) * dev(y)), VV, False, 4, Facts(4, 2), 5e-7,
        spellings={"raw moments": lambda: total(x * y) - total(x) * total(y) / N,
                   "mean of products less product of means": lambda: N * (mean(x * y) - mean(x) * mean(y)),
                   "one deviation": lambda: total(x * dev(y))}),
    row("Pearson r", pearson, VV, False, 4, Facts(6, 2), 5e-7, spellings={"raw moments": pearson_raw}),
    row("regression SSE", lambda: total((dev(y) - slope() * dev(x)) ** 2), VV, False, 6, Facts(6, 2), 5e-7,
        counted={"": (Facts(6), "the line's pivots are members of the data, about which no residual vanishes")}),
    row("moment of inertia, 3-D", inertia, {"w": "weight", "x": "value", "y": "value", "z": "value"}, False, 5,
        Facts(5, 3), 5e-7, spellings={"axis by axis": inertia_by_axis},
        counted={"axis by axis": (Facts(7, 3), "three reductions, each with a second moment of its own")}),
    row("RMSNorm → matvec", lambda: total(x * u / sqrt(mean(x**2) + eps)), VU, True, 1, Facts(3), 5e-7),
    row("LayerNorm → matvec", lambda: total(dev(x) / sqrt(mean(dev(x) ** 2) + eps) * u), VU, False, 2, Facts(5, 1),
        5e-7, spellings={"by ra.var": lambda: total(dev(x) / sqrt(ra.var(x, n) + eps) * u)},
        counted={"": (Facts(5, 2), SHIFTED), "by ra.var": (Facts(5, 2), SHIFTED)}),
    row("cosine similarity", lambda: total(x * y / sqrt(total(x**2) * total(y**2) + eps)), UU, True, 1, Facts(3), 1e-7),
    row("abs-max quant GEMV, no cast", lambda: total(127 * x / ra.max(Abs(x), n) * u), VU, True, 1, Facts(1, 0, 1),
        3e-7),
    row("centred abs-max quant", centred_quantized, VU, False, 2, Facts(4, 1, 2), 2e-7,
        counted={"": (Facts(4, 2, 2), SHIFTED)}),
    row("min-max normalise + dot", min_max, VU, False, 2, Facts(2, 0, 2), 3e-7),
    row("Sum + Sum", lambda: total(y + x * total(x)), UU, False, 2, Facts(2), 3e-8),
)  # fmt: skip


# ---- what can't be fused ---------------------------------------------------------------------------------------------

KINK, MOVES, COUPLED = "has a kink", "moves with", "couples"


def no(name: str, build: Callable[[], Any], why: str, verdict: str = "Refused") -> Pattern:
    return Pattern(name, build, "c", {}, "THEORY.md, section 6", verdict=verdict, why=why)


def jensen_shannon() -> Any:
    first, second = ra.softmax(s, n), ra.softmax(t, n)
    middle = (first + second) / 2
    return total(first * log(first / middle) + second * log(second / middle)) / 2


NOES = (
    no("Σ |x − mean|", lambda: total(Abs(dev(x))), KINK),
    no("Σ max(x, mean)", lambda: total(Max(x, mean(x))), MOVES),
    no("count above the mean", lambda: total(ra.where(x > mean(x), 1, 0)), MOVES),
    no("Σ σ(x·m)", lambda: total(1 / (1 + exp(-x * mean(x)))), COUPLED),
    no("Σ exp(x·d)", lambda: total(exp(x * total(x))), COUPLED),
    no("a Gaussian about the mean", lambda: total(exp(-(dev(x) ** 2) / 2)), COUPLED),
    no("Jensen-Shannon", jensen_shannon, MOVES),
    no("1/(x − m)", lambda: total(1 / dev(x)), "has a pole"),
    no("⌊127·x/amax⌋", lambda: total(floor(127 * x / ra.max(Abs(x), n)) * u), "jumps"),
    no("round(x/amax)", lambda: total(ra.cast(127 * x / ra.max(Abs(x), n), "int8") * u), "", "Approximate"),
)
