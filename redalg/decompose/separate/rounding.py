"""Roundings that mix x and d: why one pass only approximates them, and by how much at most.

The definition rounds g(x)·h(d) with the final d; one pass meets x while d is still running, and has

    cast(g·h')/h' · h          h' = h of the d so far                  instead of          cast(g·h)

With u the dtype's unit roundoff, η half its smallest step (float: of the subnormals; integers: 1/2, and u = 0) and L
its largest number, a rounding moves a number by at most (Higham 2002, section 2.1)

    |cast(q) − q| ≤ u·|q| + η                                where |q| ≤ L; beyond it, |q| − L of what saturates, and ∞

and so h'·cast/h' by at most u·|g·h| + η·|h/h'|. A pass rounds at h' only where it is known that |g·h'| ≤ L for every
prefix and that |h| never grows, |h/h'| ≤ 1; the two differ by at most 2u·|g·h| + 2η. h' a power of 2 commutes with the
rounding of floats but for η. Else it leaves the rounding out: the difference is that of cast(q) and q.

A sum that holds roundings moves with them: a product by Σ (its factors' sizes, one of them its own move), a power, a
choice and what is linear accordingly; what holds a value that has moved, moves too (`bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sympy import Abs, Add, Dummy, Expr, Integer, Max, Min, Mul, Pow, Rational, S, ceiling, exp, floor, log
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Reduction
from redalg.decompose.domain import live_term
from redalg.expression import Cast, Reduce, Value, Where
from redalg.expression.contents import values_of
from redalg.expression.dtypes import DTYPES, is_float


def roundoff(dtype: str) -> Expr:
    """The unit roundoff of a float; 0 of an integer."""
    return Rational(1, 2 ** DTYPES[dtype].digits) if is_float(dtype) else S.Zero


def half_step(dtype: str) -> Expr:
    """Half of the smallest step: of a float that between subnormal numbers."""
    return Rational(1, 2 ** (DTYPES[dtype].digits - DTYPES[dtype].least)) if is_float(dtype) else S.Half


@final
@dataclass(frozen=True)
class Rounding:
    """A cast of what mixes x and d.

    Attributes:
        cast: the node as written.
        scale: h(d), by whose running value the pass rounds; None if it leaves the rounding out.
        within: True if what is rounded is known to lie within the dtype's largest number.
    """

    cast: Cast
    scale: Expr | None
    within: bool = False

    @property
    def by_power_of_two(self) -> bool:
        """Tell if the scale moves by powers of 2 alone: a float is rounded alike before and after it."""
        return self.scale is not None and is_power_of_two_scale(self.scale.as_coeff_Mul()[1])

    @property
    def beyond(self) -> Expr:
        """The most by which the definition's rounding moves a number that is larger than the dtype's largest."""
        size, largest = size_of(self.cast.args[0]), Integer(DTYPES[self.cast.dtype].largest)
        if self.within:
            return S.Zero
        saturates = DTYPES[self.cast.dtype].saturates
        return Max(size - largest, 0) if saturates else Where(size > largest, S.Infinity, S.Zero)

    @property
    def bound(self) -> Expr:
        """The most by which one rounded element may differ from the definition's."""
        relative = roundoff(self.cast.dtype)
        step = half_step(self.cast.dtype)
        if self.scale is None:
            return relative * size_of(self.cast.args[0]) + step + self.beyond
        relative = Integer(0) if self.by_power_of_two and relative else 2 * relative
        return relative * size_of(self.cast.args[0]) + 2 * step if relative else 2 * step


def size_of(rounded: Expr) -> Expr:
    """|q|; rounded exponents are integers, which SymPy does not know if a logarithm stands in them."""
    whole = {one: Dummy(integer=True) for one in rounded.atoms(floor, ceiling)}
    return Abs(rounded.xreplace(whole)).xreplace({dummy: one for one, dummy in whole.items()})


def is_power_of_two_scale(scale: Expr) -> bool:
    """Tell if an expression is 2^k with k rounded to an integer, however SymPy spells it: 2**k or exp(k·log 2)."""
    if isinstance(scale, exp):
        times, rounded = (scale.args[0] / log(2)).as_coeff_Mul()
        return bool(times.is_Integer) and isinstance(rounded, floor | ceiling)
    if scale.is_Pow and scale.exp.is_Integer:
        return is_power_of_two_scale(scale.base)
    return bool(scale.is_Pow and scale.base == Integer(2) and isinstance(scale.exp.as_coeff_Mul()[1], floor | ceiling))


def exact_forms(rounding: Rounding) -> str:
    """The ways to an exact form: two passes, and of a float a scale that is a power of 2."""
    passes = "The definition takes two passes: `ra.fuse(…, exact=True)`."
    row = DTYPES[rounding.cast.dtype]
    if not row.is_float:
        return passes
    return (
        f"{passes} Or round the scale to a power of 2, as in `2**floor(log({row.largest if row.saturates else 1}/m, 2))"
        "`: a float is then rounded alike whatever the scale, but for underflow."
    )


def one_pass_sentence(rounding: Rounding) -> str:
    """The sentence that says what one pass does to a rounding."""
    if rounding.scale is None:
        beyond = "" if rounding.within else f" {overflow_fate(rounding)}"
        return f"`{rounding.cast}` rounds what one pass knows only at its end: it leaves the rounding out.{beyond}"
    if rounding.by_power_of_two:
        return (
            f"`{rounding.cast}` is rounded at the running scale `{rounding.scale}`, a power of 2: alike but for "
            "underflow."
        )
    return (
        f"`{rounding.cast}` rounds elements that a running value scales, and rounding does not commute with a later "
        f"rescaling: one pass rounds at the running scale `{rounding.scale}`."
    )


def overflow_fate(rounding: Rounding) -> str:
    """The fate of a number that is too large for the dtype."""
    row = DTYPES[rounding.cast.dtype]
    ends = "saturates" if row.saturates else "is infinite"
    return f"What exceeds {float(row.largest):.6g} in magnitude, where the definition {ends}, stays as it is."


# ---- sums that hold roundings ----------------------------------------------------------------------------------------


def bounds(cascade: Cascade, roundings: Iterable[tuple[Reduction, Rounding]]) -> dict[Reduction, Expr]:
    """By reduction, the most by which its value may differ from the definition's (∞ if no bound is known)."""
    moves: dict[Value, Expr] = {}
    result: dict[Reduction, Expr] = {}
    several = tuple(roundings)
    for reduction in cascade.reductions:
        own = {one.cast: one.bound for other, one in several if other == reduction}
        move = Moves({**own, **moves}, frozenset(cascade.values)).of(live_term(reduction.term, cascade.domain))
        if move != 0:
            kind = {"sum": "sum", "max": "max", "min": "max"}.get(reduction.monoid.name)
            bound = Reduce(kind, move, cascade.reduced_axes) if kind and free_of_infinity(move) else S.Infinity
            result[reduction] = moves[reduction.value] = bound
    return result


def free_of_infinity(move: Expr) -> bool:
    """Tell if a bound is a number for some data."""
    return not any(S.Infinity in Mul.make_args(term) for term in Add.make_args(move))


@final
@dataclass(frozen=True)
class Moves:
    """The distances that expressions move with the roundings and values in them.

    Attributes:
        by: roundings and values, each with the most by which it may move.
        values: the reduced values, of which a rounding that is not among `by` may hold any.
    """

    by: Mapping[Expr, Expr]
    values: frozenset[Value]

    def of(self, node: Basic) -> Expr:
        """The most by which an expression moves, if its parts are anywhere within their own bounds."""
        if node in self.by:
            return self.by[node]
        if not self.moves(node):
            return S.Zero
        if isinstance(node, Add):
            return Add(*map(self.of, node.args))
        if isinstance(node, Mul):
            return self._product(node.args)
        if isinstance(node, Pow) and node.exp.is_Integer and node.exp.is_positive and not self.moves(node.exp):
            return self._product((node.base,) * int(node.exp))
        if isinstance(node, Where) and not self.moves(node.condition):
            return Where(node.condition, self.of(node.args[1]), self.of(node.args[2]))
        if isinstance(node, Abs | Max | Min):  # no further than the argument that moves furthest
            return Max(*map(self.of, node.args))
        return S.Infinity

    def moves(self, node: Basic) -> bool:
        """Tell if an expression holds something that moves, or a rounding of which nothing is known."""
        if node in self.by or (isinstance(node, Cast) and bool(values_of(node) & self.values)):
            return True
        return any(map(self.moves, node.args))

    def size(self, node: Basic) -> Expr:
        """The largest magnitude of an expression, if its parts are anywhere within their bounds."""
        if not self.moves(node):
            return Abs(node)
        if isinstance(node, Cast):
            return size_of(node.args[0]) + self.of(node)
        return Abs(node) + self.of(node)

    def _product(self, factors: Sequence[Basic]) -> Expr:
        """The sum over factors of each one's move times the other factors' sizes."""
        fixed = Abs(Mul(*(one for one in factors if not self.moves(one))))
        moving = [one for one in factors if self.moves(one)]
        return fixed * Add(*(self.of(part) * Mul(*(self.size(other) for other in moving[:place] + moving[place + 1 :]))
                             for place, part in enumerate(moving)))  # fmt: skip
