"""What the released RedFuser decomposition's rule takes, beside redalg's verdicts, over every pattern that we have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import redalg as ra
from redalg.decompose.parse.parse import parse
from redalg.decompose.parse.written import named_outputs
from redalg.errors import ExpressionError
from tests.cases import literature, literature_order, theory
from tests.conftest import Golden
from tests.decompose.redfuser_rule import accepts, first_refused

KNOWN_LENGTH = {"scalable softmax of an unknown length"}
"""Refused because the length is known at the end alone; to the rule it is a constant."""
HEAD = ("pattern", "RedFuser's rule", "redalg", "highest rank")


def spellings() -> Iterator[tuple[str, Any, str | None]]:
    """Every pattern and spelling: its name, and the arguments of `fuse`."""
    for row in theory.ROWS:
        yield row.pattern.name, *row.pattern.asked()
        for name, build in row.spellings.items():
            yield f"{row.pattern.name}: {name}", build(), row.pattern.axes
    everything = (*theory.NOES, *literature.PATTERNS, *literature_order.PATTERNS, *literature.CARRIED,
                  *literature.NOES)  # fmt: skip
    for pattern in everything:
        yield pattern.name, *pattern.asked()


def cascade_of(expr: Any, axes: str | None) -> Any:
    return parse(named_outputs(expr, axes)[0])


def verdict(expr: Any, axes: str | None) -> tuple[str, str]:
    """redalg's verdict and the highest rank of a reduction."""
    made = ra.analyze(expr, axes)
    kind = type(made).__name__.removesuffix("Verdict").lower()
    fused = getattr(made, "fused", None)
    return kind, str(max(fused.rank.values())) if fused else "—"


def lines() -> Iterator[tuple[str, ...]]:
    for name, expr, axes in spellings():
        try:
            refused = first_refused(cascade_of(expr, axes))
            yield name, f"no: {refused}" if refused else "yes", *verdict(expr, axes)
        except ExpressionError:
            yield name, "not read", "not read", "—"


@pytest.mark.parametrize("row", theory.ROWS, ids=lambda row: row.pattern.name)
def test_the_rule_is_column_r_of_the_theory(row: theory.Row) -> None:
    assert accepts(cascade_of(*row.pattern.asked())) is row.redfuser


def test_the_rule_takes_nothing_that_redalg_refuses() -> None:
    taken = {one.name for one in (*theory.NOES, *literature.NOES) if accepts(cascade_of(*one.asked()))}
    assert taken == KNOWN_LENGTH


def test_the_table_of_what_each_takes(golden: Golden) -> None:
    rows = list(lines())
    taken = sum(rule == "yes" for _, rule, _, _ in rows)
    ours = sum(kind in ("exact", "approximate") for _, _, kind, _ in rows)
    table = [HEAD, tuple("-" for _ in HEAD), *rows]
    text = "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |" for cells in table)
    golden("table", f"{text}\n\nOf {len(rows)} patterns the rule takes {taken}, and redalg {ours}.")
