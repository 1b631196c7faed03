"""The functions of this process by number, and by the text of their definition, which names them in other processes.

A tracer takes the number for a constant; the graph that it makes has the text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

NUMBERS = count()
FUNCTIONS: WeakValueDictionary[str, Any] = WeakValueDictionary()
TEXTS: WeakValueDictionary[str, Any] = WeakValueDictionary()
READERS = list[Callable[[str], Any]]()
MOST_TEXTS = 1 << 8
"""Functions that are kept by their text: one that is read again is derived again."""


def number_of(function: Any) -> str:
    """A new number for a function, as text: tracers take a text for a constant."""
    number = str(next(NUMBERS))
    FUNCTIONS[number] = function
    return number


def text_of(number: str) -> str:
    """The text of the function of a number, by which `function_of_text` finds this very function."""
    function = FUNCTIONS[number]
    text: str = function.to_json()
    TEXTS.setdefault(text, function)
    return text


@lru_cache(MOST_TEXTS)
def function_of_text(text: str) -> Any:
    """The function of a text: one of this process if it is here, else derived of the text.

    Raises:
        ExpressionError: it is no text of `to_json`.
    """
    return TEXTS.get(text) or READERS[0](text)


def read_texts_by(reader: Callable[[str], Any]) -> None:
    """Tell how the function of a text is derived; the class that can stands above this module."""
    READERS[:] = [reader]
