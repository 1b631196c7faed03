"""Compute what a term reads of rows alone, or of columns alone, once for all threads, in shared memory.

for t: … f(x[i, j], g(w[i])) …   →   r[i] = g(w[i]);  for t: … f(x[i, j], r[i]) …        exact: no block writes an input
for t: … f(i, j)·g(j, e) …       →   for t: y[j, i] = f(i, j);  z[j, e] = g(j, e);  … y[j, i]·z[j, e] …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sympy import Expr
from sympy.core.basic import Basic
from sympy.logic.boolalg import Boolean

from redalg.expression import Element, Let
from redalg.expression.contents import elements_of, free_axes, of_kind, values_of
from redalg.expression.dtypes import is_float
from redalg.incremental.fix_pivots import CENTRE
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
    known = dict(space.known)
    for node in nodes:
        if node not in known:
            index = I if space.plan.binding.row in free_axes(node) else E_
            name = node.name if isinstance(node, Let) else "of_row" if index == I else "of_column"
            load = assembly.new(name, index, scope="shared")
            before.append(assembly.stores((load, space.read(node))))
            known[node] = load
    return replace(space, known=known)


def is_centre(node: Basic) -> bool:
    """Tell if a node is a centre that `fix_pivots` finds among nine elements."""
    return isinstance(node, Let) and node.name == CENTRE


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
