"""The parameters of a program: inputs, scalars and outputs, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression import Cast, Element, Scalar, Value
from redalg.expression.contents import of_kind
from redalg.expression.dtypes import DTYPES
from redalg.incremental.form import FusedForm
from redalg.incremental.stages import Stages
from redalg.lower_tile.ir.names import kernel_name
from redalg.lower_tile.ir.program import Parameter
from redalg.lower_tile.place.space import output_name
from redalg.strategies.plan import Problem, shape_of

NARROW = 2
"""Bytes of an element that stages hand on as it was rounded."""


def inputs(stages: Stages, problem: Problem) -> tuple[Parameter, ...]:
    """Inputs, then scalars, in order of name, of every stage; without the arrays that one stage makes for another."""
    handed_on, elements = {output.name for output in stages.intermediates}, stages.elements
    names = sorted({element.name for element in elements} - handed_on)
    shapes = {name: problem.shapes[name] if name in problem.shapes else shape_of(name, elements, problem)
              for name in names}  # fmt: skip
    arrays = [
        Parameter(kernel_name(key), shape or (1,), problem.dtypes[key], "input", key, problem.views.get(key, ()))
        for key, shape in shapes.items()
    ]
    scalars = sorted({str(one.name) for form in stages.forms for one in form.cascade.scalars()})
    exact = {one.name for form in stages.forms for one in of_places(form)}
    return (*arrays, *(Parameter(kernel_name(key), (), "float64" if key in exact else problem.compute, "scalar", key)
                       for key in scalars))  # fmt: skip


def of_places(stage: FusedForm) -> frozenset[Scalar]:
    """The scalars that are compared with places, or with each other: a narrow type does not hold every place."""
    exprs: list[Basic] = [*stage.cascade.expressions(), stage.cascade.domain]
    exprs += [one.term for one in stage.extrema] + [factor for one in stage.accumulators for factor in one.factors]
    exprs += [one.expr for one in stage.assignments] + [one.expr for one in stage.outputs]
    relations = (
        relation
        for expr in exprs
        for relation in of_kind(Relational, expr)
        if not (of_kind(Element, relation) or of_kind(Value, relation))
    )
    return frozenset(scalar for one in relations for scalar in of_kind(Scalar, one))


def outputs(stages: Stages, problem: Problem, dtypes: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Outputs, in the order in which they were named (a single number is an array of one)."""
    shapes = {output.name: tuple(problem.sizes[axis.name] for axis in (output.shape if output.places else output.axes))
              for output in stages.outputs}  # fmt: skip
    return tuple(
        Parameter(output_name(key, problem), shape or (1,), dtypes[key], "output", key) for key, shape in shapes.items()
    )


def problem_of_stage(form: FusedForm, stages: Stages, problem: Problem) -> Problem:
    """The problem of a stage, with the dtypes of the arrays that it reads from other stages: inputs may be narrower."""
    handed_on = {one.name for one in stages.intermediates}
    dtypes = {name: dtype for name, dtype in problem.dtypes.items() if name not in handed_on}
    read = {name: dtype_between(name, stages, problem) for name in form.cascade.inputs() if name in handed_on}
    return replace(problem, dtypes={**dtypes, **read})


def dtypes_in_kernels(problem: Problem) -> dict[str, str]:
    """The dtypes of the inputs, by their names in kernels."""
    return {kernel_name(name): dtype for name, dtype in problem.dtypes.items()}


def dtype_between(name: str, stages: Stages, problem: Problem) -> str:
    """The dtype of an array that one stage makes for another: the arithmetic's; bytes for truth, int64 for indices.

    What is rounded to the 16 bits of an input has these.
    """
    [expr] = (one.expr for one in stages.intermediates if one.name == name)
    if isinstance(expr, Cast) and expr.dtype in problem.dtypes.values() and DTYPES[expr.dtype].bytes == NARROW:
        return expr.dtype
    return {"bool": "uint8", "": problem.compute}.get(stages.whole.get(name, ""), "int64")


def between(stages: Stages, problem: Problem) -> tuple[Parameter, ...]:
    """The arrays that one stage makes for another, as workspaces."""
    shapes = {one.name: tuple(problem.sizes[axis.name] for axis in one.axes) for one in stages.intermediates}
    return tuple(
        Parameter(kernel_name(key), shape or (1,), dtype_between(key, stages, problem), "workspace", key)
        for key, shape in shapes.items()
    )
