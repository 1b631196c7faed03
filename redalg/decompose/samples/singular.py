"""Ranks of matrices in floats: their singular values, beside what rounding could make of them.

Rounding is what float64 and long double differ by. Singular values that exceed it count, where a gap of 10⁴ parts them
from those below. Where there is no gap, long double alone may still show a rank above 8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from redalg.decompose.samples.rank import SMALL

SKETCHED = 16
"""Rows and columns of the sketch that tells which ranks may grow."""
COUNTED = 13
"""The rank up to which long double counts: beyond 8, by as many as separate terms of a sum may add."""
GAP = 1e4
"""The least ratio of the smallest singular value that counts to one that rounding could make."""
LOST = 1e-6
"""Rounding of a data set's values, relative to the largest, beyond which floats do not decide."""
FINER = 2.0**-7
"""The most that rounding is in long double, as a share of what it is in float64: its unit is 2^-11 of that."""


def may_grow(matrices: Any) -> Any:
    """Mark the draws whose sketch in float64 has a rank above 8.

    A product with matrices of orthonormal rows has no larger singular values than the matrix.
    """
    matrix = np.asarray(matrices, dtype=np.float64)
    for axis in (0, 1):
        size = np.abs(matrix).max(axis=axis, keepdims=True)
        if not (finite := np.isfinite(size)).all():
            matrix, size = np.where(finite, matrix, 0.0), np.where(finite, size, 0.0)
        matrix = matrix / np.where(size > 0, size, 1.0)
    left, right = (_orthonormal(SKETCHED, size) for size in matrix.shape[:2])
    sketches = right @ np.tensordot(left, matrix, axes=1)
    sizes = np.linalg.svd(np.moveaxis(sketches, -1, 0), compute_uv=False)
    return sizes[:, SMALL] > 2.0**-48 * np.sqrt(np.einsum("ijk,ijk->k", matrix, matrix))


@cache
def _orthonormal(rows: int, columns: int) -> Any:
    """A matrix of orthonormal rows that are not smooth."""
    angles = np.outer(np.arange(1, columns + 1), np.sqrt(np.arange(2.0, rows + 2)))
    return np.linalg.qr(np.cos(7 * angles))[0].T


def ranks_of(coarse: Any, fine: Any, *, finer: bool) -> tuple[int, int] | None:
    """Lower bounds of the ranks of a matrix' first 8 rows and of the matrix; None if rounding may hide some of them.

    Args:
        coarse, fine: the matrix in float64 and in long double.
        finer: True if all of the second is as fine as long double is.
    """
    error = np.abs(coarse - fine)
    columns = error.max(axis=0) <= LOST * np.abs(fine).max(axis=0)
    if columns.sum() <= SMALL:
        return None
    matrix, error = fine[:, columns], error[:, columns].astype(np.float64)
    floats, scales = matrix.astype(np.float64), list[Any]()
    with np.errstate(over="ignore"):
        for axis in (1, 0):  # rows and columns of one size: scales change no rank
            size = np.abs(floats).max(axis=axis, keepdims=True)
            scale = np.exp2(-np.floor(np.log2(np.where(size > np.finfo(size.dtype).smallest_normal, size, 1))))
            floats, error = floats * scale, error * scale
            scales.append(scale)
        lost, size = (float(np.sqrt((part**2).sum())) for part in (error, floats))
    some, all_of_it = (_rank_in_floats(part, lost + 2.0**-50 * size) for part in (floats[:SMALL], floats))
    if all_of_it is None and finer:
        count = _rank_in_long_double(matrix * scales[0] * scales[1], FINER * lost + 2.0**-59 * size)
        all_of_it = count if count > SMALL else None
    return None if all_of_it is None else (SMALL if some is None else some, all_of_it)


def _rank_in_floats(matrix: Any, noise: float) -> int | None:
    """The number of singular values above the noise; None if it is small and no gap separates them from the noise.

    A matrix of many rows is replaced by a sketch, whose singular values are no larger.
    """
    sketch = matrix if len(matrix) <= 2 * SKETCHED else _orthonormal(2 * SKETCHED, len(matrix)) @ matrix
    sizes = np.linalg.svd(sketch, compute_uv=False)
    count = int((sizes > noise).sum())
    return count if count == 0 or count > SMALL or sizes[count - 1] > GAP * noise else None


def _rank_in_long_double(matrix: Any, noise: float) -> int:
    """A lower bound of the rank: the number of columns, chosen in turn, whose singular values all exceed the noise.

    A part of the columns has no larger singular values than the matrix. Theirs are those of R, where the columns are
    Q·R by Gram and Schmidt, and the least of those is at least 1/‖R⁻¹‖.
    """
    most, left, buffer, norm = min(COUNTED, *matrix.shape), matrix.copy(), np.empty_like(matrix), 0.0
    units, inverse = np.zeros((len(matrix), most), matrix.dtype), np.zeros((most, most), matrix.dtype)
    sizes = np.einsum("ij,ij->j", left, left)
    for count in range(most):
        lead = int(sizes.argmax())
        size = left[:, lead] @ left[:, lead]
        if not size > noise**2:
            sizes = np.einsum("ij,ij->j", left, left)
            lead = int(sizes.argmax())
            size = sizes[lead]
        if not size > noise**2:
            return count
        unit = left[:, lead] / np.sqrt(size)
        known, among = units[:, :count], inverse[:count, :count]
        unit = unit - known @ (unit @ known)  # again: what rounding left of the others
        unit = unit / np.sqrt(unit @ unit)
        last = 1 / (unit @ matrix[:, lead])
        above = -last * (among @ (matrix[:, lead] @ known))
        norm += float((above**2).sum() + last**2)
        if norm * noise**2 >= 1:
            return count
        inverse[:count, count], inverse[count, count], units[:, count] = above, last, unit
        along = unit @ left
        left -= np.multiply(unit[:, None], along, out=buffer)
        sizes -= along**2  # near enough to choose by
    return most
