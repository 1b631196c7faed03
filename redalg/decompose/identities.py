"""Terms that hold d, in a spelling without the kinks or jumps that cancel. Each rewrite is exact, NaN and ±∞ included:

    k·max(a, b) + k·min(a, b) → k·(a + b)              max and min of the same two; max(a, b)·min(a, b) → a·b
    k·max(a, b) − k·max(−a, −b) → k·(a + b)            min alike
    |a|^q·sign(a)             → a^q                    q odd

They serve where a term's rank stands still though a part of it has none (`REWRITES`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sympy import Abs, Add, Expr, Max, Min, Mul, Pow, S, cancel, expand_log, expand_trig, factor, log, sign
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction
from sympy.polys.polyerrors import PolynomialError

from redalg.expression.contents import of_kind


def without_kinks(node: Expr) -> Expr:
    """The term with what cancels cancelled, innermost first."""
    if not node.has(Max, Min, sign):
        return node
    args = [without_kinks(arg) if isinstance(arg, Expr) else arg for arg in node.args]
    made = node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.func(*args)
    if made.is_Add:
        return _of_lattice(made)
    return _of_signs(_of_lattice(made)) if made.is_Mul else made


def _of_lattice(node: Expr) -> Expr:
    """A sum or product with max(a, b) and min(a, b) for a + b or a·b."""
    left = list(node.args)
    if sum(one.has(Max, Min) for one in left) < 2:
        return node
    for one in node.args:
        factor, largest = (S.One, one) if node.is_Mul else _weighed(one)
        if not isinstance(largest, Max | Min) or len(largest.args) != 2:
            continue
        a, b = largest.args
        others = [-factor * largest.func(-a, -b)] if node.is_Add else []
        others += [factor * Min(a, b)] if isinstance(largest, Max) else []
        other = next((rest for rest in left if rest in others and rest != one), None)
        if one in left and other is not None:
            left = [rest for rest in left if rest not in (one, other)]
            left.append(Mul(a, b) if node.is_Mul else factor * Add(a, b))
    return node if len(left) == len(node.args) else node.func(*left)


def _weighed(term: Expr) -> tuple[Expr, Expr]:
    """k·max(…) as (k, max(…)), min alike."""
    inside = [one for one in Mul.make_args(term) if isinstance(one, Max | Min)]
    return (term / inside[0], inside[0]) if len(inside) == 1 else (S.One, term)


def _of_signs(node: Expr) -> Expr:
    """A product with |a|^q·sign(a), q odd, for a^q."""
    if not node.is_Mul:
        return node
    for one in (arg for arg in node.args if isinstance(arg, sign)):
        [a] = one.args
        for other in node.args:
            base, power = other.as_base_exp()
            if base == Abs(a) and power.is_Integer and power > 0 and power.is_odd:
                rest = Mul(*(arg for arg in node.args if arg not in (one, other)))
                return rest * Pow(a, power)
    return node


# ---- all rewrites that find a separation ----------------------------------------------------------------------------


def divides(term: Expr) -> bool:
    """Tells whether a term holds a division."""
    return any(one.exp.is_negative for one in of_kind(Pow, term))


Rewrite = tuple[Callable[[Expr], bool], Callable[[Expr], Expr]]
"""Whether a rewrite may change a term, and the rewrite."""
REWRITES: tuple[Rewrite, ...] = (
    (divides, cancel),
    (lambda term: term.has(Max, Min, sign), without_kinks),
    (lambda _: True, factor),
    (lambda term: term.has(log), expand_log),
    (lambda term: term.has(TrigonometricFunction, HyperbolicFunction), expand_trig),
)
"""SymPy's own, cheap ones first, and those above. They serve to find a separation, and never what is run."""
REWRITING_LIMIT = 100
"""Operations of a term beyond which SymPy may take seconds to rewrite it."""


def spellings(term: Expr, rewrites: Sequence[Rewrite]) -> Iterator[Expr]:
    """The other spellings of a term that rewrites give, where they can read it."""
    for may_change, rewrite in rewrites if rewrites and term.count_ops() <= REWRITING_LIMIT else ():
        try:
            other = rewrite(term) if may_change(term) else term
        except PolynomialError:
            continue
        if other != term:
            yield other
