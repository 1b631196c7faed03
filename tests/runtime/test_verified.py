"""Which results of a candidate pass: bounds from the dtypes, and the first plan's own error as the measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from redalg.expression.dtypes import DTYPES
from redalg.runtime.bind.inputs import bind
from redalg.runtime.tune.verified import Verifier, arrays_of, distance
from tests.cases.kernels import fused

INF, NAN = float("inf"), float("nan")


def verifier(n: int = 4096, dtype: torch.dtype = torch.float32) -> Verifier:
    form, x = fused("logsumexp"), torch.randn(3, n).to(dtype)
    return Verifier.of(form.form, bind(form.form.cascade, {"x": x}), {"out": torch.tensor([1.0, -2.0, 4.0]).double()})


def out(error: float) -> dict[str, torch.Tensor]:
    """The reference, its largest element off by a share."""
    return {"out": torch.tensor([1.0, -2.0, 4.0 * (1 + error)], dtype=torch.float64)}


def test_a_first_result_within_rounding_passes_and_one_beyond_is_wrong() -> None:
    """64 = √4096 terms and a room of 8: 512 roundoffs of float32, and 8 of the inputs' own."""
    allowed = (8 * 64 + 8) * 2.0**-24
    assert verifier().check(out(0.99 * allowed)) == ""
    assert verifier().check(out(1.01 * allowed)).startswith("wrong: error 3.1e-05")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_bound_is_the_dtypes(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    compute = min(DTYPES[name].roundoff, DTYPES["float32"].roundoff)
    assert verifier(dtype=dtype).first == 8 * DTYPES[name].roundoff + 8 * 64 * compute


def test_others_may_be_some_times_worse_than_the_first_no_more() -> None:
    one = verifier(dtype=torch.bfloat16)
    assert one.check(out(0.02)) == ""
    assert one.check(out(0.07)) == ""
    assert one.check(out(0.09)).startswith("wrong: error 9.0e-02, allowed 8.0e-02")


def test_a_wrong_result_is_no_measure_for_others() -> None:
    one = verifier()
    assert one.check(out(0.5))
    assert one.check(out(0.4))
    assert one.check(out(0.0)) == ""


@pytest.mark.parametrize(("made", "wanted", "error"), [
    ([1.0, INF], [1.0, INF], 0.0), ([1.0, NAN], [1.0, NAN], 0.0), ([1.0, NAN], [1.0, INF], 0.0),
    ([1.0, 2.0], [1.0, NAN], INF), ([1.0, NAN], [1.0, 2.0], INF), ([NAN], [NAN], 0.0), ([0.0], [0.0], 0.0),
    ([0.25], [0.0], 0.25), ([], [], 0.0), ([1.0, 2.0], [1.0], INF),
])  # fmt: skip
def test_what_is_not_finite_must_not_be_finite_in_the_same_places(made, wanted, error) -> None:
    """Which non-finite value is not promised (DESIGN, Numbers)."""
    assert distance(torch.tensor(made), torch.tensor(wanted)) == error


def test_integers_and_truth_values_differ_by_share() -> None:
    assert distance(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 4, 3])) == 0.5
    assert distance(torch.tensor([True, False]), torch.tensor([True, True])) == 0.5


def test_numpy_outputs_are_compared_too() -> None:
    assert verifier().check({"out": np.array([1.0, -2.0, 4.0])}) == ""
    assert arrays_of({"out": np.float64(2)})["out"].item() == 2


def test_a_large_reference_gives_way_to_the_first_right_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redalg.runtime.tune.verified.KEPT_BYTES", 8)
    one = verifier()
    assert one.check(out(0.5))
    assert one.reference["out"].dtype == torch.float64
    right = {"out": out(1e-6)["out"].float()}
    assert one.check(right) == ""
    assert torch.equal(one.reference["out"], right["out"])
    assert one.check(out(0.5))
