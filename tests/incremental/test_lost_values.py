"""A value that cancels in a finished sum is still asked for: of NaN, ∞ or a divisor of 0 the definition is NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sympy import Abs, Expr, Max, exp, sqrt

import redalg as ra

b, n = ra.axes("b n")
x, y, s = ra.tensors("x[b,n] y[b,n] s[b,n]")
w = ra.tensor("w[b,n]", positive=True)
t = ra.tensor("t[b]")


def total(term: Expr) -> Expr:
    return ra.sum(term, n)


CANCELLING: dict[str, Callable[[], Expr]] = {
    "weights": lambda: total(w / total(w)),
    "weights beside a value": lambda: total(t * w / total(w)) + total(y),
    "a softmax": lambda: total(ra.softmax(s, n)),
    "squares of a direction": lambda: total((x / sqrt(total(x**2))) ** 2),
    "a sum in a mean of itself": lambda: total(w * total(w * x) / total(w)) + total(y),
    "differences in one sum": lambda: total(x + t) - total(x),
    "beyond a maximum": lambda: total(Max(x - ra.max(x, n), 0)),
}
HOSTILE = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("name", CANCELLING)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_what_is_not_finite_in_one_place_shows(name: str, backend: str, value: float) -> None:
    form = ra.fuse(CANCELLING[name](), axes="b")
    rng = np.random.default_rng(0)
    for tensor in sorted(form.cascade.inputs()):
        given = {one: rng.uniform(0.5, 1, (2, 5) if one != "t" else 2) for one in form.cascade.inputs()}
        given[tensor].reshape(2, -1)[0, 0] = value
        data = given if backend == "numpy" else {one: torch.from_numpy(given[one]) for one in given}
        with np.errstate(all="ignore"):
            made, wanted = (np.asarray(one) for one in (form(**data, backend=backend), form.reference(**data)))
        assert np.isfinite(made).tolist() == np.isfinite(wanted).tolist(), tensor
        np.testing.assert_allclose(made[np.isfinite(made)], wanted[np.isfinite(made)], rtol=1e-12)


@pytest.mark.parametrize("name", ["weights", "squares of a direction"])
def test_a_divisor_of_0_gives_nan(name: str) -> None:
    form = ra.fuse(CANCELLING[name](), axes="b")
    assert np.isnan(form(**{one: np.zeros((1, 4)) for one in form.cascade.inputs()})).all()


def test_a_row_without_weight_is_no_number_in_any_spelling() -> None:
    """Σ e^s·(Σ e^s)⁻² of a row that is −∞ throughout is not finite, as 0/0 is not."""
    row = {"s": np.full((1, 6), -np.inf)}
    spellings = [total(exp(s)) * total(total(exp(s)) ** -2), total(exp(s) * total(exp(s)) ** -2),
                 total(ra.softmax(s, n)) / total(exp(s)), total(ra.softmax(s, n))]  # fmt: skip
    for expr in spellings:
        form = ra.fuse(expr, axes="b")
        for backend in ("numpy", "torch"):
            data = row if backend == "numpy" else {"s": torch.from_numpy(row["s"])}
            assert not np.isfinite(np.asarray(form(**data, backend=backend))).any(), expr
        with np.errstate(all="ignore"):
            assert not np.isfinite(np.asarray(form.reference(**row))).any(), expr


def test_a_kernel_asks_too() -> None:
    form = ra.fuse(CANCELLING["weights"](), axes="b")
    data = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    data[1, 7] = torch.nan
    assert form(w=data, backend="tilelang").isnan().tolist() == [False, True, False]


def test_what_a_mask_hides_is_not_asked() -> None:
    """Of no element that counts a sum is 0, whatever its divisor."""
    chosen = total(ra.where(y > 0, w, 0))
    form = ra.fuse(total(ra.where(y > 0, w / chosen, 0)), axes="b")
    given = {"w": np.ones((2, 3)), "y": np.array([[1.0, 0, 1], [0, 0, 0]])}
    assert form(**given).tolist() == form.reference(**given).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("expr", "factor", "value"),
    [(ra.max(x / ra.max(Abs(x), n), n), "1/max_0", -np.inf), (ra.min(x / ra.max(x, n), n), "1/max_0", np.inf),
     (ra.max((x - ra.min(x, n)) / (ra.max(x, n) - ra.min(x, n)), n), "1/(max_0 − min_0)", -np.inf)],
)  # fmt: skip
def test_an_extremum_of_a_ratio_says_its_condition(expr: Expr, factor: str, value: float) -> None:
    """−∞/∞ of one element is NaN: the extrema of x do not show it."""
    verdict = ra.analyze(expr, axes="b")
    assert isinstance(verdict, ra.Exact)
    [said] = verdict.conditions
    assert said.startswith(f"Where {factor} is 0 or infinite, ")
    assert said in " ".join(ra.fuse(expr, axes="b").explain().split())
    given = {"x": np.array([[1.0, value, 2]])}
    with np.errstate(all="ignore"):
        assert np.isfinite(verdict.fused(**given)).all()
        assert np.isnan(verdict.fused.reference(**given)).all()
        given["x"][0, 1] = 3
        np.testing.assert_allclose(verdict.fused(**given), verdict.fused.reference(**given))


def test_an_extremum_without_such_a_factor_has_no_condition() -> None:
    for expr in (ra.max(x - ra.max(x, n), n), ra.max(x * t, n), ra.logsumexp(s, n)):
        verdict = ra.analyze(expr, axes="b")
        assert isinstance(verdict, ra.Exact)
        assert verdict.conditions == ()
