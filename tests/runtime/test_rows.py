"""Rows of states: batches whose rows come and go, prefixes that rows share, and queries that come in chunks.

What is compared with is written here, in NumPy and float64: it shares no code with the engine.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import exp, oo, sqrt

import redalg as ra
from redalg.runtime.bind.packing import Packed
from tests.sweeps import draws

Array = np.ndarray[Any, Any]
b, h, q, k, d, e, n = ra.axes("b h q k d e n")
x, y = ra.tensors("x[b,n] y[b,n]")
Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
scores = ra.sum(Q * K, d) / sqrt(d.extent)
ATTENTION = ra.fuse(ra.sum(ra.softmax(scores, k) * V, k), axes="b q e")
CAUSAL = ra.fuse(ra.sum(ra.softmax(ra.where(k <= q, scores, -oo), k) * V, k), axes="b q e")
K_SHARED, V_SHARED = ra.tensors("K[k,d] V[k,e]")
SHARED = ra.fuse(
    ra.sum(ra.softmax(ra.sum(Q * K_SHARED, d) / sqrt(d.extent), k) * V_SHARED, k), axes="b q e"
)  # fmt: skip


def attention(queries: Array, keys: Array, values: Array, mask: Array | None = None) -> Array:
    """Softmax of the scores of one row, times the values, in float64."""
    weights = queries.astype(float) @ keys.astype(float).T / np.sqrt(queries.shape[-1])
    weights = weights if mask is None else np.where(mask, weights, -np.inf)
    weights = np.exp(weights - weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ values.astype(float))


def recurrence(decay: Array, push: Array) -> float:
    """h ← decay·h + push, from 0."""
    total = 0.0
    for factor, addend in zip(decay.astype(float), push.astype(float), strict=True):
        total = factor * total + addend
    return total


def log_sum(one: Array) -> float:
    """log Σ exp, -∞ of nothing."""
    largest = one.max(initial=-np.inf)
    return float(largest + np.log(np.exp(one.astype(float) - largest).sum())) if one.size else -np.inf


ROWS: dict[str, tuple[ra.Fused, Callable[[Array, Array], float]]] = {
    "logsumexp": (ra.fuse(ra.logsumexp(x, n), axes="b"), lambda x, y: log_sum(x)),
    "maximum": (ra.fuse(ra.max(x, n), axes="b"), lambda x, y: float(x.max(initial=-np.inf))),
    "products": (ra.fuse(ra.sum(x * y, n), axes="b"), lambda x, y: float(x.astype(float) @ y.astype(float))),
    "recurrence": (ra.fuse(ra.affine(exp(-x**2), y, n)[1], axes="b"),
                   lambda x, y: recurrence(np.exp(-x.astype(float) ** 2), y)),
    "last": (ra.fuse(ra.last(x, n), axes="b"), lambda x, y: float(x[-1]) if x.size else np.nan),
}  # fmt: skip
"""Functions of rows of any length, each with the formula of a row."""


class Batch:
    """A running state beside the data of its rows, which the operations change alike."""

    def __init__(self, name: str, library: str, rows: int, seed: int) -> None:
        self.fused, self.formula = ROWS[name]
        self.library, self.generator = library, np.random.default_rng(seed)
        self.names = {one.name for one in self.fused.cascade.elements()}
        self.state, self.rows, self.clock = self.new([np.zeros((2, 0))] * rows), [np.zeros((2, 0))] * rows, 0

    def draw(self, rows: int, length: int) -> list[Array]:
        """x and y of new pieces."""
        return list(self.generator.normal(0, 1, (rows, 2, length)).astype(np.float32))

    def tensors(self, rows: list[Array]) -> dict[str, Any]:
        """The tensors of pieces of one length."""
        whole = np.stack(rows, 1).astype(np.float32)
        arrays = {name: one for name, one in zip("xy", whole, strict=True) if name in self.names}
        return arrays if self.library == "numpy" else {name: torch.from_numpy(one) for name, one in arrays.items()}

    def new(self, rows: list[Array], start: int = 0) -> ra.State:
        """The state of rows of one length; the state of nothing if they have none."""
        if rows[0].shape[1]:
            return self.fused.leaf(self.tensors(rows), start={n: start})
        return self.fused.empty_state({"b": len(rows)}, library=self.library)

    def update(self, length: int) -> None:
        """A piece more of every row, in place."""
        pieces = self.draw(len(self.rows), length)
        self.state = self.fused.update(self.state, self.tensors(pieces), start={n: self.clock})
        self.grow(pieces)

    def merge(self, length: int) -> None:
        """A piece more of every row, by a merge."""
        pieces = self.draw(len(self.rows), length)
        self.state = self.fused.merge(self.state, self.new(pieces, self.clock))
        self.grow(pieces)

    def grow(self, pieces: list[Array]) -> None:
        """The data of the rows, and of pieces after them."""
        self.rows = [np.concatenate(pair, 1) for pair in zip(self.rows, pieces, strict=True)]
        self.clock += pieces[0].shape[1]

    def put(self, rows: list[int], length: int) -> None:
        """New rows of another length in place of some."""
        pieces = self.draw(len(rows), length)
        self.state = self.fused.put(self.state, rows, self.new(pieces), b)
        if self.clock == 0:
            self.clock = length
        for row, piece in zip(rows, pieces, strict=True):
            self.rows[row] = piece

    def take(self, rows: list[int]) -> None:
        """Some rows, in another order, again and again."""
        self.state, self.rows = self.fused.take(self.state, rows, "b"), [self.rows[row] for row in rows]

    def check(self) -> None:
        """The outputs are those of the formula on the data of each row."""
        wanted = [self.formula(*row) for row in self.rows]
        np.testing.assert_allclose(np.asarray(self.fused.finish(self.state)), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=draws(30))
@given(data=st.data())
def test_any_sequence_gives_the_rows_of_the_whole(name: str, library: str, data: st.DataObject) -> None:
    batch = Batch(name, library, data.draw(st.integers(1, 4)), data.draw(st.integers(0, 9)))
    for step in data.draw(st.lists(st.sampled_from(["update", "merge", "put", "take"]), min_size=1, max_size=7)):
        size, length = len(batch.rows), data.draw(st.integers(1, 5))
        if step == "put":
            some = st.lists(st.integers(0, size - 1), min_size=1, max_size=size, unique=True)
            batch.put(data.draw(some), data.draw(st.integers(0, 5)))
        elif step == "take":
            batch.take(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5)))
        else:
            getattr(batch, step)(length)
        batch.check()


def tensors_of(seed: int, rows: int, queries: int, keys: int, library: str = "torch") -> dict[str, Any]:
    """Queries, keys and values."""
    generator = np.random.default_rng(seed)
    shapes = {"Q": (rows, queries, 8), "K": (rows, keys, 8), "V": (rows, keys, 4)}
    arrays = {name: generator.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return arrays if library == "numpy" else {name: torch.from_numpy(one) for name, one in arrays.items()}


def by_rows(tensors: dict[str, Any], mask: Array | None = None) -> Array:
    """The formula on every row."""
    queries, keys, values = (np.asarray(tensors[name]) for name in "QKV")
    return np.stack([attention(*row, mask) for row in zip(queries, keys, values, strict=True)])


@pytest.mark.parametrize("backend", ["library", "tilelang"])
@pytest.mark.parametrize("lengths", [(7, 3), (1, 9), (16, 1)])
def test_rows_share_a_prefix(lengths: tuple[int, int], backend: str) -> None:
    prefix, rest = lengths
    data = tensors_of(0, 3, 2, prefix + rest)
    data["K"][:, :prefix], data["V"][:, :prefix] = data["K"][0, :prefix].clone(), data["V"][0, :prefix].clone()
    shared = SHARED.leaf({"Q": data["Q"], "K": data["K"][0, :prefix], "V": data["V"][0, :prefix]})
    suffix = ATTENTION.leaf({"Q": data["Q"], "K": data["K"][:, prefix:], "V": data["V"][:, prefix:]}, start={k: prefix})
    merged = ATTENTION.merge(ATTENTION.expand(shared, {}, of=SHARED), suffix, backend=backend)
    found = ATTENTION.finish(merged, backend=backend)
    np.testing.assert_allclose(found.numpy(), by_rows(data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("way", ["expand", "take"])
def test_one_row_serves_many(library: str, way: str) -> None:
    """The same queries and keys of a prefix, and keys of each row after it."""
    data = tensors_of(1, 4, 2, 12, library)
    first = {name: one[:1] for name, one in data.items()}
    prefix = ATTENTION.leaf({**first, "K": first["K"][:, :5], "V": first["V"][:, :5]})
    many = ATTENTION.expand(prefix, {b: 4}) if way == "expand" else ATTENTION.take(prefix, [0] * 4, b)
    queries = np.repeat(first["Q"], 4, 0) if library == "numpy" else first["Q"].expand(4, -1, -1)
    rest = ATTENTION.leaf({"Q": queries, "K": data["K"][:, 5:], "V": data["V"][:, 5:]}, start={k: 5})
    for name in "KV":
        data[name][:, :5] = np.asarray(first[name])[:, :5] if library == "numpy" else first[name][:, :5].clone()
    found = ATTENTION.finish(ATTENTION.merge(many, rest))
    np.testing.assert_allclose(np.asarray(found), by_rows({**data, "Q": queries}), rtol=1e-5, atol=1e-6)
    if way == "expand":
        shares = np.shares_memory if library == "numpy" else lambda a, b: a.data_ptr() == b.data_ptr()
        assert all(shares(many.slots[name], prefix.slots[name]) for name in prefix.slots)


@settings(max_examples=draws(30))
@given(cuts=st.lists(st.integers(1, 19), max_size=4, unique=True), seed=st.integers(0, 9))
def test_queries_come_in_chunks(cuts: list[int], seed: int) -> None:
    """Chunked prefill: each chunk of queries meets the keys before it, piece by piece, and its own."""
    data, found = tensors_of(seed, 2, 20, 20), list[Array]()
    edges = [0, *sorted(cuts), 20]
    for first, last in pairwise(edges):
        queries = data["Q"][:, first:last]
        pieces = [
            CAUSAL.leaf({"Q": queries, "K": data["K"][:, i:j], "V": data["V"][:, i:j]}, start={q: first, k: i})
            for i, j in pairwise(edge for edge in edges if edge <= last)
        ]  # fmt: skip
        whole = CAUSAL.merge(*pieces)
        assert whole.starts == {"q": first}
        found.append(np.asarray(CAUSAL.finish(whole)))
    np.testing.assert_allclose(np.concatenate(found, 1), by_rows(data, np.tri(20, dtype=bool)), rtol=1e-5, atol=1e-6)


def test_rows_whose_places_matter_follow_each_other() -> None:
    data = tensors_of(0, 1, 6, 6)
    state = CAUSAL.leaf(data)
    later = CAUSAL.take(state, slice(2, 5), q)
    assert later.starts == {"q": 2}
    more = CAUSAL.leaf({**data, "Q": data["Q"][:, 2:5], "K": data["K"][:, :1], "V": data["V"][:, :1]},
                       start={q: 2, k: 6})  # fmt: skip
    wanted = by_rows(data, np.tri(6, dtype=bool))[:, 2:5]
    np.testing.assert_allclose(np.asarray(CAUSAL.finish(CAUSAL.merge(later, more))), wanted, rtol=1e-5, atol=1e-6)
    put = CAUSAL.put(CAUSAL.take(state, range(6), q), range(2, 5), later, q)
    torch.testing.assert_close(CAUSAL.finish(put), CAUSAL.finish(state))


def test_places_that_stand_in_outputs_alone_are_kept() -> None:
    fused = ra.fuse(ra.where(b < 2, ra.sum(x, n), 0), axes="b")
    state = fused.leaf({"x": np.ones((4, 3))})
    assert fused.finish(fused.take(state, [1, 2, 3], b)).tolist() == [3, 0, 0]
    assert fused.finish(fused.leaf({"x": np.ones((2, 3))}, start={b: 1})).tolist() == [3, 0]
    with pytest.raises(ra.InputError, match="do not follow each other"):
        fused.take(state, [0, 3], b)


def test_rows_are_in_memory_of_their_own_or_in_that_of_the_state() -> None:
    total = ROWS["products"][0]
    state = total.leaf({"x": torch.ones(3, 2), "y": torch.ones(3, 2)})
    rows = total.take(state, [0, 1], b)
    assert rows.buffer.data_ptr() != state.buffer.data_ptr()
    assert isinstance(rows.slots, Packed)
    put = total.put(state, torch.tensor([2, 0]), total.take(rows, np.array([1, 0]), b), b)
    assert put.buffer.data_ptr() == state.buffer.data_ptr()
    arrived = ra.State.from_bytes(pickle.loads(pickle.dumps(rows)).to_bytes())
    torch.testing.assert_close(total.finish(arrived), total.finish(rows))
    expanded = total.expand(total.take(rows, [0], b), {"b": 5})
    torch.testing.assert_close(total.finish(ra.State.from_bytes(expanded.to_bytes())), total.finish(expanded))


def test_no_rows_are_rows_too() -> None:
    total = ROWS["products"][0]
    state = total.leaf({"x": torch.ones(3, 2), "y": torch.ones(3, 2)})
    nothing = total.take(state, [], b)
    assert total.finish(nothing).shape == (0,)
    assert total.finish(total.put(state, [], nothing, b)).tolist() == [2, 2, 2]


def test_counts_are_shared_by_all_rows() -> None:
    variance = ra.fuse(ra.var(x, n), axes="b")
    data = np.random.default_rng(0).normal(0, 1, (3, 8)).astype(np.float32)
    state, same, fewer = (variance.leaf({"x": one}) for one in (data, data[:1] + 1, data[:1, :4]))
    other = variance.take(state, slice(0, 2), b)
    with pytest.raises(ra.InputError, match=r"`count` has no axis b.*: 8 in the state and 4 in the rows"):
        variance.put(other, [0], fewer, b)
    found = variance.finish(variance.put(state, [1], same, b))
    np.testing.assert_allclose(found, np.stack([data[0], data[0] + 1, data[2]]).astype(float).var(1), rtol=1e-5)


TOP = ra.fuse(ra.topk(x, n, ra.axis("j", size=2))[0], axes="b j")
X = np.arange(12, dtype=np.float32).reshape(3, 4)
SCALE = ra.scalars("scale")
SCALED = ra.fuse(ra.sum(x * SCALE, n), axes="b")
OF_ONE_ROW = ra.fuse(ra.sum(ra.tensor("x[n]") * ra.tensor("y[n]"), n))
PRODUCTS, CAUSAL_STATE = ROWS["products"][0], CAUSAL.leaf(tensors_of(0, 2, 3, 3))
STATE = PRODUCTS.leaf({"x": X, "y": X})
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no such axis": (lambda: PRODUCTS.take(STATE, [0], "c"), "a state has no rows along axis c. It has some along b"),
    "a reduced axis": (lambda: PRODUCTS.take(STATE, [0], n), "no rows along axis n"),
    "elements of a list": (lambda: TOP.take(TOP.leaf({"x": X}), [0], "j"), "no rows along axis j"),
    "a row too far": (lambda: PRODUCTS.take(STATE, [3], b), "row 3 is not along axis b, whose rows are 0 to 2"),
    "a row from the end": (lambda: PRODUCTS.take(STATE, [-1], b), "row -1 is not along axis b"),
    "a mask": (lambda: PRODUCTS.take(STATE, np.array([True, False, True]), b), "row True is not along axis b"),
    "a number alone": (lambda: PRODUCTS.take(STATE, 1, b), "rows=1 are no rows. Give their numbers"),
    "a row twice": (lambda: PRODUCTS.put(STATE, [1, 1], PRODUCTS.take(STATE, [0, 1], b), b), "row 1 of axis b"),
    "too few rows": (lambda: PRODUCTS.put(STATE, [0, 1], PRODUCTS.take(STATE, [0], b), b),
                     r"2 rows of axis b should have sizes {'b': 2}; those given have {'b': 1}"),
    "views": (lambda: PRODUCTS.put(PRODUCTS.expand(PRODUCTS.take(STATE, [0], b), {b: 3}), [0], STATE, b), "may share"),
    "another form": (lambda: PRODUCTS.take(TOP.leaf({"x": X}), [0], b), "should have the form's slots"),
    "another dtype": (lambda: PRODUCTS.put(STATE, slice(0, 3), PRODUCTS.leaf({"x": X.astype(float), "y": X}), b),
                      "put: the states are of float32 and of float64"),
    "wider slots": (lambda: PRODUCTS.put(STATE, slice(0, 3), wide(STATE), b),
                    "of the rows is float64, and that of the state is float32"),
    "other scalars": (lambda: SCALED.put(SCALED.leaf({"x": X, "scale": 1.0}), slice(0, 3),
                                         SCALED.leaf({"x": X, "scale": 2.0}), b), "made with different scalars"),
    "other places": (lambda: CAUSAL.put(CAUSAL_STATE, [0], CAUSAL.leaf(tensors_of(0, 1, 3, 2)), b),
                     "the rows hold other places than the state, and the expression depends on places"),
    "rows of other places": (lambda: CAUSAL.put(CAUSAL_STATE, [1], CAUSAL.leaf(tensors_of(0, 2, 1, 3)), q),
                             r"put: the rows begin at 0, and they are put where {'q': 1} is"),
    "many rows of many": (lambda: PRODUCTS.expand(STATE, {b: 4}), "axis b should become 4, and the state has 3 rows"),
    "rows at one place": (lambda: CAUSAL.expand(CAUSAL.take(CAUSAL_STATE, [0], q), {q: 3}), "places along axis q"),
    "a size is missing": (lambda: PRODUCTS.expand(of_one_row(), {}, of=OF_ONE_ROW), "has no axis b. Pass its size"),
    "another function": (lambda: ATTENTION.expand(CAUSAL_STATE, {}, of=CAUSAL), "should be this function but for"),
    "a form of more axes": (lambda: OF_ONE_ROW.expand(STATE, {}, of=PRODUCTS), "should be this function but for"),
    "several passes": (lambda: ra.fuse(ra.mean(ra.where(x > ra.mean(x, n), 1, 0), n), passes=2).take(STATE, [0], b),
                       "take: this form takes two passes"),
}  # fmt: skip


def of_one_row() -> ra.State:
    """A state without the axis of rows."""
    return OF_ONE_ROW.leaf({"x": X[0], "y": X[0]})


def wide(state: ra.State) -> ra.State:
    """The state with wider slots, as those of far places have."""
    return replace(state, slots={key: one.astype(np.float64) for key, one in state.slots.items()})


@pytest.mark.parametrize("name", REFUSED)
def test_what_rows_are_not_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ra.InputError, match=message):
        make()


def test_vectors_share_what_is_a_product_of_matrices_alone() -> None:
    """One query of each row: the products of the rows are a matrix product if the keys are those of all."""
    query, keys, values = ra.tensors("Q[b,d] K[b,k,d] V[b,k,e]")
    of_all, values_of_all = ra.tensors("K[k,d] V[k,e]")
    own, shared = (
        ra.fuse(ra.sum(ra.softmax(ra.sum(query * one, d), k) * other, k), axes="b e")
        for one, other in ((keys, values), (of_all, values_of_all))
    )
    data = tensors_of(2, 3, 1, 9, "numpy")
    data = {"Q": data["Q"][:, 0], "K": data["K"], "V": data["V"]}
    prefix = own.expand(shared.leaf({"Q": data["Q"], "K": data["K"][0], "V": data["V"][0]}), {}, of=shared)
    found = own.finish(own.merge(prefix, own.leaf(data)))
    wanted = [attention(data["Q"][row][None] * np.sqrt(8), *(np.concatenate([data[name][0], data[name][row]])
              for name in "KV"))[0] for row in range(3)]  # fmt: skip
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-5, atol=1e-6)


def test_a_state_without_an_axis_becomes_many_rows() -> None:
    many = PRODUCTS.expand(of_one_row(), {b: 3}, of=OF_ONE_ROW)
    whole = PRODUCTS.merge(many, STATE)
    np.testing.assert_allclose(PRODUCTS.finish(whole), X[0] @ X[0] + (X * X).sum(1))


@pytest.mark.gpu
def test_rows_on_a_gpu() -> None:
    data = {name: one.cuda() for name, one in tensors_of(0, 4, 2, 64).items()}
    state = ATTENTION.leaf(data)
    rows = ATTENTION.take(state, [3, 1], b)
    put = ATTENTION.put(state, [0, 2], rows, b)
    wanted = by_rows({name: one.cpu() for name, one in data.items()})[[3, 1, 1, 3]]
    np.testing.assert_allclose(ATTENTION.finish(put).cpu().numpy(), wanted, rtol=1e-3, atol=1e-3)
    prefix = ATTENTION.expand(ATTENTION.take(put, [0], b), {b: 4})
    torch.testing.assert_close(*(ATTENTION.finish(ATTENTION.merge(prefix, put, backend=one)) for one in
                                 ("tilelang", "library")), rtol=1e-3, atol=1e-3)  # fmt: skip
