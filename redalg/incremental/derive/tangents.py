"""Sums of x·log x and of log x, taken about a tangent if they cancel with that function of the mean.

    Σ w·f(x) = Σ w·f(x; c) + f(c)·Σ w + f'(c)·Σ w·(x − c)          f(x; c) = f(x) − f(c) − f'(c)·(x − c)

    f = x·log x       f(x; c) = x·log(x/c) − (x − c)
    f = −log x        f(x; c) = (x − c)/c − log(x/c)

The distance f(x; c) from the tangent at c is no less than 0, and of second order in x − c: about a mean far from 0 it
is small where f itself is not. It moves by the distance between the tangents (Bregman 1967; the identity of three
points of Chen and Teboulle 1993), exact for every c of the sign of x:

    f(x; c') = f(x; c) + f(c; c') + (f'(c) − f'(c'))·(x − c)

so that {1, x − c, f(x; c)} is closed under moves. With S = Σ w·x, W = Σ w and c' = S/W nothing is left of x − c:

    Σ w·f(x) = Σ w·f(x; c) − W·f(S/W; c)  +  W·f(S/W)

and a value of f(S/W), as log S, is lost again in what compares Σ w·f(x) with it: the index of Theil, the divergence
of data from their mean. The form takes a tangent only if some value or output so loses log S and log W.

Close to c a distance is a series in r = (x − c)/(x + c), as log(x/c) = 2·(r + r³/3 + r⁵/5 + …).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import final

from sympy import Abs, Add, Eq, Expr, Lt, Mul, Rational, S, expand, log

from redalg.expression import UNDEFINED, Axis, Element, Label, Let, Value, Where
from redalg.expression.contents import elements_of, free_axes, of_kind, operations_of, values_of
from redalg.expression.rebuild import replace_nodes
from redalg.incremental.derive.placement import free_pivot_name
from redalg.incremental.fix_pivots import hold_pivots
from redalg.incremental.form import Accumulator, Assignment, FusedForm, Pivot, PivotPolicy

TERMS = 8
"""Terms of the series: enough for float64 if r is less than NEAR."""
NEAR = Rational(1, 8)
"""Bound of |r| below which the series is taken: beyond it, log(x/c) loses a digit at most."""
WRITTEN_LIMIT = 200
"""Operations beyond which an expression of `finish` is not expanded, as SymPy may take minutes for it."""


@final
@dataclass(frozen=True)
class Curve:
    """f of one sum: x·log x if `times`, else log x; of |x| in the logarithm if `absolute`."""

    times: bool
    absolute: bool

    def value(self, x: Expr, count: Expr = S.One) -> Expr:
        """count·f(x/count), with f(0) = 0 for x·log x."""
        logarithm = log(Abs(x / count) if self.absolute else x / count)
        return Where(Eq(x, 0), S.Zero, x * logarithm) if self.times else count * logarithm

    def distance(self, x: Expr, c: Expr, z: Expr, r: Expr) -> Expr:
        """f(x; c), z = x − c and r = z/(x + c); its limit if x = 0, and f(x) itself if c = 0."""
        series, near = r**3 * _tail(r), Lt(r**2, NEAR**2)
        nothing = Eq(Let("x", x), 0)  # tested even of what is declared positive
        unit, rise = Where(Eq(c, 0), S.One, c), Where(Eq(c, 0), S.Zero, z)
        quotient = Abs(x / unit) if self.absolute else x / unit
        if self.times:
            return Where(nothing, c, Where(near, z * r + 2 * x * series, x * log(quotient) - rise))
        return Where(nothing, S.Infinity, Where(near, z * r / c - 2 * series, rise / unit - log(quotient)))


def _tail(r: Expr) -> Expr:
    """1/3 + r²/5 + r⁴/7 + …"""
    total: Expr = Rational(1, 2 * TERMS + 1)
    for k in reversed(range(TERMS - 1)):
        total = Add(Rational(1, 2 * k + 3), Mul(r**2, total))
    return total


@final
@dataclass(frozen=True)
class Tangent:
    """Sums Σ w·f(x) with one x and one w, beside Σ w·x and Σ w in a form.

    Attributes:
        x, w: the generator and its weight.
        total, count: Σ w·x and Σ w.
        sums: the sums Σ w·f(x), each with its f.
    """

    x: Expr
    w: Expr
    total: Accumulator
    count: Accumulator
    sums: tuple[tuple[Accumulator, Curve], ...]

    def value(self, accumulator: Accumulator) -> Value:
        """The symbol of Σ w·f(x) about its mean."""
        return Value(Label(f"{accumulator.value.name}_about_mean"), *sorted(self.axes(accumulator), key=str))

    def axes(self, accumulator: Accumulator) -> set[Axis]:
        """The axes of a sum, and of the sums that it is compared with."""
        return {axis for part in (accumulator, self.total, self.count) for axis in part.value.indices}


def about_tangents(form: FusedForm) -> FusedForm:
    """The form with every group of sums about a tangent, if some value or output loses its logarithms by that.

    A pivot of log x itself is then of no use: it is tried at 0 if every sum that it shifts is about a tangent.
    """
    for pivot in form.slot_pivots:
        if isinstance(pivot.base, log) and not pivot.scales and not pivot.slopes:
            shifting = {one.value for one in form.accumulators if pivot.value in values_of(one.term)}
            form = _about(_drop_shift(form, pivot), shifting) or form
    return _about(form, set()) or form


def _about(form: FusedForm, every: AbstractSet[Value]) -> FusedForm | None:
    """The form about the tangents that pay; None if there is none, or if some sum in `every` is about none."""
    left, pays = set(every), False
    for tangent in tangents(form):
        if (other := _rewritten(form, tangent)) is not None:
            form, pays = other, True
            left -= {one.value for one, _ in tangent.sums}
    return form if pays and not left else None


def _drop_shift(form: FusedForm, pivot: Pivot) -> FusedForm:
    """The form with the pivot of a logarithm at 0."""
    form = hold_pivots(form, {pivot.value: S.Zero})
    bare = {Let(f"{pivot.value.name}_shifted", pivot.base): pivot.base}
    return replace(form, accumulators=tuple(
        replace(accumulator, factors=tuple(factor.xreplace(bare) for factor in accumulator.factors))
        for accumulator in form.accumulators
    ))  # fmt: skip


# ---- which sums ------------------------------------------------------------------------------------------------------


def tangents(form: FusedForm) -> Iterator[Tangent]:
    """The groups of sums of x·log x and log x, with the sums of w·x and of w that the form holds beside them."""
    plain = {one.term: one for one in form.accumulators if _is_plain(one)}
    groups: dict[tuple[Expr, Expr], list[tuple[Accumulator, Curve]]] = {}
    for term, accumulator in plain.items():
        factors = Mul.make_args(term)
        logs = [factor for factor in factors if isinstance(factor, log)]
        if len(logs) != 1 or not elements_of(logs[0]):
            continue
        rest = Mul(*(factor for factor in factors if factor is not logs[0]))
        argument = logs[0].args[0]
        x = argument.args[0] if isinstance(argument, Abs) else argument
        times = x in Mul.make_args(rest)
        w = rest / x if times else rest
        groups.setdefault((x, w), []).append((accumulator, Curve(times, isinstance(argument, Abs))))
    for (x, w), sums in groups.items():
        total, count = plain.get(w * x), plain.get(w)
        if total is not None and count is not None and _fits(x, w, form, plain):
            used = {value for pivot in form.pivots for value in values_of(pivot.source)}
            own = {total.value, *(one.value for one, _ in sums)}
            if not used & own and not any(values_of(one.term) & own for one in form.accumulators):
                yield Tangent(x, w, total, count, tuple(sums))


def _is_plain(accumulator: Accumulator) -> bool:
    return (
        not accumulator.weight
        and accumulator.transition == ((accumulator.value, S.One),)
        and not values_of(accumulator.term)
    )


def _fits(x: Expr, w: Expr, form: FusedForm, plain: Mapping[Expr, Accumulator]) -> bool:
    """Tell if x is data of one sign without a log, and neither w nor the domain has axes that x lacks."""
    one_sign = bool(x.is_extended_nonnegative) or any(_guards(term, x) for term in plain) or log(x) in {
        factor for term in plain for factor in Mul.make_args(term)}  # fmt: skip
    along = free_axes(x) | set(form.cascade.reduced_axes)
    return x.has(Element) and not x.has(log) and free_axes(w) | free_axes(form.cascade.domain) <= along and one_sign


def _guards(term: Expr, x: Expr) -> bool:
    """Tell if a sum is NaN where x is negative."""
    return any(one.args[:2] == (Lt(x, 0), UNDEFINED) for one in of_kind(Where, term))


# ---- where it pays ---------------------------------------------------------------------------------------------------


def _rewritten(form: FusedForm, tangent: Tangent) -> FusedForm | None:
    """The form about a tangent; None if no value or output loses its logarithms."""
    finish = _Finish(tangent)
    assignments = [finish.assignment(one) for one in form.assignments]
    outputs = [replace(one, expr=finish.drop_logs(one.expr)) for one in form.outputs]
    if not finish.lost:
        return None
    pivot, further = _pivot(form, tangent)
    sums = {one.value: one for one in (*further, *_accumulators(tangent, pivot))}
    meaning: dict[Expr, Expr] = {tangent.total.value: tangent.count.value * pivot.value + tangent.total.value}
    meaning |= {one.value: finish.whole(one, curve).xreplace(meaning) for one, curve in tangent.sums}
    return replace(
        form,
        pivots=(*form.pivots, pivot),
        accumulators=tuple(sums.pop(one.value, one) for one in form.accumulators) + tuple(sums.values()),
        assignments=(
            *_tangent_assignments(tangent, pivot),
            *(replace(one, expr=one.expr.xreplace(meaning)) for one in assignments),
        ),
        outputs=tuple(replace(one, expr=one.expr.xreplace(meaning)) for one in outputs),
    )


@final
class _Finish:
    """Rewrites the expressions of `finish`. `lost` is True if logarithms of the mean were lost somewhere."""

    def __init__(self, tangent: Tangent) -> None:
        self.tangent, self.lost = tangent, False
        self.known: dict[Expr, Expr] = {}
        self.total, self.count = tangent.total.value, tangent.count.value
        self.sums = {one.value: (one, curve) for one, curve in tangent.sums}

    def whole(self, accumulator: Accumulator, curve: Curve) -> Expr:
        """Σ w·f(x) from the sum about its mean."""
        about = self.tangent.value(accumulator)
        return (about if curve.times else -about) + curve.value(self.total, self.count)

    def assignment(self, assignment: Assignment) -> Assignment:
        """The assignment rewritten; a value still made of such sums is known by its meaning."""
        expr = self.drop_logs(assignment.expr)
        if expr is assignment.expr:
            self.known[assignment.value] = replace_nodes(assignment.expr, self.known)
        return replace(assignment, expr=expr)

    def drop_logs(self, expr: Expr) -> Expr:
        """The expression without the logarithms of S and W if it loses them, else as it is."""
        meant = replace_nodes(expr, self.known)
        if not values_of(meant) & self.sums.keys() or operations_of(meant) > WRITTEN_LIMIT or not meant.has(log):
            return expr
        if not self._has_logs(_split(meant, self)):
            return expr
        parts = {value: self._sum_in_logs(one, curve) for value, (one, curve) in self.sums.items()}
        result = expand(_split(meant, self).xreplace(parts), log=False, power_base=False, power_exp=False)
        if self._has_logs(result):
            return expr
        self.lost = True
        return result

    def _sum_in_logs(self, accumulator: Accumulator, curve: Curve) -> Expr:
        about, base = self.tangent.value(accumulator), self.total if curve.times else self.count
        return (about if curve.times else -about) + base * (log(self.total) - log(self.count))

    def _has_logs(self, expr: Expr) -> bool:
        return any(values_of(one) & {self.total, self.count} for one in of_kind(log, expr))


def _split(expr: Expr, finish: _Finish) -> Expr:
    """log |S/W| → log S − log W, beside numbers and factors that are known to be positive."""
    sums: dict[Expr, Expr] = {}
    for logarithm in of_kind(log, expr):
        argument = logarithm.args[0].args[0] if isinstance(logarithm.args[0], Abs) else logarithm.args[0]
        pairs = [factor.as_base_exp() for factor in Mul.make_args(argument)]
        if all(base in (finish.total, finish.count) or base.is_extended_nonnegative for base, _ in pairs):
            sums[logarithm] = Add(*(power * log(base) for base, power in pairs))
    return expr.xreplace(sums)


# ---- the state -------------------------------------------------------------------------------------------------------


def _pivot(form: FusedForm, tangent: Tangent) -> tuple[Pivot, list[Accumulator]]:
    """The pivot of x: the mean of each block, weighted by weights of one sign; and the sums that it takes beside."""
    name = free_pivot_name(form.pivots)
    axes = free_axes(tangent.x) - set(form.cascade.reduced_axes)
    pivot = Pivot(Value(Label(name), *sorted(axes, key=str)), tangent.x, PivotPolicy.TILE_LOCAL, S.Zero)
    if tangent.w.is_extended_nonnegative and {*tangent.count.value.indices} <= axes:
        return replace(pivot, source=tangent.total.value / tangent.count.value), []
    counts = [one for one in form.accumulators if one.is_count]
    count = counts[0] if counts else _sum(f"{name}_count", free_axes(form.cascade.domain) & axes, S.One)
    rest = _sum(f"{name}_rest", axes, pivot.about(pivot.value))
    rest = replace(rest, transition=((rest.value, S.One), (count.value, -pivot.displacement)))
    return replace(pivot, source=rest.value / count.value), [count, rest]


def _sum(name: str, axes: AbstractSet[Axis], term: Expr) -> Accumulator:
    """A sum of its own, which nothing moves."""
    value = Value(Label(name), *sorted(axes, key=str))
    return Accumulator(value, (), (term,), ((value, S.One),))


def _accumulators(tangent: Tangent, pivot: Pivot) -> Iterable[Accumulator]:
    """Σ w·(x − c), and Σ w·f(x; c) of every f, with their moves."""
    n, z = tangent.count.value, tangent.total.value
    about = pivot.about(pivot.value)
    r = Let(f"{pivot.value.name}_ratio", about / (tangent.x + pivot.value))
    yield replace(tangent.total, factors=(tangent.w * about,), transition=((z, S.One), (n, -pivot.displacement)))
    for accumulator, curve in tangent.sums:
        term = curve.distance(tangent.x, pivot.value, about, r)
        if not curve.absolute and not tangent.x.is_extended_nonnegative:
            term = Where(Lt(tangent.x, 0), S.NaN, term)
        of_count, of_total = _moves(curve, pivot)
        yield replace(accumulator, factors=(tangent.w * term,),
                      transition=((accumulator.value, S.One), (z, of_total), (n, of_count)))  # fmt: skip


def _moves(curve: Curve, pivot: Pivot) -> tuple[Expr, Expr]:
    """f(c; c') and f'(c) − f'(c'), both 0 if c stays; the tangent at 0 is taken to be 0 itself."""
    c, there, delta = pivot.departure, pivot.arrival, pivot.displacement
    r = Let(f"{pivot.value.name}_moved", -delta / (c + there))
    quotient, series, near = Abs(c / there), r**3 * _tail(r), Lt(r**2, NEAR**2)
    if curve.times:
        distance = Where(near, -delta * r + 2 * c * series, c * log(quotient) + delta)
        slope = Where(near, 2 * (r + series), log(quotient))
        off, on = (there, -1 - log(Abs(there))), (c * log(Abs(c)), 1 + log(Abs(c)))
    else:
        distance = Where(near, -delta * r / there - 2 * series, -delta / there - log(quotient))
        slope = -Let(f"{pivot.value.name}_step", delta / c) / there  # c·c' may leave the range
        off, on = (log(Abs(there)) - 1, 1 / there), (-log(Abs(c)), -1 / c)
    pair = (Where(Eq(c, 0), from_0, Where(Eq(there, 0), to_0, between))
            for from_0, to_0, between in zip(off, on, (distance, slope), strict=True))  # fmt: skip
    of_count, of_total = (Where(Eq(delta, 0), S.Zero, one) for one in pair)
    return of_count, of_total


def _tangent_assignments(tangent: Tangent, pivot: Pivot) -> Iterator[Assignment]:
    """S/W − c, S/W and their ratio; then Σ w·f(x; c) − W·f(S/W; c) of every sum, NaN for log x if S is 0."""
    n, z, c = tangent.count.value, tangent.total.value, pivot.value
    axes = sorted({*n.indices, *z.indices}, key=str)
    offset, mean, r = (Value(Label(f"{word}_{c.name}"), *axes) for word in ("offset", "mean", "ratio"))
    yield Assignment(offset, z / n)
    yield Assignment(mean, c + offset)
    yield Assignment(r, offset / (mean + c))
    for accumulator, curve in tangent.sums:
        gap = accumulator.value - Where(Eq(z, 0), S.Zero, n * curve.distance(mean, c, offset, r))
        yield Assignment(tangent.value(accumulator), gap if curve.times else Where(Eq(n * c + z, 0), S.NaN, gap))
