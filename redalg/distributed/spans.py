"""Spans of an axis over ranks: the places that the elements of each shard have in the whole.

    in order    a shard is one span, and spans follow each other
    zigzag      2·W spans of one length; of W ranks, rank r has the r-th and the r-th from the end

With a mask such as k ≤ q, ranks with shards in order have unlike work: the last rank has 2·W − 1 times that of the
first. In zigzag all have the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sympy import And, Eq, Expr, Or
from sympy.core.basic import Basic
from sympy.core.relational import Ge, Gt, Le, Lt
from sympy.logic.boolalg import Boolean

from redalg.distributed.header import ranks_in_words
from redalg.distributed.parts import part_edges
from redalg.errors import InputError
from redalg.expression import Axis


@final
@dataclass(frozen=True)
class Span:
    """A span of a shard: its elements from `first` to `stop` of the whole, which lie from `at` in the shard."""

    first: int
    stop: int
    at: int = 0

    @property
    def length(self) -> int:
        """The number of elements."""
        return self.stop - self.first


def spans_in_order(lengths: Sequence[int]) -> list[list[Span]]:
    """The spans of shards that follow each other.

    >>> spans_in_order([2, 3])
    [[Span(first=0, stop=2, at=0)], [Span(first=2, stop=5, at=0)]]
    """
    return [[Span(*edge) for edge in edges] for edges in part_edges(lengths, None, ())]


def spans_in_zigzag(lengths: Sequence[int], names: Sequence[int], axis: Axis) -> list[list[Span]]:
    """The two spans of each shard in zigzag; `names` are the numbers that errors give to ranks.

    >>> spans_in_zigzag([2, 2], (0, 1), Axis("q"))[0]
    [Span(first=0, stop=1, at=0), Span(first=3, stop=4, at=1)]

    Raises:
        InputError: shards differ in length, or it is odd.
    """
    length = lengths[0]
    if unlike := [name for name, one in zip(names, lengths, strict=True) if one != length]:
        raise InputError(f"distributed: zigzag=True takes shards of one length, and along axis {axis} rank {names[0]} "
                         f"has {length} elements, and {ranks_in_words(unlike)} not. Pad them.")  # fmt: skip
    if length % 2:
        raise InputError(f"distributed: zigzag=True cuts shards into two halves, and along axis {axis} they have "
                         f"{length} elements. Pad them by one, or leave it out.")  # fmt: skip
    half, count = length // 2, 2 * len(lengths)
    return [[Span(half * rank, half * (rank + 1)), Span(half * (count - 1 - rank), half * (count - rank), half)]
            for rank in range(len(lengths))]  # fmt: skip


def cut_spans(spans: list[list[Span]], parts: int, names: Sequence[int], axis: Axis) -> list[list[Span]]:
    """The spans of every rank cut at the same places of the whole: at most `parts` in all, and the empty ones.

    >>> cut_spans(spans_in_order([4, 2, 0]), 3, (0, 1, 2), Axis("k"))[1:]
    [[Span(first=4, stop=6, at=0)], [Span(first=6, stop=6, at=0)]]

    Raises:
        InputError: a span begins or ends within a part.
    """
    total = sum(span.length for of_rank in spans for span in of_rank)
    part = max(1, -(-total // parts))
    for name, of_rank in zip(names, spans, strict=True):
        within = [edge for span in of_rank for edge in (span.first, span.stop) if edge % part and edge != total]
        if within:
            raise InputError(
                f"distributed: the shard of rank {name} is cut at element {within[0]} of axis {axis}, and "
                f"deterministic={parts} cuts {total} elements into parts of {part}: shards, and their halves in "
                "zigzag, have to end at multiples of that. Give ranks whole parts."
            )
    return [[one for span in of_rank for one in _cut(span, part)] for of_rank in spans]


def _cut(span: Span, part: int) -> list[Span]:
    firsts = range(span.first, span.stop, part)
    return [Span(at, min(at + part, span.stop), span.at + at - span.first) for at in firsts] or [span]


def excludes(domain: Boolean, box: Mapping[Axis, Span]) -> bool:
    """Tell if a condition holds for no places of a box, whatever data it asks for; False if that is not known.

    >>> q, k = Axis("q"), Axis("k")
    >>> excludes(k <= q, {q: Span(0, 4), k: Span(4, 8)}), excludes(k <= q, {q: Span(0, 5), k: Span(4, 8)})
    (True, False)
    """
    if isinstance(domain, And):
        return any(excludes(one, box) for one in domain.args)
    if isinstance(domain, Or):
        return all(excludes(one, box) for one in domain.args)
    if isinstance(domain, Eq):
        return excludes(domain.lhs <= domain.rhs, box) or excludes(domain.lhs >= domain.rhs, box)
    if not isinstance(domain, Le | Lt | Ge | Gt):
        return bool(domain == False)  # noqa: E712 - SymPy's
    low = least(domain.lts - domain.gts, box)
    return low is not None and bool(low >= 0 if isinstance(domain, Lt | Gt) else low > 0)


def least(expr: Basic, box: Mapping[Axis, Span]) -> Expr | None:
    """The least value of an expression that is linear in the places of a box; None of any other."""
    ends = dict[Axis, int]()
    rest = expr.expand()
    for axis, span in box.items():
        tilt = rest.coeff(axis)
        if not tilt.is_number or (rest - tilt * axis).has(axis) or not span.length:
            return None
        ends[axis] = span.first if tilt > 0 else span.stop - 1
    low = rest.xreplace(ends)
    return low if low.is_number and low.is_extended_real else None
