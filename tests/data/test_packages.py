"""Packages of engines that are missing, broken, or of another version: the message has the command that helps."""

import re
import sys
from pathlib import Path

import pytest

import redalg as ra
from redalg.data.packages import import_engine

FAILURES = {
    "missing": (None, 'reduce needs an_engine, which is not installed. Run: pip install "redalg[engine]"'),
    "without what it needs": (
        "import no_such_package",
        'needs an_engine, and an_engine cannot import no_such_package. Run: pip install --upgrade "redalg[engine]"',
    ),
    "broken": ("from math import tau_of_old", "needs an_engine, which an_engine fails to import: cannot import name"),
    "of another version": ("older = 1", "needs an_engine.Aggregate, which an_engine lacks. Run: pip install --upgrade"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_package_that_does_not_serve_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, message = FAILURES[name]
    if text is not None:
        (tmp_path / "an_engine.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "an_engine", raising=False)
    with pytest.raises(ra.BackendError, match=re.escape(message)):
        import_engine("an_engine", "engine", "reduce", ("Aggregate",))


def test_a_package_that_serves_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "an_engine.py").write_text("class Aggregate: ...", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "an_engine", raising=False)
    assert import_engine("an_engine", "engine", "reduce", ("Aggregate",)).Aggregate.__name__ == "Aggregate"


def test_the_version_is_named() -> None:
    with pytest.raises(ra.BackendError, match=r"needs numpy.Aggregate, which numpy \d+\.\d+"):
        import_engine("numpy", "engine", "reduce", ("Aggregate",))
