"""The derivation of forward mode: from what the user wrote to stages.

output o   →  ȯ over its streamed axis (`tangents`), with factors that its sums share, 0 where its row is empty
outputs    →  one function of all ȯ that reduce; if it is refused, a stage each
pivots     are fixed: their output does not depend on them (`invariant`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sympy import Expr, S

from redalg.errors import GradientError
from redalg.expression import Axis, Cast, Reduce, Scalar
from redalg.expression.contents import of_kind, reductions_of
from redalg.gradient.explanation import names_in_stages
from redalg.gradient.forward import Forward
from redalg.gradient.invariant import INVARIANT, pivots_among
from redalg.gradient.reverse import differentiable_definition
from redalg.gradient.rows import RowValues, guard_empty_rows, tensor_names
from redalg.gradient.spelling import with_shared_factors
from redalg.gradient.stage import JointStage, Stage, axes_text, is_narrow
from redalg.gradient.stages import Stages, of_fewest_passes
from redalg.gradient.tangents import tangent_of
from redalg.lower_tile.ir.names import Names
from redalg.runtime.bind.arrays import output_dtypes


def derive_forward(fused: Any, wrt: Sequence[str] | None = None, dtypes: Mapping[str, str] | None = None) -> Forward:
    """Forward mode of a fused function by some of its tensors (None: by all that have a tangent).

    `dtypes` are those of its floating-point tensors, if some have 16 bits or fewer: then a tangent has its output's.

    Raises:
        GradientError: something has no derivative that redalg knows, or a stage has no form.
        InputError: `wrt` names no tensor.
    """
    written = differentiable_definition(fused, wrt, "jvp")
    tensors = tensor_names(written.values())
    names = Names((*tensors, *written, *(one.name for one in of_kind(Scalar, *written.values()))))
    moving = {one: names.fresh(f"tangent_{one}") for one in sorted(tensors if wrt is None else wrt)}
    axes = {one.name: axes_text(one.axes) for one in fused.cascade.outputs}
    pivots = _pivots(fused, written, axes)
    found = dict[str, Expr]()
    for output, expr in written.items():
        tangent = tangent_of(expr, moving, [one for one, outputs in pivots.items() if output in outputs])
        if tangent is not S.Zero:
            found[output] = guard_empty_rows(with_shared_factors(tangent))
    read = tensor_names(found.values())
    stages, tangents = _stages(fused, found, names, dtypes or {})
    proofs = {one: f"{INVARIANT} This is shown of {', '.join(outputs)}." for one, outputs in pivots.items() if outputs}
    own = {tensor: name for tensor, name in moving.items() if name in read}
    given = names_in_stages([expr for _, expr in fused.written], RowValues({}))
    return Forward(fused, stages, tangents, own, proofs, partial(derive_forward, fused, wrt), given)


def _pivots(fused: Any, written: Mapping[str, Expr], axes: Mapping[str, str]) -> dict[Reduce, list[str]]:
    """The extrema of row size, with the outputs that are proved not to depend on them."""
    found = dict[Reduce, list[str]]()
    for extremum in RowValues.of(fused, written).names:
        outputs = {name: [(expr, axes[name])] for name, expr in written.items() if extremum in reductions_of(expr)}
        found[extremum] = [name for name, one in outputs.items() if pivots_among([extremum], one, fused.of_outputs)]
    return found


def _stages(
    fused: Any, found: Mapping[str, Expr], names: Names, dtypes: Mapping[str, str]
) -> tuple[tuple[Stage | JointStage, ...], dict[str, str]]:
    """The stages, and the name of each output's tangent in them."""
    narrow = {name: one for name, one in dtypes.items() if is_narrow(one)}
    by_output = output_dtypes(fused, dtypes) if narrow else {}
    axes = {one.name: one.axes for one in fused.cascade.outputs}
    stages, tangents = Stages.of(fused, found, RowValues({}), names, narrow), dict[str, str]()
    reducing = [name for name, expr in found.items() if reductions_of(expr)]
    rounded = {name: Cast(found[name], by_output[name]) if by_output else found[name] for name in reducing}
    joint = _joint_stage(stages, {names.fresh(f"tangent_{name}"): (expr, axes[name]) for name, expr in rounded.items()})
    if joint is not None:
        tangents = {name: part.name for name, part in zip(reducing, joint.parts, strict=True)}
    for name in [one for one in found if one not in tangents]:
        tangents[name] = stages.append(f"tangent_{name}", found[name], axes[name], by_output.get(name))
    return (*([] if joint is None else [joint]), *stages.found), tangents


def _joint_stage(stages: Stages, tangents: Mapping[str, tuple[Expr, tuple[Axis, ...]]]) -> JointStage | None:
    """One function of tangents by name; None if no form makes them together."""
    outputs = {name: (expr, axes_text(axes)) for name, (expr, axes) in tangents.items()}
    try:
        fused = of_fewest_passes(stages.fuse, outputs, None, "the tangents") if outputs else None
    except GradientError:
        return None
    parts = tuple(Stage(name, expr, axes, fused) for name, (expr, axes) in tangents.items())
    return JointStage(parts, fused) if parts else None
