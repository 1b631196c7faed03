"""Options as a person writes them: axes or names, whole numbers and dtypes of any library; refusals by name."""

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
        "empty_state: dtypes: the expression holds no tensor `y`. It holds w, x.",
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
