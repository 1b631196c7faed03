"""The instruments on a card and on a CPU: the same rows and columns, with times of the device on a card."""

from __future__ import annotations

import math

import pytest
import torch

from redalg.instruments.comparison import GAPS, CompareRow, Comparison
from redalg.library import attention, logsumexp, variance

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # of PyTorch itself
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
METHODS = {"cpu": {"wall"}, "cuda": {"cuda graph", "cuda events"}}
SIZES = {"b": 8, "n": 1024}


def kernels(device: str) -> str:
    """The backend that the device's calls take by themselves."""
    return "tilelang" if device == "cuda" else "torch"


@pytest.mark.parametrize("device", DEVICES)
def test_compare_has_the_columns_of_its_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    peers = {"torch.var": lambda x: torch.var(x, 1, correction=0)}
    found = variance().compare(peers, sizes=SIZES, dtypes="float32", device=device, compiled=device == "cuda",
                               backend=kernels(device))  # fmt: skip
    rows = {row.name: row for row in found.rows}
    own = "redalg, kernel" if device == "cuda" else "redalg, blocks"
    assert list(rows) == [own, "eager PyTorch", *["torch.compile"] * (device == "cuda"), "torch.var"]
    for row in rows.values():
        assert not row.failure, row
        assert row.method in METHODS[device], row
        assert 0 < row.microseconds < 1e6
        assert row.ratio == pytest.approx(row.microseconds / rows[own].microseconds)
        assert row.error < 1e-5
        assert row.peak_bytes is not None
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert ("device time" if device == "cuda" else "wall time") in " ".join(text.split())
    assert found.plot().axes[0].get_xlabel().startswith("device" if device == "cuda" else "wall")
    if device == "cuda":
        assert torch.cuda.get_device_name() in " ".join(text.split())
        assert (rows[own].peak_bytes or 0) < 2**20  # a call allocates its outputs alone


@pytest.mark.parametrize("device", DEVICES)
def test_compare_takes_the_users_tensors_where_they_lie(device: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 64, 32, device=device).to(torch.float16).unbind()
    peers = {"sdpa": lambda **of: torch.nn.functional.scaled_dot_product_attention(of["Q"], of["K"], of["V"])}
    found = attention().compare(peers, data={"Q": q, "K": k, "V": v}, compiled=False, backend=kernels(device))
    assert [row.failure for row in found.rows] == [""] * 3
    assert all(row.error < 1e-2 for row in found.rows)


@pytest.mark.parametrize("device", DEVICES)
def test_accuracy_judges_the_kernel_of_its_device(device: str) -> None:
    found = variance().accuracy(SIZES, dtypes=["float32", "bfloat16"], device=device, backend=kernels(device))
    rows = {(row.dtype, row.data): row for row in found.rows}
    assert {dtype for dtype, _ in rows} == {"float32", "bfloat16"}
    assert [row.failure for row in found.rows if row.failure] == []
    offset = rows["float32", "offset 1e4"]
    assert offset.redalg < 1e-5
    whole = logsumexp().accuracy(SIZES, device=device, backend=kernels(device), families=["ordinary", "-inf masked"])
    assert all(row.redalg < 1e-5 for row in whole.rows)


@pytest.mark.parametrize("device", DEVICES)
def test_bench_tells_the_prediction_and_the_share(device: str) -> None:
    found = variance().bench(SIZES, {"b": 4, "n": 4096}, dtypes="float32", device=device, backend=kernels(device))
    own = [row for row in found.rows if row.name != "definition, float64"]
    assert len(own) == 2
    assert all(row.microseconds > 0 and not row.failure for row in found.rows)
    assert all(math.isnan(row.predicted_us) == (device == "cpu") for row in own)
    assert ("TFLOP/s of 16-bit" in " ".join(str(found).split())) == (device == "cuda")


def test_a_time_that_holds_gaps_says_so() -> None:
    rows = (CompareRow("redalg, kernel", 20.0, 1.0, 4096, 1e-7, "cuda graph"),
            CompareRow("mine", 50.0, 2.5, None, 1e-7, "cuda events"))  # fmt: skip
    text = " ".join(str(Comparison("compared", rows, "cuda")).split())
    assert f"mine: {GAPS}" in text
    assert f"redalg, kernel: {GAPS}" not in text
