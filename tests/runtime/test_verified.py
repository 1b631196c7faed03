"""Which results of a candidate pass: bounds from the dtypes, and the first plan's own error as the measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sympy import Rational

import redalg as ra
from redalg.expression.dtypes import DTYPES
from redalg.runtime.bind.inputs import bind
from redalg.runtime.tune.verified import Verifier, arrays_of, distance, shake
from tests.cases.kernels import fused

INF, NAN = float("inf"), float("nan")


def verifier(n: int = 4096, dtype: torch.dtype = torch.float32, moves: float = 0.0) -> Verifier:
    """That of outputs which move by a share where the inputs do by four roundoffs."""
    form, x = fused("logsumexp"), torch.randn(3, n).to(dtype)

    def define(by: float) -> dict[str, torch.Tensor]:
        assert by in (0.0, 4 * min(DTYPES["float32"].roundoff, DTYPES[str(dtype).removeprefix("torch.")].roundoff))
        return {"out": torch.tensor([1.0, -2.0, 4.0 * (1 + moves * (by > 0))]).double()}

    return Verifier.of(form.form, bind(form.form.cascade, {"x": x}), define)


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


def test_a_first_result_may_move_as_the_definition_does() -> None:
    """By four times as much: a sum up to a cutoff jumps where an element moves across it."""
    jumping = verifier(moves=0.01)
    assert jumping.check(out(0.041)).startswith("wrong: error 4.1e-02, allowed 4.0e-02")
    assert jumping.check(out(0.039)) == ""
    assert verifier(moves=0.01).check(out(float("inf"))).startswith("wrong: error inf")


def test_moved_inputs_are_the_same_every_time() -> None:
    inputs = {"x": torch.linspace(-3, 3, 99), "y": np.float32([1.0, 2.0]), "n": torch.arange(3), "s": 0.5}
    first, second = shake(inputs, 1e-3), shake(inputs, 1e-3)
    assert all(torch.equal(first[name], second[name]) for name in "xyn")
    assert torch.equal(first["n"], inputs["n"])
    assert first["s"] == 0.5
    for name in "xy":
        share = (first[name] / torch.as_tensor(inputs[name]).double() - 1).nan_to_num().abs()
        assert 1e-4 < share.max() <= 1e-3
    assert shake(inputs, 0.0) == inputs


@pytest.mark.slow
def test_a_sum_up_to_a_cutoff_can_be_tuned() -> None:
    """Of pairs at the cutoff float32 counts others than float64 does; every plan was "wrong" for that."""
    j, d = ra.axes("j d")
    x, y = ra.tensors("x[i,d] y[j,d]")
    form = ra.fuse(ra.sum(ra.where(ra.sum((x - y) ** 2, d) < Rational(1, 4), 1, 0), j), axes="i")
    generator = torch.Generator().manual_seed(0)
    place, way = torch.rand(2, 300, 3, generator=generator)
    pairs = {"x": place, "y": place + way / way.norm(dim=1, keepdim=True) / 2}
    assert distance(form(**pairs), form.reference(**pairs)) > 1e-3
    assert form.tune(**pairs, budget_s=60.0, progress=False).best is not None


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
