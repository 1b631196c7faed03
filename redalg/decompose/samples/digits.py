"""Arithmetic of 120 digits."""

from __future__ import annotations

from functools import cache
from typing import Any

from mpmath import MPContext

DIGITS = 120


@cache
def context() -> Any:
    """Arithmetic of 120 digits, apart from mpmath's own."""
    ctx = MPContext()
    ctx.dps = DIGITS
    return ctx
