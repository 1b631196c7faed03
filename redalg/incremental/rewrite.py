"""A rewrite of a form or a pass of a tile program, as data: its name, its effect, its condition and its function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

Function = TypeVar("Function", bound=Callable[..., Any])


@final
@dataclass(frozen=True)
class Rewrite(Generic[Function]):
    """One entry of an ordered list of rewrites.

    Attributes:
        name: its name in the list, in `explain` and in tests.
        before, after: the old and the new terms.
        where: the condition under which it applies.
        apply: the function; it returns what it is given if the condition does not hold.
    """

    name: str
    before: str
    after: str
    where: str
    apply: Function

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}, {self.where}"
