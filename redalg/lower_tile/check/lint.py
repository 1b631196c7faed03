"""Programs that no GPU runs rightly under their plan: refused before they are emitted, with what to change.

What is true of every program is in `verify`; what one version of TileLang gets wrong is in `workarounds.rules`.

accumulators         contractions sum in float32 or float64
matrix units         rows are a multiple of 16 for every warp (of 64 for all, where warpgroups share out the columns of
                     operands in shared memory), columns and depth of 16
last block           what several blocks leave to the last of them comes at the kernel's end, for all of its threads;
                     every block of a tile comes to the tile's place, once; none but the last writes outputs, or reads
                     what the kernel stores
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from redalg.errors import PlanError
from redalg.lower_tile.ir.program import (
    Contract,
    Copy,
    Last,
    Parallel,
    Region,
    Statement,
    TileProgram,
    expressions,
    statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.subject import Subject
from redalg.lower_tile.workarounds import rules
from redalg.strategies.plan import Plan


def lint(program: TileProgram, plan: Plan) -> None:
    """Raise `PlanError` for the first rule that a kernel breaks, with what to change."""
    roles = {one.name: one.role for one in program.parameters}
    for kernel in program.kernels:
        for rule in RULES:
            for said in rule(Subject(kernel, kernel.plan or plan, roles)):
                raise PlanError(f"plan `{kernel.plan or plan}`, kernel `{kernel.title}`: {said}")


def accumulators(one: Subject) -> Iterator[str]:
    """Sums are not in 16 bits."""
    for contract in one.each(Contract):
        dtype = one.buffers[contract.c].dtype
        if dtype not in ("float32", "float64", "int32"):
            yield f"`{contract.c}` sums a contraction in {dtype}. Sum in float32."


def matrix_units(one: Subject) -> Iterator[str]:
    """Shapes that tensor cores take, every warp with rows (or columns) of its own."""
    if not one.plan.tensor_cores:
        return
    for contract in one.each(Contract):
        (rows, columns), depth = one.buffers[contract.c].shape, one.buffers[contract.a].shape[1]
        least, least_columns = rows_of_threads(one, contract), 16
        if one.plan.warps == "columns":
            least, least_columns = 16, max(16, one.plan.threads // 4)
        if rows % least or columns % least_columns or depth % 16:
            yield (
                f"`{contract}` multiplies {rows} x {depth} by {depth} x {columns}; {one.plan.threads} threads take a "
                f"multiple of {least} rows, of {least_columns} columns, and of 16 deep. Use such tiles."
            )


def rows_of_threads(one: Subject, contract: Contract) -> int:
    """The rows that all warps take together; warpgroups whose operands lie in shared memory may share out columns."""
    columns, groups = one.buffers[contract.c].shape[1], one.plan.threads // rules.WARPGROUP
    apart = one.plan.device.wgmma and one.scope(contract.a) == "shared" and groups > 1 and columns % (16 * groups) == 0
    return rules.GROUP_ROWS if apart else one.plan.threads // 2


def last_block(one: Subject) -> Iterator[str]:
    """Blocks that leave their results to the last of them do so together, and touch nothing of its own."""
    found = list(one.each(Last))
    if not found:
        return
    *before, last = one.kernel.body
    if len(found) > 1 or last is not found[0]:
        yield f"`{head(found[0])}` is not the kernel's last statement, alone. Put it there."
        return
    here = {variable for index in found[0].place for variable in index.free_symbols}
    together = prod(extent for variable, extent in one.kernel.grid if variable not in here)
    if found[0].parts != together:
        yield f"`{head(found[0])}` waits for {found[0].parts} of the {together} blocks of a tile. Count them all."
    stored, read = named_outside(tuple(before))
    for name in sorted(stored | read):
        role = one.roles.get(name)
        part = role == "workspace" and name in stored & read  # what an earlier kernel wrote is read as an input is
        if role == "counter" or (role == "output" and name in stored) or part:
            yield f"the {role} `{name}` is for the last block alone, and is named before `{head(found[0])}`."


def head(one: Last) -> str:
    """The first line of what it prints."""
    return str(one).splitlines()[0]


def named_outside(body: tuple[Statement, ...]) -> tuple[set[str], set[str]]:
    """What statements store to, and what they read."""
    stored, read = set[str](), {load.name for one in body for expr in expressions(one) for load in expr.atoms(Load)}
    for one in statements(body):
        if isinstance(one, Parallel):
            stored |= {store.target for store in one.body}
        if isinstance(one, Copy):
            stored |= {one.target.name} if isinstance(one.target, Region) else set()
            read |= {one.source.name} if isinstance(one.source, Region) else set()
    return stored, read


RULES: tuple[Callable[[Subject], Iterator[str]], ...] = (
    rules.registers,
    rules.loaded_ahead,
    rules.turned_to_shared,
    rules.trip_count,
    rules.late,
    rules.quotients,
    rules.filled,
    accumulators,
    matrix_units,
    rules.few_columns,
    last_block,
    rules.reduced_width,
)
