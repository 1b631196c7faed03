"""What CONTRIBUTING says that a new GPU, monoid or array backend touches is all that it touches."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sympy import S, oo, sqrt

import redalg as ra
from redalg.errors import BackendError, PlanError
from redalg.incremental.arrays.arrays import ArrayOps
from redalg.incremental.arrays.numpy_ops import NumpyOps
from redalg.monoids import table
from redalg.monoids.laws import violation
from redalg.monoids.scalar import scalar_monoid
from redalg.runtime.bind import backends
from redalg.runtime.bind.backends import ArrayBackend, NumpyBackend
from redalg.runtime.bind.inputs import Bound
from redalg.strategies import device
from redalg.strategies.device import Architecture, card
from tests.house.source import ROOT

n = ra.axes("n")
x = ra.tensor("x[b,n]")
VARIANCE = ra.fuse(ra.var(x, n), axes="b")
SIZES, DTYPES = {"b": 4096, "n": 4096}, {"x": "float32"}
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_exists() -> None:
    paths = [found for found in re.findall(r"`([\w/]+(?:\.py|/))`", TEXT) if "/" in found]
    assert len(paths) >= 12
    folders = ROOT, ROOT / "redalg" / "lower_tile"
    missing = [path for path in paths if not any((folder / path).exists() for folder in folders)]
    assert missing == []


def test_every_command_that_is_named_exists() -> None:
    makefile = Path(ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(re.findall(r"make ([a-z]+)", TEXT)) - {"it"}
    assert commands
    assert all(f"\n{command}:" in makefile for command in commands)


def test_a_card_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="'A40' is not known"):
        VARIANCE.source("A40", sizes=SIZES, dtypes=DTYPES)
    monkeypatch.setitem(device.CARDS, "A40", card("sm_86", "A40", 84, 696, 150))
    assert device.card_of("NVIDIA A40", (8, 6)) == "A40"
    assert VARIANCE.plan(SIZES, DTYPES, "A40").device.multiprocessors == 84
    times = [VARIANCE.plans(SIZES, DTYPES, name)[0].predicted_us for name in ("A40", "A10")]
    assert times[0] < times[1]  # more memory bandwidth


def test_a_compute_capability_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Jetson AGX Orin."""
    monkeypatch.setitem(device.ARCHITECTURES, "sm_87", Architecture("sm_87", (8, 7), 166912))
    monkeypatch.setitem(device.CARDS, "Orin", card("sm_87", "Orin", 16, 204, 42))
    assert device.card_of("NVIDIA Orin", (8, 7)) == "Orin"
    assert '"arch": "sm_87"' in VARIANCE.source("sm_87", sizes=SIZES, dtypes=DTYPES)
    assert VARIANCE.plan(SIZES, DTYPES, "sm_87").device.part == "Orin"


def test_a_monoid_of_ones_own_is_a_call() -> None:
    """The largest number and how often it stands there, on every backend."""
    ra.register_monoid(
        "peak_count",
        components={"peak": -oo, "count": 0},
        lift=lambda value, _: (value, 1),
        combine=lambda a, b: (
            ra.where(a[0] >= b[0], a[0], b[0]),
            ra.where(a[0] > b[0], a[1], ra.where(b[0] > a[0], b[1], a[1] + b[1])),
        ),
        results=("peak", "count"),
        integers=("count",),
    )
    peak, count = ra.reduce("peak_count", x, axis=n)
    fused = ra.fuse({"peak": (peak, "b"), "count": (count, "b")})
    data = np.random.default_rng(0).integers(0, 5, (3, 100)).astype(np.float32)
    wanted = data.max(axis=1), (data == data.max(axis=1, keepdims=True)).sum(axis=1)
    for backend in ("numpy", "torch", "tilelang"):
        found = fused(x=torch.from_numpy(data), backend=backend)
        assert (found.peak.numpy() == wanted[0]).all()
        assert (found.count.numpy() == wanted[1]).all()
    reference = fused.reference(x=data)
    assert (np.asarray(reference.count) == wanted[1]).all()


def test_a_monoid_of_redalgs_own_is_a_value_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    own = scalar_monoid("hypotenuse", "⊕", S.Zero, lambda a, b: sqrt(a**2 + b**2), domains=("nonnegative",))
    monkeypatch.setitem(table.MONOIDS, "hypotenuse", own)
    assert violation(own) is None
    fused = ra.fuse(ra.reduce("hypotenuse", x, axis=n), axes="b")
    data = np.random.default_rng(0).uniform(0, 1, (3, 100)).astype(np.float32)
    for backend in ("numpy", "torch", "tilelang"):
        found = fused(x=torch.from_numpy(data), backend=backend)
        np.testing.assert_allclose(found.numpy(), np.linalg.norm(data, axis=1), rtol=1e-5)


class Wide(ArrayBackend):
    """NumPy, in float64 whatever the inputs are."""

    numpy = NumpyBackend()

    def ops(self, compute: str, device: str) -> ArrayOps:
        return NumpyOps("float64")

    def tensors(self, bound: Bound) -> dict[str, Any]:
        return self.numpy.tensors(bound)

    def empty(self, shape: Sequence[int], dtype: str, ops: ArrayOps) -> Any:
        return self.numpy.empty(shape, dtype, ops)

    def to_library(self, array: Any, library: str) -> Any:
        return self.numpy.to_library(array, library)


def test_an_array_backend_is_a_class_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).normal(1e4, 1, (3, 1000)).astype(np.float32)
    with pytest.raises(BackendError, match="'wide' is not known"):
        VARIANCE(x=data, backend="wide")
    monkeypatch.setitem(backends.ARRAY_BACKENDS, "wide", Wide())
    for given in (data, torch.from_numpy(data)):
        made: Any = VARIANCE(x=given, backend="wide")
        assert type(made) is type(given)
        assert made.dtype == given.dtype
        np.testing.assert_array_equal(np.asarray(made), data.astype(np.float64).var(axis=1).astype(np.float32))
