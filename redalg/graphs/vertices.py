"""The vertices of a program: what a pattern of fusion may hold, who reads what behind views, and the paths.

A vertex is a tensor expression that computes or moves. A contraction is one if all that it multiplies depends on data:
a product with weights is left to libraries. Views belong to whoever reads them, and so do expansions: between vertices
they are no step. Below, views are both.

Statements before and after each are sets of bits, one for each statement. A pattern is convex if no path leaves it and
comes back (FusionStitching, section 5.1): with B of what lies before its members, and A of what lies after them,

    A ∩ B holds members and views alone

What leaves a pattern is written as it is stored: where a library reads a turned copy of it, and nothing else reads
anything before the copy, the copy takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import final

from sympy import Expr, Mul

from redalg.expression import Element
from redalg.expression.contents import elements_of
from redalg.expression.dtypes import DTYPES
from redalg.graphs.analysis import Analysis, Kind
from redalg.graphs.program import Statement, TensorExpression, TensorProgram
from redalg.graphs.transformations import ALL, Transformations

Pattern = frozenset[str]
"""Vertices, by the names of their results."""


@final
@dataclass(frozen=True)
class Vertices:
    """The vertices of an analysed program.

    Attributes:
        analysis: the program.
        known: name -> tensor expression, views too.
        names: of the vertices, in the program's order.
        sources: tensor -> what its statement reads behind views: vertices, inputs, results of the framework.
        readers: tensor -> results of the statements that read it, through views or not; views are none.
        outputs: the tensors that leave the program, as they are or through views.
        numbers: tensor -> the number of its statement.
        before, after: the statements on any path to a statement, and from it, as bits.
        views: those of views.
        copies: vertex -> the turned copy of it that alone is read, and not by vertices.
        transformations: those that patterns may make.
    """

    analysis: Analysis
    known: Mapping[str, TensorExpression]
    names: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    outputs: frozenset[str]
    numbers: Mapping[str, int]
    before: tuple[int, ...]
    after: tuple[int, ...]
    views: int
    copies: Mapping[str, str]
    transformations: Transformations = ALL

    @cached_property
    def inside(self) -> frozenset[str]:
        """The vertices, to look them up."""
        return frozenset(self.names)

    def is_convex(self, pattern: Pattern) -> bool:
        """Tell if no path leaves a pattern and comes back, but through views."""
        numbers = [self.numbers[name] for name in pattern]
        own = self.views | sum(1 << number for number in numbers)
        before = reduce(or_, (self.before[number] for number in numbers))
        after = reduce(or_, (self.after[number] for number in numbers))
        return not before & after & ~own

    def in_order(self, pattern: Collection[str]) -> list[str]:
        """Names in the program's order."""
        return sorted(pattern, key=self.numbers.__getitem__)

    def inputs_of(self, pattern: Pattern) -> list[str]:
        """The tensors that a pattern reads from outside, behind views."""
        read = dict.fromkeys(source for name in self.in_order(pattern) for source in self.sources[name])
        return [name for name in read if name not in pattern]

    def outputs_of(self, pattern: Pattern) -> list[str]:
        """The results of a pattern that something outside reads; of a single one its turned copy, if it has one."""
        found = [name for name in self.in_order(pattern)
                 if name in self.outputs or any(reader not in pattern for reader in self.readers[name])]  # fmt: skip
        return [self.copies.get(name, name) for name in found] if len(found) == 1 else found

    def with_views(self, pattern: Pattern) -> list[str]:
        """A pattern with the views through which its members and outputs read, in the program's order."""
        group = {*pattern, *self.outputs_of(pattern)}
        waiting = list(group)
        while waiting:
            read = self.known[waiting.pop()].reads
            views = [name for name in read if is_view(self.analysis, name) and name not in group]
            group |= {*views}
            waiting += views
        return self.in_order(group)

    def reduces(self, name: str) -> bool:
        """Tell if a vertex relies on many elements."""
        return self.analysis.kinds[name] in (Kind.REDUCTION, Kind.CONTRACTION)

    def multiplies_narrow(self, name: str) -> bool:
        """Tell if a vertex is a product of matrices in 16 bits."""
        return self.analysis.kinds[name] is Kind.CONTRACTION and DTYPES[self.analysis.types[name].dtype].bytes == 2

    def is_multiple(self, name: str) -> bool:
        """Tell if a vertex is a number times an element."""
        term = self.known[name].term
        return isinstance(term.as_coeff_Mul()[1] if isinstance(term, Expr) else term, Element)


def connected_sets(vertices: Vertices, names: Collection[str]) -> Iterator[Pattern]:
    """Yield the sets of some vertices that are connected by what they read of each other."""
    left = {*names}
    while left:
        found, waiting = set[str](), [left.pop()]
        while waiting:
            name = waiting.pop()
            near = left.intersection((*vertices.sources[name], *vertices.readers[name]))
            found.add(name)
            left -= near
            waiting += near
        yield Pattern(found)


def vertices_of(
    analysis: Analysis, weights: Collection[str] = (), *, products: bool = True, transformations: Transformations = ALL
) -> Vertices:
    """The vertices of an analysed program: some inputs are weights, and contractions are left out if not `products`."""
    analysis = analysis if transformations.vertical_fusion else with_stored_views(analysis)
    program = analysis.program
    behind, sources = sources_of(analysis)
    readers = dict[str, list[str]]({name: [] for name in program.types})
    for name, read in sources.items():
        for source in () if name in behind else read:
            readers[source].append(name)
    known = program.definitions
    constant = constants_of(sources, weights)
    inside = [name for name in known if is_vertex(analysis.kinds[name], sources[name], constant)
              and name not in analysis.tables
              and (products or analysis.kinds[name] is not Kind.CONTRACTION)]  # fmt: skip
    numbers = {name: number for number, statement in enumerate(program.statements) for name in statement.results}
    before, after = paths_of(program, numbers)
    return Vertices(
        analysis, known, tuple(inside), sources, {name: tuple(each) for name, each in readers.items()},
        frozenset(one for name in program.outputs for one in behind.get(name, (name,))), numbers, before, after,
        sum(1 << numbers[name] for name in behind), copies_of(analysis, readers, inside), transformations,
    )  # fmt: skip


def copies_of(analysis: Analysis, readers: Mapping[str, Sequence[str]], inside: Collection[str]) -> dict[str, str]:
    """Vertex -> the turned copy of it that alone is read, and not by vertices.

    A permutation turns, and a statement after it that changes nothing copies.
    """
    within, copies = {*inside}, dict[str, str]()
    direct = analysis.program.readers()
    for vertex in inside:
        views = views_of_all(analysis, direct, vertex) if within.isdisjoint(readers[vertex]) else []
        orders = [order_of_axes(view) for view in views]
        turned = next((number for number, order in enumerate(orders) if order != sorted(order)), len(orders))
        if any(order and order == sorted(order) for order in orders[turned:]):
            copies[vertex] = views[-1].name
    return copies


def views_of_all(
    analysis: Analysis, direct: Mapping[str, Sequence[Statement]], name: str
) -> list[TensorExpression]:  # fmt: skip
    """The views of all of a tensor, each of the one before, as far as nothing else reads it; `direct` has readers."""
    types, views = analysis.types, list[TensorExpression]()
    while name not in analysis.program.outputs and len(direct[name]) == 1:
        [reader] = direct[name]
        if not isinstance(reader, TensorExpression) or analysis.kinds[reader.name] is not Kind.VIEW:
            break
        if Mul(*reader.type.shape) != Mul(*types[name].shape):
            break
        views.append(reader)
        name = reader.name
    return views


def order_of_axes(view: TensorExpression) -> list[int]:
    """The numbers of a view's axes in the order in which they index what it reads; none if an index is no axis.

    Axes of one element are left out.
    """
    [element] = elements_of(view.term)
    longer = {axis: number for number, axis in enumerate(view.axes) if view.type.shape[number] != 1}
    indices = [index for index in element.indices if index != 0 and index not in {*view.axes} - {*longer}]
    return [longer[index] for index in indices] if {*indices} == {*longer} else []


def with_stored_views(analysis: Analysis) -> Analysis:
    """An analysis in which views are tensors that the framework makes, and expansions are statements as others."""
    stored = {Kind.VIEW: Kind.EXTERNAL, Kind.EXPANSION: Kind.ELEMENTWISE}
    return replace(analysis, kinds={name: stored.get(kind, kind) for name, kind in analysis.kinds.items()})


def sources_of(analysis: Analysis) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """View -> the tensors behind it, and tensor -> what its statement reads behind views."""
    behind, sources = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    for statement in analysis.program.statements:
        read = tuple(dict.fromkeys(one for name in statement.reads for one in behind.get(name, (name,))))
        sources |= dict.fromkeys(statement.results, read)
        if all(is_view(analysis, name) for name in statement.results):
            behind |= dict.fromkeys(statement.results, read)
    return behind, sources


def is_view(analysis: Analysis, name: str) -> bool:
    """Tell if a tensor belongs to whoever reads it: it is a view, or computed anew."""
    return name in analysis.kinds and analysis.kinds[name].is_of_readers


def constants_of(sources: Mapping[str, tuple[str, ...]], weights: Collection[str]) -> set[str]:
    """The tensors that depend on no input but weights."""
    constant = {*weights}
    for name, read in sources.items():
        constant |= {name} if constant.issuperset(read) else set()
    return constant


def is_vertex(kind: Kind, sources: Collection[str], constant: Collection[str]) -> bool:
    """Tell if a tensor expression may be in a pattern."""
    of_data = not any(source in constant for source in sources)
    of_framework = kind.is_of_readers or kind is Kind.EXTERNAL
    return not of_framework and (kind.is_memory_intensive or of_data)


def paths_of(program: TensorProgram, numbers: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The statements before and after each statement, as bits; `numbers` says which each tensor has."""
    statements = program.statements
    reads = [{numbers[name] for name in statement.reads if name in numbers} for statement in statements]
    before, after = [0] * len(statements), [0] * len(statements)
    for number, read in enumerate(reads):
        before[number] = reduce(or_, (before[one] | 1 << one for one in read), 0)
    for number in reversed(range(len(statements))):
        for source in reads[number]:
            after[source] |= after[number] | 1 << number
    return tuple(before), tuple(after)
