"""Names that are near to a misspelt one, for the messages that refuse it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

MOST, ALMOST = 3, 0.9
"""So many names at most; one alone where it is as near as this."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question that names near ones, with a space before it; empty if there is none.

    >>> did_you_mean("atention", ["attention", "variance"])
    ' Did you mean attention?'
    >>> did_you_mean("zebra", ["attention"])
    ''
    """
    names = list(known)
    lower = {one.lower(): one for one in reversed(names)}
    near = [lower[one] for one in get_close_matches(name.lower(), lower, MOST, 0.7)]
    if near and SequenceMatcher(None, name.lower(), near[0].lower()).ratio() >= ALMOST:
        near = near[:1]
    found = near or [one for one in names if len(name) >= 4 and name.lower() in one.lower()][:MOST]
    return f" Did you mean {' or '.join(found)}?" if found else ""
