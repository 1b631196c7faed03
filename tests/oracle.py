"""The definition, evaluated on its own: value and running error bound of an expression as it was written.

An independent interpreter of the surface language (it shares no code with the engine), in extended precision. Beside
each value it carries a first-order bound on the error that arithmetic of unit roundoff u commits, in units of u
(Higham, Accuracy and Stability, section 3.3):

    |a + b|   e_a + e_b + |a + b|             Σ     Σ e + Σ |terms|
    |a · b|   |a| e_b + |b| e_a + |a b|       exp   exp(a) · (e_a + |a| + 1)     |a|: a pivot is subtracted from it
    |a / b|   (e_a + |a/b| e_b) / |b| + |a/b| max   the largest e
    a^k       k·(|a| + u·e_a)^(k−1) · e_a
    u(x) + v(d), and its powers: as if expanded about a pivot anywhere in the data, which one pass has to do

so that a tolerance is a small multiple of u times this bound: never a number chosen to make a test pass.

What a NaN, an infinity and a mask mean is the table of `redalg.decompose.verdict.conventions`, by code of its own: exp
of a sum with a term −∞ is 0; under a sum it hides what varies along its axes, as a factor of 1 and 0 hides all; 0 · log
0 is 0."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from sympy import (
    Abs,
    Add,
    And,
    Expr,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Pow,
    S,
    atan2,
    cos,
    cosh,
    exp,
    expand_mul,
    floor,
    log,
    sign,
    sin,
    sinh,
    tanh,
)  # fmt: skip
from sympy.core.basic import Basic
from sympy.core.relational import Relational

from redalg.expression import Axis, Element, Extent, Let, Reduce, Scalar, Where

Pair = tuple[np.ndarray, np.ndarray]
RELATIONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
RELATIONS["!="] = np.not_equal
ROUNDOFF = np.finfo(np.float64).eps
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "any": 0.0, "all": 1.0}


class Oracle:
    """Evaluates expressions over named axes: every array has one dimension per axis, in order of name."""

    def __init__(
        self, tensors: Mapping[str, np.ndarray], scalars: Mapping[str, float], sizes: Mapping[str, int]
    ) -> None:
        self.tensors, self.scalars, self.sizes = tensors, scalars, sizes
        self.axes = sorted(sizes)
        self.along: frozenset[Axis] = frozenset()  # what the sum at hand runs over
        self.memo: dict[tuple[Basic, frozenset[Axis]], Any] = {}

    def __call__(self, node: Basic) -> Any:
        """(value, bound) of an expression; a boolean array of a condition."""
        key = (node, self.along)
        if key not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[key] = next(rule(self, node) for kind, rule in RULES if isinstance(node, kind))
        return self.memo[key]

    def under(self, axes: frozenset[Axis], node: Basic) -> Any:
        """The term of a sum over these axes."""
        outer, self.along = self.along, axes
        made = self(node)
        self.along = outer
        return made

    def output(self, node: Expr, axes: str) -> Pair:
        """(value, bound) with the dimensions that `axes` names, in that order."""
        names = axes.split()
        shape = [self.sizes[name] if name in names else 1 for name in self.axes]
        kept = [name for name in self.axes if name in names]
        flat = (np.broadcast_to(one, shape).reshape([self.sizes[name] for name in kept]) for one in self(node))
        value, bound = (one.transpose([kept.index(name) for name in names]) for one in flat)
        return value, bound

    def shaped(self, array: Any, names: list[str]) -> np.ndarray:
        """An array over the named axes, in one dimension per axis."""
        order = sorted(range(len(names)), key=lambda place: names[place])
        lengths = {name: np.shape(array)[place] for place, name in enumerate(names)}
        return np.transpose(array, order).reshape([lengths.get(name, 1) for name in self.axes])

    # ---- atoms ---------------------------------------------------------------------------------------------------

    def exact(self, array: Any) -> Pair:
        made = np.asarray(array)
        made = made.reshape([1] * len(self.axes)) if made.ndim == 0 else made
        made = made if made.dtype == bool else made.astype(np.longdouble)
        return made, np.zeros(made.shape, np.longdouble)

    def axis(self, node: Axis) -> Pair:
        return self.exact(self.shaped(np.arange(self.sizes[node.name]), [node.name]))

    def element(self, node: Element) -> Pair:
        if all(isinstance(index, Axis) for index in node.indices):
            return self.exact(self.shaped(self.tensors[node.name], [index.name for index in node.indices]))
        tensor = self.tensors[node.name]
        places = [self(index)[0].astype(int) for index in node.indices]
        within = [(at >= 0) & (at < size) for at, size in zip(places, tensor.shape, strict=True)]
        inside = np.logical_and.reduce(np.broadcast_arrays(*within)) if within else np.ones(1, bool)
        if not inside.any():
            return self.exact(np.where(inside, 0, np.nan))
        clipped = (np.clip(at, 0, size - 1) for at, size in zip(places, tensor.shape, strict=True))
        return self.exact(np.where(inside, tensor[tuple(clipped)], np.nan))  # what lies outside is for masks to hide

    # ---- arithmetic ----------------------------------------------------------------------------------------------

    def add(self, node: Add) -> Pair:
        (value, bound), *rest = map(self, node.args)
        for other, its in rest:
            value = value + other
            bound = bound + its + np.abs(value)
        return value, finite(bound + self.spread(node, value))

    def spread(self, node: Basic, value: np.ndarray) -> Any:
        """How far from 0 a sum u(x) + v(d) lies from any pivot inside the data: its range along the reduced axes."""
        bound = {axis for one in node.atoms(Reduce) for axis in one.bound}
        ranges = np.zeros(1)
        for axis in bound & {one for one in node.free_symbols if isinstance(one, Axis)}:
            place = self.axes.index(axis.name)
            low, high = (pick(value, axis=place, keepdims=True, initial=0, where=np.isfinite(value))
                         for pick in (np.min, np.max))  # fmt: skip
            ranges = ranges + high - low
        return ranges

    def reach(self, node: Basic) -> np.ndarray:
        """The size of the terms of a polynomial in sums u(x) + v(d), each of these taken about a pivot in the data."""
        if isinstance(node, Pow) and node.exp.is_Integer and node.exp > 0 and self.is_mixed(node.base):
            return self.reach(node.base) ** int(node.exp)
        if isinstance(node, Mul) and self.is_mixed(node):
            return np.abs(self.product([one for one in node.args if not self.is_mixed(one)])[0]) * prod(
                self.reach(one) for one in node.args if self.is_mixed(one))  # fmt: skip
        if isinstance(node, Add) and any(isinstance(one, Mul | Pow) and self.is_mixed(one) for one in node.args):
            return sum((self.reach(one) for one in node.args), np.zeros(1))
        value, _ = self(node)
        return np.abs(value) + self.spread(node, value)

    def is_mixed(self, node: Basic) -> bool:
        """Whether an expression holds both a reduction and elements along its axis."""
        bound = {axis for one in node.atoms(Reduce) for axis in one.bound}
        return bool(bound & node.free_symbols)

    def mul(self, node: Mul) -> Pair:
        masks = [one for one in node.args if is_mask(one)]
        varying = [one for one in node.args if one not in masks and self.varies(one)]
        apart = [one for one in node.args if one not in masks and one not in varying]
        value, bound = self.product(varying)
        value = np.where(no_weight(self, varying), 0, value) if self.along else value
        other, its = self.product(apart)
        bound = finite(np.abs(value) * its) + finite(np.abs(other) * bound)
        plain, _ = self.product([one for one in (*varying, *apart) if not one.has(log)])
        value = np.where(no_logarithm(self, [*varying, *apart]), 0 * plain, value * other)
        for one in masks:
            value = np.where(self(one)[0] == 0, 0, value)
        return value, finite(bound + np.abs(value))

    def varies(self, node: Basic) -> bool:
        """Whether a factor varies along the axes of the sum at hand."""
        return bool(self.along & node.free_symbols) or not self.along

    def product(self, factors: list[Basic]) -> Pair:
        value, bound = self.exact(1.0)
        for one in factors:
            other, its = self(one)
            bound = finite(np.abs(value) * its) + finite(np.abs(other) * bound)
            value = value * other
            bound = bound + finite(np.abs(value))
        return value, bound

    def power(self, node: Pow) -> Pair:
        if not node.exp.is_number:
            return self(node.base)[0] ** self(node.exp)[0], self(exp(node.exp * log(node.base)))[1]
        base, bound = self(node.base)
        exponent, _ = self(node.exp)
        value = np.where((base < 0) & (exponent != np.floor(exponent)), np.nan, base**exponent)  # (−∞)^½ is no number
        if node.exp.is_Integer and node.exp > 1:  # expanded about a pivot inside the data
            reach = self.reach(node.base)
            error = bound + reach  # squared too, where base and pivot are 0 and only rounding is left of them
            return value, finite(exponent * (reach + ROUNDOFF * error) ** (exponent - 1) * error)
        error = finite(np.abs(exponent * base ** (exponent - 1)) * bound)
        if node.exp.is_positive:  # of a base that is 0 but for its rounding, the root is that of the rounding
            near = np.abs(base) <= ROUNDOFF * bound
            error = np.where(near, (np.abs(base) + ROUNDOFF * bound) ** exponent / ROUNDOFF, error)
        return value, error + 3 * finite(np.abs(value))

    def vanishes(self, node: Expr) -> np.ndarray:
        """Where an exponent has a term −∞, and not by a division by 0."""
        nothing = []
        for term in Add.make_args(expand_mul(node.args[0])):
            below = [one.base for one in Mul.make_args(term) if isinstance(one, Pow) and one.exp.is_negative]
            parts = (self(term)[0] == -np.inf, *(self(one)[0] != 0 for one in below))
            nothing.append(np.all(np.broadcast_arrays(*parts), axis=0))
        return np.any(np.broadcast_arrays(*nothing), axis=0)

    def exp(self, node: exp) -> Pair:
        argument, bound = self(node.args[0])
        value = np.where(self.vanishes(node), 0, np.exp(argument))
        return value, finite(value * (bound + np.abs(argument) + 1))

    def log(self, node: log) -> Pair:
        argument, bound = self(node.args[0])
        value = np.log(argument)
        return value, finite(bound / np.abs(argument)) + finite(np.abs(value))

    def tanh(self, node: tanh) -> Pair:
        argument, bound = self(node.args[0])
        return np.tanh(argument), bound + np.abs(np.tanh(argument))

    def wave(self, node: sin | cos) -> Pair:
        argument, bound = self(node.args[0])
        return (np.sin if isinstance(node, sin) else np.cos)(argument), bound + 1

    def hyperbolic(self, node: sinh | cosh) -> Pair:
        argument, bound = self(node.args[0])
        top = np.cosh(argument)
        return (np.sinh(argument) if isinstance(node, sinh) else top), top * (bound + np.abs(argument) + 1)

    def angle(self, node: atan2) -> Pair:
        (up, bound_up), (along, bound_along) = map(self, node.args)
        off = (np.abs(along) * bound_up + np.abs(up) * bound_along) / (up**2 + along**2)
        return np.arctan2(up, along), finite(off) + np.abs(np.arctan2(up, along))

    def abs(self, node: Abs) -> Pair:
        argument, bound = self(node.args[0])
        return np.abs(argument), bound

    def extremum(self, node: Max | Min) -> Pair:
        pick = np.maximum if isinstance(node, Max) else np.minimum
        (value, bound), *rest = map(self, node.args)
        for other, its in rest:
            value, bound = pick(value, other), np.maximum(bound, its)
        return value, bound

    # ---- masks and reductions ------------------------------------------------------------------------------------

    def where(self, node: Where) -> Pair:
        condition, (a, bound_a), (b, bound_b) = map(self, node.args)
        return np.where(condition, a, b), np.where(condition, bound_a, bound_b)

    def reduce(self, node: Reduce) -> Pair:
        if node.kind in ROWS:
            return self.rows(node)
        value, bound = self.under(frozenset(node.bound) if node.kind == "sum" else frozenset(), node.expr)
        for axis in node.bound:
            place = self.axes.index(axis.name)
            shape = [self.sizes[axis.name] if one == place else size for one, size in enumerate(value.shape)]
            value, bound = np.broadcast_to(value, shape), np.broadcast_to(bound, shape)
            value, bound = REDUCE[node.kind](value, bound, place)
        return value, bound

    def rows(self, node: Reduce) -> Pair:
        """A reduction of whole rows, one after the other, in plain Python."""
        [axis] = node.bound
        place = self.axes.index(axis.name)
        values, bounds = zip(*(self.under(frozenset(), one) for one in node.operands), strict=True)
        shape = list(np.broadcast_shapes(*(one.shape for one in values)))
        shape[place] = self.sizes[axis.name]
        rows = [np.moveaxis(np.broadcast_to(one, shape), place, -1) for one in values]
        moved = np.moveaxis(np.broadcast_to(bounds[0], shape), place, -1).max(axis=-1, initial=0.0)
        size = 1 if node.place is None else self.sizes[node.place.name]
        made, bound = (np.zeros((*rows[0].shape[:-1], size), np.longdouble) for _ in range(2))
        for index in np.ndindex(*rows[0].shape[:-1]):
            result = ROWS[node.kind]([one[index] for one in rows], size)
            made[index], bound[index] = result[node.result], result.get(f"{node.result} bound", 0.0)
            if node.kind in MOVED and node.result != "indices":
                bound[index] += moved[index]
        made, bound = np.moveaxis(made, -1, place), np.moveaxis(bound, -1, place)
        if node.place is not None:
            other = self.axes.index(node.place.name)
            made, bound = made.swapaxes(place, other), bound.swapaxes(place, other)
        return made, finite(bound)


def best_first(row: np.ndarray) -> list[int]:
    """Positions in falling order: NaN first, equal elements by position (Python's sort is stable)."""
    return sorted(range(len(row)), key=lambda place: (0, 0) if np.isnan(row[place]) else (1, -row[place]))


def chosen(rows: list[np.ndarray], k: int) -> dict[str, Any]:
    order = best_first(rows[0])[:k]
    rest = k - len(order)
    values = [*(rows[0][place] for place in order), *[-np.inf] * rest]
    return {"values": values, "indices": [*order, *[-1] * rest], "": [*order, -1][0]}


def beside_largest(rows: list[np.ndarray], _k: int) -> dict[str, Any]:
    value, weight = rows
    if np.isnan(value).any():
        return {"": np.nan}
    held = weight[value == value.max(initial=-np.inf)]
    return {"": held.sum(), " bound": len(held) * np.abs(held).sum()}


def recurrence(rows: list[np.ndarray], _k: int) -> dict[str, Any]:
    """h ← a·h + b, step by step; every path from a b to the end has at most as many roundings as twice its steps."""
    scale, shift, size = np.longdouble(1), np.longdouble(0), np.longdouble(0)
    for a, b in zip(*rows, strict=True):
        scale, shift, size = a * scale, a * shift + b, np.abs(a) * size + np.abs(b)
    paths = 2 * len(rows[0])
    return {"scale": scale, "shift": shift, "scale bound": paths * np.abs(scale), "shift bound": paths * size}


def counted(rows: list[np.ndarray]) -> list[Any]:
    return [*rows[0][np.broadcast_to(rows[1], rows[0].shape) == 1]]


def carried(rows: list[np.ndarray], _k: int) -> dict[str, Any]:
    """A sum whose first-order errors are carried: what is left is of second order, beside the last rounding."""
    total, size = rows[0].sum(), np.abs(rows[0]).sum()
    return {"": total, " bound": 2 * np.abs(total) + len(rows[0]) ** 2 * np.finfo(np.float32).eps * size}


def exponentiated(rows: list[np.ndarray], _k: int) -> dict[str, Any]:
    top = rows[0].max(initial=-np.inf)
    if not np.isfinite(top):
        return {"": top}
    total = np.exp(rows[0] - top).sum()
    spread = np.where(np.isfinite(rows[0]), top - rows[0], 0)
    error = (np.exp(rows[0] - top) * (spread + len(rows[0]) + 1)).sum() / total
    return {"": top + np.log(total), " bound": error + np.abs(top) + np.abs(np.log(total))}


ROWS: dict[str, Callable[[list[np.ndarray], int], dict[str, Any]]] = {
    "topk": chosen,
    "argmax": chosen,
    "argmin": lambda rows, k: chosen([-rows[0]], k),
    "sum_at_max": beside_largest,
    "affine": recurrence,
    "first": lambda rows, _: {"": [*counted(rows), np.nan][0]},
    "last": lambda rows, _: {"": [np.nan, *counted(rows)][-1]},
    "compensated_sum": carried,
    "logsumexp": exponentiated,
}


MOVED = ("topk", "first", "last", "logsumexp")
"""Reductions that move by no more than the largest error of an element."""


def is_mask(node: Basic) -> bool:
    """Whether a factor is 1 where a condition holds and 0 elsewhere, or the other way round."""
    return isinstance(node, Where) and node.args[1:] in ((S.One, S.Zero), (S.Zero, S.One))


def no_weight(oracle: Oracle, factors: list[Basic]) -> np.ndarray:
    """Where one of the factors is an exponential of −∞."""
    none = [oracle.vanishes(one) for one in factors if isinstance(one, exp)]
    return np.any(np.broadcast_arrays(*none), axis=0) if none else np.zeros(1, bool)


def no_logarithm(oracle: Oracle, factors: list[Basic]) -> np.ndarray:
    """Where one of the factors is 0 beside log 0."""
    none = []
    for one in (one for one in factors if one.has(log)):
        rest = (oracle(other)[0] == 0 for other in factors if other is not one)
        none += [(oracle(one)[0] == -np.inf) & zero for zero in rest]
    return np.any(np.broadcast_arrays(*none), axis=0) if none else np.zeros(1, bool)


def finite(bound: np.ndarray) -> np.ndarray:
    """A bound with no NaN: where a value is not finite there is no error to bound."""
    return np.where(np.isfinite(bound), bound, 0)


def summed(value: np.ndarray, bound: np.ndarray, place: int) -> Pair:
    total = finite(bound + np.abs(value)).sum(place, keepdims=True)
    return value.sum(place, keepdims=True), total


def multiplied(value: np.ndarray, bound: np.ndarray, place: int) -> Pair:
    product = value.prod(place, keepdims=True)
    relative = finite(bound / np.abs(value)) + 1
    return product, finite(np.abs(product) * relative.sum(place, keepdims=True))


def picked(kind: str, name: str) -> Callable[[np.ndarray, np.ndarray, int], Pair]:
    def pick(value: np.ndarray, bound: np.ndarray, place: int) -> Pair:
        best = getattr(np, kind)(value, axis=place, keepdims=True, initial=IDENTITY[name])
        return best, np.max(bound, axis=place, keepdims=True, initial=0.0)

    return pick


REDUCE = {"sum": summed, "prod": multiplied, "max": picked("max", "max"), "min": picked("min", "min"),
          "any": picked("max", "any"), "all": picked("min", "all")}  # fmt: skip

RULES: tuple[tuple[Any, Callable[[Oracle, Any], Any]], ...] = (
    (Axis, Oracle.axis),
    (Extent, lambda self, node: self.exact(float(self.sizes[node.name]))),
    (Scalar, lambda self, node: self.exact(self.scalars[node.name])),
    (Element, Oracle.element),
    (Add, Oracle.add),
    (Mul, Oracle.mul),
    (exp, Oracle.exp),
    (Pow, Oracle.power),
    (log, Oracle.log),
    (tanh, Oracle.tanh),
    (sin | cos, Oracle.wave),
    (sinh | cosh, Oracle.hyperbolic),
    (atan2, Oracle.angle),
    (Abs, Oracle.abs),
    (floor, lambda self, node: self.exact(np.floor(self(node.args[0])[0]))),
    (sign, lambda self, node: self.exact(np.sign(self(node.args[0])[0]))),
    (Max | Min, Oracle.extremum),
    (Mod, lambda self, node: self.exact(np.mod(*(self(one)[0] for one in node.args)))),
    (Where, Oracle.where),
    (Reduce, Oracle.reduce),
    (Let, lambda self, node: self(node.expr)),
    (Relational, lambda self, node: RELATIONS[node.rel_op](self(node.lhs)[0], self(node.rhs)[0])),
    (And, lambda self, node: np.logical_and.reduce(np.broadcast_arrays(*map(self, node.args)))),
    (Or, lambda self, node: np.logical_or.reduce(np.broadcast_arrays(*map(self, node.args)))),
    (Not, lambda self, node: ~self(node.args[0])),
    (type(S.true), lambda self, node: np.ones([1] * len(self.axes), bool)),
    (type(S.false), lambda self, node: np.zeros([1] * len(self.axes), bool)),
    (Expr, lambda self, node: self.exact(float(node))),
)
