"""The operator of steps in a graph that PyTorch traces: redalg::together(steps, tensors) → outputs."""

from __future__ import annotations

import torch

from redalg.runtime.bind.operators import define_operators
from redalg.runtime.together.call import call_steps
from redalg.runtime.together.steps import read_steps


def run_together(steps: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of steps."""
    with torch.no_grad():
        return [one.contiguous() for one in call_steps(steps, tensors)]


def _fake_together(steps: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    outputs = read_steps(steps).outputs
    return [tensors[0].new_empty(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in outputs]


define_operators("together", "str steps, Tensor[] tensors", run_together, _fake_together)
