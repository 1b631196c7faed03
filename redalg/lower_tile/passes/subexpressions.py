"""Bind common subexpressions: one that stands often in the expression of a store is computed once for the element.

x[i, j] = f(g, g)   →   common = g;  x[i, j] = f(common, common)      exact: a store reads before it writes

Uses are counted as the text has them: a square stands twice, |x| too. Uses within a subexpression that is bound itself
count once. A bound subexpression is the text's own: its terms and factors keep the order that they have written out, so
that a number compared with its own maximum is still equal to it. Of 1/b, b is bound: a/b is rounded once, a·(1/b)
twice.

A choice computes a bound subexpression whichever branch it takes. So a subexpression that reads memory is bound only if
some use of it is in no branch of a choice by data. (A choice by indices may hold it: a read outside of a tensor is 0.)
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
    nested_statements,
    variables_of,
)
from redalg.lower_tile.ir.scalars import IsFinite, Load, ScaledExp, Wide
from redalg.lower_tile.text.expr_printer import Printer, dtypes_of, reciprocal

WORTH = 6
"""Operations that a line of its own must save; a function, a choice or a division counts as four."""


def eliminate_common_subexpressions(program: TileProgram) -> TileProgram:
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
        inner = (one for kernel in program.kernels for one in nested_statements(kernel.body))
        variables = (str(one.variable) for one in inner if isinstance(one, Loop))
        grids = (name for kernel in program.kernels for name in variables_of(kernel))
        self.names = Names((*self.printer.dtypes, *map(str, program.sizes), *variables, *grids))

    def statement(self, statement: Statement) -> Statement:
        """A statement with the names of its stores' common subexpressions."""
        return (
            replace(statement, body=tuple(map(self.store, statement.body)))
            if isinstance(statement, Parallel)
            else statement
        )

    def store(self, store: Store) -> Store:
        """A store with the names of its common subexpressions."""
        return replace(store, once=tuple((self.names.fresh("common"), node) for node in self.common(store.expr)))

    def common(self, expr: Expr) -> list[Expr]:
        """The subexpressions that are worth binding, each after those within it."""
        nodes, sure = self.distinct(expr), self.certain(expr)
        uses = Counter(one for node in nodes for one, _ in self.operands(node))
        chosen = list[Expr]()
        for node in nodes:
            often = isinstance(node, Expr) and self.is_number(node) and (uses[node] - 1) * work(node, chosen) >= WORTH
            if often and (node in sure or not any(one.name in self.memory for one in node.atoms(Load))):
                chosen.append(node)
        return chosen

    def is_number(self, node: Expr) -> bool:
        """Tell if an expression is computed, and in floating point: it is no constant and no index."""
        return not node.is_number and not self.printer.is_integer(node)

    def distinct(self, expr: Basic) -> list[Basic]:
        """The nodes of an expression, each once and after its operands."""
        found = dict[Basic, None]()

        def visit(node: Basic) -> None:
            if node not in found:
                for operand, _ in self.operands(node):
                    visit(operand)
                found[node] = None

        visit(expr)
        return list(found)

    def certain(self, expr: Basic) -> set[Basic]:
        """The nodes that are computed whichever branch a choice takes."""
        found, left = set[Basic](), [expr]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += [one for one, branch in self.operands(node) if not branch]
        return found

    def operands(self, node: Basic) -> Iterator[tuple[Basic, bool]]:
        """(operand, True if in a branch by data): a node's numbers and conditions, as often as its text holds them."""
        if isinstance(node, Load | Wide) or (isinstance(node, Expr) and not self.is_number(node)):
            return
        doubled = isinstance(node, Abs | sign | IsFinite)
        power = isinstance(node, Pow) and node.exp.is_Integer and 0 < node.exp <= 6
        often = int(node.exp) if power else 2 if doubled else 1
        for place, arg in enumerate(node.args[:1] if power else (as_printed(node),) if reciprocal(node) else node.args):
            if not isinstance(arg, Str):
                branch = isinstance(node, Where) and place > 0 and node.args[0].has(Load)
                yield from [(as_printed(arg), branch)] * often


def as_printed(node: Basic) -> Basic:
    """The part of a node that the text has beside a sign, or below a line of division."""
    if node.is_Pow and reciprocal(node):
        return Pow(node.base, -node.exp)
    return Mul(*node.args[1:]) if node.is_Mul and node.args[0] == -1 else node


def work(node: Basic, free: Sequence[Basic]) -> int:
    """Number of operations of a node, without those of `free` nodes (each node counts once)."""
    seen, total, left = set(free), 0, [node]
    while left:
        part = left.pop()
        if part not in seen and not isinstance(part, Load):
            seen.add(part)
            total += own_operations(part)
            left += part.args
    return total


def own_operations(node: Basic) -> int:
    """Number of operations of a node itself, without its operands."""
    if isinstance(node, Add | Mul | Max | Min):
        return len(node.args) - 1
    if isinstance(node, Pow):
        return int(node.exp) - 1 if node.exp.is_Integer and node.exp > 0 else 4
    return 4 if isinstance(node, Function | ScaledExp | Where) else int(isinstance(node, Boolean | Cast))
