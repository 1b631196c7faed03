"""Patterns from the literature: verdicts, and values on every array backend, streamed and merged in any order.

The tolerance is the running error bound of the definition (`tests/oracle.py`) at float32's roundoff, and the rounding
of the output: no free factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.cases import literature_order
from tests.cases.corpus import Pattern, Runner, as_torch, orders
from tests.cases.literature import CARRIED, NOES
from tests.cases.literature import PATTERNS as COMMUTATIVE
from tests.oracle import Oracle

PATTERNS = COMMUTATIVE + literature_order.PATTERNS
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def by_name(pattern: Pattern) -> str:
    return pattern.name


def test_there_are_forty_and_each_names_its_source() -> None:
    everything = PATTERNS + CARRIED + NOES
    assert len(PATTERNS) >= 40
    assert len({one.name for one in everything}) == len(everything)
    assert all(one.source for one in everything)


def assert_defined(got: dict[str, np.ndarray], pattern: Pattern, tensors: dict[str, Any], order: str) -> None:
    """Each output equals its definition within the running error bound."""
    oracle = Oracle(tensors, pattern.scalars, pattern.extents())
    for name, (expr, axes) in pattern.outputs().items():
        want, bound = oracle.output(expr, axes)
        assert got[name].shape == want.shape
        if got[name].dtype.kind in "ib":  # indices and truth have no rounding
            np.testing.assert_array_equal(got[name], want)
            continue
        info = np.finfo(got[name].dtype)
        assert info.dtype == np.float32
        with np.errstate(all="ignore"):
            allowed = info.eps * (bound + np.abs(want)) + info.tiny
            wrong = ~((got[name] == want) | (np.abs(got[name].astype(np.longdouble) - want) <= allowed))
        assert np.isfinite(want).all()
        assert not wrong.any(), f"{name}, {order}: {got[name][wrong][:3]}, not {want[wrong][:3]} ± {allowed[wrong][:3]}"


@pytest.mark.sweep(5)
@pytest.mark.parametrize("pattern", PATTERNS, ids=by_name)
def test_it_fuses_and_equals_its_definition(pattern: Pattern) -> None:
    verdict = pattern.analyze()
    assert type(verdict).__name__ == pattern.verdict, verdict
    tensors = pattern.tensors()
    for order, outputs in orders(
        verdict.fused, {**tensors, **pattern.scalars}, pattern.extents(), ordered=pattern.ordered
    ):
        assert_defined(outputs, pattern, tensors, order)


@pytest.mark.parametrize("pattern", CARRIED, ids=by_name)
def test_an_output_that_carries_the_axis(pattern: Pattern) -> None:
    """The state in one pass, the output in another: on the backends (a state alone does not hold the output)."""
    made, tensors = pattern.fuse(), pattern.tensors()
    given = {**tensors, **pattern.scalars}
    assert_defined(Runner(made, given, pattern.extents()).call("numpy"), pattern, tensors, "numpy")
    assert_defined(Runner(made, as_torch(given), pattern.extents()).call("torch"), pattern, tensors, "torch")


@pytest.mark.parametrize("pattern", NOES, ids=by_name)
def test_it_is_refused_with_evidence(pattern: Pattern) -> None:
    verdict = pattern.analyze()
    assert type(verdict).__name__ == "Refused", verdict
    assert pattern.why in verdict.reason
    assert verdict.hint
    assert verdict.evidence
    with pytest.raises(ra.NotFusible):
        pattern.fuse()
