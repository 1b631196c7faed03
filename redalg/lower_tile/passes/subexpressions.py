"""Common subexpressions: what stands often in the expression of a store is computed once for the element.

x[i, j] = f(g, g)   →   common = g;  x[i, j] = f(common, common)      exact: a store reads before it writes

Uses are counted as the text has them (a square stands twice, |x| too), and those within a subexpression that is bound
itself once. What is bound is the text's own: terms and factors keep the order that they have written out, so that what
is compared with its own maximum is still equal to it; and of 1/b it is b, since a/b is rounded once, a·(1/b) twice.

A choice computes what is bound whichever branch it takes; so what reads memory is bound only where some use of it is in
no branch of a choice by data (by indices it may be: what is read outside of a tensor is 0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from sympy import Abs, Add, Expr, Function, Max, Min, Mul, Pow, sign
from sympy.core.basic import Basic
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg.expression import Cast, Where
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Loop,
    Parallel,
    Statement,
    Store,
    TileProgram,
    innermost,
    statements,
    variables_of,
)
from redalg.lower_tile.ir.scalars import IsFinite, Load, ScaledExp, Wide
from redalg.lower_tile.text.expr_printer import Printer, dtypes_of, reciprocal

WORTH = 6
"""Operations that a line of its own must save; a function, a choice or a division counts as four."""


def shared(program: TileProgram) -> TileProgram:
    """The program with the common subexpressions of every store bound ahead of it."""
    work = _Shared(program)
    bodies = (tuple(innermost(one, work.statement) for one in kernel.body) for kernel in program.kernels)
    kernels = zip(program.kernels, bodies, strict=True)
    return replace(program, kernels=tuple(replace(kernel, body=body) for kernel, body in kernels))


@final
class _Shared:
    def __init__(self, program: TileProgram) -> None:
        self.printer = Printer(dtypes_of(program), program.compute)
        self.memory = {one.name for one in program.parameters if one.shape}
        inner = (one for kernel in program.kernels for one in statements(kernel.body))
        variables = (str(one.variable) for one in inner if isinstance(one, Loop))
        grids = (name for kernel in program.kernels for name in variables_of(kernel))
        self.names = Names((*self.printer.dtypes, *map(str, program.sizes), *variables, *grids))

    def statement(self, one: Statement) -> Statement:
        """A statement with the names of its stores' common subexpressions."""
        return replace(one, body=tuple(map(self.store, one.body))) if isinstance(one, Parallel) else one

    def store(self, store: Store) -> Store:
        """A store with the names of its common subexpressions."""
        return replace(store, once=tuple((self.names.fresh("common"), node) for node in self.common(store.expr)))

    def common(self, expr: Expr) -> list[Expr]:
        """What is worth to be bound, each after what is within it."""
        nodes, sure = self.distinct(expr), self.certain(expr)
        uses = Counter(one for node in nodes for one, _ in self.operands(node))
        chosen = list[Expr]()
        for node in nodes:
            often = isinstance(node, Expr) and self.is_number(node) and (uses[node] - 1) * work(node, chosen) >= WORTH
            if often and (node in sure or not any(one.name in self.memory for one in node.atoms(Load))):
                chosen.append(node)
        return chosen

    def is_number(self, node: Expr) -> bool:
        """Whether an expression is computed, and in floating point: no constant, and no index."""
        return not node.is_number and not self.printer.is_integer(node)

    def distinct(self, expr: Basic) -> list[Basic]:
        """The nodes of an expression, each once and after its operands."""
        found = dict[Basic, None]()

        def visit(node: Basic) -> None:
            if node not in found:
                for one, _ in self.operands(node):
                    visit(one)
                found[node] = None

        visit(expr)
        return list(found)

    def certain(self, expr: Basic) -> set[Basic]:
        """The nodes that are computed whatever is chosen."""
        found, left = set[Basic](), [expr]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += [one for one, branch in self.operands(node) if not branch]
        return found

    def operands(self, node: Basic) -> Iterator[tuple[Basic, bool]]:
        """The numbers and conditions that a node's text holds, as often as it does; and whether in a branch by data."""
        if isinstance(node, Load | Wide) or (isinstance(node, Expr) and not self.is_number(node)):
            return
        doubled = isinstance(node, Abs | sign | IsFinite)
        power = isinstance(node, Pow) and node.exp.is_Integer and 0 < node.exp <= 6
        often = int(node.exp) if power else 2 if doubled else 1
        for place, one in enumerate(node.args[:1] if power else (as_printed(node),) if reciprocal(node) else node.args):
            if not isinstance(one, Str):
                branch = isinstance(node, Where) and place > 0 and node.args[0].has(Load)
                yield from [(as_printed(one), branch)] * often


def as_printed(node: Basic) -> Basic:
    """What the text has of a node beside a sign, and below a line of division."""
    if node.is_Pow and reciprocal(node):
        return Pow(node.base, -node.exp)
    return Mul(*node.args[1:]) if node.is_Mul and node.args[0] == -1 else node


def work(node: Basic, free: Sequence[Basic]) -> int:
    """Operations of a node, without those of what is free (each node once)."""
    seen, total, left = set(free), 0, [node]
    while left:
        one = left.pop()
        if one not in seen and not isinstance(one, Load):
            seen.add(one)
            total += operations(one)
            left += one.args
    return total


def operations(node: Basic) -> int:
    """Of a node itself."""
    if isinstance(node, Add | Mul | Max | Min):
        return len(node.args) - 1
    if isinstance(node, Pow):
        return int(node.exp) - 1 if node.exp.is_Integer and node.exp > 0 else 4
    return 4 if isinstance(node, Function | ScaledExp | Where) else int(isinstance(node, Boolean | Cast))
