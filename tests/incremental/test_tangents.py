"""Sums of x·log x and log x about a tangent keep the digits that the definition has in a wider type."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sympy import Expr, log

import redalg as ra
from redalg.lower_tile.check.interpret import interpret
from redalg.strategies.schedule import with_choices

b, n = ra.axes("b n")
PLAIN = ra.tensors("x[b,n] w[b,n]")
POSITIVE = ra.tensors("x[b,n] w[b,n]", positive=True)
Form = Callable[[Expr, Expr], Expr]
Truth = Callable[[Any, Any], Any]


def mean(x: Expr) -> Expr:
    return ra.mean(x, n)


def weighted(x: Expr, w: Expr) -> Expr:
    return ra.sum(w * x, n) / ra.sum(w, n)


def xlog(x: Any, share: Any) -> Any:
    """x·log share of long doubles, 0 where x is 0."""
    return np.where(x == 0, 0, x * np.log(np.where(x == 0, 1, share)))


FORMS: dict[str, tuple[Form, Truth]] = {
    "Theil": (lambda x, w: mean(x / mean(x) * log(x / mean(x))), lambda p, w: xlog(p, p).mean(-1)),
    "Theil over the sum": (
        lambda x, w: ra.sum(x * log(x / mean(x)), n) / ra.sum(x, n), lambda p, w: xlog(p, p).mean(-1)),
    "mean log-deviation": (lambda x, w: log(mean(x)) - mean(log(x)), lambda p, w: -np.log(p).mean(-1)),
    "divergence from uniform": (
        lambda x, w: log(n.extent) + ra.sum(x / ra.sum(x, n) * log(x / ra.sum(x, n)), n),
        lambda p, w: xlog(p, p).mean(-1)),
    "weighted Theil": (
        lambda x, w: weighted(x / weighted(x, w) * log(x / weighted(x, w)), w),
        lambda p, w: (w * xlog(p, p)).sum(-1) / w.sum(-1)),
    "weighted log-deviation": (
        lambda x, w: log(weighted(x, w)) - weighted(log(x), w), lambda p, w: -(w * np.log(p)).sum(-1) / w.sum(-1)),
}  # fmt: skip
OFZEROS = ["Theil", "Theil over the sum", "divergence from uniform", "weighted Theil"]
LIMIT = 4e-6


def fused(name: str, declared: str = "plain") -> ra.Fused:
    return ra.fuse(FORMS[name][0](*(PLAIN if declared == "plain" else POSITIVE)), axes="b")


def given(name: str, x: Any, seed: int = 3) -> dict[str, Any]:
    made = {"x": np.asarray(x, np.float32)}
    weights = np.random.default_rng(seed).random(made["x"].shape).astype(np.float32)
    return made | ({"w": weights} if "weighted" in name else {})


def truth(name: str, tensors: dict[str, Any]) -> Any:
    x = tensors["x"].astype(np.longdouble)
    w = tensors.get("w", np.ones(())).astype(np.longdouble) * np.ones_like(x)
    return FORMS[name][1](x / ((w * x).sum(-1, keepdims=True) / w.sum(-1, keepdims=True)), w)


def in_pieces(form: ra.Fused, tensors: dict[str, Any], pieces: int = 9) -> Any:
    """Finished from leaves that are merged in random order."""
    rng = np.random.default_rng(0)
    parts = np.array_split(np.arange(tensors["x"].shape[1]), pieces)
    states = [form.leaf({key: array[:, part] for key, array in tensors.items()}) for part in parts]
    while len(states) > 1:
        i = int(rng.integers(len(states) - 1))
        states[i : i + 2] = [form.merge(states[i], states[i + 1])]
    return form.finish(states[0])


def results(form: ra.Fused, tensors: dict[str, Any]) -> dict[str, Any]:
    """The result on arrays, whole and in pieces."""
    on_torch = {key: torch.from_numpy(array) for key, array in tensors.items()}
    made = {"numpy": form(**tensors, backend="numpy"), "pieces": in_pieces(form, tensors)}
    return made | {"torch": form(**on_torch, backend="torch").numpy()}


def by_kernels(form: ra.Fused, tensors: dict[str, Any]) -> dict[str, Any]:
    """The result of tile programs, one with a state in every lane."""
    rows, length = tensors["x"].shape
    known = {"sizes": {"b": rows, "n": length}, "dtypes": dict.fromkeys(tensors, "float32")}
    plan = with_choices(form.lower("c", **known).plan, block_streamed=16)
    plans = {"tiles": plan, "lanes": with_choices(plan, level="thread")}
    return {way: interpret(form.lower("c", **known, plan=one).program, tensors)["out"] for way, one in plans.items()}


def error(name: str, tensors: dict[str, Any], declared: str = "plain", run: Any = results) -> float:
    wanted = truth(name, tensors)
    return max(float(np.max(np.abs(got / wanted - 1))) for got in run(fused(name, declared), tensors).values())


@pytest.mark.sweep(6)
@pytest.mark.parametrize("declared", ["plain", "positive"])
@pytest.mark.parametrize("name", FORMS)
def test_values_about_an_offset(name: str, declared: str) -> None:
    rng = np.random.default_rng(0)
    for offset in (0, 1e2, 1e4, 1e6):
        assert error(name, given(name, offset + rng.random((2, 500))), declared) < LIMIT


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", FORMS)
def test_values_of_any_spread(name: str) -> None:
    rng = np.random.default_rng(1)
    for x in (np.exp(6 * rng.normal(size=(2, 300))), 1e-20 * rng.random((2, 300)), 1e20 * rng.random((2, 300))):
        assert error(name, given(name, x + 0.0)) < LIMIT


@pytest.mark.sweep(3)
@pytest.mark.parametrize("declared", ["plain", "positive"])
@pytest.mark.parametrize("name", OFZEROS)
def test_what_is_0_counts_for_nothing(name: str, declared: str) -> None:
    x = np.random.default_rng(2).random((2, 300))
    for zero in (np.arange(300) < 200, np.arange(300) != 150, x[0] < 0.5):
        assert error(name, given(name, np.where(zero, 0, x)), declared) < LIMIT


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", FORMS)
def test_kernels(name: str) -> None:
    rng = np.random.default_rng(5)
    for x in (1e4 + rng.random((2, 100)), np.exp(6 * rng.normal(size=(2, 100))), 1e-20 * rng.random((2, 100))):
        assert error(name, given(name, x), run=by_kernels) < LIMIT
    if name in OFZEROS:
        assert error(name, given(name, np.where(np.arange(100) < 50, 0, rng.random((2, 100)))), run=by_kernels) < LIMIT


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["Theil", "weighted log-deviation"])
def test_compiled_kernels(name: str) -> None:
    data = given(name, 1e4 + np.random.default_rng(6).random((2, 300)))
    got = fused(name)(**{key: torch.from_numpy(array) for key, array in data.items()}, backend="tilelang").numpy()
    np.testing.assert_allclose(got, truth(name, data).astype(float), rtol=LIMIT)


def test_what_is_negative_is_no_number() -> None:
    x = np.array([[1.0, -1e-3, 2.0, 3.0, 1.0], [1.0, np.nan, 2.0, 3.0, 4.0]])
    for name in FORMS:
        for way, got in results(fused(name), given(name, x)).items():
            assert np.isnan(got).all(), (name, way)


def test_all_equal_or_none() -> None:
    for name in FORMS:
        form = fused(name)
        for x in (np.full((2, 40), 1234.5), np.full((2, 1), 3.0)):
            assert np.all(np.abs(form(**given(name, x), backend="numpy")) < 1e-6)
        assert not np.isfinite(form(**given(name, np.zeros((2, 0))), backend="numpy")).any()


def test_a_state_is_taken_about_a_tangent_only_where_that_pays() -> None:
    x, _ = PLAIN
    entropy = ra.fuse(-ra.sum(x / ra.sum(x, n) * log(x / ra.sum(x, n)), n), axes="b")
    assert fused("Theil").form.slot_pivots
    assert not entropy.form.slot_pivots  # log S stays, near 0 of one large share
    assert not ra.fuse(ra.sum(x * log(x), n), axes="b").form.slot_pivots


def test_a_tangent_beside_its_sum() -> None:
    x, _ = PLAIN
    both = ra.fuse({"gap": FORMS["Theil"][0](x, x), "sum": ra.sum(x * log(x), n), "mean": mean(x)})
    data = given("Theil", 1e4 + np.random.default_rng(4).random((2, 300)))
    got, wide = both(**data, backend="numpy"), data["x"].astype(np.longdouble)
    for one, wanted in zip(got, (truth("Theil", data), xlog(wide, wide).sum(-1), wide.mean(-1)), strict=True):
        np.testing.assert_allclose(np.asarray(one), wanted.astype(float), rtol=LIMIT)
