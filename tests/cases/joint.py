"""In how many independent ways a value moves with the elements read so far: a bound on every state from below.

R_j is the value of data that hold N common elements x_i and a few of their own. A state of k numbers that is a
continuous function of the x_i gives every R_j, so that ∂R_j/∂x_i has at most rank k, whatever the cascade is. The
expression is evaluated as it is written (`tests/oracle.py`): nothing here knows the engine.
"""

from __future__ import annotations

import numpy as np
from sympy import Expr

from redalg.expression.contents import elements_of, free_axes
from redalg.expression.reduce import Reduce
from tests.oracle import Oracle

OWN, LATER = 4, 64
"""Elements of its own, and how many data sets there are."""
STEPS, ROUNDED, NEGLIGIBLE = (3e-7, 6e-7), 1e-7, 1e-12
FAR = 1.0


def drawn(names: list[str], elements: int, seed: int, *, circle: bool) -> dict[str, np.ndarray]:
    """Tensors [data set, element], the first elements common to all; every other data set has its sums near 0.

    On the `circle` the common x and y stand in convex position, on a quarter of it, and no other lies beyond them.
    """
    rng = np.random.default_rng(seed)
    made, angles = {}, rng.uniform(0, np.pi / 2, elements)
    for name in names:
        on_circle = circle and name in "xy"
        values = 2 * (np.cos if name == "x" else np.sin)(angles) if on_circle else rng.uniform(-2, 2, elements)
        common = np.broadcast_to(values, (LATER, elements))
        own = rng.standard_normal((LATER, OWN)) * (0.1 if on_circle else rng.choice([0.1, 1, 4], (LATER, 1)))
        wanted = rng.uniform(-2, 2, LATER) * rng.choice([1, elements + OWN], LATER)
        total = common.sum(1) + own[:, 1:].sum(1)
        own[::2, 0] = own[::2, 0] if on_circle else (wanted - total)[::2]
        made[name] = np.concatenate([common, own], axis=1)
    return made


def dimension(expr: Expr, elements: int, seed: int = 0, *, circle: bool = False) -> int:
    """The rank of ∂R_j/∂x_i, each element moved in a direction of its own, beyond what two steps differ by."""
    names = sorted({one.name for one in elements_of(expr)})
    tensors, rng = drawn(names, elements, seed, circle=circle), np.random.default_rng(seed + 1)
    ways = {name: rng.uniform(0.5, 1, elements) for name in names}
    slopes, other = (_slopes(expr, tensors, ways, step) for step in STEPS)
    finite = np.isfinite(slopes).all(0) & np.isfinite(other).all(0)
    slopes, error = slopes[:, finite], np.abs(slopes - other)[:, finite]
    for axis in (1, 0):
        largest = np.abs(slopes).max(axis=axis, keepdims=True, initial=0)
        exact = (largest > 0) & (error.max(axis=axis, keepdims=True, initial=0) <= ROUNDED * largest)
        scale = np.where(exact, largest, np.inf)
        slopes, error = slopes / scale, error / scale
    noise = max(NEGLIGIBLE, 4 * float(np.sqrt((error**2).sum())))
    return int((np.linalg.svd(slopes.astype(float), compute_uv=False) > noise).sum())


def jumps(expr: Expr, elements: int, seed: int = 0) -> int:
    """The rank of R_j(x_i + far) − R_j(x_i − far), which sees steps, where d stays and x moves.

    Of sums of terms of x and d, with factors of d, it is not above the rank of a state.
    """
    names = sorted({one.name for one in elements_of(expr)})
    inner = {one.name for reduction in expr.atoms(Reduce) for sub in reduction.expr.atoms(Reduce)
             for one in elements_of(sub)}  # fmt: skip
    tensors, rng = drawn(names, elements, seed, circle=False), np.random.default_rng(seed + 1)
    ways = {name: rng.uniform(0.5, 1, elements) * (name not in inner) for name in names}
    moved = _slopes(expr, tensors, ways, FAR).astype(float)
    moved = moved[:, np.isfinite(moved).all(0)]
    return int((np.linalg.svd(moved / np.abs(moved).max(initial=1), compute_uv=False) > NEGLIGIBLE).sum())


def _slopes(expr: Expr, tensors: dict[str, np.ndarray], ways: dict[str, np.ndarray], step: float) -> np.ndarray:
    """∂R_j/∂x_i [element, data set], by central differences."""
    elements = len(next(iter(ways.values())))
    moved = {name: np.concatenate([_moved(tensor, place, way * step * ways[name][place])
                                   for place in range(elements) for way in (1, -1)])
             for name, tensor in tensors.items()}  # fmt: skip
    sizes = {"b": 2 * elements * LATER, "n": elements + OWN}
    axes = " ".join(sorted(str(axis) for axis in free_axes(expr)))
    with np.errstate(all="ignore"):
        values = Oracle(moved, {}, sizes).output(expr, axes)[0].reshape(elements, 2, LATER)
        slopes: np.ndarray = (values[:, 0] - values[:, 1]) / (2 * step)
    return slopes


def _moved(tensor: np.ndarray, place: int, by: float) -> np.ndarray:
    made = tensor.astype(np.longdouble)
    made[:, place] += by
    return made
