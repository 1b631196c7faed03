"""PyTorch's operators of redalg are registered as soon as both are imported, in either order.

A graph that was exported elsewhere names them, and PyTorch looks for them when it loads it, before any call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

FRAMEWORK = "torch"


def register_operators() -> None:
    """Register the operators if PyTorch is there, else as soon as it has been imported."""
    if FRAMEWORK not in sys.modules:
        sys.meta_path.insert(0, AfterImport())
    elif hasattr(getattr(sys.modules[FRAMEWORK], "library", None), "custom_op"):  # which PyTorch before 2.4 lacks
        import redalg.gradient.operators
        import redalg.runtime.together.operator  # noqa: F401


@final
class AfterImport(MetaPathFinder):
    """Find PyTorch as all others do, and register the operators after it has been executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of PyTorch, whose execution ends with the registration; None for any other module."""
        others = (one for one in sys.meta_path if one is not self) if name == FRAMEWORK else ()
        spec = next((found for one in others if (found := one.find_spec(name, path, target)) is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            sys.meta_path.remove(self)
            register_operators()

        loader.exec_module = execute_and_register
        return spec
