"""`finish(…, condition=True)`: where digits are lost, κ says so, and it says nothing where none are."""

import numpy as np
import pytest
import torch
from sympy import Expr, Max, exp, log, sin, sqrt, tanh

import redalg as ra
from tests.oracle import Oracle

n, k, q, e, b = ra.axes("n k q e b")
x, y, s, t = ra.tensors("x[b,n] y[b,n] s[b,n] t[b,n]")
S, V = ra.tensors("S[q,k] V[k,e]")
EPS = float(np.finfo(np.float32).eps)


def mean(term: Expr) -> Expr:
    return ra.sum(term, n) / n.extent


def rows(offset: float, spread: float, seed: int) -> np.ndarray:
    return (offset + spread * np.random.default_rng(seed).standard_normal((3, 512))).astype(np.float32)


def attending() -> dict[str, np.ndarray]:
    keys = np.arange(512)
    return {"S": (-((keys - 64 * np.arange(8)[:, None]) ** 2) / 50).astype(np.float32),
            "V": (keys[:, None] + np.random.default_rng(0).standard_normal((512, 3))).astype(np.float32)}  # fmt: skip


def close_logits() -> dict[str, np.ndarray]:
    first = rows(0, 3, 0)
    return {"s": first, "t": first + rows(0, 1e-3, 1)}


weights = ra.softmax(S, k)
LOST = {
    "variance of a query and column": (ra.sum(weights * (V - ra.sum(weights * V, k)) ** 2, k), "q e", attending()),
    "mean beside the geometric one": (mean(x) - exp(mean(log(x))), "b", {"x": 300 + np.abs(rows(0, 1, 0))}),
    "sum beside its double": (ra.sum(x, n) - 2 * ra.sum(x * tanh(y), n), "b", {"x": 1 + 0 * rows(0, 1, 0),
                              "y": np.arctanh(0.5) + rows(0, 1e-4, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_kappa_bounds_what_is_lost(name: str) -> None:
    expr, axes, given = LOST[name]
    given = {tensor: np.asarray(one, np.float32) for tensor, one in given.items()}
    sizes = {"n": 512, "b": 3} if axes == "b" else {"q": 8, "k": 512, "e": 3}
    want, _ = Oracle(given, {}, sizes).output(expr, axes)
    made = ra.fuse(expr, axes=axes)
    tensors = {tensor: torch.from_numpy(one) for tensor, one in given.items()}
    value, kappa = made.finish(made.leaf(tensors), condition=True)
    assert value.shape == kappa.shape
    lost = np.abs(value.numpy() - want)
    assert (lost <= 4 * EPS * kappa.numpy() * np.abs(value.numpy())).all()
    assert kappa.max() > 1e3


STABLE = {
    "variance": ra.var(x, n),
    "share of the largest": exp(ra.max(x, n) - ra.logsumexp(x, n)),
    "covariance": mean((x - mean(x)) * (y - mean(y))),
    "slope": mean((x - mean(x)) * (y - mean(y))) / ra.var(x, n),
    "distance of normalised rows": ra.sum((x / sqrt(ra.sum(x**2, n)) - y / sqrt(ra.sum(y**2, n))) ** 2, n),
    "larger of two": Max(ra.var(x, n), ra.max(y, n)),
    "largest": ra.max(x, n),
}


@pytest.mark.parametrize("name", STABLE)
def test_kappa_is_small_where_pivots_keep_the_digits(name: str) -> None:
    made = ra.fuse(STABLE[name], axes="b")
    first = rows(1e4, 1, 0)
    given = {"x": first, "y": (2 * first + rows(0, 1, 1)).astype(np.float32)}
    given = {tensor: one for tensor, one in given.items() if tensor in made.cascade.inputs()}
    _, kappa = made.finish(made.leaf(given), condition=True)
    assert ((kappa >= 1) & (kappa < (1e5 if "normalised" in name else 100))).all()


def test_several_outputs_and_those_of_every_element_have_their_own() -> None:
    made = ra.fuse({"m": (mean(x), "b"), "z": (x - mean(x), "b n"), "place": (ra.argmax(x, n), "b")})
    given = {"x": rows(10, 1, 0)}
    outputs, kappa = made.finish(made.leaf(given), given, condition=True)
    assert [one.shape for one in kappa] == [one.shape for one in outputs]
    assert (kappa.m < 2).all()
    assert (kappa.place == 1).all()
    assert (kappa.z < 10).all()  # both x and the pivot that it is taken about are exact


def test_what_is_not_finite_has_no_condition() -> None:
    made = ra.fuse(ra.sum(sin(x), n) / ra.sum(y, n), axes="b")
    given = {"x": np.float32([[1, 2], [0, 0], [1, np.nan]]), "y": np.float32([[0, 0], [1, 1], [1, 1]])}
    _, kappa = made.finish(made.leaf(given), condition=True)
    assert np.isnan(kappa[[0, 2]]).all()
    assert kappa[1] == 1
