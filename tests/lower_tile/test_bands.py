"""Bands are compared by differences where warps are specialised, in branches alone; and such kernels compile."""

from __future__ import annotations

import shutil
from itertools import product

import pytest
from sympy import And, Le, Lt, S, Symbol
from sympy.logic.boolalg import Boolean

import redalg as ra
from benchmarks.ahead import recorded_problems
from benchmarks.family import Problem
from redalg.expression import Where
from redalg.library import attention
from redalg.lower_tile.ir.program import Buffer, Kernel, Loop, Parallel, Store, nested_statements
from redalg.lower_tile.ir.scalars import Load
from redalg.lower_tile.workarounds.bands import bands_by_difference
from redalg.runtime.call.ahead import kernels_of_call
from redalg.runtime.compile.compile import compile_only
from redalg.runtime.lowered import Lowered

I, J, A, B = (Symbol(name, integer=True) for name in "ijab")
WINDOW = 512


def gradients_of_keys(width: int) -> Lowered:
    """The kernel of dK and dV under a window, of heads so wide."""
    k, q = ra.axes("k q")
    function = attention(mask=(k <= q) & (k > q - WINDOW))
    sizes = {"b": 4, "h": 16, "q": 4096, "k": 4096, "d": width, "e": width}
    shapes = dict.fromkeys("QKV", (4, 16, 4096, width))
    *_, last = recorded_problems(Problem(function, sizes, dict.fromkeys("QKV", "bfloat16"), shapes), "QKV")
    [lowered] = kernels_of_call(last.function.passes, "H200", last.sizes, last.dtypes, last.shapes)
    return lowered


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return gradients_of_keys(64)


def branches(kernel: Kernel) -> list[Where]:
    """What is masked in branches."""
    loops = (one for one in nested_statements(kernel.body) if isinstance(one, Parallel) and one.guard is not S.true)
    return [store.expr for one in loops for store in one.body if isinstance(store.expr, Where)]


def test_a_band_in_a_branch_is_compared_by_differences(lowered: Lowered) -> None:
    found = branches(lowered.program.kernels[0])
    assert len(found) == 2
    for mask in found:
        for bound in And.make_args(mask.condition):
            assert {str(one) for one in bound.lhs.free_symbols} == {"i", "j"}
            assert {str(one) for one in bound.rhs.free_symbols} == {"k_block", "t"}


def test_differences_hold_where_the_band_does(lowered: Lowered) -> None:
    """For every place about the corners of tiles."""
    mask = branches(lowered.program.kernels[0])[0]
    names = {str(one): one for one in mask.condition.free_symbols}
    for i, j, block, tile in product((0, 1, 63, 127), (0, 1, 64, 127), (0, 3), (0, 3, 4, 7, 8)):
        places = {names["i"]: i, names["j"]: j, names["k_block"]: block, names["t"]: tile}
        key, query = 128 * block + i, 128 * tile + j
        assert bool(mask.condition.subs(places)) == (key <= query and key > query - WINDOW)


def kernel_of(*bounds: Boolean, guard: Boolean = S.true) -> Kernel:
    """x[i, j] := where(bounds, x[i, j], 0) in a branch."""
    load = Load("x", I, J)
    each = Parallel(((I, 4), (J, 4)), (Store("x", (I, J), Where(And(*bounds), load, 0)),), guard)
    return Kernel((), (Buffer("x", "fragment", (4, 4), "float32"),), (Loop(B, 4, 0, (each,)),), "loop")


def test_other_masks_stay(lowered: Lowered) -> None:
    plan, data = lowered.source.plan, Load("lengths", A)
    assert plan.warp_specialized
    branch = Lt(A, B)
    for kernel in (
        kernel_of(Le(A + I, B + J), guard=branch),  # one bound
        kernel_of(Le(A + I, B + J), Lt(B + J, A + I + 4)),  # no branch
        kernel_of(Le(A + I, B + J), Lt(J, data), guard=branch),  # data
    ):
        assert bands_by_difference(kernel, plan) == kernel


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_gradients_under_a_window_compile(lowered: Lowered) -> None:
    """At d 64: TileLang refused a barrier after their loop."""
    [kernel] = compile_only(lowered.source)
    assert kernel.spill_bytes == 0
