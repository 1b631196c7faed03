"""Errors of outputs beside a reference, by one measure: max|out - ref| / max|ref|; of indices the share that differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from redalg.errors import InputError
from redalg.expression.dtypes import DTYPES


@final
@dataclass(frozen=True)
class Output:
    """An output as an array of NumPy, floats in float64 at least, and the dtype that it was given in."""

    array: Any
    dtype: str

    @staticmethod
    def of(array: Any) -> Output:
        """The output of an array of NumPy or torch, or of a number."""
        if hasattr(array, "detach"):
            array = array.detach()
            name = str(array.dtype).removeprefix("torch.")
            try:
                return Output((array.double() if array.is_floating_point() else array).cpu().numpy(), name)
            except (TypeError, NotImplementedError) as cause:
                raise InputError(f"a tensor of {name} and layout {array.layout} on {array.device} has no numbers to "
                                 f"compare: {cause}") from cause  # fmt: skip
        made = np.asarray(array)
        narrow = made.dtype.kind == "f" and made.itemsize < 8
        return Output(made.astype(np.float64) if narrow else made, made.dtype.name)


Outputs = Mapping[str, Output]


def named_results(made: Any, names: Sequence[str]) -> Outputs:
    """The outputs of a call by name.

    Raises:
        ValueError: the call gave another number of outputs.
    """
    several = made if isinstance(made, tuple | list) else (made,)
    if len(several) != len(names):
        raise ValueError(f"it returned {len(several)} outputs, and there are {len(names)}: {', '.join(names)}")
    return {name: Output.of(each) for name, each in zip(names, several, strict=True)}


@final
@dataclass(frozen=True)
class Truth:
    """An output as it should be.

    Attributes:
        array: of the reference.
        scale: the magnitude that errors are relative to: the largest of the reference.
        is_known: where the reference tells the value. Of finite data it does not where it left its own range.
        lenient: a contestant's output may be not finite where the reference is finite: an infinite element makes every
            output not finite that it reaches, and the reference need not.
    """

    array: Any
    scale: float
    is_known: Any
    lenient: bool = False

    @staticmethod
    def of(wanted: Output, *, finite_data: bool = False, lenient: bool = False, beside: Output | None = None) -> Truth:
        """The truth of a reference; another reference beside it tells the scale where the first is 0."""
        array = wanted.array
        if array.dtype.kind != "f":
            return Truth(array, 1.0, np.ones(array.shape, bool))
        arrays = [array] if beside is None else [array, beside.array]
        finite = [one[np.isfinite(one)] for one in arrays]
        scale = max((float(np.abs(one).max()) for one in finite if one.size), default=1.0)
        known = np.isfinite(array) if finite_data else np.ones(array.shape, bool)
        return Truth(array, scale, known, lenient)

    @property
    def is_whole(self) -> bool:
        """Tells if the reference tells all values."""
        return bool(self.is_known.all())


def check_shape(made: Any, wanted: Any) -> None:
    """Refuse an array whose shape is not that of a definition's.

    Raises:
        ValueError: the shapes differ.
    """
    if made.shape != wanted.shape:
        raise ValueError(f"an output has shape {made.shape}, and the definition's has {wanted.shape}")


def output_error(out: Output, truth: Truth) -> float:
    """The error of one output, relative to the largest magnitude of the reference.

    It is infinite where the one is finite and the other is not; what the output's dtype cannot hold counts as not
    finite. Which of the values that are not finite stands in a place does not count. Of indices and truth values it is
    the share that differ. NaN where the reference tells no value at all.

    Raises:
        ValueError: the shapes differ.

    >>> output_error(Output.of(np.float32([1.0, 2.0])), Truth.of(Output.of(np.array([1.0, 4.0]))))
    0.5
    >>> output_error(Output.of(np.array([1, 2])), Truth.of(Output.of(np.array([1, 3]))))
    0.5
    >>> output_error(Output.of(np.float32([np.inf])), Truth.of(Output.of(np.array([1e40]))))
    0.0
    """
    made, wanted = out.array, truth.array
    check_shape(made, wanted)
    if wanted.dtype.kind != "f":
        return float(np.mean(made != wanted)) if wanted.size else 0.0
    row = DTYPES.get(out.dtype, DTYPES["float64"])
    with np.errstate(all="ignore"):
        finite = np.abs(wanted) <= float(row.largest)
        alike = np.isfinite(made) == finite
        if truth.lenient:
            alike |= finite
        if not alike[truth.is_known].all():
            return math.inf
        both = finite & np.isfinite(made) & truth.is_known
        if not both.any():
            return math.nan if wanted.size and not truth.is_known.any() else 0.0
        return float(np.abs(made - wanted)[both].max()) / max(truth.scale, 2.0**row.least)


def largest_error(found: Outputs, wanted: Outputs) -> float:
    """The largest of the outputs' errors."""
    return max((output_error(found[name], Truth.of(one)) for name, one in wanted.items()), default=0.0)


def error_text(error: float) -> str:
    """An error in a table: `0`, two digits, or `not finite`.

    >>> error_text(0.0), error_text(1.234e-7), error_text(math.inf)
    ('0', '1.2e-07', 'not finite')
    """
    if math.isnan(error):
        return "-"
    return "not finite" if math.isinf(error) else f"{error:.1e}" if error else "0"
