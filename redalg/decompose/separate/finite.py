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

from sympy import Add, And, Eq, Expr, Integer, Max, Min, Mod, Ne, Or, Pow, S, Tuple, exp, false, sign, true
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.decompose.separate.plain import is_finite
from redalg.decompose.separate.separating import Separating
from redalg.decompose.separate.theorems import D, X
from redalg.expression import UNDEFINED, Value, Where
from redalg.expression.contents import elements_of, nodes_of, of_kind, operations_of, sympy_text, values_of
from redalg.expression.rebuild import extremum_as_written, with_args

OPENED_LIMIT = 200
"""Operations beyond which a term is not taken apart again: every value at least doubles it."""
CASES_LIMIT = 4
"""Values by which a term is taken apart at most."""
TRUTHS = ("any", "all")
VANISHING = (S.Zero, S.Infinity, S.NegativeInfinity)
"""Values of which SymPy makes 0 of a product, whatever its other factors are: 0·u, exp(−∞)·u."""

At = Callable[[Expr], Expr]
"""The term, as a function of the value that the opened part takes."""
Case = tuple[Expr, Callable[[At], Expr]]
"""A part that takes few values, and the function that puts the term together from its cases."""


def by_cases(term: Expr, node: Basic, separator: Separating, *, summed: bool) -> Expr | None:
    """Take the term apart by the first part of the offending node that takes few values; None if it holds none.

    Args:
        term: the term of a reduction; `summed` if its addends may be reduced apart.
        node: the node that does not separate.
        separator: tells x from d.
    """
    for case in finite_cases(node, separator) if not isinstance(term, Tuple) else ():
        form = _open_case(term, case, Add.make_args(term) if summed else (term,), lambda u: bool(separator.side(u) & X))
        if form != term:
            return form if operations_of(form) <= OPENED_LIMIT else None
    return None


def finite_cases(node: Basic, separator: Separating) -> Iterator[Case]:
    """Yield the parts that take few values in a node that mixes x and d, outermost first."""
    for part in outermost_first(node):
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


def outermost_first(node: Basic) -> Iterator[Basic]:
    """Yield each node of an expression once, where it stands first: a node, then its arguments in their order."""
    seen, todo = set[Basic](), [node]
    while todo:
        part = todo.pop()
        if part not in seen:
            seen.add(part)
            yield part
            todo += reversed(part.args)


def _by_truth(truth: Expr, at: At) -> Expr:
    return Where(Ne(truth, 0), at(S.One), at(S.Zero))


def _by_condition(mask: Expr, at: At) -> Expr:
    condition, a, b = mask.args
    return Where(condition, at(a), at(b))


def _by_sign(part: Expr, at: At) -> Expr:
    [d] = part.args
    return Where(d > 0, at(S.One), Where(d < 0, at(S.NegativeOne), Where(Eq(d, 0), at(S.Zero), part)))


def _by_remainder(remainder: Expr, at: At) -> Expr:
    size = int(remainder.args[1])
    choice = at(Integer(size - 1))
    for number in reversed(range(size - 1)):
        choice = Where(Eq(remainder, number), at(Integer(number)), choice)
    return choice


def _by_parity(power: Expr, at: At) -> Expr:
    return Where(Eq(Mod(power.exp, 2), 0), at(S.One), at(S.NegativeOne))


def _by_number(extremum: Expr, numbers: tuple[Expr, ...], at: At) -> Expr:
    choice = extremum
    for number in reversed(numbers):
        choice = Where(Eq(extremum, number), at(number), choice)
    return choice


def _is_small_remainder(node: Expr) -> bool:
    """Tell if a remainder is that of an integer modulo 2, 3 or 4."""
    place, size = node.args
    return bool(place.is_integer and size.is_Integer and 1 < size <= CASES_LIMIT)


def few(value: Expr, separator: Separating) -> tuple[Expr, ...]:
    """The numbers that an extremum may be, if its term takes few values; none otherwise."""
    monoid, term = separator.facts.get(value, ("", S.NaN))
    return tuple(sorted(_numbers(term), key=str)) if monoid in ("max", "min") else ()


def _numbers(term: Expr) -> set[Expr]:
    """The finite numbers that a term takes; none if it may take others."""
    if isinstance(term, sign):
        return {S.NegativeOne, S.Zero, S.One}
    if isinstance(term, Mod) and _is_small_remainder(term):
        return set(map(Integer, range(int(term.args[1]))))
    if isinstance(term, Where):
        branches = [{one} if one.is_Rational else _numbers(one) for one in term.args[1:]]
        return set.union(*branches) if all(branches) and len(set.union(*branches)) <= CASES_LIMIT else set()
    return set()


def _open_case(term: Expr, case: Case, addends: tuple[Expr, ...], of_x: Callable[[Expr], bool]) -> Expr:
    part, together = case
    holders = [one for one in addends if part in nodes_of(one)]
    if not holders:
        return term
    rest = Add(*(one for one in addends if one not in holders))
    return rest + together(lambda value: at(Add(*holders), part, value, of_x))


def at(node: Expr, part: Expr, value: Expr, of_x: Callable[[Expr], bool]) -> Expr:
    """The node with `value` for `part`; 0 times a number that is not finite keeps what it gives.

    Beside exp(−∞) = 0 only what is free of x keeps it: whatever else varies has no weight.
    """
    memo: dict[Basic, Basic] = {part: value}

    def visit(subtree: Any) -> Any:
        if subtree not in memo:
            memo[subtree] = (
                _at(subtree, [visit(arg) for arg in subtree.args], value, of_x)
                if part in nodes_of(subtree)
                else subtree
            )
        return memo[subtree]

    return visit(node)


def _at(node: Any, args: list[Any], value: Expr, of_x: Callable[[Expr], bool]) -> Any:
    """Rebuild a node from arguments in which `value` stands for the part; 1/0 is ∞, as floats have it, and not zoo."""
    if node.is_Pow and args[0] is S.Zero and args[1].is_negative:
        return S.Infinity
    if isinstance(node, Max | Min):
        return extremum_as_written(node.func, args)
    if value in VANISHING and node.is_Mul and S.Zero in args:
        weights = [one for one, arg in zip(node.args, args, strict=True) if arg is S.Zero]
        masked = all(isinstance(one, exp) for one in weights)
        return Add(*(zero_times(one) for one in args if one is not S.Zero and not (masked and of_x(one))))
    return node.func(*args) if value.is_number else with_args(node, args)


def assume_condition(term: Expr, condition: Boolean, separator: Separating, *, truth: bool) -> Expr:
    """The term if a condition holds, or if it fails; masks in the term have the condition, or have it as a part."""
    while masks := [one for one in of_kind(Where, term) if condition in (one.condition, *one.condition.args)]:
        mask = max(masks, key=lambda one: (operations_of(one), sympy_text(one)))
        choice = Where(mask.condition.xreplace({condition: true if truth else false}), *mask.args[1:])
        term = at(term, mask, choice, lambda u: bool(separator.side(u) & X))
    return term


def conditions_of_d(term: Basic, separator: Separating) -> Iterator[Boolean]:
    """The conditions of d alone in a term's masks, and those of which some consist beside others."""
    for mask in of_kind(Where, term):
        if UNDEFINED not in mask.args:
            yield from parts_of_d(mask.condition, separator)


def parts_of_d(condition: Boolean, separator: Separating) -> Iterator[Boolean]:
    """A condition, and those of which it consists, if they are of d alone."""
    parts = (condition, *condition.args) if isinstance(condition, And | Or) else (condition,)
    return (one for one in parts if separator.side(one) == D)


def zero_times(factor: Expr) -> Expr:
    """0·u, which is 0 only if u is finite."""
    if not (elements_of(factor) or values_of(factor)):
        return S.Zero
    if isinstance(factor, Where) and all(branch.is_number and branch.is_finite for branch in factor.args[1:]):
        return S.Zero
    return Where(is_finite(factor), S.Zero, UNDEFINED)
