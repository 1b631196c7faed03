"""Rules that every tile program must satisfy (and that every emitted kernel therefore satisfies).

every name that is read or stored is a buffer of the kernel or a parameter, with as many indices as dimensions
every variable in an expression is one of the grid, of a loop around the statement, or a size of the program
outputs and workspaces are only written in the first kernel that names them; inputs are never written
Contract: shapes agree, a is in shared memory or registers, b in shared memory, c in registers
ReduceTile: rows agree
JoinBest: both have one row of integers of 64 bits; the best lie in shared memory, where a number finds its place
Parallel over a register tile sweeps the whole tile (a shorter loop over a fragment is silently truncated)
the guard of a tile's statement is one for all of its elements
Copy between buffers keeps the shape
Keep: a row, or an equal part of one, of whole lines of L2, within its parameter
Last: its counter is one, with as many places as dimensions, and named by nothing else
of nested loops one is pipelined
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import S, Symbol

from redalg.errors import PlanError
from redalg.lower_tile.ir.cache_lines import is_part_of_lines
from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.mentions import bound_names
from redalg.lower_tile.ir.program import (
    Bind,
    Buffer,
    Contract,
    Copy,
    Fill,
    JoinBest,
    Keep,
    Kernel,
    Last,
    Loop,
    Parallel,
    Parameter,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    expressions,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.device import LINE_BYTES

READ_ONLY = ("input", "scalar", "counter")
"""Roles of the parameters to which no statement stores (a counter changes by `Last`)."""


@final
@dataclass(frozen=True)
class _Names:
    """The names that a kernel's statements may use."""

    buffers: Mapping[str, Buffer]
    parameters: Mapping[str, Parameter]
    bound: frozenset[str]

    def dimensions(self, name: str) -> int | None:
        """Number of dimensions of a buffer, a parameter or a bound number; None for any other name."""
        if name in self.bound:
            return 0
        if name in self.buffers:
            return len(self.buffers[name].shape)
        return len(self.parameters[name].shape) if name in self.parameters else None


def verify(program: TileProgram) -> None:
    """Raise `PlanError` naming the first statement that breaks a rule."""
    parameters = {one.name: one for one in program.parameters}
    if len(parameters) != len(program.parameters):
        raise PlanError(f"program `{program.name}` has two parameters of one name.")
    for kernel in program.kernels:
        buffers = {one.name: one for one in kernel.buffers}
        if len(buffers) != len(kernel.buffers) or set(buffers) & set(parameters):
            raise PlanError(f"kernel `{kernel.title}` has two buffers of one name.")
        names = _Names(buffers, parameters, frozenset(bound_names(kernel)))
        for statement in nested_statements(kernel.body):
            problem = RULES[type(statement)](statement, names) or _read_only(statement, names)
            if problem is not None:
                raise PlanError(f"kernel `{kernel.title}`, statement `{str(statement).splitlines()[0]}`: {problem}.")
        _bound(kernel.body, frozenset((*program.sizes, *(variable for variable, _ in kernel.grid))), kernel)


def _bound(body: tuple[Statement, ...], variables: frozenset[Symbol], kernel: Kernel) -> None:
    """Raise `PlanError` for the first statement that holds a variable which nothing around it binds."""
    for statement in body:
        inner = variables
        if isinstance(statement, Loop):
            inner |= {statement.variable}
        elif isinstance(statement, Parallel):
            inner |= {variable for variable, _ in statement.indices}
        own = replace(statement, body=()) if isinstance(statement, Loop | Last) else statement
        loose = {symbol for expr in expressions(own) for symbol in expr.free_symbols} - inner
        if loose:
            raise PlanError(
                f"kernel `{kernel.title}`, statement `{str(statement).splitlines()[0]}`: nothing around it binds "
                f"`{min(map(str, loose))}`."
            )
        if isinstance(statement, Loop | Last):
            _bound(statement.body, inner, kernel)


def _read_only(statement: Statement, names: _Names) -> str | None:
    targets = [store.target for store in statement.body] if isinstance(statement, Parallel) else []
    targets += [statement.target.name] if isinstance(statement, Copy) and isinstance(statement.target, Region) else []
    read_only = [n for n in targets if n in names.parameters and names.parameters[n].role in READ_ONLY]
    return f"writes the {names.parameters[read_only[0]].role} `{read_only[0]}`" if read_only else None


def _bind(bind: Bind, names: _Names) -> str | None:
    if bind.name in names.parameters or bind.name in names.buffers:
        return f"`{bind.name}` names a buffer or a parameter"
    return None if "int" in bind.dtype or bind.dtype.startswith(("float", "bfloat")) else f"has no dtype {bind.dtype}"


def _copy(copy: Copy, names: _Names) -> str | None:
    shapes = []
    for side in (copy.source, copy.target):
        if isinstance(side, Region):
            if names.dimensions(side.name) != len(side.place):
                return f"`{side.name}` has {names.dimensions(side.name)} dimensions, {len(side.place)} are named"
            shapes.append(tuple(place[1] for place in side.place if isinstance(place, tuple)))
        elif side not in names.buffers:
            return f"`{side}` is no buffer"
        else:
            shapes.append(names.buffers[side].shape)
    return None if shapes[0] == shapes[1] else f"copies a tile of shape {shapes[0]} to one of {shapes[1]}"


def _exchange(exchange: Exchange, names: _Names) -> str | None:
    source, table = names.buffers.get(exchange.source), names.buffers.get(exchange.table)
    if source is None or table is None or {source.scope, table.scope} != {"shared"}:
        return f"`{exchange.source}` and `{exchange.table}` are no tables in shared memory"
    fits = table.shape == (source.shape[0], exchange.blocks, *source.shape[1:])
    rows = all(0 <= row < source.shape[0] for row in exchange.rows)
    return None if fits and rows else f"copies rows {exchange.rows} of {source.shape} to a table {table.shape}"


def _keep(keep: Keep, names: _Names) -> str | None:
    source = names.parameters.get(keep.source.name)
    if source is None or len(source.shape) != len(keep.source.place):
        return f"`{keep.source.name}` is no parameter of {len(keep.source.place)} dimensions"
    *others, (start, length) = (one if isinstance(one, tuple) else (one, 1) for one in keep.source.place)
    lines = all(count == 1 for _, count in others) and is_part_of_lines(start, length, source)
    return None if lines else f"is no row, or equal part of a row, of lines of {LINE_BYTES} bytes"


def _fill(fill: Fill, names: _Names) -> str | None:
    return None if fill.buffer in names.buffers else f"`{fill.buffer}` is no buffer"


def _contract(contract: Contract, names: _Names) -> str | None:
    a, b, c = (names.buffers.get(name) for name in (contract.a, contract.b, contract.c))
    if a is None or b is None or c is None:
        return "an operand is no buffer"
    rows, depth = a.shape[::-1] if contract.turned else a.shape
    shape = (c.shape[1], depth) if contract.transposed else (depth, c.shape[1])
    if b.shape != shape or c.shape[0] != rows:
        return f"shapes {a.shape}, {b.shape} and {c.shape} do not multiply"
    if b.scope != "shared" or c.scope != "fragment":
        return "b must lie in shared memory and c in registers"
    return None if a.dtype == b.dtype else f"the operands' dtypes {a.dtype} and {b.dtype} differ"


def _reduce(reduction: ReduceTile, names: _Names) -> str | None:
    if reduction.source not in names.buffers or reduction.target not in names.buffers:
        return "an operand is no buffer"
    source, target = names.buffers[reduction.source].shape, names.buffers[reduction.target].shape
    rest = source[: reduction.dim] + source[reduction.dim + 1 :] or (1,)
    return None if rest == target else f"reduces dimension {reduction.dim} of {source} into {target}"


def _join(join: JoinBest, names: _Names) -> str | None:
    best, rank = (names.buffers.get(name) for name in (join.best, join.rank))
    if best is None or rank is None:
        return "an operand is no buffer"
    rows = {one.shape[:-1] for one in (best, rank)}
    if rows != {(1,)} or {best.dtype, rank.dtype} != {"int64"}:
        return f"joins {rank.dtype} of shape {rank.shape} to {best.dtype} of {best.shape}, not a row of int64 to one"
    return None if (best.scope, rank.scope) == ("shared", "fragment") else "best must be shared and rank in registers"


def _parallel(loop: Parallel, names: _Names) -> str | None:
    extents = tuple(extent for _, extent in loop.indices)
    if loop.guard.free_symbols & {variable for variable, _ in loop.indices}:
        return f"its guard `{loop.guard}` differs from element to element"
    once = [name for store in loop.body for name, _ in store.once]
    for place, name in enumerate(once):
        if names.dimensions(name) is not None or name in once[:place]:
            return f"`{name}` names what is computed once, and something else"
    for store in loop.body:
        problem = _unknown(store, names)
        if problem:
            return problem
        target = names.buffers.get(store.target)
        if target is None or target.scope == "element" or _is_part(target, store):
            continue
        if not _is_swept(target, _in_order(store, loop)):
            return f"sweeps {extents} of `{target.name}`, which is {target.shape}"
    return None


def _in_order(store: Store, loop: Parallel) -> tuple[int, ...]:
    """The extents of a loop, in the order of the dimensions of the buffer that it stores to."""
    lengths = dict(loop.indices)
    order = store.indices if set(store.indices) == lengths.keys() else lengths
    return tuple(lengths[one] for one in order)


def _is_swept(target: Buffer, extents: tuple[int, ...]) -> bool:
    """Tell if a loop writes a whole buffer; of one in shared memory rows may be longer, for the sake of its banks.

    The loop may be over the one row of others, ahead of the buffer's dimensions.
    """
    is_longer = target.scope == "shared" and len(extents) > 1 and target.shape[-1] > extents[-1]
    of_row = (1, *target.shape) == extents
    return of_row or target.shape == extents or (is_longer and target.shape[:-1] == extents[:-1])


def _is_part(target: Buffer, store: Store) -> bool:
    """Tell if a store writes part of shared memory: of an array, as its guard tells, or elements in their own place."""
    of_array = len(target.shape) == 1 and store.guard != S.true
    return target.scope == "shared" and (of_array or store.expr.has(Load(target.name, *store.indices)))


def _unknown(store: Store, names: _Names) -> str | None:
    for read in (Load(store.target, *store.indices), *sorted(store.expr.atoms(Load), key=str)):
        dimensions = names.dimensions(read.name)
        if dimensions is None:
            return f"`{read.name}` is neither a buffer nor a parameter"
        if dimensions != len(read.indices) and read.name in names.buffers:
            return f"`{read}` names {len(read.indices)} of {dimensions} dimensions"
    return None


def _loop(loop: Loop, _: _Names) -> str | None:
    loads = [inner for inner in loop.body if isinstance(inner, Copy)]
    if loop.stages > 0 and not loop.pipelined:
        return f"asks for {loop.stages} stages for {len(loads)} loads of a loop that is not pipelined"
    if loop.pipelined and any(isinstance(inner, Loop) and inner.pipelined for inner in loop.body):
        return "is pipelined around a loop that is pipelined itself; one of them prefetches"
    if loop.unrolled > 1 and loop.pipelined:
        return f"is pipelined and asks to be unrolled by {loop.unrolled}"
    return None if loop.stages >= 0 and loop.unrolled >= 1 else "has a depth out of range"


def _last(last: Last, names: _Names) -> str | None:
    counter, flag = names.parameters.get(last.counter), names.buffers.get(last.flag)
    if counter is None or (counter.role, counter.dtype) != ("counter", "int32"):
        return f"`{last.counter}` is no counter of 32 bits"
    if len(counter.shape) != len(last.place):
        return f"`{last.counter}` has {len(counter.shape)} dimensions, {len(last.place)} are named"
    if flag is None or (flag.scope, flag.shape, flag.dtype) != ("local", (1,), "int32"):
        return f"`{last.flag}` is no integer of a thread's own"
    return None if last.parts > 1 else f"counts to {last.parts}"


RULES: dict[type, Callable[[Any, _Names], str | None]] = {
    Bind: _bind,
    Copy: _copy,
    Keep: _keep,
    Fill: _fill,
    Contract: _contract,
    ReduceTile: _reduce,
    JoinBest: _join,
    Exchange: _exchange,
    Parallel: _parallel,
    Loop: _loop,
    Last: _last,
}
