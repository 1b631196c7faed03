"""Read an element that is the same for a whole block once, before everything else; round a scalar once.

x[g, …] of a parameter, g grid variables and numbers   →   a bound number      exact: no block of the kernel writes x
⌊w⌋ of a scalar of the call                            →   a bound integer
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from sympy import Expr
from sympy.core.basic import Basic

from redalg.lower_tile.ir.mentions import stored_names, variables_of
from redalg.lower_tile.ir.names import Names
from redalg.lower_tile.ir.program import (
    Bind,
    Kernel,
    Parameter,
    TileProgram,
    map_statement,
)
from redalg.lower_tile.ir.scalars import Load, Places


@final
class _Hoist:
    def __init__(self, kernel: Kernel, parameters: Iterable[Parameter], names: Names) -> None:
        self.grid = {name for name, _ in kernel.grid}
        targets = stored_names(kernel)
        self.dtypes = {one.name: one.dtype for one in parameters if one.name not in targets}
        self.names = names
        self.bound: dict[Expr, Load] = {}
        self.binds: list[Bind] = []

    def bind(self, value: Expr, dtype: str, stem: str) -> Load:
        """The bound number that holds a value."""
        if value not in self.bound:
            name = self.names.fresh(stem)
            self.bound[value] = Load(name)
            self.binds.append(Bind(name, value, dtype))
        return self.bound[value]

    def read(self, node: Basic) -> Basic:
        """The expression with a bound number for every read of an input that no loop moves."""
        if not node.has(Load):
            return node
        if isinstance(node, Places) and not any(one.indices for one in node.atoms(Load)):
            return self.bind(node, "int32", "places")
        if not isinstance(node, Load):
            args = [self.read(one) for one in node.args]
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            return node if same else node.func(*args)
        gathers = any(one.has(Load) for one in node.indices)  # an index that is read may lie outside: left in place
        if node.name not in self.dtypes or not node.indices or gathers or node.free_symbols - self.grid:
            return node
        places = [str(one) for one in node.indices if one.is_Symbol]
        return self.bind(node, self.dtypes[node.name], "_".join([node.name, *places]))


def hoist_block_invariants(program: TileProgram) -> TileProgram:
    """The program, in each of whose kernels the numbers that are the same for a whole block are bound first."""
    names, kernels = program_names(program), list[Kernel]()
    for kernel in program.kernels:
        work = _Hoist(kernel, program.parameters, names)
        body = [map_statement(one, work.read) for one in kernel.body]
        kernels.append(replace(kernel, body=(*work.binds, *body)))
    return replace(program, kernels=tuple(kernels))


def program_names(program: TileProgram) -> Names:
    """The names that a program has taken: a TileLang text may bind a name only once."""
    names = [*(one.name for one in program.parameters), *map(str, program.sizes)]
    for kernel in program.kernels:
        names += [*variables_of(kernel), *(buffer.name for buffer in kernel.buffers)]
    return Names(tuple(names))
