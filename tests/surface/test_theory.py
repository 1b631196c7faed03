"""THEORY.md section 6, held to its word: verdict, rank, state and float32 error of every row, in every spelling; and
the error of the patterns of `tests/cases/stable.py`, where a plain one-pass form cancels or leaves the range.

All the kinds of data stand side by side along the free axis, so that one run of a pattern meets every combination of
its tensors' kinds. The reference is the definition in extended precision, several passes (`tests/oracle.py`), and the
measure that of `tests/cases/data_kinds.py`: |got − reference| / Σ |summand| of the table's spelling.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, final

import numpy as np
import pytest
from sympy import Abs, Add, Mul, Pow

import redalg as ra
from tests.cases.corpus import Pattern, Runner, orders
from tests.cases.data_kinds import KINDS, LENGTH, ROWS, make
from tests.cases.stable import ROWS as STABLE
from tests.cases.theory import NOES, Facts, Row
from tests.cases.theory import ROWS as TABLE
from tests.oracle import Oracle

UNIT = 2.0**-24
COMBINATIONS = 64
"""More combinations of kinds than this are cut: tensors of one role then share a kind."""
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@final
@dataclass(frozen=True)
class Columns:
    """A row's data: every tensor over (n, c), with `labels[column]` naming the kinds that the column is made of."""

    tensors: Mapping[str, np.ndarray]
    labels: tuple[str, ...]


def kinds(row: Row) -> Iterator[tuple[str, ...]]:
    """The combinations of kinds, one kind for each tensor."""
    names, roles = list(row.pattern.roles), list(row.pattern.roles.values())
    choices = [row.kinds.get(name, tuple(kind for one, kind in KINDS if one == role))
               for name, role in row.pattern.roles.items()]  # fmt: skip
    everything = list(product(*choices))
    for combination in everything:
        chosen = dict(zip(names, combination, strict=True))
        together = all(chosen[names[roles.index(role)]] == kind
                       for role, kind in zip(roles, combination, strict=True))  # fmt: skip
        if together or len(everything) <= COMBINATIONS:
            yield combination


@functools.cache
def columns(name: str) -> Columns:
    """A row's data, all combinations side by side."""
    row = named(name)
    made: dict[str, list[np.ndarray]] = {tensor: [] for tensor in row.pattern.roles}
    labels: list[str] = []
    for combination in kinds(row):
        for seed, ((tensor, role), kind) in enumerate(zip(row.pattern.roles.items(), combination, strict=True)):
            made[tensor].append(np.broadcast_to(make(role, kind, seed), (LENGTH, ROWS)))
        labels += [" ".join(combination)] * ROWS
    return Columns({tensor: np.concatenate(parts, 1) for tensor, parts in made.items()}, tuple(labels))


def named(name: str) -> Row:
    return next(row for row in (*TABLE, *STABLE) if row.pattern.name == name)


def magnitude(expr: Any) -> Any:
    """Σ |summand|: every sum made one of absolute values, and what is computed of sums likewise."""
    if isinstance(expr, ra.Reduce):
        return ra.sum(Abs(expr.expr), *expr.bound) if expr.kind == "sum" else Abs(expr)
    if isinstance(expr, Add | Mul):
        return expr.func(*map(magnitude, expr.args))
    if isinstance(expr, Pow) and expr.exp.is_positive:
        return magnitude(expr.base) ** expr.exp
    return Abs(expr)


@final
@dataclass(frozen=True)
class Definition:
    """The definition's value by column, what its error is measured against, and the error that is allowed."""

    value: np.ndarray
    magnitude: np.ndarray
    allowed: np.ndarray


@functools.cache
def defined(name: str) -> Definition:
    """The definition in extended precision, with max(2 · the table's figure, eight roundings) as its tolerance.

    The eight roundings are relative to Σ |terms| of `finish`, where the row states them. Where the summand vanishes
    (constant data), the measure is what it would be of data that differ by one rounding. The reference's own error in
    extended precision is allowed too.
    """
    row, data = named(name), columns(name)
    expr = (row.reference or row.pattern.build)()
    value, bound = evaluated(row, expr, data)
    size = evaluated(row, magnitude(expr), data)[0]
    terms = evaluated(row, row.terms(), data)[0] if row.terms else size
    rounded = evaluated(row, magnitude(expr), rounding(data))[0]
    measure = np.where(size < 2.0**-40 * rounded, rounded / (2 * row.error), size)
    tolerance = np.fmax(2 * row.error * measure, 8 * UNIT * terms)
    own = np.finfo(np.longdouble).eps * bound + np.finfo(np.float32).tiny
    return Definition(value, np.fmax(measure, np.finfo(np.float32).tiny), tolerance + own)


def evaluated(row: Row, expr: Any, data: Columns) -> Any:
    """Value and running error bound of an expression."""
    return Oracle(data.tensors, row.pattern.scalars, {"n": LENGTH, "c": len(data.labels)}).output(expr, "c")


def rounding(data: Columns) -> Columns:
    """The data moved up or down by one rounding of float32, at random."""
    rng = np.random.default_rng(0)
    moved = {name: one * (1 + UNIT * rng.choice([-1, 1], one.shape).astype(np.longdouble))
             for name, one in data.tensors.items()}  # fmt: skip
    return Columns(moved, data.labels)


def counted(row: Row, spelling: str) -> Facts:
    """The counts that a spelling must have."""
    return row.counted[spelling][0] if spelling in row.counted else row.facts


def built(row: Row, spelling: str) -> Any:
    return (row.spellings[spelling] if spelling else row.pattern.build)()


def spelled(rows: tuple[Row, ...]) -> list[Any]:
    """Every row in every spelling."""
    return [pytest.param(row, spelling, id=f"{row.pattern.name}, {spelling}" if spelling else row.pattern.name)
            for row in rows for spelling in ("", *row.spellings)]  # fmt: skip


def facts(made: ra.Fused) -> Facts:
    """The size of a state, but for the magnitudes that generators are divided by."""
    form = made.form
    while form.unscaled is not None:
        form = form.unscaled
    droppable = sum(one.droppable for one in form.accumulators)
    return Facts(len(form.accumulators), droppable, len(form.extrema))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.pattern.name)
def test_rank_and_state(row: Row) -> None:
    made = row.pattern.fuse()
    assert made.rank[made.cascade.reductions[-1].name] == row.rank
    assert facts(made) == counted(row, "")


@pytest.mark.parametrize(("row", "spelling"), spelled(TABLE))
def test_every_spelling_fuses_into_no_larger_a_state(row: Row, spelling: str) -> None:
    verdict: Any = ra.analyze(built(row, spelling), "c")
    assert type(verdict).__name__ == row.pattern.verdict, verdict
    got, table = facts(verdict.fused), counted(row, spelling)
    assert got.accumulators + got.extrema <= table.accumulators + table.extrema


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("row", "spelling"), spelled((*TABLE, *STABLE)))
def test_error(row: Row, spelling: str) -> None:
    """On every kind of data, in every order."""
    data = columns(row.pattern.name)
    made = ra.fuse(built(row, spelling), "c")
    tensors = {**data.tensors, **row.pattern.scalars}
    for order, outputs in orders(made, tensors, {"n": LENGTH, "c": len(data.labels)}):
        assert_close(outputs["out"], row, order)


def assert_close(got: np.ndarray, row: Row, order: str) -> None:
    data, definition = columns(row.pattern.name), defined(row.pattern.name)
    assert got.dtype == np.float32
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.longdouble) - definition.value)
        same = (got == definition.value) | (np.isnan(got) & np.isnan(definition.value))
        wrong = ~(same | (off <= definition.allowed))
        figure = off / definition.magnitude
    labels = np.array(data.labels)
    worst = {str(label): f"{figure[labels == label].max():.1e}" for label in dict.fromkeys(labels[wrong])}
    assert not worst, f"{order}: errors {worst}, where {2 * row.error:.1e} is allowed"


@pytest.mark.parametrize("pattern", NOES, ids=lambda one: one.name)
def test_what_cannot_be_fused(pattern: Pattern) -> None:
    """The verdict, its reason, what to do, and evidence that can be checked."""
    verdict = pattern.analyze()
    assert type(verdict).__name__ == pattern.verdict, verdict
    if pattern.verdict == "Refused":
        assert pattern.why in verdict.reason
        assert verdict.hint
        assert verdict.evidence
        with pytest.raises(ra.NotFusible):
            pattern.fuse()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_rounding_that_mixes_is_bounded_in_one_pass_and_exact_in_two(backend: str) -> None:
    """127·x / max |x| with max |x| = 127 found late: what is rounded is known, and far from where rounding turns."""
    pattern = next(one for one in NOES if one.verdict == "Approximate")
    rng = np.random.default_rng(0)
    x = (rng.integers(-120, 120, (LENGTH, ROWS)) + 0.25).astype(np.float32)
    x[700], u = 127, rng.standard_normal((LENGTH, ROWS)).astype(np.float32)
    terms = np.rint(x).astype(np.longdouble) * u
    rounding = 8 * UNIT * np.abs(terms).sum(0)
    given = Runner(pattern.fuse(), {"x": x, "u": u}, {"n": LENGTH, "c": ROWS})
    exact = Runner(ra.fuse(pattern.build(), "c", exact=True), given.tensors, given.sizes)
    assert (np.abs(exact.call(backend)["out"] - terms.sum(0)) <= rounding).all()
    verdict: Any = pattern.analyze()
    [bound] = verdict.bound.values()
    most = Oracle(given.tensors, {}, given.sizes).output(bound, "c")[0]
    assert (np.abs(given.call(backend)["out"] - terms.sum(0)) <= most + rounding).all()
