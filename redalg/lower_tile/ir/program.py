"""The tile program: an IR of copies, contractions, reductions and elementwise loops over tiles.

    program   := name, parameter*, kernel*, size*
    parameter := name, shape, dtype, role (input | scalar | output | workspace | counter)
    size      := a symbol in shapes, which a call binds; grids and stops of loops are expressions of sizes, not tiles
    kernel    := grid (variable, extent)*, blocks, buffer*, statement*
    buffer    := name, scope (shared | fragment | element), shape, dtype; a name in a loop is an `element`'s number
    statement := Bind(name, value, dtype)                      a number of the block's own, read once
               | Copy(source, target)                          a Region of a parameter, or of a tile, or a tile
               | Keep(source)                                  ask the L2 cache for a Region, and to drop it last
               | Fill(buffer, value)
               | Contract(a, b, c, transposed, clear, guard)   c (+)= a · b or a · bᵀ, where guard holds
               | ReduceTile(kind, source, target, clear, dim)  along a dimension
               | JoinBest(best, rank)                          the best of a tile of integers and of those so far
               | Parallel(index*, store*, guard, adjacent, lanes, alone)  every element of a tile, if guard holds
               | Loop(variable, stop, stages, body, pipelined) in order
               | Last(counter, place, parts, flag, body)    the body, by the last of `parts` blocks at a counter's place
               | Exchange(table, rows, part, blocks)        between the blocks of a cluster
    store     := target[index*] = expr, where guard; of its subexpressions some are computed once, under a name that
                 holds for the stores after it, until one overwrites what the subexpression reads
    region    := parameter[index or (start, length)]

Scalar expressions are SymPy's, with the nodes of `scalars`; loop variables are integers. Where an index varies, reading
outside a parameter gives 0 and storing there is dropped (as TileLang guards them); constants are checked at the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sympy import Expr, Mul, S, Symbol
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.display import Displayed
from redalg.lower_tile.ir.exchange import Exchange
from redalg.lower_tile.ir.powers import factors_of_power
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.ir.together import Together
from redalg.strategies.plan import Plan


def index(name: str) -> Symbol:
    """An integer loop variable."""
    return Symbol(name, integer=True, nonnegative=True)


@final
@dataclass(frozen=True)
class Parameter:
    """An argument of the program, in memory that all blocks see (`scalar`: a number).

    Attributes:
        name: its name in the program.
        shape, dtype: of its array.
        role: `input`, `scalar`, `output`, `workspace`, or `counter`: 0 before a launch and after it.
        key: the user's name for it.
        folded: the number of the user's dimensions, all contiguous, that each of its own takes (empty: one each).
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str
    role: str
    key: str
    folded: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.role} {self.name}{list(self.shape)} {self.dtype}"


@final
@dataclass(frozen=True)
class Buffer:
    """A tile in shared memory or registers (`fragment`; `local`: a thread's own). `note` says what it holds, `slot` the
    slot of the state or the producer of which it is a value (empty: none). `grouped`: a thread has adjacent rows."""

    name: str
    scope: str
    shape: tuple[int, ...]
    dtype: str
    note: str = ""
    slot: str = ""
    grouped: bool = False

    def __str__(self) -> str:
        return f"{self.scope} {self.name}{list(self.shape)} {self.dtype}" + ", rows in groups" * self.grouped


@final
@dataclass(frozen=True)
class Region:
    """Part of a parameter, or of a tile in shared memory: for every dimension an index, or (start, length)."""

    name: str
    place: tuple[Expr | tuple[Expr, int], ...]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(f'{p[0]}:+{p[1]}' if isinstance(p, tuple) else str(p) for p in self.place)}]"


@final
@dataclass(frozen=True)
class Bind:
    """A number that is the same for the whole block: name := value, once. An `int32` cuts the value to its range."""

    name: str
    value: Expr
    dtype: str
    in_register: bool = False  # reads are of a variable, not of the value written out (`workarounds.known`)

    def __str__(self) -> str:
        return f"{self.name} := {self.value} as {self.dtype}"


@final
@dataclass(frozen=True)
class Copy:
    """target := source; outside the parameter reads give 0 and writes are dropped. `by_threads`: all threads copy, even
    if another unit could (`ahead`), before they go on. `in_bulk`: another unit fetches what adjoins in memory; `count`
    elements of a row, if the region may end outside it."""

    source: Region | str
    target: Region | str
    by_threads: bool = False
    in_bulk: bool = False
    count: Expr | None = None

    def __str__(self) -> str:
        return f"{self.target} <- {self.source}" + " by threads" * self.by_threads + " in bulk" * self.in_bulk


@final
@dataclass(frozen=True)
class Keep:
    """Ask the L2 cache for a row of a parameter, of whole lines, and to drop it after all else. It changes no value."""

    source: Region

    def __str__(self) -> str:
        return f"keep {self.source} in L2"


@final
@dataclass(frozen=True)
class Fill:
    """Every element of a buffer := value."""

    buffer: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.buffer} <- {self.value}"


@final
@dataclass(frozen=True)
class Contract:
    """c := (0 if clear else c) + a · b, or a · bᵀ if transposed, aᵀ · b if turned; if the guard holds."""

    a: str
    b: str
    c: str
    transposed: bool
    clear: bool
    guard: Boolean = S.true
    turned: bool = False

    def __str__(self) -> str:
        tail = "" if self.guard == S.true else f" if {self.guard}"
        a, b = f"{self.a}{'.T' if self.turned else ''}", f"{self.b}{'.T' if self.transposed else ''}"
        return f"{self.c} {'=' if self.clear else '+='} {a} @ {b}{tail}"


@final
@dataclass(frozen=True)
class ReduceTile:
    """target[i] := (identity if clear else target[i]) ⊕ ⊕_j source[i, j]; of source[j, i] where `dim` is 0.

    `together`: rows whose numbers the threads exchange at one barrier; each thread holds elements of all of them.
    """

    kind: str
    source: str
    target: str
    clear: bool
    dim: int = 1
    together: int = 1

    def __str__(self) -> str:
        along = ("" if self.dim else " along its first dimension") + f", {self.together} at once" * (self.together > 1)
        return f"{self.target} {'=' if self.clear else 'with'} {self.kind} of {self.source}{along}"


@final
@dataclass(frozen=True)
class Store:
    """target[indices] := expr, if the guard holds.

    `once` holds subexpressions that the text computes once, under a name; each stands after those within it. The name
    holds for the later stores of a loop too (`live_names`). `reread` tells if later stores read the element where they
    need the expression again.
    """

    target: str
    indices: tuple[Expr, ...]
    expr: Expr
    guard: Boolean = S.true
    once: tuple[tuple[str, Expr], ...] = ()
    reread: bool = False

    def __str__(self) -> str:
        return "\n".join(self.lines({}))

    def lines(self, names: Mapping[Basic, Expr]) -> list[str]:
        """The lines of the store, by the names that earlier stores gave."""
        all_names, lines, tail = dict(names), list[str](), f" if {self.guard}" * (self.guard != S.true)
        for name, node in self.once:
            lines.append(f"{name} := {_operands_by_name(node, all_names)}")
            all_names[node] = Symbol(name)
        return [*lines, f"{self.target}[{', '.join(map(str, self.indices))}] = {_by_name(self.expr, all_names)}{tail}"]


def _by_name(node: Basic, names: Mapping[Basic, Expr]) -> Basic:
    """An expression with the names of the subexpressions that have one."""
    return names[node] if node in names else _operands_by_name(node, names)


def _operands_by_name(node: Basic, names: Mapping[Basic, Expr]) -> Basic:
    if node.is_Atom or isinstance(node, Load):
        return node
    if factors := factors_of_power(node):
        args = [_by_name(one, names) for one in factors]
        return node if args == list(factors) else Mul(*args)
    args = [_by_name(one, names) for one in node.args]
    return node if args == list(node.args) else node.func(*args)


def live_names(store: Store, names: Mapping[Basic, Expr]) -> dict[Basic, Expr]:
    """The names that hold after a store, of those before it and its own: it overwrites nothing that they read."""
    every = {**names, **{node: Symbol(name) for name, node in store.once}}
    rest = {node: name for node, name in every.items()
            if all(one.name != store.target for one in node.atoms(Load) | name.atoms(Load))}  # fmt: skip
    own = store.reread and all(one.name != store.target for one in store.expr.atoms(Load))
    return {**rest, store.expr: Load(store.target, *store.indices)} if own else rest


@final
@dataclass(frozen=True)
class JoinBest:
    """best[0, :] := the largest numbers of best[0, :] and rank[0, :], in order: those of best stand so, and all differ.

    The least of 64 bits stands for no number, and may come often.
    """

    best: str
    rank: str

    def __str__(self) -> str:
        return f"{self.best} = the best of {self.best} and {self.rank}"


@final
@dataclass(frozen=True)
class Parallel:
    """Stores for every element of a tile, if the guard holds, which is the same for all of them.

    Elements come in any order; the stores of an element keep their order. `adjacent`: the elements of a row that one
    thread takes, and the next thread the next ones; 0: the compiler shares them out. `lanes`: threads that share a row;
    0: all take the tile's elements in order. `alone`: no vectors of elements.
    """

    indices: tuple[tuple[Symbol, int], ...]
    body: tuple[Store, ...]
    guard: Boolean = S.true
    adjacent: int = 0
    lanes: int = 0
    alone: bool = False

    def __str__(self) -> str:
        head = ", ".join(f"{name} < {extent}" for name, extent in self.indices) + ", each alone" * self.alone
        how = f" by {self.adjacent} a thread" * bool(self.adjacent) + f", {self.lanes} threads a row" * bool(self.lanes)
        head += how + f" if {self.guard}" * (self.guard != S.true)
        lines, names = list[str](), dict[Basic, Expr]()
        for store in self.body:
            lines += store.lines(names)
            names = live_names(store, names)
        return "\n".join([f"parallel {head}:", *("  " + line for line in lines)])


@final
@dataclass(frozen=True)
class Loop:
    """variable = start … stop − 1, with loads `stages` iterations ahead (`stages` = 0: none).

    A loop that is not pipelined may be `unrolled`: so many iterations run at a time, and their loads are in flight
    together.
    """

    variable: Symbol
    stop: Expr
    stages: int
    body: tuple[Statement, ...]
    pipelined: bool = True
    start: Expr = S.Zero
    unrolled: int = 1

    def __str__(self) -> str:
        first = "" if self.start == 0 else f"{self.start} <= "
        head = f"for {first}{self.variable} < {self.stop} ({self.stages} stages):"
        return "\n".join([head, *("  " + line for one in self.body for line in str(one).splitlines())])


@final
@dataclass(frozen=True)
class Last:
    """Count the block at a place of a counter, and run the body if it is the last of `parts` blocks that come there.

    The body sees everything that these blocks stored before they came. The counter is then 0 again, for the next
    launch. `flag` is a buffer of one integer, which tells every thread if its block came last.
    """

    counter: str
    place: tuple[Expr, ...]
    parts: int
    flag: str
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        head = f"by the last of {self.parts} to come to {self.counter}[{', '.join(map(str, self.place))}]:"
        return "\n".join([head, *("  " + line for one in self.body for line in str(one).splitlines())])


Statement = Bind | Copy | Keep | Fill | Contract | ReduceTile | JoinBest | Parallel | Loop | Last | Exchange


@final
@dataclass(frozen=True)
class Kernel:
    """One launch: a block for every point of the grid. `spread`: no matrix product lays out its register tiles.

    If `blocks` is not 0, it is the number of blocks: block w runs the body for the points w, w + blocks,
    w + 2·blocks …, where the grid's first variable varies fastest. It finds its buffers as the point before left them.
    `plan` is the kernel's own if it is a stage before or after the loop's, and None if the program's plan holds.
    `beside`: the blocks that a multiprocessor runs at once, at least: threads keep few enough registers. `registers`:
    those of a thread that multiplies beside threads that load; 0: the compiler's own number. `cluster`: the blocks
    along the grid's first variable, if they run together and exchange sums.
    """

    grid: tuple[tuple[Symbol, Any], ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    title: str
    spread: bool = False
    plan: Plan | None = None
    blocks: int = 0
    beside: int = 1
    registers: int = 0
    cluster: int = 1

    def __str__(self) -> str:
        head = ", ".join(f"{name} < {extent}" for name, extent in self.grid)
        turns = f" by {self.blocks} blocks in turn" if self.blocks else " in clusters" * (self.cluster > 1)
        lines = [f"kernel ({head}){turns}: {self.title}", *(f"  {one}" for one in self.buffers)]
        return "\n".join(lines + ["  " + line for one in self.body for line in str(one).splitlines()])


@final
@dataclass(frozen=True, repr=False)
class TileProgram(Displayed):
    """A program: parameters, kernels, compute dtype and run-time sizes; `together` if it is one launch.

    `planned`: the run-time sizes of the call that it was planned for.
    """

    name: str
    parameters: tuple[Parameter, ...]
    kernels: tuple[Kernel, ...]
    compute: str
    sizes: tuple[Symbol, ...] = ()
    together: Together | None = None
    planned: tuple[tuple[Symbol, int], ...] = ()

    def __str__(self) -> str:
        head = f"program {self.name} in {self.compute}" + (f", {self.together}" if self.together else "")
        return "\n".join([head, *(f"  {one}" for one in self.parameters), *map(str, self.kernels)])


def nested_statements(body: tuple[Statement, ...]) -> list[Statement]:
    """Every statement, those within others too, in order."""
    statements, stack = list[Statement](), list(reversed(body))
    while stack:
        statements.append(stack.pop())
        if isinstance(statements[-1], Loop | Last):
            stack += reversed(statements[-1].body)
    return statements


def innermost(statement: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """Return the statement with every innermost statement changed (one that holds no others, or itself)."""
    if isinstance(statement, Loop | Last):
        return replace(statement, body=tuple(innermost(inner, change) for inner in statement.body))
    return change(statement)


def map_statement(statement: Statement, change: Callable[[Any], Any]) -> Statement:
    """The statement with every scalar expression, condition and index in it changed."""
    if isinstance(statement, Bind):
        return replace(statement, value=change(statement.value))
    if isinstance(statement, Copy | Keep):
        sides = {name: _side(side, change) for name, side in vars(statement).items() if name in ("source", "target")}
        return replace(statement, **sides)
    if isinstance(statement, Contract):
        return replace(statement, guard=change(statement.guard))
    if isinstance(statement, Parallel):
        stores = tuple(_map_store(store, change) for store in statement.body)
        return replace(statement, body=stores, guard=change(statement.guard))
    if isinstance(statement, Loop):
        body = tuple(map_statement(inner, change) for inner in statement.body)
        return replace(statement, start=change(statement.start), stop=change(statement.stop), body=body)
    if isinstance(statement, Last):
        body = tuple(map_statement(inner, change) for inner in statement.body)
        return replace(statement, place=tuple(map(change, statement.place)), body=body)
    return statement


def _side(side: Region | str, change: Callable[[Any], Any]) -> Any:
    if isinstance(side, str):
        return side
    return Region(side.name, tuple((change(p[0]), p[1]) if isinstance(p, tuple) else change(p) for p in side.place))


def _map_store(store: Store, change: Callable[[Any], Any]) -> Store:
    once = tuple((name, change(node)) for name, node in store.once)
    return Store(store.target, tuple(map(change, store.indices)), change(store.expr), change(store.guard), once,
                 store.reread)  # fmt: skip


def expressions(statement: Statement) -> Iterator[Basic]:
    """Every scalar expression, condition and index of a statement, those within loops too."""
    nodes: list[Basic] = []

    def keep(node: Basic) -> Basic:
        nodes.append(node)
        return node

    map_statement(statement, keep)
    yield from nodes
