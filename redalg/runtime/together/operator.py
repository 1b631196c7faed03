"""The operator of steps in a graph that PyTorch traces: redalg::together(steps, tensors, lengths) → outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from redalg.runtime.bind.operators import define_operators
from redalg.runtime.together.call import call_steps
from redalg.runtime.together.steps import read_steps


def run_together(steps: str, tensors: list[torch.Tensor], lengths: Sequence[int] = ()) -> list[torch.Tensor]:
    """The outputs of steps, at lengths of the sizes that vary."""
    with torch.no_grad():
        return [one.contiguous() for one in call_steps(steps, tensors, tuple(lengths))]


def _fake_together(steps: str, tensors: list[torch.Tensor], lengths: Sequence[int] = ()) -> list[torch.Tensor]:
    outputs = read_steps(steps).at(lengths).outputs
    return [tensors[0].new_empty(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in outputs]


define_operators("together", "str steps, Tensor[] tensors, SymInt[] lengths=[]", run_together, _fake_together)
