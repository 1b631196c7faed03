"""Quasi-affine indices made plain, by the ranges of their axes.

    ⌊(c·u + v)/c⌋ → u + ⌊v/c⌋        u whole
    (c·u + v) mod c → v mod c
    ⌊v/c⌋ → 0, v mod c → v           where 0 ≤ v < c
    ⌊⌊v/a⌋/b⌋ → ⌊v/(a·b)⌋
    c·u + v < c·w → u < w                 u, w whole, 0 ≤ v < c
    v − c·⌊v/c⌋ → v mod c
    where(v < c, a, b) → a           where v < c wherever the axes stand; b where it is nowhere

All are exact. Sizes may be symbols, which stand for whole numbers of at least 1. Answers are remembered by the index
and the sizes of its axes: patterns of a program ask of the same indices many times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TypeVar, final

from sympy import Add, Expr, Ge, Gt, Le, Lt, Mod, Mul, Rel, S, cancel, expand, floor
from sympy.core.basic import Basic

from redalg.expression import Axis, Where
from redalg.expression.contents import REMEMBERED, axes_by_name, by_identity, free_axes

Sizes = Mapping[Axis, Expr]
T = TypeVar("T")


@by_identity
@lru_cache(REMEMBERED)
def axes_in(node: Basic) -> tuple[Axis, ...]:
    """The free axes of an expression, in order of their names."""
    return axes_by_name(free_axes(node))


def about_axes(known: Mapping[Axis, T], *nodes: Basic) -> tuple[tuple[Axis, T], ...]:
    """The part of what is known of axes on which an answer about expressions depends, to remember the answer by."""
    return tuple((axis, known[axis]) for node in nodes for axis in axes_in(node) if axis in known)


def plain_index(index: Expr, sizes: Sizes) -> Expr:
    """The same index with as few floors and remainders as its axes' ranges allow."""
    return index if index.is_Atom else _plain_index(index, about_axes(sizes, index))


@lru_cache(REMEMBERED)
def _plain_index(index: Expr, sizes: tuple[tuple[Axis, Expr], ...]) -> Expr:
    """As `plain_index`, of sizes as pairs."""
    if not index.has(floor, Mod, Where):
        return index
    found = plain_node(index, dict(sizes))
    assert isinstance(found, Expr)
    return found


def plain_node(node: Basic, sizes: Sizes) -> Basic:
    """An index or a condition within it, made plain."""
    if not node.args or not node.has(floor, Mod, Where, Rel):
        return node
    return plain_with_args(node, [plain_node(arg, sizes) for arg in node.args], sizes)


def plain_with_args(node: Basic, args: Sequence[Basic], sizes: Sizes) -> Basic:
    """A node of an index, or of a condition, made plain; of other arguments, which are plain.

    SymPy evaluates no remainder and no quotient on the way: it would ask for the signs of all that they hold.
    """
    if isinstance(node, Mod):
        return remainder_of(args[0], args[1], sizes)
    if isinstance(node, floor):
        above, below = args[0].as_numer_denom()
        return quotient_by(above, below, sizes)
    if isinstance(node, Lt | Le | Gt | Ge):
        return decide(node.func(*args), sizes)
    return with_remainders(node.func(*args), sizes) if isinstance(node, Add) else node.func(*args)


@lru_cache(REMEMBERED)
def plain_index_at(
    index: Basic, places: tuple[tuple[Axis, Expr], ...], sizes: tuple[tuple[Axis, Expr], ...]
) -> Basic:  # fmt: skip
    """An index of axes alone with places for some of them, made plain."""
    return _plain_index_at(index, dict(places), dict(sizes))


def _plain_index_at(node: Basic, at: Mapping[Basic, Expr], sizes: Sizes) -> Basic:
    """As `plain_index_at`, of a part of the index."""
    if not node.args:
        return at.get(node, node)
    return plain_with_args(node, [_plain_index_at(arg, at, sizes) for arg in node.args], sizes)


def decide(relation: Basic, sizes: Sizes) -> Basic:
    """A relation of indices, or its truth if it holds wherever the axes stand, or nowhere."""
    if not isinstance(relation, Lt | Le | Gt | Ge):
        return relation
    bounds = index_bounds(relation.gts - relation.lts, sizes)
    least = S.One if isinstance(relation, Lt | Gt) else S.Zero
    if bounds is None:
        return relation
    if is_at_least(bounds[0], least):
        return S.true
    return S.false if is_at_least(least - 1, bounds[1]) else relation


def divide_relation(relation: Basic, below: Expr, sizes: Sizes) -> Basic:
    """A relation of indices as one of their quotients by a length, where these are plain: d < 0 where ⌊d/c⌋ < 0."""
    if not isinstance(relation, Lt | Le | Gt | Ge):
        return relation
    is_strict = isinstance(relation, Lt | Gt)
    difference = relation.lts - relation.gts if is_strict else relation.gts - relation.lts
    quotient = quotient_by(expand(difference), below, sizes)
    if quotient.has(floor, Mod):
        return relation
    number, moving = quotient.as_coeff_Add()
    return moving < -number if is_strict else moving >= -number


def with_remainders(index: Expr, sizes: Sizes) -> Expr:
    """A sum with the remainders that it takes by a quotient."""
    for term in Add.make_args(index):
        factor, quotient = term.as_coeff_Mul()
        if isinstance(quotient, floor) and factor.is_negative:
            above = expand(-factor * quotient.args[0])
            rest = expand(index - term - above)
            if not rest.free_symbols & above.free_symbols:
                return remainder_of(above, -factor, sizes) + rest
    return index


def quotient_by(above: Expr, below: Expr, sizes: Sizes) -> Expr:
    """⌊above / below⌋."""
    if isinstance(above, floor):
        inner, first = above.args[0].as_numer_denom()
        return quotient_by(inner, first * below, sizes)
    whole, rest = whole_and_rest(above, below)
    return whole if lies_below(rest, below, sizes) else whole + floor(rest / below, evaluate=rest.is_number)


def remainder_of(above: Expr, below: Expr, sizes: Sizes) -> Expr:
    """above mod below."""
    rest = whole_and_rest(above, below)[1]
    return rest if lies_below(rest, below, sizes) else Mod(rest, below, evaluate=not is_reduced(rest, below))


def is_reduced(rest: Expr, below: Expr) -> bool:
    """Tell if SymPy leaves rest mod below as it is, as far as that is plain: of axes a few times, and of numbers.

    No number divides all factors and `below`, and none is negative.
    """
    pairs = [term.as_coeff_Mul() for term in Add.make_args(rest)]
    plain = all(part is S.One or isinstance(part, Axis) for _, part in pairs) and below.is_Integer and below > 2
    if rest.is_number or not plain or not all(factor.is_Integer and 0 < factor < below for factor, _ in pairs):
        return False
    return gcd(int(below), *(int(factor) for factor, _ in pairs)) == 1


def whole_and_rest(above: Expr, below: Expr) -> tuple[Expr, Expr]:
    """(u, v) of above = below·u + v, where u has the terms that are multiples of `below`."""
    whole, rest = list[Expr](), list[Expr]()
    for term in Add.make_args(expand(above)):
        if term.is_Integer and below.is_Integer and 0 < below < term:
            whole.append(term // below)
            rest.append(term % below)
            continue
        factor = multiple_of(term, below)
        (rest if factor is None else whole).append(term if factor is None else factor)
    return Add(*whole), Add(*rest)


@lru_cache(REMEMBERED)
def multiple_of(term: Expr, below: Expr) -> Expr | None:
    """The whole number that a term is of `below`; None if it is none for certain."""
    if below.is_Integer and below > 0:
        number, part = term.as_coeff_Mul()
        if number.is_Integer and isinstance(part, Axis | floor | Mod):
            return part * (number // below) if number % below == 0 else None
    factor = term / below
    if any(part.as_base_exp()[0].is_Add for part in Mul.make_args(factor)):
        factor = cancel(factor)
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
    return None if index.is_Atom else _axis_to_split(index, about_axes(sizes, index))


@lru_cache(REMEMBERED)
def _axis_to_split(index: Expr, pairs: tuple[tuple[Axis, Expr], ...]) -> tuple[Axis, Expr] | None:
    """As `axis_to_split`, of sizes as pairs."""
    sizes = dict(pairs)
    for node in sorted(index.atoms(floor, Mod), key=str):
        above, below = node.args if isinstance(node, Mod) else node.args[0].as_numer_denom()
        if not isinstance(above, Axis) or above not in sizes or below in (1, sizes[above]):
            continue
        if multiple_of(sizes[above], below) is not None:
            return above, below
    return None


def at_split(axis: Axis, inner: Expr, sizes: Sizes) -> tuple[Axis, Axis, dict[Axis, Expr]]:
    """The two axes of an axis that is split by the length of the inner one, and the lengths of both."""
    outer, last = axis.renamed(f"{axis.name}o"), axis.renamed(f"{axis.name}i")
    return outer, last, {outer: cancel(sizes[axis] / inner), last: inner}


@final
@dataclass(frozen=True)
class AxisSplit:
    """An axis as two: `axis` = `inner` · `outer` + `last`."""

    axis: Axis
    outer: Axis
    last: Axis
    inner: Expr


@lru_cache(REMEMBERED)
def split_index_of(node: Basic, split: AxisSplit, sizes: tuple[tuple[Axis, Expr], ...]) -> Basic:
    """An index, or a condition on axes, with two axes in the place of one; `sizes` are those after it."""
    if split.axis not in free_axes(node):
        return node
    if isinstance(node, Axis):
        return split.inner * split.outer + split.last
    rewritten = node.func(*(split_index_of(arg, split, sizes) for arg in node.args))
    known = dict(sizes)
    return (
        plain_node(rewritten, known)
        if isinstance(node, floor | Mod)
        else divide_relation(rewritten, split.inner, known)
    )
