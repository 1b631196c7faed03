"""Families of data on which formulas lose digits: the same for every function.

    family          numbers                                          formulas that suffer
    ordinary        normal ones                                      none
    offset          far from 0, with a spread of 1                   differences of sums: variances, distances
    wide            of magnitudes over many powers of ten            sums, products
    tiny, huge      beside the ends of the dtype's range             squares, exponentials, products
    sorted          rising along the axis                            running extrema
    constant        one value along the axis                         what should be 0 exactly
    +inf, -inf      one infinite number; a third masked, and a row   exponentials of differences

A family changes the tensors that have the streamed axis; the others are ordinary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log10
from typing import Any, final

from redalg.expression.dtypes import DTYPES
from redalg.instruments.drawing import Numbers, normal_numbers

SHARE_OF_RANGE = 0.8
"""Of the exponents of a dtype, at which numbers are huge or tiny: squares leave the range."""
MASKED = 1 / 3
DECADES = 6.0
"""Powers of ten over which magnitudes are wide, at most."""


@final
@dataclass(frozen=True)
class Family:
    """Data of one kind.

    Attributes:
        name: as tables show it.
        make: the numbers of one tensor, in the order in which they are given.
        largest: a bound on the magnitudes, which the dtype must hold.
        infinite: the sign of infinities among them, 0 for none.
    """

    name: str
    make: Callable[[Numbers], Any]
    largest: float = 1.0
    infinite: int = 0

    def suits(self, numbers: Numbers) -> bool:
        """Tell if a tensor may have such numbers: by its dtype and its declared sign."""
        if self.infinite and (numbers.sign == "finite" or DTYPES[numbers.dtype].saturates):
            return False
        if self.infinite < 0 and numbers.sign:
            return False
        return self.largest < DTYPES[numbers.dtype].largest / 4


def offset_by(distance: float) -> Callable[[Numbers], Any]:
    """Numbers about a distance from 0, with a spread of 1."""
    return lambda numbers: numbers.normal() + distance


def wide_numbers(numbers: Numbers) -> Any:
    """Numbers of magnitudes over twelve powers of ten, or as many as the dtype has on both sides of 1."""
    row = DTYPES[numbers.dtype]
    decades = min(DECADES, SHARE_OF_RANGE * log10(float(row.largest)), -SHARE_OF_RANGE * row.least * log10(2.0))
    sign = numbers.xp.where(numbers.normal() < 0, -1.0, 1.0)
    return sign * 10.0 ** (decades * (2 * numbers.uniform() - 1))


def tiny_numbers(numbers: Numbers) -> Any:
    """Numbers whose squares are below the range."""
    return numbers.normal() * 2.0 ** (SHARE_OF_RANGE * DTYPES[numbers.dtype].least)


def huge_numbers(numbers: Numbers) -> Any:
    """Numbers whose squares are beyond the range."""
    return numbers.normal() * float(DTYPES[numbers.dtype].largest) ** SHARE_OF_RANGE


def sorted_numbers(numbers: Numbers) -> Any:
    """Numbers that rise along the streamed axis."""
    made, place = numbers.normal(), numbers.streamed_place
    if place is None:
        return made
    return numbers.xp.sort(made, place).values if numbers.setting.library == "torch" else numbers.xp.sort(made, place)


def constant_numbers(numbers: Numbers) -> Any:
    """One number along the streamed axis."""
    made, place = numbers.normal(), numbers.streamed_place
    if place is None:
        return made
    first = made[(slice(None),) * place + (slice(0, 1),)]
    return first + 0 * made


def with_infinity(numbers: Numbers) -> Any:
    """Normal numbers, one of them infinite."""
    made = numbers.normal()
    if 0 not in made.shape:
        made[(0,) * len(made.shape)] = inf
    return made


def masked_numbers(numbers: Numbers) -> Any:
    """Normal numbers, a third of them -inf, and all of the first along another axis than the streamed one."""
    made, place = numbers.normal(), numbers.streamed_place
    made[numbers.uniform() < MASKED] = -inf
    others = [at for at in range(len(made.shape)) if at != place]
    if others and made.shape[others[0]]:
        made[(slice(None),) * others[0] + (0,)] = -inf
    return made


DATA_FAMILIES = (
    Family("ordinary", normal_numbers),
    Family("offset 1e4", offset_by(1e4), 1e4),
    Family("offset 1e6", offset_by(1e6), 1e6),
    Family("wide", wide_numbers),
    Family("tiny", tiny_numbers),
    Family("huge", huge_numbers),
    Family("sorted", sorted_numbers),
    Family("constant", constant_numbers),
    Family("one +inf", with_infinity, infinite=1),
    Family("-inf masked", masked_numbers, infinite=-1),
)
"""All families, in the order of a table."""
