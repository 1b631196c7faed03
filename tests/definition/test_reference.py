"""`reference` evaluates what was written: judged by `tests/oracle.py`, and apart from the derivation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sympy import Abs, Expr, Max, exp, log, oo

import redalg as ra
from redalg.definition import outputs, reductions
from tests.cases.corpus import as_torch, named
from tests.fuzz.case import Case
from tests.fuzz.data import Data
from tests.fuzz.records import cases
from tests.fuzz.verdicts import decide
from tests.house.source import sources
from tests.house.test_layering import imports, is_inside
from tests.oracle import Oracle

b, n, m = ra.axes("b n m")
x, y, w, M = ra.tensors("x[b,n] y[b,n] w[b,n] M[b,n]")
ALLOWED = ("redalg.definition", "redalg.expression", "redalg.monoids", "redalg.errors", "numpy", "torch", "sympy")


def test_it_imports_nothing_of_the_derivation() -> None:
    found = [one for source in sources("redalg/definition") for one in imports(source)]
    foreign = {one.module for one in found if one.module.split(".")[0] in ("redalg", "numpy", "torch", "sympy")}
    assert {one for one in foreign if not any(is_inside(one, allowed) for allowed in ALLOWED)} == set()


def drawn(number: int) -> Iterator[tuple[Case, Any]]:
    """Fusible cases of both generators."""
    found = cases(7000, ["one_axis", "two_axes"])
    while number:
        case = next(found)
        verdict = decide(case).verdict
        if hasattr(verdict, "fused"):
            number -= 1
            yield case, verdict.fused


@pytest.mark.parametrize("number", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_it_is_the_definition(number: int) -> None:
    for case, fused in drawn(number):
        data = Data(case.seed, 7, "plain")
        oracle = Oracle(data.tensors, data.scalars, data.sizes)
        given, sizes = data.given(fused)
        both = (named(fused.reference(**given, sizes=sizes)), named(fused.reference(**as_torch(given), sizes=sizes)))
        for name, (expr, axes) in case.outputs.items():
            want, bound = oracle.output(expr, axes)
            for got in both:
                with np.errstate(all="ignore"):
                    fine = np.abs(got[name] - want) <= np.finfo(float).eps * (bound + np.abs(want)) + 1e-30
                    fine |= (got[name] == want) | (np.isnan(got[name]) & np.isnan(want))
                assert fine.all(), f"{case.name}: {got[name][~fine]}, wanted {want[~fine]}"


def test_it_does_not_read_the_derivation() -> None:
    """A form that is wrong does not make the reference wrong."""
    one, other = ra.fuse(ra.sum(x, n), axes="b"), ra.fuse(ra.sum(2 * x, n), axes="b")
    wrong = replace(one, cascade=other.cascade, decomposition=other.decomposition)
    given = {"x": np.arange(6.0).reshape(2, 3)}
    np.testing.assert_array_equal(wrong.reference(**given), [3, 12])
    np.testing.assert_array_equal(wrong(**given), [6, 24])


def test_it_travels() -> None:
    fused = ra.fuse({"out": (ra.var(x, n), "b"), "top": (ra.argmax(x, n), "b")})
    given = {"x": np.random.default_rng(0).standard_normal((3, 5))}
    want = fused.reference(**given)
    for made in (pickle.loads(pickle.dumps(fused)), copy.deepcopy(fused), copy.copy(fused)):
        got = made.reference(**given)
        np.testing.assert_array_equal(got.out, want.out)
        assert got.top.dtype == np.int64
        assert hash(made) == hash(fused)


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        (ra.sum(ra.where(M > 0, x, 0), n), 3.0),
        (ra.sum(x * ra.where(M > 0, 1, 0), n), 3.0),
        (ra.sum(ra.softmax(ra.where(M > 0, y, -oo), n) * x, n), 1.5),
        (ra.max(ra.where(M > 0, x, -oo), n), 2.0),
        (ra.argmax(x, n), 2),
        (ra.argmax(ra.where(M > 0, x, -oo), n), 1),
        (ra.sum(x, n), np.nan),
        (ra.sum(w * log(w), n), 0.0),
        (ra.sum(w * (log(w) - y), n), 0.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_is_masked_stays_hidden_and_what_is_not_does_not(library: str, expr: Expr, want: float) -> None:
    given = {"x": [[1, 2, np.nan]], "y": [[0, 0, 0]], "w": [[0, 1, 0]], "M": [[1, 1, 0]]}
    arrays: dict[str, Any] = {name: np.array(one, float) for name, one in given.items()}
    fused = ra.fuse(expr, axes="b")
    arrays = {name: one for name, one in arrays.items() if name in fused.cascade.inputs()}
    np.testing.assert_array_equal(fused.reference(**(as_torch(arrays) if library == "torch" else arrays)), [want])


def test_a_weight_that_underflows_hides_nothing() -> None:
    fused = ra.fuse(ra.sum(ra.softmax(y, n) * x, n), axes="b")
    given = {"y": np.array([[0.0, -2000.0, 0.0]]), "x": np.array([[1.0, np.nan, 2.0]])}
    assert np.isnan(fused.reference(**given)).all()


def test_indices_are_exact() -> None:
    """Places beyond 2²⁴ are integers, not floats."""
    places = ra.fuse(ra.sum(ra.where(x > 0, n + 2**53, 0), n), axes="b")
    far = ra.fuse(ra.argmax(x, n), axes="b")
    data = np.zeros((1, 2**24 + 2), np.float32)
    data[0, -1] = 1
    assert far.reference(x=data) == 2**24 + 1
    assert places.reference(x=data[:, -3:]) == 2**53 + 2


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_chunks_are_the_whole(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """A large broadcast is cut along a free axis, with and without a contraction."""
    u, v = ra.tensors("u[m,n] v[n]")
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {"x": rng.standard_normal((5, 9)), "u": rng.standard_normal((7, 9))}
    tensors["v"] = np.where(np.arange(9) == 3, np.inf, 1.0)
    given = as_torch(tensors) if library == "torch" else tensors
    exprs = (ra.sum(Abs(x - u), n), ra.sum(exp(x) * u * v, n), ra.sum(Max(x, u) * v, n), ra.prod(x * u, n))
    for expr in exprs:
        fused = ra.fuse(expr, axes="b m")
        taken = {name: one for name, one in given.items() if name in fused.cascade.inputs()}
        want = np.asarray(fused.reference(**taken))
        with monkeypatch.context() as patch:
            patch.setattr(outputs, "LARGEST", 40)
            patch.setattr(reductions, "LARGEST", 40)
            np.testing.assert_allclose(np.asarray(fused.reference(**taken)), want, rtol=1e-14)


def test_a_registered_monoid_is_combined_by_its_own_functions() -> None:
    ra.register_monoid(
        "range_and_count", components={"low": oo, "high": -oo, "count": 0}, integers=("count",), domain="finite",
        lift=lambda u, _: (u, u, 1), lower=lambda low, high, count: (high - low, count), results=("range", "count"),
        combine=lambda p, q: (ra.where(p[0] < q[0], p[0], q[0]), Max(p[1], q[1]), p[2] + q[2]),
    )  # fmt: skip
    reach, number = ra.reduce("range_and_count", x, axis=n)
    fused = ra.fuse({"reach": (reach, "b"), "number": (number, "b")})
    data = np.random.default_rng(0).standard_normal((2, 6))
    for given in ({"x": data}, as_torch({"x": data})):
        got = fused.reference(**given)
        np.testing.assert_array_equal(np.asarray(got.reach), np.ptp(data, axis=1))
        np.testing.assert_array_equal(np.asarray(got.number), [6, 6])
    assert np.isnan(fused.reference(x=data[:, :0]).reach).all() or np.isinf(fused.reference(x=data[:, :0]).reach).all()


def test_casts_are_taken_as_they_are_written() -> None:
    """Of an approximate form, and of the exact one in two passes."""
    expr = ra.sum(ra.cast(100 * x / ra.max(Abs(x), n), "int8") * y, n)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((2, 40)) for name in "xy"}
    want = (np.rint(100 * given["x"] / np.abs(given["x"]).max(1, keepdims=True)) * given["y"]).sum(1)
    for exact in (False, True):
        fused = ra.fuse(expr, axes="b", exact=exact)
        for tensors in (given, as_torch(given)):
            np.testing.assert_allclose(np.asarray(fused.reference(**tensors)), want, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int8"])
def test_numpy_rounds_as_torch_does(dtype: str) -> None:
    data = np.concatenate([np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100).repeat(1),
                           [0.0, -0.0, 448.0, 465.0, 57344.0, 65504.0, 65520.0, 3e38, 127.5, -128.5]])  # fmt: skip
    fused = ra.fuse(ra.sum(ra.cast(ra.tensor("z[n,m]"), dtype), n), axes="m")
    given = {"z": data[None, np.abs(data) < 3e38]}
    np.testing.assert_array_equal(fused.reference(**given), fused.reference(**as_torch(given)))


def test_what_no_reduction_reads_is_given_all_the_same() -> None:
    """Found by the fuzzer: a scale > 0 decides no choice, so that the cascade lacks it and `reference` needs it."""
    scale = ra.scalars("scale", positive=True)
    fused = ra.fuse(ra.sum_at_max(exp(scale * (x - ra.max(y, n))), w, n), axes="b")
    assert not fused.cascade.scalars()
    given = {"x": np.array([[1.0, 4, 4]]), "y": np.ones((1, 3)), "w": np.array([[1.0, 2, 5]])}
    assert fused(**given, scale=2.0).tolist() == fused.reference(**given, scale=2.0).tolist() == [7]
    assert fused.finish(fused.leaf({**given, "scale": 2.0})).tolist() == [7]
    with pytest.raises(ra.InputError, match=r"^reference: scale not given\."):
        fused.reference(**given)
    with pytest.raises(ra.InputError, match="scale` was declared positive"):
        fused.reference(**given, scale=-1.0)


def test_a_gather_counts_where_no_weight_hides_it() -> None:
    """exp(−∞) and an indicator of 0 hide what they multiply, so that its place need not exist."""
    k = ra.axes("k")
    table, at, w, length = ra.Tensor("t"), ra.tensor("at[k]"), ra.tensor("w[k]"), ra.tensor("length[]")
    data = {
        "t": np.array([1.0, 2.0, 4.0]),
        "at": np.array([2, 0, -1]),
        "w": np.array([0.5, 0.25, 3.0]),
        "length": np.array(2),
    }
    masked = ra.where(k < length, w, -oo)
    soft = ra.fuse(ra.sum(ra.softmax(masked, k) * table[at], k), axes="")
    share = np.exp([0.5, 0.25]) / np.exp([0.5, 0.25]).sum()
    assert soft.reference(**data) == pytest.approx(share @ [4.0, 1.0])
    counted = ra.fuse(ra.sum(ra.where(k < length, 1, 0) * table[at], k), axes="")
    assert counted.reference(**{name: one for name, one in data.items() if name != "w"}) == 5
    with pytest.raises(ra.InputError, match="leaves the range of dimension 0, which has 3"):
        soft.reference(**data | {"length": np.array(3)})
