"""Tell the branches of a choice that are computed whatever is chosen.

A compiler makes a selection of a short branch by itself, and jumps across a long one; where neighbouring elements
choose differently, the jump costs more than it saves. A branch that reads memory, divides or calls a function is
computed only where it is chosen.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from sympy import Add, Mul
from sympy.core.basic import Basic

from redalg.lower_tile.ir.powers import factors_of_power

LONG = 4
"""Operations of a branch from which compilers jump across it."""


def choice_text(
    condition: str, branches: Sequence[Basic], texts: Sequence[str], named: Container[Basic], compute: str
) -> str:
    """The text of a choice between branches of such texts, of a dtype.

    TileLang takes a literal for a float32 where both branches are computed.
    """
    if not is_long_arithmetic(branches, named):
        return f"T.if_then_else({condition}, {', '.join(texts)})"
    pairs = zip(branches, texts, strict=True)
    own = [f'T.cast({text}, "{compute}")' if one.is_Number and compute != "float32" else text for one, text in pairs]
    return f"T.Select({condition}, {', '.join(own)})"


def is_long_arithmetic(branches: Iterable[Basic], named: Container[Basic]) -> bool:
    """Tell if branches are long sums and products of numbers that have names."""
    operations = [operations_within(node, named) for node in branches]
    return None not in operations and sum(filter(None, operations)) >= LONG


def operations_within(node: Basic, named: Container[Basic]) -> int | None:
    """The operations of sums and products of named numbers; None if there is anything else."""
    if node in named or node.is_Number:
        return 0
    terms = node.args if isinstance(node, Add | Mul) else factors_of_power(node)
    inner = [operations_within(one, named) for one in terms]
    return None if None in inner or not inner else len(inner) - 1 + sum(filter(None, inner))
