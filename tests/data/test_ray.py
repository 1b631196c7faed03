"""Accumulators of Ray Data, without Ray: states of blocks as bytes. tests/integration/test_ray.py has the engine."""

import re
import sys
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redalg as ra
from redalg.data.ray import aggregation, block_states
from tests.data.chunkings import COLUMNS, PLACED_COLUMNS, ROWS, check, cuts, n, x

variance, correlation = COLUMNS["variance"], COLUMNS["correlation"]


def states_of(fused: ra.Fused, **options: Any) -> Any:
    return block_states(fused, options.get("columns"), options.get("tensors"), options.get("empty", "nan"))


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=6)
@given(st.data())
def test_any_blocks_give_the_whole(name: str, data: st.DataObject) -> None:
    fused, dtype = COLUMNS[name], data.draw(st.sampled_from(["float32", "float64", "int32"]))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    tensors = {key: (generator.normal(size=9) * 3 + 9).astype(dtype) for key in fused.cascade.inputs()}
    lengths = data.draw(cuts(9))
    blocks = [pa.table(tensors).slice(stop - length, length) for length, stop in
              zip(lengths, accumulate(lengths), strict=True)]  # fmt: skip
    states = states_of(fused)
    order = data.draw(st.permutations(range(len(blocks))))
    pieces = [states.of_block(blocks[number]) for number in order]
    cut = data.draw(st.integers(0, len(pieces)))
    left, right = (reduce(states.merge, part, states.start("a group")) for part in (pieces[:cut], pieces[cut:]))
    found = states.finish(states.merge(left, right))
    check(fused.result(**found) if isinstance(found, dict) else found, fused, tensors, "float64")


def test_blocks_of_one_dtype_or_of_several() -> None:
    states = states_of(variance)
    blocks = [pa.table({"x": pa.array([1, 2], of)}) for of in (pa.float32(), pa.float64(), pa.int8(), pa.float16())]
    assert states.finish(reduce(states.add, blocks, states.start())) == 0.25
    untyped = pa.table({"x": pa.array([None, None])})
    assert states.finish(reduce(states.add, (untyped, *blocks, untyped), states.start())) == 0.25


def test_columns_are_named_and_a_null_is_left_out() -> None:
    states = states_of(correlation, columns={"x": "price", "y": "volume"})
    table = pa.table({"price": [1.0, None, 3, 4, 8], "volume": [2, 5, None, 1, 0], "name": ["a"] * 5})
    found = states.finish(states.add(states.of_block(table.slice(0, 2)), table.slice(2)))
    np.testing.assert_allclose(found, np.corrcoef([1, 4, 8], [2, 1, 0])[0, 1], rtol=1e-12)


def test_lists_tensors_and_scalars() -> None:
    j = ra.axis("j", size=2)
    best = states_of(ra.fuse(ra.topk(x, n, j)[0]))
    assert best.finish(best.of_block(pa.table({"x": [1.0, 5, 3]}))) == [5, 3]
    table = pa.table({"x": [1.0, 3], "y": [2.0, 2]})
    for columns, want in ((None, 1.0), ({"x": ["x", "y"]}, [1.0, 0.0])):
        rows = states_of(ROWS["variance"], columns=columns)
        assert rows.finish(rows.of_block(table)) == want
    gathered = states_of(ra.fuse(ra.sum(x * ra.Tensor("t")[ra.tensor("p[n]")], n) + ra.scalars("shift")),
                         tensors={"t": np.array([1.0, 10, 100]), "shift": 0.5})  # fmt: skip
    assert gathered.finish(gathered.of_block(pa.table({"x": [1.0, 5, 3], "p": [0, 2, 1]}))) == 531.5


def test_nothing_at_all() -> None:
    assert np.isnan(states_of(variance).finish(states_of(variance).start()))
    states = states_of(variance, empty="zero")
    assert states.finish(states.of_block(pa.table({"x": pa.array([], pa.float64())}))) == 0


shares = ra.fuse(ra.softmax(x, n), axes="n")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "argmax": (lambda: states_of(PLACED_COLUMNS["argmax"]), "aggregation: the expression depends on the places"),
    "first": (lambda: states_of(PLACED_COLUMNS["first and last"]), "Ray Data gives rows in any order"),
    "rows": (lambda: states_of(shares), "output `out` keeps axis n"),
    "empty": (lambda: states_of(variance, empty="null"), "empty='null' is not an option"),
    "column": (lambda: states_of(variance).of_block(pa.table({"y": [1.0]})), "no column `x`, for tensor `x`"),
    "text": (lambda: states_of(variance).of_block(pa.table({"x": ["a"]})), "column `x` (tensor `x`) is of type string"),
    "no state": (lambda: states_of(variance).finish(b"none"), "from_bytes"),
    "other form": (lambda: states_of(variance).finish(states_of(correlation).start()), "should have the form's slots"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ra.InputError, match=re.escape(text)):
        call()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ray", None)
    text = 'aggregation needs ray, which is not installed. Run: pip install "redalg[ray]"'
    with pytest.raises(ra.BackendError, match=re.escape(text)):
        aggregation(variance)
