"""Theorems against what they refuse: data that are drawn jointly try to break every one that the engine can state.

What a theorem refuses must move with ever more of its elements (`tests/cases/joint.py`); what only looks like it, by
few values, constants, one function of x, or a d that x determines, must not be refused by one.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping

import pytest
from sympy import Abs, Expr, Max, Min, Mod, S, cos, exp, floor, log, oo, sign, sin, sqrt, tanh

import redalg as ra
from redalg.decompose.separate.theorems import THEOREMS
from tests.cases.decided import n, w, x, y
from tests.cases.joint import dimension
from tests.house.source import sources

FEW, MANY = 6, 24
EDGE = S.One / 20
"""The width of a step that is made smooth, for a derivative."""
Member = Callable[[Expr, Expr, Expr], Expr]
"""A cascade of u(x), of d and of a weight."""


def smooth(u: Expr) -> Expr:
    """A step from 0 to 1 at 0."""
    return (1 + tanh(u / EDGE)) / 2


MEMBERS: Mapping[str, tuple[tuple[Member, Member | None], ...]] = {
    "kinks": (
        (lambda u, d, g: ra.sum(g * Abs(u - d), n), None),
        (lambda u, d, g: ra.mean(Abs(u - 2 * d) ** 3, n), None),
    ),
    "clips": (
        (lambda u, d, g: ra.sum(g * Max(u, d), n), None),
        (lambda u, d, g: ra.sum(g * Min(u - d, 0) ** 2, n), None),
    ),
    "jumps": (
        (lambda u, d, g: ra.sum(g * sign(u - d), n), lambda u, d, g: ra.sum(g * (2 * smooth(u - d) - 1), n)),
        (lambda u, d, g: ra.sum(g * floor(u - d), n),
         lambda u, d, g: ra.sum(g * sum(smooth(u - d - k) for k in range(-3, 4)), n)),
    ),
    "thresholds": (
        (lambda u, d, g: ra.sum(ra.where(u > d, g, 0), n), lambda u, d, g: ra.sum(smooth(u - d) * g, n)),
        (lambda u, d, g: ra.mean(ra.where(u <= d, y, g), n), lambda u, d, g: ra.mean(y + smooth(u - d) * (g - y), n)),
    ),
    "poles": (
        (lambda u, d, g: ra.sum(g / (u**2 + d**2 + 1), n), None),
        (lambda u, d, g: ra.sum(g / (u - d), n), None),
    ),
    "branch points": (
        (lambda u, d, g: ra.sum(g * log(u**2 + d**2 + S.One / 9), n), None),
        (lambda u, d, g: ra.sum(g * sqrt(u**2 + d**2), n), None),
        (lambda u, d, g: log(ra.prod(1 + (u - d) ** 2 * g / 4, n)), None),
    ),
    "couplings": (
        (lambda u, d, g: ra.sum(g * exp(3 * u * tanh(d)), n), None),
        (lambda u, d, g: ra.sum(g * sin(u * d), n), None),
        (lambda u, d, g: ra.sum(g * cos(u * d + 1), n), None),
    ),
    "hull": (
        (lambda u, d, g: ra.max(u * d + 2 * x + y, n), None),
        (lambda u, d, g: ra.min(x * d - 3 * x - y, n), None),
    ),
    "staircase": (
        (lambda u, d, g: ra.max(ra.where(u > d, y, -oo), n), None),
        (lambda u, d, g: ra.max(ra.where(u < d, u, -oo), n), None),
    ),
    "singular values": ((lambda u, d, g: ra.sum(g * tanh(2 * u - d), n), None),),
    "winners": (
        (lambda u, d, g: ra.min((u - d) ** 2 + y / 100, n), None),
        (lambda u, d, g: ra.max(exp(-((u - d) ** 2)) + y / 100, n), None),
    ),
    "memberships": (
        (lambda u, d, g: ra.any(ra.eq(u, d), n), lambda u, d, g: ra.prod(u - d, n)),
        (lambda u, d, g: ra.all(ra.ne(2 * u - 1, d * tanh(d) + d), n),
         lambda u, d, g: ra.prod(2 * u - 1 - d * tanh(d) - d, n)),
    ),
}  # fmt: skip
"""By theorem: what it may refuse, and the same without jumps, for a derivative."""
CONVEX = ("hull", "staircase")
FUNCTIONS = (x, x + y / 8)
MOVING = (ra.mean(w, n), ra.mean(x, n), ra.sum(w * y, n) / 4)
WEIGHTS = (S.One, w**2 + 1)
CASES = [(name, number) for name, members in MEMBERS.items() for number in range(len(members))]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_what_a_theorem_refuses_moves_with_ever_more_elements(name: str, number: int) -> None:
    member, twin = MEMBERS[name][number]
    refused = 0
    moving = (ra.mean(w, n), ra.sum(w, n) / 4) if name in CONVEX else MOVING
    for place, (u, d, g) in enumerate(itertools.product(FUNCTIONS, moving, WEIGHTS)):
        verdict = ra.analyze(member(u, d, g)) if place % 3 == number % 3 else None
        if isinstance(verdict, ra.Refused) and verdict.certificate:
            written = (twin or member)(u, d, g)
            many = (dimension(written, MANY, seed, circle=name in CONVEX) for seed in (0, 1, 2))
            assert any(one > FEW for one in many), f"{member(u, d, g)}: {verdict.reason}"
            refused += 1
    assert refused


SELECTED = (
    ra.sum_at_max(w, y, n), ra.compensated_sum(w, n) / 4, ra.sum(ra.where(ra.eq(n, ra.argmax(w, n)), y, 0), n),
)  # fmt: skip
"""Values of several operands that later elements move."""


@pytest.mark.parametrize("name", ["kinks", "clips", "thresholds", "branch points", "singular values"])
def test_what_is_taken_at_an_extremum_moves_with_ever_more_elements(name: str) -> None:
    member, twin = MEMBERS[name][0]
    for d in SELECTED:
        verdict = ra.analyze(member(x, d, S.One))
        assert isinstance(verdict, ra.Refused)
        assert verdict.certificate, d
        assert any(dimension((twin or member)(x, d, S.One), MANY, seed) > FEW for seed in (0, 1, 2)), d


def test_the_measure_finds_states() -> None:
    """The value of what has a state of k numbers moves in at most k ways."""
    for expr, most in (
        (ra.var(x, n), 3), (ra.sum(ra.softmax(x, n) * y, n), 3), (ra.max(Abs(x - ra.mean(w, n)), n), 3),
        (ra.mean((x - ra.mean(x, n)) ** 4, n), 5), (ra.sum(Max(x, ra.max(x, n) - 0 * y), n), 2),
    ):  # fmt: skip
        assert dimension(expr, FEW) <= most
        assert dimension(expr, MANY) <= most


NARROW = (sign(x), Mod(n, 3), ra.where(x > 0, 1, -1), (-1) ** n, Min(2, Max(-2, floor(3 * x))), S(3))
"""Functions of few values."""
TIED = (
    ra.max(sign(y), n), ra.any(y > 0, n), ra.min(ra.where(y > 0, 1, 2), n), ra.max(Min(9, Max(0, floor(4 * y))), n),
    ra.max(Mod(n, 4), n), ra.max(ra.where(x > 0, 3, 1), n),
)  # fmt: skip
"""Values that are one of few."""
WHOLES = (
    (Abs(x), ra.sum(Abs(x), n)), (x, ra.max(x, n)), (x, ra.max(Abs(x), n)), (x**2, ra.sum(x**2, n)),
    (x, ra.max(ra.where(x < ra.max(x, n), x, -oo), n)), (x, ra.logsumexp(x, n)), (exp(x), ra.sum(exp(x), n)),
    (-x, -ra.min(x, n)), (n, ra.argmax(x, n)), (n, n.extent),
)  # fmt: skip
"""Parts beside a whole, or beside what x determines."""
LOOKALIKES = [(u, MOVING[0]) for u in NARROW] + [(x, d) for d in TIED]
PLACED = ("kinks", "clips", "thresholds")
"""Theorems about where an element lies, of which nothing is left where a whole bounds its parts."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MEMBERS)
def test_no_theorem_refuses_what_has_a_state(name: str) -> None:
    """Where x or d takes few values, or one bounds the other, a theorem is stated only of what moves without end."""
    for member, twin in MEMBERS[name]:
        for u, d in [*LOOKALIKES, *(WHOLES if name in PLACED else ())]:
            try:
                verdict = ra.analyze(member(u, d, S.One))
            except ra.ExpressionError:  # SymPy finds a constant
                continue
            if isinstance(verdict, ra.Refused) and verdict.certificate:
                written = (twin or member)(u, d, S.One)
                ways = [dimension(written, MANY, seed, circle=name in CONVEX) for seed in (0, 1)]
                assert max(ways) > FEW, f"{member(u, d, S.One)}: {verdict.reason}"


def test_a_clip_at_the_second_largest_is_not_refused() -> None:
    """n·m₂ + ties·(m₁ − m₂): only what attains the maximum lies above."""
    largest = ra.max(x, n)
    second = ra.max(ra.where(x < largest, x, -oo), n)
    assert not isinstance(ra.analyze(ra.sum(Max(x, second), n)), ra.Refused)


def test_nothing_is_later_than_the_first() -> None:
    """Σ |x − first x| is refused, and not since a later first would need the elements."""
    verdict = ra.analyze(ra.sum(Abs(x - ra.first(x, n)), n))
    assert isinstance(verdict, ra.Refused)
    assert "once known" not in verdict.reason


# ---- the registry ----------------------------------------------------------------------------------------------------

HANDS_ON = {"separate.py:rank_one", "verdict.py:settle_by_rank", "extremal.py:_polynomial"}
"""What raises a finding that another place has stated."""


def places() -> set[str]:
    """Every function of the engine that may state a theorem."""
    found = set()
    for source in sources("redalg"):
        for function in (one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)):
            for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
                if any(key.arg == "certain" and ast.unparse(key.value) != "False" for key in call.keywords):
                    found.add(f"{source.path.name}:{function.name}")
    return found


def test_every_theorem_is_registered_with_its_proof_and_a_property() -> None:
    assert places() - HANDS_ON == {place for one in THEOREMS for place in one.raised}
    assert {one.name for one in THEOREMS} == set(MEMBERS)
    assert all(one.states and one.where and len(one.proof.split()) > 20 for one in THEOREMS)
