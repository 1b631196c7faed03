"""The patterns that may be fused, best first for every vertex (FusionStitching, section 5.2).

    candidates(v) = the best few of {v} and PatternReduction(readers of v)
    PatternReduction(readers): of many readers, the unions of what their halves give; of few, v with every combination
                               of the readers' candidates

Vertices go from the last to the first, so that a reader's candidates are known. Two closures are added. What is
computed element by element for members alone joins a pattern (SOUFFLE's vertical transformation, section 6.2): masks,
scales and transposed copies are no patterns of their own. And a pattern found from one of its producers is completed
with others while its gain grows (`fusion_plan`).

A pattern is legal if it is convex and small, and if the engine takes what it reduces in one pass. The engine takes
most, and to ask it takes longer than all else. So patterns are taken on trust; those that no other holds are shown to
it, and those of a plan (`fusion_plan`). If it refuses one, its vertices are doubted, less those of a smaller pattern
that it takes, and the program is explored again. Of patterns with doubted vertices those that would be kept are shown
to it at once, the best first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
        doubted: vertices of patterns that the engine refused.
    """

    gain: Gain
    verdicts: Verdicts
    of_vertex: Mapping[str, tuple[Pattern, ...]]
    gains: Mapping[Pattern, float]
    doubted: Pattern = frozenset()

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

    def is_legal(self, pattern: Pattern) -> bool:
        """Tell if a pattern reduces nothing, or is one pass; of one without doubted vertices it is taken on trust."""
        return self.doubted.isdisjoint(pattern) or is_legal(self.verdicts, pattern)

    def is_no_group(self, pattern: Pattern) -> bool:
        """Tell if a pattern is known to be no group; of one without doubted vertices it is not known."""
        return not self.doubted.isdisjoint(pattern) and not self.verdicts.of(pattern).is_group


def explore(gain: Gain, known: Verdicts | None = None) -> Candidates:
    """The candidates of every vertex; `known` has verdicts of another program, on patterns that may be alike."""
    verdicts = Verdicts(gain.vertices)
    verdicts = verdicts if known is None else replace(verdicts, found=known.found, laid=known.laid)
    return explore_again(Candidates(gain, verdicts, {}, {}))


def explore_again(candidates: Candidates, refused: Collection[Pattern] = ()) -> Candidates:
    """The candidates of every vertex, after the engine refused some of those before, or took them as no group.

    What was computed of patterns before holds.
    """
    while True:
        doubts = (vertices_to_doubt(candidates, pattern) for pattern in refused)
        candidates = with_doubts(candidates, candidates.doubted.union(*doubts))
        refused = [one for one in whole_patterns(candidates) if not is_legal(candidates.verdicts, one)]
        if not refused:
            return candidates


def with_doubts(before: Candidates, doubted: Pattern) -> Candidates:
    """The candidates of every vertex, of which those with doubted vertices are legal."""
    explorer = Explorer(replace(before, doubted=doubted))
    for vertex in reversed(before.vertices.names):
        patterns = [Pattern([vertex]), *explorer.reduction(vertex, explorer.readers_of(vertex))]
        explorer.of_vertex[vertex] = explorer.best(patterns)
    return replace(explorer.start, of_vertex=explorer.of_vertex, gains=explorer.gains)


def whole_patterns(candidates: Candidates) -> Iterator[Pattern]:
    """Yield the candidates that save time, and that no candidate of their vertex or of what they read holds."""
    for vertex, patterns in candidates.of_vertex.items():
        for pattern in patterns:
            inputs = candidates.vertices.inputs_of(pattern)
            larger = (each for name in (vertex, *inputs) for each in candidates.of_vertex.get(name, ()))
            if candidates.gains[pattern] > 0 and not any(pattern < each for each in larger):
                yield pattern


def vertices_to_doubt(candidates: Candidates, refused: Pattern) -> Pattern:
    """The vertices of a refused pattern, less those of a large candidate in it that the engine takes."""
    inside = {each for name in refused for each in candidates.of_vertex[name] if len(each) > 1 and each < refused}
    order = sorted(inside, key=lambda pattern: (len(pattern), candidates.vertices.in_order(pattern)))
    first = bisect_left(order, True, key=lambda pattern: not is_group(candidates.verdicts, pattern))
    return refused - order[first - 1] if first else refused  # as if those before the first refused were all accepted


@final
class Explorer:
    """Candidates as they are found; `start` has what is known of patterns before."""

    def __init__(self, start: Candidates) -> None:
        self.start, self.vertices = start, start.vertices
        self.of_vertex: dict[str, tuple[Pattern, ...]] = {}
        self.gains = dict(start.gains)

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
        return tuple(islice(filter(self.start.is_legal, order), KEPT))

    def gain_of(self, pattern: Pattern) -> float:
        """The gain of a pattern, computed once."""
        if pattern not in self.gains:
            self.gains[pattern] = self.start.gain.of(pattern)
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
    return not is_reduction(verdicts.vertices, pattern) or verdicts.of(pattern).is_one_pass


def is_group(verdicts: Verdicts, pattern: Pattern) -> bool:
    """Tell if a pattern reduces nothing, or is one that the engine takes as a group."""
    return not is_reduction(verdicts.vertices, pattern) or verdicts.of(pattern).is_group


def is_reduction(vertices: Vertices, pattern: Pattern) -> bool:
    """Tell if a pattern holds several vertices, one of which reduces."""
    return len(pattern) > 1 and any(map(vertices.reduces, pattern))
