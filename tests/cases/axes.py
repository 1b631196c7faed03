"""What the tests of several axes and of carried outputs share: seeded data of named axes, and the tolerance.

The definition is `tests/oracle.py`, in extended precision with a running error bound; the tolerance is that bound at
the roundoff of the compute dtype, and the rounding of the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sympy import Expr

import redalg as ra
from tests.oracle import Oracle


def drawn(shapes: Mapping[str, str], sizes: Mapping[str, int], seed: int = 0, dtype: str = "float64") -> dict[str, Any]:
    """Standard normal tensors by name, of the axes that `shapes` names."""
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal([sizes[axis] for axis in axes.split()]) for name, axes in shapes.items()}
    return {name: one.astype(dtype) for name, one in made.items()}


def defined(
    got: Any, expr: Expr, axes: str, given: Mapping[str, Any], sizes: Mapping[str, int], compute: str = "float64"
) -> None:
    """`got` is the definition of `expr` over `axes`, within the running error bound at the roundoff of `compute`."""
    tensors = {name: np.asarray(one) for name, one in given.items()}
    want, bound = Oracle(tensors, {}, sizes).output(expr, axes)
    close(got, want, bound, compute)


def close(got: Any, want: np.ndarray, bound: np.ndarray, compute: str) -> None:
    """Equal where not finite; elsewhere within `bound` roundoffs of `compute`, the output's rounding, and underflow."""
    got = np.asarray(got)
    assert got.shape == want.shape
    info = np.finfo(got.dtype)
    allowed = float(np.finfo(compute).eps) * bound + float(info.eps) * np.abs(want) + float(info.tiny)
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        wrong = ~(same | (np.abs(got.astype(np.longdouble) - want) <= allowed))
    assert not wrong.any(), f"got {got[wrong][:3]}, wanted {want[wrong][:3]} ± {allowed[wrong][:3]}"


def needed(made: ra.Fused, given: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a form's call takes."""
    return {name: given[name] for name in made.cascade.inputs()}


def on_torch(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same tensors as torch's."""
    import torch

    return {name: torch.from_numpy(np.array(one)) for name, one in given.items()}
