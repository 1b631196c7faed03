"""The data of `tests.cases.data_kinds`, under the name by which `tests/test_accuracy.py` imports them."""

from tests.cases.data_kinds import KINDS, LENGTH, make, weight_trap

__all__ = ["KINDS", "LENGTH", "make", "weight_trap"]
