"""The places in tensors that statements about elements of rows read and store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from sympy import Expr, Lt, S
from sympy.core.basic import Basic

from redalg.lower_tile.ir.program import Copy, Loop, Parallel, Parameter, Region, Statement, expressions
from redalg.lower_tile.ir.row_pieces import I, J
from redalg.lower_tile.ir.scalars import Load

Access = tuple[str, tuple[Expr, ...]]
"""The name of what a statement reads or stores, and the place of the element."""


def accesses_of(statements: Iterable[Statement], width: int) -> Iterator[Access]:
    """Yield what statements read and store; of a tile that is copied, element (I, J)."""
    for statement in statements:
        if isinstance(statement, Loop):
            continue
        if isinstance(statement, Copy):
            source = statement.source
            yield (source, ()) if isinstance(source, str) else (source.name, tuple(place_of_copy(source, width)))
        elif isinstance(statement, Parallel):
            yield from ((store.target, store.indices) for store in statement.body)
        for node in expressions(statement):
            yield from ((load.name, load.indices) for load in node.atoms(Load))


def conditions_of(statements: Iterable[Statement]) -> set[Basic]:
    """The conditions of all statements that an index is less than a number."""
    return {one for statement in statements for node in expressions(statement) for one in node.atoms(Lt)}


def place_of_copy(source: Region, width: int) -> Iterator[Expr]:
    """Yield the place of element (I, J) of a tile that is copied, of `width` columns."""
    spans = [one if isinstance(one, tuple) else (one, 1) for one in source.place]
    columns = max((number for number, (_, length) in enumerate(spans) if length == width), default=None)
    for number, (start, length) in enumerate(spans):
        yield start + J if number == columns else start + I if length > 1 else start


def row_number(indices: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The number of the row at indices, of those of a tensor whose other dimensions are these."""
    number: Expr = S.Zero
    for place, size in zip(indices, shape, strict=True):
        number = number * size + place
    return number


def first_row(place: Sequence[Expr], parameter: Parameter) -> Expr | None:
    """The number, among all rows of a tensor, of that at I = 0, for the place of an element of row I, or of a number of
    it; None if rows that follow each other do not have numbers that do."""
    before = place[:-1] if place[-1] == J else place
    if any(one.has(J) for one in before) or not all(isinstance(one, int) for one in parameter.shape):
        return None
    first = row_number(before, parameter.shape[: len(before)]).expand() - I
    return None if first.has(I) else first


def with_one_dimension(parameter: Parameter, dimensions: int | None = None) -> Parameter:
    """A parameter whose first dimensions are one; all of them, if no number is given."""
    count = len(parameter.shape) if dimensions is None else dimensions
    folded = parameter.folded or (1,) * len(parameter.shape)
    shape = (prod(parameter.shape[:count]), *parameter.shape[count:])
    return replace(parameter, shape=shape, folded=(sum(folded[:count]), *folded[count:]))
