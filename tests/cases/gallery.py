"""Checks of the library's patterns: data, ordinary and hostile, and the definition in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import numpy as np

import redalg as ra
from redalg import library
from tests.cases.rows import error

FLOOR, FACTOR = 1e-5, 20
"""The bound of float32: so much, and so many times the error that the definition itself makes in float32."""


@final
@dataclass(frozen=True)
class Check:
    """Data of a pattern by tensor, in float64, and its definition: a function of tensors and scalars by name.

    Attributes:
        definition: gives an array, or a tuple of them in the order of the outputs.
        data: ordinary data.
        hostile: those tensors that are replaced, for each hostile kind of data.
        scalars, sizes: as a call takes them.
        close: the error that float64 may have.
    """

    definition: Callable[..., Any]
    data: Mapping[str, Any]
    hostile: tuple[Mapping[str, Any], ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    close: float = 1e-9

    def datasets(self) -> list[dict[str, Any]]:
        """Ordinary data, then hostile ones."""
        return [{**self.data, **more} for more in ({}, *self.hostile)]

    def defined(self, data: Mapping[str, Any], dtype: Any) -> tuple[Any, ...]:
        """The definition, evaluated in a dtype."""
        with np.errstate(all="ignore"):
            found = self.definition(**cast(data, dtype), **self.scalars)
        return found if isinstance(found, tuple) else (found,)

    def run(self, fused: ra.Fused, data: Mapping[str, Any], dtype: Any, backend: str) -> tuple[Any, ...]:
        """The pattern's outputs."""
        more = {"sizes": dict(self.sizes)} if self.sizes else {}
        with np.errstate(all="ignore"):
            found = fused(**cast(data, dtype), **self.scalars, **more, backend=backend)
        return tuple(found) if isinstance(found, tuple) else (found,)


@cache
def derived(name: str) -> ra.Fused:
    """A pattern with its default options, derived once."""
    return library.PATTERNS[name].build()


def cast(data: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Floating-point arrays in a dtype; others as they are."""
    given = {name: np.asarray(array) for name, array in data.items()}
    return {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in given.items()}


def assert_defined(name: str, check: Check) -> None:
    """A pattern is what its definition says, on ordinary and on hostile data."""
    fused = derived(name)
    for data in check.datasets():
        want = check.defined(data, np.longdouble)
        for made, wanted in zip(check.run(fused, data, np.float64, "numpy"), want, strict=True):
            assert error(made, wanted) <= check.close, f"{name}: {made}, defined {wanted}"
    assert_single(name, check, "torch")


def assert_single(name: str, check: Check, backend: str) -> None:
    """In float32, on ordinary data, a pattern loses little more than its definition does."""
    single = cast(check.data, np.float32)
    want, rounded = check.defined(single, np.longdouble), check.defined(single, np.float32)
    for made, wanted, plain in zip(check.run(derived(name), single, np.float32, backend), want, rounded, strict=True):
        assert error(made, wanted) <= FLOOR + FACTOR * error(plain, wanted), f"{name}: {made}, defined {wanted}"
