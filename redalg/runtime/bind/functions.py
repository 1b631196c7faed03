"""The functions of this process by number: what a graph that PyTorch traces names a function by."""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from redalg.errors import InputError

NUMBERS = count()
FUNCTIONS: WeakValueDictionary[str, Any] = WeakValueDictionary()


def number_of(function: Any) -> str:
    """A new number for a function, as text: tracers take a text for a constant."""
    number = str(next(NUMBERS))
    FUNCTIONS[number] = function
    return number


def function_of(number: str) -> Any:
    """The function of a number.

    Raises:
        InputError: it is gone, or a graph was traced in another process.
    """
    if number not in FUNCTIONS:
        raise InputError(f"redalg::run: this process has no function of number {number}. A traced graph runs in the "
                         "process that traced it, as long as its function lives: keep a reference to it.")  # fmt: skip
    return FUNCTIONS[number]
