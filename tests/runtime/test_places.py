"""Places along an axis are exact integers, however far from 0 a piece begins: in masks, in arithmetic, in moments."""

from typing import Any

import numpy as np
import pytest
import torch
from sympy import Mod, cos, exp, pi

import redalg as ra
from tests.cases.refusals import Case, each

b, n = ra.axes("b n")
x, w, label = ra.tensors("x[n] w[n] label[b]")
limit, edge, rate = ra.scalars("limit", integer=True), ra.scalars("edge"), ra.scalars("rate", positive=True)
X, W = np.array([1, 2, 4, 8], np.float32), np.array([1, 1, 1, 5], np.float32)
STARTS = [0, 2**24 - 1, 10**8, 2**31, 10**12, 2**52]
centre = ra.sum(w * n, n) / ra.sum(w, n)
PLACES = np.arange(4.0)
MEAN = (W * PLACES).sum() / W.sum()
TERMS: dict[str, tuple[Any, Any]] = {
    "variance of places": (ra.sum(w * (n - centre) ** 2, n) / ra.sum(w, n), (W * (PLACES - MEAN) ** 2).sum() / W.sum()),
    "third moment": (ra.sum(w * (n - centre) ** 3, n) / ra.sum(w, n), (W * (PLACES - MEAN) ** 3).sum() / W.sum()),
    "covariance with places": (ra.covariance(x, n, n), np.cov(X, PLACES, bias=True)[0, 1]),
    "slope of a trend": (ra.covariance(x, n, n) / ra.var(n, n), np.polyfit(PLACES, X, 1)[0]),
}


def finished(expr: Any, start: int, convert: Any = lambda one: one, **more: Any) -> Any:
    """The result of a piece that begins there, made of two."""
    fused, data = ra.fuse(expr), {"x": X, "w": W}
    made = {name: one for name, one in data.items() if name in fused.cascade.inputs()}
    parts = [fused.leaf({key: convert(one[i:k]) for key, one in made.items()} | more, start={n: start + i})
             for i, k in ((0, 1), (1, 4))]  # fmt: skip
    return np.asarray(fused.finish(fused.merge(*reversed(parts))))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", TERMS)
def test_moments_of_places_keep_their_digits(name: str, start: int, library: str) -> None:
    expr, want = TERMS[name]
    got = finished(expr, start, torch.tensor if library == "torch" else np.asarray)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=3e-6)


@pytest.mark.parametrize("start", [*STARTS, 2**62 - 5])
def test_masks_compare_integers(start: int) -> None:
    assert finished(ra.sum(ra.where(n <= start + 1, x, 0), n), start) == 3
    if start < 2**53:
        assert finished(ra.sum(ra.where(n - 1 <= limit, x, 0), n), start, limit=start) == 3
    assert finished(ra.sum(ra.where(ra.eq(n, label), x, 0), n), start, label=np.array([start + 3])) == 8
    assert finished(ra.argmax(x, n), start) == start + 3
    assert finished(ra.sum(ra.where(ra.eq(Mod(n - start, 2), 0), x, 0), n), start) == 5


@pytest.mark.parametrize("start", STARTS)
def test_masks_by_a_number_are_exact_while_float64_is(start: int) -> None:
    assert finished(ra.sum(ra.where(n <= edge, x, 0), n), start, edge=float(start + 1)) == 3
    assert finished(ra.sum(ra.where(n < edge, x, 0), n), start, edge=start + 1.5 if start < 2**51 else start + 2) == 3


@pytest.mark.parametrize("start", [0, 7 * 10**8, 7 * 10**11])
def test_functions_of_places_are_rounded_once(start: int) -> None:
    np.testing.assert_allclose(finished(ra.sum(x * Mod(n, 7), n), start), (X * PLACES).sum(), rtol=1e-6)
    wave = (X * np.cos(2 * np.pi * PLACES / 7)).sum()
    np.testing.assert_allclose(finished(ra.sum(x * cos(2 * pi * n / 7), n), start), wave, rtol=1e-3)
    decay = np.exp(-PLACES / 4)
    mean = ra.sum(exp(-rate * n) * x, n) / ra.sum(exp(-rate * n), n)
    np.testing.assert_allclose(finished(mean, start, rate=0.25), (decay * X).sum() / decay.sum(), rtol=1e-6)


def test_narrow_integers_do_not_wrap_in_conditions() -> None:
    first, second = ra.tensors("first[n] second[n]")
    bytes_of = np.array([100, 100, -100, 100], np.int8)
    fused = ra.fuse(ra.sum(ra.where(first + second > 0, x, 0), n))
    assert fused(x=X, first=bytes_of, second=bytes_of) == 11
    assert fused(x=X, first=bytes_of, second=bytes_of, backend="numpy") == 11


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
@pytest.mark.parametrize(("dtype", "rounded"), [("int8", "float32"), ("int16", "float32"), ("bool", "float16")])
def test_narrow_integers_are_cast_exactly(dtype: str, rounded: str, backend: str, library: str) -> None:
    """A softmax of casts, contracted with floats: no elements but those of the casts are integers."""
    codes, v = ra.tensors("codes[b,n] v[n,e]")
    weights = ra.softmax(ra.cast(ra.let("code", codes), rounded) / 128, n)
    fused = ra.fuse(ra.sum(ra.where(codes > 0, weights, 0) * v, n), axes="b e")
    numbers = np.array([[-128, 127, 3, 0], [1, 0, -1, 100]]).astype(dtype)
    data: dict[str, Any] = {"codes": numbers, "v": np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])}
    exact = np.exp(numbers / 128)
    want = np.where(numbers > 0, exact, 0) / exact.sum(1, keepdims=True) @ data["v"].astype(np.float64)
    given = {name: torch.from_numpy(one) for name, one in data.items()} if library == "torch" else data
    np.testing.assert_allclose(np.asarray(fused(**given, backend=backend)), want, rtol=1e-6)
    np.testing.assert_allclose(fused.reference(**data), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("term", "dtype"),
    [(ra.cast(x, "float16"), "int16"), (ra.cast(x, "float32"), "int32"), (ra.cast(x, "float64"), "int64"),
     (ra.cast(x, "float32") + x, "int8"), (ra.cast(x, "int32"), "int8"), (ra.cast(2 * x, "float32"), "int8")],
)  # fmt: skip
def test_integers_that_casts_do_not_hold_are_refused(term: Any, dtype: str) -> None:
    with pytest.raises(ra.InputError, match=f"tensor `x` is {dtype}, and stands in arithmetic"):
        ra.fuse(ra.sum(term, n))(x=X.astype(dtype))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "bool"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("backend", ["numpy", "torch", "tilelang"])
def test_unsigned_labels(dtype: str, library: str, backend: str) -> None:
    if backend == "tilelang" and dtype not in ("uint8", "uint64"):
        pytest.skip("one kernel for each kind is enough")
    of_x = X if library == "numpy" else torch.from_numpy(X)
    raw = np.array([0, 1], dtype)
    labels = raw if library == "numpy" else torch.tensor([0, 1]).to(getattr(torch, dtype))
    chosen = ra.fuse(ra.sum(ra.where(ra.eq(n, label), x, 0), n))
    assert np.asarray(chosen(x=of_x, label=labels, backend=backend)).tolist() == [1, 2]
    if dtype != "bool" and backend != "tilelang":
        gathered = ra.fuse(ra.sum(x * ra.Tensor("t")[label], n))
        assert np.asarray(gathered(x=of_x, t=of_x, label=labels, backend=backend)).tolist() == [15, 30]


REFUSED: dict[str, Case] = {
    "a place beyond 64 bits": Case(
        lambda: finished(ra.argmax(x, n), 2**63 - 4),
        ra.InputError,
        "leaf: start={n: 9223372036854775804} and 1 elements reach beyond place 2**62 - 1, the last that 64-bit "
        "integers are added up to. Begin earlier, and add what is left out to the results.",
    ),
    "a number beyond float64": Case(
        lambda: finished(TERMS["variance of places"][0], 2**53),
        ra.InputError,
        "leaf: start={n: 9007199254740992} and 1 elements reach beyond place 2**53 - 1, the last that float64 holds as "
        "a number. Begin earlier, and add what is left out to the results.",
    ),
    "a scalar beyond float64": Case(
        lambda: ra.fuse(ra.sum(ra.where(n <= limit, x, 0), n))(x=X, limit=2**53 + 1),
        ra.InputError,
        "scalar `limit` is 9007199254740993, and scalars are float64, which holds integers up to 2**53. Pass it as an "
        "integer tensor.",
    ),
    "a label beyond 64 bits": Case(
        lambda: ra.fuse(ra.sum(ra.where(ra.eq(n, label), x, 0), n))(x=X, label=np.array([2**63], np.uint64)),
        ra.InputError,
        "an unsigned integer beyond 2**63 - 1 is given, and places are 64-bit signed integers. Pass smaller ones.",
    ),
}


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()
