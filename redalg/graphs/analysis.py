"""A program's statements as a compiler sees them: their kinds, depths and regions, and how long their results live.

    view            one element of one tensor, at other indices           nothing is computed
    expansion       cheap arithmetic of far fewer numbers than it makes    masks: computed anew where it is read, unless
                                                                           they take many operations; and truth values
                                                                           that are read for them alone
    elementwise     a term of elements, one for each place                one relies on one
    movement        places that a tensor holds                            one relies on one
    reduction       a term that reduces                                   one relies on many
    contraction     Σ of products of two tensors, each of which has axes that the other lacks
    external        what the framework computes

All but contractions and external statements are memory-intensive: they move more than they compute. The depth of a
statement is the number of the others on the longest path to it. Memory-intensive statements of one depth that read each
other are a region: no path from one to another leaves it, so that a kernel may take any of them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import final

from sympy import Abs, Add, Expr, Function, Mod, Mul, Ne, Piecewise, S, ceiling, floor
from sympy.core.basic import Basic

from redalg.expression import Axis, Element, Reduce
from redalg.expression.contents import elements_of, free_axes, nodes_of, of_kind, operations_of
from redalg.expression.dtypes import DTYPES
from redalg.graphs.program import External, Statement, TensorExpression, TensorProgram, TensorType

EXPANDS = 8
"""An expansion makes at least so many times the bytes that it is made of."""
MOST_OPERATIONS = 400
"""Of an element of an expansion."""
CHEAP = (Abs, Mod, Piecewise, ceiling, floor)
"""Functions of few instructions."""


@final
class Kind(StrEnum):
    """The kind of a statement; see the module."""

    VIEW = "view"
    EXPANSION = "expansion"
    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    EXTERNAL = "external"

    @property
    def is_of_readers(self) -> bool:
        """Tell if whatever reads such a statement computes it anew."""
        return self in (Kind.VIEW, Kind.EXPANSION)

    @property
    def is_memory_intensive(self) -> bool:
        """Tell if a statement of this kind moves more than it computes."""
        return self not in (Kind.CONTRACTION, Kind.EXTERNAL)


@final
@dataclass(frozen=True)
class Region:
    """Memory-intensive statements of one depth that read each other.

    Attributes:
        names: their results, in order.
        depth: contractions and external statements on the longest path to them.
        reads, writes: tensors that it reads from outside, and those of its own that something outside reads.
        reductions: its results that rely on many.
    """

    names: tuple[str, ...]
    depth: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    reductions: tuple[str, ...]


@final
@dataclass(frozen=True)
class Analysis:
    """A program with what is known of its statements.

    Attributes:
        program: the program.
        kinds: result of a statement -> the statement's kind.
        depths: tensor -> its depth.
        lives: tensor -> the number of the statement that makes it (−1: an input), and of the last that reads it (the
            number of statements: an output).
        regions: the regions that compute anything, in order.
        tables: of the elementwise statements those that depend on no tensor and take many operations: they are stored.
    """

    program: TensorProgram
    kinds: Mapping[str, Kind]
    depths: Mapping[str, int]
    lives: Mapping[str, tuple[int, int]]
    regions: tuple[Region, ...]
    tables: frozenset[str] = frozenset()

    @property
    def types(self) -> Mapping[str, TensorType]:
        """The type of every tensor, by its name."""
        return self.program.types

    def __str__(self) -> str:
        counts = {kind: sum(1 for one in self.kinds.values() if one is kind) for kind in Kind}
        types, lines = self.types, [", ".join(f"{count} {kind}" for kind, count in counts.items() if count)]
        for number, region in enumerate(self.regions):
            moved = Add(*(bytes_of_type(types[name]) for name in (*region.reads, *region.writes)))
            size = f"{len(region.names)} statements, {len(region.reductions)} reduce"
            ends = f"{', '.join(region.reads)} → {', '.join(region.writes)}"
            lines.append(f"region {number}, depth {region.depth}: {size}; {ends}, {moved} bytes")
        return "\n".join(lines)


def analyze_program(program: TensorProgram) -> Analysis:
    """The kinds, depths, lives and regions of a program's statements."""
    types = program.types
    kinds = {name: statement_kind(one, types) for one in program.statements for name in one.results}
    computed_anew, tables = expansions_and_tables(program, kinds, types)
    kinds |= dict.fromkeys(computed_anew, Kind.EXPANSION)
    depths = depths_of(program, kinds)
    regions = tuple(regions_of(program, kinds, depths))
    return Analysis(program, kinds, depths, lives_of(program), regions, frozenset(tables))


def bytes_of_type(each: TensorType) -> Expr:
    """The bytes of a tensor of a type."""
    return Mul(DTYPES[each.dtype].bytes, *each.shape)


# ---- statements ------------------------------------------------------------------------------------------------------


def statement_kind(statement: Statement, types: Mapping[str, TensorType]) -> Kind:
    """The kind of a statement. A cast to fewer bytes is no view: what it reads should not be stored for it."""
    if isinstance(statement, External):
        return Kind.EXTERNAL
    if statement.relies_on_many:
        return Kind.CONTRACTION if any(map(multiplies, of_kind(Reduce, statement.term))) else Kind.REDUCTION
    if any(elements_of(index) for element in elements_of(statement.term) for index in element.indices):
        return Kind.MOVEMENT
    narrows = any(DTYPES[statement.type.dtype].bytes < DTYPES[types[name].dtype].bytes for name in statement.reads)
    return Kind.VIEW if is_element(statement.term) and not narrows else Kind.ELEMENTWISE


def is_element(term: Basic) -> bool:
    """Tell if a term is an element, or the condition that one of a tensor of truth values is true."""
    return isinstance(term, Element) or (isinstance(term, Ne) and isinstance(term.args[0], Element))


def multiplies(reduction: Reduce) -> bool:
    """Tell if a reduction is a product of matrices: of two factors, each has free axes that the other lacks."""
    if reduction.kind != "sum" or not isinstance(reduction.expr, Mul):
        return False
    own = [outer_axes(factor, reduction) for factor in reduction.expr.args if elements_of(factor)]
    return any(first - second and second - first for first, second in combinations(own, 2))


def outer_axes(factor: Expr, reduction: Reduce) -> frozenset[Axis]:
    """The free axes of a factor of a reduction, if it varies along the reduction's own too; else none."""
    axes = free_axes(factor)
    return frozenset(axes - {*reduction.bound}) if axes & {*reduction.bound} else frozenset()


def expansions_and_tables(
    program: TensorProgram, kinds: Mapping[str, Kind], types: Mapping[str, TensorType]
) -> tuple[set[str], set[str]]:  # fmt: skip
    """The elementwise statements that compute cheaply from few numbers, behind views and others like them; and tables.

    Movements at places that depend on no tensor's elements are among them. None takes more than so many operations an
    element, with all that it computes anew. Of the others tables depend on no tensor: a mask that is filled piece by
    piece.
    """
    behind, work = dict[str, frozenset[str]](), dict[str, int]()
    found, tables = set[str](), set[str]()
    for statement in program.expressions():
        name, kind = statement.name, kinds[statement.name]
        read = frozenset[str]().union(*(behind.get(source, {source}) for source in statement.reads))
        of_few = kind is Kind.ELEMENTWISE and makes_many(types, read, name) and is_cheap(statement.term)
        moves = kind is Kind.MOVEMENT and not any(behind.get(source, {source}) for source in places_read(statement))
        count = operations_of(statement.term) + sum(work.get(one.name, 0) for one in elements_of(statement.term))
        if (of_few or moves) and count > MOST_OPERATIONS:
            tables |= set() if read else {name}
        elif kind is Kind.VIEW or of_few or moves:
            behind[name], work[name] = read, count
            found |= set() if kind is Kind.VIEW else {name}
    return found | truths_of_expansions(program, kinds, behind, found), tables


def truths_of_expansions(
    program: TensorProgram, kinds: Mapping[str, Kind], behind: Mapping[str, frozenset[str]], found: Collection[str]
) -> set[str]:  # fmt: skip
    """The truth values that expansions alone read, which are made of few numbers without them too.

    Those of a mask of tokens are some: whoever reads the mask compares its integers.
    """
    types, readers, truths, anew = program.types, program.readers(), set[str](), dict(behind)
    for statement in reversed([*program.expressions()]):
        name = statement.name
        if statement.type.dtype != "bool" or kinds[name] is not Kind.ELEMENTWISE or name in found:
            continue
        reads = frozenset[str]().union(*(behind.get(source, {source}) for source in statement.reads))
        without = {each: anew[each] - {name} | reads for each in found if name in anew[each]}
        few = all(kinds[each] is Kind.MOVEMENT or makes_many(types, read, each) for each, read in without.items())
        if reads and without and few and is_read_by(program, readers, name, {*found, *truths}, kinds):
            truths.add(name)
            anew |= without
    return truths


def makes_many(types: Mapping[str, TensorType], read: Iterable[str], made: str) -> bool:
    """Tell if a tensor has far more bytes than those of which it is made, whatever the sizes."""
    few = EXPANDS * Add(*(bytes_of_type(types[source]) for source in read)) <= bytes_of_type(types[made])
    return few in (True, S.true)


def is_read_by(
    program: TensorProgram, readers: Mapping[str, Sequence[Statement]], name: str, those: Collection[str],
    kinds: Mapping[str, Kind],
) -> bool:  # fmt: skip
    """Tell if some statements alone read a tensor, as it is or through views."""
    if name in program.outputs:
        return False
    results = [result for reader in readers[name] for result in reader.results]
    return all(each in those or (kinds[each] is Kind.VIEW and is_read_by(program, readers, each, those, kinds))
               for each in results)  # fmt: skip


def places_read(statement: TensorExpression) -> set[str]:
    """The tensors that hold the places at which a statement reads others."""
    indices = (index for element in elements_of(statement.term) for index in element.indices)
    return {one.name for index in indices for one in elements_of(index)}


def is_cheap(term: Basic) -> bool:
    """Tell if a term is arithmetic and choices: no function takes many instructions."""
    return not any(isinstance(node, Function) and not isinstance(node, CHEAP) for node in nodes_of(term))


# ---- the program -----------------------------------------------------------------------------------------------------


def depths_of(program: TensorProgram, kinds: Mapping[str, Kind]) -> dict[str, int]:
    """Tensor -> contractions and external statements on the longest path to it."""
    depths = dict.fromkeys(program.inputs, 0)
    for statement in program.statements:
        after = [depths[name] + (name in kinds and not kinds[name].is_memory_intensive) for name in statement.reads]
        depths |= dict.fromkeys(statement.results, max(after, default=0))
    return depths


def lives_of(program: TensorProgram) -> dict[str, tuple[int, int]]:
    """Tensor -> the number of the statement that makes it, and of the last that reads it."""
    lives = dict.fromkeys(program.inputs, (-1, -1))
    for number, statement in enumerate(program.statements):
        lives |= dict.fromkeys(statement.results, (number, number))
        lives |= {name: (lives[name][0], number) for name in statement.reads}
    return lives | {name: (lives[name][0], len(program.statements)) for name in program.outputs}


def results_of(statements: Iterable[Statement]) -> set[str]:
    """The results of statements."""
    return {name for one in statements for name in one.results}


def regions_of(program: TensorProgram, kinds: Mapping[str, Kind], depths: Mapping[str, int]) -> Iterator[Region]:
    """Yield the regions that compute anything."""
    readers = program.readers()
    for members in components(program, kinds, depths):
        names = {one.name for one in members}
        if all(kinds[name].is_of_readers for name in names):
            continue
        reads = dict.fromkeys(read for one in members for read in one.reads if read not in names)
        outside = {name for name in names if name in program.outputs or results_of(readers[name]) - names}
        order = tuple(one.name for one in members)
        writes = tuple(name for name in order if name in outside)
        reductions = tuple(name for name in order if kinds[name] is Kind.REDUCTION)
        yield Region(order, depths[order[0]], tuple(reads), writes, reductions)


def components(
    program: TensorProgram, kinds: Mapping[str, Kind], depths: Mapping[str, int]
) -> list[list[TensorExpression]]:  # fmt: skip
    """The memory-intensive statements that are connected within their depths, each in the program's order."""
    members = [one for one in program.expressions() if kinds[one.name].is_memory_intensive]
    root = {one.name: one.name for one in members}

    def root_of(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for statement in members:
        for read in statement.reads:
            if read in root and depths[read] == depths[statement.name]:
                root[root_of(statement.name)] = root_of(read)
    together = dict[str, list[TensorExpression]]()
    for statement in members:
        together.setdefault(root_of(statement.name), []).append(statement)
    return list(together.values())
