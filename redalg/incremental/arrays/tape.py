"""Programs recorded on an array library: the library's own calls in order, which later runs repeat.

A recording is a run over one element of every axis by a `Recorder` in the library's place: it computes, and writes down
what it was asked. What depends on sizes, places or tensors is written down as a call with the scope, so that one tape
serves all of them. It does not serve other dtypes, and none is made where places lie beyond the compute dtype's
integers: there the data decide how numbers are kept.

    run    registers: the scope, the inputs, constants, then what each step gives; freed after their last use
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from redalg.incremental.arrays.arrays import ArrayOps

Step = tuple[int, Callable[..., Any], tuple[int, ...], tuple[int, ...]]
"""(register that is filled, function, registers that it is called with, those that no later step reads)."""


@final
@dataclass(frozen=True)
class Tape:
    """The calls of a program.

    Attributes:
        start: the registers before the first step; the first is for the scope, those that follow for the inputs.
        steps: the calls, in order.
        results: the registers that hold the results.
    """

    start: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def run(self, scope: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results over a scope, from the inputs."""
        registers = [scope, *inputs, *self.start[1 + len(inputs) :]]
        fetch = registers.__getitem__
        for target, function, operands, dead in self.steps:
            registers[target] = function(*map(fetch, operands))
            for number in dead:
                registers[number] = None
        return tuple(map(fetch, self.results))


@final
class Register:
    """An array of a recording, with the number of the register that holds it in a run."""

    __slots__ = ("array", "number", "recorder")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: Recorder, number: int, array: Any) -> None:
        self.recorder, self.number, self.array = recorder, number, array

    def reshape(self, shape: Sequence[int]) -> Register:
        """A constant in another shape; shapes of other arrays are not known before a run."""
        if not self.recorder.is_constant(self):
            raise AssertionError("a recorded array is reshaped, whose shape another run does not have")
        return self.recorder.constant(self.array.reshape(shape))


def _operator(function: Callable[..., Any]) -> Callable[..., Register]:
    def forward(self: Register, *others: Any) -> Register:
        return self.recorder.record(function, self, *others)

    return forward


def _reflected_operator(function: Callable[..., Any]) -> Callable[..., Register]:
    def backward(self: Register, other: Any) -> Register:
        return self.recorder.record(function, other, self)

    return backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_"):
    _word, _function = _name.strip("_"), getattr(operator, _name)
    setattr(Register, f"__{_word}__", _operator(_function))
    setattr(Register, f"__r{_word}__", _reflected_operator(_function))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert"):
    setattr(Register, f"__{_name}__", _operator(getattr(operator, _name)))


@final
class Recorder(ArrayOps):
    """An array library that computes by another, and writes down what it was asked."""

    def __init__(self, library: ArrayOps, scope: Any, inputs: Sequence[Any]) -> None:
        """`scope` and `inputs` are those of the recording."""
        self.library, self.compute = library, library.compute
        self.functions = {name: partial(self.record, function) for name, function in library.functions.items()}
        self._start = [None] * (1 + len(inputs))
        self._constants = set[int]()
        self._steps = list[tuple[int, Callable[..., Any], tuple[int, ...]]]()
        self._number = len(self._start)
        self.scope = Register(self, 0, scope)
        self.inputs = [Register(self, 1 + place, array) for place, array in enumerate(inputs)]
        self._filled = dict[int, Any]()

    def record(self, function: Callable[..., Any], *operands: Any) -> Register:
        """Call a function, and write the call down; a call on constants alone gives a constant."""
        registers = [one if isinstance(one, Register) else self.constant(one) for one in operands]
        array = function(*(one.array for one in registers))
        if all(map(self.is_constant, registers)):
            return self.constant(array)
        result = Register(self, self._next(), array)
        self._steps.append((result.number, function, tuple(one.number for one in registers)))
        return result

    def _convert(self, function: Callable[..., Any], register: Register) -> Register:
        """The register itself if its array has the dtype already, as it will in every run."""
        return register if function(register.array) is register.array else self.record(function, register)

    def apply(self, function: Callable[..., Any], scope: Any, *operands: Any) -> Register:
        return self.record(function, self.scope, *operands)

    def several(self, number: int, together: Register) -> tuple[Register, ...]:
        """The parts of a result that is a tuple."""
        return tuple(self.record(operator.itemgetter(place), together) for place in range(number))

    def constant(self, value: Any) -> Register:
        """A register that holds the same in every run."""
        register = Register(self, self._next(), value)
        self._constants.add(register.number)
        self._filled[register.number] = value
        return register

    def is_constant(self, register: Register) -> bool:
        """Tell if a register holds the same in every run."""
        return register.number in self._constants

    def tape(self, results: Sequence[Register]) -> Tape:
        """The calls so far, for these results."""
        last = dict[int, int]()
        for place, (_, _, operands) in enumerate(self._steps):
            last |= dict.fromkeys(operands, place)
        stays = {0, *self._constants, *(one.number for one in results)}
        dead: Mapping[int, list[int]] = {place: [] for place in range(len(self._steps))}
        for number, place in last.items():
            if number not in stays:
                dead[place].append(number)
        steps = ((*step, tuple(dead[place])) for place, step in enumerate(self._steps))
        start = [self._filled.get(number) for number in range(self._number)]
        return Tape(tuple(start), tuple(steps), tuple(one.number for one in results))

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    # ---- the operations of a library ---------------------------------------------------------------------------------

    def arange(self, start: int, stop: int) -> Any:
        return self.constant(self.library.arange(start, stop))

    def scalar(self, value: float) -> Any:
        return self.constant(self.library.scalar(value))

    def full(self, shape: Sequence[int], value: float) -> Any:
        return self.constant(self.library.full(shape, value))

    def to_compute(self, array: Any) -> Any:
        return self._convert(self.library.to_compute, array)

    def wide(self, array: Any) -> Any:
        return self._convert(self.library.wide, array)

    def round_to(self, array: Any, dtype: str) -> Any:
        return self.record(partial(self.library.round_to, dtype=dtype), array)

    def integer(self, array: Any) -> Any:
        return self._convert(self.library.integer, array)

    def is_float(self, array: Any) -> bool:
        return self.library.is_float(array.array)

    def isfinite(self, array: Any) -> Any:
        return self.record(self.library.isfinite, array)

    def frexp(self, array: Any) -> tuple[Any, Any]:
        mantissa, exponent = self.several(2, self.record(self.library.frexp, array))
        return mantissa, exponent

    def expand(self, array: Any, shape: Sequence[int]) -> Any:
        raise _shape_error("expand")

    def permute(self, array: Any, order: Sequence[int]) -> Any:
        raise _shape_error("permute")

    def reduce(self, kind: str, array: Any, dim: int) -> Any:
        raise _shape_error("reduce")

    def count(self, array: Any, dim: int) -> Any:
        raise _shape_error("count")

    def any(self, array: Any, dim: int) -> Any:
        raise _shape_error("any")

    def einsum(self, spec: str, *arrays: Any) -> Any:
        raise _shape_error("einsum")

    def argmax(self, array: Any, dim: int) -> Any:
        raise _shape_error("argmax")

    def order(self, array: Any, dim: int, *, descending: bool) -> Any:
        raise _shape_error("order")

    def take(self, array: Any, positions: Any, dim: int) -> Any:
        raise _shape_error("take")

    def pick(self, array: Any, numbers: Any, dim: int) -> Any:
        raise _shape_error("pick")

    def count_groups(self, keys: Any, groups: int) -> Any:
        raise _shape_error("count_groups")

    def fold_groups(self, kind: str, array: Any, keys: Any, dim: int, *, groups: int, identity: float = 0.0) -> Any:
        raise _shape_error("fold_groups")

    def concat(self, arrays: Sequence[Any], dim: int) -> Any:
        raise _shape_error("concat")


def _shape_error(name: str) -> AssertionError:
    return AssertionError(f"`{name}` depends on shapes: call it by `ArrayOps.apply`, as runs of other shapes need")
