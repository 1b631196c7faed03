"""What a program is given: tensors in order of name, then scalars."""

from __future__ import annotations

from typing import Any

from redalg.errors import InputError
from redalg.expression import Axis
from redalg.incremental.form import FusedForm
from redalg.lower_tile.names import kernel_name
from redalg.lower_tile.program import Parameter
from redalg.strategies import Problem


def inputs(form: FusedForm, problem: Problem) -> tuple[Parameter, ...]:
    """Inputs, then scalars, in order of name."""
    shapes = {
        name: problem.shapes[name] if name in problem.shapes else shape_of(name, form, problem)
        for name in form.cascade.inputs()
    }
    arrays = [
        Parameter(kernel_name(key), shape or (1,), problem.dtypes[key], "input", key) for key, shape in shapes.items()
    ]
    scalars = [one.name for one in form.cascade.scalars()]
    return (*arrays, *(Parameter(kernel_name(key), (), problem.compute, "scalar", key) for key in scalars))


def shape_of(name: str, form: FusedForm, problem: Problem) -> tuple[Any, ...]:
    """A tensor's shape from how it is indexed: an axis gives its extent, constants their largest plus one."""
    elements = [one for one in form.cascade.elements() if one.name == name]
    extents = []
    for place, indices in enumerate(zip(*(one.indices for one in elements), strict=True)):
        axes = [one for one in indices if isinstance(one, Axis)]
        if not axes and not all(one.is_Integer for one in indices):
            raise InputError(
                f"tensor `{name}`: dimension {place} is indexed by `{indices[0]}`, which does not tell its extent. "
                f'Pass shapes={{"{name}": (…)}}.'
            )
        extents.append(problem.sizes[axes[0].name] if axes else 1 + max(int(one) for one in indices))
    return tuple(extents)
