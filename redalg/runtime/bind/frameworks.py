"""PyTorch, if it has been imported: nothing here imports it."""

from __future__ import annotations

import sys
from typing import Any


def imported_torch() -> Any:
    """PyTorch as a module, or None if it was not imported, or is being imported by another thread.

    Python lists a module before it has been executed: until then no thread has a tensor, and half of its functions are
    missing.
    """
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    return torch
