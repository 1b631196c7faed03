"""The signs of expressions, from SymPy's assumptions, from what tensors are declared to be and from what each reduced
value is.

    sign of d = Σ u, mean u, max u, min u, Π u     the sign of u, where it has one (a count is positive)
    max u − u, max |u| ± u, max u − min u           nonnegative: the facts that hold for every element and every prefix
    exp u, cosh u                                  positive
    |u|, max(u, −u), u^2n, u^q                     nonnegative (a fractional power is real only where its base is)

"positive" is said of elements that count: exp(−∞) = 0 is the weight of one that does not, and a sum of no elements
is 0. What rests on a sign may therefore not divide by it without the guards that every form has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, final

from sympy import Abs, Add, Expr, Max, Min, Mul, Pow, cos, cosh, exp, sin, tanh

from redalg.decompose.separate.bounds import bounded_sign
from redalg.expression import Cast, Element, Let, Value, Where
from redalg.expression.contents import elements_of, of_kind, sympy_text, values_of
from redalg.expression.expanded import addends_of, expansion
from redalg.expression.operators import operator_of

Sign = Literal["positive", "nonnegative", "negative", "nonpositive"]
Facts: TypeAlias = Mapping[Value, tuple[str, Expr]]
"""Each reduced value, with the name of its monoid and its term."""

NEGATED: dict[Sign, Sign] = {
    "positive": "negative", "negative": "positive", "nonnegative": "nonpositive", "nonpositive": "nonnegative",
}  # fmt: skip
UP: tuple[Sign, ...] = ("positive", "nonnegative")
STRICT: tuple[Sign, ...] = ("positive", "negative")
KEEPS_SIGN = ("sum", "prod", "max", "min")
RULED = (Add, Mul, Pow, Max, Min, Abs, exp, sin, cos, cosh, Where, Let, Cast, Value, Element)
"""Nodes whose signs the rules know as well as SymPy if they hold elements or values; `Operator.keeps_sign` too."""


EFFORT = 8
"""Sums whose bounds are looked at for one sign: each bound is a sum again."""


ADDENDS_LIMIT = 32
"""Addends beyond which a difference is not written out."""


@final
class Effort:
    """The rest of `EFFORT` for the sign that is asked for, and the depth of the search for it."""

    def __init__(self) -> None:
        self.left, self.depth = EFFORT, 0


@final
class KnownFacts(dict[Value, tuple[str, Expr]]):
    """Facts that remember the signs which follow from them; a fact is added before anything holds its value."""

    def __init__(self, facts: Facts, effort: Effort | None = None) -> None:
        super().__init__(facts)
        self.signs: dict[Expr, Sign | None] = {}
        self.effort = effort or Effort()


def sign_of(expr: Expr, facts: Facts) -> Sign | None:
    """The sign that an expression is known to have, or None.

    Args:
        expr: an expression of elements, values and parameters.
        facts: value -> (monoid, term) of the reductions that it may hold.

    >>> from redalg.expression import Label, axes, tensor
    >>> m = Value(Label("m"), axes("b"))
    >>> sign_of(m - tensor("x[b,n]"), {m: ("max", tensor("x[b,n]"))})
    'nonnegative'
    """
    known = facts if isinstance(facts, KnownFacts) else KnownFacts(facts)
    if expr not in known.signs:
        known.signs[expr] = _find_sign(expr, known)
    return known.signs[expr]


def is_nonnegative(expr: Expr, facts: Facts) -> bool:
    """Tell if an expression is known to be at least 0."""
    return sign_of(expr, facts) in UP


def absolute(expr: Expr, facts: Facts) -> Expr:
    """|u| as SymPy writes it; left unevaluated if u has no known sign, for which SymPy would ask at length."""
    turned = isinstance(expr, Add) and expr.could_extract_minus_sign()
    unsigned = isinstance(expr, Add | tanh) and sign_of(expr, facts) is None
    return Abs(-expr if turned else expr, evaluate=not unsigned)


def _find_sign(expr: Expr, facts: KnownFacts) -> Sign | None:
    """Find a sign by the rules, and by SymPy for what is left: SymPy is slow to say that it does not know."""
    ruled = isinstance(expr, RULED) or _keeps_sign(expr)
    if ruled and (elements_of(expr) or values_of(expr)):
        return _rule(expr, facts)
    if expr.is_extended_positive:
        return "positive"
    if expr.is_extended_negative:
        return "negative"
    sign = _rule(expr, facts)
    if sign is None and (expr.is_extended_nonnegative or expr.is_extended_nonpositive):
        return "nonnegative" if expr.is_extended_nonnegative else "nonpositive"
    return sign


def _rule(expr: Expr, facts: Facts) -> Sign | None:
    if isinstance(expr, exp | cosh):
        return "positive"
    if isinstance(expr, Value):
        return _value(expr, facts)
    if isinstance(expr, Element):
        return declared_sign(expr)
    if isinstance(expr, Mul):
        return _product([sign_of(arg, facts) for arg in expr.args])
    if isinstance(expr, Add):
        return _together([sign_of(arg, facts) for arg in expr.args]) or _search_sign(expr, facts)
    if isinstance(expr, Pow):
        return _power(expr, facts)
    if isinstance(expr, Max | Min):
        return _extremum(expr, facts)
    if isinstance(expr, Where):
        return _both(*(sign_of(branch, facts) for branch in expr.args[1:]))
    if isinstance(expr, Abs):
        return "positive" if sign_of(expr.args[0], facts) in ("positive", "negative") else "nonnegative"
    if isinstance(expr, Let | Cast):
        return _weak(sign_of(expr.expr if isinstance(expr, Let) else expr.args[0], facts))
    return sign_of(expr.args[0], facts) if _keeps_sign(expr) else None


def _keeps_sign(expr: Expr) -> bool:
    operator = operator_of(expr)
    return operator is not None and operator.keeps_sign


def declared_sign(element: Element) -> Sign | None:
    """The sign that a tensor's elements are declared to have."""
    return "positive" if element.is_extended_positive else "nonnegative" if element.is_extended_nonnegative else None


def _value(value: Value, facts: Facts) -> Sign | None:
    monoid, term = facts.get(value, ("", value))
    if monoid not in KEEPS_SIGN:
        return None
    sign = sign_of(term, facts)
    return sign if monoid != "prod" or sign in UP else None


def _weak(sign: Sign | None) -> Sign | None:
    return sign if sign is None else "nonnegative" if sign in UP else "nonpositive"


def _product(signs: list[Sign | None]) -> Sign | None:
    if None in signs:
        return None
    flips = sum(one not in UP for one in signs)
    strict = all(one in ("positive", "negative") for one in signs)
    sign: Sign = "positive" if strict else "nonnegative"
    return sign if flips % 2 == 0 else NEGATED[sign]


def _together(signs: list[Sign | None]) -> Sign | None:
    """The sign of a sum whose terms agree: strict if one term is."""
    if None in signs:
        return None
    if all(one in UP for one in signs):
        return "positive" if "positive" in signs else "nonnegative"
    if all(one not in UP for one in signs):
        return "negative" if "negative" in signs else "nonpositive"
    return None


def _both(a: Sign | None, b: Sign | None) -> Sign | None:
    """The sign of what is one of two expressions; None if their signs disagree."""
    if a is None or b is None or (a in UP) != (b in UP):
        return None
    return a if a == b else _weak(a)


def _power(expr: Pow, facts: Facts) -> Sign | None:
    base, exponent = sign_of(expr.base, facts), expr.exp
    if base == "positive":
        return "positive"
    if exponent.is_integer and exponent.is_even:
        return "positive" if base == "negative" else "nonnegative"
    if exponent.is_Rational and not exponent.is_Integer:
        return "nonnegative"
    return base if exponent.is_integer or base in UP else None


def _extremum(expr: Max | Min, facts: Facts) -> Sign | None:
    signs = [sign_of(arg, facts) for arg in expr.args]
    ends: tuple[Sign, Sign] = ("positive", "nonnegative") if isinstance(expr, Max) else ("negative", "nonpositive")
    decided = next((sign for sign in ends if sign in signs), None)
    if decided is None and any(-arg in expr.args for arg in expr.args):  # |a|, or −|a|
        return ends[1]
    return decided if decided is not None else _together(signs) and _weak(_together(signs))


def _difference(expr: Add, facts: Facts) -> Sign | None:
    """c·(max u − u) and c·(max u − min u) have the sign of c; those of a minimum the other one."""
    for value in sorted(values_of(expr) & facts.keys(), key=sympy_text):
        monoid, u = facts[value]
        factor = expr.coeff(value)
        if monoid not in ("max", "min") or factor is None or factor == 0:
            continue
        sign = sign_of(factor, facts)
        if sign is None:
            continue
        lead = _weak(sign if monoid == "max" else NEGATED[sign])
        others = {one: fact for one, fact in facts.items() if one != value}
        left = KnownFacts(others, facts.effort) if isinstance(facts, KnownFacts) else others
        for bound in _bounds(monoid, u):
            rest = expr - factor * value + factor * bound
            rest = expansion(rest) if addends_of(rest) <= ADDENDS_LIMIT else rest
            if rest == 0 or ((other := sign_of(rest, left)) is not None and (other in UP) == (lead in UP)):
                return lead
    return None


def _search_sign(expr: Add, facts: Facts) -> Sign | None:
    """The sign that differences and bounds give; meanwhile the sum itself counts as unknown."""
    known = facts if isinstance(facts, KnownFacts) else KnownFacts(facts)
    effort, known.signs[expr] = known.effort, None
    effort.left = effort.left - 1 if effort.depth else EFFORT
    if effort.left < 0:
        return None
    effort.depth += 1
    try:
        sign = _difference(expr, known) or _sign_by_bounds(expr, known)
    finally:
        effort.depth -= 1
    return sign


def _sign_by_bounds(expr: Add, facts: KnownFacts) -> Sign | None:
    way = bounded_sign(expr, facts, lambda one: _way(sign_of(one, facts)))
    return None if not way else "nonnegative" if way > 0 else "nonpositive"


def has_sign_of_numerator(expr: Expr, facts: Facts) -> bool:
    """Tell if the sign of a sum follows from the sum times what it divides by, which may be 0 or ∞."""
    if not expr.is_Add or not any(power.exp.is_extended_negative and (values_of(power) or elements_of(power))
                                  for power in of_kind(Pow, expr)):  # fmt: skip
        return False
    return _together([sign_of(arg, facts) for arg in expr.args]) is None and _difference(expr, facts) is None


def _way(sign: Sign | None) -> int:
    return 0 if sign is None else 1 if sign in UP else -1


def _bounds(monoid: str, u: Expr) -> tuple[Expr, ...]:
    """The expressions that an extremum of u is beyond: u, max |w| above w and −w, max of max(v, w) above both."""
    if monoid == "max" and isinstance(u, Abs):
        return u, u.args[0], -u.args[0]
    return (u, *u.args) if isinstance(u, Max if monoid == "max" else Min) else (u,)
