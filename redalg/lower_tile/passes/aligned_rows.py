"""Load rows by whole vectors, wherever in a vector they begin: a row is a tile of its vectors, and one of its ends.

    t[j] = f(x[b, j]) if j < L;  v = ⊕_j t[j];  out[b, j] = g(t[j], v) if j < L
    →   first = ⌈b·L / V⌉·V;  begin = first − b·L;  vectors = ⌊(L − begin) / V⌋          V elements of a vector
        t[j] = f(x[first + j]) if ⌊j / V⌋ < vectors;    e[j] = f(x[b·L + at(j)]) if live(j), j < 2·V
        v = ⊕_j t[j];                                   v = v ⊕ ⊕_j e[j]
        out[first + j] = g(t[j], v) if …;               out[b·L + at(j)] = g(e[j], v) if …

    at(j) = j, j < begin:  ahead of the first vector, for j < V;    L − 2·V + j, behind the last one:  for j ≥ V

The terms are the same, in another order. A row of 16-bit elements whose length is no multiple of 16 bytes begins
anywhere, so that a thread would load its elements one by one (H200, bfloat16, softmaxes: of 65536 x 1001 in 0.63 of
the time, of 8192 x 8191 0.54, of 4096 x 16383 0.42). Tensors that all rows share, as weights are, begin elsewhere:
threads load their elements one by one, and neighbours should lie side by side. A vector then has twice as many elements
as rows begin at multiples of (root mean squares of 65536 x 1001 in 0.64 of the time, in float32 of 32768 x 1001 0.84).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, final

from sympy import And, Expr, Ge, Integer, Lt, Min, Or, S, floor
from sympy.core.basic import Basic

from redalg.expression import Where
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.loaded_tiles import loaded_bytes
from redalg.lower_tile.ir.mentions import free_names, names_in, outermost_loads
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Copy,
    Fill,
    Kernel,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    expressions,
    map_statement,
    nested_statements,
)
from redalg.lower_tile.ir.row_pieces import Ends, I, J, Piece, Vectors
from redalg.lower_tile.ir.row_places import (
    Access,
    accesses_of,
    conditions_of,
    place_of_copy,
    row_number,
    with_one_dimension,
)
from redalg.lower_tile.ir.runtime_sizes import bytes_of_parameter
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.plan import Plan
from redalg.strategies.rules.reads import MOST_ELEMENTS

LEAST_ROW = 512
"""Elements of a row of which a warp loads each part by several instructions."""
LARGEST_BLOCK, MOST_HELD = 1024, 192
"""Threads of a block that have 64 registers each, and the bytes of rows that such a thread holds at most (H200,
softmaxes of 1024 x 50257: float32, of 208 bytes, 1.12 of the time of single loads; bfloat16, of 112 bytes, 0.60)."""


def align_rows(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose kernel takes rows by vectors; the same one if it has several kernels, or takes several rows."""
    kernel, *others = program.kernels
    plan = kernel.plan or plan
    alone = not others and plan.level != "thread" and plan.block_row == 1 and plan.device.target != "c"
    return rows_by_vectors(program) if alone and has_room(kernel, plan) else program


def has_room(kernel: Kernel, plan: Plan) -> bool:
    """Tell if threads have registers for a row and its ends: those of the largest blocks have the fewest."""
    return plan.threads < LARGEST_BLOCK or loaded_bytes(kernel) <= MOST_HELD * plan.threads


def rows_by_vectors(program: TileProgram) -> TileProgram:
    """A program of one kernel that takes its rows by vectors; the same one if they begin at vectors, or are none."""
    [kernel] = program.kernels
    rows = rows_of(kernel, {one.name: one for one in program.parameters})
    if rows is None:
        return program
    bound, body, ends = pieces_of(rows, free_names(program))
    statements = [each for one in kernel.body for each in rows.in_pieces(one, body, ends)]
    ahead = (node for one in statements if not isinstance(one, Loop) for node in expressions(one))
    if any(rows.steps & node.free_symbols for node in ahead):
        return program  # a step of a loop tells more than its elements
    buffers = (*kernel.buffers, *(replace(ends.tile_like(one), scope="fragment") for one in rows.tiles.values()))
    flat = tuple(with_one_dimension(one) if one.name in rows.tensors else one for one in program.parameters)
    changed = replace(kernel, buffers=buffers, body=(*bound, *statements))
    return replace(program, parameters=flat, kernels=(changed,))


@final
@dataclass(frozen=True)
class Rows:
    """The rows of a kernel, of which each block takes one.

    Attributes:
        number: of the block's row among all rows of a tensor.
        length: elements of a row.
        vector: elements of a vector.
        tensors: the parameters whose rows these are.
        tiles: the buffers that hold a number for every element.
        places: the places of a row that statements take, in J and the variables of loops.
        steps: these variables.
        in_bulk: True if one unit fetches the vectors: as many of every row.
    """

    number: Expr
    length: int
    vector: int
    tensors: frozenset[str]
    tiles: Mapping[str, Buffer]
    places: frozenset[Expr]
    steps: frozenset[Basic]
    in_bulk: bool

    @property
    def width(self) -> int:
        """Elements of a tile."""
        return next(iter(self.tiles.values())).shape[-1]

    def in_pieces(self, statement: Statement, body: Piece, ends: Piece) -> Iterator[Statement]:
        """Yield what a statement is of each piece; of one that is not about elements, itself."""
        if isinstance(statement, Loop):  # the ends are a tile more, ahead of the others
            yield from (self.in_piece(one, ends) for one in statement.body)
            yield replace(statement, body=tuple(self.in_piece(one, body) for one in statement.body))
            return
        pieces = [body, ends] if self.is_of_elements(statement) else [body]
        if self.in_bulk and isinstance(statement, ReduceTile):
            pieces.reverse()  # warps add what they leave of several sums to those of ends: nothing is read between
        for place, piece in enumerate(pieces):
            part = self.in_piece(statement, piece)
            yield replace(part, clear=False) if place > 0 and isinstance(part, ReduceTile) else part

    def is_of_elements(self, statement: Statement) -> bool:
        """Tell if a statement is about the elements of a row."""
        if isinstance(statement, Parallel):
            return J in dict(statement.indices)
        return bool(names_in(statement) & {*self.tiles})

    def in_piece(self, statement: Statement, piece: Piece) -> Statement:
        """A statement about the elements of a row as one about those of a piece."""
        if isinstance(statement, Copy) and isinstance(statement.source, Region):
            if statement.in_bulk and isinstance(piece, Vectors):
                return piece.fetch(statement.source.name, str(statement.target))
            return self.in_piece(self.loop_of_copy(statement.source, str(statement.target)), piece)
        if isinstance(statement, ReduceTile) and statement.source in self.tiles:
            return replace(statement, source=piece.tile(statement.source))
        if isinstance(statement, Fill) and statement.buffer in self.tiles:
            return replace(statement, buffer=piece.tile(statement.buffer))
        if isinstance(statement, Parallel) and J in dict(statement.indices):
            indices = tuple((name, piece.width if name == J else extent) for name, extent in statement.indices)
            body = tuple(self.store_of(one, piece) for one in statement.body)
            return replace(statement, indices=indices, body=body, alone=piece.takes_each_alone)
        return map_statement(statement, lambda node: self.of_piece(node, piece, masked=False))

    def loop_of_copy(self, source: Region, tile: str) -> Parallel:
        """The loop that a copy of a row to a tile is."""
        shape = self.tiles[tile].shape
        index = (I, J)[-len(shape) :]
        load = Load(source.name, *place_of_copy(source, shape[-1]))
        return Parallel(tuple(zip(index, shape, strict=True)), (Store(tile, index, load),))

    def store_of(self, store: Store, piece: Piece) -> Store:
        """A store of an element as one of a piece's; what tiles read beside the row is 0."""
        is_of_tile = store.target in self.tiles
        expr = self.of_piece(store.expr, piece, masked=is_of_tile)
        guard = self.of_piece(store.guard, piece, masked=False)
        if is_of_tile:
            return replace(store, target=piece.tile(store.target), expr=expr, guard=guard)
        place = store.indices[-1]
        inner = (self.of_piece(one, piece, masked=False) for one in store.indices)
        indices = (piece.in_tensor(place),) if store.target in self.tensors else tuple(inner)
        return replace(store, indices=indices, expr=expr, guard=And(guard, piece.live(place)))

    def of_piece(self, node: Any, piece: Piece, *, masked: bool) -> Any:
        """An expression of an element as one of a piece's."""
        put: dict[Basic, Basic] = {Lt(place, self.length): piece.live(place) for place in self.places} | piece.at()
        put |= {Min(self.width, self.length - self.width * step): piece.count(step) for step in self.steps}
        for load in outermost_loads(node):
            if not load.has(J):
                continue
            if load.name in self.tiles:
                put[load] = Load(piece.tile(load.name), *load.indices)
                continue
            place = load.indices[-1]
            inner = (self.of_piece(one, piece, masked=masked) for one in load.indices)
            read = Load(load.name, piece.in_tensor(place)) if load.name in self.tensors else Load(load.name, *inner)
            put[load] = Where(piece.live(place), read, S.Zero) if masked else read
        return node.xreplace(put)


def rows_of(kernel: Kernel, parameters: Mapping[str, Parameter]) -> Rows | None:
    """The rows of which a kernel's blocks take one each; None if it is no such kernel, or if they begin at vectors."""
    statements = nested_statements(kernel.body)
    width = width_of_tiles(kernel, statements)
    if width is None or not all(map(is_of_rows, statements)):
        return None
    tiles = {one.name: one for one in kernel.buffers if one.shape[-1] == width}
    accesses = [*accesses_of(statements, width)]
    if any(name in tiles and place[-1:] != (J,) for name, place in accesses):
        return None
    steps = frozenset(one.variable for one in statements if isinstance(one, Loop))
    found = tensors_by_row(accesses, parameters, steps)
    if found is None:
        return None
    taken, others = found
    sizes = {row: sum(bytes_of_parameter(parameters[name]) for name in names)
             for row, names in taken.items() if row[0].free_symbols}  # fmt: skip
    if not sizes:
        return None
    number, length = max(sizes, key=lambda row: (sizes[row], str(row)))
    tensors = frozenset(taken[number, length]) - others
    along = {name for name, place in accesses if name in parameters and any(index.has(J) for index in place)}
    if not tensors or any(names & tensors for row, names in taken.items() if row != (number, length)):
        return None
    if length < LEAST_ROW:
        return None
    narrowest = min(DTYPES[parameters[one].dtype].bytes for one in tensors)
    in_bulk = any(isinstance(one, Copy) and one.in_bulk for one in statements)
    vector = LOAD_BYTES // narrowest if in_bulk else vector_of_rows(length, narrowest, alone=along == tensors)
    largest = max(prod(parameters[one].shape) for one in tensors)
    if vector is None or largest > MOST_ELEMENTS or width % vector or length % width == 0:
        return None
    if not all(takes_whole_rows(one, length, width) for one in statements if isinstance(one, Loop)):
        return None
    places = frozenset(place[-1] for name, place in accesses if name in tensors)
    if not {Lt(place, length) for place in places} & conditions_of(statements):
        return None  # the axis ends ahead of its dimension
    return Rows(number, length, vector, tensors, tiles, places, steps, in_bulk)


def width_of_tiles(kernel: Kernel, statements: Sequence[Statement]) -> int | None:
    """The elements of a kernel's tiles, all of which are in registers and of one row; None if some are not."""
    loops = (dict(one.indices) for one in statements if isinstance(one, Parallel))
    extents = {(loop.get(I, 1), loop[J]) for loop in loops if J in loop}
    if len(extents) != 1 or any(len(one.shape) > 1 and one.shape[0] > 1 for one in kernel.buffers):
        return None
    [(rows, width)] = extents
    like = [one for one in kernel.buffers if one.shape[-1] == width]
    alone = rows == 1 and width > 1 and all(one.shape[-1] in (1, width) for one in kernel.buffers)
    in_bulk = {one.target for one in statements if isinstance(one, Copy) and one.in_bulk}
    return width if alone and all(one.scope == "fragment" or one.name in in_bulk for one in like) else None


def is_of_rows(statement: Statement) -> bool:
    """Tell if a statement loads a row, computes elements, reduces a row, or does so of tile after tile."""
    if isinstance(statement, Parallel):
        return statement.guard == S.true and not any(store.once for store in statement.body)
    if isinstance(statement, Copy):
        return isinstance(statement.target, str)
    if isinstance(statement, ReduceTile):
        return statement.dim == 1
    return isinstance(statement, Fill | Bind | Loop)


def takes_whole_rows(loop: Loop, length: int, width: int) -> bool:
    """Tell if a loop takes all tiles of a row."""
    return loop.start == 0 and loop.stop == -(-length // width)


Row = tuple[Expr, int]
"""The number of a row among those of a tensor, and its length."""


def tensors_by_row(
    found: Iterable[Access], parameters: Mapping[str, Parameter], steps: frozenset[Basic]
) -> tuple[dict[Row, set[str]], frozenset[str]] | None:
    """The tensors by the rows of which statements take elements; and those with no such rows, or of which they read
    other elements too. None if a place is not along rows."""
    taken, others, origin = dict[Row, set[str]](), set[str](), dict.fromkeys(steps, S.Zero)
    for name, place in found:
        if name not in parameters or not place:
            continue
        shape = parameters[name].shape
        *before, last = (one.xreplace({I: S.Zero}) for one in place)
        if not any(one.has(J) for one in place):
            others.add(name)
        elif last.xreplace(origin) != J or any(one.has(J, Load, *steps) for one in before):
            return None
        elif all(isinstance(one, int) for one in shape):
            taken.setdefault((row_number(before, shape[:-1]), shape[-1]), set()).add(name)
    return taken, frozenset(others)


def vector_of_rows(length: int, size: int, *, alone: bool) -> int | None:
    """The elements of a vector; None if rows of a length begin at such ones, or at ones that are long enough.

    `alone`: nothing is read beside these rows that begins elsewhere.
    """
    together = gcd(length * size, LOAD_BYTES)
    if together >= LOAD_BYTES // 2:
        return None
    return LOAD_BYTES // size if alone else 2 * max(1, together // size)


def pieces_of(rows: Rows, names: Names) -> tuple[tuple[Bind, ...], Vectors, Ends]:
    """The two tiles of a row, and the numbers that tell a block where they are."""
    row, wide = rows.number * rows.length, rows.vector
    first = Bind(names.fresh("first"), floor((row + wide - 1) / wide) * wide, "int32")
    begin = Bind(names.fresh("begin"), Load(first.name) - row, "int32")
    number = Bind(names.fresh("vectors"), floor((rows.length - Load(begin.name)) / wide), "int32")
    count = Integer((rows.length + 1) // wide - 1) if rows.in_bulk else Load(number.name)
    body = Vectors(rows.width, wide, Load(first.name), Load(begin.name), count)
    width = (4 if rows.in_bulk else 2) * wide
    behind = Integer(rows.length - width)
    ahead = And(Lt(J, wide), Lt(J, body.begin))
    last = And(Ge(J, wide), Ge(J + behind, body.begin + wide * body.number))
    tiles = {name: names.fresh(f"{name}_ends") for name in rows.tiles}
    place = J + Where(Lt(J, wide), S.Zero, behind)
    ends = Ends(row, place, Or(ahead, last), rows.length - wide * body.number, width, tiles, rows.steps)
    return (first, begin) if rows.in_bulk else (first, begin, number), body, ends


def vectors_loaded(loop: Parallel, tiles: Collection[str]) -> tuple[str, int] | None:
    """The tile that a loop loads by vectors of a row, and the elements of a vector; None of another loop."""
    [store, *others] = loop.body
    read = store.expr.args[1] if isinstance(store.expr, Where) else None
    if others or not isinstance(read, Load) or read.name in tiles or store.target not in tiles:
        return None
    condition = store.expr.condition
    parts = condition.lhs.atoms(floor) if isinstance(condition, Lt) else set()
    wide = {int(J / part.args[0]) for part in parts if (J / part.args[0]).is_Integer}
    return (store.target, wide.pop()) if len(wide) == 1 and store.indices[-1:] == (J,) else None
