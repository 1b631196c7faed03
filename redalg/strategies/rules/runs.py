"""The rule for runs: elements whose sums a thread adds up on their own, before its state takes them in.

    s = s + x₁;  …;  s = s + xₙ                       rounds s at every element: an error of √n·u to n·u
    for runs of r:  t = x₁ + … + xᵣ;  s = s + t       √(n/r) + √r, at most n/r + r (Higham 2002, section 4.2)

The states of many parts are merged in the same way, in groups (`lower_tile.place.segments`). A run costs a register for
every sum of a row, and its merge every `RUN` elements.
"""

from __future__ import annotations

from typing import Final

from redalg.incremental.form import FusedForm
from redalg.strategies.plan import Plan, Problem

RUN, LONG_RUN = 64, 128
"""Elements of a run, and of one in a part of more than `LONG_PART`: about twice the root of the part's number, where
merges are half as many as at the root, and the error is hardly larger."""
LONG_PART: Final = RUN**2 // 4
LEAST_RUN, WHOLE = 16, 8
"""Elements of the shortest run, and those that a thread may take together, of which a run has whole groups."""
MOST_SUMS = 64
"""Sums of products that a thread has, at most, where those of a run stand beside them in registers."""
MANY, MANY_MOVED = RUN, 2 * RUN
"""Elements of a part that one sum takes in a row, at most; and one that moves with a maximum or a centre, whose merge
with a run's takes an exponential or a move."""


def run_length(form: FusedForm, plan: Plan, problem: Problem) -> int:
    """The elements of a run: a part of a tile, or several tiles of weighted sums; 0 if a thread has no long sums.

    A product of matrices has them where a thread has registers for its sums twice. Data often have the digits of a
    shorter type alone: squares of those end in few patterns of bits, so that roundings of a long sum have one sign
    (H200, correlations of 1000000 x 64 numbers of 16 bits in float32: 1.3e-5 from the right ones without runs, where
    PyTorch is at 1e-7; covariances in float64 of numbers of float32: 2e-14 and 7e-16).
    """
    if not plan.is_serial or all(one.is_count for one in form.accumulators):
        return 0
    wide = sum(len(one.factors) > 1 for one in form.accumulators) if plan.binding.contracted else 0
    if plan.block_row * plan.block_column * wide > MOST_SUMS * plan.threads and problem.compute != "float64":
        return 0
    length, tile = problem.sizes[plan.binding.streamed.name], plan.block_streamed
    part = -(-length // plan.segments) if isinstance(length, int) else LONG_PART
    weighted = any(one.weight for one in form.accumulators)
    if part <= (MANY_MOVED if weighted or form.slot_pivots else MANY):
        return 0
    run = RUN if part <= LONG_PART else LONG_RUN
    if run % tile == 0 and weighted:  # their merge takes an exponential a sum
        return run
    return next((one for one in range(run, LEAST_RUN - 1, -WHOLE) if tile % one == 0), tile)
