"""TileProgram -> TileLang source: a file that a person would have written, and that runs without redalg."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from sympy import And, Expr, Mod, Mul, S, floor
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.display import Displayed
from redalg.expression.dtypes import DTYPES, is_eight_bits, is_emulated
from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.program import (
    Bind,
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
    live_names,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Instruction, Load
from redalg.lower_tile.text.bindings import (
    BEGIN,
    END,
    IN_ROWS,
    MACROS,
    SIDE_BY_SIDE,
    TURNED,
    Used,
    binding,
    stage_binding,
    stage_suffix,
)
from redalg.lower_tile.text.expr_printer import ROUNDED_ONCE, Printer, dtypes_of
from redalg.lower_tile.text.header_functions import HELPERS
from redalg.lower_tile.text.launch import launch, shape_text, turn_of
from redalg.lower_tile.text.together import indent_lines, lines_together
from redalg.lower_tile.text.wrap import break_long_lines, wrap_lines
from redalg.strategies.device import LINE_BYTES
from redalg.strategies.plan import Plan


@final
@dataclass(frozen=True, repr=False)
class Source(Displayed):
    """The text of a program, with the data for a call: the parameters in order, and the plan it was made under."""

    text: str
    program: TileProgram
    plan: Plan

    def __str__(self) -> str:
        return self.text


def emit(program: TileProgram, plan: Plan, header: str, check: str) -> Source:
    """The whole file: header, binding, kernels, `compile`, and `check` (a main that tests itself)."""
    target = plan.device.target
    function = wrap_lines(Emitter(program).function())
    rounds = tuple(dtype for dtype in DTYPES if is_emulated(dtype) and f"{dtype}(" in function)
    used = Used(
        constants="constant(" in function or " rate(" in function or (bool(rounds) and target == "c"),
        once=any(f"{one}(" in function for one in ROUNDED_ONCE.values()),
        instructions=instructions_of(program),
        rounds=rounds,
        multiply="multiply(" in function,
        turned=f"{TURNED}(" in function,
        add="add_transposed(" in function,
        parts=any(one in function for one in ("mantissa(", "scaled(", "powered(")),
        spread=" = spread(" in function,
        grouped=" = grouped(" in function,
        side_by_side=f"{SIDE_BY_SIDE}(" in function,
        in_rows=f"{IN_ROWS}(" in function,
        exact=not all(one.tensor_cores for one in staged_plans(program)),
        arrive=re.search(r"\barrive\(", function) is not None,
        joins="join_best(" in function,
        out_of_order=reads_out_of_order(program),
    )
    own = [of_stage(one, program.compute, number, function) for number, one in enumerate(staged_plans(program), 1)]
    functions = check.startswith("def ")  # which need torch before `main` does
    imports = "import tilelang\nimport tilelang.language as T" + "\nimport torch" * functions
    parts = [
        f'"""{header.strip()}\n"""',
        imports,
        BEGIN.format(target=target)
        + "\n"
        + binding(plan, program.compute, used)
        + break_long_lines("".join(own))
        + END,
        "\n" + "".join(text for call, text in HELPERS.items() if call in function) + function,
        COMPILE,
        "\n" * functions + check.strip(),
    ]
    return Source("\n\n".join(part for part in parts if part) + "\n", program, plan)


def instructions_of(program: TileProgram) -> tuple[str, ...]:
    """The names of the instructions that a program has."""
    statements = (statement for kernel in program.kernels for statement in nested_statements(kernel.body))
    read = (expr for statement in statements for expr in expressions(statement))
    return tuple(sorted({node.name for expr in read for node in expr.atoms(Instruction)}))


def reads_out_of_order(program: TileProgram) -> bool:
    """Tell if a program reads an input backwards, or at places that it computes by more than + and *."""
    stores = (store for kernel in program.kernels for loop in nested_statements(kernel.body)
              if isinstance(loop, Parallel) for store in loop.body)  # fmt: skip
    inputs = {one.name for one in program.parameters}
    reads = {read for store in stores for expr in (store.expr, store.guard) for read in expr.atoms(Load)}
    return any(read.name in inputs and any(map(is_out_of_order, read.indices)) for read in reads)


def is_out_of_order(index: Expr) -> bool:
    """Tell if an index falls where a place rises, or is no sum of multiples."""
    return index.has(floor, Mod, Load) or any(index.coeff(one).is_negative for one in index.free_symbols)


COMPILE = '''
def compiled():
    """The kernel, compiled; call it with the parameters in order, as preallocated torch tensors."""
    return tilelang.compile(main, **TARGET)
'''.rstrip()


@final
class Emitter:
    """The writer of one program's function."""

    def __init__(self, program: TileProgram) -> None:
        self.program = program
        self.printer = Printer(dtypes_of(program), program.compute)
        self.suffix = ""

    def function(self) -> str:
        """The prim_func with its kernels."""
        names = ", ".join(map(str, self.program.sizes))
        lines = [f'{names} = T.dynamic("{names}")', "", ""] if names else []
        lines += ["@T.prim_func", "def main("]
        lines += [f"    {self.parameter(one)},{comment(one)}" for one in self.program.parameters]
        lines.append("):")
        if self.program.together is not None:
            return "\n".join((*lines, *indent_lines(lines_together(self.program, self.printer, self.body))))
        for kernel in self.program.kernels:
            lines += indent_lines(self.kernel(kernel))
        return "\n".join(lines)

    def parameter(self, parameter: Parameter) -> str:
        """The text `name: type` of a parameter."""
        shape = shape_text(
            tuple(each if isinstance(each, int) else self.printer.integer(each) for each in parameter.shape)
        )
        kind = f"T.{parameter.dtype}" if parameter.role == "scalar" else f'T.Tensor({shape}, "{parameter.dtype}")'
        return f"{parameter.name}: {kind}"

    def kernel(self, kernel: Kernel) -> list[str]:
        """The lines of one launch."""
        self.enter(kernel)
        lines, unfold = launch(kernel, self.printer, f"launch{self.suffix}")
        body = [] if kernel.blocks else unfold
        body += self.buffers(kernel)
        if kernel.beside > 1:
            body.append(f"T.annotate_min_blocks_per_sm({kernel.beside})")
        if kernel.registers:
            body += ["T.annotate_producer_reg_dealloc()", f"T.annotate_consumer_reg_alloc({kernel.registers})"]
        if kernel.cluster > 1:
            tables = dict.fromkeys(one.table for one in kernel.body if isinstance(one, Exchange))
            body += [f"T.clear({one})  # other blocks store there: no other buffer may lie there" for one in tables]
            body.append("T.cluster_arrive()")
        if names := parameters_of_other_blocks(kernel, self.program.parameters):
            body.append(f"T.annotate_restrict_buffers({', '.join(names)})  # which other blocks change meanwhile")
        inner = [line for statement in kernel.body for line in self.statement(statement)]
        if kernel.blocks:
            points = self.printer.integer(Mul(*(extent for _, extent in kernel.grid)))
            turns = f"for {turn_of(kernel)} in T.serial(T.ceildiv({points} - worker, {kernel.blocks})):"
            inner = [turns, *indent_lines((*unfold, *inner))]
        return [*lines, *indent_lines((*body, *inner))]

    def body(self, kernel: Kernel) -> list[str]:
        """The buffers and the statements of a kernel that shares its launch."""
        self.enter(kernel)
        return [*self.buffers(kernel), *(line for statement in kernel.body for line in self.statement(statement))]

    def enter(self, kernel: Kernel) -> None:
        """Write a kernel from here on: by its buffers, and by the binding of its own plan."""
        self.shapes = {one.name: one.shape for one in kernel.buffers}
        plans = staged_plans(self.program)
        self.suffix = stage_suffix(plans.index(kernel.plan) + 1) if kernel.plan is not None else ""

    def buffers(self, kernel: Kernel) -> list[str]:
        """The lines that allocate a kernel's buffers."""
        lines = list[str]()
        for buffer in kernel.buffers:
            if buffer.scope == "element":  # a name in a loop
                continue
            scope = "spread" if kernel.spread and buffer.scope == "fragment" else buffer.scope
            scope = "grouped" if buffer.grouped else scope
            scope += self.suffix if scope != "shared" else ""
            note = f"  # {buffer.note}" if buffer.note else ""
            lines.append(f'{buffer.name} = {scope}({shape_text(buffer.shape)}, "{buffer.dtype}"){note}')
        return lines

    def statement(self, statement: Statement) -> list[str]:
        """A statement's lines."""
        if isinstance(statement, Bind):
            value = self.bound(statement)
            in_register = f'T.alloc_var("{statement.dtype}", init={value})'
            return [f"{statement.name} = {in_register if statement.in_register else value}"]
        if isinstance(statement, Copy):
            unit = ", disable_tma=True" * statement.by_threads + ', prefer_instruction="tma"' * statement.in_bulk
            sides = (self.side(one, statement.count) for one in (statement.source, statement.target))
            return [f"T.copy({', '.join(sides)}{unit})"]
        if isinstance(statement, Keep):
            return self.keep(statement.source)
        if isinstance(statement, Exchange):
            return self.exchange(statement)
        if isinstance(statement, Fill):
            return [
                (
                    f"T.fill({statement.buffer}, "
                    f"{self.printer.stored_value(statement.value, self.printer.dtypes[statement.buffer])})"
                )
            ]
        if isinstance(statement, Contract):
            rows, columns = self.shapes[statement.c]
            depth = self.shapes[statement.a][0 if statement.turned else 1]
            name = (TURNED if statement.turned else MACROS[statement.transposed, statement.clear]) + self.suffix
            call = f"{name}({statement.a}, {statement.b}, {statement.c}, {rows}, {columns}, {depth})"
            return self.under_guard(statement.guard, [call])
        if isinstance(statement, ReduceTile):
            how = f"dim={statement.dim}" + ", clear=False" * (not statement.clear)
            how += f", batch={statement.together}" if statement.together > 1 else ""
            return [f"T.reduce_{statement.kind}({statement.source}, {statement.target}, {how})"]
        if isinstance(statement, JoinBest):
            sizes = (self.shapes[one][-1] for one in (statement.best, statement.rank))
            return [f"join_best({statement.best}, {statement.rank}, {', '.join(map(str, sizes))})"]
        if isinstance(statement, Last):
            return self.last(statement)
        return self.loop(statement) if isinstance(statement, Loop) else self.parallel(statement)

    def exchange(self, exchange: Exchange) -> list[str]:
        """The lines that store a block's part of a table in those of the others, and wait for theirs."""
        cells = ", ".join(f"0:{extent}" for extent in self.shapes[exchange.source][1:])
        pairs = [f"{exchange.source}[{row}, {cells}], {exchange.table}[{row}, {exchange.part}, {cells}]"
                 for row in exchange.rows]  # fmt: skip
        copies = [f"    T.copy_cluster({pair}, dst_block=block)" for pair in pairs]
        begun = ["T.cluster_wait()"] * exchange.is_first
        return [*begun, f"for block in T.unroll({exchange.blocks}):", *copies, "T.cluster_sync()"]

    def keep(self, row: Region) -> list[str]:
        """A loop over the lines of a row, or of a part of one."""
        *others, (first, length) = (one if isinstance(one, tuple) else (one, 1) for one in row.place)
        step = LINE_BYTES // DTYPES[self.printer.dtypes[row.name]].bytes
        ahead = f"{self.printer.integer(first)} + " if first != 0 else ""
        place = ", ".join((*(self.printer.integer(start) for start, _ in others), f"{ahead}line * {step}"))
        call = f"keep_in_l2(T.address_of({row.name}[{place}]))"
        return [f"for line in parallel({length // step}):", f"    {call}"]

    def bound(self, bind: Bind) -> str:
        """The value of a bound number. An integer is computed in the width of what it reads, then cut to its range."""
        if "int" not in bind.dtype:
            return self.printer.load(bind.value) if isinstance(bind.value, Load) else self.printer.number(bind.value)
        text = self.printer.integer(bind.value)
        wide = any(self.printer.dtypes[read.name] != bind.dtype for read in bind.value.atoms(Load))
        return f'T.cast({text}, "{bind.dtype}")' if wide else text

    def side(self, side: Region | str, count: Expr | None = None) -> str:
        """The text of a buffer, or of a part of a parameter, of `count` elements of a row if not of all."""
        if isinstance(side, str):
            return side
        show = self.printer.integer
        pairs = ((p[0], p[0] + (count or p[1])) if isinstance(p, tuple) else (p,) for p in side.place)
        spans = [":".join(map(show, pair)) for pair in pairs]
        return f"{side.name}[{', '.join(spans)}]"

    def loop(self, loop: Loop) -> list[str]:
        """The lines of an ordered loop."""
        span = self.printer.integer(loop.stop)
        span = span if loop.start == 0 else f"{self.printer.integer(loop.start)}, {span}"
        kind = f"T.Pipelined({span}, num_stages={loop.stages})" if loop.pipelined else f"T.serial({span})"
        kind = f"T.unroll({span}, unroll_factor={loop.unrolled})" if loop.unrolled > 1 else kind
        inner = [line for statement in loop.body for line in self.statement(statement)]
        return [f"for {loop.variable} in {kind}:", *("    " + line for line in inner)]

    def last(self, last: Last) -> list[str]:
        """The lines that count the block, and the lines that the last block runs."""
        place = shape_text(tuple(map(self.printer.integer, last.place)))
        inner = [line for statement in last.body for line in self.statement(statement)]
        lines = [f"arrive({last.counter}, {place}, {last.parts}, {last.flag})", f"if {last.flag}[0] != 0:"]
        return [*lines, *("    " + line for line in inner)]

    def parallel(self, loop: Parallel) -> list[str]:
        """The lines of an elementwise loop."""
        variables = ", ".join(str(name) for name, _ in loop.indices)
        extents = ", ".join(str(extent) for _, extent in loop.indices)
        if loop.alone:
            variables, extents = f"{variables}, only", f"{extents}, 1"
        inner = [line for _, lines in self.stores(loop) for line in lines]
        each = f"{SIDE_BY_SIDE}{self.suffix}({extents}, {loop.adjacent})" if loop.adjacent else f"parallel({extents})"
        each = f"{IN_ROWS}{self.suffix}({extents}, {loop.adjacent}, {loop.lanes})" if loop.lanes else each
        lines = [f"for {variables} in {each}:", *("    " + line for line in inner)]
        return self.under_guard(loop.guard, lines)

    def stores(self, loop: Parallel) -> Iterator[tuple[Store, list[str]]]:
        """The stores of an elementwise loop, each with its lines."""
        names = dict[Basic, Expr]()
        for before, store in zip((None, *loop.body), loop.body, strict=False):
            lines = self.store(store, names)
            yield store, lines[1:] if before is not None and under_one_guard(before, store) else lines
            names = live_names(store, names)

    def under_guard(self, guard: Boolean, lines: list[str]) -> list[str]:
        """Lines that run where a guard of the block holds: one `if` for each part, since TileLang 0.1.15 may find that
        a conjunction differs from thread to thread."""
        for part in reversed(guard.args if isinstance(guard, And) else (guard,)):
            if part != S.true:
                lines = [f"if {self.printer.condition(part)}:", *("    " + line for line in lines)]
        return lines

    def store(self, store: Store, symbols: Mapping[Basic, Expr] = MappingProxyType({})) -> list[str]:
        """The lines of one assignment, with its guard if any, after the subexpressions that it computes once.

        They stand before the guard: within a guard TileLang inlines them. `symbols` are the names of what stores before
        it computed.
        """
        once, names = list[str](), {node: self.printer.integer(name) for node, name in symbols.items()}
        printer = Printer(self.printer.dtypes, self.printer.compute, names)
        for name, node in store.once:
            show = printer.condition if isinstance(node, Boolean) else printer.number
            once.append(f"{name} = {printer.integer(node) if printer.is_integer(node) else show(node)}")
            printer = printer.with_name(node, name)
        target = printer.load(Load(store.target, *store.indices))
        dtype = self.printer.dtypes[store.target]
        value = printer.stored_value(store.expr, dtype, Load(store.target, *store.indices))
        line = f"{target} = " + (f'T.cast({value}, "{dtype}")' if is_eight_bits(dtype) else value)
        if store.guard == S.true:
            return [*once, line]
        return [*once, f"if {self.printer.condition(store.guard)}:", f"    {line}"]


def under_one_guard(first: Store, second: Store) -> bool:
    """Tell if a store and the next one are guarded by one condition, which the first leaves as it is."""
    overwrites = any(read.name == first.target for read in first.guard.atoms(Load))
    return first.guard == second.guard != S.true and not overwrites and not second.once


def staged_plans(program: TileProgram) -> tuple[Plan, ...]:
    """The plans of stages beside the loop's own, each once."""
    return tuple(dict.fromkeys(kernel.plan for kernel in program.kernels if kernel.plan is not None))


def of_stage(plan: Plan, compute: str, number: int, function: str) -> str:
    """The binding of a stage's own plan, under names of its own."""
    suffix = stage_suffix(number)
    used = Used(
        multiply=f"multiply{suffix}(" in function,
        turned=f"{TURNED}{suffix}(" in function,
        add=f"add_transposed{suffix}(" in function,
        spread=f" = spread{suffix}(" in function,
        grouped=f" = grouped{suffix}(" in function,
        side_by_side=f"{SIDE_BY_SIDE}{suffix}(" in function,
        in_rows=f"{IN_ROWS}{suffix}(" in function,
    )
    return stage_binding(plan, compute, used, suffix)


def parameters_of_other_blocks(kernel: Kernel, parameters: tuple[Parameter, ...]) -> list[str]:
    """The parameters that a kernel reads after other blocks wrote them: `restrict` would promise that none does."""
    last = [one for one in kernel.body if isinstance(one, Last)]
    names = {load.name for one in last for expr in expressions(one) for load in expr.atoms(Load)}
    names |= {one.counter for one in last}
    return [one.name for one in parameters if one.role in ("workspace", "counter") and one.name in names]


def comment(parameter: Parameter) -> str:
    """The comment with a parameter's role; empty for an input."""
    return "" if parameter.role == "input" else f"  # {parameter.role}"
