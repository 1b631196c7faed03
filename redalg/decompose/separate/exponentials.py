"""Terms of x alone as exp(u)·g, so that the maximum of u pivots them; and powers, also of d alone, as a pivot moves.

Each rewrite is exact where u is less than ∞:

    where(c, exp(u)·g, 0)   → exp(where(c, u, −∞))·where(c, g, 0)       where(c, 0, exp(u)·g) alike
    exp(u)·g + exp(v)·h     → exp(m)·(exp(u − m)·g + exp(v − m)·h)      m = max(u, v); several alike
    (exp(u)·g)^a            → exp(a·u)·g^a                              a a parameter; both are NaN where g < 0

Where the exponent is −∞ the element has no weight, whatever stands beside it.
"""

from __future__ import annotations

from sympy import Add, Expr, Max, Mul, S, exp
from sympy.logic.boolalg import Boolean

from redalg.expression import Where
from redalg.expression.contents import elements_of, of_kind


def as_exponential(node: Expr) -> tuple[Expr, Expr] | None:
    """u and g of a masked exponential, a power or a sum of exponentials as exp(u)·g; None for anything else."""
    if isinstance(node, Where):
        return _of_mask(node)
    if node.is_Pow:
        u, g = _parts(node.base)
        return None if u is None else (node.exp * u, g**node.exp)
    return _of_sum(node) if node.is_Add else None


def _of_mask(node: Where) -> tuple[Expr, Expr] | None:
    condition, *branches = node.args
    place = 1 if branches[0] is S.Zero else 0
    u, g = _parts(branches[place])
    if branches[1 - place] is not S.Zero or u is None:
        return None
    q, v = u.as_coeff_Mul()
    if q.is_negative:
        q, v = -q, -v
    beside = _choose(condition, place, g, S.Zero) if any(True for _ in elements_of(g)) else g
    return q * _choose(condition, place, v, S.NegativeInfinity), beside


def _choose(condition: Boolean, place: int, branch: Expr, other: Expr) -> Expr:
    return Where(condition, branch, other) if place == 0 else Where(condition, other, branch)


def with_zeros(expr: Expr) -> Expr:
    """The way back: exponentials are 0 where a mask hides them, since SymPy takes every exp(u) > 0 for true.

    >>> from sympy import oo
    >>> from redalg.expression import axes, tensor
    >>> x, n = tensor("x[n]"), axes("n")
    >>> with_zeros(2 * exp(Where(n < 1, x, -oo)))
    2*where(n < 1, exp(x[n]), 0)
    """
    return expr.xreplace({node: _with_zeros(node) for node in of_kind(exp, expr)})


def _with_zeros(node: exp) -> Expr:
    value = S.One
    for term in Add.make_args(node.args[0]):
        q, mask = term.as_coeff_Mul()
        if isinstance(mask, Where) and S.NegativeInfinity in mask.args and q.is_positive:
            place = 0 if mask.args[2] is S.NegativeInfinity else 1
            value = _choose(mask.args[0], place, value * exp(q * mask.args[1 + place]), S.Zero)
        else:
            value *= exp(term)
    return value


def _of_sum(node: Expr) -> tuple[Expr, Expr] | None:
    """Factor the largest exponent out of a sum; None if that was done before, or if an addend has no exponential."""
    parts = [_parts(addend) for addend in Add.make_args(node)]
    exponents = [u for u, _ in parts if u is not None]
    if len(exponents) < len(parts) or _is_below_zero(exponents):
        return None
    largest = Max(*exponents)
    return largest, Add(*(exp(u - largest) * g for u, (_, g) in zip(exponents, parts, strict=True)))


def _is_below_zero(exponents: list[Expr]) -> bool:
    """Tell if the exponents are u − m and v − m, as `_of_sum` leaves them: m is the largest of the two."""
    terms = [{*Add.make_args(u)} for u in exponents]
    largest = [one for one in terms[0].intersection(*terms[1:]) if isinstance(-one, Max)]
    return any({*(-m).args} == {u - m for u in exponents} for m in largest)


def _parts(node: Expr) -> tuple[Expr | None, Expr]:
    """u and g of exp(u)·g; u is None without an exponential."""
    factors = Mul.make_args(node)
    exponents = [one.args[0] for one in factors if isinstance(one, exp)]
    return Add(*exponents) if exponents else None, Mul(*(one for one in factors if not isinstance(one, exp)))
