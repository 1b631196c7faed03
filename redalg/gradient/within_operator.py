"""Calls within an operator's implementation, which run as they are, whatever is being compiled elsewhere.

PyTorch's flag of a compilation holds for all threads: an operator that runs meanwhile would be traced into itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from redalg.gradient.again import OPERATORS


@contextmanager
def within_operator() -> Iterator[None]:
    """Within it, calls of this thread run."""
    before = getattr(OPERATORS, "run", False)
    OPERATORS.run = True
    try:
        yield
    finally:
        OPERATORS.run = before


@torch.compiler.assume_constant_result
def is_within_operator() -> bool:
    """Tell if this thread runs an operator's implementation."""
    return bool(getattr(OPERATORS, "run", False))
