"""Reductions of dask arrays: in any chunks, lazily, on threads and in other processes."""

import pickle
import re
import sys
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.data.dask import reduction
from tests.data.chunkings import ROWS, X, b, check, cuts, n

DATA = np.random.default_rng(0).normal(size=(4, 11))
CHUNKED = da.from_array(DATA, chunks=((1, 3), (4, 0, 1, 6)))
variance, mean = ROWS["variance"], ra.fuse(ra.mean(X, n))
table, place = ra.Tensor("t"), ra.tensor("place[n]")


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=8)
@given(st.data())
def test_any_chunks_give_the_whole(name: str, data: st.DataObject) -> None:
    fused, dtype = ROWS[name], data.draw(st.sampled_from(["float32", "float64"]))
    rows, length = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 12))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    tensors = {key: generator.normal(size=(rows, length)).astype(dtype) for key in fused.cascade.inputs()}
    chunked = {
        key: da.from_array(array, chunks=(data.draw(cuts(rows)), data.draw(cuts(length))))
        for key, array in tensors.items()
    }
    found = reduction(fused, chunked, split_every=data.draw(st.sampled_from([None, 2, 3])))
    lazy = found if isinstance(found, tuple) else (found,)
    outputs = dask.compute(*lazy, scheduler="sync")
    called = fused(**tensors)
    for one, array, whole in zip(lazy, outputs, called if isinstance(called, tuple) else (called,), strict=True):
        assert (one.shape, one.dtype) == (array.shape, array.dtype) == (np.shape(whole), np.asarray(whole).dtype)
    check(fused.result(*outputs) if isinstance(found, tuple) else outputs[0], fused, tensors, dtype)


def test_integers_mask_and_index() -> None:
    groups, places = np.arange(11) % 3, np.arange(11) // 2
    of_group = ra.fuse(ra.mean(ra.where(ra.eq(ra.tensor("g[n]"), 1), X, 0), n))
    gathered = ra.fuse(ra.sum(X * table[place], n))
    weights = np.linspace(0, 1, 6)
    for fused, more in ((of_group, {"g": groups}), (gathered, {"place": places, "t": weights})):
        lazy = reduction(fused, {"x": CHUNKED}, **more)
        np.testing.assert_allclose(lazy.compute(scheduler="sync"), fused.reference(x=DATA, **more), rtol=1e-12)


def test_axes_that_are_needed_whole_are() -> None:
    i, j, k, d = ra.axes("i j k d")
    gram = ra.fuse(ra.sum(ra.Tensor("x")[i, n] * ra.Tensor("x")[j, n], n), axes="i j")
    np.testing.assert_allclose(reduction(gram, CHUNKED).compute(scheduler="sync"), DATA @ DATA.T, rtol=1e-12)
    score = ra.sum(ra.tensor("q[i,d]") * ra.tensor("k[k,d]"), d)
    rows = ra.fuse(ra.sum(ra.softmax(score, k) * ra.tensor("v[k,e]"), k), axes="i e")
    generator = np.random.default_rng(1)
    tensors = {"q": generator.normal(size=(6, 8)), "k": generator.normal(size=(13, 8)),
               "v": generator.normal(size=(13, 5))}  # fmt: skip
    lazy = reduction(rows, {name: da.from_array(array, chunks=3) for name, array in tensors.items()})
    assert lazy.chunks == ((3, 3), (3, 2))
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), rows.reference(**tensors), rtol=1e-12)


def test_totals_are_those_of_the_whole() -> None:
    per_row = ra.fuse(ra.sum(X, b, n) / b.extent)
    np.testing.assert_allclose(reduction(per_row, CHUNKED, axis=(0, 1)).compute(), DATA.sum() / 4, rtol=1e-12)


def test_what_finish_needs_is_given() -> None:
    fused = ra.fuse(ra.mean(X, n) * ra.tensor("gain[b]") + ra.scalars("shift"))
    lazy = reduction(fused, {"x": CHUNKED, "gain": np.arange(4.0)}, shift=0.5)
    np.testing.assert_allclose(lazy.compute(), DATA.mean(1) * np.arange(4) + 0.5, rtol=1e-12)


def test_nothing_at_all() -> None:
    assert np.isnan(reduction(variance, da.zeros((3, 0))).compute()).all()
    assert (reduction(variance, da.zeros((3, 0)), empty="zero").compute() == 0).all()
    assert reduction(variance, da.zeros((0, 5), chunks=(2, 2))).compute().shape == (0,)


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    asked: list[int] = []

    def tell(block: np.ndarray) -> np.ndarray:
        asked.append(block.size)
        return block

    lazy = reduction(variance, CHUNKED.map_blocks(tell, dtype="float64", meta=np.empty((0, 0))))
    assert asked == []
    np.testing.assert_allclose(lazy.compute(), DATA.var(1), rtol=1e-12)
    assert sum(asked) == DATA.size


def test_digits_far_from_zero() -> None:
    far = da.from_array(DATA + 1e8, chunks=3)
    np.testing.assert_allclose(reduction(variance, far).compute(), (DATA + 1e8).var(1), rtol=1e-8)


def test_graphs_are_shared_pickled_and_run_elsewhere() -> None:
    lazy = reduction(variance, CHUNKED)
    assert lazy.name == reduction(variance, CHUNKED).name != reduction(variance, CHUNKED, empty="zero").name
    assert lazy.name != reduction(mean, CHUNKED).name
    np.testing.assert_allclose(pickle.loads(pickle.dumps(lazy)).compute(), DATA.var(1), rtol=1e-12)
    found = lazy.compute(scheduler="processes", num_workers=1)
    np.testing.assert_allclose(found, DATA.var(1), rtol=1e-12)


@pytest.mark.parametrize("every", [2, 3, 100, {"n": 4}, {1: 2}, {n: 2}])
def test_split_every_bounds_what_a_task_merges(every: Any) -> None:
    lazy = reduction(variance, da.from_array(np.tile(DATA, 3), chunks=(4, 2)), split_every=every)
    tasks = {key: one for key, one in dict(lazy.dask).items() if isinstance(key, tuple) and key[0].startswith("merge")}
    most = max(len(one.dependencies if hasattr(one, "dependencies") else one[2:]) for one in tasks.values())
    assert most <= (next(iter(every.values())) if isinstance(every, dict) else every) + 1
    assert (len(tasks) == 1) == (every == 100)
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), DATA.var(1), rtol=1e-12)


both = ra.fuse(ra.covariance(X, ra.tensor("y[b,n]"), n))
shares = ra.fuse(ra.softmax(X, n), axes="b n")
beyond_first = ra.fuse(ra.mean(X, n) - ra.Tensor("x")[b, 0])
two_passes = ra.fuse(ra.mean(ra.where(ra.mean(X, n) < X, 1, 0), n), passes=2)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "keeps the axis": (lambda: reduction(shares, CHUNKED), "output `out` keeps axis n, which is reduced"),
    "several passes": (lambda: reduction(two_passes, CHUNKED), "this form takes two passes"),
    "two indices": (lambda: reduction(beyond_first, CHUNKED), "tensor `x` stands under two indices"),
    "unknown chunks": (lambda: reduction(variance, CHUNKED[CHUNKED[:, 0] > 0]), "chunks of unknown sizes"),
    "other dimension": (lambda: reduction(variance, CHUNKED, axis=0), "the expression reduces over n"),
    "no axis": (lambda: reduction(variance, CHUNKED, axis="m"), "axis='m' is no axis of the expression"),
    "not dask": (lambda: reduction(variance, DATA), "no tensor is a dask array"),
    "no array": (lambda: reduction(variance, [1.0]), "tensor `x` is a list"),
    "split_every": (lambda: reduction(variance, CHUNKED, split_every=1), "an int of at least 2"),
    "integers": (lambda: reduction(variance, CHUNKED.astype(int)), "tensor `x` is int64"),
    "no name": (lambda: reduction(both, CHUNKED), "the array has no name"),
    "sizes": (lambda: reduction(both, {"x": CHUNKED}, y=DATA[:, :3]), "axis n has several sizes"),
    "given twice": (lambda: reduction(both, {"x": CHUNKED}, x=CHUNKED), "is given twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dask.array")
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ra.BackendError, match=re.escape("reduction needs dask, which is not installed. Run: pip inst")):
        reduction(variance, CHUNKED)


GROUPS = 4
"""Of which the last has no element."""


@pytest.mark.parametrize("name", [name for name in ROWS if len(ROWS[name].cascade.reduced_axes) == 1])
@settings(max_examples=6)
@given(st.data())
def test_groups_of_any_chunks_are_those_of_the_whole(name: str, data: st.DataObject) -> None:
    fused, rows, length = ROWS[name], data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    tensors = {key: generator.normal(size=(rows, length)) for key in fused.cascade.inputs()}
    keys, empty = generator.integers(0, GROUPS - 1, length), data.draw(st.sampled_from(["nan", "zero"]))
    chunked = {
        key: da.from_array(array, chunks=(data.draw(cuts(rows)), data.draw(cuts(length))))
        for key, array in tensors.items()
    }
    by = data.draw(st.sampled_from([keys, da.from_array(keys, chunks=(data.draw(cuts(length)),))]))
    every = data.draw(st.sampled_from([None, 2]))
    found = reduction(fused, chunked, by=by, groups=GROUPS, empty=empty, split_every=every)
    lazy = found if isinstance(found, tuple) else (found,)
    called = fused(**tensors, by=keys, groups=GROUPS, empty=empty)
    whole = called if isinstance(called, tuple) else (called,)
    for one, array, want in zip(lazy, dask.compute(*lazy, scheduler="sync"), whole, strict=True):
        assert (one.shape, one.dtype) == (array.shape, array.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(array, want, rtol=1e-11, atol=1e-11)


KEYS = np.arange(11) % 3


def test_keys_alone_may_be_lazy_and_name_the_graph() -> None:
    by = da.from_array(KEYS, chunks=4)
    lazy = reduction(variance, DATA, by=by, groups=3)
    np.testing.assert_allclose(lazy.compute(scheduler="sync")[1], DATA[:, KEYS == 1].var(1), rtol=1e-12)
    assert lazy.name == reduction(variance, DATA, by=by, groups=3).name
    assert lazy.name not in (reduction(variance, DATA, by=by, groups=4).name, reduction(variance, CHUNKED).name)


REFUSED_KEYS: dict[str, tuple[Callable[[], Any], str]] = {
    "no number": (lambda: reduction(variance, CHUNKED, by=KEYS), "`by=` needs the number of groups"),
    "no keys": (lambda: reduction(variance, CHUNKED, groups=3), "groups=3 stands without keys"),
    "length": (lambda: reduction(variance, CHUNKED, by=KEYS[:5], groups=3), "should have shape (11,), and has (5,)"),
    "dtype": (lambda: reduction(variance, CHUNKED, by=KEYS / 1, groups=3), "as an integer, and is float64"),
    "a list": (lambda: reduction(variance, CHUNKED, by=[0] * 11, groups=3), "by= is a list"),
    "two axes": (lambda: reduction(ROWS["both axes"], CHUNKED, by=KEYS, groups=3), "reduces over b and n together"),
    "beyond": (lambda: reduction(variance, CHUNKED, by=KEYS, groups=2).compute(scheduler="sync"),
               "a number from 0 to 1 as groups=2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_KEYS)
def test_keys_that_do_not_fit_are_refused(name: str) -> None:
    call, text = REFUSED_KEYS[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()
