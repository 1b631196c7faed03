"""The proof of accuracy itself: it finds wrong what is wrong, and one row never ends the run."""

from __future__ import annotations

import json
from fractions import Fraction
from operator import mul
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.accuracy.case import Case, Error, error, judge, run
from benchmarks.commands.judge import NAMES, cases, judged
from benchmarks.compete import OWN
from benchmarks.families import beside
from benchmarks.families.statistics import variance_row
from benchmarks.family import Tensors, picks
from redalg.library import variance

CPU = torch.device("cpu")
HALF_UNIT = 2.0**-25


def drawn(generator: torch.Generator) -> Tensors:
    return {"x": torch.randn(5, 300, generator=generator)}


def case(**changed: Any) -> Case:
    """The variance of rows, beside PyTorch's."""
    fields: dict[str, Any] = {
        "family": "variance", "row": variance_row("C", 5, 300), "kind": "normal", "fused": variance,
        "inputs": drawn, "reference": lambda t: {"out": t["x"].double().var(1, correction=0)},
        "outputs": lambda out, _: {"out": out}, "peers": {"torch.var": lambda x: x.var(1, correction=0)},
    }  # fmt: skip
    return Case(**{**fields, **changed})


def scaled(factor: float) -> Any:
    """What stands for a fused function that is a little wrong."""
    return lambda: lambda x, **_: factor * x.var(1, correction=0)


def test_a_right_result_is_right() -> None:
    assert run(case(), CPU).ok


@pytest.mark.parametrize("factor", [1 + 1e-5, float("nan")])
def test_a_wrong_result_is_not(factor: float) -> None:
    assert not run(case(fused=scaled(factor)), CPU).ok


def test_what_fails_is_recorded() -> None:
    def fails(**_: Any) -> Any:
        raise RuntimeError("no kernel")

    beside = run(case(peers={"broken": fails, "torch.var": lambda x: x.var(1, correction=0)}), CPU)
    assert beside.ok
    assert "no kernel" in beside.failures["broken"]
    assert not run(case(fused=lambda: fails), CPU).ok
    assert not judged(case(reference=lambda _: fails()), CPU).ok
    assert not run(case(peers={}), CPU).ok  # nothing to be held to


def test_the_bound_is_twice_the_strongest_and_a_floor() -> None:
    peers = {"a": Error(1e-3, 1e-4), "b": Error(5e-4, 2e-4)}
    made = judge({OWN: Error(1e-3, 2e-4), **peers}, "float32", 0.0)
    assert made.ok
    assert made.allowed.max == pytest.approx(1e-3 + 8 * HALF_UNIT)
    assert made.allowed.rms == pytest.approx(2e-4 + 4 * HALF_UNIT)
    assert not judge({OWN: Error(1.01e-3, 1e-4), **peers}, "float32", 0.0).ok
    assert not judge({OWN: Error(1e-9, 0.0), **peers}, "int64", None).ok


def test_a_single_number_has_one_floor() -> None:
    found = {OWN: Error(6 * HALF_UNIT, 6 * HALF_UNIT), "a": Error(0.0, 0.0)}
    assert judge(found, "float32", 0.0, single=True).ok
    assert not judge(found, "float32", 0.0).ok


def test_places_are_exact() -> None:
    """An output of integers is told by its dtype: a place beside the right one is wrong."""
    x = torch.tensor([[1.0, 3.0, 2.0]])
    place = {"inputs": lambda _: {"x": x}, "reference": lambda _: {"place": torch.tensor([1])},
             "outputs": lambda out, _: {"place": out}, "peers": {"torch": lambda x: x.argmax(1)}}  # fmt: skip
    assert run(case(**place, fused=lambda: lambda x, **_: x.argmax(1)), CPU).ok
    assert not run(case(**place, fused=lambda: lambda x, **_: x.argmax(1) + 1), CPU).ok


def test_covariances_of_float64_are_held_to_more_digits() -> None:
    """By a sum over fractions, which the long double of NumPy agrees with beyond float64."""
    x = 1e3 + torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    columns = [[Fraction(each) for each in column] for column in x.T.tolist()]
    away = [[each - sum(column) / len(column) for each in column] for column in columns]
    wanted = [[float(sum(map(mul, one, other)) / len(one)) for other in away] for one in away]
    found = beside.covariance_in_long_double(x)
    assert (found - torch.tensor(wanted, dtype=torch.float64)).abs().max() <= 1e-16


def test_infinities_stand_where_the_reference_has_them() -> None:
    wanted = torch.tensor([1.0, torch.nan, -torch.inf], dtype=torch.float64)
    assert error(torch.tensor([1.0, torch.nan, torch.nan]), wanted, strict=True).max == 0
    assert error(torch.tensor([1.0, 0.0, -torch.inf]), wanted, strict=True).max == torch.inf
    assert error(torch.tensor([1.0, 0.0, -torch.inf]), wanted, strict=False).max == 0


def test_samples_hold_both_ends() -> None:
    for length, count in ((1, 4), (10, 4), (70_000, 32), (5, 1)):
        made = picks(length, count)
        assert made[-1] == length - 1
        assert len(made) <= count
        assert count == 1 or made[0] == 0


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch.compile, on its first import
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_family_has_cases(device: str) -> None:
    for name in NAMES:
        names = [one.name for one in cases(name, torch.device(device))]
        assert len(names) == len(set(names)) > 0


def test_a_family_is_judged_and_written(tmp_path: Path) -> None:
    assert main(["judge", "large", "variance", "--device", "cpu", "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "accuracy.json").read_text(encoding="utf-8"))
    assert set(content["families"]) == {"large", "variance"}
    assert all(one["ok"] and one["source_sha256"] for one in content["families"]["variance"]["cases"])
    assert main(["judge", "--from", str(tmp_path / "accuracy.json"), "--out", str(tmp_path / "gathered")]) == 0
    assert json.loads((tmp_path / "gathered" / "accuracy.json").read_text(encoding="utf-8")) == content
