"""What every tile program must satisfy (and every emitted kernel therefore does).

    every name that is read or stored is a buffer of the kernel or a parameter, with as many indices as dimensions
    outputs and workspaces are only written in the first kernel that names them; inputs are never written
    Contract: shapes agree, a is in shared memory or registers, b in shared memory, c in registers
    ReduceTile: rows agree
    Parallel over a register tile sweeps the whole tile (a shorter loop over a fragment is silently truncated)
    Copy between buffers keeps the shape
"""

from __future__ import annotations

from collections.abc import Mapping

from redalg.errors import PlanError
from redalg.lower_tile.program import (
    Buffer,
    Contract,
    Copy,
    Fill,
    Kernel,
    Load,
    Loop,
    Parallel,
    ReduceTile,
    Region,
    Statement,
    Store,
    TileProgram,
    statements,
)


def verify(program: TileProgram) -> None:
    """Raise `PlanError` naming the first statement that breaks a rule."""
    parameters = {one.name: len(one.shape) for one in program.parameters}
    if len(parameters) != len(program.parameters):
        raise PlanError(f"program `{program.name}` has two parameters of one name.")
    for kernel in program.kernels:
        buffers = {one.name: one for one in kernel.buffers}
        if len(buffers) != len(kernel.buffers) or set(buffers) & set(parameters):
            raise PlanError(f"kernel `{kernel.title}` has two buffers of one name.")
        for one in statements(kernel.body):
            _check(one, buffers, parameters, kernel, {p.name: p.role for p in program.parameters})


def _check(one: Statement, buffers: Mapping[str, Buffer], parameters: Mapping[str, int], kernel: Kernel, roles: Mapping[str, str]) -> None:
    problem = {Copy: _copy, Fill: _fill, Contract: _contract, ReduceTile: _reduce, Parallel: _parallel, Loop: _loop}[type(one)](
        one, buffers, parameters)  # type: ignore[operator]
    written = _written(one)
    if problem is None and any(roles.get(name) in ("input", "scalar") for name in written):
        problem = f"writes the input {written}"
    if problem is not None:
        raise PlanError(f"kernel `{kernel.title}`, statement `{str(one).splitlines()[0]}`: {problem}.")


def _written(one: Statement) -> list[str]:
    if isinstance(one, Parallel):
        return [store.target for store in one.body]
    return [one.target.name] if isinstance(one, Copy) and isinstance(one.target, Region) else []


def _copy(one: Copy, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    shapes = []
    for side in (one.source, one.target):
        if isinstance(side, Region):
            if parameters.get(side.name) != len(side.place):
                return f"`{side.name}` has {parameters.get(side.name)} dimensions, {len(side.place)} are named"
            shapes.append(tuple(place[1] for place in side.place if isinstance(place, tuple)))
        elif side not in buffers:
            return f"`{side}` is no buffer"
        else:
            shapes.append(buffers[side].shape)
    return None if shapes[0] == shapes[1] else f"copies a tile of shape {shapes[0]} to one of {shapes[1]}"


def _fill(one: Fill, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    return None if one.buffer in buffers else f"`{one.buffer}` is no buffer"


def _contract(one: Contract, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    a, b, c = (buffers.get(name) for name in (one.a, one.b, one.c))
    if a is None or b is None or c is None:
        return "an operand is no buffer"
    rows, depth = a.shape
    wanted = (c.shape[1], depth) if one.transposed else (depth, c.shape[1])
    if b.shape != wanted or c.shape[0] != rows:
        return f"shapes {a.shape}, {b.shape} and {c.shape} do not multiply"
    if b.scope != "shared" or c.scope != "fragment":
        return "b must lie in shared memory and c in registers"
    return None if a.dtype == b.dtype else f"the operands' dtypes {a.dtype} and {b.dtype} differ"


def _reduce(one: ReduceTile, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    if one.source not in buffers or one.target not in buffers:
        return "an operand is no buffer"
    rows = buffers[one.source].shape[:1]
    return None if rows == buffers[one.target].shape else f"reduces {buffers[one.source].shape} into {buffers[one.target].shape}"


def _parallel(one: Parallel, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    extents = tuple(extent for _, extent in one.indices)
    for store in one.body:
        problem = _names(store, buffers, parameters)
        if problem:
            return problem
        target = buffers.get(store.target)
        if target is not None and target.shape != extents:
            return f"sweeps {extents} of `{target.name}`, which is {target.shape}"
    return None


def _names(store: Store, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    for read in (Load(store.target, *store.indices), *sorted(store.expr.atoms(Load), key=str)):
        dimensions = len(buffers[read.name].shape) if read.name in buffers else parameters.get(read.name)
        if dimensions is None:
            return f"`{read.name}` is neither a buffer nor a parameter"
        if dimensions != len(read.indices) and read.name in buffers:
            return f"`{read}` names {len(read.indices)} of {dimensions} dimensions"
    return None


def _loop(one: Loop, buffers: Mapping[str, Buffer], parameters: Mapping[str, int]) -> str | None:
    return None if one.stages >= 0 else "has a negative pipeline depth"
