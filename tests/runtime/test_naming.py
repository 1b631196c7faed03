"""Names do not matter to what tuned plans are known by; everything else does."""

from __future__ import annotations

import pytest
from sympy.core.basic import Basic

import redalg as ra
from redalg.expression import Axis, Extent, Label
from redalg.runtime.known.naming import naming
from tests.cases.corpus import Pattern
from tests.cases.literature import PATTERNS
from tests.cases.theory import ROWS

EVERY = [*PATTERNS, *(row.pattern for row in ROWS)]


def other_names(pattern: Pattern) -> ra.Fused:
    """The same function, of axes and tensors whose names are in the opposite order."""
    outputs = pattern.outputs()
    atoms = {one for expr, _ in outputs.values() for one in expr.atoms(Axis, Extent, Label)}
    names = sorted({str(one.name) for one in atoms})
    fresh = {name: f"{'z' * (place + 1)}{name}"[::-1] for place, name in enumerate(reversed(names))}

    def renamed(one: Basic) -> Basic:
        kind = type(one)
        return kind(fresh[one.name], one.size) if kind is Axis else kind(fresh[one.name])

    at = {one: renamed(one) for one in atoms}
    made = {name: (expr.xreplace(at), " ".join(fresh[axis] for axis in axes.split()))
            for name, (expr, axes) in outputs.items()}  # fmt: skip
    return ra.fuse(made) if len(made) > 1 else ra.fuse(*next(iter(made.values())))


@pytest.mark.parametrize("pattern", EVERY, ids=lambda one: one.name)
def test_other_names_are_the_same_cascade(pattern: Pattern) -> None:
    one, other = naming(pattern.fuse().form), naming(other_names(pattern).form)
    assert one.digest == other.digest
    assert len(set(one.axes.values())) == len(one.axes)


def test_patterns_that_differ_have_digests_that_differ() -> None:
    digests: dict[str, str] = {}
    for pattern in EVERY:
        digests.setdefault(naming(pattern.fuse().form).digest, pattern.name)
    assert len(digests) >= len({str(one.fuse().form) for one in EVERY})
