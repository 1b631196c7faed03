"""Data of a case: moderate, or hostile in one of many ways; each tensor's values follow from its name and the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

import redalg as ra
from redalg.expression import Element, Scalar
from redalg.expression.contents import nodes_of
from tests.fuzz.case import KINDS, SCALARS, SHAPES, SIZES

Arrays = Mapping[str, np.ndarray]
PLAIN: dict[str, Callable[[np.random.Generator, list[int], int], np.ndarray]] = {
    "value": lambda rng, shape, _: rng.standard_normal(shape),
    "logit": lambda rng, shape, _: 3 * rng.standard_normal(shape),
    "positive": lambda rng, shape, _: rng.uniform(0.2, 2, shape),
    "share": lambda rng, shape, _: rng.uniform(0.05, 0.95, shape),
    "mask": lambda rng, shape, _: rng.uniform(size=shape) < 0.6,
    "label": lambda rng, shape, _: rng.integers(0, 3, shape),
    "length": lambda rng, shape, size: rng.integers(0, size + 1, shape),
    "place": lambda rng, shape, size: rng.integers(0, max(size, 1), shape),
}
"""Kind of a tensor -> its values, where nothing is hostile."""
FLOATS = ("value", "logit", "positive", "share")


@final
@dataclass(frozen=True)
class Data:
    """Tensors of one execution.

    Attributes:
        seed: of the values.
        length: the size of the streamed axis.
        kind: in which way they are hostile, a key of `HOSTILE`.
    """

    seed: int
    length: int
    kind: str

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis name."""
        return {**SIZES, "n": self.length, "j": 2}

    @property
    def scalars(self) -> dict[str, float]:
        """Scalars by name."""
        return SCALARS

    @cached_property
    def tensors(self) -> dict[str, np.ndarray]:
        """Tensors by name."""
        made = {}
        for name, axes in SHAPES.items():
            rng = np.random.default_rng([self.seed, ord(name)])
            made[name] = PLAIN[KINDS[name]](rng, [self.sizes[axis] for axis in axes.split()], self.length)
        with np.errstate(all="ignore"):
            HOSTILE[self.kind](np.random.default_rng([self.seed, 0]), made)
        return made

    def given(self, fused: ra.Fused) -> tuple[dict[str, Any], dict[str, int]]:
        """What a call needs: tensors and scalars by name, and sizes."""
        names = {one.name for _, expr in fused.written for one in nodes_of(expr) if isinstance(one, Element | Scalar)}
        sizes = {one.name: self.sizes[one.name] for one in fused.cascade.axes() if one.size is None}
        return {name: one for name, one in {**self.tensors, **self.scalars}.items() if name in names}, sizes


def of_kind(made: dict[str, np.ndarray], *kinds: str) -> list[np.ndarray]:
    return [array for name, array in made.items() if KINDS[name] in kinds and array.size]


def far(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    for array in of_kind(made, "value"):
        np.add(array, 1e8, out=array)


def outlier(rng: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    for array in of_kind(made, "value", "positive"):
        array.flat[rng.integers(array.size)] *= 1e6


def denormal(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    for array in of_kind(made, "value"):
        np.multiply(array, 1e-310, out=array)


def equal(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    for array in of_kind(made, *FLOATS):
        array[...] = array.flat[0]


def large_logits(rng: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    made["s"][...] = rng.uniform(-1e4, 1e4, made["s"].shape)


def masked(rng: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    made["s"][rng.uniform(size=made["s"].shape) < 0.4] = -np.inf


def row_masked(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    made["s"][0], made["M"][0], made["l"][0] = -np.inf, False, 0


def hidden(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    """NaN wherever the mask is off."""
    for array in of_kind(made, *FLOATS):
        if array.shape == made["M"].shape:
            array[~made["M"]] = np.nan


def one_place(value: float) -> Callable[[np.random.Generator, dict[str, np.ndarray]], None]:
    """One element of one tensor is not finite."""

    def mend(rng: np.random.Generator, made: dict[str, np.ndarray]) -> None:
        arrays = of_kind(made, "value", "logit")
        array = arrays[rng.integers(len(arrays))] if arrays else np.zeros(1)
        array.flat[rng.integers(array.size)] = value

    return mend


def zeros(_: np.random.Generator, made: dict[str, np.ndarray]) -> None:
    for array in of_kind(made, "value"):
        array.fill(0)


HOSTILE: dict[str, Callable[[np.random.Generator, dict[str, np.ndarray]], None]] = {
    "plain": lambda rng, made: None, "far": far, "outlier": outlier, "denormal": denormal, "equal": equal,
    "zeros": zeros, "large logits": large_logits, "masked": masked, "row masked": row_masked, "hidden": hidden,
    "nan": one_place(np.nan), "inf": one_place(np.inf), "-inf": one_place(-np.inf),
}  # fmt: skip
"""Name -> what it does to moderate tensors, in place."""
