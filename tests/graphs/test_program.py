"""Programs of tensor expressions: what they mean, what they print, and what is refused."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Integer, S, Symbol, exp

import redalg as ra
from redalg.errors import GraphError
from redalg.expression import Axis, Element
from redalg.expression.tensor import Tensor
from redalg.graphs.interpret import interpret_program
from redalg.graphs.program import External, Shape, TensorExpression, TensorProgram, TensorType
from redalg.graphs.views import broadcast, reshape_place

I0, I1, R0 = (Axis(name) for name in ("i0", "i1", "r0"))
LENGTH = Symbol("s0", integer=True, positive=True)


def typed(*sizes: int | Symbol, dtype: str = "float32") -> TensorType:
    return TensorType(tuple(map(S, sizes)), dtype)


def read(name: str, *place: Axis) -> Element:
    return Tensor(name)[place]


EXPONENTIALS = TensorExpression("y", typed(3, LENGTH), (I0, I1), exp(read("x", I0, I1)))
TOTALS = TensorExpression("z", typed(3), (I0,), ra.sum(read("y", I0, R0), R0), ((R0, LENGTH),), "sum: y.sum(1)")
KEPT = External(("w",), (typed(3),), ("z",), "sort", "it orders all elements of a row")
PROGRAM = TensorProgram({"x": typed(3, LENGTH)}, (EXPONENTIALS, TOTALS, KEPT), ("w", "y"))


def test_it_prints_each_tensor_by_its_definition() -> None:
    assert str(PROGRAM) == (
        "input x: float32[3, s0]\n"
        "y: float32[3, s0]\n    y[i0, i1] = exp(x[i0, i1])\n"
        "z: float32[3], r0 < s0\n    z[i0] = sum(y[i0, r0], r0)\n"
        "w: float32[3]\n    by sort(z): it orders all elements of a row\n"
        "output w, y"
    )


def test_it_knows_who_reads_what() -> None:
    assert {name: [str(one.results) for one in readers] for name, readers in PROGRAM.readers().items()} == {
        "x": [str(EXPONENTIALS.results)], "y": [str(TOTALS.results)], "z": [str(KEPT.results)], "w": [],
    }  # fmt: skip
    assert [one.relies_on_many for one in PROGRAM.expressions()] == [False, True]


@pytest.mark.parametrize("length", [1, 4])
def test_its_meaning_on_arrays(length: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, length)).astype("f")
    found = interpret_program(PROGRAM, {"x": x}, lambda statement, arrays: [np.sort(arrays[0])])
    np.testing.assert_allclose(found["y"], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(found["w"], np.sort(np.exp(x).sum(1)), rtol=1e-6)
    assert {name: array.dtype for name, array in found.items()} == {"w": np.float32, "y": np.float32}


REFUSED = {
    "tensor `y` is read by `z`, and nothing before it defines `y`": (TOTALS, EXPONENTIALS),
    "tensor `y` is defined twice": (EXPONENTIALS, EXPONENTIALS),
    "`y` has 1 axes and 2 dimensions": (TensorExpression("y", typed(3, 2), (I0,), S.One),),
    "`y`: axes i1 of its term are neither": (TensorExpression("y", typed(3), (I0,), read("x", I0, I1)),),
    "`y` reads `x[i0]`, and `x` has 2 dimensions": (TensorExpression("y", typed(3), (I0,), read("x", I0)),),
    "`y` reduces over `r0`, whose length nothing says": (
        TensorExpression("y", typed(3), (I0,), ra.sum(read("x", I0, R0), R0)),
    ),
    "output `w` is defined by no statement": (EXPONENTIALS, TOTALS),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_program_that_does_not_fit_together_is_refused(said: str) -> None:
    with pytest.raises(GraphError, match=re.escape(said)):
        TensorProgram({"x": typed(3, LENGTH)}, REFUSED[said], ("w", "y"))


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(GraphError, match=re.escape("input `x` has shape (2, 5), where the program has (3, 5)")):
        interpret_program(PROGRAM, {"x": np.zeros((2, 5), "f")})
    with pytest.raises(GraphError, match=re.escape("input `x` is not given. The program reads x: pass each.")):
        interpret_program(PROGRAM, {})
    with pytest.raises(GraphError, match=re.escape("`w` is computed by sort, which is no tensor expression")):
        interpret_program(PROGRAM, {"x": np.zeros((3, 5), "f")})


# ---- views -----------------------------------------------------------------------------------------------------------


def shapes_of(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of so many elements."""
    divisors = [one for one in range(1, count + 1) if count % one == 0]
    return st.lists(st.sampled_from(divisors), min_size=0, max_size=4).map(
        lambda sizes: (*sizes, count // prod(sizes)) if count % max(prod(sizes), 1) == 0 else (count,)
    )


@given(st.sampled_from([1, 12, 30, 36]).flatmap(lambda count: st.tuples(shapes_of(count), shapes_of(count))))
def test_a_view_of_any_shape_is_a_change_of_indices(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Of groups that split, join, or do neither; with dimensions of one element anywhere."""
    old, new = (tuple(map(Integer, one)) for one in shapes)
    x = np.arange(prod(shapes[0]), dtype="f").reshape(shapes[0])
    axes = tuple(Axis(f"i{one}") for one in range(len(new)))
    view = TensorExpression("y", TensorType(new, "float32"), axes, Tensor("x")[reshape_place(old, new, axes)])
    program = TensorProgram({"x": TensorType(old, "float32")}, (view,), ("y",))
    np.testing.assert_array_equal(interpret_program(program, {"x": x})["y"], x.reshape(shapes[1]))


def test_sizes_that_are_symbols_split_and_join() -> None:
    """b·n rows of 24 as b of n rows of 4 heads of 6, whatever b and n are."""
    b, n = (Symbol(name, integer=True, positive=True) for name in "bn")
    axes = tuple(Axis(f"i{one}") for one in range(4))
    rows: Shape = (b * n, S(24))
    assert reshape_place(rows, (b, n, S(4), S(6)), axes) == (n * axes[0] + axes[1], 6 * axes[2] + axes[3])
    assert reshape_place((b, n, S(24)), (b, n, S(4), S(6)), axes)[:2] == axes[:2]


def test_a_view_of_another_number_of_elements_is_refused() -> None:
    with pytest.raises(GraphError, match=re.escape("has no view of shape (5,)")):
        reshape_place((S(2), S(3)), (S(5),), (I0,))


def test_a_dimension_of_one_element_is_repeated() -> None:
    assert broadcast((S.One, LENGTH), (R0, I0, I1)) == (S.Zero, I1)
    assert broadcast((), (I0, I1)) == ()
