"""Tiles that a mask leaves whole are not masked, and blocks with many tiles start first."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import And, Eq, Expr, Integer, Ne, Or, oo, symbols
from sympy.logic.boolalg import Boolean

import redalg as ra
from redalg.lower_tile.ir.intervals import end_of_side, holds_for_all, index_ranges, opposite
from redalg.lower_tile.ir.scalars import Load
from redalg.strategies.levels import Grid, Loop, Parts, TensorCores
from redalg.strategies.schedule import Schedule
from tests.sweeps import draws

b, h, q, k, d, e = ra.axes("b h q k d e")
Q, K, V = ra.tensors("Q[b,h,q,d] K[b,h,k,d] V[b,h,k,e]")
LENGTH, KEPT = ra.tensors("length[b] kept[b,k]")
SIZES = {"b": 2, "h": 16, "q": 4096, "k": 4096, "d": 64, "e": 64}

I, J, T = symbols("i j t", integer=True)
EXTENTS = {I: 4, J: 8}
SIDES = st.builds(
    lambda i, j, t, rest: i * I + j * J + t * T + rest, *(st.integers(-2, 2) for _ in "ij"), st.integers(-8, 8),
    st.integers(-20, 20),
)  # fmt: skip
RELATIONS = st.builds(
    lambda relation, low, high: relation(low, high),
    st.sampled_from([Expr.__lt__, Expr.__le__, Expr.__gt__, Expr.__ge__, Ne, Eq]), SIDES, SIDES,
)  # fmt: skip
CONDITIONS = st.recursive(
    RELATIONS, lambda inner: st.builds(lambda kind, parts: kind(*parts), st.sampled_from([And, Or]),
                                       st.lists(inner, min_size=2, max_size=3)), max_leaves=4,
)  # fmt: skip


@settings(max_examples=draws(300), deadline=None)
@given(condition=CONDITIONS, tile=st.integers(-3, 3))
def test_a_whole_tile_holds_the_condition_everywhere(condition: Boolean, tile: int) -> None:
    whole = holds_for_all(condition, index_ranges(EXTENTS), set())
    if whole is None:
        return
    assert not whole.free_symbols & set(EXTENTS)
    everywhere = all(
        bool(condition.subs({I: i, J: j, T: tile})) for i, j in product(range(EXTENTS[I]), range(EXTENTS[J]))
    )
    at_tile = bool(whole.subs(T, tile))
    assert everywhere or not at_tile
    assert bool(opposite(whole).subs(T, tile)) != at_tile


def test_what_is_not_known_of_a_tile() -> None:
    data, length = Load("x", J), Load("length")
    assert holds_for_all(data > 0, index_ranges(EXTENTS), {"x"}) is None
    assert holds_for_all(And(J < 4, data > 0), index_ranges(EXTENTS), {"x"}) is None
    assert holds_for_all(Or(T > 2, data > 0), index_ranges(EXTENTS), {"x"}) == (T > 2)
    assert holds_for_all(length > J, index_ranges(EXTENTS), set()) is None  # a float: NaN is neither less nor more
    assert holds_for_all(length > J, index_ranges(EXTENTS), {"length"}) == (Integer(7) < length)
    assert holds_for_all(I * J < 4, index_ranges(EXTENTS), set()) is None
    assert end_of_side(2 * I - J + T, index_ranges(EXTENTS), largest=True) == T + 6


def scores(mask: Boolean) -> ra.Fused:
    """Attention under a mask."""
    s = ra.where(mask, ra.sum(Q * K, d) / 8, -oo)
    return ra.fuse(ra.sum(ra.softmax(s, k) * V, k), axes="b h q e")


def dtypes_of(form: ra.Fused) -> dict[str, str]:
    """Tensors of 16 bits, and of integers where they mask."""
    return {name: "float16" if name in ("Q", "K", "V") else "int32" for name in form.cascade.inputs()}


def source(form: ra.Fused, **sizes: int) -> str:
    """The kernels that the rules choose."""
    text = form.source("sm_90a", sizes=SIZES | sizes, dtypes=dtypes_of(form))
    return text[text.index("with T.Kernel") :]


def loop_of(mask: Boolean) -> str:
    """The loop over the tiles, and what follows."""
    text = source(scores(mask))
    return text[text.index("in T.Pipelined") :]


@pytest.mark.parametrize("mask", [k <= q, (k <= q) & (k > q - 200), k < LENGTH, (k < 500) | (k > q)], ids=str)
def test_a_mask_of_places_is_asked_once_for_a_tile(mask: Boolean) -> None:
    loop = loop_of(mask)
    asked, masked = loop.split("    if ", 1)[1].split(":\n", 1)
    assert not set("ij") & set(asked.split())
    assert "T.if_then_else" in masked.split("T.copy")[0]
    assert loop.count("sum_d_0") == 0  # the product lies where the masked scores do


def test_warps_that_load_within_a_tile_stand_in_no_other_loop() -> None:
    blocks = Grid(b), Grid(h), Grid(q, 128), Grid(e, 64), Parts(k, 32)
    plan = Schedule(*blocks, Loop(k, 128, stages=4, specialised=True), Loop(d, 32), TensorCores(256))
    form = scores(k <= q)
    text = form.source("sm_90a", sizes=SIZES, dtypes=dtypes_of(form), plan=plan)
    kernel = text[text.index("with T.Kernel") : text.index("merge the parts")]
    assert kernel.count("in T.serial(") == 0
    assert kernel.count("in T.Pipelined(2, num_stages=4)") == 1
    assert "T.if_then_else(z * 128 + j <= q_block * 128 + i" in kernel


def test_an_operand_is_masked_for_its_product_alone() -> None:
    loop = loop_of(k < LENGTH)
    assert loop.count("contract(operand, V_tile,") == loop.count("contract(operand, operand_1,") == 1


def test_a_mask_by_data_is_asked_of_the_list() -> None:
    loop = loop_of(KEPT > 0)
    assert loop.count("% 2 != 1:") == 3
    assert loop.count("% 2 == 1:") == 1


def test_tiles_without_a_mask_have_no_cases() -> None:
    plain = ra.fuse(ra.sum(ra.softmax(ra.sum(Q * K, d) / 8, k) * V, k), axes="b h q e")
    assert "    if " not in source(plain).split("def compiled")[0]


@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200])
def test_what_a_mask_hides_in_part_of_a_tile_stays_hidden(length: int, hidden: float) -> None:
    form, generator = scores(k < LENGTH), np.random.default_rng(0)
    data = {key: generator.standard_normal((1, 1, 200, 16)).astype(np.float32) for key in "QKV"}
    spoilt = {key: one.copy() for key, one in data.items()}
    spoilt["K"][:, :, length:] = spoilt["V"][:, :, length:] = hidden
    lengths = np.array([length], np.int32)
    got = form(**spoilt, length=lengths, backend="tilelang")
    np.testing.assert_allclose(got, form.reference(**data, length=lengths), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "heads", "grid"),
    [(k <= q, 16, "(h, b, q_block_turn)"), (k >= q, 16, "(h, b, q_block)"), (k <= q, 4096, "(q_block_turn, h, b)"),
     ((k <= q) & (k > q - 200), 16, "(q_block, h, b)"), (k < LENGTH, 16, "(q_block, h, b)")],
)  # fmt: skip
def test_blocks_with_many_tiles_start_first(mask: Boolean, heads: int, grid: str) -> None:
    text = source(scores(mask), h=heads)
    assert text.split(" as ")[1].split(":")[0] == grid
    assert ("q_block = " in text) == ("turn" in grid)


@pytest.mark.parametrize(("batches", "grid"), [(2, "(h, b, q_block_turn)"), (512, "(h, q_block_turn, b)")])
def test_blocks_of_any_number_of_batches_start_as_those_of_the_planned_one(batches: int, grid: str) -> None:
    """The batches of the call that a kernel is planned for decide what its blocks read together."""
    sizes = {"b": batches, "h": 16, "q": 4096, "k": 4096, "d": 64, "e": 64}
    text = str(scores(k <= q).source("H200", sizes=sizes, dtypes="float16", varying=("b",)))
    extents, variables = text[text.index("T.Kernel(") :].split(":", maxsplit=1)[0].split(" as ")
    assert variables == grid
    assert extents.startswith("T.Kernel(16, ")
    assert "b_size" in extents
