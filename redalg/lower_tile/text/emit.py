"""TileProgram -> TileLang source: a file that a person would have written, and that runs without redalg."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from sympy import Mod, Mul, S, Symbol, floor, sympify

from redalg.expression.dtypes import DTYPES, is_eight_bits, is_emulated
from redalg.lower_tile.ir.program import (
    Bind,
    Contract,
    Copy,
    Fill,
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
    statements,
)
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.text.bindings import BEGIN, END, MACROS, Used, binding, numbered, stage_suffix
from redalg.lower_tile.text.expr_printer import Printer, dtypes_of
from redalg.strategies.plan import Plan
from redalg.strategies.varying import GRID_LIMIT

DIMENSIONS = 3
"""Dimensions of a launch."""


@final
@dataclass(frozen=True)
class Source:
    """The text of a program, and what calls it: parameters in order, and the plan it was made under."""

    text: str
    program: TileProgram
    plan: Plan

    def __str__(self) -> str:
        return self.text


def emit(program: TileProgram, plan: Plan, header: str, check: str) -> Source:
    """The whole file: header, binding, kernels, `compile`, and `check` (a main that tests itself)."""
    target = plan.device.target
    function = _Emitter(program).function()
    rounds = tuple(dtype for dtype in DTYPES if is_emulated(dtype) and f"{dtype}(" in function)
    used = Used(
        constants="constant(" in function or (bool(rounds) and target == "c"),
        rounds=rounds,
        multiply="multiply(" in function,
        add="add_transposed(" in function,
        parts=any(one in function for one in ("mantissa(", "scaled(", "powered(")),
        spread=" = spread(" in function,
        exact=not all(one.tensor_cores for one in staged_plans(program)),
        arrive="arrive(" in function,
        gathers=gathers(program),
    )
    own = [of_stage(one, program.compute, number, function) for number, one in enumerate(staged_plans(program), 1)]
    functions = check.startswith("def ")  # which need torch before `main` does
    imports = "import tilelang\nimport tilelang.language as T" + "\nimport torch" * functions
    parts = [
        f'"""{header.strip()}\n"""',
        imports,
        BEGIN.format(target=target) + "\n" + binding(plan, program.compute, used) + "".join(own) + END,
        "\n" + "".join(text for call, text in HELPERS.items() if call in function) + function,
        COMPILE,
        "\n" * functions + check.strip(),
    ]
    return Source("\n\n".join(part for part in parts if part) + "\n", program, plan)


def gathers(program: TileProgram) -> bool:
    """Whether a program reads an input at places that it computes otherwise than by + and *."""
    stores = (store for kernel in program.kernels for one in statements(kernel.body) if isinstance(one, Parallel)
              for store in one.body)  # fmt: skip
    inputs = {one.name for one in program.parameters}
    reads = {read for store in stores for expr in (store.expr, store.guard) for read in expr.atoms(Load)}
    return any(read.name in inputs and any(one.has(floor, Mod, Load) for one in read.indices) for read in reads)


RANKED = """
def ranked(x, n):  # an integer that orders as x (NaN first, zeros equal), then by the lower n: x's bits, then not n
    bits = T.reinterpret(x, "int32")
    order = T.if_then_else(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = T.if_then_else((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFFFFF, T.if_then_else(order == -1, 0, order))
    return (T.cast(order, "int64") << 32) | (T.int64(0xFFFFFFFF) - T.cast(n, "int64"))


def ranked_value(rank):  # x; -inf of no element
    order = T.cast(rank >> 32, "int32")
    bits = T.if_then_else(order < 0, order ^ 0x7FFFFFFF, order)
    return T.reinterpret(T.if_then_else(rank == T.min_value("int64"), T.int32(-0x800000), bits), "float32")


def ranked_index(rank):  # n; -1 of no element
    rest = rank & T.int64(0xFFFFFFFF)
    return T.if_then_else(rest == 0, T.int64(-1), T.int64(0xFFFFFFFF) - rest)


""".lstrip()

ORDERED = """
def ordered(x):  # an integer that orders as x (NaN first, zeros equal): its bits, those of numbers below 0 turned round
    bits = T.reinterpret(x, "int64")
    order = T.if_then_else(bits < 0, bits ^ T.max_value("int64"), bits)
    most = T.int64(0x7FF0000000000000)
    order = T.if_then_else(order == T.int64(-1), T.int64(0), order)
    return T.if_then_else((bits & T.max_value("int64")) > most, T.max_value("int64"), order)


def ordered_value(order):  # x; -inf of no element
    bits = T.if_then_else(order < 0, order ^ T.max_value("int64"), order)
    least = T.reinterpret(T.int64(-0x10000000000000), "float64")
    return T.if_then_else(order == T.min_value("int64"), least, T.reinterpret(bits, "float64"))


""".lstrip()

MODULO = """
def modulo(x, y):  # the remainder that has the sign of y
    left = T.truncmod(x, y)
    return T.if_then_else(((left < 0) & (y > 0)) | ((left > 0) & (y < 0)), left + y, left)


""".lstrip()

POWERED = """
def powered(m, e, h, n):  # m * 2^e * h^n, in double as large exponents cancel
    size, times = T.max(h, -h), T.cast(n, "float64")
    usual = (size > 0.0) & (size < T.infinity(h.dtype))
    doublings = T.log2(T.cast(T.if_then_else(usual, size, 1.0), "float64")) * times + T.cast(e, "float64")
    made = T.cast(2.0 * T.cast(m, "float64") * T.exp2(doublings - 1.0), h.dtype)  # of m under 1, so that 2^1024 serves
    odd = (h < 0.0) & (times != 2.0 * T.floor(times / 2.0))
    return T.if_then_else(usual, T.if_then_else(odd, -made, made), scaled(m, e) * T.pow(h, T.cast(n, h.dtype)))


""".lstrip()

HELPERS = {"ranked(": RANKED, "ordered(": ORDERED, "modulo(": MODULO, "powered(": POWERED}
"""Functions of the kernel's text, by the call that needs them."""

COMPILE = '''
def compiled():
    """The kernel, compiled; call it with the parameters in order, as preallocated torch tensors."""
    return tilelang.compile(main, **TARGET)
'''.rstrip()


@final
class _Emitter:
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
        for kernel in self.program.kernels:
            lines += ["    " + line for line in self.kernel(kernel)]
        return "\n".join(lines)

    def parameter(self, one: Parameter) -> str:
        """`name: type`."""
        shown = shape(tuple(each if isinstance(each, int) else self.printer.integer(each) for each in one.shape))
        kind = f"T.{one.dtype}" if one.role == "scalar" else f'T.Tensor({shown}, "{one.dtype}")'
        return f"{one.name}: {kind}"

    def kernel(self, kernel: Kernel) -> list[str]:
        """One launch."""
        self.shapes = {one.name: one.shape for one in kernel.buffers}
        plans = staged_plans(self.program)
        self.suffix = stage_suffix(plans.index(kernel.plan) + 1) if kernel.plan is not None else ""
        lines, unfolding = launch(kernel, self.printer, f"launch{self.suffix}")
        body = [] if kernel.blocks else unfolding
        for one in kernel.buffers:
            scope = "spread" if kernel.spread and one.scope == "fragment" else one.scope
            scope += self.suffix if scope != "shared" else ""
            body.append(
                f'{one.name} = {scope}({shape(one.shape)}, "{one.dtype}")' + (f"  # {one.note}" if one.note else "")
            )
        if written := left_to_others(kernel, self.program.parameters):
            body.append(f"T.annotate_restrict_buffers({', '.join(written)})  # which other blocks change meanwhile")
        inner = [line for statement in kernel.body for line in self.statement(statement)]
        if kernel.blocks:
            points = self.printer.integer(Mul(*(extent for _, extent in kernel.grid)))
            turns = f"for turn in T.serial(T.ceildiv({points} - worker, {kernel.blocks})):"
            inner = [turns, *("    " + line for line in (*unfolding, *inner))]
        return [*lines, *("    " + line for line in (*body, *inner))]

    def statement(self, one: Statement) -> list[str]:
        """A statement's lines."""
        if isinstance(one, Bind):
            return [f"{one.name} = {self.bound(one)}"]
        if isinstance(one, Copy):
            unit = ", disable_tma=True" * one.by_threads
            return [f"T.copy({self.side(one.source)}, {self.side(one.target)}{unit})"]
        if isinstance(one, Fill):
            return [f"T.fill({one.buffer}, {self.printer.stored(one.value, self.printer.dtypes[one.buffer])})"]
        if isinstance(one, Contract):
            rows, columns = self.shapes[one.c]
            depth = self.shapes[one.a][1]
            name = MACROS[one.transposed, one.clear] + self.suffix
            return [f"{name}({one.a}, {one.b}, {one.c}, {rows}, {columns}, {depth})"]
        if isinstance(one, ReduceTile):
            keep = "" if one.clear else ", clear=False"
            return [f"T.reduce_{one.kind}({one.source}, {one.target}, dim=1{keep})"]
        if isinstance(one, Last):
            return self.last(one)
        return self.loop(one) if isinstance(one, Loop) else self.parallel(one)

    def bound(self, one: Bind) -> str:
        """A number's own value: an integer computed in the width of what it reads, then cut to its range."""
        if "int" not in one.dtype:
            return self.printer.load(one.value) if isinstance(one.value, Load) else self.printer.number(one.value)
        text = self.printer.integer(one.value)
        wide = any(self.printer.dtypes[read.name] != one.dtype for read in one.value.atoms(Load))
        return f'T.cast({text}, "{one.dtype}")' if wide else text

    def side(self, one: Region | str) -> str:
        """A buffer, or part of a parameter."""
        if isinstance(one, str):
            return one
        show = self.printer.integer
        spans = [f"{show(p[0])}:{show(p[0] + p[1])}" if isinstance(p, tuple) else show(p) for p in one.place]
        return f"{one.name}[{', '.join(spans)}]"

    def loop(self, one: Loop) -> list[str]:
        """An ordered loop."""
        span = self.printer.integer(one.stop)
        span = span if one.start == 0 else f"{self.printer.integer(one.start)}, {span}"
        kind = f"T.Pipelined({span}, num_stages={one.stages})" if one.pipelined else f"T.serial({span})"
        kind = f"T.unroll({span}, unroll_factor={one.unrolled})" if one.unrolled > 1 else kind
        inner = [line for statement in one.body for line in self.statement(statement)]
        return [f"for {one.variable} in {kind}:", *("    " + line for line in inner)]

    def last(self, one: Last) -> list[str]:
        """Coming to a counter, and what the last block does."""
        place = shape(tuple(map(self.printer.integer, one.place)))
        inner = [line for statement in one.body for line in self.statement(statement)]
        lines = [f"arrive({one.counter}, {place}, {one.parts}, {one.flag})", f"if {one.flag}[0] != 0:"]
        return [*lines, *("    " + line for line in inner)]

    def parallel(self, one: Parallel) -> list[str]:
        """An elementwise loop."""
        names = ", ".join(str(name) for name, _ in one.indices)
        extents = ", ".join(str(extent) for _, extent in one.indices)
        inner = [line for store in one.body for line in self.store(store)]
        return [f"for {names} in parallel({extents}):", *("    " + line for line in inner)]

    def store(self, one: Store) -> list[str]:
        """One assignment, guarded where it must be, after what it computes once: within a guard TileLang inlines it."""
        printer, once = self.printer, list[str]()
        for name, node in one.once:
            once.append(f"{name} = {printer.number(node)}")
            printer = printer.knowing(node, name)
        target = f"{one.target}[{', '.join(map(self.printer.integer, one.indices))}]"
        stored = self.printer.dtypes[one.target]
        value = printer.stored(one.expr, stored)
        line = f"{target} = " + (f'T.cast({value}, "{stored}")' if is_eight_bits(stored) else value)
        if one.guard == S.true:
            return [*once, line]
        return [*once, f"if {self.printer.condition(one.guard)}:", f"    {line}"]


def staged_plans(program: TileProgram) -> tuple[Plan, ...]:
    """The plans of stages beside the loop's own, each once."""
    return tuple(dict.fromkeys(kernel.plan for kernel in program.kernels if kernel.plan is not None))


def of_stage(plan: Plan, compute: str, number: int, function: str) -> str:
    """What a stage's own plan binds, under names of its own."""
    suffix = stage_suffix(number)
    used = Used(
        multiply=f"multiply{suffix}(" in function,
        add=f"add_transposed{suffix}(" in function,
        spread=f" = spread{suffix}(" in function,
    )
    return numbered(plan, compute, used, suffix)


def left_to_others(kernel: Kernel, parameters: tuple[Parameter, ...]) -> list[str]:
    """What a kernel reads after its other blocks wrote it: `restrict` would promise that they do not."""
    last = [one for one in kernel.body if isinstance(one, Last)]
    read = {load.name for one in last for expr in expressions(one) for load in expr.atoms(Load)}
    read |= {one.counter for one in last}
    return [one.name for one in parameters if one.role in ("workspace", "counter") and one.name in read]


def launch(kernel: Kernel, printer: Printer, threads: str = "launch") -> tuple[list[str], list[str]]:
    """The `with` line, and the lines that unfold what its three dimensions cannot hold one by one."""
    if kernel.blocks:  # the points of the grid by one number
        line = f"with T.Kernel({kernel.blocks}, **{threads}) as worker:  # {kernel.title}"
        return [line], [f"block = turn * {kernel.blocks} + worker", *unfolded(kernel.grid, printer)]
    folded, kept = folding(kernel.grid)
    variables = [*(["block"] if folded else []), *(str(name) for name, _ in kept)]
    extents = [Mul(*(extent for _, extent in folded))] if folded else []
    shown = ", ".join(printer.integer(sympify(one)) for one in (*extents, *(extent for _, extent in kept)))
    bound = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
    return [f"with T.Kernel({shown}, **{threads}) as {bound}:  # {kernel.title}"], unfolded(folded, printer)


Grid = tuple[tuple[Symbol, Any], ...]


def folding(grid: Grid) -> tuple[Grid, Grid]:
    """(dimensions of a grid that share the launch's first, dimensions of their own).

    Run-time extents are kept apart where they fit, so that no block divides by one.
    """
    if len(grid) <= DIMENSIONS and all(small(extent) for _, extent in grid[1:]):
        return (), grid
    constant = tuple(one for one in grid if isinstance(one[1], int))
    first, *rest = tuple(one for one in grid if not isinstance(one[1], int)) or (None,)
    if first is None or len(rest) >= DIMENSIONS:
        return grid, ()
    return (*constant, first), tuple(rest)


def small(extent: Any) -> bool:
    """Whether an extent fits a grid's second dimension; of run-time ones, a call sees to it (`runtime.sizes`)."""
    return not isinstance(extent, int) or extent <= GRID_LIMIT


def unfolded(grid: Grid, printer: Printer) -> list[str]:
    """Grid variables from one block number, the first varying fastest."""
    lines, strides = [], list[Any]()
    for place, (name, extent) in enumerate(grid):
        stride = printer.factor(Mul(*strides))
        divided = f"block // {stride}" if stride != "1" else "block"
        last = place == len(grid) - 1
        lines.append(f"{name} = {divided}" if last else f"{name} = {divided} % {printer.factor(sympify(extent))}")
        strides.append(extent)
    return lines


def shape(extents: tuple[Any, ...]) -> str:
    """A shape as Python writes it."""
    return f"({', '.join(map(str, extents))}{',' if len(extents) == 1 else ''})"


def comment(one: Parameter) -> str:
    """The role of a parameter that is not an input."""
    return "" if one.role == "input" else f"  # {one.role}"
