"""Stages that are tensors as they stand, or numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from sympy import Expr

from redalg.definition import evaluate_definition
from redalg.expression import Axis
from redalg.expression.contents import free_axes
from redalg.gradient.arrays import cast_like, repeat_along


def elementwise_value(expr: Expr, order: tuple[Axis, ...], given: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """An expression at every place of its axes; along an axis that it lacks it is repeated."""
    scalars = {name: one for name, one in given.items() if isinstance(one, int | float)}
    tensors = {name: one for name, one in given.items() if name not in scalars}
    own = tuple(axis for axis in order if axis in free_axes(expr))
    made = evaluate_definition({"out": (expr, own)}, tensors, scalars, dict(sizes))["out"]
    floats = [one.reshape(-1)[:0] for one in tensors.values() if "float" in str(one.dtype)]
    made = made if not floats else cast_like(made, reduce(add, floats))
    return repeat_along(made, own, order, sizes)
