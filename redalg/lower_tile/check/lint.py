"""Programs that no GPU runs correctly under their plan: refused before they are emitted, with the change to make.

Rules for every program stand in `verify`; rules for the faults of one version of TileLang, in `workarounds.rules`.

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
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.subject import Subject
from redalg.lower_tile.workarounds import rules
from redalg.strategies.plan import Plan


def lint(program: TileProgram, plan: Plan) -> None:
    """Raise `PlanError` for the first rule that a kernel breaks, with the change to make."""
    roles = {one.name: one.role for one in program.parameters}
    for kernel in program.kernels:
        for rule in RULES:
            for problem in rule(Subject(kernel, kernel.plan or plan, roles)):
                raise PlanError(f"plan `{kernel.plan or plan}`, kernel `{kernel.title}`: {problem}")


def accumulators(subject: Subject) -> Iterator[str]:
    """Refuse contractions that sum in 16 bits: float32, float64 and int32 are allowed."""
    for contract in subject.each(Contract):
        dtype = subject.buffers[contract.c].dtype
        if dtype not in ("float32", "float64", "int32"):
            yield f"`{contract.c}` sums a contraction in {dtype}. Sum in float32."


def matrix_units(subject: Subject) -> Iterator[str]:
    """Refuse shapes that tensor cores do not take; every warp has rows (or columns) of its own."""
    if not subject.plan.tensor_cores:
        return
    for contract in subject.each(Contract):
        (rows, columns), depth = subject.buffers[contract.c].shape, subject.buffers[contract.a].shape[1]
        least, least_columns = rows_of_threads(subject, contract), 16
        if subject.plan.warps == "columns":
            least, least_columns = 16, max(16, subject.plan.threads // 4)
        if rows % least or columns % least_columns or depth % 16:
            yield (
                f"`{contract}` multiplies {rows} x {depth} by {depth} x {columns}; {subject.plan.threads} threads take "
                f"a multiple of {least} rows, of {least_columns} columns, and of 16 deep. Use such tiles."
            )


def rows_of_threads(subject: Subject, contract: Contract) -> int:
    """The rows that all warps take together. Warpgroups may share out columns if operands lie in shared memory."""
    columns, groups = subject.buffers[contract.c].shape[1], subject.plan.threads // rules.WARPGROUP
    apart = (
        subject.plan.device.wgmma
        and subject.scope(contract.a) == "shared"
        and groups > 1
        and columns % (16 * groups) == 0
    )
    return rules.GROUP_ROWS if apart else subject.plan.threads // 2


def last_block(subject: Subject) -> Iterator[str]:
    """Refuse a `Last` that does not end the kernel, or that misses blocks, or whose own arrays are named before it."""
    lasts = list(subject.each(Last))
    if not lasts:
        return
    *before, last = subject.kernel.body
    if len(lasts) > 1 or last is not lasts[0]:
        yield f"`{head(lasts[0])}` is not the kernel's last statement, alone. Put it there."
        return
    here = {variable for index in lasts[0].place for variable in index.free_symbols}
    together = prod(extent for variable, extent in subject.kernel.grid if variable not in here)
    if lasts[0].parts != together:
        yield f"`{head(lasts[0])}` waits for {lasts[0].parts} of the {together} blocks of a tile. Count them all."
    stores, reads = stores_and_reads(tuple(before))
    for name in sorted(stores | reads):
        role = subject.roles.get(name)
        part = role == "workspace" and name in stores & reads  # what an earlier kernel wrote is read as an input is
        if role == "counter" or (role == "output" and name in stores) or part:
            yield f"the {role} `{name}` is for the last block alone, and is named before `{head(lasts[0])}`."


def head(last: Last) -> str:
    """The first line of the statement's text."""
    return str(last).splitlines()[0]


def stores_and_reads(body: tuple[Statement, ...]) -> tuple[set[str], set[str]]:
    """The names that statements store to, and the names that they read."""
    stores, reads = set[str](), {load.name for one in body for expr in expressions(one) for load in expr.atoms(Load)}
    for statement in nested_statements(body):
        if isinstance(statement, Parallel):
            stores |= {store.target for store in statement.body}
        if isinstance(statement, Copy):
            stores |= {statement.target.name} if isinstance(statement.target, Region) else set()
            reads |= {statement.source.name} if isinstance(statement.source, Region) else set()
    return stores, reads


RULES: tuple[Callable[[Subject], Iterator[str]], ...] = (
    rules.registers,
    rules.prefetch_overwrites,
    rules.operand_copies,
    rules.trip_count,
    rules.late,
    rules.quotients,
    rules.shared_fills,
    accumulators,
    matrix_units,
    rules.few_columns,
    last_block,
    rules.reduced_width,
)
