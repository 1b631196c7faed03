"""Numbers of rows that the operands of products read, each from a stage of its own.

e^(u − m)·1/l  →  e^(u − z·log 2)            z = log₂(e^m·l), l a sum of e^(… − m), and of exponentials beside it
e^(u − m)      →  e^(u − z·log 2)            z = log₂(e^m): kernels take powers of 2
f(r, …)        →  z                          z = f(r, …) of the tensors of row values and stages, no bare one
e^(where(c, u, −∞) − …)·f, summed  →  where(c, e^(u − …)·f, 0)

Exact but for roundings. A row of m = −∞ has no element that counts: z is the largest number there, and e^(u − z·log 2)
is 0. Where m is +∞ the row is NaN, and z is NaN; so z is finite, and a kernel asks no element for infinities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from sympy import Add, And, Eq, Expr, Float, Lt, Mul, Pow, S, exp, log, nan, oo
from sympy.core.basic import Basic

from redalg.expression import Axis, Element, Label, Reduce, Where
from redalg.expression.contents import axes_by_name, elements_of, free_axes, reductions_of
from redalg.expression.rebuild import with_args
from redalg.gradient.rows import RowValues
from redalg.gradient.spelling import masks_and_rest, number_and_rest, with_masked_weights, with_shared_numbers

LARGEST = Float(2.0**128 - 2.0**104)
"""The largest float32."""


@final
@dataclass(frozen=True)
class RowsApart:
    """The numbers of rows that stages read.

    Attributes:
        rows: the row values.
        append: appends a stage of the wanted name, an expression along axes; its name.
        known: expression -> the element of its stage.
        names: of row values, and of stages that have the size of rows.
    """

    rows: RowValues
    append: Callable[[str, Expr, tuple[Axis, ...]], str]
    names: set[str]
    known: dict[Expr, Element] = field(default_factory=dict)

    def of_products(self, expr: Expr) -> Expr:
        """An expression whose sums of products read numbers of rows from tensors."""
        if isinstance(expr, Reduce) and expr.kind == "sum" and reductions_of(expr.expr):
            return self._with_masks_outside(expr, self._of_rows(with_shared_numbers(self._with_shares(expr.expr))))
        return with_args(expr, [self.of_products(one) for one in expr.args]) if reductions_of(expr) else expr

    def _with_masks_outside(self, total: Reduce, term: Expr) -> Expr:
        """A sum of products: its number outside, and the masks of its weights around the term.

        A mask that is computed by reductions stays with the weights: around the term it would be no matrix product.
        """
        conditions, rest = _without_masks(term)
        number, rest = number_and_rest(rest)
        computed = [one for one in conditions if reductions_of(one)]
        if computed:
            rest = with_masked_weights(total.rebuilt(Where(And(*computed), rest, S.Zero), total.bound)).expr
        plain = [one for one in conditions if one not in computed]
        body = Where(And(*plain), rest, S.Zero) if plain else rest
        return number * total.rebuilt(body, total.bound)

    # ---- exponentials ------------------------------------------------------------------------------------------------

    def _with_shares(self, node: Basic) -> Expr:
        """A term whose exponentials are about numbers of rows that are finite."""
        if isinstance(node, Element) or not node.args:
            return node
        if isinstance(node, Mul):
            for weight in (one for one in node.args if isinstance(one, exp)):
                for share in (one for one in node.args if isinstance(one, Pow) and one.exp == -1):
                    pivot = self._pivot_of(weight)
                    if pivot is not None and self._is_total(share.base, pivot):
                        rest = Mul(*(one for one in node.args if one not in (weight, share)))
                        z = self._finite("log_sum", pivot, pivot + log(share.base))
                        return self._with_shares(rest) * _about(weight, pivot, z)
        if isinstance(node, exp) and (pivot := self._pivot_of(node)) is not None:
            return _about(node, pivot, self._finite("pivot", pivot, pivot))
        return with_args(node, [self._with_shares(one) for one in node.args])

    def _pivot_of(self, weight: exp) -> Element | None:
        """The maximum that an exponential of what is computed is less."""
        terms = Add.make_args(weight.args[0]) if reductions_of(weight) else ()
        found = [one for one in self.rows.maxima if -one in terms]
        return found[0] if len(found) == 1 else None

    def _is_total(self, base: Expr, pivot: Element) -> bool:
        """Tell if an expression of rows is a sum of exponentials less a maximum, and of others beside it."""
        terms = Add.make_args(base)
        sums = [one for one in terms if pivot in self.rows.pivots_of_sum(one)]
        return bool(sums) and all(one in sums or isinstance(one, exp) for one in terms) and not reductions_of(base)

    def _finite(self, wanted: str, pivot: Element, value: Expr) -> Element:
        """The tensor of z: the value, a natural logarithm, in base 2."""
        absent = Where(Eq(pivot, -oo), LARGEST, nan)
        z = Where(And(Lt(-oo, pivot), Lt(pivot, oo)), value / log(2), absent)
        return self._stage(wanted, z, "finite")

    # ---- numbers of rows ---------------------------------------------------------------------------------------------

    def _of_rows(self, node: Basic) -> Expr:
        """A term that reads what is computed of row values alone as one tensor."""
        if not node.args or isinstance(node, Element):
            return node
        number, rest = number_and_rest(node) if isinstance(node, Expr) else (S.One, node)
        if self._is_of_rows(rest):
            return number * (rest if isinstance(rest, Element) else self._stage("row_factor", rest))
        if isinstance(node, Mul | Add):
            for axes in {free_axes(one) for one in node.args if self._is_of_rows(one)}:
                of_rows = [one for one in node.args if self._is_of_rows(one) and free_axes(one) == axes]
                others = [one for one in node.args if one not in of_rows]
                if len(of_rows) > 1:
                    return self._of_rows(node.func(self._stage("row_factor", node.func(*of_rows)), *others))
        return with_args(node, [self._of_rows(one) for one in node.args])

    def _is_of_rows(self, node: Basic) -> bool:
        """Tell if an expression reads tensors of rows, and nothing else."""
        found = elements_of(node) if isinstance(node, Expr) else set()
        axes = free_axes(node)
        alike = all(one.name in self.names and one.is_plain and free_axes(one) == axes for one in found)
        return bool(found) and alike and not reductions_of(node)

    def _stage(self, wanted: str, expr: Expr, assumption: str = "") -> Element:
        """The element of the tensor that holds an expression of rows."""
        if expr not in self.known:
            axes = axes_by_name(free_axes(expr))
            name = self.append(wanted, expr, axes)
            self.names.add(name)
            self.known[expr] = Element(Label(name, assumption), *axes)
        return self.known[expr]


def _about(weight: exp, pivot: Element, z: Element) -> Expr:
    """e^(u − m) as e^(u − z·log 2)."""
    return exp(weight.args[0] + pivot - log(2) * z)


def _without_masks(term: Expr) -> tuple[list[Basic], Expr]:
    """The conditions of a product and of its masked exponentials, and the product without them."""
    masks, product = masks_and_rest(term)
    conditions, factors = [*masks], list[Expr]()
    for factor in Mul.make_args(product):
        own, inner = _mask_of_exponent(factor)
        conditions += own
        factors.append(inner)
    return [*dict.fromkeys(conditions)], Mul(*factors)


def _mask_of_exponent(factor: Expr) -> tuple[list[Basic], Expr]:
    """The conditions of e^(where(c, u, −∞) − z), and e^(u − z); none and the factor of any other."""
    if not isinstance(factor, exp):
        return [], factor
    conditions, terms = list[Basic](), list[Expr]()
    for term in Add.make_args(factor.args[0]):
        number, mask = term.as_coeff_Mul()
        while isinstance(mask, Where) and mask.args[2] is S.NegativeInfinity and number.is_positive:
            conditions.append(mask.args[0])
            mask = mask.args[1]
        terms.append(number * mask)
    return conditions, exp(Add(*terms))
