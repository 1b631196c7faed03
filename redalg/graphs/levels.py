"""Disjoint patterns of vertices with the level of each, kept while patterns join.

    level(p) = 1 + the highest level of the patterns that p reads; 0 if it reads none

If a pattern takes the place of others, its own level is counted, and then those of patterns that read one whose level
changed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from redalg.graphs.vertices import Pattern, Vertices


@final
class Levels:
    """Patterns, none of which waits for another that waits for it, each with its level.

    Attributes:
        vertices: of the program.
        levels: pattern -> its level.
        places: vertex -> the pattern that holds it.
    """

    def __init__(self, vertices: Vertices) -> None:
        self.vertices = vertices
        self.levels: dict[Pattern, int] = {}
        self.places: dict[str, Pattern] = {}

    def put(self, pattern: Pattern, others: Collection[Pattern] = ()) -> None:
        """Put a pattern in the place of others, all of whose vertices it holds."""
        for other in others:
            del self.levels[other]
        self.places |= dict.fromkeys(pattern, pattern)
        self.levels[pattern] = self.level_of(pattern)
        self.count_again(self.readers_of(pattern))

    def last_sources(self, pattern: Pattern) -> list[Pattern]:
        """The patterns of the highest level among those that a pattern reads."""
        sources = self.sources_of(pattern)
        top = max((self.levels[other] for other in sources), default=-1)
        return [other for other in sources if self.levels[other] == top]

    def level_of(self, pattern: Pattern) -> int:
        """The level of a pattern, by those of the patterns that it reads."""
        return 1 + max((self.levels[other] for other in self.sources_of(pattern)), default=-1)

    def sources_of(self, pattern: Pattern) -> set[Pattern]:
        """The patterns that a pattern reads."""
        read = (source for name in pattern for source in self.vertices.sources[name])
        return {self.places[name] for name in read if name in self.places} - {pattern}

    def readers_of(self, pattern: Pattern) -> set[Pattern]:
        """The patterns that read a pattern."""
        readers = (reader for name in pattern for reader in self.vertices.readers[name])
        return {self.places[name] for name in readers if name in self.places} - {pattern}

    def count_again(self, patterns: Collection[Pattern]) -> None:
        """Count the levels of patterns again, and of those that read one whose level changed."""
        waiting = dict.fromkeys(patterns)
        while waiting:
            pattern = next(iter(waiting))  # the first that came: each is counted once for every level before it
            del waiting[pattern]
            level = self.level_of(pattern)
            if level != self.levels[pattern]:
                self.levels[pattern] = level
                waiting |= dict.fromkeys(self.readers_of(pattern))
