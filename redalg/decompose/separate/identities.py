"""Terms that hold d, in a spelling without the kinks or jumps that cancel. Each rewrite is exact, NaN and ±∞ included:

    k·max(a, b) + k·min(a, b) → k·(a + b)              max and min of the same two; max(a, b)·min(a, b) → a·b
    k·max(a, b) − k·max(−a, −b) → k·(a + b)            min alike
    |a|^q·sign(a)             → a^q                    q odd; a^q·sign(a) → |a|^q
    f + g                     → p where a and b are numbers, else u      f + g is p where a > b, a < b and a = b

In the last f and g are k·|a − b|, k·max(a, b), k·min(a, b), k·sign(a − b) or k·where(a > b, …), of any relation of a
and b; a product alike. u is what is left of a choice beside a NaN, NaN where a kink gives that.

They serve where a term's rank stands still though a part of it has none (`REWRITES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from sympy import (
    Abs,
    Add,
    And,
    Dummy,
    Expr,
    Max,
    Min,
    Mul,
    Pow,
    S,
    cancel,
    exp,
    expand_log,
    expand_trig,
    factor,
    log,
    sign,
)
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction
from sympy.polys.polyerrors import PolynomialError

from redalg.decompose.separate.plain import is_finite, is_number
from redalg.expression import UNDEFINED, Element, Value, Where
from redalg.expression.contents import elements_of, nodes_of, of_kind, operations_of, sympy_text, values_of
from redalg.expression.expanded import expansion
from redalg.expression.rebuild import extremum_as_written, with_args

KINKS = (Abs, Max, Min, sign, Where)
SPELLED = 1 << 8
"""Terms of which each other spelling is remembered: advice on passes separates a cascade's terms again."""
CELLS = {">": "pqqq", "<": "qpqq", ">=": "pqpq", "<=": "qppq", "==": "qqpq", "!=": "ppqp"}
"""Relation of a and b -> the branches that are taken where a > b, a < b, a = b, and where there is no order."""


def without_kinks(node: Expr) -> Expr:
    """Cancel the kinks and jumps of a term that cancel, innermost first."""
    if not any(isinstance(one, KINKS) for one in nodes_of(node)):
        return node
    args = [without_kinks(arg) if isinstance(arg, Expr) else arg for arg in node.args]
    result = node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)
    if result.is_Add:
        return _of_sides(_of_lattice(result))
    return _of_sides(_of_signs(_of_lattice(result))) if result.is_Mul else result


def _of_lattice(node: Expr) -> Expr:
    """A sum or product with max(a, b) and min(a, b) for a + b or a·b."""
    left = list(node.args)
    if sum(one.has(Max, Min) for one in left) < 2:
        return node
    for arg in node.args:
        factor, largest = (S.One, arg) if node.is_Mul else _weight_of(arg)
        if not isinstance(largest, Max | Min) or len(largest.args) != 2:
            continue
        a, b = largest.args
        others = [-factor * extremum_as_written(largest.func, (-a, -b))] if node.is_Add else []
        others += [factor * extremum_as_written(Min, (a, b))] if isinstance(largest, Max) else []
        other = next((rest for rest in left if rest in others and rest != arg), None)
        if arg in left and other is not None:
            left = [rest for rest in left if rest not in (arg, other)]
            left.append(Mul(a, b) if node.is_Mul else factor * Add(a, b))
    return node if len(left) == len(node.args) else node.func(*left)


def _weight_of(term: Expr) -> tuple[Expr, Expr]:
    """k·max(…) as (k, max(…)); k·min(…) as (k, min(…))."""
    inside = [one for one in Mul.make_args(term) if isinstance(one, Max | Min)]
    return (term / inside[0], inside[0]) if len(inside) == 1 else (S.One, term)


def _of_signs(node: Expr) -> Expr:
    """A product with |a|^q·sign(a), q odd, for a^q, and with a^q·sign(a) for |a|^q."""
    if not node.is_Mul:
        return node
    for signed in (arg for arg in node.args if isinstance(arg, sign)):
        [a] = signed.args
        for other in node.args:
            base, power = other.as_base_exp()
            if base in (a, Abs(a)) and power.is_Integer and power > 0 and power.is_odd:
                rest = Mul(*(arg for arg in node.args if arg not in (signed, other)))
                return rest * Pow(a if base == Abs(a) else Abs(a), power)
    return node


@final
@dataclass(frozen=True)
class _Sided:
    """A kink or jump where `difference` changes its sign: what it is above, below, at 0, and where that is NaN."""

    difference: Expr
    above: Expr
    below: Expr
    equal: Expr
    unordered: Expr


def _of_sides(node: Expr) -> Expr:
    """A sum or product without the parts that together have no kink and no jump."""
    if not (node.is_Add or node.is_Mul):
        return node
    groups: dict[Expr, list[tuple[Expr, _Sided]]] = {}
    for arg in node.args:
        if (side := _sided_part(arg, alone=node.is_Mul)) is not None:
            groups.setdefault(side.difference, []).append((arg, side))
    left = list(node.args)
    for parts in groups.values():
        smooth = _together(node.func, [one for _, one in parts]) if len(parts) > 1 else None
        if smooth is not None:
            left = [arg for arg in left if all(arg is not one for one, _ in parts)] + [smooth]
    return node if len(left) == len(node.args) else node.func(*left)


def _together(func: type[Add | Mul], parts: list[_Sided]) -> Expr | None:
    """One expression for parts of one difference together, if it is the same on both sides; else None."""
    above, below, equal = (func(*(getattr(one, name) for one in parts)) for name in ("above", "below", "equal"))
    difference, last = parts[0].difference, [one.unordered for one in parts]
    unordered = UNDEFINED if UNDEFINED in last else func(*last)
    if expansion(above - below) is not S.Zero or not _is_zero_where(above - equal, difference):
        return None
    above, parties = min(above, expansion(above), key=operations_of), _parties(difference)
    cells = [cell for one in parts for cell in (one.above, one.below)]
    if above is S.Zero or any(not _parties(cell) <= parties | _parties(above) for cell in cells):
        return None  # a factor that is lost might have been no number
    if unordered == above or (unordered is UNDEFINED and parties <= _parties(above)):
        return above
    if unordered is not UNDEFINED:
        return Where(And(*(is_number(one) for one in sorted(parties, key=sympy_text))), above, unordered)
    if any(one.unordered is UNDEFINED and one.equal is S.Zero for one in parts):
        return None  # the sign of ∞ − d is one, and that of ∞ − ∞ none
    return Mul(above, *(Where(is_finite(one), S.One, UNDEFINED) for one in sorted(parties, key=sympy_text)))


def _parties(expr: Expr) -> frozenset[Expr]:
    return elements_of(expr) | values_of(expr)


def _is_zero_where(expr: Expr, difference: Expr) -> bool:
    """Tell if an expression is seen to be 0 where a difference is."""
    if expansion(expr) is S.Zero:
        return True
    for party in sorted(_parties(difference), key=sympy_text):
        slope = difference.coeff(party)
        rest = expansion(difference - slope * party)
        if slope.is_number and slope is not S.Zero and not rest.has(party):
            return bool(expansion(expr.xreplace({party: -rest / slope})) is S.Zero)
    return False


def _sided_part(arg: Expr, *, alone: bool) -> _Sided | None:
    """An addend k·N, or a factor N, with a kink or jump N, by the sides of N."""
    factors = (arg,) if alone else Mul.make_args(arg)
    inside = [one for one in factors if isinstance(one, KINKS)]
    sides = _sides(inside[0]) if len(inside) == 1 else None
    if sides is None:
        return None
    k = Mul(*(one for one in factors if one is not inside[0]))
    difference, *cells = sides
    cells = [one if one is UNDEFINED else k * one for one in cells]
    if difference.could_extract_minus_sign():
        difference, cells = -difference, [cells[1], cells[0], *cells[2:]]
    return _Sided(difference, *cells)


def _sides(node: Expr) -> tuple[Expr, ...] | None:
    """a − b, and the node's value where a − b is above 0, below 0, 0 and NaN."""
    if isinstance(node, Abs | sign):
        difference = expansion(node.args[0])
        cells = (S.One, S.NegativeOne, S.Zero) if isinstance(node, sign) else (difference, -difference, difference)
        return difference, *cells, UNDEFINED
    if isinstance(node, Max | Min):
        a, b = node.args if len(node.args) == 2 else (None, None)
        swapped = (b, a, b) if isinstance(node, Min) else (a, b, b)
        return None if a is None else (expansion(a - b), *swapped, UNDEFINED)
    condition, *branches = node.args
    if not isinstance(condition, Relational):
        return None
    values = dict(zip("pq", branches, strict=True))
    return expansion(condition.lhs - condition.rhs), *(values[one] for one in CELLS[condition.rel_op])


# ---- all rewrites that find a separation ----------------------------------------------------------------------------


def has_division(term: Expr) -> bool:
    """Tell if a term holds a division."""
    return any(one.exp.is_negative for one in of_kind(Pow, term))


def of_atoms(term: Expr, rewrite: Callable[[Expr], Expr]) -> Expr:
    """Rewrite sums, products and powers alone, without a look into functions: SymPy would evaluate those again."""
    atoms: dict[Expr, Dummy] = {}

    def visit(node: Expr) -> Expr:
        if not node.args or isinstance(node, Element | Value):
            return node
        if isinstance(node, Add | Mul | Pow | exp):
            return with_args(node, [visit(arg) for arg in node.args])
        return atoms.setdefault(node, Dummy(f"atom{len(atoms)}", extended_real=True))

    plain = visit(term)
    result = rewrite(plain)
    return term if result == plain else result.xreplace({atom: node for node, atom in atoms.items()})


@lru_cache(SPELLED)
def cancel_fractions(term: Expr) -> Expr:
    """A term with the factors cancelled that its fractions share; SymPy takes milliseconds to find them."""
    return of_atoms(term, cancel)


@lru_cache(SPELLED)
def factor_term(term: Expr) -> Expr:
    """A term as a product of what does not factor; SymPy takes milliseconds to find it."""
    return of_atoms(term, factor)


def opens(kind: type[Basic] | tuple[type[Basic], ...], heads: type[Expr] | tuple[type[Expr], ...], term: Expr) -> bool:
    """Tell if a function of a kind is taken of one of the heads: of anything else it is as open as it can be."""
    return any(isinstance(one, kind) and isinstance(one.args[0], heads) for one in nodes_of(term))


SUMMANDS, MULTIPLE = 4, 8
"""Summands of an angle, and the largest whole multiple in it, that the addition theorems open: terms double by each."""


def opens_angles(term: Expr) -> bool:
    """Tell if the addition theorems of trigonometric and hyperbolic functions open a term into not too many others."""
    kinds = (TrigonometricFunction, HyperbolicFunction)
    angles = [Add.make_args(one.args[0]) for one in nodes_of(term) if isinstance(one, kinds)]
    multiples = [abs(one.as_coeff_Mul()[0]) for angle in angles for one in angle]
    short = all(len(angle) <= SUMMANDS for angle in angles) and all(k <= MULTIPLE for k in multiples if k.is_Integer)
    return short and opens(kinds, (Add, Mul), term)


Rewrite = tuple[Callable[[Expr], bool], Callable[[Expr], Expr]]
"""A test if a rewrite may change a term, and the rewrite."""
REWRITES: tuple[Rewrite, ...] = (
    (has_division, cancel_fractions),
    (lambda term: any(isinstance(one, KINKS) for one in nodes_of(term)), without_kinks),
    (lambda _: True, factor_term),
    (lambda term: opens(log, (Mul, Pow), term), expand_log),
    (opens_angles, expand_trig),
)
"""SymPy's own, cheap ones first, and those above. They serve to find a separation, and never what is run."""
REWRITING_LIMIT = 100
"""Operations of a term beyond which SymPy may take seconds to rewrite it."""


def spellings(term: Expr, rewrites: Sequence[Rewrite]) -> Iterator[Expr]:
    """Yield the other spellings of a term that rewrites give, if they can read it."""
    for may_change, rewrite in rewrites if rewrites and operations_of(term) <= REWRITING_LIMIT else ():
        try:
            other = rewrite(term) if may_change(term) else term
        except PolynomialError:
            continue
        if other != term:
            yield other
