"""The rank test: the separable rank of a term, measured on samples. It audits verdicts and never makes a yes.

F(x, d) = Σ_{k≤r} h_k(d)·g_k(x) gives every matrix F(x_i, d_j) a rank of at most r. The matrix of 16 × 16 samples, and
its leading 8 × 8 part, are eliminated with complete pivoting at 120 digits. A rank that grows excludes every state of a
lower rank; one that stands still is evidence, not proof (|x − m| looks like rank 5 of 8 and 12 of 16).

Samples lie inside what is known, by construction: d_j is what the reductions make of a few elements of its own, each
taken several times, so that a count is a positive integer and Σ u has the sign of u. An extremum counts every x_i too,
and goes a little beyond, as in a later prefix. Parameters are drawn once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias, final

from mpmath import MPContext
from sympy import Add, And, Expr, Mod, Mul, Not, Or, Pow, S
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from redalg.decompose.signs import UP, Facts, sign_of
from redalg.expression import Axis, Cast, Element, Let, Value, Where
from redalg.expression.contents import of_kind

SMALL, LARGE = 8, 16
DIGITS = 120
NEGLIGIBLE = 90
"""Pivots below 10^-90 of the largest are rounding: 30 digits are left for cancellation in the terms."""
SEED = 2026
Axes: TypeAlias = Axis | Sequence[Axis]
Matrix: TypeAlias = list[list[Any]]
PLACES = range(4 * LARGE)
"""Where samples lie along the axis; integer parameters are drawn from the upper three quarters."""
SIGNIFICAND = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}


@final
@dataclass(frozen=True)
class RankTest:
    """What the samples show.

    Attributes:
        ranks: ranks of the 8 × 8 and of the 16 × 16 matrix; () where the term could not be evaluated.
        missing: why it could not.
    """

    ranks: tuple[int, ...]
    missing: str = ""

    @property
    def grows(self) -> bool:
        """Whether a fixed rank is excluded below the larger figure."""
        return len(self.ranks) == 2 and self.ranks[1] > self.ranks[0]

    @property
    def settles(self) -> bool:
        """Whether the rank is the same at both sizes."""
        return len(self.ranks) == 2 and self.ranks[1] == self.ranks[0]

    def __str__(self) -> str:
        if not self.ranks:
            return f"unavailable: {self.missing}"
        return (f"the matrix F(x_i, d_j) has rank {self.ranks[0]} of {SMALL} and {self.ranks[1]} of {LARGE} samples, "
                f"at {DIGITS} digits")  # fmt: skip


@final
class Unavailable(Exception):  # noqa: N818 - a finding
    """A node that cannot be evaluated; `data` where other samples might do, since it is not a finite real at these."""

    def __init__(self, reason: str, *, data: bool = False) -> None:
        super().__init__(reason)
        self.data = data


@cache
def context() -> Any:
    """Arithmetic of 120 digits, apart from mpmath's own."""
    made = MPContext()
    made.dps = DIGITS
    return made


def rank_test(term: Expr, axes: Axes, values: Iterable[Value], facts: Facts) -> RankTest:
    """The rank test of a term over the reduced axes, whose reduced values are `values`."""
    return audit_of(term, axes, values, facts).test


@final
@dataclass(frozen=True)
class Audit:
    """The rank test of a term, and the samples (None where it could not be evaluated), for tests of its parts."""

    test: RankTest
    samples: Samples | None = None

    def of_part(self, node: Expr) -> RankTest:
        """The rank test of a node at the samples of the term, where most of its values are known."""
        if self.samples is None:
            return self.test
        try:
            return ranks(self.samples.matrix(node))
        except Unavailable as why:
            return RankTest((), str(why))


def audit_of(term: Expr, axes: Axes, values: Iterable[Value], facts: Facts) -> Audit:
    """The rank test of a term, with its samples."""
    try:
        samples, [matrix] = sampled([term], axes, values, facts)
    except Unavailable as why:
        return Audit(RankTest((), str(why)))
    return Audit(ranks(matrix), samples)


def ranks(matrix: Matrix) -> RankTest:
    """The ranks of a matrix and of its leading part."""
    return RankTest(tuple(rank([row[:size] for row in matrix[:size]]) for size in (SMALL, LARGE)))


def equal_on_samples(one: Expr, two: Expr, axes: Axes, values: Iterable[Value], facts: Facts) -> bool:
    """Whether two terms agree at every sample, to all but rounding."""
    try:
        _, [first, second] = sampled([one, two], axes, values, facts)
    except Unavailable:
        return False
    small = context().mpf(10) ** -NEGLIGIBLE
    return all(abs(a - b) <= small * (1 + abs(a)) for p, q in zip(first, second, strict=True)
               for a, b in zip(p, q, strict=True))  # fmt: skip


def sampled(
    terms: list[Expr], axes: Axes, values: Iterable[Value], facts: Facts
) -> tuple[Samples, list[Matrix]]:  # fmt: skip
    """The matrices F(x_i, d_j); data that leave a term undefined are drawn again as positive numbers."""
    wanted = tuple(values)
    for positive in (False, True):
        try:
            samples = Samples(axes, wanted, facts, integers(terms), positive=positive)
            return samples, [samples.matrix(term) for term in terms]
        except Unavailable as why:
            if positive or not why.data:
                raise
    raise AssertionError("one of the two draws returns or raises")


def integers(terms: list[Expr]) -> dict[Element, range]:
    """Elements that are compared: with an index, lengths of the order of the places; for equality, small labels."""
    found: dict[Element, range] = {}
    for node in of_kind(Relational, *terms):
        for side in node.args:
            if isinstance(side, Element) and node.rel_op in ("==", "!="):
                found[side] = range(3)
            elif isinstance(side, Element) and node.atoms(Axis) - side.atoms(Axis):
                found[side] = PLACES[LARGE:]
    return found


def rank(matrix: Matrix) -> int:
    """Rank by elimination with complete pivoting, in integers: no entry grows much, and smaller ones are negligible."""
    largest = max((abs(value) for row in matrix for value in row), default=0)
    if not largest:
        return 0
    ctx, found = context(), 0
    unit = ctx.prec - ctx.mag(largest)
    rows = [[int(ctx.ldexp(value, unit)) for value in row] for row in matrix]
    negligible = int(ctx.ldexp(largest, unit)) // 10**NEGLIGIBLE
    while rows:
        sizes = [max(map(abs, row), default=0) for row in rows]
        size = max(sizes)
        if size <= negligible:
            return found
        lead = rows.pop(sizes.index(size))
        column = [abs(value) for value in lead].index(size)
        pivot, found = lead.pop(column), found + 1
        rows = [_eliminated(row, lead, row.pop(column), pivot) for row in rows]
    return found


def _eliminated(row: list[int], lead: list[int], above: int, pivot: int) -> list[int]:
    return [a - above * b // pivot for a, b in zip(row, lead, strict=True)] if above else row


# ---- samples ---------------------------------------------------------------------------------------------------------

Rule = Callable[..., Any]
SAMPLES = 3 * LARGE
"""How many x there are: those of the rows, and two for each d_j."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """A node and its parts: how it is evaluated, and its values at the samples so far.

    They are kept by `i·by_x + j·by_d`, of which those are 0 with whose samples the node does not move.
    """

    node: Any
    by_x: int
    by_d: int
    rule: Rule
    parts: tuple[Sampled, ...]
    made: dict[int, Any]


@final
class Samples:
    """Values of nodes at the samples (x_i, d_j), each computed once for the samples that it depends on."""

    def __init__(
        self,
        axes: Axis | Sequence[Axis],
        values: tuple[Value, ...],
        facts: Facts,
        labels: Mapping[Element, range],
        *,
        positive: bool,
    ) -> None:
        self.axes = (axes,) if isinstance(axes, Axis) else tuple(axes)
        self.values, self.facts, self.positive = frozenset(values), facts, positive
        self.labels = labels
        self.random = random.Random(SEED)
        self.places = self.random.sample(PLACES, SAMPLES)
        self.times = list(map(self._times, range(LARGE)))
        self.ctx = context()
        self._known: dict[Basic, Sampled] = {}

    def _times(self, j: int) -> tuple[int, int]:
        """How often d_j takes each of its two elements: together as often as axes of known sizes have elements."""
        draw, sizes = self.random.randrange, [axis.size for axis in self.axes if axis.size is not None]
        if len(sizes) == len(self.axes):
            first = draw(1 + prod(sizes))
            return first, prod(sizes) - first
        return (1, 1) if j % 2 else (draw(1, 6), draw(1, 6))

    def matrix(self, node: Basic) -> Matrix:
        """F(x_i, d_j)."""
        known = self.known(node)
        return [[self.real_of(known, i, j) for j in range(LARGE)] for i in range(LARGE)]

    def at(self, node: Basic, i: int, j: int) -> Any:
        """The node at (x_i, d_j)."""
        return self.value_of(self.known(node), i, j)

    def real(self, node: Basic, i: int, j: int) -> Any:
        """The node at (x_i, d_j), a finite real number."""
        return self.real_of(self.known(node), i, j)

    def value_of(self, one: Sampled, i: int, j: int) -> Any:
        """A known node at (x_i, d_j)."""
        key = i * one.by_x + j * one.by_d
        made = one.made.get(key)
        if made is None:
            try:
                made = one.made[key] = one.rule(self, one, i, j)
            except (ArithmeticError, ValueError, TypeError) as why:
                raise Unavailable(f"`{one.node}` is not defined at the samples", data=True) from why
        return made

    def real_of(self, one: Sampled, i: int, j: int) -> Any:
        """A known node at (x_i, d_j), a finite real number."""
        made = self.value_of(one, i, j)
        if isinstance(made, self.ctx.mpf):
            _, mantissa, exponent, _ = made._mpf_
            if mantissa or not exponent:  # neither infinite nor NaN
                return made
        elif self.ctx.isfinite(made) and getattr(made, "imag", 0) == 0:
            return self.ctx.re(made)
        raise Unavailable(f"`{one.node}` is not a real number at the samples", data=True)

    def known(self, node: Basic) -> Sampled:
        """What is known of a node."""
        if node not in self._known:
            leaf = node in self.values or isinstance(node, Element | Value)
            parts = () if leaf else tuple(self.known(arg) for arg in node.args)
            on_x, on_d = self._sides(node, parts)
            self._known[node] = Sampled(node, on_x * LARGE, int(on_d), self._rule(node), parts, {})
        return self._known[node]

    def _sides(self, node: Basic, parts: Sequence[Sampled]) -> tuple[bool, bool]:
        if node in self.values:
            return False, True
        if isinstance(node, Element | Value):
            return not node.free_symbols.isdisjoint(self.axes), False
        return node in self.axes or any(one.by_x for one in parts), any(one.by_d for one in parts)

    def _rule(self, node: Basic) -> Rule:
        if node in self.axes:
            return Samples._place
        if node in self.values:
            return Samples._value
        if isinstance(node, Element | Value):
            return Samples._element
        if node.is_Symbol:
            return Samples._parameter
        return next((rule for kind, rule in RULES if isinstance(node, kind)), _unknown)

    # ---- leaves ------------------------------------------------------------------------------------------------------

    def _place(self, one: Sampled, i: int, _: int) -> Any:
        """The places of one axis after another's, so that no two move together."""
        return self.ctx.mpf(self.places[i - self.axes.index(one.node)])

    def _element(self, one: Sampled, *_: int) -> Any:
        drawn = self.labels.get(one.node)
        return self._number(self.positive) if drawn is None else self.ctx.mpf(self.random.choice(drawn))

    def _number(self, positive: bool) -> Any:
        """A real of size about 1, of either sign unless `positive`."""
        drawn = self.ctx.mpf(self.random.randrange(2**20, 2**53)) / 2**52
        return drawn if positive or self.random.random() < 0.5 else -drawn

    def _parameter(self, one: Sampled, *_: int) -> Any:
        if one.node.is_integer:
            return self.ctx.mpf(self.random.choice(PLACES[LARGE:]))
        sign = sign_of(one.node, self.facts)
        made = self._number(sign is not None or self.positive)
        return made if sign is None or sign in UP else -made

    def _value(self, one: Sampled, _: int, j: int) -> Any:
        """What a reduction makes of the elements of d_j."""
        monoid, term = self.facts.get(one.node, ("", S.NaN))
        own = (LARGE + 2 * j, LARGE + 2 * j + 1)
        if monoid in ("max", "min"):
            return self._extremum(monoid, term, [*range(LARGE), *own], j)
        if monoid in ("any", "all"):
            return self.ctx.mpf(self.random.randrange(2))
        if monoid not in ("sum", "prod"):
            return self._number(positive=True)
        taken = [(self.real(term, i, j), times) for i, times in zip(own, self.times[j], strict=True)]
        if monoid == "sum":
            return sum((value * times for value, times in taken), self.ctx.zero)
        return prod((value**times for value, times in taken), start=self.ctx.one)

    def _extremum(self, monoid: str, term: Expr, elements: list[int], j: int) -> Any:
        known = self.known(term)
        values = (self.value_of(known, i, j) for i in elements)
        found = [value for value in values if self.ctx.isfinite(value)] or [self.ctx.zero]
        if any(getattr(value, "imag", 0) for value in found):
            raise Unavailable(f"`{term}` is not a real number at the samples", data=True)
        beyond = self._number(positive=True)
        if monoid == "max":
            return max(found) + beyond
        least = min(found)
        return least * beyond / (1 + beyond) if sign_of(term, self.facts) in UP else least - beyond

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def values_of(self, parts: Sequence[Sampled], i: int, j: int) -> list[Any]:
        """The values of a node's parts."""
        return [self.value_of(part, i, j) for part in parts]

    def _power(self, one: Sampled, i: int, j: int) -> Any:
        base = self.value_of(one.parts[0], i, j)
        exponent = one.node.exp
        if exponent.is_Integer:
            return base ** int(exponent)
        return self.ctx.power(base, self.value_of(one.parts[1], i, j))

    def _where(self, one: Sampled, i: int, j: int) -> Any:
        condition, a, b = one.parts
        return self.value_of(a if self.value_of(condition, i, j) else b, i, j)

    def _relation(self, one: Sampled, i: int, j: int) -> bool:
        left, right = (self.real_of(part, i, j) for part in one.parts)
        return COMPARED[one.node.rel_op](left, right)

    def _cast(self, one: Sampled, i: int, j: int) -> Any:
        x, dtype = self.real_of(one.parts[0], i, j), one.node.dtype
        if dtype.startswith("int"):
            limit = 2 ** (int(dtype[3:]) - 1)
            return min(max(self.ctx.nint(x), self.ctx.mpf(-limit)), self.ctx.mpf(limit - 1))
        significand, exponent = self.ctx.frexp(x)
        unit = self.ctx.mpf(2) ** SIGNIFICAND[dtype]
        return self.ctx.ldexp(self.ctx.nint(significand * unit) / unit, exponent)


COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: bool(a < b), "<=": lambda a, b: bool(a <= b), ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b), "==": lambda a, b: bool(a == b), "!=": lambda a, b: bool(a != b),
}  # fmt: skip

PLAIN = {
    name: name for name in ("exp", "log", "tanh", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh",
                            "acosh", "atanh", "atan2", "erf", "erfc", "floor", "sign", "expm1")
} | {"ceiling": "ceil", "log1p": "log1p", "Abs": "fabs"}  # fmt: skip
REAL_ONLY = {"floor", "ceiling", "sign", "atan2", "Abs"}


def _unknown(_: Samples, one: Sampled, *__: int) -> Any:
    raise Unavailable(f"`{one.node}` applies `{type(one.node).__name__}`, which the test cannot evaluate")


def _function(samples: Samples, one: Sampled, i: int, j: int) -> Any:
    node, parts = one.node, one.parts
    name = type(node).__name__
    if name in ("Max", "Min"):
        return (max if name == "Max" else min)(samples.real_of(part, i, j) for part in parts)
    if not parts and node.is_number:
        return samples.ctx.mpmathify(node._to_mpmath(context().prec)) if node.is_finite else _infinite(samples, node)
    if name not in PLAIN:
        raise Unavailable(f"`{node}` applies `{name}`, which the test cannot evaluate")
    read = samples.real_of if name in REAL_ONLY else samples.value_of
    return getattr(samples.ctx, PLAIN[name])(*(read(part, i, j) for part in parts))


def _infinite(samples: Samples, node: Expr) -> Any:
    if node is S.NegativeInfinity or node is S.Infinity:
        return samples.ctx.mpf("-inf" if node is S.NegativeInfinity else "inf")
    raise Unavailable(f"`{node}` is not a number", data=True)


RULES: tuple[tuple[Any, Any], ...] = (
    (Where, Samples._where),
    (Cast, Samples._cast),
    (Let, lambda samples, one, i, j: samples.at(one.node.expr, i, j)),
    (Pow, Samples._power),
    (Relational, Samples._relation),
    (And, lambda samples, one, i, j: all(samples.values_of(one.parts, i, j))),
    (Or, lambda samples, one, i, j: any(samples.values_of(one.parts, i, j))),
    (Not, lambda samples, one, i, j: not samples.value_of(one.parts[0], i, j)),
    (BooleanTrue, lambda *_: True),
    (BooleanFalse, lambda *_: False),
    (Mod, lambda samples, one, i, j: samples.real_of(one.parts[0], i, j) % samples.real_of(one.parts[1], i, j)),
    (Add, lambda samples, one, i, j: sum(samples.values_of(one.parts, i, j), samples.ctx.zero)),
    (Mul, lambda samples, one, i, j: prod(samples.values_of(one.parts, i, j), start=samples.ctx.one)),
    (Expr, _function),
)  # fmt: skip
