"""Compute what a term reads of rows alone, or of columns alone, once for all threads, in shared memory.

for t: … f(x[i, j], g(w[i])) …   →   r[i] = g(w[i]);  for t: … f(x[i, j], r[i]) …        exact: no block writes an input
for t: … f(i, j)·g(j, e) …       →   for t: y[j, i] = f(i, j);  z[j, e] = g(j, e);  … y[j, i]·z[j, e] …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sympy import Expr
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Element, Let
from redalg.expression.contents import elements_of, free_axes, of_kind, values_of
from redalg.expression.dtypes import is_float
from redalg.incremental.fix_pivots import CENTRE, NEAREST, SAMPLE
from redalg.incremental.form import FusedForm
from redalg.lower_tile.ir.program import Statement
from redalg.lower_tile.place.assembly import Assembly
from redalg.lower_tile.place.space import E_, I, J, Space


def stage_invariants(terms: Iterable[Expr], space: Space, assembly: Assembly, before: list[Statement]) -> Space:
    """The space in which a buffer stands for everything that terms compute of rows, or of columns, alone."""
    return stage((node for term in terms for node in invariants(term, space)), space, assembly, before)


def stage_centres(terms: Iterable[Expr], space: Space, assembly: Assembly, before: list[Statement]) -> Space:
    """The space in which a buffer stands for every centre of columns that terms read."""
    centres = sorted((one for one in of_kind(Let, *terms) if is_centre(one)), key=str)
    return stage((one for one in centres if space.plan.binding.column in free_axes(one)), space, assembly, before)


def stage(nodes: Iterable[Expr], space: Space, assembly: Assembly, before: list[Statement]) -> Space:
    """The space in which a buffer stands for each of some expressions of rows, or of columns, alone."""
    for node in nodes:
        if node not in space.known:
            space = stage(parts_of_centre(node, space.problem.dtypes), space, assembly, before)
            index = I if space.plan.binding.row in free_axes(node) else E_
            scope = "fragment" if isinstance(node, Element) or is_part_of_centre(node) else "shared"
            load = assembly.new(name_of_buffer(node, index), index, scope=scope)
            before.append(assembly.stores((load, space.read(node))))
            space = replace(space, known={**space.known, node: load})
    return space


def parts_of_centre(node: Expr, dtypes: Mapping[str, str]) -> list[Expr]:
    """The elements among which a centre is found, the number that stands in for those that do not count, and both.

    A kernel reads each once: TileLang takes seconds for tens of reads of one tensor.
    """
    if not is_centre(node):
        return []
    elements = sorted((one for one in elements_of(node) if free_axes(one) and is_float(dtypes[one.name])), key=str)
    named = sorted(filter(is_part_of_centre, of_kind(Let, *node.args)), key=lambda part: (part.name, str(part)))
    return [*elements, *named]


def name_of_buffer(node: Expr, index: Expr) -> str:
    """The name of the buffer that stands for an expression."""
    if isinstance(node, Let):
        return node.name
    if isinstance(node, Element):
        return f"{node.name}_sample"
    return "of_row" if index == I else "of_column"


def is_centre(node: Basic) -> bool:
    """Tell if a node is a centre that `fix_pivots` finds among nine elements."""
    return isinstance(node, Let) and node.name == CENTRE


def is_part_of_centre(node: Basic) -> bool:
    """Tell if a node is an element of the nine that counts, or the one that stands in for those that do not."""
    return isinstance(node, Let) and node.name in (NEAREST, SAMPLE)


def invariants(term: Expr, space: Space) -> Iterator[Expr]:
    """Yield the largest parts of a term that are computed of inputs, and vary along rows or columns alone."""
    binding, dtypes = space.plan.binding, space.problem.dtypes
    for part in term.args:
        if not isinstance(part, Expr | Boolean) or isinstance(part, Element):
            continue
        axes = free_axes(part) & {binding.row, binding.column, binding.streamed}
        alone = len(axes) == 1 and binding.streamed not in axes and not values_of(part)
        named = any(isinstance(arg, Let) for arg in part.args)  # its name says what it is
        numbers = [is_float(dtypes[element.name]) for element in elements_of(part)]
        of_numbers = bool(numbers) and (all(numbers) or is_centre(part))
        if alone and isinstance(part, Expr) and of_numbers and part.args[1:] and not named:
            yield part
        else:
            yield from invariants(part, space)


def stage_factors(form: FusedForm, space: Space, assembly: Assembly, body: list[Statement]) -> Space:
    """The space in which a tile stands for every factor of a product that is computed of rows, or of columns."""
    binding, known = space.plan.binding, dict(space.known)
    factors = [factor for one in form.accumulators if len(one.factors) > 1 for factor in one.factors]
    for factor in dict.fromkeys(factors):
        axes = space.axes_within(factor)
        if isinstance(factor, Element) or {binding.row, binding.column} <= axes or binding.streamed not in axes:
            continue
        tile = assembly.new("factor", J, I if binding.row in axes else E_, scope="shared")
        body.append(assembly.stores((tile, space.read(factor))))
        known[factor] = tile
    return replace(space, known=known)
