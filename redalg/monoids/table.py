"""The monoids by name: those that redalg knows, and those that a user registers. A monoid is pickled by its name."""

from __future__ import annotations

import copyreg

from redalg.errors import ExpressionError
from redalg.monoids.attained import ATTAINED
from redalg.monoids.monoid import Monoid
from redalg.monoids.ordered import AFFINE, AFFINE_TANGENT, FIRST, FIRST_PLACE, LAST, LAST_PLACE
from redalg.monoids.peaks import ARGPEAK, PEAK
from redalg.monoids.scalar import ALL, ANY, GCD, MAX, MIN, PROD, SUM, XOR
from redalg.monoids.scaled import COMPENSATED_SUM, LOGSUMEXP, SCALED_PRODUCT
from redalg.monoids.selection import ARGMAX, ARGMIN, TOPK

KNOWN = (
    SUM, PROD, MAX, MIN, ANY, ALL, XOR, GCD, ARGMAX, ARGMIN, TOPK, *ATTAINED, FIRST, LAST, FIRST_PLACE, LAST_PLACE,
    AFFINE, AFFINE_TANGENT, SCALED_PRODUCT, COMPENSATED_SUM, LOGSUMEXP, PEAK, ARGPEAK,
)  # fmt: skip
MONOIDS: dict[str, Monoid] = {one.name: one for one in KNOWN}
"""Filled further by `register_monoid` alone."""


def monoid(name: str) -> Monoid:
    """The monoid of that name.

    >>> monoid("max").identity
    -oo
    """
    if name not in MONOIDS:
        raise ExpressionError(f"no monoid is named {name!r}. redalg knows {', '.join(MONOIDS)}.")
    return MONOIDS[name]


def state_monoid(kind: Monoid) -> Monoid:
    """The monoid whose elements a state holds.

    >>> state_monoid(monoid("prod")).name, state_monoid(monoid("max")).name
    ('scaled_product', 'max')
    """
    return monoid(kind.state_kind) if kind.state_kind else kind


copyreg.pickle(Monoid, lambda one: (monoid, (one.name,)))
