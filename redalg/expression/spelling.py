"""Options that other libraries have and redalg spells otherwise: refused by name, with the spelling here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from redalg.errors import ExpressionError

AXES = ("axis", "axes", "dim", "dims")
DIVISORS = ("ddof", "unbiased", "bias")
KEPT = ("keepdims", "keepdim")


def no_other(caller: str, options: Mapping[str, Any], known: Collection[str] = ()) -> None:
    """Refuse the options of another library.

    >>> no_other("mean", {"axis": 0})
    Traceback (most recent call last):
    redalg.errors.ExpressionError: mean: there is no option `axis`. Axes follow the term: write `ra.mean(x, n)` with
    `n = ra.axes("n")`.
    """
    for name in options:
        raise ExpressionError(f"{caller}: there is no option `{name}`. {_spelling(caller, name, known)}")


def _spelling(caller: str, name: str, known: Collection[str]) -> str:
    if name in AXES:
        return f'Axes follow the term: write `ra.{caller}(x, n)` with `n = ra.axes("n")`.'
    if name in DIVISORS and "correction" in known:
        return f"Write `ra.{caller}(…, correction=1)` to divide by n - 1, and leave it out to divide by n."
    if name in KEPT:
        return "A reduction has no dimension of its axes, and stands beside terms that have: nothing need be kept."
    if not known:
        return f"It takes a term and axes, `ra.{caller}(x, n)`."
    return f"Its options are {', '.join(known)}."
