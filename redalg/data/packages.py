"""Packages of data engines, imported where they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from redalg.errors import BackendError


def import_engine(module: str, extra: str, caller: str) -> Any:
    """Import a module of a data engine's package.

    Raises:
        BackendError: the package is not installed; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".", maxsplit=1)[0]
        if (error.name or "").split(".", maxsplit=1)[0] != package:
            raise  # a package of the engine's own is missing, which its message names
        raise BackendError(
            f'{caller} needs {package}, which is not installed. Run: pip install "redalg[{extra}]"'
        ) from None
