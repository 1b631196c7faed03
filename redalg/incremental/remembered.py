"""Results that follow from an object, worked out once and remembered as long as the object lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final
from weakref import finalize

T = TypeVar("T")


@final
class Remembered(Generic[T]):
    """A function of one object that remembers its results by the object's `id`: to hash a form takes as long as a call.

    The result must not refer to the object, which would then never be freed.

    >>> numbers = Remembered(lambda subject: [len(subject)])
    >>> form = frozenset((1, 2))
    >>> numbers(form) is numbers(form)
    True
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._results = dict[int, T]()

    def __call__(self, subject: Any) -> T:
        """The function's result for this object."""
        result = self._results.get(id(subject))
        if result is None:
            result = self._results[id(subject)] = self._function(subject)
            finalize(subject, self._results.pop, id(subject), None).atexit = False
        return result
