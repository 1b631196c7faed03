"""Sums of exponentials about their maxima, so that what the forward saves stays in range.

    Σ_B e^u·f            →  e^m·Σ_B e^(u − m)·f        m = max_B u
    log(e^p·r)           →  p + log r
    (e^p·r)^q            →  e^(q·p)·r^q                r ≥ 0, or q an integer; else both are NaN
    e^p·r + e^w·s + c    →  e^m·(e^(p − m)·r + e^(w − m)·s + e^(−m)·c)         p, w and 0 are among those of the maximum

Each holds for every number m, so that no output depends on the maxima that are introduced: they have no gradient. What
is left is a ratio of sums about one maximum, or p = m beside a logarithm. As it was written, the backward would divide
by a sum that it saves, which overflows where u is large.

What stays as it is: a linear function of such sums, of which no derivative reads them; an output in which the powers of
e do not agree, as in Σ e^u + (Σ e^u)²; a sum whose u is known to be at most 0, or has a reduction over B beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, final

from sympy import Abs, Add, Dummy, Expr, Max, Min, Mul, Number, Pow, S, exp, log, oo
from sympy.core.basic import Basic

from redalg.decompose.parse.axes import outermost_reductions
from redalg.decompose.separate.signs import sign_of
from redalg.expression import Axis, Label, Reduce, Value, Where
from redalg.expression.contents import axes_by_name, free_axes, nodes_of, of_kind, reductions_of
from redalg.expression.rebuild import replace_nodes, with_args

INTRODUCED = "Σ e^u is e^m·Σ e^(u − m) for every number m, of which this is one."


@final
class NoCommonPowerError(Exception):
    """The powers of e in an expression do not agree."""


@final
class Scaled(NamedTuple):
    """e^exponent·rest, the exponent a sum of numbers times pivots."""

    exponent: Expr
    rest: Expr


def with_pivots(written: Mapping[str, Expr]) -> tuple[dict[str, Expr], tuple[Reduce, ...]]:
    """Expressions whose sums of exponentials are about maxima, and the maxima that none of them held before."""
    result = dict[str, Expr]()
    for name, expr in written.items():
        sums = {one for one in reductions_of(expr) if is_unsafe(one)}
        result[name] = expr if _is_linear(expr, sums) else _about_pivots(expr, sums)
    before = {node for expr in written.values() for node in reductions_of(expr)}
    made = {node for expr in result.values() for node in reductions_of(expr) if node.kind == "max"}
    return result, tuple(sorted(made - before, key=str))


def is_unsafe(node: Reduce) -> bool:
    """Tell if a reduction is a sum of exponentials that may overflow though their ratios do not."""
    if node.kind != "sum":
        return False
    bound = set(node.bound)
    return any(free_axes(u) & bound and not _is_bounded(u, bound) for u in _exponents(node.expr))


def _about_pivots(expr: Expr, sums: set[Reduce]) -> Expr:
    """An expression with pivots in some sums; itself if their powers of e do not agree."""
    scaling = Scaling(sums)
    try:
        made = scaling.of(expr)
    except NoCommonPowerError:
        return expr
    return scaling.with_maxima(_less(made.rest, -made.exponent))


def _is_linear(expr: Expr, sums: set[Reduce]) -> bool:
    """Tell if an expression is linear in some sums, or holds none."""
    if expr in sums:
        return not any(one in sums for one in nodes_of(expr) - {expr})
    if expr.is_Add:
        return all(_is_linear(one, sums) for one in expr.args)
    holding = [one for one in Mul.make_args(expr) if nodes_of(one) & sums]
    return not holding or (len(holding) == 1 and holding[0] != expr and _is_linear(holding[0], sums))


@final
class Scaling:
    """The expressions of one output as e^p·r, and the pivots of which p is made.

    Attributes:
        sums: those that get a pivot.
        members: pivot -> the exponents of which it is to be the maximum, with the axes that each is reduced over.
        same: pivot -> another one that stands for both.
    """

    def __init__(self, sums: set[Reduce]) -> None:
        self.sums = sums
        self.members = dict[Dummy, list[tuple[Expr, tuple[Axis, ...]]]]()
        self.by_member = dict[tuple[Expr, tuple[Axis, ...]], Dummy]()
        self.same = dict[Dummy, Dummy]()

    def of(self, node: Expr) -> Scaled:
        """A node as e^p·r."""
        if not nodes_of(node) & self.sums:
            return Scaled(S.Zero, node)
        if node in self.sums:
            return self._of_sum(node)
        if node.is_Mul:
            parts = [self.of(one) for one in node.args]
            return Scaled(Add(*(one.exponent for one in parts)), Mul(*(one.rest for one in parts)))
        if isinstance(node, Pow) and isinstance(node.exp, Number):
            base = self.of(node.base)
            return Scaled(node.exp * base.exponent, base.rest**node.exp)
        if isinstance(node, log):
            inner = self.of(node.args[0])
            return Scaled(S.Zero, inner.exponent + log(inner.rest))
        if isinstance(node, Add | Max | Min | Abs):
            return self._together(node, node.args)
        if isinstance(node, Where):
            return self._together(node, node.args[1:])
        return Scaled(S.Zero, with_args(node, [self._plain(one) for one in node.args]))

    def with_maxima(self, expr: Expr) -> Expr:
        """An expression with maxima for the pivots."""
        pivots = [one for one in of_kind(Dummy, expr) if one in self.members]
        if not pivots:
            return expr
        return self.with_maxima(replace_nodes(expr, {one: self._maximum(self._root(one)) for one in pivots}))

    def _of_sum(self, node: Reduce) -> Scaled:
        term = self._plain(node.expr)
        member = _largest_exponent(term), node.bound
        if member not in self.by_member:
            pivot = self.by_member[member] = Dummy("m", real=True)
            self.members[pivot] = [member]
        pivot = self._root(self.by_member[member])
        return Scaled(pivot, node.rebuilt(_less(term, pivot), node.bound))

    def _plain(self, node: Basic) -> Basic:
        """A node without a power of e before it; as it was if it has one."""
        if not isinstance(node, Expr):
            return with_args(node, [self._plain(one) for one in node.args]) if nodes_of(node) & self.sums else node
        made = self.of(node)
        return made.rest if self._canonical(made.exponent) is S.Zero else node

    def _together(self, node: Expr, branches: Sequence[Expr]) -> Scaled:
        """Of terms, or of branches: the power that they share, to which all pivots are made one."""
        parts = [self.of(one) for one in branches]
        powers = {self._canonical(one.exponent) for one in parts if one.rest is not S.Zero}
        if len(powers) > 1:
            self._unite(powers - {S.Zero})
        own = [one for part in parts if (one := self._canonical(part.exponent)) is not S.Zero]
        power = own[0] if own else S.Zero
        rests = [self._at(part, power) for part in parts]
        kept = node.args[: len(node.args) - len(branches)]
        return Scaled(power, with_args(node, [*kept, *rests]))

    def _at(self, part: Scaled, power: Expr) -> Expr:
        """The rest of a term beside e^power: of one without a pivot, its exponentials are less the pivot."""
        if self._canonical(part.exponent) == power or part.rest is S.Zero:
            return part.rest
        coefficient, pivot = power.as_coeff_Mul()
        self.members[pivot].append((_largest_exponent(part.rest) / coefficient, ()))
        return _less(part.rest, power)

    def _unite(self, powers: Iterable[Expr]) -> None:
        """Make one pivot of those of several powers, each a number times one of them."""
        split = [one.as_coeff_Mul() for one in powers]
        coefficients = {coefficient for coefficient, _ in split}
        if len(coefficients) > 1 or any(one not in self.members for _, one in split) or not min(coefficients) > 0:
            raise NoCommonPowerError
        if len({free_axes(u) - set(bound) for _, one in split for u, bound in self.members[one] if bound}) > 1:
            raise NoCommonPowerError
        first, *others = sorted((one for _, one in split), key=lambda one: one.dummy_index)
        for other in others:
            self.same[other] = first
            self.members[first] += self.members[other]

    def _root(self, pivot: Dummy) -> Dummy:
        return self._root(self.same[pivot]) if pivot in self.same else pivot

    def _canonical(self, exponent: Expr) -> Expr:
        return exponent.xreplace({one: self._root(one) for one in of_kind(Dummy, exponent) if one in self.same})

    def _maximum(self, pivot: Dummy) -> Reduce:
        """The largest exponent of a pivot: over the axes of its first member, of whose terms others are one each.

        An exponent along axes that the sums lack is left out: each sum would be made again for each of its places.
        """
        members = dict.fromkeys(self.members[pivot])
        bound, axes = next((axes, free_axes(u) | set(axes)) for u, axes in members if axes)
        own = [u if over in (bound, ()) else Reduce("max", u, over)
               for u, over in members if free_axes(u) - set(over) <= axes]  # fmt: skip
        return Reduce("max", Max(*own), bound)


def _exponents(term: Expr) -> list[Expr]:
    """The exponents of e in the products that are added; 0 of a product without an exponential."""
    if term.is_Add or isinstance(term, Where):
        return [u for one in term.args if isinstance(one, Expr) for u in _exponents(one)]
    return [Add(*(one.args[0] for one in Mul.make_args(term) if isinstance(one, exp)))]


def _largest_exponent(term: Expr) -> Expr:
    """The largest exponent of the exponentials that are added; −∞ of nothing."""
    if term is S.Zero:
        return -oo
    if isinstance(term, Where):
        return Where(term.condition, *map(_largest_exponent, term.args[1:]))
    if term.is_Add:
        return Max(*map(_largest_exponent, term.args))
    [u] = _exponents(term)
    return u


def _less(term: Expr, power: Expr) -> Expr:
    """A term times e^(−power), each exponential less the power."""
    if term is S.Zero:
        return term
    if isinstance(term, Where):
        return Where(term.condition, *(_less(one, power) for one in term.args[1:]))
    if term.is_Add:
        return Add(*(_less(one, power) for one in term.args))
    [u] = _exponents(term)
    return Mul(*(one for one in Mul.make_args(term) if not isinstance(one, exp)), exp(u - power))


def _is_bounded(u: Expr, bound: set[Axis]) -> bool:
    """Tell if an exponent is known to be at most 0, or has a reduction over its axes beside it, as in x − max x."""
    beside = (one.as_coeff_Mul()[1] for one in Add.make_args(u) if not free_axes(one) & bound)
    if any(bound & set(one.bound) for term in beside for one in reductions_of(term)):
        return True
    facts, numbers = dict[Value, tuple[str, Expr]](), count()

    def with_values(node: Expr) -> Expr:
        known = dict[Basic, Expr]()
        for reduce in dict.fromkeys(outermost_reductions(node)):
            known[reduce] = value = Value(Label(f"d_{next(numbers)}"), *axes_by_name(free_axes(reduce)))
            facts[value] = reduce.kind, with_values(reduce.expr)
        return replace_nodes(node, known)

    return sign_of(with_values(u), facts) in ("negative", "nonpositive")
