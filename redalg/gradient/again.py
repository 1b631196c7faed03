"""Calls that a graph makes again and again, from within an operator's implementation.

What an operator is given are plain tensors, which no transform looks at. A call of a kind that was met before runs at
once there; any other is checked as every call is.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import local
from typing import Any

from redalg.runtime.bind.inputs import without_gradients
from redalg.runtime.call.dispatch import DEFAULTS, call_again

OPERATORS = local()
"""`run` is true in a thread that runs an operator's implementation."""


def outputs_of(
    function: Any, given: Mapping[str, Any], sizes: Mapping[str, int], backend: str | None = None, **options: str
) -> tuple[Any, ...]:
    """The outputs of a function on tensors and scalars; options are `empty` and `precision`."""
    if getattr(OPERATORS, "run", False):
        known = call_again(function.passes, without_gradients(given), backend, sizes, {**DEFAULTS, **options})
        if known is not None:
            return tuple(known.values())
    made = function(**given, sizes=sizes, backend=backend, **options)
    return (made,) if function.single else tuple(made)
