"""Row values: the reductions over a streamed axis that vary along none, which the forward saves.

r_k = ⊕_B u(x, r_j)   j < k           inner ones first; each is a tensor to the expressions of the backward
e^(u − m), 1/Σ e^(u − m)  →  0 where m = max u is −∞         a row of which nothing counts has gradients of 0
1/(Σ e^(u − m) + e^(t − m))  →  0 there too                 every term is 0
Σ e^(u − m)·1/Σ e^(u − m)·f  →  Σ where(m ≠ −∞, e^(u − m)·1/Σ e^(u − m)·f, 0)     one mask of all, which hides f too
e^(u − m)·f(x)            →  where(u ≠ −∞, e^(u − m)·f(x), 0)     an element without a weight, whatever x is there
t(e^(u − m), …) + s       →  where(m ≠ −∞, t, 0) + s         and tangents of 0: terms together, no factor of them alone
q·u − q·m + …       →  q·where(m ≠ −∞, u − m, 0) + …        rounded at the size of u − m, and finite there
m, saved            →  where(Σ e^(u − m) < ∞, m, NaN)   a NaN of u is one of the sum
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, final

from sympy import Add, And, Expr, Lt, Mul, Ne, Pow, S, exp, nan, oo
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Element, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, of_kind, reductions_of
from redalg.expression.rebuild import replace_nodes, with_args
from redalg.gradient.attained import CHOSEN, threshold_of
from redalg.monoids import monoid

CONSTANT = ("argmax", "argmin", "any", "all", "first_place", "last_place")
"""Kinds of reductions that are constant nearly everywhere: places and truths, which no arithmetic takes as tensors."""


@final
@dataclass(frozen=True)
class RowValues:
    """The row values of a function.

    Attributes:
        names: of the tensors that hold them.
        tensors: the names of the function's own tensors.
    """

    names: Mapping[Reduce, str]
    tensors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fused: Any, written: Mapping[str, Expr]) -> RowValues:
        """Those of its outputs' expressions."""
        cascades = [*(one.cascade for one in fused.earlier), fused.decomposition.cascade]
        streamed = {axis for one in cascades for axis in one.reduced_axes}
        tensors = frozenset(tensor_names(written.values()))
        taken = {*tensors, *written}
        found = {one for expr in written.values() for one in reductions_of(expr) if one.kind not in CONSTANT}
        found |= {place for one in found if (place := place_of(one)) is not None}
        found |= {threshold_of(one) for one in found if one.kind in CHOSEN}
        found |= {part for one in found for part in component_results(one)}
        names = dict[Reduce, str]()
        for reduce in sorted(found, key=lambda one: (len(reductions_of(one)), str(one))):
            if set(reduce.bound) & streamed and not free_axes(reduce) & streamed:
                numbered = (f"row_{reduce.kind}_{number}" for number in count())
                names[reduce] = next(name for name in numbered if name not in taken)
                taken.add(names[reduce])
        return cls(names, tensors)

    def element(self, reduce: Reduce) -> Element:
        """The element of the tensor that holds a row value."""
        return Element(Label(self.names[reduce]), *axes_by_name(free_axes(reduce)))

    def read(self, expr: Expr) -> Expr:
        """An expression with elements of tensors for its row values."""
        return replace_nodes(expr, {one: self.element(one) for one in self.names})

    def zero_empty_rows(self, node: Basic, *, summed: bool = False) -> Expr:
        """An expression of the tensors, with 0 for the exponentials and the shares of a row of −∞.

        In what is `summed` a product of both has one mask.
        """
        if not node.args or isinstance(node, Element):
            return node
        if isinstance(node, Mul) and summed and (weight := self._weight_of_row(node)) is not None:
            own = {*self._empty_of(weight)}
            hidden = [one for one in node.args if len(self._empty_of(one)) > 0 and {*self._empty_of(one)} <= own]
            others = [self.zero_empty_rows(one, summed=True) for one in node.args if one not in hidden]
            return _zero_where(self._empty_of(weight), Mul(*hidden, *others))
        if empty := self._empty_of(node):
            return _zero_where(empty, node)
        summed = summed or (isinstance(node, Reduce) and node.kind == "sum")
        return with_args(node, [self.zero_empty_rows(one, summed=summed) for one in node.args])

    def _empty_of(self, node: Basic) -> list[Element]:
        """The pivots of an exponential or a share, which is 0 where one is −∞; none of anything else."""
        if isinstance(node, Pow) and node.exp.is_negative:
            return self._empty_at(node.base)
        return self._empty_at(node) if isinstance(node, exp) else []

    def _weight_of_row(self, product: Mul) -> exp | None:
        """The exponential of a product whose pivots are those of a share in it; None if there is none.

        A product of tensors beside them keeps its masks: a kernel moves each into the exponent.
        """
        shares = [one for one in product.args if isinstance(one, Pow)]
        weights = [one for one in product.args if isinstance(one, exp)]
        if not any(reductions_of(one) for one in product.args if one not in weights):
            return None
        return next(
            (one for one in weights if any({*self._empty_of(share)} & {*self._empty_of(one)} for share in shares)), None
        )

    def zero_without_weight(self, node: Basic) -> Expr:
        """An expression of the tensors, with 0 for the products of an element whose weight e^(u − m) is that of −∞.

        A sum has this by convention: Σ e^u·f counts nothing where u is −∞. Beside cotangents and row values alone, a
        weight of 0 needs no word: they are finite.
        """
        if not node.args or isinstance(node, Element | Reduce | Boolean):
            return node
        node = with_args(node, [self.zero_without_weight(one) for one in node.args])
        weights = [one for one in Mul.make_args(node) if isinstance(one, exp)] if isinstance(node, Mul) else []
        numbers = {number for one in weights if (number := self._number_of(one)) is not None}
        along = set().union(*map(free_axes, numbers)) - set().union(*map(free_axes, self._pivots(node)))
        others = (one for one in node.args if one not in weights) if numbers else ()
        read = {element for one in others for element in numbers_read(one) if element.name in self.tensors}
        if not any(free_axes(element) & along for element in read):
            return node
        return Where(And(*(Ne(one, -oo) for one in sorted(numbers, key=str))), node, S.Zero)

    def _number_of(self, weight: exp) -> Expr | None:
        """The u of a weight e^(u − m); None of any other exponential."""
        pivots = self._pivots(weight)
        terms = Add.make_args(weight.args[0])
        return Add(*(one for one in terms if one.as_coeff_Mul()[1] not in pivots)) if pivots else None

    def with_differences(self, node: Basic) -> Basic:
        """An expression of the tensors in which a number less its maximum is a difference of its own."""
        if not node.args or isinstance(node, Element | exp | Boolean):
            return node
        node = with_args(node, [self.with_differences(one) for one in node.args])
        if isinstance(node, Add):
            for own in (one for one in self.names if one.kind == "max"):
                node = _with_difference(node, self._terms_of_maxima[own], self.element(own))
        return node

    def zero_where_empty(self, value: Expr, weight: Expr) -> Expr:
        """A value, 0 in the rows in which a weight's pivots are −∞."""
        return _zero_where(self._pivots(weight), value)

    def _empty_at(self, weight: Expr) -> list[Element]:
        """The pivots of which each, where it is −∞, makes every term of a sum 0."""
        sums = self._terms_of_sums

        def of_term(term: Expr) -> list[Element]:
            factors = (one.base if isinstance(one, Pow) and one.exp.is_positive else one for one in Mul.make_args(term))
            weights = (sums.get(one, one) for one in factors if one in sums or isinstance(one, exp))
            return [pivot for weight in weights for pivot in self._pivots(weight)]

        first, *others = map(of_term, Add.make_args(weight))
        return [one for one in dict.fromkeys(first) if all(one in other for other in others)]

    @cached_property
    def _terms_of_sums(self) -> dict[Expr, Expr]:
        """The terms of the row values that are sums, by their elements."""
        return {self.element(one): self.read(one.expr) for one in self.names if one.kind == "sum"}

    def _pivots(self, weight: Expr) -> list[Element]:
        """The maxima that the exponentials of a weight are less."""
        return [one for one in self.maxima if any(is_pivot(one, e) for e in of_kind(exp, weight))]

    @cached_property
    def _terms_of_maxima(self) -> dict[Reduce, tuple[Expr, ...]]:
        """The addends of the terms of the row values that are maxima."""
        return {one: Add.make_args(self.read(one.expr)) for one in self.names if one.kind == "max"}

    @cached_property
    def maxima(self) -> list[Element]:
        """The elements of the row values that are maxima."""
        return [self.element(one) for one in self.names if one.kind == "max"]

    def pivots_of_sum(self, value: Expr) -> list[Element]:
        """The maxima that the exponentials of a row value's terms are less; none of anything else."""
        sums = {self.element(one): one for one in self.names if one.kind == "sum"}
        return self._pivots(self.read(sums[value].expr)) if value in sums else []

    def with_nan_of_sum(self, reduce: Reduce) -> Expr:
        """A row value to save. A maximum m is NaN where l = Σ e^(u − m) is: no kernel looks for NaN in every element.

        A row of m = +∞ is NaN then; its weights are.
        """
        weight = exp(reduce.expr - reduce) if reduce.kind == "max" else None
        total = next((one for one in self.names if one.kind == "sum" and one.expr == weight), None)
        return reduce if total is None or total.bound != reduce.bound else Where(Lt(total, oo), reduce, nan)

    def definition(self, reduce: Reduce) -> Reduce:
        """A row value as a reduction of the others' tensors."""
        return reduce.rebuilt(self.read(reduce.expr), reduce.bound)


def place_of(node: Reduce) -> Reduce | None:
    """The place, or places, of the elements that a reduction selects; None if it selects none by its place."""
    if node.kind == "topk":
        return Reduce(node.args[0], node.expr, node.args[2], "indices", node.place)
    if node.kind in ("first", "last"):
        return Reduce(f"{node.kind}_place", node.operands[1], node.args[2])
    return None


def component_results(node: Reduce) -> tuple[Reduce, ...]:
    """The components of a reduction whose monoid has a rule of its derivative; else none."""
    kind = monoid(node.kind)
    names = [one.name for one in kind.results[-len(kind.components) :]] if kind.vjp is not None else []
    return tuple(Reduce(node.args[0], node.expr, node.args[2], name) for name in names)


def guard_empty_rows(expr: Expr, known: frozenset[Reduce] = frozenset()) -> Expr:
    """A tangent, with 0 for its terms that hold exponentials less a maximum of −∞; `known` ones are no such."""
    groups = dict[frozenset[Reduce], list[Expr]]()
    for term in Add.make_args(expr):
        sums = [factor for factor in Mul.make_args(term) if factor.is_Add]
        rest = Mul(*(factor for factor in Mul.make_args(term) if not factor.is_Add))
        own = frozenset(one for one in _pivots_of(rest) - known if free_axes(one) <= free_axes(term))
        parts = [guard_empty_rows(one, known | own) for one in sums]
        groups.setdefault(own, []).append(Mul(_guard_within(rest, known | own), *parts))
    guards = {own: And(*(Ne(one, -oo) for one in own)) for own in groups}
    return Add(*(Where(guards[own], Add(*terms), S.Zero) for own, terms in groups.items()))


def _guard_within(term: Expr, known: frozenset[Reduce]) -> Expr:
    """A term whose sums over the rows themselves are guarded inside."""
    across = dict[Basic, Expr]()
    for reduce in reductions_of(term):
        axes = {axis for pivot in _pivots_of(reduce.expr) - known for axis in free_axes(pivot)}
        if reduce.kind == "sum" and axes & set(reduce.bound):
            across[reduce] = reduce.rebuilt(guard_empty_rows(reduce.expr, known), reduce.bound)
    guarded: Expr = replace_nodes(term, across)
    return guarded


def _pivots_of(expr: Expr) -> frozenset[Reduce]:
    """The maxima that exponentials are less."""
    maxima = (one for one in reductions_of(expr) if one.kind == "max")
    return frozenset(one for one in maxima if any(is_pivot(one, exponential) for exponential in of_kind(exp, expr)))


def _with_difference(total: Expr, number: Sequence[Expr], maximum: Element) -> Expr:
    """A sum with q·(u − m) in the place of q·u and −q·m, 0 where m is −∞, if it holds all terms of u so."""
    factor = -total.coeff(maximum)
    pair = [*(factor * one for one in number), -factor * maximum]
    if factor is S.Zero or not factor.is_number or any(one not in total.args for one in pair):
        return total
    rest = Add(*(one for one in total.args if one not in pair))
    return rest + factor * Where(Ne(maximum, -oo), Add(*number, -maximum), S.Zero)


def _zero_where(pivots: Iterable[Element], value: Expr) -> Expr:
    """A value, 0 in the rows in which a pivot is −∞."""
    conditions = [Ne(one, -oo) for one in pivots]
    return Where(And(*conditions), value, S.Zero) if conditions else value


def is_pivot(maximum: Expr, exponential: Expr) -> bool:
    """Tell if an exponential is that of something less a maximum."""
    return any(term.as_coeff_Mul()[1] == maximum and term.could_extract_minus_sign()
               for term in Add.make_args(exponential.args[0]))  # fmt: skip


def numbers_read(expr: Basic) -> set[Element]:
    """The elements that an expression reads as numbers, not only in conditions; none that its reductions read."""
    if isinstance(expr, Boolean | Reduce):
        return set()
    return {expr} if isinstance(expr, Element) else set().union(*map(numbers_read, expr.args))


def tensor_names(exprs: Iterable[Expr]) -> set[str]:
    """The names of the tensors that expressions read."""
    return {element.name for expr in exprs for element in elements_of(expr)}
