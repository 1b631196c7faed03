"""Every text that a verdict has, for every pattern: `python -m tests.verdict_texts` prints a line with its hash.

With a number, of one pattern of so many.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import redalg as ra
from redalg.errors import ExpressionError
from tests.cases import literature, literature_order, theory
from tests.cases.corpus import Pattern

PATTERNS = (
    *(row.pattern for row in theory.ROWS), *theory.NOES,
    *literature.PATTERNS, *literature_order.PATTERNS, *literature.CARRIED, *literature.NOES,
)  # fmt: skip


def texts(pattern: Pattern) -> Iterator[str]:
    """The verdict; the cascade, the decomposition, the form and the derivation in text and LaTeX of what fuses."""
    try:
        verdict = pattern.analyze()
    except ExpressionError as error:
        yield str(error)
        return
    fused = getattr(verdict, "fused", None)
    yield type(verdict).__name__
    if fused is None:
        yield str(verdict)
        return
    assert isinstance(fused, ra.Fused)
    yield from map(str, (fused.cascade, fused.decomposition, fused.form, fused.rank, fused.pivots, fused.state))
    yield from (fused.explain(), fused._repr_latex_(), repr(fused.g), repr(fused.h))


def main() -> None:
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for pattern in PATTERNS[::every]:
        for place, text in enumerate(texts(pattern)):
            print(pattern.name, place, hashlib.sha256(text.encode()).hexdigest()[:16])


if __name__ == "__main__":
    main()
