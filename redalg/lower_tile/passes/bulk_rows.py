"""Fetch a long row in bulk to shared memory, and compute of its elements what is needed where it is needed.

    x_tile = x[b, :L];  u[j] = f(x_tile[j]);  m = max of u;  t[j] = g(u[j], m);  s = sum of t;  out[j] = h(t[j], s)
    →   x_tile[:L] <- x[b, :L] in bulk;   u[j] = f(x_tile[j]);          m = max of u
                                          t[j] = g(f(x_tile[j]), m);    s = sum of t
                                          out[j] = h(g(f(x_tile[j]), m), s)

Exact: tiles that are stored once, and are not rounded, stand for what they are stored as. A thread then keeps sums of
elements and no elements, so that blocks of few threads take long rows, and several blocks lie side by side: one loads
while another stores. An exponential is computed for its sum and for its output. A row that begins anywhere is fetched
from its first vector on, as many vectors as every row has; its ends are loaded apart (`aligned_rows`).

Weights of all rows that several sums read are read again for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from sympy import Expr, S

from redalg.errors import PlanError
from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.mentions import free_names, names_in, names_with_one_store
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Copy,
    Fill,
    Kernel,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    expressions,
)
from redalg.lower_tile.ir.row_pieces import I, J
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.passes.aligned_rows import LEAST_ROW, rows_by_vectors
from redalg.strategies.device import LOAD_BYTES
from redalg.strategies.plan import Plan
from redalg.strategies.rules.bulk_rows import blocks_at_once


def fetch_rows_in_bulk(program: TileProgram, plan: Plan) -> TileProgram:
    """The program whose kernels of a row a block fetch it in bulk, where their plan has it in shared memory."""
    own = {place: kernel.plan or plan for place, kernel in enumerate(program.kernels)}
    plans = {place: one for place, one in own.items() if one.fetches_rows}
    return rows_in_bulk(program, plans) if plans else program


def rows_in_bulk(program: TileProgram, plans: Mapping[int, Plan]) -> TileProgram:
    """A program whose kernels at some places fetch their rows in bulk, by their plans.

    Raises:
        PlanError: none of them can, or their rows begin at no vectors.
    """
    parameters, names = {one.name: one for one in program.parameters}, free_names(program)
    rows = {place: row_of_block(program.kernels[place], parameters) for place in plans}
    found = {place: row for place, row in rows.items() if row is not None}
    if not found:
        raise PlanError(
            f"schedule `{next(iter(plans.values()))}` has rows in shared memory, where an element is computed of those "
            "at its place. Kernels of this form compute it of others too. Keep the tile in registers."
        )
    kernels = tuple(in_bulk(kernel, found[place], plans[place], names) if place in found else kernel
                    for place, kernel in enumerate(program.kernels))  # fmt: skip
    program = from_vectors_on(replace(program, kernels=kernels))
    parameters = {one.name: one for one in program.parameters}
    if any(begin_anywhere(kernel, parameters) for kernel in program.kernels):
        raise PlanError(
            f"schedule `{next(iter(plans.values()))}` has rows in shared memory, of which not each begins at a "
            f"multiple of {LOAD_BYTES} bytes. Such rows have {LEAST_ROW} elements or more, and kernels read no other "
            "rows along them. Keep the tile in registers."
        )
    bodies = (tuple(without_rest(one, parameters) for one in kernel.body) for kernel in program.kernels)
    kernels = tuple(replace(kernel, body=body) for kernel, body in zip(program.kernels, bodies, strict=True))
    return replace(program, kernels=kernels)


def from_vectors_on(program: TileProgram) -> TileProgram:
    """A program that fetches rows that begin anywhere from their first vector on; the same one if it can't."""
    parameters = {one.name: one for one in program.parameters}
    anywhere = any(begin_anywhere(kernel, parameters) for kernel in program.kernels)
    return rows_by_vectors(program) if anywhere and len(program.kernels) == 1 else program


def begin_anywhere(kernel: Kernel, parameters: Mapping[str, Parameter]) -> bool:
    """Tell if a kernel fetches rows of which single ones do not begin where a vector does."""
    rows = (one for one in parameters_in_bulk(kernel, parameters) if len(one.shape) > 1)
    return any(one.shape[-1] * DTYPES[one.dtype].bytes % LOAD_BYTES for one in rows)


def parameters_in_bulk(kernel: Kernel, parameters: Mapping[str, Parameter]) -> list[Parameter]:
    """The parameters of which a kernel fetches rows."""
    copies = (one.source for one in kernel.body if isinstance(one, Copy) and one.in_bulk)
    return [parameters[one.name] for one in copies if isinstance(one, Region)]


def without_rest(statement: Statement, parameters: Mapping[str, Parameter]) -> Statement:
    """A statement that fetches the elements that rows have, and not the rest of a tile; another one as it is."""
    if not isinstance(statement, Copy) or not statement.in_bulk or isinstance(statement.target, Region):
        return statement
    if not isinstance(statement.source, Region):
        raise AssertionError(f"`{statement}` copies no row")
    length = parameters[statement.source.name].shape[-1]
    at = (one[0] if isinstance(one, tuple) else one for one in statement.source.place[:-1])
    source = replace(statement.source, place=(*at, (S.Zero, length)))
    return replace(statement, source=source, target=Region(statement.target, (S.Zero, (S.Zero, length))))


# ---- a kernel --------------------------------------------------------------------------------------------------------


def in_bulk(kernel: Kernel, row: BlockRow, plan: Plan, names: Names) -> Kernel:
    """A kernel that fetches its rows in bulk, with as many blocks on a multiprocessor as its memory has room for."""
    beside = max(1, blocks_at_once(row.bytes // plan.segments, plan.threads, plan.device))
    body, copies = row.in_statements(kernel, names)
    buffers = (replace(one, scope="shared") if one.name in row.loaded else one for one in kernel.buffers)
    read = {name for one in body for name in names_in(one)}
    tiles = tuple(one for one in (*buffers, *copies) if one.name in read)
    return replace(kernel, buffers=tiles, body=body, beside=beside)


@final
@dataclass(frozen=True)
class BlockRow:
    """The row that a block takes.

    Attributes:
        width: elements of its tiles.
        loaded: the tiles that are copied from memory.
        computed: those that are computed of them -> their element at (I, J), of loaded tiles and numbers.
    """

    width: int
    loaded: Mapping[str, Buffer]
    computed: Mapping[str, Expr]

    @property
    def bytes(self) -> int:
        """Bytes of the tiles that are copied."""
        return sum(self.width * DTYPES[one.dtype].bytes for one in self.loaded.values())

    def resolve(self, expr: Expr) -> Expr:
        """An expression of elements without computed tiles."""
        resolved: Expr = expr.xreplace({Load(name, I, J): value for name, value in self.computed.items()})
        return resolved

    def is_read_in_place(self, kernel: Kernel) -> bool:
        """Tell if all loops read elements of the tiles at the place where they are."""
        tiles = {*self.loaded, *self.computed}
        nodes = (node for one in kernel.body if isinstance(one, Parallel) for node in expressions(one))
        return all(load.indices == (I, J) for node in nodes for load in node.atoms(Load) if load.name in tiles)

    def in_statements(self, kernel: Kernel, names: Names) -> tuple[tuple[Statement, ...], list[Buffer]]:
        """The statements that compute elements where they are read, and a tile for each further sum of the same."""
        body, copies, taken = list[Statement](), list[Buffer](), set[str]()
        buffers = {one.name: one for one in kernel.buffers}
        for statement in kernel.body:
            if isinstance(statement, Copy) and statement.target in self.loaded:
                body.append(replace(statement, in_bulk=True))
            elif isinstance(statement, ReduceTile) and statement.source in {*self.loaded, *self.computed}:
                source = buffers[statement.source]
                own = source.name in self.loaded or source.name in taken
                tile = replace(source, name=names.fresh(f"{source.name}_again")) if own else source
                copies += [tile] if own else []
                taken.add(tile.name)
                element = self.computed.get(source.name, Load(source.name, I, J))
                body.append(Parallel(((I, 1), (J, self.width)), (Store(tile.name, (I, J), element),)))
                body.append(replace(statement, source=tile.name))
            elif isinstance(statement, Parallel):
                stores = tuple(self.of_elements(one) for one in statement.body if one.target not in self.computed)
                body += [replace(statement, body=stores)] if stores else []
            else:
                body.append(statement)
        return tuple(body), copies

    def of_elements(self, store: Store) -> Store:
        """A store that computes the elements that it reads."""
        return replace(store, expr=self.resolve(store.expr))


def row_of_block(kernel: Kernel, parameters: Mapping[str, Parameter]) -> BlockRow | None:
    """The row of a kernel's blocks; None if it is not loaded whole, or elements depend on more than their place."""
    if not all(isinstance(one, Bind | Copy | Fill | Parallel | ReduceTile) for one in kernel.body):
        return None
    buffers = {one.name: one for one in kernel.buffers if len(one.shape) > 1}
    if len({one.shape for one in buffers.values()}) != 1 or any(one.scope != "fragment" for one in buffers.values()):
        return None
    copies = [one for one in kernel.body if isinstance(one, Copy)]
    loaded = {str(one.target): buffers[str(one.target)] for one in copies if is_load_of_row(one, buffers)}
    [(rows, width)] = {one.shape for one in buffers.values()}
    if rows != 1 or not loaded or any(one.target not in loaded for one in copies):
        return None
    lengths = [parameters[one.source.name].shape[-1] for one in copies if isinstance(one.source, Region)]
    if not all(isinstance(length, int) and length <= width for length in lengths):
        return None
    computed, once = dict[str, Expr](), names_with_one_store(kernel)
    known_names = once | parameters.keys()
    for name, value in values_of_tiles(kernel, buffers):
        reads = value.atoms(Load) if value is not None else set[Load]()
        elsewhere = any(load.name in buffers and load.indices != (I, J) for load in reads)
        rounds = buffers[name].dtype not in ("float32", "float64")
        known_reads = {load.name for load in reads} <= known_names
        if value is None or elsewhere or rounds or name not in once or not known_reads:
            return None
        known = {Load(each, I, J): of for each, of in computed.items()}
        computed[name] = value.xreplace(known)
    row = BlockRow(width, loaded, computed)
    every = {*loaded, *computed} == buffers.keys()
    return row if every and not kernel.blocks and row.is_read_in_place(kernel) else None


def is_load_of_row(copy: Copy, buffers: Mapping[str, Buffer]) -> bool:
    """Tell if a copy is of a parameter's row to a tile, from its first element on."""
    if not isinstance(copy.source, Region) or copy.target not in buffers:
        return False
    *others, last = copy.source.place
    return isinstance(last, tuple) and last[0] == 0 and all(one[1] == 1 for one in others if isinstance(one, tuple))


def values_of_tiles(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, Expr | None]]:
    """Yield the tiles that loops store, and their elements; None of one that is not stored whole, place by place."""
    for statement in kernel.body:
        if isinstance(statement, Parallel):
            for store in statement.body:
                if store.target in buffers:
                    whole = store.guard == statement.guard == S.true and not store.once and store.indices == (I, J)
                    yield store.target, store.expr if whole else None
