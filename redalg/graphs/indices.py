"""Quasi-affine indices made plain, by the ranges of their axes.

    ⌊(c·u + v)/c⌋ → u + ⌊v/c⌋        u whole
    (c·u + v) mod c → v mod c
    ⌊v/c⌋ → 0, v mod c → v           where 0 ≤ v < c
    ⌊⌊v/a⌋/b⌋ → ⌊v/(a·b)⌋

All are exact. Sizes may be symbols, which stand for whole numbers of at least 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from sympy import Add, Expr, Mod, Mul, S, cancel, expand, floor

from redalg.expression import Axis

Sizes = Mapping[Axis, Expr]


def plain_index(index: Expr, sizes: Sizes) -> Expr:
    """The same index with as few floors and remainders as its axes' ranges allow."""
    if not index.has(floor, Mod):
        return index
    args = [plain_index(arg, sizes) if isinstance(arg, Expr) else arg for arg in index.args]
    if isinstance(index, Mod):
        return remainder_of(args[0], args[1], sizes)
    if isinstance(index, floor):
        above, below = args[0].as_numer_denom()
        return quotient_by(above, below, sizes)
    return index.func(*args)


def quotient_by(above: Expr, below: Expr, sizes: Sizes) -> Expr:
    """⌊above / below⌋."""
    if isinstance(above, floor):
        inner, first = above.args[0].as_numer_denom()
        return quotient_by(inner, first * below, sizes)
    whole, rest = whole_and_rest(above, below)
    return whole if lies_below(rest, below, sizes) else whole + floor(rest / below)


def remainder_of(above: Expr, below: Expr, sizes: Sizes) -> Expr:
    """above mod below."""
    rest = whole_and_rest(above, below)[1]
    return rest if lies_below(rest, below, sizes) else Mod(rest, below)


def whole_and_rest(above: Expr, below: Expr) -> tuple[Expr, Expr]:
    """(u, v) of above = below·u + v, where u has the terms that are multiples of `below`."""
    whole, rest = list[Expr](), list[Expr]()
    for term in Add.make_args(expand(above)):
        factor = multiple_of(term, below)
        (rest if factor is None else whole).append(term if factor is None else factor)
    return Add(*whole), Add(*rest)


def multiple_of(term: Expr, below: Expr) -> Expr | None:
    """The whole number that a term is of `below`; None if it is none for certain."""
    factor = cancel(term / below)
    return factor if factor.is_integer else None


def lies_below(index: Expr, bound: Expr, sizes: Sizes) -> bool:
    """Tell if an index is at least 0 and less than a bound, wherever its axes stand."""
    found = index_bounds(index, sizes)
    return found is not None and is_at_least(found[0], S.Zero) and is_at_least(bound - 1, found[1])


def is_at_least(a: Expr, b: Expr) -> bool:
    """Tell if a ≥ b for certain."""
    return bool(expand(a - b).is_nonnegative)


def index_bounds(index: Expr, sizes: Sizes) -> tuple[Expr, Expr] | None:
    """The least and the largest number that an index takes; None where that is not known."""
    if isinstance(index, Axis):
        return (S.Zero, sizes[index] - 1) if index in sizes else None
    if not index.free_symbols & sizes.keys():
        return index, index
    if isinstance(index, Mod) and not index.args[1].free_symbols & sizes.keys():
        return S.Zero, index.args[1] - 1
    if isinstance(index, floor):
        above, below = index.args[0].as_numer_denom()
        inner = index_bounds(above, sizes)
        return None if inner is None else (floor(inner[0] / below), floor(inner[1] / below))
    if isinstance(index, Add):
        parts = [index_bounds(arg, sizes) for arg in index.args]
        known = [part for part in parts if part is not None]
        return (
            (Add(*(low for low, _ in known)), Add(*(high for _, high in known))) if len(known) == len(parts) else None
        )
    factor, rest = split_factor(index, sizes)
    inner = None if rest is None else index_bounds(rest, sizes)
    if inner is None or not (factor.is_nonnegative or factor.is_nonpositive):
        return None
    low, high = factor * inner[0], factor * inner[1]
    return (low, high) if factor.is_nonnegative else (high, low)


def split_factor(index: Expr, sizes: Sizes) -> tuple[Expr, Expr | None]:
    """A product as a factor of sizes and numbers, and the one factor that has axes; None for several of these."""
    factors = Mul.make_args(index)
    moving = [one for one in factors if one.free_symbols & sizes.keys()]
    return Mul(*(one for one in factors if one not in moving)), moving[0] if len(moving) == 1 and index.is_Mul else None


def axis_to_split(index: Expr, sizes: Sizes) -> tuple[Axis, Expr] | None:
    """An axis of which an index takes the quotient or the remainder by a divisor of its length, and the divisor."""
    for node in sorted(index.atoms(floor, Mod), key=str):
        above, below = node.args if isinstance(node, Mod) else node.args[0].as_numer_denom()
        if isinstance(above, Axis) and above in sizes and below != 1 and multiple_of(sizes[above], below) is not None:
            return above, below
    return None


def at_split(axis: Axis, inner: Expr, sizes: Sizes) -> tuple[Axis, Axis, dict[Axis, Expr]]:
    """The two axes of an axis that is split by the length of the inner one, and the lengths of both."""
    outer, last = axis.renamed(f"{axis.name}o"), axis.renamed(f"{axis.name}i")
    return outer, last, {outer: cancel(sizes[axis] / inner), last: inner}
