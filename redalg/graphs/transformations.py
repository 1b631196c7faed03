"""The transformations by which statements become fewer kernels, each of which can be switched off (SOUFFLE, section 6).

    horizontal_fusion   statements that do not rely on each other share a launch, and those that are alike one text
    vertical_fusion     a statement is computed where it is read: maps of indices are composed, padding is cut off
    grid_sync           all levels of a subprogram are one launch, in which blocks wait for each other
    data_reuse          what a kernel has loaded serves several outputs

A group without vertical fusion holds reductions alone, and reads views as tensors. One without data reuse has one
output. A subprogram without grid synchronisation is a launch for each of its levels that has several parts. If parts
are not fused horizontally either, there is no subprogram; if these alone are not, parts run in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Transformations:
    """The transformations that are made: see the module."""

    horizontal_fusion: bool = True
    vertical_fusion: bool = True
    grid_sync: bool = True
    data_reuse: bool = True


ALL = Transformations()
"""Every one of them, as is the default."""
