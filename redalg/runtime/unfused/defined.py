"""The definition on a call's tensors: bound as for any backend, and evaluated as it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sympy import Expr

from redalg.decompose.cascade import Cascade
from redalg.definition import evaluate_definition, evaluate_sample
from redalg.errors import InputError
from redalg.expression import Element, Scalar
from redalg.runtime.bind.inputs import bind, native, scalar_of


def defined_outputs(
    cascade: Cascade,
    written: Sequence[tuple[str, Expr]],
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    unread: Mapping[str, Element | Scalar],
    *,
    dtype: str = "float64",
) -> dict[str, Any]:
    """Outputs by name, of the inputs' library, in float64 or another dtype (indices int64, truth values bool).

    Args:
        cascade: tells the tensors, scalars, sizes and output axes that a call needs; none of its terms is read.
        written: each output's name and its expression as it was given to `fuse`.
        inputs: tensors and scalars by name.
        sizes: extents by axis name, of axes that no tensor has.
        unread: the tensors and scalars by name that are written and not in the cascade.
        dtype: of the arithmetic, throughout.

    Raises:
        InputError: they do not fit the expression.

    >>> import numpy as np, redalg as ra
    >>> n = ra.axes("n")
    >>> ra.fuse(ra.var(ra.tensor("x[n]"), n)).reference(x=np.float32([1, 2, 6]))
    array(4.66666667)
    """
    return evaluate_definition(*bound_definition(cascade, written, inputs, sizes, unread), dtype)


def defined_sample(
    cascade: Cascade, written: Sequence[tuple[str, Expr]], inputs: Mapping[str, Any], sizes: Mapping[str, int],
    unread: Mapping[str, Element | Scalar], *, most: int,
) -> dict[str, tuple[Any, tuple[slice, ...]]] | None:  # fmt: skip
    """Outputs in 120 digits at their first places, with the part that they are; None where one place is too much.

    Args:
        cascade, written, inputs, sizes, unread: as those of `defined_outputs`; the tensors are of NumPy.
        most: operations on single numbers for each output.

    >>> import numpy as np, redalg as ra
    >>> total = ra.fuse(ra.sum(ra.tensor("x[n]"), ra.axes("n")))
    >>> x = np.array([1e99, 1, -1e99])
    >>> made, _ = defined_sample(total.cascade, total.written, {"x": x}, {}, {}, most=50)["out"]
    >>> float(made)
    1.0
    """
    return evaluate_sample(*bound_definition(cascade, written, inputs, sizes, unread), most)


def bound_definition(
    cascade: Cascade, written: Sequence[tuple[str, Expr]], inputs: Mapping[str, Any], sizes: Mapping[str, int],
    unread: Mapping[str, Element | Scalar],
) -> tuple[Any, dict[str, Any], dict[str, float], Mapping[str, int]]:  # fmt: skip
    """The arguments of an evaluation: outputs with their axes, tensors, scalars, sizes."""
    if absent := [name for name in unread if name not in inputs]:
        raise InputError(f"reference: {', '.join(absent)} not given. The expression as it was written holds "
                         f"{', '.join(map(str, unread.values()))}, though no reduction reads it: pass it.")  # fmt: skip
    bound = bind(cascade, {name: one for name, one in inputs.items() if name not in unread}, sizes)
    scalars = {name: scalar_of(one, inputs[name]) for name, one in unread.items() if isinstance(one, Scalar)}
    tensors = {name: native(inputs[name]) for name, one in unread.items() if isinstance(one, Element)}
    axes = {one.name: one.axes for one in cascade.outputs}
    outputs = {name: (expr, axes[name]) for name, expr in written}
    return outputs, {**bound.tensors, **tensors}, {**bound.scalars, **scalars}, bound.sizes
