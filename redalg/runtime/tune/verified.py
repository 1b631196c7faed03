"""Check a candidate's result: against the unfused definition in float64, and no worse than the first plan's.

    e(out)  = max over outputs of  max|out - ref| / max|ref|            (floating point; both finite at the same places)
                                   the share of elements that differ    (integers, truth values)
    first   e ≤ 8·max(u of inputs and result) + 8·√n·u(compute)
            or e ≤ 4·e(the definition of inputs that move by 4·u(compute))
    others  e ≤ max(4·e(first),  8·u(result) + 8·√n·u(compute))

u is a dtype's unit roundoff, n the number of elements that are reduced: sums of n terms err by √n·u most probably
(Higham, Mary: A new approach to probabilistic rounding error analysis, 2019), operands and results by u each; 8 leaves
room for conditioning. Worse conditioning, as of a sum that a cutoff bounds, shows in what the definition itself moves
by, and in the first plan's own error. Indices at ties within rounding may differ: their share is of the size of the
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf, prod, sqrt
from typing import Any, final

import torch

from redalg.expression.dtypes import DTYPES, is_eight_bits, is_float
from redalg.incremental.form import FusedForm
from redalg.runtime.bind.inputs import Bound

ROOM, WORSE, MOVED = 8.0, 4.0, 4.0
KEPT_BYTES = 1 << 30
"""Largest size of a reference in float64; beyond it, the first result that was found right takes its place."""
Arrays = dict[str, torch.Tensor]


@final
@dataclass(frozen=True)
class Verifier:
    """Check results one after another.

    Attributes:
        reference: the unfused definition's outputs.
        moved: gives those of inputs that are moved by rounding.
        first, others: the errors that the first plan may have, and others.
        errors: of the results that were right.
    """

    reference: Arrays
    moved: Callable[[], Arrays]
    first: float
    others: float
    errors: list[float] = field(default_factory=list)

    @staticmethod
    def of(form: FusedForm, bound: Bound, define: Callable[[float], Mapping[str, Any]]) -> Verifier:
        """The verifier of a problem; `define` gives its definition's outputs of inputs that move by so much."""
        count = prod(bound.sizes[axis.name] for axis in form.cascade.reduced_axes)
        inner = [producer.cascade.reduced_axes for producer in form.cascade.producers]
        count *= max((prod(bound.sizes[axis.name] for axis in axes) for axes in inner), default=1)
        sums = ROOM * sqrt(count) * DTYPES[bound.compute].roundoff
        roundoffs = [DTYPES[dtype].roundoff for dtype in (*bound.dtypes.values(), bound.result) if is_float(dtype)]
        plain = bound.compute if is_eight_bits(bound.result) else bound.result
        moved = MOVED * DTYPES[bound.compute].roundoff
        return Verifier(arrays_of(define(0.0)), cache(lambda: arrays_of(define(moved))), ROOM * max(roundoffs) + sums,
                        ROOM * DTYPES[plain].roundoff + sums)  # fmt: skip

    def check(self, out: Mapping[str, Any]) -> str:
        """The reason why a result is wrong; empty if it is right."""
        arrays = arrays_of(out)
        error = self.error(arrays)
        limit = max(WORSE * self.errors[0], self.others) if self.errors else self.first
        if not self.errors and limit < error < inf:
            limit = max(limit, WORSE * self.error(self.moved()))
        if not error <= limit:
            return f"wrong: error {error:.1e}, allowed {limit:.1e}"
        if not self.errors and sum(8 * one.numel() for one in self.reference.values()) > KEPT_BYTES:
            self.reference.update({name: one.clone() for name, one in arrays.items()})
        self.errors.append(error)
        return ""

    def error(self, arrays: Arrays) -> float:
        """The largest distance of an output from the reference."""
        return max((distance(arrays[name], one) for name, one in self.reference.items()), default=0.0)


def shake(inputs: Mapping[str, Any], by: float) -> dict[str, Any]:
    """Inputs whose floating-point elements move at random, by so much of themselves at most; alike in every call."""
    if not by:
        return dict(inputs)
    found = {name: torch.as_tensor(one) if hasattr(one, "shape") else one for name, one in inputs.items()}
    for name, tensor in found.items():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            generator = torch.Generator(tensor.device).manual_seed(0)
            moves = 2 * torch.rand(tensor.shape, dtype=torch.float64, device=tensor.device, generator=generator) - 1
            found[name] = tensor.double() * (1 + by * moves)
    return found


def arrays_of(outputs: Mapping[str, Any]) -> Arrays:
    """Outputs as torch tensors."""
    return {name: one if isinstance(one, torch.Tensor) else torch.as_tensor(one) for name, one in outputs.items()}


def distance(out: torch.Tensor, reference: torch.Tensor) -> float:
    """The distance of an output from the reference.

    >>> distance(torch.tensor([1.0, 4.5]), torch.tensor([1.0, 4.0])), distance(torch.tensor([3]), torch.tensor([4]))
    (0.125, 1.0)
    """
    if out.shape != reference.shape:
        return float("inf")
    if not out.numel():
        return 0.0
    if not out.is_floating_point():
        return float((out != reference).double().mean())
    out, reference = out.double(), reference.double()
    live = reference.isfinite()
    if not torch.equal(live, out.isfinite()):
        return float("inf")
    if not live.any():
        return 0.0
    error, largest = float((out - reference)[live].abs().max()), float(reference[live].abs().max())
    return error / largest if largest else error
