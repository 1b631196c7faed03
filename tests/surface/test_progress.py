"""Progress: shown on a terminal where something takes long, and nowhere else; one display for all tasks."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from redalg import progress
from redalg.progress import progress_bar
from redalg.runtime.compile import compile as compile_module


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal(patience_s: float = 0.0) -> Iterator[Terminal]:
    """A terminal as standard error; within a test, since pytest gives it one of its own."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.delenv(progress.SWITCH, raising=False)
        patch.setattr(sys, "stderr", stream)
        patch.setattr(progress, "PATIENCE_S", patience_s)
        yield stream
    assert progress.DISPLAY.bars is None


def test_tasks_share_a_display() -> None:
    with terminal() as stream, progress_bar("outer", 10) as tell:
        tell(3, "three of ten")
        with progress_bar("inner [red]"):
            assert progress.DISPLAY.lines == 2
        assert progress.DISPLAY.lines == 1
    for text in ("outer", "three of ten", "inner [red]"):
        assert text in stream.getvalue()


def test_what_is_short_is_not_shown() -> None:
    with terminal(60.0) as stream, progress_bar("quick", 10) as tell:
        tell(3)
    assert stream.getvalue() == ""


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as stream:
        with progress_bar("disabled", enabled=False) as tell:
            tell(3)
        monkeypatch.setenv(progress.SWITCH, "0")
        with progress_bar("off"):
            pass
    assert stream.getvalue() == ""


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal():
        pipe = io.StringIO()
        monkeypatch.setattr(sys, "stderr", pipe)
        with progress_bar("piped"):
            assert progress.DISPLAY.lines == 0
        assert pipe.getvalue() == ""


def fail(label: str) -> None:
    with progress_bar(label):
        assert progress.DISPLAY.lines == 1
        raise ValueError("wrong")


def test_an_error_takes_the_line_away() -> None:
    with terminal() as stream, pytest.raises(ValueError, match="wrong"):
        fail("failing")
    assert progress.DISPLAY.lines == 0
    assert "failing" in stream.getvalue()


def test_a_compile_says_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(
        text="a kernel that no cache has", program=SimpleNamespace(name="variance_over_n"),
        plan=SimpleNamespace(device=SimpleNamespace(target="sm_90a")),
    )  # fmt: skip
    monkeypatch.setattr(compile_module, "load", lambda _: {"compiled": lambda: "the kernel"})
    monkeypatch.setattr("redalg.runtime.compile.stored.note_library", lambda *_: None)
    with terminal() as stream:
        assert compile_module.compile_source(source).run == "the kernel"
    assert "compiling variance_over_n for sm_90a" in stream.getvalue()
