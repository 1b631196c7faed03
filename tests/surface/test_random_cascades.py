"""Two thousand random cascades: no crash, no wrong yes, and enough of each verdict that the test means something.

Each fused case equals the definition in float64, within the running error bound of the definition, from one call and
from states merged in random order. The numeric rank of every reduction is at most the rank that the form claims.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.cases.corpus import Runner
from tests.cases.random_cascades import SCALARS, case, sizes, tensors
from tests.conftest import Golden
from tests.oracle import Oracle

CASES, BLOCK = 2000, 100
OFTEN = 1
"""Blocks that every CI run takes; the others are slow."""
VERDICTS = ("Exact", "Approximate", "Refused", "Undecided")
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@functools.cache
def verdict(seed: int) -> Any:
    return ra.analyze(case(seed).outputs)


def highest_rank(seed: int) -> int:
    fused = getattr(verdict(seed), "fused", None)
    return max(fused.rank.values(), default=0) if fused else 0


@pytest.mark.parametrize("block", [*range(OFTEN), *(pytest.param(block, marks=pytest.mark.slow)
                                                    for block in range(OFTEN, CASES // BLOCK))])  # fmt: skip
def test_no_crash_and_no_wrong_yes(block: int) -> None:
    wrong = {}
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            check(seed)
        except Exception as error:  # noqa: BLE001 - each case reports
            wrong[seed] = f"{type(error).__name__}: {error}"
    assert not wrong, "\n".join(f"case({seed}): {text}" for seed, text in wrong.items())


def check(seed: int) -> None:
    made = verdict(seed)
    assert type(made).__name__ in VERDICTS
    if not hasattr(made, "fused"):
        assert made.reason
        assert made.evidence
        return
    runner = Runner(made.fused, {**tensors(seed), **SCALARS}, sizes(seed))
    definition = Oracle(tensors(seed), SCALARS, sizes(seed))
    for outputs in (runner.call("numpy"), runner.random(seed, pieces=4)):
        for name, (expr, axes) in case(seed).outputs.items():
            assert_defined(outputs[name], *definition.output(expr, axes))


def assert_defined(got: np.ndarray, want: np.ndarray, bound: np.ndarray) -> None:
    """Finite where the definition is, and within its running error bound there.

    The bound is of first order: beyond it is ε² of data of magnitude 1 to powers of up to 6, and what underflows.
    """
    info = np.finfo(np.float64)
    with np.errstate(all="ignore"):
        allowed = info.eps * (bound + np.abs(want)) + 6**2 * info.eps**2 + info.tiny
        fine = np.abs(got - want) <= allowed
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    wrong = np.isfinite(want) & ~fine
    assert not wrong.any(), f"got {got[wrong][:2]}, wanted {want[wrong][:2]} ± {allowed[wrong][:2]}"


def mixture(cases: int) -> Counter[tuple[str, int, int]]:
    """How many cases have a verdict, highest rank and depth; a quarter fuses beyond rank 1, a seventh is refused."""
    counts = Counter((type(verdict(seed)).__name__, highest_rank(seed), case(seed).depth) for seed in range(cases))
    beyond = sum(number for (kind, rank, _), number in counts.items() if kind == "Exact" and rank >= 2)
    refused = sum(number for (kind, _, _), number in counts.items() if kind == "Refused")
    assert beyond >= cases // 4
    assert refused >= 15 * cases // 100
    return counts


@pytest.mark.parametrize(
    ("name", "cases"),
    [("histogram", OFTEN * BLOCK), pytest.param("histogram_of_all", CASES, marks=pytest.mark.slow)],
)
def test_the_mixture(golden: Golden, name: str, cases: int) -> None:
    lines = [f"{kind:17} {rank:4} {depth:5} {number:6}"
             for (kind, rank, depth), number in sorted(mixture(cases).items())]  # fmt: skip
    golden(name, "\n".join(["verdict           rank depth  cases", *lines]))


@pytest.mark.parametrize("seeds", [range(OFTEN * BLOCK), pytest.param(range(0, CASES, 4), marks=pytest.mark.slow)])
def test_a_poisoned_case_is_never_exact_by_luck(seeds: range) -> None:
    """The terms that must be refused are, unless what stands around them takes them away or d is a truth value."""
    poisoned = [seed for seed in seeds if case(seed).poisoned]
    fused = [seed for seed in poisoned if type(verdict(seed)).__name__ == "Exact"]
    assert len(poisoned) >= 16 * len(seeds) // 100
    kinds = {seed: {one.monoid.name for one in verdict(seed).fused.cascade.reductions} for seed in fused}
    assert {seed for seed, held in kinds.items() if not held & {"any", "all"}} == set()
