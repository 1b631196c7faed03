"""The reference of an accuracy: the definition in an arithmetic that is wide enough, and the error that it has itself.

float64       first; long double (64 bits of mantissa on x86) where the data are float64, or float64 leaves its range
doubt         the reference's own error: float64 beside long double or, where a function has none, beside data that are
              moved by their last digit
120 digits    where the doubt is more than the dtype of the result can hide, finite data leave the range of floats, or
              the call that is judged is far from the reference: of as many outputs as take no long time
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from sympy import Function

from redalg.decompose.samples.rank import has_long_double
from redalg.expression.contents import of_kind
from redalg.expression.dtypes import DTYPES, is_float
from redalg.expression.operators import OPERATORS, numpy_function
from redalg.instruments.drawing import Measurable, Tensors
from redalg.instruments.errors import Output, Outputs, Truth, error_text, largest_error, output_error
from redalg.runtime.bind.inputs import array_dtype, library_name
from redalg.runtime.unfused.defined import defined_outputs, defined_sample

FLOAT64, LONG_DOUBLE, DIGITS = "float64", "long double", "120 digits"
HIDDEN = 1 / 4
"""The share of a dtype's unit roundoff that a reference may err by."""
NEAR = 16
"""An error of so many unit roundoffs of the result's dtype is that of a call."""
MOST = 1 << 18
"""Operations on numbers of 120 digits for an output: a second."""


@final
@dataclass(frozen=True)
class Reference:
    """A definition's outputs.

    Attributes:
        outputs: by name.
        moved: the same of data that are moved by half of their last binary digit; {}: not asked for.
        doubts: the outputs' own errors, as far as they are known; 0 where the dtype hides them.
        arithmetic: that of the outputs.
        parts: the part of each output that these are; {}: the whole.
    """

    outputs: Outputs
    moved: Outputs
    doubts: Mapping[str, float]
    arithmetic: str
    parts: Mapping[str, tuple[slice, ...]]

    @property
    def text(self) -> str:
        """The arithmetic, and the largest error that it has itself, if it matters."""
        doubt = max(self.doubts.values(), default=0.0)
        return f"{self.arithmetic}, which errs by {error_text(doubt)} itself" if doubt else self.arithmetic

    def error(self, found: Outputs) -> float:
        """The largest error of a contestant's outputs."""
        return largest_error({name: self.part_of(name, one) for name, one in found.items()}, self.outputs)

    def part_of(self, name: str, output: Output) -> Output:
        """The part of a contestant's output that the reference knows."""
        return replace(output, array=output.array[self.parts[name]]) if self.parts.get(name) else output


@final
@dataclass(frozen=True)
class Definition:
    """A function's definition on tensors.

    Attributes:
        fused: the function.
        tensors: tensors and scalars by name.
        sizes: those that no tensor has.
        dtype: of the result, whose roundoff tells which errors of a reference matter.
    """

    fused: Measurable
    tensors: Tensors
    sizes: Mapping[str, int]
    dtype: str

    def reference(self, own: Outputs | None = None) -> Reference:
        """The outputs in the narrowest arithmetic that is wide enough; with their doubts where none is.

        Args:
            own: the outputs of the call that is judged. Where they are far from the reference in floats, 120 digits say
                who errs: where all digits cancel, as in scores that tie by rounding, floats agree on what is wrong.
        """
        finite_data = all(map(is_finite_array, self.tensors.values()))
        moved = {name: moved_numbers(one) for name, one in self.tensors.items()}
        made, arithmetic = self.in_floats(self.tensors, finite_data=finite_data)
        beside, _ = self.in_floats(moved, finite_data=finite_data)
        doubts = self.doubts(made, arithmetic) if finite_data else dict.fromkeys(made, 0.0)
        if finite_data and (any(doubts.values()) or self.is_far(made, own)):
            exact, exact_beside = self.in_digits(self.tensors), self.in_digits(moved)
            if exact is not None and exact_beside is not None:
                return replace(exact, moved=exact_beside.outputs)
        return Reference(made, beside, doubts, arithmetic, {})

    def reference_beside(self, made: Outputs) -> Reference:
        """The outputs that float64 made; in 120 digits where data that are moved by their last digit say that it errs.

        It takes one evaluation more, on the tensors' own device: large tensors need no long doubles.
        """
        finite_data = all(map(is_finite_array, self.tensors.values()))
        doubts = self.doubts_of_last_digit(made) if finite_data else dict.fromkeys(made, 0.0)
        exact = self.in_digits(self.tensors) if any(doubts.values()) else None
        return exact or Reference(made, {}, doubts, FLOAT64, {})

    def in_floats(self, tensors: Tensors, *, finite_data: bool) -> tuple[Outputs, str]:
        """The outputs in float64, or in long double where it is needed and there; and which it is."""
        wide = has_wide_functions(self.fused)
        if self.dtype != "float64" or not wide:
            made = self.evaluate(tensors, "float64")
            known = all(map(is_finite_array, (one.array for one in made.values())))
            if known or not finite_data or not wide:
                return made, FLOAT64
        return self.evaluate(arrays_of_numpy(tensors), "longdouble"), LONG_DOUBLE

    def doubts(self, made: Outputs, arithmetic: str) -> dict[str, float]:
        """The errors of outputs of finite data, as another evaluation tells them; 0 where the dtype hides them."""
        if arithmetic == LONG_DOUBLE:
            share = float(np.finfo(np.longdouble).eps / np.finfo(np.float64).eps)
            return self.doubts_beside(made, self.evaluate(self.tensors, "float64"), share)
        if has_wide_functions(self.fused):
            return self.doubts_beside(made, self.evaluate(arrays_of_numpy(self.tensors), "longdouble"))
        return self.doubts_of_last_digit(made)

    def doubts_of_last_digit(self, made: Outputs) -> dict[str, float]:
        """The errors of outputs, as data tell them that are moved by the last digits of float64.

        All move one way: of a long sum of moves in both directions too little is left to change its roundings.
        """
        moved = {name: moved_numbers(one, (2.0**-52, 2.0**-51)) for name, one in self.tensors.items()}
        return self.doubts_beside(made, self.evaluate(moved, "float64"))

    def doubts_beside(self, made: Outputs, beside: Outputs, share: float = 1.0) -> dict[str, float]:
        """A share of the distances of two evaluations; 0 where the dtype of the result hides it."""
        hidden = HIDDEN * DTYPES[self.dtype].roundoff
        found = {name: share * doubt_of(one, beside[name]) for name, one in made.items()}
        return {name: doubt if not doubt <= hidden else 0.0 for name, doubt in found.items()}

    def is_far(self, made: Outputs, own: Outputs | None) -> bool:
        """Tell if the reference is not finite, or an output of a call is further from it than roundings are."""
        if not all(is_finite_array(one.array) for one in made.values()):
            return True
        near = NEAR * DTYPES[self.dtype].roundoff
        return own is not None and any(not output_error(own[name], Truth.of(one)) <= near for name, one in made.items())

    def evaluate(self, tensors: Tensors, dtype: str) -> Outputs:
        """The definition as it was written, in an arithmetic."""
        fused = self.fused
        made = defined_outputs(fused.cascade, fused.written, tensors, self.sizes, fused._unread_inputs, dtype=dtype)
        return {name: Output.of(one) for name, one in made.items()}

    def in_digits(self, tensors: Tensors) -> Reference | None:
        """The outputs in 120 digits, or a part of them; None where one number of them takes too long."""
        fused, arrays = self.fused, arrays_of_numpy(tensors)
        found = defined_sample(fused.cascade, fused.written, arrays, self.sizes, fused._unread_inputs, most=MOST)
        if found is None:
            return None
        outputs = {name: Output.of(one) for name, (one, _) in found.items()}
        parts = {name: part for name, (_, part) in found.items()}
        return Reference(outputs, {}, dict.fromkeys(found, 0.0), DIGITS, parts)


def doubt_of(made: Output, beside: Output) -> float:
    """The distance of two evaluations of one output: infinite where one alone is finite."""
    if made.array.dtype.kind == "f" and (np.isfinite(made.array) != np.isfinite(beside.array)).any():
        return math.inf
    return output_error(made, Truth.of(beside, lenient=True))


def arrays_of_numpy(tensors: Tensors) -> Tensors:
    """Tensors as arrays of NumPy, floats in float64 at least; numbers as they are."""
    return {name: Output.of(one).array if library_name(one) else one for name, one in tensors.items()}


def is_finite_array(array: Any) -> bool:
    """Tell if an array, or a number, is finite throughout; integers are."""
    made = Output.of(array).array
    return made.dtype.kind != "f" or bool(np.isfinite(made).all())


def moved_numbers(array: Any, by: tuple[float, float] | None = None) -> Any:
    """A tensor's floats in float64, each moved at random by at most its unit roundoff; in float64 by one last digit.

    Args:
        array: a tensor, or a number.
        by: the least and the largest relative change, in place of the unit roundoff both ways.
    """
    if library_name(array) is None or not is_float(array_dtype(array)):
        return array
    roundoff = max(DTYPES[array_dtype(array)].roundoff, 2.0**-52)
    changes = np.random.default_rng(0).uniform(*(by or (-roundoff, roundoff)), tuple(array.shape))
    if library_name(array) == "numpy":
        return array.astype(np.float64) * (1 + changes)
    import torch

    return array.detach().double() * (1 + torch.from_numpy(changes).to(array.device))


def has_wide_functions(fused: Measurable) -> bool:
    """Tell if NumPy's long double is wider than float64 here, and has all functions of a formula."""
    if not has_long_double():
        return False
    names = {type(one).__name__ for one in of_kind(Function, *(expr for _, expr in fused.written))}
    return all(has_wide_numbers(name) for name in names if name in OPERATORS)


def has_wide_numbers(name: str) -> bool:
    """Tell if NumPy computes a function in long double."""
    half = np.array([0.5], np.longdouble)
    try:
        return bool(numpy_function(OPERATORS[name])(half).dtype == np.longdouble)
    except TypeError:
        return name in ("Max", "Min")
