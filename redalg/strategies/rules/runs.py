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

RUN: Final = 32
"""Elements of a run: near the root of what a part has (512 to 2048), and so of the least error."""
LEAST_RUN, WHOLE = 16, 8
"""Elements of the shortest run, and those that a thread may take together, of which a run has whole groups."""
MANY: Final = 4 * RUN
"""Elements of a part that one sum takes in a row, at most."""


def run_length(form: FusedForm, plan: Plan, problem: Problem) -> int:
    """The elements of a run, which divide a tile; 0 if a thread's sums are few elements', or it keeps none.

    A product of matrices has no runs: it has as many sums as a thread has registers for, and many parts, whose errors
    are independent.
    """
    if not plan.is_serial or plan.binding.contracted or all(one.is_count for one in form.accumulators):
        return 0
    length, tile = problem.sizes[plan.binding.streamed.name], plan.block_streamed
    if isinstance(length, int) and -(-length // plan.segments) <= MANY:
        return 0
    return next((one for one in range(RUN, LEAST_RUN - 1, -WHOLE) if tile % one == 0), tile)
