"""Rows of tables of cascades: an expression, data, and its definition in plain NumPy, which shares no code with redalg.

A row is right if every backend gives the definition in float64, in pieces merged at random too, and if float32 loses no
more than 1e-4 beyond 20 times what the definition itself loses in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch

import redalg as ra
from redalg.lower_tile.check.interpret import interpret

Arrays = dict[str, np.ndarray]
FLOOR, FACTOR = 1e-4, 20
UNDERFLOW = 1e-290
"""What float64 may take for 0."""


@final
@dataclass(frozen=True)
class Row:
    """An expression, its output axes, data in float64, and the definition: a function of the data by name."""

    expr: Any
    axes: str
    data: Mapping[str, Any]
    definition: Callable[..., Any]
    scalars: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    passes: int | None = None
    close: float = 1e-9
    pieces: bool = True
    kernel: bool = True
    single: bool = True

    def arrays(self, dtype: Any) -> Arrays:
        """The data, floating-point numbers in a dtype."""
        given = {name: np.asarray(one) for name, one in self.data.items()}
        return {name: one.astype(dtype) if one.dtype.kind == "f" else one for name, one in given.items()}

    def defined(self, dtype: Any) -> np.ndarray:
        """The definition, evaluated in a dtype."""
        with np.errstate(all="ignore"):
            return np.asarray(self.definition(**self.arrays(dtype), **self.scalars))


def assert_right(row: Row) -> None:
    """Every run of a row is as its definition says."""
    passes = {} if row.passes is None else {"passes": row.passes}
    fused = ra.fuse(row.expr, axes=row.axes, **passes)
    want = row.defined(np.longdouble)
    with np.errstate(all="ignore"):
        for name, got in runs(row, fused, np.float64):
            assert error(got, want) <= row.close, f"{name}: {got}, defined {want}"
        if row.single:
            given = row.arrays(np.float32)
            rounded = Row(row.expr, row.axes, given, row.definition, row.scalars)
            want = rounded.defined(np.longdouble)
            bound = FLOOR + FACTOR * error(rounded.defined(np.float32), want)
            for name, got in runs(row, fused, np.float32):
                assert error(got, want) <= bound, f"{name}, float32: {got}, defined {want}"


def runs(row: Row, fused: ra.Fused, dtype: Any) -> Iterator[tuple[str, Any]]:
    """The results of every way to run it: libraries, pieces, and the tile program."""
    given, more = row.arrays(dtype), dict(row.scalars)
    sizes = {"sizes": dict(row.sizes)} if row.sizes else {}
    yield "torch", fused(**{name: torch.from_numpy(one.copy()) for name, one in given.items()}, **more, **sizes)
    if dtype == np.float64:
        yield "numpy", fused(**given, **more, backend="numpy", **sizes)
        if row.pieces and row.passes is None:
            yield "pieces", in_pieces(fused, given, more, dict(row.sizes))
    if row.kernel and row.passes is None:
        yield "tile program", interpreted(fused, given, more, dict(row.sizes))


def sizes_of(fused: ra.Fused, given: Arrays, sizes: dict[str, int]) -> dict[str, int]:
    """The size of every axis that is an index of a tensor, and those given."""
    found = dict(sizes)
    for one in fused.cascade.elements():
        found |= {str(axis): size for axis, size in zip(one.indices, given[one.name].shape, strict=True)
                  if axis in fused.cascade.axes()}  # fmt: skip
    return found


def in_pieces(fused: ra.Fused, given: Arrays, scalars: dict[str, float], sizes: dict[str, int], seed: int = 0) -> Any:
    """The value of states of random pieces, an empty one among them, neighbours merged at random."""
    axis, rng = fused.cascade.axis, np.random.default_rng(seed)
    along = {one.name: one.indices.index(axis) for one in fused.cascade.elements() if axis in one.indices}
    length = sizes_of(fused, given, sizes)[str(axis)]
    cuts = sorted([0, length, *rng.integers(0, length + 1, 3).tolist(), length // 2, length // 2])
    totals: dict[Any, int] = (
        {axis: length} if axis in fused.cascade.extents() or str(axis) in fused.cascade.extents() else {}
    )
    totals |= {name: size for name, size in sizes.items() if name != str(axis)}
    states = [fused.leaf({name: np.take(one, range(start, stop), along[name]) if name in along else one
                          for name, one in given.items()} | scalars, start={axis: start}, extents=totals)
              for start, stop in pairwise(cuts)]  # fmt: skip
    while len(states) > 1:
        place = int(rng.integers(len(states) - 1))
        states[place : place + 2] = [fused.merge(states[place], states[place + 1])]
    return fused.finish(states[0], given)


def interpreted(fused: ra.Fused, given: Arrays, scalars: dict[str, float], sizes: dict[str, int]) -> Any:
    """The value of the tile program of the C target, by its interpreter."""
    known = sizes_of(fused, given, sizes)
    program = fused.lower("c", sizes=known, dtypes={name: str(one.dtype) for name, one in given.items()}).program
    [output] = fused.cascade.outputs
    shape = [known.get(str(axis)) or axis.size for axis in output.axes]
    return interpret(program, given | scalars)[output.name].reshape(shape)


def error(got: Any, want: Any) -> float:
    """The largest error beside the largest magnitude; ∞ where a value is finite and the other is not, or ∞ of one sign.

    NaN is as good as ∞ where the definition is neither: which non-finite value a sum has is not promised.
    """
    made, wanted = np.asarray(got).astype(np.longdouble), np.asarray(want).astype(np.longdouble)
    finite = np.isfinite(wanted)
    if made.shape != wanted.shape or (np.isfinite(made) != finite).any():
        return float("inf")
    scale = np.abs(wanted[finite]).max(initial=0)
    off = np.abs(made[finite] - wanted[finite]).max(initial=0)
    return float(off / scale) if scale > UNDERFLOW else float(off)
