"""Shared set-up of tests that compile graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from redalg.torch.records import say_once


@pytest.fixture
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No graph is known from before, to Dynamo, to Inductor's caches, or to the gate."""
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    say_once.cache_clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
