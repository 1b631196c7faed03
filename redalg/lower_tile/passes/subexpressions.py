"""Name the common subexpressions: what stands several times in the stores of a loop is computed once for the element.

x[i, j] = f(g); y[i, j] = h(g)   →   g₁ = g;  x[i, j] = f(g₁); y[i, j] = h(g₁)      exact where no store between writes
                                                                                    what g reads

Uses are counted as the text has them when its functions are called: x stands twice in its square, in |x| and where it
is asked if x is finite; x² stands twice in a fourth power. Uses within a subexpression that has a name count once. A
subexpression is the text's own: its terms and factors keep the order that they have written out, so that a number
compared with its own maximum is still equal to it. Of 1/b, b has the name: a/b is rounded once, a·(1/b) twice. An
element that is only read has a name if the read converts it. If a value is first needed as what is stored to registers,
the element is read again, and there is no other name.

An integer that a tensor holds has a name if an index chooses by it, since the text has the index several times.
A condition made of several has a name if it is of what a thread or its block holds.

A choice computes a subexpression with a name whichever branch it takes. So a subexpression that reads memory has one
only if some use of it is in no branch of a choice by data. (A choice by indices may hold it: a read outside of a tensor
is 0.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import final

from sympy import Abs, Add, And, Expr, Max, Min, Mul, Or, Pow, S, exp, log, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational
from sympy.core.symbol import Str

from redalg.expression import Where
from redalg.lower_tile.ir.mentions import variables_of
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.powers import above_and_below, factors_of_power, is_negative_power, is_rsqrt
from redalg.lower_tile.ir.program import (
    Loop,
    Parallel,
    Statement,
    Store,
    TileProgram,
    innermost,
    nested_statements,
)
from redalg.lower_tile.ir.scalars import Divided, Instruction, IsFinite, Kept, Load, ScaledExp, Wide
from redalg.lower_tile.text.expr_printer import Printer, dtypes_of, is_of_places

OFTEN = 2
"""Uses of a subexpression that has a name."""
NOUNS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Mul, "product"), ((exp, ScaledExp), "exponential"), (log, "logarithm"), (Where, "choice"), (Max, "maximum"),
    (Divided, "quotient"), (Min, "minimum"), (Abs, "size"), (Pow, "power"), ((And, Or), "condition"),
)  # fmt: skip
"""Nouns for subexpressions, by their operation."""
POWERS = {S(2): "square", S(3): "cube", S(4): "fourth", -S.One: "reciprocal", S.Half: "root", -S.Half: "inverse_root"}
"""Nouns for powers, by their exponent."""
Key = tuple[Basic, int]
"""An expression, and the number of stores before it that overwrote what it reads: its value at a place of a loop."""


def eliminate_common_subexpressions(program: TileProgram) -> TileProgram:
    """The program with the common subexpressions of every elementwise loop named ahead of their first use."""
    work = _Naming(program)
    bodies = (tuple(innermost(one, work.statement) for one in kernel.body) for kernel in program.kernels)
    kernels = zip(program.kernels, bodies, strict=True)
    return replace(program, kernels=tuple(replace(kernel, body=body) for kernel, body in kernels))


@final
class _Uses:
    """The values that the stores of a loop compute, each after its operands.

    Attributes:
        operands: of every value, its operands as often as its text holds them, and if each is in a branch by data.
        first: of every value, the number of the store that computes it first.
        count: how often the text of all stores holds a value by itself, and not within another.
        certain: the values that a store computes whichever branch its choices take.
    """

    def __init__(self) -> None:
        self.operands: dict[Key, list[tuple[Key, bool]]] = {}
        self.first: dict[Key, int] = {}
        self.count: Counter[Key] = Counter()
        self.certain: set[Key] = set()


@final
class _Naming:
    def __init__(self, program: TileProgram) -> None:
        self.printer = Printer(dtypes_of(program), program.compute)
        self.memory = {one.name for one in program.parameters if one.shape}
        inner = (one for kernel in program.kernels for one in nested_statements(kernel.body))
        variables = (str(one.variable) for one in inner if isinstance(one, Loop))
        grids = (name for kernel in program.kernels for name in variables_of(kernel))
        buffers = [one for kernel in program.kernels for one in kernel.buffers]
        self.shared = {one.name for one in buffers if one.scope == "shared"}
        self.registers = {one.name for one in buffers} - self.shared
        self.other_names = (*self.printer.dtypes, *map(str, program.sizes), *variables, *grids)

    def statement(self, statement: Statement) -> Statement:
        """A statement with the names of its stores' common subexpressions."""
        if not isinstance(statement, Parallel):
            return statement
        return replace(statement, body=self.stores(statement.body, {name for name, _ in statement.indices}))

    def stores(self, stores: tuple[Store, ...], indices: Set[Basic]) -> tuple[Store, ...]:
        """The stores of a loop, each with the names of the common subexpressions that it is the first to compute."""
        uses, out, name_of = self.uses(stores), list(stores), dict[Basic, str]()
        names, common = Names(self.other_names), self.common(uses, indices)
        for node, place in self.entries(uses).items():
            out[place] = replace(out[place], once=(*out[place].once, (names.fresh(f"{node.name}_entry"), node)))
        for key in common:
            node, place = key[0], uses.first[key]
            if node == stores[place].expr and self.serves_again(stores[place]):
                name_of[node] = stores[place].target
                out[place] = replace(out[place], reread=True)
            else:
                name_of[node] = names.fresh(noun(node, name_of))
                out[place] = replace(out[place], once=(*out[place].once, (name_of[node], node)))
        return tuple(out)

    def entries(self, uses: _Uses) -> dict[Load, int]:
        """The integers that a parameter holds and an index takes several times, and the first store that needs them.

        where(I[i] < 0, I[i] + n, I[i]) stands in the text for every bound of the dimension too: twelve reads of I.
        """
        found = dict[Load, int]()
        for (node, overwritten), store in uses.first.items():
            if not isinstance(node, Load) or overwritten or (node, overwritten) not in uses.certain:
                continue
            chosen = (index for index in node.indices if isinstance(index, Where))
            inner = {read for index in chosen for read in index.atoms(Load) if read.name in self.memory}
            for entry in sorted(inner, key=lambda read: (len(read.atoms(Load)), str(read))):
                if self.printer.is_integer(entry):
                    found[entry] = min(store, found.get(entry, store))
        return found

    def serves_again(self, store: Store) -> bool:
        """Tell if an element holds what was stored to it, as it was computed, in a thread's own registers."""
        exact = self.printer.dtypes[store.target] == self.printer.compute
        return store.target in self.registers and exact and store.guard == S.true

    def common(self, uses: _Uses, indices: Set[Basic]) -> list[Key]:
        """The values that have a name, each after those within it."""
        keys = list[Key]()
        for key in reversed(uses.operands):
            often = uses.count[key] >= OFTEN and self.is_operation(key[0])
            has_name = often and (key in uses.certain or not self.reads_memory(key[0]))
            has_name = has_name or (key not in uses.certain and self.is_broadcast(key[0], indices))
            if has_name:
                keys.append(key)
            for operand, branch in uses.operands[key]:
                uses.count[operand] += 1 if has_name else uses.count[key]
                if key in uses.certain and not branch:
                    uses.certain.add(operand)
        return keys[::-1]

    def uses(self, stores: tuple[Store, ...]) -> _Uses:
        """The values that the stores of a loop compute."""
        uses, targets = _Uses(), [store.target for store in stores]
        reads = dict[Basic, frozenset[str]]()

        def names_read(node: Basic) -> frozenset[str]:
            if node not in reads:
                own = frozenset([node.name] if isinstance(node, Load) else ())
                reads[node] = own.union(*map(names_read, node.args))
            return reads[node]

        def visit(node: Basic, place: int) -> Key:
            names = names_read(node)
            key = node, sum(target in names for target in targets[:place])
            if key not in uses.operands:
                operands = [(visit(operand, place), branch) for operand, branch in self.operands(node)]
                uses.operands[key], uses.first[key] = operands, place
            return key

        for place, store in enumerate(stores):
            if self.printer.bare_element(store.expr, self.printer.dtypes[store.target]) is None:
                key = visit(without_sign(store.expr), place)
                uses.count[key] += 1
                uses.certain.add(key)
        return uses

    def is_broadcast(self, node: Basic, indices: Set[Basic]) -> bool:
        """Tell if an expression is a number of shared memory that every thread of a loop over indices reads."""
        is_shared = isinstance(node, Load) and node.name in self.shared
        return is_shared and not node.free_symbols & indices and self.is_number(node)

    def reads_memory(self, node: Basic) -> bool:
        """Tell if an expression reads a parameter."""
        return any(one.name in self.memory for one in node.atoms(Load))

    def is_operation(self, node: Basic) -> bool:
        """Tell if an expression is an operation on numbers, and no plain read; or a condition of several, of data."""
        if isinstance(node, And | Or):
            return node.has(Load) and not self.reads_memory(node)
        if isinstance(node, Load):
            return self.is_number(node) and self.printer.dtypes[node.name] != self.printer.compute
        return isinstance(node, Expr) and self.is_number(node)

    def is_number(self, node: Expr) -> bool:
        """Tell if an expression is computed, and in floating point: it is no constant and no index."""
        return not node.is_number and not self.printer.is_integer(node)

    def operands(self, node: Basic) -> Iterator[tuple[Basic, bool]]:
        """(operand, True if in a branch by data): a node's numbers and conditions, as often as its text holds them."""
        if isinstance(node, Where) and self.printer.is_integer(node):
            yield node.args[0], False
            return
        if isinstance(node, Load | Wide) or (isinstance(node, Expr) and not self.is_number(node)):
            return
        if isinstance(node, Relational) and is_of_places(node) and self.printer.compute != "float64":
            return
        for place, arg in enumerate(parts(node)):
            if not isinstance(arg, Str):
                yield without_sign(arg), isinstance(node, Where) and place > 0 and node.args[0].has(Load)


def parts(node: Basic) -> tuple[Basic, ...]:
    """The operands of a node, as often as its text holds them."""
    if isinstance(node, Expr) and (factors := factors_of_power(node)):
        return factors
    if isinstance(node, Expr) and is_negative_power(node) and not is_rsqrt(node):
        above, below = above_and_below((node,))
        return *above, *below
    if isinstance(node, Mul):
        above, below = above_and_below(node.args)
        return *above, *below
    return (*node.args, *node.args) if isinstance(node, Abs | sign | IsFinite) else node.args


def without_sign(node: Basic) -> Basic:
    """A node without the sign and the parentheses around it."""
    if isinstance(node, Kept):
        return without_sign(node.args[0])
    return without_sign(Mul(*node.args[1:])) if node.is_Mul and node.args[0] == -1 else node


def noun(node: Basic, name_of: dict[Basic, str]) -> str:
    """The name of a value by its operation: `difference`, `square`, `difference_square`, `tile_element` …"""
    if isinstance(node, Load):
        return re.sub(r"_tile(_\d+)?$", "", node.name) + "_element"
    if isinstance(node, Instruction):
        return "exponential" if node.name == "power_of_two" else node.name.removesuffix("_of")
    if isinstance(node, Add):
        return "difference" if any(one.could_extract_minus_sign() for one in node.args) else "total"
    if isinstance(node, Mul) and any(map(is_negative_power, node.args)):
        return "quotient"
    if isinstance(node, Pow) and node.exp in POWERS:
        base = without_sign(node.base)
        of = base.name if isinstance(base, Load) and base not in name_of else name_of.get(base, "")
        return f"{of}_{POWERS[node.exp]}".lstrip("_")
    return next((name for kinds, name in NOUNS if isinstance(node, kinds)), "value")
