"""The passes of a call as a value: its parts, and what each pass takes of tensors and sizes."""

import pickle

from sympy import Abs

import redalg as ra
from redalg.incremental.passes import Passes

b, n = ra.axes("b n")
x, y = ra.tensors("x[b,n] y[b,n]")
t = ra.scalars("t")
FUSED = ra.fuse(ra.mean(Abs(y - t * ra.mean(x, n)), n), "b", passes=2)
PASSES = FUSED.passes


def test_the_parts() -> None:
    first, last = PASSES
    assert len(PASSES) == 2
    assert (PASSES.earlier, PASSES.last) == ((first,), last)
    assert last is FUSED.form
    assert [str(output.name) for output in PASSES.intermediates] == ["sum_0"]
    assert {str(element) for element in PASSES.elements} == {"x[b, n]", "y[b, n]"}
    assert {str(scalar) for scalar in PASSES.scalars} == {"t"}


def test_what_a_pass_reads_is_the_callers_or_handed_on() -> None:
    given = {element.name for element in PASSES.elements}
    assert set(PASSES.last.cascade.inputs()) - given == {output.name for output in PASSES.intermediates}


def test_every_pass_takes_what_it_reads() -> None:
    """The last also takes what no pass reads, and so refuses it by name."""
    first, last = PASSES
    given = {"x": 1, "y": 2, "t": 3, "unknown": 4}
    assert PASSES.tensors_of(first, given) == {"x": 1}
    assert PASSES.tensors_of(last, given | {"sum_0": 5}) == {"y": 2, "t": 3, "unknown": 4, "sum_0": 5}
    assert PASSES.sizes_of(first, {"b": 6, "n": 7, "unknown": 8}) == {"b": 6, "n": 7}
    assert PASSES.sizes_of(last, {"b": 6, "n": 7, "unknown": 8}) == {"b": 6, "n": 7, "unknown": 8}


def test_an_axis_of_an_earlier_pass_alone_is_not_the_lasts() -> None:
    k = ra.axes("k")
    total = ra.max(ra.tensor("z[b,k]"), k)
    fused = ra.fuse(ra.mean(Abs(y - ra.mean(x * total, n)), n), "b", passes=2)
    first, last = fused.passes
    sizes = {"b": 1, "n": 2, "k": 3}
    assert fused.passes.sizes_of(first, sizes) == sizes
    assert fused.passes.sizes_of(last, sizes) == {"b": 1, "n": 2}


def test_one_pass_takes_all_that_is_given() -> None:
    passes = ra.fuse(ra.mean(x, n), "b").passes
    assert passes == Passes((passes.last,))
    assert (passes.earlier, passes.intermediates) == ((), ())
    assert passes.tensors_of(passes.last, {"x": 1, "unknown": 2}) == {"x": 1, "unknown": 2}
    assert passes.sizes_of(passes.last, {"n": 1, "unknown": 2}) == {"n": 1, "unknown": 2}


def test_passes_pickle() -> None:
    assert pickle.loads(pickle.dumps(PASSES)) == PASSES
