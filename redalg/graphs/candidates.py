"""The patterns that may be fused, best first for every vertex (FusionStitching, section 5.2).

    candidates(v) = the best few of {v} and PatternReduction(readers of v)
    PatternReduction(readers): of many readers, the unions of what their halves give; of few, v with every combination
                               of the readers' candidates

Vertices go from the last to the first, so that a reader's candidates are known. Two closures are added. What is
computed element by element for members alone joins a pattern (SOUFFLE's vertical transformation, section 6.2): masks,
scales and transposed copies are no patterns of their own. And a pattern found from one of its producers is completed
with others while its gain grows (`fusion_plan`).

A pattern is legal if it is convex and small, and if the engine takes what it reduces in one pass. Only those that would
be kept are shown to the engine, the best first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import final

from redalg.graphs.analysis import Kind
from redalg.graphs.gain import Gain
from redalg.graphs.verdicts import Verdicts
from redalg.graphs.vertices import Pattern, Vertices

KEPT, MOST_READERS, MOST_MEMBERS, MOST_CONTRACTIONS = 3, 2, 64, 2
"""Candidates of a vertex; readers that are combined at once; members of a pattern, and contractions among them."""


@final
@dataclass(frozen=True)
class Candidates:
    """The candidates of a program's vertices.

    Attributes:
        gain: of patterns on a card.
        verdicts: those of the engine.
        of_vertex: vertex -> its candidates, best first; each has it as a member.
        gains: pattern -> its gain, of every pattern that was tried.
    """

    gain: Gain
    verdicts: Verdicts
    of_vertex: Mapping[str, tuple[Pattern, ...]]
    gains: Mapping[Pattern, float]

    @property
    def vertices(self) -> Vertices:
        """The vertices of the program."""
        return self.gain.vertices

    def __str__(self) -> str:
        judged = list(self.verdicts.found.values())
        taken = sum(verdict.is_one_pass for verdict in judged)
        return (
            f"{len(self.of_vertex)} vertices, {len(self.gains)} patterns tried; {len(judged)} shown to the engine, "
            f"{taken} of them one pass"
        )


def explore(gain: Gain) -> Candidates:
    """The candidates of every vertex."""
    explorer = Explorer(gain)
    for vertex in reversed(gain.vertices.names):
        alone = Pattern([vertex])
        found = [alone, *explorer.reduction(vertex, explorer.readers_of(vertex))]
        explorer.of_vertex[vertex] = explorer.best(found)
    return Candidates(gain, explorer.verdicts, explorer.of_vertex, explorer.gains)


@final
class Explorer:
    """Candidates as they are found."""

    def __init__(self, gain: Gain) -> None:
        self.gain, self.vertices, self.verdicts = gain, gain.vertices, Verdicts(gain.vertices)
        self.of_vertex: dict[str, tuple[Pattern, ...]] = {}
        self.gains: dict[Pattern, float] = {}

    def readers_of(self, vertex: str) -> list[str]:
        """The vertices that read a vertex and have candidates."""
        return [name for name in self.vertices.readers[vertex] if name in self.of_vertex]

    def reduction(self, vertex: str, readers: Sequence[str]) -> list[Pattern]:
        """The patterns of a vertex with some of its readers (PatternReduction)."""
        if len(readers) > MOST_READERS:
            half = len(readers) // 2
            halves = (self.reduction(vertex, part) for part in (readers[:half], readers[half:]))
            return self.unions([self.best(half) for half in halves])
        return [with_single_uses(self.vertices, pattern | {vertex})
                for pattern in self.unions([self.of_vertex[name] for name in readers])]  # fmt: skip

    @staticmethod
    def unions(parts: Iterable[Sequence[Pattern]]) -> list[Pattern]:
        """The unions of patterns, of each list at most one."""
        choices = product(*([Pattern(), *part] for part in parts))
        return [union for chosen in choices if (union := Pattern().union(*chosen))]

    def best(self, patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
        """The legal patterns of the largest gains."""
        gains = {pattern: self.gain_of(pattern) for pattern in patterns if may_fuse(self.vertices, pattern)}
        order = sorted(gains, key=lambda pattern: (-gains[pattern], len(pattern), self.vertices.in_order(pattern)))
        return tuple(islice((pattern for pattern in order if is_legal(self.verdicts, pattern)), KEPT))

    def gain_of(self, pattern: Pattern) -> float:
        """The gain of a pattern, computed once."""
        if pattern not in self.gains:
            self.gains[pattern] = self.gain.of(pattern)
        return self.gains[pattern]


def with_single_uses(vertices: Vertices, pattern: Pattern) -> Pattern:
    """A pattern with what is computed for it alone, element by element.

    A factor of a product in 16 bits stays outside, unless it is a number times an element: see `verdicts`. Without
    vertical fusion nothing joins.
    """
    if not vertices.transformations.vertical_fusion:
        return pattern
    members, waiting = {*pattern}, [(name, False) for name in pattern]
    while waiting:
        name, in_factor = waiting.pop()
        in_factor |= vertices.multiplies_narrow(name)
        for source in vertices.sources[name]:
            alone = source not in vertices.outputs and members.issuperset(vertices.readers[source])
            may_join = source in vertices.inside and source not in members and not vertices.reduces(source)
            if alone and may_join and not (in_factor and not vertices.is_multiple(source)):
                members.add(source)
                waiting.append((source, in_factor))
    return Pattern(members)


def may_fuse(vertices: Vertices, pattern: Pattern) -> bool:
    """Tell if a pattern has few enough members, makes no transformation that is switched off, and is convex."""
    kinds = vertices.analysis.kinds
    contractions = sum(kinds[name] is Kind.CONTRACTION for name in pattern)
    few = len(pattern) <= MOST_MEMBERS and contractions <= MOST_CONTRACTIONS
    return few and makes_allowed(vertices, pattern) and vertices.is_convex(pattern)


def makes_allowed(vertices: Vertices, pattern: Pattern) -> bool:
    """Tell if a pattern as one kernel makes only transformations that are switched on."""
    allowed = vertices.transformations
    if not allowed.vertical_fusion and len(pattern) > 1 and not all(map(vertices.reduces, pattern)):
        return False
    return allowed.data_reuse or len(vertices.outputs_of(pattern)) <= 1


def is_legal(verdicts: Verdicts, pattern: Pattern) -> bool:
    """Tell if a pattern reduces nothing, or is one pass."""
    if len(pattern) == 1 or not any(map(verdicts.vertices.reduces, pattern)):
        return True
    return verdicts.of(pattern).is_one_pass
