"""Expression -> Cascade: the reductions that form the cascade, and its producers; `axes` finds the reduced axes.

Rewrites, each exact:

    unrolling        Σ_j f(j) → f(0) + … + f(J−1)           j of fixed size ≤ 16, and f(j) holds a reduced value
    exchange         Σ_n A·Σ_j g + C → Σ_j Σ_n A·g + Σ_n C  A, C free of j; g holds a reduced value
    exponents        Π_n A·exp(u) → exp(Σ_n u)·Π_n A        u holds a reduced value; exp of a part of u may overflow
    count            |n| → Σ_n 1                            n the reduced axis, so that streaming stays right
    nothing          Σ_n 0 → 0, Π_n 1 → 1                   as SymPy leaves them of terms that cancel
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from sympy import Add, Dummy, Eq, Expr, Mul, S, Tuple, exp
from sympy.core.basic import Basic

from redalg.decompose.cascade import Cascade, Output, Producer, Reduction
from redalg.decompose.domain import with_domain
from redalg.decompose.extrema.extremal import LATTICE
from redalg.decompose.extrema.ties import Attained, MaskSum, Part
from redalg.decompose.parse.axes import (
    axis_list,
    innermost_axis,
    join_nested_sums,
    outermost_reductions,
    reduced_axes,
    refuse_parts,
    split_sums,
    streams,
    total_extent,
    total_order,
    with_totals,
)
from redalg.decompose.parse.distribute import SUMS, Sides, pull_reductions, replace_side_parts
from redalg.decompose.parse.names import display_names, names_of_values, without_names
from redalg.decompose.parse.same_axes import axis_aliases, common_names, same_names
from redalg.decompose.separate.plain import is_number
from redalg.errors import ExpressionError
from redalg.expression import Axis, Element, Extent, Reduce, Value, Where, without_sources
from redalg.expression.contents import axes_by_name, free_axes, nodes_of, of_kind, reductions_of, values_of
from redalg.expression.rebuild import extremum_as_written, with_args
from redalg.monoids import monoid

UNROLL_LIMIT = 16


def parse(outputs: Mapping[str, tuple[Expr, tuple[Axis, ...] | None]]) -> Cascade:
    """The cascade of named outputs, each an adopted expression with its ordered axes (None: to be found)."""
    expansions = {name: expand_sums(same_names(without_sources(expr))) for name, (expr, _) in outputs.items()}
    names = display_names(list(expansions.values()))
    exprs = {name: without_nothing(name, without_names(expr)) for name, expr in expansions.items()}
    refuse_division_by_zero(exprs)
    renamed = common_names(exprs.values())
    common = {name: renamed(expr) for name, expr in exprs.items()}
    aliases = axis_aliases([expr for expr, _ in outputs.values()], common.values())
    exprs = split_sums(join_nested_sums(common))
    reduced = reduced_axes(list(exprs.values()))
    if not reduced:
        given = tuple((name, expr) for expr, name in names.items())
        return replace(elementwise_cascade(exprs, {name: axes for name, (_, axes) in outputs.items()}), names=given)
    counted = {name: with_totals(expr, reduced) for name, expr in exprs.items()}
    builder = _Builder(reduced, {with_totals(renamed(expr), reduced): name for expr, name in names.items()})
    lifted = {name: builder.lift(expr, inside=False) for name, expr in counted.items()}
    results = tuple(_output(name, lifted[name], outputs[name][1], reduced, exprs[name]) for name in exprs)
    refuse_foreign_axes(builder, list(exprs.values()))
    refuse_parts(reduced, builder.producers, results)
    parts = tuple(builder.reductions), tuple(builder.producers), results
    cascade = with_domain(Cascade(reduced[0], *parts, inner=reduced[1:], names=builder.other_names(), aliases=aliases))
    cascade.verify()
    return cascade


def elementwise_cascade(exprs: Mapping[str, Expr], orders: Mapping[str, tuple[Axis, ...] | None]) -> Cascade:
    """The cascade of outputs that reduce nothing: they carry the streamed axis, and there is no state."""
    results = [_output(name, expr, orders[name], (), expr) for name, expr in exprs.items()]
    streamed = innermost_axis(exprs, {one.name: one.axes for one in results})
    carried = tuple(replace(one, carries=streamed in one.axes) for one in results)
    cascade = Cascade(streamed, (), (), carried)
    cascade.verify()
    return cascade


def without_nothing(name: str, expr: Expr) -> Expr:
    """The expression without sums of 0 and products of 1, which hold no tensor; an error if nothing is left."""
    nothing = {("sum", S.Zero), ("prod", S.One)}
    empty = [one for one in reductions_of(expr) if (one.kind, one.expr) in nothing]
    if not empty:
        return expr
    result = expr.xreplace({one: one.expr for one in empty})
    if result.is_number:
        raise ExpressionError(
            f"output `{name}` is {result} whatever the tensors hold: SymPy finds that the terms of "
            f"{', '.join(f'`{one}`' for one in sorted(empty, key=str))} cancel. There is nothing to fuse."
        )
    return without_nothing(name, result)


def refuse_division_by_zero(exprs: Mapping[str, Expr]) -> None:
    """Raise an error if an output divides by what SymPy finds to be 0."""
    for name, expr in exprs.items():
        if expr.has(S.ComplexInfinity):
            raise ExpressionError(
                f"output `{name}` divides by 0 whatever the tensors hold: SymPy writes 1/0 as zoo, in `{expr}`. "
                "Mend the divisor."
            )


def refuse_foreign_axes(builder: _Builder, exprs: list[Expr]) -> None:
    """Raise an error if no term depends on a reduced axis: that is a mistake in its name, not a reduction."""
    carried = {axis for one in builder.reductions for axis in free_axes(one.term)}
    for axis in (one for one in builder.reduced if one not in carried):
        node = next(one for expr in exprs for one in outermost_reductions(expr))
        if S.NaN in node.operands:
            raise ExpressionError(
                f"`{node}`: the term is NaN whatever the tensors hold, as SymPy finds. Mend the term."
            )
        others = ", ".join(map(str, axes_by_name(of_kind(Axis, *exprs) - {axis})))
        raise ExpressionError(
            f"`{node}` is reduced over axis {axis}, which no tensor or condition in it carries; the other axes are "
            f"{others or 'none'}. Reduce over an axis of its tensors, or multiply by `{axis}.extent`."
        )


# ---- preparation -----------------------------------------------------------------------------------------------------


def expand_sums(expr: Expr) -> Any:
    """The expression with every sum written out that `unroll` can write out."""
    return unroll(expr) if any(axis.size is not None for one in reductions_of(expr) for axis in one.bound) else expr


def unroll(node: Any, streamed: frozenset[Axis] = frozenset()) -> Any:
    """Write out sums over axes of small fixed size whose terms hold reduced values (unrolling, in the module).

    A value counts if it is reduced over an axis that an outer reduction streams, or if the sum streams none itself.
    """
    if not isinstance(node, Reduce):
        args = [unroll(arg, streamed) for arg in node.args]
        return with_args(node, args)
    short = next((axis for axis in node.bound if node.kind == "sum" and _may_write_out(node, axis, streamed)), None)
    if short is not None and short.size is not None:
        rest = [axis for axis in node.bound if axis != short]
        total = Add(*(node.expr.subs(short, place) for place in range(short.size)))
        return unroll(Reduce("sum", total, rest) if rest else total, streamed)
    inner = unroll(node.expr, streamed | set(node.bound))
    return node if inner is node.expr else node.rebuilt(inner, node.bound)


def _may_write_out(node: Reduce, axis: Axis, streamed: frozenset[Axis]) -> bool:
    if axis.size is None or axis.size > UNROLL_LIMIT:
        return False
    values = [one for one in reductions_of(node.expr) if axis in free_axes(one)]
    if any(one.place == axis for one in values):  # the elements of one result, which the state holds together
        return False
    rest = set(node.bound) - {axis}
    if rest:
        return any(set(one.bound) == rest for one in values)
    return any(streamed & set(one.bound) for one in values) or bool(values and not streamed and streams(node) != {axis})


# ---- lifting ---------------------------------------------------------------------------------------------------------


def _reduce_constant(kind: str, value: Expr, axes: Sequence[Axis]) -> Expr:
    """A reduction of a value that does not vary along its axes: Σ_n v = |n|·v, Π_n v = v^|n|, max_n v = v."""
    number = Mul(*(axis.extent for axis in axes))
    alike = {"sum": number * value, "prod": value**number}.get(kind, value)
    return Where(number > 0, alike, monoid(kind).identity)


@final
class _Builder:
    """The builder of a cascade: it replaces reductions by `Value`s, innermost first, and collects the reductions."""

    def __init__(self, reduced: tuple[Axis, ...], names: Mapping[Expr, str], *, streamed: bool = True) -> None:
        self.reduced, self.together, self.names = reduced, set(reduced), names
        self.total = total_extent(reduced) if streamed else None
        self.reductions: list[Reduction] = []
        self.producers: list[Producer] = []
        self.known: dict[Expr, Expr] = {}
        self._lifted: dict[tuple[Basic, bool], Expr] = {}
        self.counts: Counter[str] = Counter()

    def other_names(self) -> tuple[tuple[str, Expr], ...]:
        """The names that no reduction and no producer bears, with what they stand for as values."""
        used = {one.name for one in self.reductions} | {one.name for one in self.producers}
        return names_of_values(self.names, used, self.known, {self.total: self._number()})

    def _number(self) -> Expr | None:
        return next((one.value for one in self.reductions if one.is_count), self.total)

    def lift(self, node: Basic, *, inside: bool) -> Expr:
        """The node with every reduction replaced; `inside` is True under a reduction over the reduced axes."""
        if isinstance(node, Extent) and node == self.total:
            return self._count()
        if isinstance(node, Reduce):
            if node not in self.known:
                self.known[node] = self._reduce(node, inside=inside, hint=self.names.get(node))
            return self.known[node]
        if inside and self.names and node in self.names and (axes := self._other_axes(node)) is not None:
            if node not in self.known:
                self.known[node] = self._produce(node, axes, self.names[node], self.names[node])
            return self.known[node]
        if not node.args or isinstance(node, Element):
            return node
        if (node, inside) not in self._lifted:
            self._lifted[node, inside] = with_args(node, [self.lift(arg, inside=inside) for arg in node.args])
        return self._lifted[node, inside]

    def _reduce(self, node: Reduce, *, inside: bool, hint: str | None) -> Expr:
        if set(node.bound) == self.together:
            term = self.lift(node.expr, inside=True)
            if node.kind == "prod" and (exponents := self._exponents(term)):
                return self._exponential(term, exponents, hint)
            if (attained := self._reduce_attaining(node.kind, term, hint)) is not None:
                return attained
            if (apart := self._apart(node, term)) is not None:
                return apart
            return self._exchange_sums(node.kind, term) or self._add(node.kind, term, hint, node.result, node.place)
        holds = self._holds_values(node)
        if self.together & set(node.bound) and (self.reduced[0] in node.bound or (holds and inside)):
            raise ExpressionError(
                f"`{node}` reduces over {axis_list(node.bound)}, and what it stands in over {axis_list(self.reduced)}: "
                "one cascade reduces over one set of axes. Compute one of them first, and pass it as a tensor."
            )
        if not holds:
            return self._produce(
                node, node.bound, "_".join([node.kind, *(str(axis.name) for axis in node.bound)]), hint
            )
        body = self.lift(node.expr, inside=inside)
        if node.kind == "sum" or not inside or not self.together & free_axes(body):
            return self._afterwards(node, body)
        raise ExpressionError(
            f"`{node}` is a {node.kind} over {axis_list(node.bound)} of values reduced over {axis_list(self.reduced)}, "
            f"inside a reduction over {axis_list(self.reduced)}. Give the axis a size and write it out, or compute the "
            "values first and pass them as tensors."
        )

    def _afterwards(self, node: Reduce, body: Expr) -> Expr:
        """A reduction of values, which an output computes after all elements are read."""
        kind = monoid(node.kind).reduction  # of truth values 0 and 1, any is max and all is min
        gone = self.together - free_axes(node)  # an output that carries a reduced axis makes producers as it reads it
        again = {one.value for one in self.producers if gone & set(one.axes)} & values_of(body)
        if not kind or again:
            why = f"and {', '.join(sorted(map(str, again)))} would have to be computed again" if again else (
                f"and of these an output takes a sum, prod, max, min, any or all, but no {node.kind}")  # fmt: skip
            raise ExpressionError(
                f"`{node}` reduces values over {axis_list(node.bound)} that are reduced over "
                f"{axis_list(self.reduced)}, {why}. Compute the values first, and pass them as tensors."
            )
        constant = [axis for axis in node.bound if axis not in free_axes(body)]
        rest = [axis for axis in node.bound if axis not in constant]
        inner = Reduce(kind, body, rest) if rest else body
        return _reduce_constant(kind, inner, constant) if constant else inner

    def _apart(self, node: Reduce, term: Expr) -> Expr | None:
        """A reduction whose operands hold values, from reductions whose operands hold none; or None."""
        sides = self._sides()
        form = pull_reductions(node.kind, term, node.result, sides)
        if form is None:
            return None
        values = {
            symbol: self._add(node.kind, operands, None, node.result, node.place)
            for symbol, operands in form[1].items()
        }
        whole = form[0].xreplace(values)
        return Where(self._count() > 0, whole, S.Zero) if node.kind in SUMS else whole

    def _sides(self) -> Sides:
        return Sides({one.value: (one.monoid.name, one.term) for one in self.reductions}, frozenset(self.together))

    def _reduce_attaining(self, kind: str, term: Expr, hint: str | None) -> Expr | None:
        """A sum, max or min over the elements that attain an extremum, or do not; only a single part takes the name."""
        attained = Attained(self.reductions, self.together)
        if (case := attained.case(term)) is not None:
            yes, no = (term.xreplace({case: one}) for one in case.args[1:])
            of_second = self._reduce_attaining(kind, yes, hint)
            return None if of_second is None else Where(case.condition, of_second, self._reduction(kind, no))
        if kind == "sum" and (sums := attained.sums(term)) is not None:
            parts, rest = sums
            alone = hint if len(parts) == 1 and rest is S.Zero else None
            terms = [self._mask_sum(one, alone) for one in parts]
            return Add(*terms, self._reduction(kind, rest))
        identity = monoid(kind).identity if kind in LATTICE else S.Zero
        if kind not in LATTICE or (extremum := attained.extremum(kind, term, identity)) is None:
            return None
        choice, needed = extremum
        alone = hint if len(needed) == 1 else None
        values = [choice.selector.of_some(what, self._add(what, one, alone), identity) for what, one in needed]
        whole = extremum_as_written(LATTICE[kind], values) if values else identity
        if choice.unordered is None:
            return whole
        return Where(is_number(choice.selector.extremum), whole, self._reduction(kind, choice.unordered))

    def _mask_sum(self, sums: MaskSum, hint: str | None) -> Expr:
        """The sum of a mask by an extremum; only a single part takes the name."""
        alone = hint if len(sums.parts) == 1 and sums.parts[0][0] is S.One else None
        total = Add(*(self._times(part, alone) for part in sums.parts))
        if sums.extremum is not None:
            total = Where(is_number(sums.extremum), total, self._reduction("sum", sums.unordered))
        if sums.factor.is_number:
            return sums.factor * total
        return Where(Eq(self._count(), 0), S.Zero, sums.factor * total)

    def _reduction(self, kind: str, term: Expr) -> Expr:
        """A sum, max or min of a term that no name was asked for; the identity of the identity."""
        identity = monoid(kind).identity
        return identity if term == identity else self._exchange_sums(kind, term) or self._add(kind, term, None)

    def _times(self, part: Part, hint: str | None) -> Expr:
        """h·(the sum over the elements that attain an extremum, or do not); 0 if there are none, whatever h is."""
        h, kind, operands, place = part
        u, w = operands.args
        if place is not None and kind == "at_argmax" and any(one.value in values_of(w) for one in self.reductions):
            generators = dict[Expr, Dummy]()
            opened = replace_side_parts(w, generators, self._sides())
            values = {symbol: self._add(kind, Tuple(u, one), None) for one, symbol in generators.items()}
            return Where(place >= 0, opened.xreplace(values), S.Zero)
        value = self._add(kind, operands, hint)
        if h.is_number:
            return h * value
        number = self._count() if kind.endswith("_at_max") else self._add(kind, Tuple(u, S.One), None)
        return Where(Eq(number, 0), S.Zero, h * value)

    def _exponents(self, term: Expr) -> list[Expr]:
        """The factors exp(u) of a product's term whose u holds a reduced value."""
        known = {one.value for one in self.reductions}
        return [one for one in Mul.make_args(term) if isinstance(one, exp) and known & values_of(one)]

    def _exponential(self, term: Expr, exponents: list[Expr], hint: str | None) -> Expr:
        """Π A·exp(u) → exp(Σ u)·Π A."""
        total = exp(self._add("sum", Add(*(one.args[0] for one in exponents)), None))
        rest = Mul(*(one for one in Mul.make_args(term) if one not in exponents))
        return total if rest is S.One else total * self._add("prod", rest, hint)

    def _holds_values(self, node: Basic) -> bool:
        return any(set(one.bound) == self.together for one in reductions_of(node.args[1]))

    def _exchange_sums(self, kind: str, term: Expr) -> Expr | None:
        """Σ_n A·Σ_j g + C → Σ_j Σ_n A·g + Σ_n C; a reduction of values alone may stay, since it is a value itself."""
        for inner in sorted(set(outermost_reductions(term)), key=str):
            hole = Dummy("hole")
            opened = term.xreplace({inner: hole})
            product = linear_part(opened, hole, inner.expr) if kind == inner.kind == "sum" else None
            if product is None or set(inner.bound) & free_axes(opened):
                if self.together & free_axes(inner):
                    raise self._not_linear(kind, inner)
                continue
            rest = opened.xreplace({hole: S.Zero})
            first = Reduce("sum", self._exchange_sums(kind, product) or self._add(kind, product, None), inner.bound)
            return first if rest is S.Zero else first + (self._exchange_sums(kind, rest) or self._add(kind, rest, None))
        return None

    def _not_linear(self, kind: str, inner: Reduce) -> ExpressionError:
        return ExpressionError(
            f"`{inner}` reduces values over {axis_list(inner.bound)} inside a {kind} over {axis_list(self.reduced)}, "
            "in which it does not stand linearly. Give the axis a size, so that it is written out."
        )

    def _add(self, kind: str, term: Expr, hint: str | None, result: str = "", place: Axis | None = None) -> Value:
        for earlier in self.reductions:
            if (earlier.monoid.name, earlier.term, earlier.result, earlier.place) == (kind, term, result, place):
                return earlier.value
        if kind == "prod" and any(one.value in values_of(term) for one in self.reductions):
            self._count()  # Π g·h = (Π g)·h^n, for which the state must hold n
        axes = free_axes(term) - self.together | ({place} if place else set())
        name = self._name(f"{kind}_{result}" if result else kind, hint)
        reduction = Reduction(name, monoid(kind), term, axes_by_name(axes), result, place)
        self.reductions.append(reduction)
        return reduction.value

    def _count(self) -> Value:
        return self._add("sum", S.One, "count")

    def _name(self, stem: str, hint: str | None) -> str:
        used = {one.name for one in self.reductions} | {one.name for one in self.producers}
        if hint is not None and hint not in used:
            return hint
        name = f"{stem}_{self.counts[stem]}"
        self.counts[stem] += 1
        return name if name not in used else self._name(stem, None)

    def _other_axes(self, node: Basic) -> tuple[Axis, ...] | None:
        """The axes, other than the reduced ones, of a named expression that is a producer as a whole; or None."""
        bounds = {one.bound for one in outermost_reductions(node)}
        streamed = any(self.together & set(one.bound) for one in reductions_of(node))
        return bounds.pop() if len(bounds) == 1 and not streamed else None

    def _produce(self, node: Expr, reduced: tuple[Axis, ...], stem: str, hint: str | None) -> Value:
        axes = axes_by_name(free_axes(node))
        name = self._name(stem, hint)
        inner = _Builder(reduced, {one: label for one, label in self.names.items() if one != node}, streamed=False)
        expr = inner.lift(node, inside=False)
        parts = tuple(inner.reductions), tuple(inner.producers), (Output(name, expr, axes),)
        cascade = Cascade(reduced[0], *parts, inner=reduced[1:])
        self.producers.append(Producer(name, axes, cascade))
        return self.producers[-1].value


def linear_part(node: Expr, hole: Dummy, value: Expr) -> Expr | None:
    """A·value of node = A·hole + C, where A and C are free of the hole; None if the hole stands in any other way.

    A derivative is no test: that of a step function of the hole is 0. The value stays inside the conditions around the
    hole, which hide it where they do not hold: 0·value outside of them would be NaN where the value is.

    >>> from sympy import Symbol
    >>> hole, x, y = Dummy("hole"), Symbol("x"), Symbol("y")
    >>> linear_part(x * (hole + 1), hole, y), linear_part(Where(x < hole, x, 0), hole, y)
    (x*y, None)
    >>> linear_part(Where(x < 1, x * hole, 0), hole, y)
    where(x < 1, x*y, 0)
    """
    if hole not in nodes_of(node):
        return S.Zero
    if node == hole:
        return value
    if isinstance(node, Where) and hole not in nodes_of(node.condition):
        branches = [linear_part(one, hole, value) for one in node.args[1:]]
        return None if None in branches else Where(node.condition, *branches)
    if node.is_Add:
        terms = [linear_part(one, hole, value) for one in node.args]
        return None if None in terms else Add(*terms)
    holding = [one for one in node.args if hole in nodes_of(one)] if node.is_Mul else []
    inner = linear_part(holding[0], hole, value) if len(holding) == 1 else None
    return None if inner is None else Mul(inner, *(one for one in node.args if one not in holding))


def _output(name: str, expr: Expr, axes: tuple[Axis, ...] | None, reduced: tuple[Axis, ...], original: Expr) -> Output:
    free = free_axes(expr)
    if axes is None:
        axes = total_order(free, original)
    missing = [one for one in axes_by_name(free) if one not in axes]
    if missing:
        call = " ".join(map(str, [*axes, *missing]))
        raise ExpressionError(
            f'output `{name}`: axes "{" ".join(map(str, axes))}" have {", ".join(map(str, missing))} missing. '
            f'Its free axes are {{{", ".join(map(str, axes_by_name(free)))}}}: write axes="{call}".'
        )
    return Output(name, expr, axes, carries=bool({*axes} & set(reduced)))
