"""The launch of a kernel: the dimensions of its grid, and the lines that tell a block its point of the grid."""

from __future__ import annotations

from typing import Any

from sympy import Mul, Symbol, sympify

from redalg.lower_tile.ir.program import Kernel, Loop, nested_statements
from redalg.lower_tile.text.expr_printer import Printer
from redalg.strategies.varying import GRID_LIMIT

DIMENSIONS = 3
"""Dimensions of a launch."""


def launch(kernel: Kernel, printer: Printer, threads: str = "launch") -> tuple[list[str], list[str]]:
    """The `with` line, and the lines that unfold the variables for which its three dimensions are too few."""
    if kernel.blocks:  # the points of the grid by one number
        line = f"with T.Kernel({kernel.blocks}, **{threads}) as worker:  # {kernel.title}"
        place = f"block = {turn_of(kernel)} * {kernel.blocks} + worker"
        return [line], [place, *unfold_grid(kernel.grid, printer)]
    if kernel.cluster > 1:
        return launch_of_clusters(kernel, printer, threads)
    shared, own = fold_grid(kernel.grid)
    variables = [*(["block"] if shared else []), *(str(name) for name, _ in own)]
    extents = [Mul(*(extent for _, extent in shared))] if shared else []
    text = ", ".join(printer.integer(sympify(one)) for one in (*extents, *(extent for _, extent in own)))
    bound = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
    return [f"with T.Kernel({text}, **{threads}) as {bound}:  # {kernel.title}"], unfold_grid(shared, printer)


def turn_of(kernel: Kernel) -> str:
    """The number of the point that a block which stays is at, by a name that no loop of the kernel has."""
    loops = {str(one.variable) for one in nested_statements(kernel.body) if isinstance(one, Loop)}
    return "round" if "turn" in loops else "turn"


def launch_of_clusters(kernel: Kernel, printer: Printer, threads: str) -> tuple[list[str], list[str]]:
    """The `with` line of blocks in clusters along the grid's first variable, and the lines that unfold the others."""
    (part, count), *rest = kernel.grid
    fits = len(rest) < DIMENSIONS and all(small(extent) for _, extent in rest)
    shared, own = ((), tuple(rest)) if fits else (tuple(rest), ())
    variables = [str(part), *(["block"] if shared else []), *(str(name) for name, _ in own)]
    extents = [count, *([Mul(*(extent for _, extent in shared))] if shared else []), *(extent for _, extent in own)]
    text = ", ".join(printer.integer(sympify(one)) for one in extents)
    line = f"with T.Kernel({text}, **{threads}, cluster_dims=({count}, 1, 1)) as ({', '.join(variables)}):"
    return [f"{line}  # {kernel.title}"], unfold_grid(shared, printer)


Grid = tuple[tuple[Symbol, Any], ...]


def fold_grid(grid: Grid) -> tuple[Grid, Grid]:
    """(dimensions of a grid that share the launch's first, dimensions of their own).

    Run-time extents are kept apart if they fit, so that no block divides by one.
    """
    if len(grid) <= DIMENSIONS and all(small(extent) for _, extent in grid[1:]):
        return (), grid
    constant = tuple(one for one in grid if isinstance(one[1], int))
    first, *rest = tuple(one for one in grid if not isinstance(one[1], int)) or (None,)
    if first is None or len(rest) >= DIMENSIONS:
        return grid, ()
    return (*constant, first), tuple(rest)


def small(extent: Any) -> bool:
    """Tell if an extent fits a grid's second dimension; a call checks run-time extents itself (`runtime.sizes`)."""
    return not isinstance(extent, int) or extent <= GRID_LIMIT


def unfold_grid(grid: Grid, printer: Printer) -> list[str]:
    """The lines that compute grid variables from one block number; the first variable varies fastest."""
    lines, strides = [], list[Any]()
    for place, (name, extent) in enumerate(grid):
        stride = printer.factor(Mul(*strides))
        quotient = f"block // {stride}" if stride != "1" else "block"
        last = place == len(grid) - 1
        lines.append(f"{name} = {quotient}" if last else f"{name} = {quotient} % {printer.factor(sympify(extent))}")
        strides.append(extent)
    return lines


def shape_text(extents: tuple[Any, ...]) -> str:
    """A shape as Python writes it."""
    return f"({', '.join(map(str, extents))}{',' if len(extents) == 1 else ''})"
