"""A kernel with the plan that it follows, for rules about both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, final

from redalg.lower_tile.ir.program import (
    Buffer,
    Kernel,
    nested_statements,
)
from redalg.strategies.plan import Plan

Kind = TypeVar("Kind")


@final
@dataclass(frozen=True)
class Subject:
    """A kernel under a plan, as the rules see it."""

    kernel: Kernel
    plan: Plan
    roles: Mapping[str, str]

    @cached_property
    def buffers(self) -> Mapping[str, Buffer]:
        """Buffers by name."""
        return {one.name: one for one in self.kernel.buffers}

    def each(self, kind: type[Kind]) -> Iterator[Kind]:
        """The statements of a kind, those within loops too."""
        return (one for one in nested_statements(self.kernel.body) if isinstance(one, kind))

    def scope(self, name: object) -> str:
        """The scope of a buffer by its name; empty for a parameter."""
        return self.buffers[name].scope if isinstance(name, str) and name in self.buffers else ""
