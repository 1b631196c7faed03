"""Parts of a program that one launch computes, level after level (SOUFFLE, section 5.4).

    subprogram   small vertices around one another, products with weights too, that no path leaves and comes back to
    part         vertices that one pass computes: it takes in what follows it while that adds no work to speak of
    level        parts that do not rely on each other; all blocks wait for each other between two levels

A vertex is small if a launch takes longer than its work. A product of matrices is, if it reads its weights for few
rows: libraries have no advantage there. What is larger stays outside: a device that waits for itself idles.

A subprogram is taken for the launches that it saves beside the groups that the program has without it: parts that a
group holds together are one launch there, and wait for nothing. What leaves a subprogram is written as it is stored,
as of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, prod
from types import MappingProxyType
from typing import final

from sympy import Symbol
from sympy.core.basic import Basic

from redalg.errors import GraphError, RedalgError
from redalg.expression import Element, Reduce, Where
from redalg.expression.contents import elements_of, free_axes, of_kind
from redalg.graphs.analysis import Analysis, Kind, analyze_program
from redalg.graphs.compose import Composed, compose_outputs
from redalg.graphs.fusion_plan import Group, group_of
from redalg.graphs.gain import LAUNCH_US, Gain
from redalg.graphs.levels import Levels
from redalg.graphs.program import TensorProgram, TensorType
from redalg.graphs.transformations import ALL, Transformations
from redalg.graphs.verdicts import Structure, Verdicts
from redalg.graphs.vertices import Pattern, Vertices, connected_sets, copies_of, vertices_of
from redalg.strategies.device import DeviceSpec

SMALL_US = 4.0
"""The work of a small vertex alone, beside its launch."""
MOST_OPERATIONS_A_BYTE = 8.0
"""The operations of a product for every byte that it moves, at most: those of 16 rows of weights in 32 bits."""
SYNC_US = 1.3
"""The wait of all blocks for each other (H100)."""
LOSS = 1.0
"""The share of the work by which it takes longer in few blocks that wait for each other."""
MOST_PARTS = 2000
"""Parts of a subprogram."""
LEAST_REDUCTIONS, MOST_REDUCTIONS = 3, 2000
"""Reductions of a pattern that is looked at: a norm has two."""
FREE_OPERATIONS = 2e4
"""The operations that a block computes again rather than wait for another block: some 1 µs."""
MORE_OPERATIONS = 1.25
"""Beside what parts take alone."""
ELEMENTS_A_BLOCK = 8
"""The elements of an output that a block makes, about."""


@final
@dataclass(frozen=True)
class Subprogram:
    """Parts in an order in which they can run, and the microseconds that one launch of them saves, by counting.

    If they run in turn, each is a level of its own.
    """

    parts: tuple[Group, ...]
    gain_us: float
    in_turn: bool = False

    @property
    def members(self) -> tuple[str, ...]:
        """The vertices of all parts."""
        return tuple(name for part in self.parts for name in part.members)

    def levels(self) -> list[int]:
        """The level of every part: one more than that of the last part that it reads."""
        found = dict[str, int]()
        levels = [*range(len(self.parts))] if self.in_turn else list[int]()
        for part in self.parts[len(levels) :]:
            levels.append(1 + max((found[name] for name in part.reads if name in found), default=-1))
            found |= dict.fromkeys(part.writes, levels[-1])
        return levels

    def __str__(self) -> str:
        lines = (f"level {level}: {part}" for level, part in zip(self.levels(), self.parts, strict=True))
        return "\n".join([f"one launch, predicted to save {self.gain_us:.1f} µs", *lines])


def subprograms_of(
    program: TensorProgram, device: DeviceSpec, transformations: Transformations = ALL,
    hints: Mapping[Symbol, int] = MappingProxyType({}), groups: Callable[[], Collection[Pattern]] = tuple,
) -> tuple[Verdicts, list[Subprogram]]:  # fmt: skip
    """The verdicts on a program's patterns, and the subprograms that a launch on a device makes faster, by counting.

    Args:
        program, device, transformations: of which is asked.
        hints: the lengths for which is counted, of sizes that vary.
        groups: finds the groups that the program has without subprograms; it is asked if there may be any.
    """
    analysis = analyze_program(program)
    if transformations.vertical_fusion:
        analysis = constants_with_readers(choices_with_readers(analysis))
    vertices = vertices_of(analysis, transformations=transformations)
    gain = Gain(vertices, device, hints)
    partition = Partition(gain, Verdicts(vertices))
    if not (transformations.horizontal_fusion or transformations.grid_sync):
        return partition.verdicts, []
    found = [launch for pattern in small_patterns(partition) for launch in launches_of(partition, pattern)]
    if found:
        without = groups()
        found = [replace(launch, gain_us=launch.gain_us - LAUNCH_US * launches_less(vertices, launch, without))
                 for launch in found]  # fmt: skip
        found = [launch for launch in found if launch.gain_us > 0]
    return write_as_read(partition.verdicts, found)


def write_as_read(verdicts: Verdicts, found: Sequence[Subprogram]) -> tuple[Verdicts, list[Subprogram]]:
    """Subprograms of one result that write the turned copy of it that alone is read, and the verdicts on them."""
    vertices, every = verdicts.vertices, [name for launch in found for name in launch.members]
    plain = replace(vertices, copies={})
    alone = {tuple(plain.outputs_of(Pattern(part.members))) for launch in found for part in launch.parts}
    alone &= {tuple(plain.outputs_of(Pattern(launch.members))) for launch in found}
    copies = copies_of(vertices.analysis, vertices.readers, every)
    vertices = replace(vertices, copies={name: copy for name, copy in copies.items() if (name,) in alone})
    parts = (tuple(group_of(vertices, Pattern(part.members), 0.0) for part in launch.parts) for launch in found)
    launches = [replace(launch, parts=each) for launch, each in zip(found, parts, strict=True)]
    return replace(verdicts, vertices=vertices, structures={}), launches


def launches_less(vertices: Vertices, launch: Subprogram, groups: Collection[Pattern]) -> int:
    """The launches that a subprogram saves less than its parts say: as it has groups without it, and kernels of others.

    There each group is a launch, each product in none, and what a compiler fuses between these. A group that holds more
    than the subprogram does is a launch beside it.
    """
    members, kinds = {*launch.members}, vertices.analysis.kinds
    touched = [group for group in groups if not group.isdisjoint(members)]
    rest = members.difference(*touched)
    between = {name for name in rest if kinds[name].is_memory_intensive}
    without = len(touched) + len(rest) - len(between) + sum(1 for _ in connected_sets(vertices, between))
    cut = sum(not group <= members for group in touched)
    return max(0, len(launch.parts) - without) + cut


def launches_of(partition: Partition, pattern: Pattern) -> Iterator[Subprogram]:
    """Yield the launches of a pattern that save time by counting: one, or without grid synchronisation its levels."""
    vertices, allowed = partition.gain.vertices, partition.gain.vertices.transformations
    groups = tuple(group_of(vertices, part, 0.0) for part in partition.parts(pattern))
    whole = Subprogram(groups, 0.0, in_turn=not allowed.horizontal_fusion)
    levels = whole.levels()
    launches = [groups]
    if not allowed.grid_sync:
        launches = [tuple(part for part, own in zip(groups, levels, strict=True) if own == level)
                    for level in sorted({*levels})]  # fmt: skip
    for parts in launches:
        launch = replace(whole, parts=parts)
        members = Pattern(launch.members)
        saved = LAUNCH_US * (len(parts) - 1) - SYNC_US * max(launch.levels()) - LOSS * work_us(partition.gain, members)
        if 1 < len(parts) <= MOST_PARTS and saved > 0:
            yield replace(launch, gain_us=saved)


def choices_with_readers(analysis: Analysis) -> Analysis:
    """An analysis in which whoever reads a choice of elements, by their places, makes it anew."""
    choices = {each.name for each in analysis.program.expressions()
               if is_choice(each.term) and analysis.kinds[each.name] is not Kind.VIEW}  # fmt: skip
    choices -= {*analysis.program.outputs}
    return replace(analysis, kinds={**analysis.kinds, **dict.fromkeys(choices, Kind.EXPANSION)})


def constants_with_readers(analysis: Analysis) -> Analysis:
    """An analysis in which whoever reads a number, whatever the inputs hold, makes it anew: f·0 of a first state."""
    vertices = vertices_of(analysis)
    found = [name for name in vertices.names if name not in vertices.outputs and is_one_number(vertices, name)]
    if not found:
        return analysis
    return constants_with_readers(replace(analysis, kinds={**analysis.kinds, **dict.fromkeys(found, Kind.EXPANSION)}))


def is_one_number(vertices: Vertices, name: str) -> bool:
    """Tell if a vertex is one number whatever the inputs hold, by the numbers among what it reads."""
    if all(vertices.sources.get(read, (read,)) for read in vertices.known[name].reads):
        return False
    try:
        [output] = compose_outputs(vertices.analysis.program, vertices.with_views(Pattern({name})), [name])
    except GraphError:
        return False
    return not output.reads


def is_nested(term: Basic) -> bool:
    """Tell if a reduction is of elements each of which is reduced along another axis."""
    return any(
        free_axes(inner) & {*outer.bound} for outer in of_kind(Reduce, term) for inner in of_kind(Reduce, outer.expr)
    )


def counts_integers(output: Composed, types: Mapping[str, TensorType]) -> bool:
    """Tell if an output is a sum of integers: a floating-point number in a launch, by which no part may index."""
    return "int" in types[output.name].dtype and any(one.kind == "sum" for one in of_kind(Reduce, output.term))


def is_choice(term: Basic) -> bool:
    """Tell if a term is one element or another, as its place says."""
    if isinstance(term, Where):
        return not elements_of(term.args[0]) and all(map(is_choice, term.args[1:]))
    return isinstance(term, Element) and not any(map(elements_of, term.indices))


def small_patterns(partition: Partition) -> Iterator[Pattern]:
    """Yield disjoint convex patterns of small vertices that have kernels, each as large as it grows.

    Patterns that reduce too seldom to gain anything, or more often than is looked at, are none.
    """
    vertices = partition.gain.vertices
    free = dict.fromkeys(name for name in vertices.names if is_small_vertex(partition.gain, name))
    while free:
        pattern = grow_pattern(vertices, next(iter(free)), free)
        reductions = sum(map(vertices.reduces, pattern))
        counts = LEAST_REDUCTIONS <= reductions <= MOST_REDUCTIONS and may_gain(partition.gain, pattern)
        alone = [name for name in pattern if counts and partition.operations(frozenset({name})) is None]
        for name in alone or pattern:
            del free[name]
        if counts and not alone:
            yield pattern


def work_us(gain: Gain, pattern: Pattern) -> float:
    """The time of a pattern's members alone, without their launches."""
    return fsum(gain.alone_us(name) - LAUNCH_US for name in pattern)


def may_gain(gain: Gain, pattern: Pattern) -> bool:
    """Tell if one launch may gain anything: if the launches of twice what reduces outweigh its share of work."""
    return 2 * LAUNCH_US * sum(map(gain.vertices.reduces, pattern)) > LOSS * work_us(gain, pattern)


def grow_pattern(vertices: Vertices, first: str, free: Collection[str]) -> Pattern:
    """The pattern of a vertex and of free ones around it, as long as no path leaves it and comes back."""
    pattern, waiting, number = {first}, [first], vertices.numbers[first]
    before, after, own = vertices.before[number], vertices.after[number], vertices.views | 1 << number
    while waiting:
        name = waiting.pop(0)
        for other in (*vertices.sources[name], *vertices.readers[name]):
            if other not in free or other in pattern:
                continue
            number = vertices.numbers[other]
            wider = before | vertices.before[number], after | vertices.after[number], own | 1 << number
            if not wider[0] & wider[1] & ~wider[2]:
                before, after, own = wider
                pattern.add(other)
                waiting.append(other)
    return Pattern(pattern)


def is_small_vertex(gain: Gain, name: str) -> bool:
    """Tell if a vertex alone takes less than its launch, and multiplies little of what it reads."""
    moved = gain.bytes_of(name) + sum(map(gain.bytes_of, gain.vertices.sources[name]))
    return gain.alone_us(name) - LAUNCH_US <= SMALL_US and gain.operations(name) <= MOST_OPERATIONS_A_BYTE * moved


@final
@dataclass(frozen=True)
class Partition:
    """Patterns as parts, of which each is taken in one pass.

    Attributes:
        gain, verdicts: of the program.
        work: structure of a pattern -> the operations of its kernel; None if it has no kernel.
        counts: structure of a pattern -> the operations, before the engine is asked.
    """

    gain: Gain
    verdicts: Verdicts
    work: dict[Structure, float | None] = field(default_factory=dict)
    counts: dict[Structure, float | None] = field(default_factory=dict)

    def parts(self, pattern: Pattern) -> list[Pattern]:
        """The parts of a pattern whose vertices have kernels, in an order in which they can run.

        A vertex joins the part on which it relies, if that is one of a level above all others: it then waits for
        nothing. Parts become one likewise, where that makes one pass and a vertex alone did not.
        """
        vertices = self.gain.vertices
        parts = Levels(vertices)
        for name in vertices.in_order(pattern):
            parts.put(frozenset({name}))
            self.join(parts, frozenset({name}))
        for part in [*parts.levels]:
            if part in parts.levels:
                self.join(parts, part)
        return sorted(parts.levels, key=lambda part: (parts.levels[part], vertices.numbers[min(part)]))

    def join(self, parts: Levels, part: Pattern) -> None:
        """Make one of a part and those that it relies on, if that adds no work to speak of."""
        last = parts.last_sources(part)
        wider = part.union(*last)
        if last and self.joins(last, part, wider):
            parts.put(wider, [*last, part])

    def joins(self, parts: Sequence[Pattern], part: Pattern, wider: Pattern) -> bool:
        """Tell if a part and those that it relies on make one, without work to speak of beside theirs."""
        if not self.gain.vertices.transformations.vertical_fusion:
            return False
        apart = [self.operations(each) for each in (*parts, part)]
        joint = None if None in apart else self.count_operations(wider)
        if joint is None:
            return False
        elements = sum(map(self.gain.elements, self.gain.vertices.outputs_of(wider)))
        blocks = min(max(1, elements // ELEMENTS_A_BLOCK), self.gain.device.multiprocessors)
        few = joint <= MORE_OPERATIONS * sum(each or 0.0 for each in apart) + FREE_OPERATIONS * blocks
        return few and self.operations(wider) is not None

    def operations(self, part: Pattern) -> float | None:
        """The operations of a part's kernel; None if the engine does not take it in one pass, or takes it slowly.

        Where a pass makes elements that are reductions themselves, the next level does better. A part that reads no
        tensor, or a part of one, has no kernel either, and outputs of other axes have blocks of their own.
        """
        structure = self.verdicts.structure(part)
        if structure not in self.work:
            self.work[structure] = self.operations_anew(part)
        return self.work[structure]

    def operations_anew(self, part: Pattern) -> float | None:
        """As `operations`, asked now."""
        count = self.count_operations(part)
        if count is None:
            return None
        return count if self.verdicts.of(part).is_group else None

    def count_operations(self, part: Pattern) -> float | None:
        """The operations of a part's kernel, if the engine takes it; None if its outputs make no kernel of a launch."""
        structure = self.verdicts.structure(part)
        if structure not in self.counts:
            self.counts[structure] = self.count_anew(part)
        return self.counts[structure]

    def count_anew(self, part: Pattern) -> float | None:
        """As `count_operations`, counted now. Outputs of other numbers of elements have other axes."""
        if len({*map(self.gain.elements, self.gain.vertices.outputs_of(part))}) > 1:
            return None
        try:
            numbered = self.verdicts.lay(part)
        except RedalgError:
            return None
        laid = numbered.laid
        runs = all(output.reads and not is_nested(output.term) for output in laid.outputs)
        runs = runs and not any(counts_integers(output, numbered.types) for output in laid.outputs)
        shares = len(laid.outputs) == 1 or self.gain.vertices.transformations.data_reuse
        if not runs or numbered.parts or not shares or len({output.axes for output in laid.outputs}) > 1:
            return None
        return sum(map(self.operations_of, laid.outputs))

    def operations_of(self, output: Composed) -> float:
        """The operations of an output: a block makes what depends on none of its axes for all its elements."""
        size = {axis: self.gain.number(length) for axis, length in output.sizes.items()}
        count = float(prod(size[axis] for axis in output.axes))
        for reduction in dict.fromkeys(of_kind(Reduce, output.term)):
            inside = {axis for axis in free_axes(reduction.expr) if axis in size} | {*reduction.bound}
            again = prod(size[axis] for axis in output.axes if axis not in inside) // ELEMENTS_A_BLOCK
            times = min(max(1, again), self.gain.device.multiprocessors)
            count += float(prod(size[axis] for axis in inside)) * times
        return count
