"""Times beside peers and beside predictions, on a CPU and in small sizes: what is compared, told, written."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
import torch

import redalg as ra
from redalg.instruments.bench import Bench
from redalg.instruments.comparison import Comparison, Problem
from redalg.instruments.drawing import JUDGED, Setting
from redalg.instruments.measuring import bytes_of
from redalg.library import PATTERNS, attention, variance

b, n = ra.axes("b n")
x = ra.tensor("x[b,n]")
SMALL = {"b": 4, "n": 64}


def broken(**_: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such thing")


@pytest.fixture(scope="module")
def compared() -> Comparison:
    peers = {"mine": lambda x: torch.var(x, 1, correction=0), "wrong": lambda x: x.mean(1), "broken": broken,
             "other shape": lambda x: x}  # fmt: skip
    return variance().compare(peers, sizes=SMALL, device="cpu", backend=["torch", "numpy"])


def test_everything_is_checked_and_timed(compared: Comparison) -> None:
    rows = {row.name: row for row in compared.rows}
    assert list(rows) == ["redalg, blocks", "redalg, arrays", "eager PyTorch", "mine", "wrong", "broken", "other shape"]
    assert compared.rows[0].ratio == 1.0
    for name in ("redalg, blocks", "redalg, arrays", "eager PyTorch", "mine"):
        assert rows[name].error < 1e-6
        assert rows[name].microseconds > 0
        assert rows[name].method == "wall"
    assert rows["mine"].ratio == pytest.approx(rows["mine"].microseconds / rows["redalg, blocks"].microseconds)
    assert rows["wrong"].error > 0.1


def test_a_failure_is_a_row(compared: Comparison) -> None:
    rows = {row.name: row for row in compared.rows}
    assert rows["broken"].failure == "KeyError: 'no such thing'"
    assert "has shape (4, 64), and the definition's has (4,)" in rows["other shape"].failure
    assert "broken: KeyError" in str(compared)
    assert math.isnan(rows["broken"].microseconds)


def test_its_other_forms(compared: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(compared).splitlines()
    assert lines[0].startswith("compared, b=4 n=64, float32, CPU")
    assert max(map(len, lines)) <= 80
    assert re.search(r"^ redalg, blocks +1\.00 ", str(compared), re.MULTILINE)
    content = json.loads(compared.to_json())
    assert next(row for row in content["rows"] if row["name"] == "broken")["microseconds"] is None
    assert "<table>" in compared._repr_html_()
    figure = compared.plot()
    assert [one.get_text() for one in figure.axes[0].get_yticklabels()] == [row.name for row in compared.rows]


def test_errors_are_told_by_more_digits_where_float64_cancels() -> None:
    """A third moment by raw moments at an offset of 1e6 has no digit in float64, and the derived form has all."""
    centred = ra.mean((x - ra.mean(x, n)) ** 3, n)
    fused = ra.fuse(ra.mean(x**3, n) - 3 * ra.mean(x, n) * ra.mean(x**2, n) + 2 * ra.mean(x, n) ** 3, axes="b")
    data = {"x": 1e6 + torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))}
    exact = ra.fuse(centred, axes="b")
    found = fused.compare({"centred": lambda x: exact(x=x)}, data=data, backend="numpy")
    rows = {row.name: row for row in found.rows}
    assert found.reference == "120 digits"
    assert rows["centred"].error < 1e-9
    assert rows["eager PyTorch"].error > 1e-3
    assert "ref in 120 digits" in str(found)
    assert json.loads(found.to_json())["reference"] == "120 digits"
    assert {row.reference for row in fused.bench(data=data, backend="numpy").rows} == {"120 digits"}


def test_a_reference_that_errs_says_so() -> None:
    """One mean of so many elements takes too long in 120 digits."""
    fused = ra.fuse(ra.mean(x**2, n) - ra.mean(x, n) ** 2, axes="b")
    found = fused.compare(data={"x": 1e6 + torch.rand(1, 1 << 19, dtype=torch.float64)}, backend="numpy")
    assert re.fullmatch(r"float64, which errs by \S+ itself", found.reference)
    assert f"ref in {found.reference}" in " ".join(str(found).split())


def test_memory_of_the_unfused_formula_shows() -> None:
    """Scores of 1024 × 1024 floats are 4 MiB, of which the derived form holds a block."""
    found = attention().compare(sizes={"b": 1, "h": 1, "q": 1024, "k": 1024, "d": 2, "e": 2}, device="cpu",
                                backend="torch")  # fmt: skip
    peaks = {row.name: row.peak_bytes or 0 for row in found.rows}
    assert peaks["eager PyTorch"] > 4 * 2**20


def test_own_tensors_and_what_is_missing() -> None:
    product = ra.fuse(ra.sum(x * ra.tensor("y[b,n]"), n))
    data = {"x": torch.ones(2, 8), "y": torch.ones(2, 8)}
    assert "b=2 n=8" in product.compare(data=data, backend="torch").title
    with pytest.raises(ra.InputError, match="y not given"):
        product.compare(data={"x": data["x"]})
    with pytest.raises(ra.InputError, match="callables by name"):
        product.compare({"f": 3}, data=data, backend="torch")  # type: ignore[dict-item]
    with pytest.raises(ra.InputError, match="names 'eager PyTorch', which is a row"):
        product.compare({"eager PyTorch": broken}, data=data, backend="torch")
    with pytest.raises(ra.BackendError, match="'tpu' is no device here"):
        product.compare(device="tpu")


def test_bench_of_several_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = variance().bench(SMALL, {"b": 2, "n": 32}, device="cpu", backend="torch")
    assert [row.bytes for row in found.rows] == [4 * 64 * 4 + 4 * 4] * 2 + [2 * 32 * 4 + 2 * 4] * 2
    assert all(row.gb_per_s == pytest.approx(row.bytes / row.microseconds / 1e3) for row in found.rows)
    assert [row.operations for row in found.rows] == [4 * 4 * 64] * 2 + [4 * 2 * 32] * 2  # x − c, its square, two sums
    assert all(row.gflop_per_s == pytest.approx(row.operations / row.microseconds / 1e3) for row in found.rows)
    assert [row.ratio for row in found.rows if row.name == "redalg, blocks"] == [1, 1]
    assert all(math.isnan(row.predicted_us) for row in found.rows)
    assert len(found.tables()) == 2
    assert max(map(len, str(found).splitlines())) <= 80
    assert len(json.loads(found.to_json())["rows"]) == 4
    assert found.plot().axes


def test_bench_of_a_kernel_beside_its_prediction() -> None:
    pytest.importorskip("tilelang")
    found: Bench = variance().bench(SMALL, device="cpu", backend="tilelang")
    kernel = found.rows[0]
    assert (kernel.name, kernel.failure, found.target) == ("redalg, kernel", "", "c")
    assert kernel.error < 1e-6
    assert kernel.predicted_us > 0
    assert f"bound by {kernel.bound}" in " ".join(str(found).split())
    assert "TFLOP/s" not in str(found)  # of a CPU no rates are known
    row = replace(kernel, microseconds=1.0, bytes=2_400_000, operations=9_890_000)
    shown = " ".join(str(replace(found, rows=(row,), device="cuda", target="H200")).split())
    assert "redalg, kernel: 50.0% of the 4,800 GB/s of H200, 1.0% of its 989 TFLOP/s" in shown


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
@pytest.mark.slow
def test_torch_compile_is_a_row() -> None:
    found = variance().compare(sizes=SMALL, device="cpu", backend="torch", compiled=True)
    row = next(row for row in found.rows if row.name == "torch.compile")
    assert row.failure == ""
    assert row.error < 1e-6


@pytest.mark.sweep(16)
@pytest.mark.parametrize("name", PATTERNS)
def test_eager_is_the_definition(name: str) -> None:
    """The code that is timed as eager gives what the reference gives."""
    fused = PATTERNS[name].build()
    sizes = dict.fromkeys((axis.name for axis in fused.cascade.axes() if axis.size is None), 8)
    if name == "quantized_product":
        pytest.skip("its sizes are bound to one another")
    given = {} if name == "relative_bias_attention" else PATTERNS[name].tensor_shapes(sizes)  # the shape is found
    problem = Problem.of_setting(Setting.of_options(fused, sizes, "float64", JUDGED, given=given))
    assert problem.error(problem.eager()(**problem.tensors)) < 1e-6


def test_bytes() -> None:
    assert bytes_of({"x": torch.ones(3), "a": 0.5}) == 12
    assert bytes_of((torch.ones(3), torch.ones(2))) == 20
