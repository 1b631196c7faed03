"""Monoids ⊕ and semirings (⊕, ⊗) as data: what a reduction may be, with the laws that it declares."""

from redalg.monoids.laws import Violation, distributivity_violation, violation
from redalg.monoids.monoid import Component, Monoid, Result
from redalg.monoids.register import register_monoid
from redalg.monoids.semiring import SEMIRINGS, Semiring, semirings
from redalg.monoids.table import MONOIDS, monoid, state_monoid

__all__ = [
    "MONOIDS", "SEMIRINGS", "Component", "Monoid", "Result", "Semiring", "Violation", "distributivity_violation",
    "monoid", "register_monoid", "semirings", "state_monoid", "violation",
]  # fmt: skip
