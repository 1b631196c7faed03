"""Monoids ⊕ and semirings (⊕, ⊗) as data: what a reduction may be, with the laws that it declares."""

from redalg.monoids.monoid import MONOIDS, Monoid, monoid
from redalg.monoids.semiring import SEMIRINGS, Semiring, semirings

__all__ = ["MONOIDS", "SEMIRINGS", "Monoid", "Semiring", "monoid", "semirings"]
