"""Sizes that may change from call to call without another kernel, and their symbols in a problem.

    axis → run-time size      where no tile's layout depends on it:
        it lies on the grid, along the rows, or is streamed          (tiles hold columns and producers' axes whole)
        an input bears it as an index of its own                     (a kernel reads sizes off its arguments' shapes)
        it is the last index of no tensor that is copied in tiles    (the strides of what is copied stay known)

A problem with run-time sizes has symbols for them, and for the dimensions that gathers index: tile counts, bounds and
masks follow by arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sympy import Integer, Symbol, ceiling, sympify

from redalg.decompose.cascade import Cascade
from redalg.errors import PlanError
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.strategies.binding import Binding
from redalg.strategies.plan import Problem

GRID_LIMIT = 65535
"""Largest extent of a launch's second and third dimension (CUDA)."""


def may_vary(form: FusedForm, binding: Binding, dtypes: Mapping[str, str]) -> frozenset[str]:
    """The names of the axes that may have a run-time size in one loop."""
    multiplies = bool(binding.contracted or form.cascade.producers)
    both = {binding.row, binding.streamed}
    bound = {*binding.grid, binding.streamed} | ({binding.row} if binding.row is not None else set())
    plain = {index for one in form.cascade.elements() for index in one.indices if isinstance(index, Axis)}
    constant = {axis for producer in form.cascade.producers for axis in producer_axes(producer.cascade)}
    constant |= set(form.summed_axes) | {axis for axis in plain if axis.size is not None}
    for element in form.cascade.elements():
        read_singly = multiplies and both <= free_axes(element)  # a mask or a bias, read where it is used
        if len(element.indices) > 1 and "float" in dtypes[element.name] and not read_singly:
            constant |= free_axes(element.indices[-1])
    return frozenset(str(axis.name) for axis in (bound & plain) - constant)


def fits_launch(binding: Binding, problem: Problem) -> bool:
    """Tell if a grid's run-time extents fit a launch's dimensions: the first takes any, others up to `GRID_LIMIT`."""
    others = binding.grid if binding.row is not None else binding.grid[:-1]
    return all(problem.sizes[axis.name] <= GRID_LIMIT for axis in others if axis.name in problem.varying)


def producer_axes(cascade: Cascade) -> set[Axis]:
    """The axes over which a producer and its own producers reduce."""
    return set(cascade.reduced_axes).union(*(producer_axes(one.cascade) for one in cascade.producers))


def check_varying(varying: Collection[str], stages: Stages, binding: Binding, problem: Problem) -> None:
    """Refuse a run-time size that a tile's layout depends on, and any of several stages, each planned for its own."""
    several = len(stages.forms) > 1
    axes = frozenset[str]() if several else may_vary(stages.loop, binding, problem.dtypes)
    choices = ", ".join(sorted(axes)) or "none"
    for name in varying:
        if several:
            raise PlanError(
                f"varying: the size of axis {name} cannot change from call to call: the form is in "
                f"{len(stages.forms)} stages, each of which is planned for its own sizes. Those that can: none. Leave "
                "it out."
            )
        if name not in axes:
            raise PlanError(
                f"varying: the size of axis {name} cannot change from call to call: tiles hold it whole, or the "
                f"strides of what they copy depend on it. Those that can: {choices}. Leave it out."
            )


def with_symbols(problem: Problem, form: FusedForm) -> Problem:
    """The problem with a symbol for every size that varies, in the tensors' shapes too."""
    names = {*problem.dtypes, *(one.name for one in form.cascade.scalars()), *(one.name for one in form.outputs)}
    symbols = {name: size_symbol(name, names) for name in sorted(problem.varying)}
    at = {
        place: size_symbol("_".join(map(str, place)), names)
        for place in (unnamed_dimensions(form, problem) if symbols else ())
    }
    for element in form.cascade.elements():
        indices = enumerate(map(str, element.indices))
        at.update({(element.name, place): symbols[axis] for place, axis in indices if axis in symbols})
    shapes = {name: tuple(at.get((name, place), size) for place, size in enumerate(shape))
              for name, shape in problem.shapes.items()}  # fmt: skip
    return replace(problem, sizes={**problem.sizes, **symbols}, shapes=shapes)


def unnamed_dimensions(form: FusedForm, problem: Problem) -> dict[tuple[str, int], int]:
    """The dimensions, (tensor, place) -> size, that gathers and shifts index and no axis does; strides are constant."""
    found = {}
    for element in form.cascade.elements():
        last = len(element.indices) - 1 if "float" in problem.dtypes[element.name] else len(element.indices)
        for place, index in enumerate(element.indices[:last]):
            if not isinstance(index, Axis) and element.name in problem.shapes:
                found[element.name, place] = problem.shapes[element.name][place]
    for element in form.cascade.elements():
        for place, index in enumerate(element.indices):
            if isinstance(index, Axis):
                found.pop((element.name, place), None)
    return found


def size_symbol(axis: str, names: Collection[str]) -> Symbol:
    """The symbol of a run-time size: `k_size`, with underscores added if the name is taken."""
    name = f"{axis}_size"
    while name in names:
        name += "_"
    return Symbol(name, integer=True, positive=True)


def tiles_of(size: Any, length: Any) -> Any:
    """The number of tiles of a length that cover a size: a number, or an expression of a run-time size.

    >>> tiles_of(65, 64), tiles_of(Symbol("k_size"), 64)
    (2, ceiling(k_size/64))
    """
    plain = isinstance(size, int | Integer) and isinstance(length, int | Integer)
    return -(-size // length) if plain else ceiling(sympify(size) / length)
