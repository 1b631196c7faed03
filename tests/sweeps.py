"""How much every CI run draws: a sixth. `make slow` draws all, and runs every case of what is marked as a sweep.

CI has 15 minutes on two cores, and the tests grow: `SPARSE` says how much thinner the sweeps are than their marks say.
"""

from __future__ import annotations

import os
from collections import defaultdict
from zlib import crc32

import pytest

FIRST = 101
"""So many plans of a list are built, best first."""
SPARSE = 10
"""CI runs one case of a sweep where its mark asks for so many."""
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def draws(many: int) -> int:
    """How many examples Hypothesis draws: a sixth of many, and at least 3."""
    return many if THOROUGH else max(many // 6, 3)


def mark_slow(items: list[pytest.Item]) -> None:
    """Of the cases of a function that is marked `sweep(every)` one of `SPARSE · every` stays, and the others are slow.

    Their names choose, so that the cases that stay are no pattern in the order of parameters; the folder is left out,
    so that they stay the same when a file moves.
    """
    sweeps: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("sweep")) and not item.get_closest_marker("slow"):
            sweeps[item.nodeid.partition("[")[0], *marker.args].append(item)
    for (_, every), cases in sweeps.items():
        for item in sorted(cases, key=place)[-(-len(cases) // (SPARSE * every)) :]:
            item.add_marker(pytest.mark.slow)


def place(case: pytest.Item) -> int:
    """The place of a case among those of its function: a hash of its name, as if its file lay in `tests` itself."""
    name = case.nodeid.partition("::")[2]
    return crc32(f"tests/{case.path.name}::{name}".encode())
