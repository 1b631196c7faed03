"""Terms with parts that take few values: a term that does not separate is taken apart by them. Each rewrite is exact:

    f(x, a)              → where(a ≠ 0, f(x, 1), f(x, 0))                 a the truth of any or all
    f(x, where(c, p, q)) → where(c, f(x, p), f(x, q))                     c of x alone or of d alone
    f(x, sign u)         → where(u > 0, f(x, 1), where(u < 0, f(x, −1), where(u = 0, f(x, 0), sign u)))
    f((−1)^i, d)         → where(i mod 2 = 0, f(1, d), f(−1, d))          i of places
    f(i mod k, d)        → where(i mod k = 0, f(0, d), … f(k − 1, d))     i of places; k a number of at most 4
    f(x, max u)          → where(max u = a, f(x, a), where(max u = b, f(x, b), … max u))   u a or b or …; min u alike
    u·0                  → where(−∞ < u < ∞, 0, NaN)                      u of x or d, for f(x, 0); of exp(−∞): u of d

In the third u is of x alone or of d alone. Of a sum only the addends that hold the value are taken apart. What is not
chosen is not read, so that an infinite branch does no harm; sign u is NaN where u is, and so is what the third rewrite
gives, as the fifth does where max u is; of no elements max u is −∞, and there is no term to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sympy import Add, Eq, Expr, Integer, Max, Min, Mod, Ne, Pow, S, Tuple, exp, false, preorder_traversal, sign, true
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.plain import is_finite
from redalg.decompose.separate.separating import Separating
from redalg.decompose.separate.theorems import D, X
from redalg.expression import UNDEFINED, Value, Where
from redalg.expression.contents import elements_of, nodes_of, of_kind, operations_of, text_of, values_of
from redalg.expression.rebuild import uncompared, with_args

OPENED_LIMIT = 200
"""Operations beyond which a term is not taken apart again: every value at least doubles it."""
CASES_LIMIT = 4
"""Values by which a term is taken apart at most."""
TRUTHS = ("any", "all")
VANISHING = (S.Zero, S.Infinity, S.NegativeInfinity)
"""Values of which SymPy makes 0 of a product, whatever its other factors are: 0·u, exp(−∞)·u."""

At = Callable[[Expr], Expr]
"""What a term is where the value that is opened is this."""
Case = tuple[Expr, Callable[[At], Expr]]
"""What takes few values, and how the term is put together from its cases."""


def by_cases(term: Expr, node: Basic, separator: Separating, *, summed: bool) -> Expr | None:
    """The term taken apart by the first value in the offending node that takes few, or None where it holds none.

    Args:
        term: the term of a reduction; `summed` where its addends may be reduced apart.
        node: what does not separate.
        separator: tells x from d.
    """
    for case in cases(node, separator) if not isinstance(term, Tuple) else ():
        made = _opened(term, case, Add.make_args(term) if summed else (term,), lambda u: bool(separator.side(u) & X))
        if made != term:
            return made if operations_of(made) <= OPENED_LIMIT else None
    return None


def cases(node: Basic, separator: Separating) -> Iterator[Case]:
    """What takes few values in a node that mixes x and d, outermost first."""
    for part in preorder_traversal(node):
        if isinstance(part, Value) and separator.facts.get(part, ("",))[0] in TRUTHS:
            yield part, partial(_by_truth, part)
        elif isinstance(part, Where) and UNDEFINED not in part.args and separator.side(part.condition) != X | D:
            yield part, partial(_by_condition, part)
        elif isinstance(part, sign) and separator.side(part) in (X, D):
            yield part, partial(_by_sign, part)
        elif isinstance(part, Mod) and separator.side(part) == X and _is_small_remainder(part):
            yield part, partial(_by_remainder, part)
        elif isinstance(part, Pow) and part.base is S.NegativeOne and part.exp.is_integer:
            yield part, partial(_by_parity, part)
        elif isinstance(part, Value) and (numbers := few(part, separator)):
            yield part, partial(_by_number, part, numbers)


def _by_truth(one: Expr, at: At) -> Expr:
    return Where(Ne(one, 0), at(S.One), at(S.Zero))


def _by_condition(one: Expr, at: At) -> Expr:
    condition, a, b = one.args
    return Where(condition, at(a), at(b))


def _by_sign(one: Expr, at: At) -> Expr:
    [d] = one.args
    return Where(d > 0, at(S.One), Where(d < 0, at(S.NegativeOne), Where(Eq(d, 0), at(S.Zero), one)))


def _by_remainder(one: Expr, at: At) -> Expr:
    size = int(one.args[1])
    made = at(Integer(size - 1))
    for number in reversed(range(size - 1)):
        made = Where(Eq(one, number), at(Integer(number)), made)
    return made


def _by_parity(one: Expr, at: At) -> Expr:
    return Where(Eq(Mod(one.exp, 2), 0), at(S.One), at(S.NegativeOne))


def _by_number(one: Expr, numbers: tuple[Expr, ...], at: At) -> Expr:
    made = one
    for number in reversed(numbers):
        made = Where(Eq(one, number), at(number), made)
    return made


def _is_small_remainder(node: Expr) -> bool:
    """Tells whether it is an integer modulo 2, 3 or 4."""
    place, size = node.args
    return bool(place.is_integer and size.is_Integer and 1 < size <= CASES_LIMIT)


def few(value: Expr, separator: Separating) -> tuple[Expr, ...]:
    """The numbers of which an extremum is one, where its term takes few; none otherwise."""
    monoid, term = separator.facts.get(value, ("", S.NaN))
    return tuple(sorted(_numbers(term), key=str)) if monoid in ("max", "min") else ()


def _numbers(term: Expr) -> set[Expr]:
    """The finite numbers that are all that a term takes; none where it takes others."""
    if isinstance(term, sign):
        return {S.NegativeOne, S.Zero, S.One}
    if isinstance(term, Mod) and _is_small_remainder(term):
        return set(map(Integer, range(int(term.args[1]))))
    if isinstance(term, Where):
        branches = [{one} if one.is_Rational else _numbers(one) for one in term.args[1:]]
        return set.union(*branches) if all(branches) and len(set.union(*branches)) <= CASES_LIMIT else set()
    return set()


def _opened(term: Expr, case: Case, addends: tuple[Expr, ...], of_x: Callable[[Expr], bool]) -> Expr:
    part, together = case
    held = [one for one in addends if part in nodes_of(one)]
    if not held:
        return term
    rest = Add(*(one for one in addends if one not in held))
    return rest + together(lambda value: at(Add(*held), part, value, of_x))


def at(node: Expr, part: Expr, value: Expr, of_x: Callable[[Expr], bool]) -> Expr:
    """The node where the part is this; what 0 times a number that is not finite gives is kept.

    Of exp(−∞) = 0 it is what is free of x alone: whatever else varies has no weight.
    """
    made: dict[Basic, Basic] = {part: value}

    def visit(one: Any) -> Any:
        if one not in made:
            made[one] = _at(one, [visit(arg) for arg in one.args], value, of_x) if part in nodes_of(one) else one
        return made[one]

    return visit(node)


def _at(node: Any, args: list[Any], value: Expr, of_x: Callable[[Expr], bool]) -> Any:
    """A node with arguments in which the part is what it is there."""
    if isinstance(node, Max | Min):
        return uncompared(node.func, args)
    if value in VANISHING and node.is_Mul and S.Zero in args:
        weights = [one for one, arg in zip(node.args, args, strict=True) if arg is S.Zero]
        masked = all(isinstance(one, exp) for one in weights)
        return Add(*(lost(one) for one in args if one is not S.Zero and not (masked and of_x(one))))
    return node.func(*args) if value.is_number else with_args(node, args)


def given(term: Expr, condition: Boolean, separator: Separating, *, truth: bool) -> Expr:
    """A term where a condition, of masks in it or a part of theirs, holds; or where it does not."""
    while masks := [one for one in of_kind(Where, term) if condition in (one.condition, *one.condition.args)]:
        mask = max(masks, key=lambda one: (operations_of(one), text_of(one)))
        made = Where(mask.condition.xreplace({condition: true if truth else false}), *mask.args[1:])
        term = at(term, mask, made, lambda u: bool(separator.side(u) & X))
    return term


def lost(factor: Expr) -> Expr:
    """0·u, which is 0 only where u is finite."""
    if not (elements_of(factor) or values_of(factor)):
        return S.Zero
    if isinstance(factor, Where) and all(branch.is_number and branch.is_finite for branch in factor.args[1:]):
        return S.Zero
    return Where(is_finite(factor), S.Zero, UNDEFINED)
