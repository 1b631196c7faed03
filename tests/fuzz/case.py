"""A random cascade as data: outputs over tensors whose names say what kind of values they hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from sympy import Expr

import redalg as ra

Outputs = Mapping[str, tuple[Expr, str]]
SHAPES = {
    **dict.fromkeys("xyswpzgM", "b n"),
    "t": "b",
    "c": "n",
    "v": "n e",
    "Q": "b d",
    "K": "n d",
    "u": "n m",
    "r": "b n m",
    "a": "m",
    "l": "b",
    "i": "n",
}
"""Tensor -> its axes, in order."""
KINDS = {
    **dict.fromkeys("xyzctvQKura", "value"), "s": "logit", "w": "positive", "p": "share", "M": "mask", "g": "label",
    "l": "length", "i": "place",
}  # fmt: skip
"""Tensor -> what its elements are."""
SCALARS = {"gamma": 0.75, "eps": 0.125}
LENGTHS = (0, 1, 2, 3, 5, 17, 40)
"""Sizes of the streamed axis."""
SIZES = {"b": 2, "e": 2, "d": 3, "m": 3}

b, n, e, d, m = ra.axes("b n e d m")
gamma, eps = ra.scalars("gamma eps", positive=True)
T = TypeVar("T")


def tensor(name: str) -> ra.Element:
    """The element of a tensor at its own axes."""
    return ra.tensor(f"{name}[{SHAPES[name].replace(' ', ',')}]")


@final
@dataclass(frozen=True)
class Case:
    """A cascade and where it comes from.

    Attributes:
        generator, seed: what drew it.
        outputs: name -> (expression, axes), as `fuse` takes them.
    """

    generator: str
    seed: int
    outputs: Outputs

    @property
    def name(self) -> str:
        return f"{self.generator} {self.seed}"


@final
@dataclass(frozen=True)
class Draw:
    """Choices of a seeded generator."""

    rng: random.Random

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return self.rng.random() < probability

    def of(self, *choices: T) -> T:
        """One of the choices."""
        return self.rng.choice(choices)

    def weighted(self, choices: Mapping[T, float]) -> T:
        """One of the choices, by their weights."""
        return self.rng.choices(list(choices), list(choices.values()))[0]

    def call(self, functions: Sequence[Callable[..., T]], *args: object) -> T:
        """One of the functions, called."""
        return self.rng.choice(functions)(*args)


def axes_of(expr: Expr) -> str:
    """The free axes of an expression, those of rows first."""
    names = {one.name for one in expr.free_symbols if isinstance(one, ra.Axis)}
    return " ".join(name for name in ("b", "n", "m", "e", "d", "j") if name in names)
