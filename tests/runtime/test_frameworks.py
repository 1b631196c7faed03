"""PyTorch while another thread imports it: it is listed as a module, and half of it is missing."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import redalg as ra
from redalg.runtime.bind.frameworks import imported_torch
from redalg.runtime.call import dispatch

n = ra.axes("n")
mean = ra.fuse(ra.mean(ra.tensor("x[n]"), n))


def test_a_half_imported_framework_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert imported_torch() is torch
    monkeypatch.setattr(torch.__spec__, "_initializing", True, raising=False)
    assert imported_torch() is None
    state = mean.merge(*(mean.leaf({"x": np.arange(3.0)}, backend="library") for _ in range(2)))
    assert mean.finish(state) == 1


def test_a_missing_framework_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert imported_torch() is None


def test_states_of_numpy_import_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it raises now
    dispatch.has_torch.cache_clear()
    state = mean.leaf({"x": np.arange(5.0)})
    assert mean.finish(mean.merge(state, mean.leaf({"x": np.arange(5.0)}, start={n: 5}))) == 2
    assert dispatch.has_torch.cache_info().currsize == 0, "nothing has asked for torch"
