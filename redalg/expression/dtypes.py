"""Dtypes of numbers: a row for each, which every stage reads. A dtype that has no row is refused.

A new dtype needs a row here and a test; if kernels are to multiply in it, `strategies.rules.products.HOLDS` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, final


@final
@dataclass(frozen=True)
class Dtype:
    """A dtype, by the name that torch and TileLang give it.

    Attributes:
        name: its name.
        kind: `float`, `integer` or `bool`.
        bytes: its size.
        digits: binary digits of the significand, the hidden one too; of an integer those of its magnitude.
        largest: the largest number.
        least: the exponent of the smallest normal float, 2^least.
        saturates: what exceeds the largest number is rounded to it, and not to infinity.
        in_numpy: NumPy has it.
        rounds: `cast` rounds to it.
        spelled: its other names.
    """

    name: str
    kind: Literal["float", "integer", "bool"]
    bytes: int
    digits: int
    largest: int
    least: int = 0
    saturates: bool = False
    in_numpy: bool = True
    rounds: bool = True
    spelled: tuple[str, ...] = ()

    @property
    def is_float(self) -> bool:
        """Tells if it is a float."""
        return self.kind == "float"

    @property
    def roundoff(self) -> float:
        """The unit roundoff u: a float is rounded by a relative error of at most u."""
        return 2.0**-self.digits

    @property
    def limit(self) -> float:
        """The number to which larger ones are rounded: the largest, or infinity."""
        return float(self.largest) if self.saturates else inf


def _integer(name: str, size: int, *, rounds: bool = True, unsigned: bool = False) -> Dtype:
    digits = 8 * size - (not unsigned)
    return Dtype(name, "integer", size, digits, 2**digits - 1, saturates=True, rounds=rounds)


_ROWS = (
    Dtype("float64", "float", 8, 53, 2**1024 - 2**971, -1022, spelled=("double", "fp64", "f64")),
    Dtype("float32", "float", 4, 24, 2**128 - 2**104, -126, spelled=("single", "fp32", "f32")),
    Dtype("float16", "float", 2, 11, 65504, -14, spelled=("half", "fp16", "f16")),
    Dtype("bfloat16", "float", 2, 8, 2**128 - 2**120, -126, in_numpy=False, spelled=("bf16",)),
    Dtype("float8_e4m3fn", "float", 1, 4, 448, -6, saturates=True, in_numpy=False, spelled=("fp8_e4m3", "float8_e4m3")),
    Dtype("float8_e5m2", "float", 1, 3, 57344, -14, saturates=True, in_numpy=False, spelled=("fp8_e5m2",)),
    _integer("int64", 8), _integer("int32", 4), _integer("int16", 2, rounds=False), _integer("int8", 1),
    _integer("uint8", 1, rounds=False, unsigned=True),
    Dtype("bool", "bool", 1, 1, 1, rounds=False, spelled=("boolean",)),
)  # fmt: skip

DTYPES: dict[str, Dtype] = {dtype.name: dtype for dtype in _ROWS}
"""The rows by name, floats first, the widest first."""
ALIASES = {spelled: name for name, dtype in DTYPES.items() for spelled in dtype.spelled}
"""Other names of dtypes."""


def dtype_as_spelled(dtype: Any) -> str:
    """The name of a dtype by a name, an alias, or torch's or NumPy's own; what is none of them as text.

    >>> dtype_as_spelled("half"), dtype_as_spelled("torch.bfloat16"), dtype_as_spelled("float12")
    ('float16', 'bfloat16', 'float12')
    """
    text = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = text.removeprefix("torch.")
    return ALIASES.get(name, name)


def is_float(name: str) -> bool:
    """Tells if a name is that of a float."""
    return name in DTYPES and DTYPES[name].is_float


def is_eight_bits(name: str) -> bool:
    """Tells if a name is that of a float of 8 bits: numbers are stored in it, and computed in a wider one."""
    return is_float(name) and DTYPES[name].bytes == 1


def is_emulated(name: str) -> bool:
    """Tells if NumPy and C lack a float: its numbers are computed in float32, and rounded."""
    return is_float(name) and not DTYPES[name].in_numpy


def floats() -> tuple[str, ...]:
    """The names of the floats, the widest first."""
    return tuple(name for name in DTYPES if is_float(name))
