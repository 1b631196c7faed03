"""Results of random cascades, run in several ways on hostile data, and judged by code that the engine does not share.

A result is right where the definition is finite if it lies within the running error bound of `tests/oracle.py`, or is
no further off than 20 times the same expression evaluated unfused in float64 (`reference`); elsewhere if it is not
finite either. Nothing is asked where the definition itself stands on an edge (a condition or a choice that rounding
decides), or where float64 cannot hold what 80 bits can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, final

import numpy as np
from sympy import floor, sign
from sympy.core.basic import Basic
from sympy.core.relational import Relational

import redalg as ra
from redalg.errors import RedalgError
from redalg.expression import Reduce
from tests.cases.corpus import as_torch, named
from tests.fuzz.case import LENGTHS, Outputs
from tests.fuzz.data import HOSTILE, Data
from tests.oracle import Oracle

EPS = np.finfo(np.float64).eps
ROOM = 8
"""By how much a first-order bound may be exceeded."""
YARDSTICK = 20
ANNOUNCED = "digits, as `finish(…, condition=True)` says"
"""The kind of a finding whose error the engine gives itself: a pivot is missing, and nobody is misled."""
SELECTING = ("topk", "argmax", "argmin", "sum_at_max")


@final
class Judge(Oracle):
    """The definition in 80 bits.

    Attributes:
        on_edge: whether rounding may have decided a condition or a choice.
        out_of_range: whether a node is beyond float64, of parts that are not.
    """

    on_edge = out_of_range = False

    def __call__(self, node: Basic) -> Any:
        fresh = node not in self.memo
        made = super().__call__(node)
        if fresh and isinstance(made, tuple):
            self.out_of_range |= beyond(made[0]) and not any(
                beyond(part[0]) for part in map(self.memo.get, node.args) if isinstance(part, tuple)
            )
        if fresh and isinstance(node, Relational):
            left, right = (Oracle.__call__(self, one) for one in node.args)
            self.near(left[0] - right[0], left[1] + right[1])
        if fresh and isinstance(node, sign | floor):
            value, bound = Oracle.__call__(self, node.args[0])
            self.near(value - np.rint(value), bound)
        if fresh and isinstance(node, Reduce) and node.kind in SELECTING:
            value, bound = Oracle.__call__(self, node.operands[0])
            for axis in node.bound:
                place = self.axes.index(axis.name)
                ordered = np.sort(value, axis=place)
                self.near(np.diff(ordered, axis=place), 2 * np.max(bound, initial=0) * np.ones(1))
        return made

    def near(self, difference: np.ndarray, bound: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            close = (np.abs(difference) <= 64 * EPS * bound) & (bound > 0)
        self.on_edge |= bool(close.any())


def beyond(value: np.ndarray) -> bool:
    """Whether a value is beyond float64."""
    return value.dtype != bool and bool((np.abs(value) > np.finfo(np.float64).max).any())


# ---- ways to run -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Run:
    """One form on one set of data."""

    fused: ra.Fused
    data: Data

    def call(self, backend: str) -> dict[str, Any]:
        given, sizes = self.data.given(self.fused)
        return named(self.fused(**(as_torch(given) if backend == "torch" else given), sizes=sizes, backend=backend))

    def pieces(self, edges: list[int], choose: random.Random | None, *, torch: bool = False) -> dict[str, Any]:
        """States of pieces, merged in the order of the axis, or as drawn; pieces may be empty."""
        given, sizes = self.data.given(self.fused)
        given = as_torch(given) if torch else given
        states = [self.leaf(given, sizes, first, stop) for first, stop in pairwise(edges)]
        ordered = choose is None or not all(one.monoid.commutative for one in self.fused.cascade.reductions)
        while len(states) > 1:
            place = choose.randrange(len(states) - 1) if choose else 0
            first = states.pop(place)
            other = place if ordered or choose is None else choose.randrange(len(states))
            states.insert(min(place, len(states)), self.fused.merge(first, states.pop(other)))
        carries = any(one.carries for one in self.fused.cascade.outputs)
        streamed = set() if carries else self.streamed
        return named(self.fused.finish(states[0], {name: one for name, one in given.items() if name not in streamed}))

    @property
    def streamed(self) -> set[str]:
        cascade = self.fused.cascade
        return {one.name for one in cascade.elements() if set(cascade.reduced_axes) & set(one.indices)}

    def leaf(self, given: Mapping[str, Any], sizes: Mapping[str, int], first: int, stop: int) -> Any:
        axis = self.fused.cascade.axis
        made = dict(given)
        for one in self.fused.cascade.elements():
            for place, index in enumerate(one.indices):
                if index == axis:
                    made[one.name] = given[one.name][(slice(None),) * place + (slice(first, stop),)]
        others = {name: size for name, size in sizes.items() if name != axis.name}
        if not any(axis in one.indices for one in self.fused.cascade.elements()):
            others[axis.name] = stop - first
        return self.fused.leaf(made, start={axis: first}, extents=others)

    def edges(self, rng: random.Random | None) -> list[int]:
        """Where the axis is cut: in twos, or anywhere."""
        length = self.data.sizes.get(self.fused.cascade.axis.name, 0)
        if rng is None:
            return [*range(0, max(length, 1), 2), length]
        return [0, *sorted(rng.randint(0, length) for _ in range(3)), length]


WAYS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "numpy": lambda run: run.call("numpy"),
    "torch": lambda run: run.call("torch"),
    "in twos": lambda run: run.pieces(run.edges(None), None),
    "merged": lambda run: run.pieces(run.edges(rng := random.Random(run.data.seed)), rng),
    "merged, torch": lambda run: run.pieces(run.edges(rng := random.Random(run.data.seed + 1)), rng, torch=True),
}
"""Name -> outputs by name."""


# ---- judging ---------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Finding:
    """A wrong result, or a raw error."""

    outputs: Outputs
    data: Data
    way: str
    kind: str
    said: str


@final
@dataclass
class Executions:
    """What became of many executions."""

    ran: int = 0
    cascades: int = 0
    left_aside: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def aside(self, why: str) -> None:
        self.left_aside[why] = self.left_aside.get(why, 0) + 1

    def document(self) -> dict[str, Any]:
        kinds = [one.kind for one in self.findings]
        return {"cascades": self.cascades, "executions": self.ran, "left_aside": dict(sorted(self.left_aside.items())),
                "findings": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}  # fmt: skip


def data_of(seed: int, number: int) -> Iterator[Data]:
    """The data that a case is run on: moderate ones, and others."""
    rng = random.Random(seed)
    for place in range(number):
        yield Data(seed, rng.choice(LENGTHS), "plain" if place == 0 else rng.choice(list(HOSTILE)))


def execute(outputs: Outputs, fused: ra.Fused, data: Iterable[Data], tally: Executions) -> None:
    """Run a cascade in every way on data."""
    tally.cascades += 1
    for one in data:
        for finding in judged(outputs, fused, one, tally):
            tally.findings.append(finding)


def judged(
    outputs: Outputs, fused: ra.Fused, data: Data, tally: Executions, ways: Iterable[str] = tuple(WAYS)
) -> Iterator[Finding]:
    """The findings of one set of data, at most one of each way."""
    judge = Judge(data.tensors, data.scalars, data.sizes)
    given, sizes = data.given(fused)
    if not any(str(getattr(one, "dtype", "")) == "float64" for one in given.values()):
        tally.aside("not in float64, of whole numbers alone")
        return
    try:
        plain = named(fused.reference(**given, sizes=sizes))
        want = {name: judge.output(expr, axes) for name, (expr, axes) in outputs.items()}
    except RedalgError as error:
        tally.aside(f"{type(error).__name__} of the definition")
        return
    if judge.on_edge:
        tally.aside("on an edge")
        return
    for way in ways:
        try:
            with np.errstate(all="ignore"):
                got = WAYS[way](Run(fused, data))
        except RedalgError as error:
            tally.aside(f"{type(error).__name__} in `{way}`")
            continue
        except Exception as error:  # noqa: BLE001 - a raw error is a finding
            yield Finding(outputs, data, way, "raw error", f"{type(error).__name__}: {error}"[:300])
            continue
        tally.ran += 1
        if data.length == 0 and way not in ("numpy", "torch"):
            continue  # of no elements `finish` knows no definition: a ratio over nothing is what `empty` says
        for name in outputs:
            if got[name].shape != plain[name].shape and way not in ("numpy", "torch"):
                tally.aside("an output at places that no tensor of a piece holds")
                continue
            said = wrong(got[name], *want[name], plain[name])
            if said is not None and (judge.out_of_range or data.kind == "row masked"):
                tally.aside("a ratio over nothing" if data.kind == "row masked" else "out of range")
            elif said is not None:
                lost = said[0] in ("wrong", "digits") and announced(fused, data, name, got, want)
                yield Finding(outputs, data, way, ANNOUNCED if lost else said[0], f"{name} {said[1]}")
                break


def announced(
    fused: ra.Fused, data: Data, name: str, got: Mapping[str, Any], want: Mapping[str, tuple[Any, Any]]
) -> bool:
    """Whether a result is no further off than the condition that the engine gives beside it allows."""
    given, sizes = data.given(fused)
    try:
        with np.errstate(all="ignore"):
            state = fused.leaf(given, extents=sizes)
            results = fused.finish(state, given, condition=True)
    except RedalgError:
        return False
    kappa = named(results[1])[name]
    found, wanted = got[name], want[name][0]
    with np.errstate(all="ignore"):
        off, largest = np.abs(found - wanted), np.maximum(np.abs(found), np.abs(wanted))
        neither = ~np.isfinite(found) & ~np.isfinite(wanted)
        return bool((neither | (off == 0) | (off <= ROOM * EPS * kappa * largest)).all())


def wrong(got: np.ndarray, want: np.ndarray, bound: np.ndarray, plain: np.ndarray) -> tuple[str, str] | None:
    """What is wrong with a result, and how: None where nothing is."""
    if got.shape != plain.shape:
        return "shape", f"got {got.shape}, wanted {plain.shape}"
    with np.errstate(all="ignore"):
        got, plain = got.astype(np.longdouble), plain.astype(np.longdouble)
        allowed = ROOM * EPS * (bound + np.abs(want)) + 1e3 * np.finfo(np.float64).tiny
        allowed = np.maximum(allowed, YARDSTICK * np.abs(plain - want))
        finite, held = np.isfinite(want), np.isfinite(plain) == np.isfinite(want)
        off = finite & ~(np.abs(got - want) <= allowed)
    for kind, bad in (
        ("lost to NaN or infinity", off & ~np.isfinite(got) & held),
        ("wrong", off & np.isfinite(got) & (np.abs(got - want) > 1e-6 * (np.abs(want) + scale(want))) & held),
        ("not finite, hidden", ~finite & np.isfinite(got) & held),
        ("digits", off & np.isfinite(got) & held),
    ):
        if bad.any():
            return kind, f"got {first(got, bad)}, wanted {first(want, bad)} ± {first(allowed, bad):.1e}"
    return None


def scale(array: np.ndarray) -> Any:
    """The size of the finite numbers of an array."""
    return np.abs(array[np.isfinite(array)]).max(initial=0)


def first(array: np.ndarray, at: np.ndarray) -> Any:
    return np.broadcast_to(array, at.shape)[at].flat[0]
