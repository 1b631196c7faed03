"""Sums of which a mask hides what stands beside it: where no element passes it they are 0, whatever that is.

    Σ where(c, f, 0)   → where(some c, Σ where(c, f, 0), 0)            some: c holds of an element
    Σ where(c, f, g)   → Σ where(c, f, 0) + Σ where(c, 0, g)           where f or g holds d or a parameter
    Σ where(c, f, 0)·g → as it stands, c free of x                     its factor where(c, f, 0) of Σ g hides f alone
    Σ where(c, h, 0)·g → h·Σ [c]·g + Σ where(c, 0, 0·g)                c of x, h of d: NaN·0 is NaN, no mask hides g
    Σ [c]·f            → where(some c, Σ [c]·f, 0)                     [c] = where(c, 1, 0)
    F(where(c, f, g))  → where(c, F(f), F(g))                          c of d; F a power, a product, a sum, …
    where(c, f, g)^n·h → where(c, f^n·h, 0) + where(c, 0, g^n·h)       c of x, f or h of d; |where(…)| alike
    where(a ∧ b, f, g) → where(a, where(b, f, g), g)                   a of d, b of x
    where(a ∨ b, f, g) → where(a, f, where(b, f, g))

Exact; c is of x, or free of it. Taken apart f is a sum of h·g(x), h of d and of parameters, and h·0 is not 0
where h is not finite: 1/Σw of weights that are all 0, or log z of z < 0, for which the masks w > 0 and z > 0 are there.
What stands beside a mask and holds h is read everywhere. If g = exp(u)·f and u = −∞, 0·g is 0: it has no weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sympy import Abs, Add, And, Eq, Expr, Mul, Or, Pow, S, exp
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.finite import OPENED_LIMIT, assume_condition, conditions_of_d
from redalg.decompose.separate.laurent import Polynomial
from redalg.decompose.separate.plain import is_finite, is_number, nothing_times
from redalg.decompose.separate.separate import Separator
from redalg.decompose.separate.theorems import D, X
from redalg.expression import UNDEFINED, Element, Scalar, Value, Where
from redalg.expression.contents import is_indicator, nodes_of, of_kind, operations_of, sympy_text

MIXED = X | D


def parts_by_guard(term: Expr, separator: Separator) -> dict[Expr, Expr]:
    """The parts of a term by their guards: a guard is a product of indicators, 1 if nothing guards the part."""
    parts: dict[Expr, Expr] = {}
    for addend in Add.make_args(term):
        for some, part in _of_addend(addend, separator):
            parts[some] = parts.get(some, S.Zero) + part
    return parts


def _of_addend(addend: Expr, separator: Separator) -> Iterator[tuple[Expr, Expr]]:
    factors = Mul.make_args(Mul(*(_separate_mask(one, separator) for one in Mul.make_args(addend))))
    masks = [one for one in factors if is_indicator(one) and separator.side(one) != MIXED]
    late = [one for one in factors if one not in masks and _is_late(one, separator)]
    some = Mul(*masks) if late else S.One
    if len(late) != 1 or not _hides(late[0], separator):
        yield from _of_product(factors, late, some, separator)
        return
    condition, *branches = late[0].args
    beside = Mul(*(one for one in factors if one is not late[0]))
    hides_all = beside is S.One or bool(separator.side(condition) & X)
    for place, branch in enumerate(branches):
        for inner, part in _of_addend(branch, separator) if branch is not S.Zero else ():
            own = _at(place, condition, S.One) if hides_all else S.One
            yield _together(some, inner, own), beside * _at(place, condition, part)
    if hides_all and S.Zero in branches:
        place = branches.index(S.Zero)
        for own, zero in _zeros_beside(beside, separator):
            indicator = S.One if own is S.One else _together(_at(place, condition, S.One), own)
            yield _together(some, indicator), own * _at(place, condition, zero)


def _of_product(
    factors: Sequence[Expr], late: list[Expr], some: Expr, separator: Separator
) -> Iterator[tuple[Expr, Expr]]:
    """The parts of a product in which masks stand beside other late factors, or within one."""
    whole = Mul(*factors)
    masks = {mask for one in late for mask in of_kind(Where, one) if separator.side(mask) == MIXED}
    by_d = {one for mask in masks for one in conditions_of_d(mask, separator)}
    by_x = {mask.condition for one in late for mask in _masks_of_factors(one) if separator.side(mask.condition) == X}
    if not by_d | by_x or operations_of(whole) > OPENED_LIMIT:
        yield some, whole
        return
    condition = min(by_d or by_x, key=sympy_text)
    if by_d:
        cases = (assume_condition(whole, condition, separator, truth=truth) for truth in (True, False))
        yield from _of_addend(Where(condition, *cases), separator)
        return
    either = [[assume_condition(one, condition, separator, truth=truth) for one in factors] for truth in (True, False)]
    if any(UNDEFINED in mask.args and separator.side(mask) == MIXED for mask in of_kind(Where, *either[0], *either[1])):
        yield some, whole
        return
    for place, parts in enumerate(either):
        if S.Zero in parts:
            for own, zero in _zeros_beside(Mul(*(one for one in parts if one is not S.Zero)), separator):
                yield _together(_at(place, condition, S.One), own), own * _at(place, condition, zero)
            continue
        for inner, part in _of_addend(Mul(*parts), separator):
            yield _together(_at(place, condition, S.One), inner), _at(place, condition, part)


def _masks_of_factors(node: Expr) -> Iterator[Where]:
    """The masks that a product multiplies, to any power: not those in its sums, which are kept whole (`offsets`)."""
    if isinstance(node, Where) and UNDEFINED not in node.args:
        yield node
    elif isinstance(node, Mul | Pow | Abs):
        for part in node.args:
            yield from _masks_of_factors(part)


def _zeros_beside(beside: Expr, separator: Separator) -> Iterator[tuple[Expr, Expr]]:
    """Yield 0·g where a mask of no weight stands beside g, each with a mask of the elements that it is of.

    It is NaN where a part of g is not finite, unless another hides it: a mask, or an exponential of −∞.
    """
    parts = [*_parts_of_factors(beside, separator)]
    of_x = [one for one in parts if separator.side(one) & X]
    weights = [one for one in of_x if isinstance(one, exp)]
    of_d = [one for one in parts if separator.side(one) == D and not _is_finite(one, separator)]
    terms = [term for one in weights for term in Add.make_args(one.args[0])]
    plain = [one for one in of_x if one not in weights]
    if any(is_indicator(one) or separator.side(one) == MIXED for one in (*plain, *terms)):
        yield S.One, S.Zero
        return
    if of_d:
        yield S.One, nothing_times(Mul(*of_d))
    if not weights:
        yield S.One, nothing_times(Mul(*plain))
        return
    u = Add(*(one for one in terms if separator.side(one) & X))
    v = Add(*(one for one in terms if not separator.side(one) & X))
    own = _unless(Eq(v, S.NegativeInfinity))
    if plain or not any(separator.facts.get(-one) == ("max", u) for one in Add.make_args(v)):  # it is NaN if u is
        finite = And(_is_weight(u), *(is_finite(one) for one in plain))
        yield own, Where(Or(Eq(u, S.NegativeInfinity), finite), S.Zero, UNDEFINED)
    if separator.side(v):
        yield own * _unless(Eq(u, S.NegativeInfinity)), Where(_is_weight(v), S.Zero, UNDEFINED)


def _is_weight(u: Expr) -> Boolean:
    """The condition that exp(u) is a number and not ∞."""
    below = u < S.Infinity
    return is_number(u) if below is S.true else below


def _unless(condition: Boolean) -> Expr:
    """1 where a condition fails, 0 where it holds."""
    return Where(condition, S.Zero, S.One)


def _parts_of_factors(node: Expr, separator: Separator) -> Iterator[Expr]:
    """The parts of one side in products, and in what mixes x with d; that as it stands where it is a function."""
    if node.is_Mul or (separator.side(node) == MIXED and isinstance(node, Add | Pow | Abs)):
        for part in node.args:
            yield from _parts_of_factors(part, separator)
    else:
        yield node


def _together(*indicators: Expr) -> Expr:
    """The product of indicators; a mask that stands in several counts once, as it is its own square."""
    return Mul(*dict.fromkeys(mask for one in indicators for mask in Mul.make_args(one)))


def _separate_mask(node: Expr, separator: Separator) -> Expr:
    """A mask of x and d as one of d around one of x; [a ∧ b] as [a]·[b]."""
    if not isinstance(node, Where) or separator.side(node.condition) != MIXED:
        return node
    condition, f, g = node.args
    of_x = [part for part in condition.args if separator.side(part) == X]
    rest = [part for part in condition.args if separator.side(part) != X]
    if not isinstance(condition, And | Or) or any(separator.side(part) == MIXED for part in rest):
        return node
    outer, inner = condition.func(*rest), condition.func(*of_x)
    if isinstance(condition, And) and (f, g) == (S.One, S.Zero):
        return Where(outer, f, g) * Where(inner, f, g)
    branch = Where(inner, f, g)
    return Where(outer, branch, g) if isinstance(condition, And) else Where(outer, f, branch)


def _is_late(node: Expr, separator: Separator) -> bool:
    """Tell if a node holds d, or a parameter while a mask may be dropped: both stand outside the sum."""
    if separator.side(node) & D:
        return True
    leaves = (one for one in nodes_of(node) if isinstance(one, Element | Scalar | Value))
    return separator.domain is not S.true and any(not separator.side(one) & X for one in leaves)


def _at(place: int, condition: Expr, branch: Expr) -> Expr:
    """where(c, branch, 0), or where(c, 0, branch)."""
    return Where(condition, branch, S.Zero) if place == 0 else Where(condition, S.Zero, branch)


def _hides(node: Expr, separator: Separator) -> bool:
    """Tell if a node is a mask of x, or of what is free of x."""
    return isinstance(node, Where) and separator.side(node.condition) != MIXED


def hides(some: Expr, polynomial: Polynomial, separator: Separator) -> bool:
    """Tell if a polynomial has factors of d or of parameters that need not be finite; a mask free of x hides all."""
    if any(not separator.side(one) & X for one in Mul.make_args(some)):
        return some is not S.One
    atoms = (separator.atoms.list[number] for _, d in polynomial for number, _ in d)
    return any(one.base.has(Value, Element, Scalar) and not _is_finite(one.base, separator) for one in atoms)


def _is_finite(d: Expr, separator: Separator) -> bool:
    """Tell if d is a number of elements or a truth."""
    kind, term = separator.facts.get(d, ("", S.Zero)) if isinstance(d, Value) else ("", S.Zero)
    return is_indicator(d) or kind in ("any", "all") or (kind == "sum" and term is S.One)
