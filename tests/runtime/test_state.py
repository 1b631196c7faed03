"""States and pieces of data: in the wrong place, of another form, tampered with, of a tensor under two indices."""

import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from random import Random
from typing import Any

import numpy as np
import pytest
from sympy import Abs, exp

import redalg as ra
from redalg.runtime.bind.identity import identity
from redalg.runtime.bind.places import join_boxes, shared_box
from tests.cases.refusals import Case, each

b, n, m, q = ra.axes("b n m q")
j = ra.axis("j", size=2)
x, w = ra.tensors("x[n] w[n]")
X, Y = ra.Tensor("x"), ra.Tensor("y")
DATA = np.random.default_rng(0).normal(size=10)

gini = ra.fuse(ra.sum(ra.sum(Abs(X[n] - X[m]), m), n))
lag = ra.fuse(ra.sum(ra.where(n > 0, X[n] * X[n - 1], 0), n))
gathered = ra.fuse(ra.sum(X[n] * X[ra.tensor("I[n]")], n))
since = ra.fuse(X[n] - X[0] - ra.max(X[n], n))
largest = ra.fuse(ra.argmax(x, n))
masked = ra.fuse(ra.sum(ra.where(n <= 3, x, 0), n))
total, cubes = ra.fuse(ra.sum(x, n)), ra.fuse(ra.sum(x**3, n))
causal = ra.fuse(ra.sum(ra.where(n <= q, x, 0), n))
triangle = ra.fuse(ra.sum(ra.where(n < m, ra.tensor("A[n,m]"), 0), n, m))
STATE = total.leaf({"x": DATA})


def pieces(fused: ra.Fused, cuts: Sequence[tuple[int, int]], *, placed: bool, **more: np.ndarray) -> list[Any]:
    return [fused.leaf({"x": DATA[i:k], **more}, start={n: i} if placed else {}) for i, k in cuts]


HALVES = ((0, 5), (5, 10))


# ---- a tensor under two indices --------------------------------------------------------------------------------------


def test_a_tensor_under_two_names_is_streamed() -> None:
    fused = ra.fuse(ra.sum(ra.sum(Abs(X[n] - Y[m]), m), n))
    state = reduce(fused.merge, pieces(fused, ((0, 4), (4, 10)), placed=False, y=DATA))
    np.testing.assert_allclose(fused.finish(state), np.abs(DATA[:, None] - DATA).sum(), rtol=1e-14)


def test_a_shift_of_a_second_name_is_streamed() -> None:
    fused = ra.fuse(ra.sum(ra.where(n > 0, X[n] * Y[n - 1], 0), n))
    state = reduce(fused.merge, reversed(pieces(fused, ((0, 3), (3, 7), (7, 10)), placed=True, y=DATA)))
    np.testing.assert_allclose(fused.finish(state), (DATA[1:] * DATA[:-1]).sum(), rtol=1e-14)


def test_outputs_of_the_whole_may_hold_two_indices() -> None:
    whole = since.leaf({"x": DATA})
    np.testing.assert_allclose(since.finish(whole, {"x": DATA}), DATA - DATA[0] - DATA.max(), rtol=1e-14)


# ---- places ----------------------------------------------------------------------------------------------------------

PLACED: dict[str, tuple[ra.Fused, Callable[[np.ndarray], Any]]] = {
    "argmax": (largest, np.argmax),
    "topk": (ra.fuse(ra.topk(x, n, j)[1]), lambda a: np.argsort(-a)[:2]),
    "mask": (masked, lambda a: a[:4].sum()),
    "place in a term": (ra.fuse(ra.sum(x * n, n)), lambda a: (a * np.arange(10)).sum()),
    "gather by place": (ra.fuse(ra.sum(x * ra.Tensor("t")[n // 2], n)), lambda a: (a * (np.arange(10) // 2)).sum()),
    "producer": (
        ra.fuse(ra.sum(x * ra.sum(ra.where(m <= n, ra.tensor("t[m]"), 0), m), n)),
        lambda a: (a * np.minimum(np.arange(10), 4) * (np.minimum(np.arange(10), 4) + 1) / 2).sum(),
    ),
}
T = {"t": np.arange(5.0)}


@pytest.mark.parametrize("name", PLACED)
def test_pieces_in_any_order_are_put_in_their_places(name: str) -> None:
    fused, want = PLACED[name]
    more = T if "t" in fused.cascade.inputs() else {}
    states = pieces(fused, [(i, i + 1) for i in range(10)], placed=True, **more)
    Random(0).shuffle(states)
    state = reduce(fused.merge, states)
    assert state.places == (((0, 10),),)
    np.testing.assert_allclose(fused.finish(state), want(DATA), rtol=1e-14)


@pytest.mark.parametrize("name", PLACED)
def test_pieces_without_places_are_refused(name: str) -> None:
    fused, _ = PLACED[name]
    more = T if "t" in fused.cascade.inputs() else {}
    first, second = pieces(fused, ((0, 4), (4, 10)), placed=False, **more)
    with pytest.raises(ra.InputError, match="merge: both states hold elements 0 to 3 of axis n, and the expression de"):
        fused.merge(first, second)


@pytest.mark.parametrize("fused", [total, cubes, ra.fuse(ra.var(x, n)), ra.fuse(ra.topk(x, n, j)[0])])
def test_places_are_not_asked_for_where_they_do_not_matter(fused: ra.Fused) -> None:
    state = reduce(fused.merge, pieces(fused, HALVES, placed=False))
    np.testing.assert_allclose(fused.finish(state), fused(x=DATA), rtol=1e-12)


def test_boxes_of_two_axes() -> None:
    a = np.random.default_rng(1).normal(size=(6, 6))
    states = [triangle.leaf({"A": a[i : i + 3, k : k + 2]}, {n: i, m: k}) for i in (0, 3) for k in (0, 2, 4)]
    Random(1).shuffle(states)
    state = reduce(triangle.merge, states)
    assert state.places == (((0, 6), (0, 6)),)
    np.testing.assert_allclose(triangle.finish(state), np.triu(a, 1).sum(), rtol=1e-13)


def test_boxes_join_and_meet() -> None:
    assert join_boxes((((0, 2), (0, 2)), ((2, 4), (2, 4))), (((2, 4), (0, 2)),)) == (((0, 4), (0, 2)), ((2, 4), (2, 4)))
    assert shared_box((((0, 2), (0, 2)),), (((1, 4), (1, 5)),)) == ((1, 2), (1, 2))
    assert shared_box((((0, 2), (0, 2)),), (((2, 4), (0, 2)),)) is None


def test_rows_begin_where_the_leaf_says() -> None:
    state = causal.leaf({"x": DATA}, start={q: 3}, extents={q: 2})
    np.testing.assert_allclose(causal.finish(state), [DATA[:4].sum(), DATA[:5].sum()], rtol=1e-14)
    empty = causal.empty_state({q: 2}, "float64", library="numpy")
    np.testing.assert_array_equal(causal.finish(causal.merge(empty, state)), causal.finish(state))


@pytest.mark.parametrize("backend", ["library", "tilelang"])
def test_a_piece_knows_the_total_of_its_axis(backend: str) -> None:
    """The piece's own length is no divisor of the whole's sum, by whatever the state was made."""
    a, means = np.random.default_rng(1).normal(size=(7, 4)), ra.fuse(ra.sum(ra.tensor("A[n,m]"), n, m) / n.extent)
    first, last = (
        means.leaf({"A": part}, {n: start}, {n: 7}, backend=backend) for start, part in ((0, a[:3]), (3, a[3:]))
    )
    for states in ((first, last), (last, first)):
        np.testing.assert_allclose(means.finish(means.merge(*states)), a.sum() / 7, rtol=1e-13)
    assert [one.sizes["n"] for one in (first, last)] == [7, 7]


# ---- identity --------------------------------------------------------------------------------------------------------

FORMS = """
import redalg as ra
from sympy import exp, sqrt
from redalg.library import attention
from redalg.runtime.bind.identity import identity
b, n, m, q = ra.axes("b n m q")
x, w = ra.tensors("x[b,n] w[n]")
a, c = ra.scalars("a c", positive=True)
forms = [
    attention(), ra.fuse(ra.var(x, n)), ra.fuse(ra.sum(exp(a * x + c * w) * (x + w + a), n)),
    ra.fuse(ra.argmax(x * w, n)),
    ra.fuse(ra.sum(ra.where(ra.logical_or(n <= 3, x > w, ra.eq(n, b)), x * w * a, 0), n)),
    ra.fuse(ra.sum((x - ra.mean(x, n)) * (w - ra.mean(w, n)), n) / ra.std(x, n)),
]
print([identity(one.form).digest for one in forms])
"""


def test_the_identity_is_the_same_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", FORMS], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(said) == 1
    assert len(set(eval(said.pop()))) == 6


def test_the_identity_outlives_a_pickle_and_another_spelling() -> None:
    fused, state = pickle.loads(pickle.dumps((total, STATE)))
    again = ra.fuse(ra.sum(X[n], n))
    want = 2 * DATA.sum()
    np.testing.assert_allclose(total.finish(fused.merge(state, STATE)), want, rtol=1e-14)
    np.testing.assert_allclose(again.finish(total.merge(STATE, state)), want, rtol=1e-14)


def test_what_is_finished_otherwise_shares_its_states() -> None:
    variance, other = ra.fuse(ra.var(x, n)), ra.fuse(1 + 2 * ra.var(x, n))
    np.testing.assert_allclose(other.finish(variance.leaf({"x": DATA})), 1 + 2 * DATA.var(), rtol=1e-14)


DIFFERENT = {
    "power": (ra.sum(x, n), ra.sum(x**2, n)),
    "sign": (ra.max(x, n), ra.max(-x, n)),
    "tensor": (ra.sum(x, n), ra.sum(w, n)),
    "mask": (ra.sum(ra.where(n < 3, x, 0), n), ra.sum(ra.where(n < 4, x, 0), n)),
    "monoid": (ra.max(x, n), ra.min(x, n)),
    "cast": (ra.sum(ra.cast(x, "float16"), n), ra.sum(ra.cast(x, "bfloat16"), n)),
    "name": (ra.sum(ra.let("z", x**2) * w, n), ra.sum(ra.let("z", x**3) * w, n)),
    "scalar": (ra.sum(exp(ra.scalars("a") * x), n), ra.sum(exp(ra.scalars("c") * x), n)),
    "producer": (ra.sum(exp(ra.sum(ra.tensor("A[n,m]"), m)), n), ra.sum(exp(ra.sum(2 * ra.tensor("A[n,m]"), m)), n)),
    "index": (ra.argmax(x, n), ra.argmax(2 * x + 1, n)),
    "axis": (ra.sum(x, n), ra.sum(ra.tensor("x[m]"), m)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_has_another_identity(name: str) -> None:
    one, other = (identity(ra.fuse(expr).form) for expr in DIFFERENT[name])
    assert one.digest != other.digest


def tampered(**slots: Any) -> Any:
    return replace(STATE, slots=slots)


REFUSED: dict[str, Case] = {
    "differences of pairs": Case(
        lambda: gini.leaf({"x": DATA}),
        ra.InputError,
        "leaf: tensor `x` stands under two indices, `x[n]` and `x[m]`: one of them would take a piece along axis n for "
        "the whole. Write the expression with two tensors, `x[n]` and `x_all[m]`; pass the piece as `x`, and all of it "
        "as `x_all`.",
    ),
    "an empty state of pairs": Case(
        lambda: gini.empty_state({m: 10}),
        ra.InputError,
        "empty_state: tensor `x` stands under two indices, `x[n]` and `x[m]`: one of them would take a piece along "
        "axis n for the whole. Write the expression with two tensors, `x[n]` and `x_all[m]`; pass the piece as `x`, "
        "and all of it as `x_all`.",
    ),
    "a shift": Case(
        lambda: lag.leaf({"x": DATA}),
        ra.InputError,
        "leaf: tensor `x` stands under two indices, `x[n]` and `x[n - 1]`: one of them would take a piece along axis n "
        "for the whole. Write the expression with two tensors, `x[n]` and `x_all[n - 1]`; pass the piece as `x`, and "
        "all of it as `x_all`.",
    ),
    "a gather": Case(
        lambda: gathered.leaf({"x": DATA, "I": np.arange(10)}),
        ra.InputError,
        "leaf: tensor `x` stands under two indices, `x[n]` and `x[I[n]]`: one of them would take a piece along axis n "
        "for the whole. Write the expression with two tensors, `x[n]` and `x_all[I[n]]`; pass the piece as `x`, and "
        "all of it as `x_all`.",
    ),
    "a piece for an output": Case(
        lambda: since.finish(since.leaf({"x": DATA}), {"x": DATA[5:]}, start={n: 5}),
        ra.InputError,
        "finish: tensor `x` stands under two indices, `x[n]` and `x[0]`: one of them would take a piece along axis n "
        "for the whole. Write the expression with two tensors, `x[n]` and `x_all[0]`; pass the piece as `x`, and all "
        "of it as `x_all`.",
    ),
    "places held twice": Case(
        lambda: largest.merge(*pieces(largest, HALVES, placed=False)),
        ra.InputError,
        "merge: both states hold elements 0 to 4 of axis n, and the expression depends on the places of elements (a "
        "mask by place, an index, a shift). Give every leaf its `start={n: …}`, and merge each piece once.",
    ),
    "boxes held twice": Case(
        lambda: triangle.merge(*(triangle.leaf({"A": np.ones((2, 3))}, {n: 1, m: k}) for k in (0, 2))),
        ra.InputError,
        "merge: both states hold elements 1 to 2 of axis n × element 2 of axis m, and the expression depends on the "
        "places of elements (a mask by place, an index, a shift). Give every leaf its `start={n: …, m: …}`, and merge "
        "each piece once.",
    ),
    "other rows": Case(
        lambda: causal.merge(
            causal.leaf({"x": DATA[:5]}, extents={q: 4}), causal.leaf({"x": DATA[5:]}, {q: 3, n: 5}, {q: 4})
        ),
        ra.InputError,
        "merge: the states begin at different places of axis q, 0 and 3. Merge states of the same rows.",
    ),
    "other rows at the end": Case(
        lambda: causal.finish(causal.leaf({"x": DATA}, {q: 3}, {q: 4}), start={q: 2}),
        ra.InputError,
        "finish: start={q: 2}, and the state was made with start={q: 3}. Leave it out: rows are those of the state.",
    ),
    "another power": Case(
        lambda: total.merge(STATE, cubes.leaf({"x": DATA})),
        ra.InputError,
        f"merge: the state is of form {identity(cubes.form).digest}, and this is form {identity(total.form).digest}: "
        "there `sum_0 = sum x[n]**3`, here `sum_0 = sum x[n]`. Make states by `leaf` of the same `Fused`.",
    ),
    "another version": Case(
        lambda: total.finish(replace(STATE, version=0)),
        ra.InputError,
        "finish: the state is of format 0, and this redalg reads format 2. Make it again by `leaf`, or finish it with "
        "the redalg that made it.",
    ),
    "no slot": Case(
        lambda: total.merge(STATE, tampered()),
        ra.InputError,
        "merge: slot `sum_0` of the state is missing; it should be an array of numpy. Pass states as `leaf` and "
        "`merge` make them.",
    ),
    "a slot that is no array": Case(
        lambda: total.finish(tampered(sum_0=[1.0])),
        ra.InputError,
        "finish: slot `sum_0` of the state is a list; it should be an array of numpy. Pass states as `leaf` and "
        "`merge` make them.",
    ),
    "a slot's shape": Case(
        lambda: total.finish(tampered(sum_0=np.zeros((2, 3)))),
        ra.InputError,
        "finish: slot `sum_0` of the state has shape (2, 3) and dtype float64; it should have () and float32 or "
        "float64. Pass states as `leaf` and `merge` make them.",
    ),
    "a slot's dtype": Case(
        lambda: total.finish(tampered(sum_0=np.zeros((), np.float16))),
        ra.InputError,
        "finish: slot `sum_0` of the state has shape () and dtype float16; it should have () and float32 or float64. "
        "Pass states as `leaf` and `merge` make them.",
    ),
}


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()


def test_a_form_is_not_kept_alive_by_its_states() -> None:
    def digest_of_a_state() -> tuple[weakref.ref[Any], str]:
        fused = ra.fuse(ra.sum(ra.tensor("x[n]") ** 7, ra.axes("n")))
        return weakref.ref(fused.form), identity(fused.form).digest

    form, digest = digest_of_a_state()
    gc.collect()
    assert form() is None
    assert digest_of_a_state()[1] == digest


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_an_output_that_sums_what_does_not_vary_counts_the_elements_of_the_state(order: tuple[int, ...]) -> None:
    a, t = ra.tensors("a[b,n,m] t[b]")
    form = ra.fuse({"out": (ra.sum(a, n, m), "b"), "times": (ra.sum(2 + Abs(t), n), "b")})
    data = {"a": np.random.default_rng(0).normal(size=(2, 7, 3)), "t": np.array([-1.0, 4.0])}
    cuts = [(0, 2), (2, 3), (3, 7)]
    leaves = [form.leaf({**data, "a": data["a"][:, first:stop]}, start={n: first}) for first, stop in cuts]
    whole = form.reference(**data)
    out = form.finish(reduce(form.merge, [leaves[one] for one in order]), {"t": data["t"]})
    np.testing.assert_allclose(out.times, whole.times, rtol=1e-15)
    np.testing.assert_allclose(out.out, whole.out, rtol=1e-13)
    apart = form.merge(leaves[order[0]], leaves[order[2]])
    with pytest.raises(ra.InputError, match=r"an output sums over axis n itself.* Merge pieces that adjoin"):
        form.finish(apart, {"t": data["t"]})
    part = form.finish(leaves[2], {"t": data["t"]})
    np.testing.assert_allclose(part.times, 4 * (2 + np.abs(data["t"])), rtol=1e-15)
