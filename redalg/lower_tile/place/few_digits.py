"""Numbers of so few digits that float32 adds them as well as their outputs can show.

    Σ_j (x[i, j] − c[i])   →   Σ_j x[i, j] − n·c[i]        c the mean, n elements of p bits: p + log₂ n ≤ 22

The sum on the left gives back what the mean lost in rounding. Let M be the largest |x| of a row. Where all |x| ≥ M/4,
float32 holds every sum of n of them exactly, and the difference on the right is what the division rounded: n·c is exact
if n is a power of two, and GPUs round n·c and the difference once (FMA). Else an element lies 3·M/8 or more from the
mean, beside which what the mean is rounded by, some 2⁻¹⁹·M at most, shows in no output of 16 bits. A total that is
infinite or NaN has the centre 0, and stays.
"""

from __future__ import annotations

from math import log2, prod

from redalg.expression import Element, Value
from redalg.expression.dtypes import DTYPES, is_float
from redalg.lower_tile.place.frames import Job

SPARE = 2
"""Bits beside those of a sum, by which elements may differ in size."""


def has_few_digits(dtype: str) -> bool:
    """Tell if a product of two such numbers has fewer digits than float32."""
    return is_float(dtype) and 2 * DTYPES[dtype].digits < DTYPES["float32"].digits


def means_of_few_digits(job: Job) -> frozenset[Value]:
    """The pivots whose means the elements' total gives to the digits of the outputs."""
    form, problem = job.form, job.problem
    sizes = [problem.sizes[one.name] for one in form.cascade.reduced_axes]
    outputs = [job.dtypes.get(one.name, problem.compute) for one in form.outputs]
    known = all(isinstance(one, int) for one in sizes) and form.centres_are_means
    if not known or problem.compute != "float32" or not all(map(has_few_digits, outputs)):
        return frozenset()
    n = max(1, prod(sizes))
    if job.plan.device.target == "c" and n & (n - 1):
        return frozenset()
    bits = DTYPES["float32"].digits - SPARE - log2(n)
    reads = ((one.value, one.base) for one in form.slot_pivots if isinstance(one.base, Element))
    return frozenset(value for value, element in reads if _has_digits(problem.dtypes[element.name], bits))


def _has_digits(dtype: str, most: float) -> bool:
    """Tell if a dtype is of floating numbers that have so many bits at most."""
    return has_few_digits(dtype) and DTYPES[dtype].digits <= most
