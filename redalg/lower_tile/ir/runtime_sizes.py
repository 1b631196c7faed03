"""Run-time sizes of a program: what a call's arrays tell, and shapes at such sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import prod
from typing import Any

from sympy import Symbol, sympify

from redalg.expression.dtypes import DTYPES
from redalg.lower_tile.ir.program import Parameter


def shape_at(shape: tuple[Any, ...], sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    """A shape at given run-time sizes."""
    known = {symbol: sympify(size) for symbol, size in sizes.items()}
    return tuple(one if isinstance(one, int) else int(sympify(one).xreplace(known)) for one in shape)


def bytes_of_parameter(parameter: Parameter) -> Any:
    """Bytes of a parameter's array; an expression if its sizes vary."""
    return prod(parameter.shape) * DTYPES[parameter.dtype].bytes


def sizes_in(parameters: Iterable[Parameter], shapes: Mapping[str, tuple[int, ...]]) -> dict[Symbol, int]:
    """The run-time sizes that arrays of the given shapes (by the user's name) bind."""
    values = dict[Symbol, int]()
    for parameter in (one for one in parameters if one.key in shapes):
        dimensions = iter(shapes[parameter.key])
        for name, count in zip(parameter.shape, parameter.folded or [1] * len(parameter.shape), strict=True):
            size = prod(islice(dimensions, count))
            values |= {name: size} if isinstance(name, Symbol) else {}
    return values
