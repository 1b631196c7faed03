"""Other libraries, in an environment of their own (`make integration`): nothing is collected where one is missing."""

from collections.abc import Generator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.torch.conftest import anew

__all__ = ["anew"]
collect_ignore_glob = [] if find_spec("transformers") else ["*.py"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Let a skip be a failure: the environment is there so that everything runs."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
    return report
