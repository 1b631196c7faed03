"""Options as a person writes them: axes or names, whole numbers and dtypes of any library; refusals by name."""

import pickle
from typing import Any, cast

import numpy as np
import pytest
import torch

import redalg as ra
from tests.cases.refusals import Case, each

b, n, k = ra.axes("b n k")
x, w, label = ra.tensors("x[b,n] w[n] label[b]")
fused = ra.fuse(ra.sum(x * w, n))
SIZES = {"b": 64, "n": 256}
X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)
T = ra.Tensor("x")
centred = T[b, n] - ra.mean(T[b, k], k)
renamed = ra.fuse(ra.sum(centred**2, n), axes="b")
deviation = ra.fuse(ra.sum(abs(centred), n), axes="b", passes=2)
places = ra.fuse(ra.sum(ra.where(n >= 10, x, 0), n))


@pytest.mark.parametrize("sizes", [{b: 64, n: 256}, {"b": np.int64(64), n: 256}, {b: np.int32(64), "n": 256}])
def test_sizes_by_axis_or_name(sizes: dict[Any, Any]) -> None:
    want = fused.source("c", sizes=SIZES, dtypes="float32")
    assert fused.source("c", sizes=sizes, dtypes="float32") == want
    assert fused.lower("c", sizes, "float32").source.text == want
    assert str(fused.plan(sizes, "float32")) == str(fused.plan(SIZES, "float32"))
    assert str(fused.plans(sizes, "float32")) == str(fused.plans(SIZES, "float32"))


def test_sizes_of_calls_and_states() -> None:
    counted = ra.fuse(ra.sum(ra.where(n < k, ra.tensor("t[k]"), 0), n))
    inputs = {"t": np.ones(3)}
    assert counted(**inputs, sizes={n: np.int64(5)}).tolist() == counted(**inputs, sizes={"n": 5}).tolist() == [0, 1, 2]
    assert counted.reference(**inputs, sizes={n: 5}).tolist() == [0, 1, 2]
    total = ra.fuse(ra.sum(x / n.extent, n))
    state = total.merge(total.leaf({"x": X}, extents={n: 4}), total.empty_state({b: 3, n: 4}, library="numpy"))
    assert total.finish(state).tolist() == [1.5, 5.5, 9.5]


ALIAS: dict[str, Any] = {
    "a call": lambda sizes: renamed(x=X, sizes=sizes).tolist(),
    "a call that records": lambda sizes: renamed(x=torch.ones(3, 4, requires_grad=True), sizes=sizes).tolist(),
    "the reference": lambda sizes: renamed.reference(x=X, sizes=sizes).tolist(),
    "a compiled call": lambda sizes: torch.compile(lambda t: renamed(x=t, sizes=sizes), backend="eager")(
        torch.ones(3, 4)
    ).tolist(),
    "lower": lambda sizes: renamed.lower("c", sizes, "float32").source.text,
    "source": lambda sizes: renamed.source("c", sizes, "float32", varying=list(sizes)[:1]),
    "plans": lambda sizes: str(renamed.plans(sizes, "float32")),
    "plan": lambda sizes: str(renamed.plan(sizes, "float32")),
    "a state": lambda sizes: str(renamed.merge(
        renamed.leaf({"x": X}, extents=sizes, start=dict.fromkeys(sizes, 0)),
        renamed.empty_state(sizes, library="numpy"),
    )),
    "accuracy": lambda sizes: str(renamed.accuracy(sizes)),
    "a backward": lambda sizes: str(renamed.vjp()(np.ones(3, np.float32), x=X, sizes=sizes)),
    "the source of a backward": lambda sizes: renamed.vjp().source("c", sizes, "float32"),
    "forward mode": lambda sizes: str(renamed.jvp()(X, x=X, sizes=sizes)),
    "the source of forward mode": lambda sizes: renamed.jvp().source("c", sizes, "float32"),
    "two passes": lambda sizes: deviation(x=X, sizes=sizes).tolist(),
    "two passes of a function that was pickled": lambda sizes: pickle.loads(pickle.dumps(deviation)).source("c", sizes),
    "of JSON": lambda sizes: ra.from_json(renamed.to_json()).source("c", sizes),
}  # fmt: skip


@pytest.mark.parametrize("call", ALIAS.values(), ids=ALIAS.keys())
def test_a_name_that_a_rewrite_took_away_is_that_of_the_axis_in_its_place(call: Any) -> None:
    """The user wrote axis k; the cascade has n in its place."""
    assert call({"b": 3, "k": 4}) == call({b: 3, k: 4, "n": 4}) == call({"b": 3, "n": 4})


def test_aliases() -> None:
    """A name of a reduction within another, beside it or in another output; an axis of an output keeps its own."""
    y = ra.Tensor("y")
    rows = {one: one[b, n] - ra.mean(one[b, k], k) for one in (T, y)}
    both = {"x": (ra.sum(rows[T] ** 2, n), "b"), "y": (ra.sum(y[b, n] - ra.max(y[b, k], k), n), "b")}
    assert ra.fuse(both).cascade.aliases == (("k", "n"),)
    two = ra.fuse({"x": (ra.sum(T[b, n], n), "b"), "y": (ra.max(T[b, k] ** 2, k), "b")})
    assert two.cascade.aliases == (("k", "n"),)
    shares = ra.fuse({"x": (T[b, n] / ra.sum(T[b, n], n), "b n"), "y": (ra.max(T[b, k], k), "b")})
    assert shares.cascade.aliases == (("k", "n"),)
    apart = {"x": (ra.sum(T[b, n] - ra.mean(T[b, k], k), n), "b"), "y": (y[b, k] / ra.sum(T[b, n], n), "b k")}
    assert ra.fuse(apart).cascade.aliases == ()


def test_a_saved_file_takes_axes(tmp_path: Any) -> None:
    one = fused.save(tmp_path / "one.py", "c", sizes={b: 4, n: 8}, dtypes=torch.float32).read_text(encoding="utf-8")
    assert one == fused.save(tmp_path / "two.py", "c", sizes={"b": 4, "n": 8}, dtypes="float32").read_text("utf-8")


@pytest.mark.parametrize("first", [np.int64(8), np.uint8(8), 8])
@pytest.mark.parametrize("axis", [n, "n"])
def test_start_is_any_whole_number(first: Any, axis: Any) -> None:
    state = places.leaf({"x": X}, start={axis: first})
    assert places.finish(state).tolist() == [5, 13, 21]


@pytest.mark.parametrize("dtype", ["fp16", "half", torch.float16, np.float16, np.dtype("float16"), "torch.float16"])
def test_dtypes_by_any_name(dtype: Any) -> None:
    want = fused.source("sm_90a", sizes=SIZES, dtypes="float16")
    assert fused.source("sm_90a", sizes=SIZES, dtypes=dtype) == want
    assert fused.source("sm_90a", sizes=SIZES, dtypes={x: dtype, "w": "float16"}) == want


@pytest.mark.parametrize("dtypes", ["float64", torch.float64, {"x": np.float64}, {x: "double"}])
def test_an_empty_state_takes_a_dtype_for_all(dtypes: Any) -> None:
    chosen = ra.fuse(ra.sum(ra.where(ra.eq(label, n), x, 0), n))
    empty = chosen.empty_state({b: 3}, dtypes)
    data = {"x": torch.from_numpy(X).double(), "label": torch.tensor([0, 1, 2])}
    assert chosen.finish(chosen.merge(empty, chosen.leaf(data))).tolist() == [0, 5, 10]


REFUSED: dict[str, Case] = {
    "a number for sizes": Case(
        lambda: fused(x=X, w=W, sizes=cast("Any", 4)),
        ra.InputError,
        "sizes=4 gives no axis a size. Write sizes={n: 4096}, by axes or by their names.",
    ),
    "a size by no axis": Case(
        lambda: fused.source("c", sizes={3: 4}),
        ra.InputError,
        "source: sizes={3: …}: 3 is no axis. Give axes, or their names.",
    ),
    "a size twice": Case(
        lambda: fused.source("c", sizes={n: 4, "n": 5}),
        ra.InputError,
        "source: sizes gives axis n two sizes, 4 and 5. Give it once.",
    ),
    "a size by two names": Case(
        lambda: renamed(x=X, sizes={n: 4, "k": 5}),
        ra.InputError,
        "sizes gives axis n two sizes, 4 and 5, as `n` and as `k`: both are names of this axis, since they index the "
        "same dimension of a tensor. Give it once.",
    ),
    "a size by a name in the place of another": Case(
        lambda: renamed(x=X, sizes={"k": 5}),
        ra.InputError,
        "axis n has several sizes: 4 in x (dimension 1), 5 in sizes=. Every tensor must agree on it.",
    ),
    "sizes that vary along no axis": Case(
        lambda: fused.source("c", sizes=SIZES, varying="m"),
        ra.InputError,
        "source: varying='m' should name axes whose size is a run-time one, as in varying=[\"n\"]. The axes are b, n.",
    ),
    "sizes left out": Case(
        lambda: fused.source("c"),
        ra.InputError,
        'the sizes of axes b, n are missing. Pass sizes={"b": …, "n": …}.',
    ),
    "a number for start": Case(
        lambda: fused.leaf({"x": X, "w": W}, start=cast("Any", 3)),
        ra.InputError,
        "leaf: start=3 names no axis. Write start={n: 3}; the axes are b, n.",
    ),
    "a start that is no number": Case(
        lambda: places.finish(places.leaf({"x": X}), start={n: cast("Any", 1.5)}),
        ra.InputError,
        "finish: start should give an axis its first element's number, as in start={n: 128}, not {n: 1.5}. The axes "
        "are b, n.",
    ),
    "an unknown dtype": Case(
        lambda: fused.source("c", sizes=SIZES, dtypes="float12"),
        ra.InputError,
        "dtypes={'w': 'float12'}: no such dtype. Use one of float64, float32, float16, bfloat16, float8_e4m3fn, "
        "float8_e5m2, int64, int32, int16, int8, uint8, bool.",
    ),
    "a dtype that is none": Case(
        lambda: fused.source("c", sizes=SIZES, dtypes=16),
        ra.InputError,
        'dtypes: 16 is no dtype. Give a name such as "float16", or one of torch or NumPy.',
    ),
    "a dtype of no tensor": Case(
        lambda: fused.empty_state({"b": 3, "n": 4}, {"y": "float32"}),
        ra.InputError,
        "empty_state: dtypes={'y': …}: the function has no tensor `y`. It has w, x.",
    ),
    "a dtype that the library lacks": Case(
        lambda: fused.empty_state({"b": 3}, "bf16", library="numpy"),
        ra.InputError,
        "empty_state: numpy has no dtype 'bfloat16', given of tensor `w`.",
    ),
    "a library that there is not": Case(
        lambda: fused.empty_state({"b": 3}, library="jax"),
        ra.InputError,
        'empty_state: library=\'jax\' is not an option. Use "numpy" or "torch".',
    ),
    "an unknown option": Case(
        lambda: fused.source("c", sizes=SIZES, block_q=128),
        ra.InputError,
        "source: there is no option `block_q`. The options are plan, shapes, empty, precision, varying; tiles and "
        "threads are fields of a plan.",
    ),
    "an unknown option of plans": Case(
        lambda: fused.plans(SIZES, plan=None),
        ra.InputError,
        "plans: there is no option `plan`. The options are shapes, empty, precision, memory, scalars; tiles and "
        "threads are fields of a plan.",
    ),
}


@each(REFUSED)
def test_messages(case: Case) -> None:
    case.check()
