"""How many digits a derived form keeps, beside the plain evaluation of what was written, in float32.

`Plain` evaluates the expression as written in float32, by the interpreter of `oracle`, which shares no code with the
engine. A form loses digits if its error is more than 1e-4 beyond 20 times the error of the plain evaluation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from sympy import Expr

import redalg as ra
from redalg.expression import Axis
from redalg.expression.contents import elements_of
from tests.oracle import Oracle, Pair

Arrays = Mapping[str, np.ndarray]
FLOOR, FACTOR = 1e-4, 20
ROWS, LENGTH = 3, 1024
Draw = Callable[[np.random.Generator], np.ndarray]


class Plain(Oracle):
    """The expression as written, in float32, reduction after reduction."""

    def exact(self, array: Any) -> Pair:
        made, bound = super().exact(array)
        return (made if made.dtype == bool else made.astype(np.float32)), bound


@final
@dataclass(frozen=True)
class Case:
    """An expression, its output axes, and float32 data by a random generator: name -> array."""

    name: str
    build: Callable[[], tuple[Expr, str]]
    draw: Callable[[np.random.Generator], Arrays]

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True)
class Digits:
    """Relative errors: of the plain evaluation, and of the form at once, in pieces, and as a kernel of the C target."""

    plain: float
    whole: float
    pieces: float
    kernel: float

    @property
    def lost(self) -> bool:
        """Whether the form loses digits that the plain evaluation keeps."""
        return not max(self.whole, self.pieces, self.kernel) <= FLOOR + FACTOR * self.plain


def normal(offset: float = 0, spread: float = 1) -> Draw:
    return lambda rng: single(offset + spread * rng.standard_normal((ROWS, LENGTH)))


def single(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def beside(last: float, rest: float = 0) -> Draw:
    """Normal data about `rest`, but for the last element of each row, which lies at `last`."""
    return lambda rng: single(np.where(np.arange(LENGTH) == LENGTH - 1, last, rest) + normal()(rng))


def of(name: str, term: Callable[[], Expr], axes: str = "b", **draws: Draw) -> Case:
    return Case(name, lambda: (term(), axes), lambda rng: {name: draw(rng) for name, draw in draws.items()})


def error(got: Any, want: np.ndarray) -> float:
    """The largest error, beside the largest magnitude of the values."""
    made = np.asarray(got, np.longdouble)
    scale = np.abs(want).max(initial=0)
    off = np.abs(made - want).max(initial=0)
    return float(off / scale) if np.isfinite(off) and scale > 0 else 0.0 if off == 0 else float("inf")


def named_axes(expr: Expr, tensors: Arrays) -> dict[str, tuple[str, ...]]:
    """The axes of every tensor of an expression, by name."""
    found = {one.name: one.indices for one in elements_of(expr)}
    return {name: tuple(axis.name if isinstance(axis, Axis) else "" for axis in found[name]) for name in tensors}


def measured(case: Case, *, seed: int = 0, kernel: bool = True) -> Digits:
    """The errors of a case."""
    rng = np.random.default_rng(seed)
    expr, axes = case.build()
    given = {name: np.asarray(one) for name, one in case.draw(rng).items()}
    indices = named_axes(expr, given)
    sizes = {axis: given[name].shape[place] for name, several in indices.items()
             for place, axis in enumerate(several) if axis}  # fmt: skip
    form = ra.fuse(expr, axes=axes)
    axis = form.form.cascade.axis
    streamed = axis.name
    want, _ = Oracle(given, {}, sizes).output(expr, axes)
    orders = [np.arange(sizes[streamed]), np.arange(sizes[streamed])[::-1], rng.permutation(sizes[streamed])]
    plain = [
        error(Plain(permuted(given, indices, streamed, one), {}, sizes).output(expr, axes)[0], want) for one in orders
    ]
    tensors = {name: torch.from_numpy(np.array(one)) for name, one in given.items()}
    whole = error(form(**tensors, backend="torch"), want)
    merged = error(in_pieces(form, given, indices, axis, sizes[streamed], rng), want)
    made = error(form(**tensors, backend="tilelang"), want) if kernel else 0.0
    return Digits(max(plain), whole, merged, made)


def permuted(given: Arrays, indices: Mapping[str, tuple[str, ...]], axis: str, order: np.ndarray) -> Arrays:
    """The tensors with the elements along an axis in another order."""
    return {name: np.take(one, order, indices[name].index(axis)) if axis in indices[name] else one
            for name, one in given.items()}  # fmt: skip


def in_pieces(form: Any, given: Arrays, indices: Mapping[str, tuple[str, ...]], axis: Axis, size: int,
              rng: np.random.Generator, parts: int = 7) -> Any:  # fmt: skip
    """The value of states of random pieces, merged in a random order."""
    cuts = sorted({0, size, *rng.integers(1, size, parts - 1).tolist()})
    states = []
    for start, stop in pairwise(cuts):
        piece = permuted(given, indices, axis.name, np.arange(start, stop))
        states.append(form.leaf(dict(piece), start={axis: int(start)}))
    while len(states) > 1:
        a = states.pop(int(rng.integers(len(states))))
        b = states.pop(int(rng.integers(len(states))))
        states.append(form.merge(a, b))
    return form.finish(states[0])
