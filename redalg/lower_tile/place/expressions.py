"""Scalar expressions of a kernel: numbers outside of them, exponentials of differences, tests of one number.

n·f                    the number n > 0 and f, where a maximum or a choice needs f alone
exp(q·(u − c))         one node; a positive number that u and c share is part of q
f·g, g holds a log     0 where f = 0 and g = −∞, as the definition has it: 0·log 0 counts for nothing
x = ±∞, |x| < ∞        nodes of `scalars`, of x without its positive factor
where(x = ±∞, a, b)    b, if x was stored as where(|y| < ∞, y, n) of a finite number n
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sympy import Abs, Add, And, Eq, Expr, Ge, Gt, Integer, Le, Lt, Mul, Or, Pow, S, log
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Axis, Cast, Element, Extent, Scalar, Value, Where
from redalg.expression import Let as Named
from redalg.expression.dtypes import is_float
from redalg.incremental.combine.sources import SECOND
from redalg.lower_tile.ir.scalars import FAR, Is, IsFinite, Kept, Load, Places, ScaledExp


def numeric_factor(expr: Expr) -> tuple[Expr, Expr]:
    """Split an expression into number · rest (the number may be irrational: 1/√128)."""
    numbers = [factor for factor in Mul.make_args(expr) if factor.is_number]
    return Mul(*numbers), Mul(*(factor for factor in Mul.make_args(expr) if not factor.is_number))


def positive_factor(expr: Expr) -> tuple[Expr, Expr]:
    """Split n·f into the positive number n and f, of a choice between it and 0 or −∞ too; (1, expr) of others.

    >>> from sympy import Symbol
    >>> positive_factor(3 * Symbol("x"))
    (3, x)
    """
    if isinstance(expr, Where):
        condition, first, second = expr.args
        for place, other in ((1, first), (2, second)):
            if other in (S.Zero, S.NegativeInfinity):
                number, rest = positive_factor(expr.args[3 - place])
                branches = (other, rest) if place == 1 else (rest, other)
                return number, Where(without_factors(condition), *branches)
        return S.One, expr
    number, rest = numeric_factor(expr)
    return (number, rest) if number.is_positive and not rest.is_number else (S.One, expr)


def scaled_exp(u: Expr, c: Expr, q: Expr) -> Expr:
    """exp(q·(u − c)). A positive number that u and c share becomes part of q, which saves one multiplication."""
    (number, u_rest), (other, c_rest) = numeric_factor(u), numeric_factor(c)
    return ScaledExp(u_rest, c_rest, q * number) if number == other and number.is_positive else ScaledExp(u, c, q)


def with_tests(node: Basic) -> Basic:
    """The expression with tests of one number that SymPy does not decide: x = ±∞, |x| = ∞, |x| < ∞."""
    if isinstance(node, Eq | Lt):
        left, right = node.args
        number = with_tests(left.args[0] if isinstance(left, Abs) else left)
        if isinstance(node, Eq) and isinstance(left, Abs) and right is S.Infinity:
            return Or(Is(number, S.Infinity), Is(number, S.NegativeInfinity))
        if isinstance(node, Eq) and right.is_infinite is True and right.is_number:
            return Is(number, right)
        if isinstance(node, Lt) and isinstance(left, Abs) and right is S.Infinity:
            return IsFinite(number)
    if not node.args or isinstance(node, Value | Named):
        return node
    args = [with_tests(arg) for arg in node.args]
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)


def without_factors(expr: Expr) -> Expr:
    """The expression whose tests of ±∞ leave out a positive factor: n·x = −∞ where x = −∞."""
    tests = {node: node.func(positive_factor(node.args[0])[1], *node.args[1:]) for node in expr.atoms(Is, IsFinite)}
    simple: Expr = expr.xreplace(tests) if tests else expr
    return simple


def without_needless_tests(expr: Expr, stored: Mapping[Load, Expr]) -> Expr:
    """The expression without choices by tests that tell if a number is ±∞, of numbers that are finite.

    Args:
        expr: the expression.
        stored: read of a buffer -> the expression that was stored there.
    """
    if not isinstance(expr, Where):
        return expr
    condition, _, other = expr.args
    needless = isinstance(condition, Is) and is_finite_always(condition.args[0], stored)
    return without_needless_tests(other, stored) if needless else expr


def is_finite_always(expr: Expr, stored: Mapping[Load, Expr]) -> bool:
    """Tell if an expression is a finite number: one that is written, or one that a test chose from such numbers."""
    expr = stored.get(expr, expr)
    if isinstance(expr, Where):
        condition, first, second = expr.args
        return condition == IsFinite(first) and is_finite_always(second, stored)
    return bool(expr.is_number and expr.is_finite)


def rounded_once(target: Load, expr: Expr) -> Expr:
    """A sum with what its target holds, to which the other terms are added as one number.

    A sum grows, and what is added to it is small: of a + b + c, a long one, two roundings are those of a.
    """
    others = [term for term in Add.make_args(expr) if term != target]
    grows = target in Add.make_args(expr) and len(others) > 1 and not any(term.is_number for term in others)
    return target + Kept(Add(*others)) if grows else expr


def nothing_beside_logarithms(product: Mul) -> list[tuple[Expr, Expr | None]]:
    """The pairs (f, g) of factors whose product is 0 where f = 0 and g = −∞; g is None if it is −∞ where f = 0.

    >>> from sympy import log
    >>> from redalg import tensors
    >>> x, y = tensors("x[n] y[n]")
    >>> nothing_beside_logarithms(x * log(x)), nothing_beside_logarithms(y * log(x)), nothing_beside_logarithms(2 * x)
    ([(x[n], None)], [(y[n], log(x[n]))], [])
    """
    factors = [one for one in product.args if one.has(Element, Value) and not divides(one)]
    logarithms = [one for one in factors if _is_log_0_somewhere(one)]
    return [(other.as_base_exp()[0], None) if g == log(other.as_base_exp()[0]) else (other, g)
            for g in logarithms for other in factors if other is not g]  # fmt: skip


def _is_log_0_somewhere(expr: Basic) -> bool:
    """Tell if an expression is −∞ where a logarithm in it is: one that stands in no exponential or other function."""
    if isinstance(expr, log):
        return not expr.args[0].is_number
    return isinstance(expr, Add | Mul | Where | Named) and any(map(_is_log_0_somewhere, expr.args))


def without_hidden_choice(condition: Boolean, first: Expr, second: Expr) -> Expr:
    """where(c, a, b) without what c hides: where(c, a, where(c ∧ e, b, d)) → where(c, a, d).

    >>> from sympy.abc import a, b, d
    >>> without_hidden_choice(a > 0, b, Where(a > 0, 0, d))
    where(a > 0, b, d)
    """
    hidden = isinstance(second, Where) and condition in And.make_args(second.args[0])
    return Where(condition, first, second.args[2] if hidden else second)


def divides(expr: Expr) -> bool:
    """Tell if an expression divides by something that is no number."""
    return any(node.exp.is_negative and not node.base.is_number for node in expr.atoms(Pow))


def value_occurrences(expr: Basic) -> Iterator[Value]:
    """The values of an expression, each as often as its text holds it."""
    if isinstance(expr, Value):
        yield expr
    elif isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp > 1:
        yield from [*value_occurrences(expr.base)] * 2
    else:
        for arg in expr.args:
            yield from value_occurrences(arg)


def drop_rounding(term: Expr, dtype: str) -> Expr:
    """The term without its last rounding, if the copy into a buffer of that dtype does it: to integers it truncates."""
    if isinstance(term, Where) and S.Zero in term.args:
        return Where(term.args[0], *(drop_rounding(branch, dtype) for branch in term.args[1:]))
    return term.args[0] if isinstance(term, Cast) and term.dtype == dtype and is_float(dtype) else term


def buffer_name(name: str) -> str:
    """The name of a value in a kernel: that of the second of two states has `part` in front.

    >>> buffer_name("a.delta_c"), buffer_name("b.delta_c"), buffer_name("c")
    ('delta_c', 'part_delta_c', 'c')
    """
    tag, _, rest = name.rpartition(".")
    return f"part_{rest}" if tag == SECOND else rest


def buffer_of(read: Expr) -> str:
    """The name of the buffer of a plain read."""
    if not isinstance(read, Load):
        raise AssertionError(f"{read} is not a plain read of a buffer")
    return read.name


def among_places(relation: Ge | Gt | Le | Lt) -> Boolean | None:
    """The relation of integers that equals one of places and a scalar w; None if a relation is of other things.

    k ≤ w → k ≤ ⌊w⌋, k < w → k < −⌊−w⌋. So a kernel compares integers, and rounds w once. For NaN it is false.
    """
    scalars = relation.atoms(Scalar)
    if len(scalars) != 1:
        return None
    [scalar] = scalars
    difference = (relation.lhs - relation.rhs).expand()
    factor = difference.coeff(scalar)
    places = difference - factor * scalar
    if factor not in (1, -1) or not _are_places(places):
        return None
    w = -factor * scalar
    beyond = Integer(-FAR if isinstance(relation, Le | Lt) else FAR)
    end = -Places(-w, -beyond) if isinstance(relation, Lt | Ge) else Places(w, beyond)
    return relation.func(places, end)


def _are_places(expr: Expr) -> bool:
    """Tell if an expression is a sum of places and whole numbers."""
    if expr.is_Add or expr.is_Mul:
        return all(map(_are_places, expr.args))
    return isinstance(expr, Axis | Extent | Integer)
