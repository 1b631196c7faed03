"""Index maps: the place in a tensor that an element of a view of it has.

    reshape    (2, 128, 768) as (256, 12, 64)      x[⌊i₀/128⌋, i₀ mod 128, 64·i₁ + i₂]
    slice      every s-th from a on                x[a + s·i]
    roll       by k, of n                          x[(i − k) mod n]

All are quasi-affine: sums of multiples, floors and remainders by whole numbers (SOUFFLE, section 6.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sympy import Expr, Integer, Mod, Mul, S, expand, floor

from redalg.errors import GraphError
from redalg.graphs.program import Shape

Place = Sequence[Expr]


def reshape_place(shape: Shape, made: Shape, place: Place) -> tuple[Expr, ...]:
    """The place in a tensor of `shape` that `place` has in a view of it in row-major order, of the shape `made`.

    Dimensions that multiply to the same number are a group: places are counted within it alone.

    >>> from redalg import axes
    >>> i, j, k = axes("i j k")
    >>> reshape_place((S(2), S(128), S(768)), (S(256), S(12), S(64)), (i, j, k))
    (floor(i/128), Mod(i, 128), 64*j + k)
    """
    found = list[Expr]()
    for old, new in dimension_groups(shape, made):
        sizes, inner = [made[one] for one in new], [place[one] for one in new]
        count = sum((each * Mul(*sizes[one + 1 :]) for one, each in enumerate(inner)), S.Zero)
        own = [shape[one] for one in old]
        if len(own) == len(sizes) == 1:
            found.append(inner[0])
            continue
        for dim, size in enumerate(own):
            found.append(digit_of(count, Mul(*own[dim + 1 :]), size, first=dim == 0))
    return tuple(found)


def digit_of(count: Expr, stride: Expr, size: Expr, *, first: bool) -> Expr:
    """⌊count / stride⌋ mod size; the first dimension of a group needs no remainder."""
    if size == 1:
        return S.Zero
    above = count if stride == 1 else floor(count / stride)
    return above if first else Mod(above, size)


def dimension_groups(shape: Shape, made: Shape) -> Iterator[tuple[range, range]]:
    """Yield the dimensions of both shapes that multiply to the same number, group by group, each as short as it can be.

    >>> list(dimension_groups((S(2), S(128), S(768)), (S(256), S(12), S(64))))
    [(range(0, 2), range(0, 1)), (range(2, 3), range(1, 3))]
    """
    here, there = 0, 0
    while (here, there) != (len(shape), len(made)):
        ends = [(i, j) for i in range(here, len(shape) + 1) for j in range(there, len(made) + 1)
                if i + j > here + there and equal(Mul(*shape[here:i]), Mul(*made[there:j]))]  # fmt: skip
        if not ends:
            raise GraphError(
                f"a tensor of shape {shape} has no view of shape {made}: they hold other numbers of elements."
            )
        i, j = min(ends, key=sum)
        yield range(here, i), range(there, j)
        here, there = i, j


def equal(a: Expr, b: Expr) -> bool:
    """Tell if two sizes are the same number, whatever the symbols stand for."""
    return a == b or expand(a - b) == 0


def broadcast(shape: Shape, place: Place) -> tuple[Expr, ...]:
    """The place in a tensor of fewer or shorter dimensions that is repeated along the others: aligned at the last.

    >>> from redalg import axes
    >>> broadcast((S(1), S(5)), axes("i j k"))
    (0, k)
    """
    last = place[len(place) - len(shape) :]
    return tuple(S.Zero if size == 1 else one for size, one in zip(shape, last, strict=True))


def from_end(index: Expr | int, size: Expr) -> Expr:
    """An index of PyTorch's, of which a negative one counts from the end."""
    index = Integer(index) if isinstance(index, int) else index
    return size + index if index.is_negative else index
