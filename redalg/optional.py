"""Optional packages: where one is missing, the message has the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec

from redalg.errors import BackendError


def need_packages(caller: str, requirement: str, *packages: str) -> None:
    """Refuse a call whose packages are not all installed.

    Args:
        caller: the function that the message names.
        requirement: what pip is to install, such as `redalg[torch]`.
        packages: names, as they are imported.

    Raises:
        BackendError: a package is not installed.

    >>> need_packages("compare", "redalg[torch]", "math")
    >>> need_packages("compare", "redalg[torch]", "no_such_package")
    Traceback (most recent call last):
    redalg.errors.BackendError: compare needs no_such_package, which is not installed. Run: pip install "redalg[torch]"
    """
    for package in packages:
        if find_spec(package) is None:
            raise BackendError(f'{caller} needs {package}, which is not installed. Run: pip install "{requirement}"')
