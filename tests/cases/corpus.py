"""A pattern as data, and how it is run: the expression, its tensors, the verdict that it must get.

`theory.py` and `literature.py` beside it hold the patterns, `tests/surface/test_theory.py` and `test_literature.py` the
tests. A tensor's data follow from its role: those of `data_kinds.py`, and a few more without hostile kinds.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, final

import numpy as np

import redalg as ra
from tests.cases.data_kinds import number_of

Outputs = Mapping[str, tuple[Any, str]]
SIZES = {"n": 77, "k": 77, "b": 2, "h": 2, "q": 3, "m": 7, "c": 3, "d": 4, "e": 3, "f": 16, "i": 3, "j": 3, "r": 4}


@final
@dataclass(frozen=True)
class Pattern:
    """One pattern.

    Attributes:
        name: how people call it.
        build: the expression, or `{name: (expression, axes)}`; a function, so that what fails to build fails alone.
        axes: the output's axes (unused with several outputs).
        roles: tensor -> role, or a function of the generator and the shape.
        source: the paper or book that it is from.
        scalars: run-time scalars.
        sizes: axis sizes other than `SIZES`.
        verdict: the name of the verdict's class.
        ordered: whether its states merge in the order of the axis alone.
        why: what a refusal's reason must say.
    """

    name: str
    build: Callable[[], Any]
    axes: str = ""
    roles: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    verdict: str = "Exact"
    ordered: bool = False
    why: str = ""

    def outputs(self) -> dict[str, tuple[Any, str]]:
        """The expression and the axes of each output."""
        made = self.build()
        return dict(made) if isinstance(made, Mapping) else {"out": (made, self.axes)}

    def asked(self) -> tuple[Any, str | None]:
        """The arguments of `fuse` and of `analyze`."""
        made = self.build()
        return made, None if isinstance(made, Mapping) else self.axes

    def analyze(self) -> Any:
        expr, axes = self.asked()
        return ra.analyze(expr, axes)

    def fuse(self) -> ra.Fused:
        expr, axes = self.asked()
        return ra.fuse(expr, axes)

    def extents(self) -> dict[str, int]:
        return {**SIZES, **self.sizes}

    def tensors(self, dtype: str = "float32", seed: int = 0) -> dict[str, Any]:
        """Seeded data of every tensor, by its role."""
        shapes = self.shapes()
        return {name: draw(role, name, shapes[name], dtype, seed) for name, role in self.roles.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose indices are plain axes; a role may give its own."""
        elements = {one for expr, _ in self.outputs().values() for one in expr.atoms(ra.Element)}
        sizes = self.extents()
        plain = {one.name: one.indices for one in elements if all(isinstance(i, ra.Axis) for i in one.indices)}
        return {name: tuple(i.size or sizes[i.name] for i in plain.get(name, ())) for name in self.roles}


# ---- data ------------------------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]
ROLES: dict[str, Draw] = {
    "logit": lambda rng, shape: 3 * rng.standard_normal(shape),
    "value": lambda rng, shape: rng.standard_normal(shape) + 30,
    "free": lambda rng, shape: rng.standard_normal(shape),
    "weight": lambda rng, shape: np.abs(rng.standard_normal(shape)) + 0.1,
    "probability": lambda rng, shape: rng.uniform(0.05, 0.95, shape),
    "sign": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "mask": lambda rng, shape: rng.uniform(size=shape) < 0.6,
}


def draw(role: Any, name: str, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """One tensor: floats in `dtype`, masks and indices as they are."""
    rng = np.random.default_rng([seed, number_of(name)])
    made = np.asarray((ROLES[role] if isinstance(role, str) else role)(rng, shape))
    return made.astype(dtype) if made.dtype.kind == "f" else made


# ---- ways to run -----------------------------------------------------------------------------------------------------

Arrays = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Runner:
    """One fused form on one set of tensors, cut along the streamed axis."""

    made: ra.Fused
    tensors: Arrays
    sizes: Mapping[str, int]

    @property
    def axis(self) -> Any:
        return self.made.cascade.axis

    @property
    def length(self) -> int:
        return self.sizes[self.axis.name]

    def given(self) -> dict[str, Any]:
        """What a call needs."""
        names = {*self.made.cascade.inputs(), *(one.name for one in self.made.cascade.scalars())}
        return {name: one for name, one in self.tensors.items() if name in names}

    def extents(self) -> dict[str, int]:
        return {axis.name: self.sizes[axis.name] for axis in self.made.cascade.axes() if axis.size is None}

    def call(self, backend: str) -> dict[str, Any]:
        return named(self.made(**self.given(), sizes=self.extents(), backend=backend))

    def leaf(self, start: int, stop: int) -> Any:
        """The state of the elements from `start` to `stop`."""
        others = {name: size for name, size in self.extents().items() if name != self.axis.name}
        if not any(self.axis in one.indices for one in self.made.cascade.elements()):  # no tensor says how many
            others[self.axis.name] = stop - start
        elif self.axis.name in self.made.cascade.extents():  # a term reads the total, which a piece does not know
            others[self.axis.name] = self.length
        return self.made.leaf(self.piece(start, stop), start={self.axis: start}, extents=others)

    def piece(self, start: int, stop: int) -> dict[str, Any]:
        made = self.given()
        for one in self.made.cascade.elements():
            for place, index in enumerate(one.indices):
                if index == self.axis:
                    made[one.name] = self.tensors[one.name][(slice(None),) * place + (slice(start, stop),)]
        return made

    def finish(self, state: Any) -> dict[str, Any]:
        streamed = {one.name for one in self.made.cascade.elements() if self.axis in one.indices}
        return named(self.made.finish(state, {k: v for k, v in self.given().items() if k not in streamed}))

    def streamed(self, tile: int = 64) -> dict[str, Any]:
        """Tile by tile, in order."""
        state = self.leaf(0, min(tile, self.length))
        for start in range(tile, self.length, tile):
            state = self.made.merge(state, self.leaf(start, min(start + tile, self.length)))
        return self.finish(state)

    def tree(self, ways: int = 7) -> dict[str, Any]:
        """ways² pieces, merged `ways` at a time."""
        edges = np.linspace(0, self.length, ways**2 + 1).astype(int)
        states = [self.leaf(int(a), int(b)) for a, b in pairwise(edges)]
        while len(states) > 1:
            states = [self.together(states[i : i + ways]) for i in range(0, len(states), ways)]
        return self.finish(states[0])

    def together(self, states: Sequence[Any]) -> Any:
        first, *rest = states
        for state in rest:
            first = self.made.merge(first, state)
        return first

    def random(self, seed: int, pieces: int = 9, *, ordered: bool = False) -> dict[str, Any]:
        """Pieces of random lengths (some may be empty), merged in a random order, some after a trip through pickle.

        Where states are `ordered`, a random neighbour follows each.
        """
        rng = np.random.default_rng(seed)
        edges = [0, *sorted(map(int, rng.integers(0, self.length + 1, pieces - 1))), self.length]
        states = [self.leaf(a, b) for a, b in pairwise(edges)]
        while len(states) > 1:
            first = int(rng.integers(len(states) - 1 if ordered else len(states)))
            a = states.pop(first)
            both = self.made.merge(a, states.pop(first if ordered else int(rng.integers(len(states)))))
            states.insert(first, pickle.loads(pickle.dumps(both)) if rng.integers(2) else both)
        return self.finish(states[0])


def named(made: Any) -> dict[str, Any]:
    """Outputs by name, as NumPy arrays."""
    fields = made._asdict() if hasattr(made, "_asdict") else {"out": made}
    return {name: np.asarray(one) for name, one in fields.items()}


def as_torch(tensors: Arrays) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(np.array(one)) if isinstance(one, np.ndarray) else one
            for name, one in tensors.items()}  # fmt: skip


def orders(
    made: ra.Fused, tensors: Arrays, sizes: Mapping[str, int], *, ordered: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way in which a pattern must give its value: the backends, and states merged in several orders."""
    runner, torch_runner = Runner(made, tensors, sizes), Runner(made, as_torch(tensors), sizes)
    yield "numpy", runner.call("numpy")
    yield "torch", torch_runner.call("torch")
    yield "streamed", runner.streamed()
    yield "tree", runner.tree()
    yield "random", runner.random(0, ordered=ordered)
    yield "random again", runner.random(1, ordered=ordered)
    yield "torch, random", torch_runner.random(2, ordered=ordered)
