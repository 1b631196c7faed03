"""Monoids ⊕ and semirings (⊕, ⊗) as data: what a reduction may be, with the laws that it declares."""

from redalg.monoids.laws import Violation, undistributed, violation
from redalg.monoids.monoid import Component, Monoid, Result
from redalg.monoids.register import register_monoid
from redalg.monoids.semiring import SEMIRINGS, Semiring, semirings
from redalg.monoids.table import MONOIDS, held_as, monoid

__all__ = [
    "MONOIDS", "SEMIRINGS", "Component", "Monoid", "Result", "Semiring", "Violation", "held_as", "monoid",
    "register_monoid", "semirings", "undistributed", "violation",
]  # fmt: skip
