"""The numeric rank test audits every yes: no term has a larger rank on samples than the form has accumulators for."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from redalg.decompose.domain import live_term
from redalg.decompose.samples.rank import RankTest, rank_test
from tests.cases import literature, theory
from tests.cases.corpus import Pattern
from tests.cases.random_cascades import case

CASES, BLOCK = range(0, 2000, 10), 4


def audited(fused: Any) -> dict[str, tuple[RankTest, int]]:
    """Each sum's numeric ranks, and the rank that its separation claims."""
    cascade, facts = fused.cascade, fused.decomposition.separator.facts
    return {
        one.reduction.name: (
            rank_test(live_term(one.reduction.term, cascade.domain), cascade.axis, cascade.values, facts), one.rank)
        for one in fused.decomposition.separations if one.reduction.monoid.name == "sum"
    }  # fmt: skip


@pytest.mark.parametrize("row", theory.ROWS, ids=lambda row: row.pattern.name)
def test_the_rank_of_the_table_is_the_rank_of_the_samples(row: theory.Row) -> None:
    fused = row.pattern.fuse()
    found, _ = audited(fused)[fused.cascade.reductions[-1].name]
    assert found.ranks == (row.rank, row.rank)


@pytest.mark.parametrize("pattern", literature.PATTERNS, ids=lambda one: one.name)
def test_no_pattern_claims_too_small_a_rank(pattern: Pattern) -> None:
    for name, (found, claimed) in audited(pattern.fuse()).items():
        assert max(found.ranks, default=0) <= claimed, name


@pytest.mark.sweep(4)
@pytest.mark.parametrize("block", range(BLOCK))
def test_no_random_cascade_claims_too_small_a_rank(block: int) -> None:
    available = []
    for seed in CASES[block::BLOCK]:
        verdict = ra.analyze(case(seed).outputs)
        if type(verdict).__name__ == "Exact":
            ranks = audited(getattr(verdict, "fused", None))
            assert all(max(found.ranks, default=0) <= claimed for found, claimed in ranks.values()), (seed, ranks)
            available += [bool(found.ranks) for found, _ in ranks.values()]
    assert sum(available) > 0.9 * len(available)
