"""Reductions of several operands that hold d, from those of x alone. Each rewrite is exact:

    first φ(u, …, d)      → φ(first u, …, d)               φ without conditions, so that NaN of no element stays NaN
    affine(a, b·h).shift  → h·affine(a, b).shift           h of d alone; a of x alone; 0 of no elements
    sum_at_max(u + v, w·h) → h·sum_at_max(u, w)            v and h of d alone, v finite; sum_below_max alike
    sum_at_max(φ(u, d), w·h) → h·sum_at_max(u, w)          φ strictly rising in u, its parts of d finite; falling: of −u

and last as first. If v is not finite, u + v is tied or NaN for every u, and the result is NaN. A difference of large
sums, such as affine(a, b − d), stays undecided: it would cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sympy import Add, Dummy, Expr, Mul, Tuple

from redalg.decompose.separate.curvature import curvature
from redalg.decompose.separate.finite import zero_times
from redalg.decompose.separate.signs import Facts
from redalg.expression import Axis, Value, Where
from redalg.expression.contents import free_axes, of_kind, values_of
from redalg.expression.rebuild import with_args

SUMS = ("affine", "sum_at_max", "sum_below_max")
"""Kinds that are 0 of no elements, whatever h is."""


@final
@dataclass(frozen=True)
class Sides:
    """The sides of expressions, x and d: `facts` holds the values reduced before, over `axes`."""

    facts: Facts
    axes: frozenset[Axis]

    @property
    def values(self) -> frozenset[Value]:
        """The values that were reduced before."""
        return frozenset(self.facts)

    def has_d(self, node: Expr) -> bool:
        """Tell if a value stands in a node."""
        return not values_of(node).isdisjoint(self.values)

    def has_x(self, node: Expr) -> bool:
        """Tell if a node varies along the reduced axes."""
        return not free_axes(node).isdisjoint(self.axes)


def pull_reductions(kind: str, term: Expr, result: str, sides: Sides) -> tuple[Expr, dict[Dummy, Expr]] | None:
    """The reduction as an expression of symbols, each of which stands for such a reduction of x alone; or None."""
    if not isinstance(term, Tuple) or len(term.args) != 2 or not sides.has_d(term):
        return None
    first, second = term.args
    if kind in ("first", "last") and not sides.has_d(second):
        return _at_one_place(first, second, sides)
    if kind == "affine" and result == "shift" and not sides.has_d(first):
        return _factor_out(first, second, sides)
    if kind in ("sum_at_max", "sum_below_max"):
        return _at_extremum(first, second, sides)
    return None


def _at_one_place(term: Expr, counts: Expr, sides: Sides) -> tuple[Expr, dict[Dummy, Expr]] | None:
    generators: dict[Expr, Dummy] = {}
    opened = replace_side_parts(term, generators, sides)
    if not generators or of_kind(Where, opened):
        return None
    return opened, {symbol: Tuple(u, counts) for u, symbol in generators.items()}


def replace_side_parts(node: Expr, generators: dict[Expr, Dummy], sides: Sides) -> Expr:
    """The node with its maximal parts of x alone replaced by symbols."""
    if not sides.has_x(node):
        return node
    if not sides.has_d(node):
        return generators.setdefault(node, Dummy("u", extended_real=True))
    if node.is_Add or node.is_Mul:
        of_x = [arg for arg in node.args if sides.has_x(arg) and not sides.has_d(arg)]
        rest = [replace_side_parts(arg, generators, sides) for arg in node.args if arg not in of_x]
        return node.func(*rest, replace_side_parts(node.func(*of_x), generators, sides)) if of_x else node.func(*rest)
    result: Expr = with_args(node, [replace_side_parts(arg, generators, sides) for arg in node.args])
    return result


def _factor_out(a: Expr, product: Expr, sides: Sides) -> tuple[Expr, dict[Dummy, Expr]] | None:
    """⊕ of (a, b·h) as h·⊕ of (a, b)."""
    factors = Mul.make_args(product)
    h = Mul(*(one for one in factors if not sides.has_x(one)))
    b = Mul(*(one for one in factors if sides.has_x(one)))
    if sides.has_d(a) or sides.has_d(b):
        return None
    symbol = Dummy("u", extended_real=True)
    return h * symbol, {symbol: Tuple(a, b)}


def _at_extremum(term: Expr, weight: Expr, sides: Sides) -> tuple[Expr, dict[Dummy, Expr]] | None:
    """u + v(d) → u: the same elements are the largest."""
    terms = Add.make_args(term)
    u = Add(*(one for one in terms if sides.has_x(one))) if len(terms) > 1 else term
    if (form := _factor_out(u, weight, sides)) is not None:
        return form if u is term else (form[0] + zero_times(term - u), form[1])
    generators = dict[Expr, Dummy]()
    opened = replace_side_parts(term, generators, sides)
    if len(generators) != 1 or of_kind(Where, opened):
        return None
    [(u, symbol)] = generators.items()
    shape = curvature(opened, symbol, sides.facts)
    form = _factor_out(shape.direction * u, weight, sides) if shape.direction and shape.strict else None
    if form is None:
        return None
    return form[0] + Add(*map(zero_times, _free_parts(opened, symbol, sides))), form[1]


def _free_parts(node: Expr, symbol: Dummy, sides: Sides) -> list[Expr]:
    """The maximal parts of d alone in a node that holds a symbol."""
    if not node.has(symbol):
        return [node] if sides.has_d(node) else []
    free = [one for one in node.args if not one.has(symbol)] if node.is_Add or node.is_Mul else []
    others = [one for one in node.args if one not in free]
    together = [node.func(*free)] if any(map(sides.has_d, free)) else []
    return together + [part for one in others for part in _free_parts(one, symbol, sides)]
