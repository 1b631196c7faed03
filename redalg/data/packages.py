"""Packages of data engines, imported where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from redalg.errors import BackendError
from redalg.optional import need_packages


def import_engine(module: str, extra: str, caller: str, needs: Sequence[str] = ()) -> Any:
    """Import a module of a data engine's package.

    Args:
        module: its name.
        extra: the extra of redalg that installs it.
        caller: the function that messages name.
        needs: the names that the caller takes from it.

    Raises:
        BackendError: the package is not installed, cannot be imported, or lacks a name: the message has the command
            that installs it.
    """
    package = module.split(".", maxsplit=1)[0]
    command = f'pip install --upgrade "redalg[{extra}]"'
    try:
        engine = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.split(".", maxsplit=1)[0] == package:
            need_packages(caller, f"redalg[{extra}]", package)
        raise BackendError(
            f"{caller} needs {module}, and {installed_package(package)} cannot import {missing}. Run: {command}"
        ) from error
    except ImportError as error:
        raise BackendError(
            f"{caller} needs {module}, which {installed_package(package)} fails to import: {error}. Run: {command}"
        ) from error
    absent = next((name for name in needs if not hasattr(engine, name)), None)
    if absent is not None:
        raise BackendError(
            f"{caller} needs {module}.{absent}, which {installed_package(package)} lacks. Run: {command}"
        )
    return engine


def installed_package(package: str) -> str:
    """A package and its version.

    >>> installed_package("no_such_package")
    'no_such_package'
    """
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package
