"""The patterns of a program that become kernels: disjoint, none of which waits for another that waits for it.

    beam        from the first vertex to the last, the few best sets of disjoint candidates (FusionStitching, 5.3)
    exchange    a candidate takes the place of those in the set that it overlaps, if it gains more than they together
    completion  a pattern takes in further producers while its gain grows
    judgement   the patterns are shown to the engine. If it refuses one, or takes it as no group, the program is
                explored again with doubts about its vertices
    order       two convex patterns may still wait for each other: a of P feeds b of Q, and d of Q feeds c of P. The one
                with the smaller gain is left out

Patterns that reduce nothing are left to the framework's compiler, which fuses them as well. So is a pattern with one
reduction, if the compiler has one kernel for it and for what is computed beside it, which the pattern would leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from math import fsum
from typing import final

from redalg.graphs.analysis import Kind
from redalg.graphs.candidates import Candidates, explore_again, is_group, is_reduction, may_fuse, with_single_uses
from redalg.graphs.gain import Gain
from redalg.graphs.vertices import Pattern, Vertices, connected_sets

BEAM = 3
"""Sets of patterns that are kept beside each other."""


@final
@dataclass(frozen=True)
class Group:
    """A pattern that becomes a kernel.

    Attributes:
        members: its vertices, in the program's order.
        names: these and the views through which they read.
        reads, writes: tensors that it reads from outside behind its views, and those of its own that leave it.
        reductions: its members that rely on many elements.
        gain_us: microseconds that it saves beside its members alone.
    """

    members: tuple[str, ...]
    names: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    reductions: tuple[str, ...]
    gain_us: float

    @property
    def summary(self) -> str:
        """The tensors that it reads and writes, and its size, without the prediction."""
        sizes = f"{len(self.names)} statements, {len(self.reductions)} reduce"
        return f"{', '.join(self.reads)} → {', '.join(self.writes)}: {sizes}"

    def __str__(self) -> str:
        return f"{self.summary}, predicted to save {self.gain_us:.1f} µs"


@final
@dataclass(frozen=True)
class FusionPlan:
    """The groups of a program, in the order in which they can run."""

    groups: tuple[Group, ...]

    def __str__(self) -> str:
        return "\n".join(f"group {number}: {group}" for number, group in enumerate(self.groups))


def plan_fusion(candidates: Candidates) -> FusionPlan:
    """The groups of the largest sum of gains that the search finds."""
    vertices, gains = candidates.vertices, dict(candidates.gains)
    patterns = complete_patterns(candidates, beam_search(candidates), gains)
    while refused := [pattern for pattern in patterns if not is_group(candidates.verdicts, pattern)]:
        candidates = explore_again(candidates, refused)
        gains |= candidates.gains
        patterns = complete_patterns(candidates, beam_search(candidates), gains)
    patterns = without_cycles(vertices, patterns, gains)
    used = Pattern().union(*patterns)
    patterns = [pattern for pattern in patterns if not splits_kernel(candidates.gain, pattern, used)]
    return FusionPlan(tuple(group_of(vertices, pattern, gains[pattern]) for pattern in patterns))


def splits_kernel(gain: Gain, pattern: Pattern, used: Pattern) -> bool:
    """Tell if a compiler has one kernel for a pattern and for what stands in none beside it.

    A kernel of one reduction takes in what is computed element by element of what it reads; `used` has the vertices of
    all patterns.
    """
    vertices, analysis = gain.vertices, gain.vertices.analysis
    reductions = [*filter(vertices.reduces, pattern)]
    if len(reductions) != 1 or analysis.kinds[reductions[0]] is Kind.CONTRACTION:
        return False
    [reduction] = reductions
    depth, read = analysis.depths[reduction], pattern.union(vertices.inputs_of(pattern))
    counts = {gain.elements(reduction), gain.elements(reduction) * gain.row_length(reduction)}
    left = [name for name in vertices.names if name not in used and analysis.depths[name] == depth
            and analysis.kinds[name].is_memory_intensive]  # fmt: skip
    alone = (names for names in connected_sets(vertices, left) if not any(map(vertices.reduces, names)))
    return any(gain.elements(name) in counts and not read.isdisjoint(vertices.sources[name])
               for names in alone for name in names)  # fmt: skip


def group_of(vertices: Vertices, pattern: Pattern, gain: float) -> Group:
    """A pattern as a group."""
    reductions = tuple(name for name in vertices.in_order(pattern) if vertices.reduces(name))
    members, names = tuple(vertices.in_order(pattern)), tuple(vertices.with_views(pattern))
    reads, writes = tuple(vertices.inputs_of(pattern)), tuple(vertices.outputs_of(pattern))
    return Group(members, names, reads, writes, reductions, gain)


@final
@dataclass(frozen=True)
class Chosen:
    """Disjoint patterns, the vertices that they hold, and the sum of their gains."""

    patterns: tuple[Pattern, ...] = ()
    members: Pattern = frozenset()
    gain: float = 0.0


def beam_search(candidates: Candidates) -> list[Pattern]:
    """Disjoint candidates of the largest sum of gains."""
    beam = [Chosen()]
    for vertex in candidates.vertices.names:
        useful = [(one, candidates.gains[one]) for one in candidates.of_vertex[vertex] if is_useful(candidates, one)]
        grown = {chosen.members: chosen for chosen in beam}
        for chosen in beam:
            for pattern, gain in useful:
                union = chosen.members | pattern
                more = Chosen((*chosen.patterns, pattern), union, chosen.gain + gain)
                if not pattern & chosen.members and (union not in grown or grown[union].gain < more.gain):
                    grown[union] = more
        beam = sorted(grown.values(), key=lambda chosen: -chosen.gain)[:BEAM]
    return exchange_patterns(candidates, beam[0].patterns)


def exchange_patterns(candidates: Candidates, patterns: Sequence[Pattern]) -> list[Pattern]:
    """Disjoint patterns as good as single exchanges make them.

    The beam forgets small patterns of which the first vertices are late: a larger pattern that starts with one that
    is chosen early never joins it.
    """
    every = dict.fromkeys(one for each in candidates.of_vertex.values() for one in each if is_useful(candidates, one))
    order = sorted(every, key=lambda pattern: -candidates.gains[pattern])
    chosen = list(patterns)
    while found := next(filter(None, (exchange_with(candidates, chosen, one) for one in order)), None):
        pattern, overlapped = found
        chosen = [one for one in chosen if one not in overlapped] + [pattern]
    return chosen


def exchange_with(
    candidates: Candidates, chosen: Sequence[Pattern], pattern: Pattern
) -> tuple[Pattern, list[Pattern]] | None:
    """A pattern and those chosen ones that it overlaps, if it gains more than they together; None if not."""
    overlapped = [one for one in chosen if not pattern.isdisjoint(one)]
    gains_more = candidates.gains[pattern] > fsum(map(candidates.gains.__getitem__, overlapped))
    return (pattern, overlapped) if gains_more else None


def is_useful(candidates: Candidates, pattern: Pattern) -> bool:
    """Tell if a candidate saves time, reduces, and is not known to be no group."""
    saves = candidates.gains[pattern] > 0 and is_reduction(candidates.vertices, pattern)
    return saves and not candidates.is_no_group(pattern)


def complete_patterns(
    candidates: Candidates, patterns: Sequence[Pattern], gains: dict[Pattern, float]
) -> list[Pattern]:
    """Patterns with further producers, which `gains` takes up.

    Producers are taken on trust; if the engine then refuses the whole, it is asked about each.
    """
    used, completed = Pattern().union(*patterns), list[Pattern]()
    accepts = partial(is_group, candidates.verdicts)
    for pattern in patterns:
        whole = complete_pattern(pattern, partial(with_producer, candidates, used, gains, None))
        if whole != pattern and not accepts(whole):
            whole = complete_pattern(pattern, partial(with_producer, candidates, used, gains, accepts))
        used |= whole
        completed.append(whole)
    return completed


def complete_pattern(pattern: Pattern, grow: Callable[[Pattern], Pattern | None]) -> Pattern:
    """A pattern as large as it grows."""
    larger = grow(pattern)
    while larger is not None:
        pattern, larger = larger, grow(larger)
    return pattern


def with_producer(
    candidates: Candidates, used: Pattern, gains: dict[Pattern, float], accepts: Callable[[Pattern], bool] | None,
    pattern: Pattern,
) -> Pattern | None:  # fmt: skip
    """A pattern with the producer that adds most to its gain, of those that are accepted; None if none adds any."""
    vertices = candidates.vertices
    near = [name for name in vertices.inputs_of(pattern) if name in candidates.of_vertex and name not in used]
    grown = [with_single_uses(vertices, pattern | {name}) for name in near]
    grown = [one for one in grown if not (one - pattern) & used and may_fuse(vertices, one)]
    gains |= {one: candidates.gain.of(one) for one in grown if one not in gains}
    better = sorted((one for one in grown if gains[one] > gains[pattern]), key=lambda one: -gains[one])
    return next(filter(accepts, better), None)


def without_cycles(vertices: Vertices, patterns: Sequence[Pattern], gains: Mapping[Pattern, float]) -> list[Pattern]:
    """Patterns in an order in which they can run, less the cheapest of those that wait for one another."""
    left = list(patterns)
    while True:
        owner = {name: number for number, pattern in enumerate(left) for name in pattern}
        waits = dict[int | str, set[int | str]]()
        for name, sources in vertices.sources.items():
            own = owner.get(name, name)
            waits.setdefault(own, set()).update(one for one in (owner.get(s, s) for s in sources) if one != own)
        try:
            order = TopologicalSorter(waits).static_order()
            return [left[number] for number in order if isinstance(number, int)]
        except CycleError as cycle:
            left.remove(
                min((left[number] for number in cycle.args[1] if isinstance(number, int)), key=gains.__getitem__)
            )
