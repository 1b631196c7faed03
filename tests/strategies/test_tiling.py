"""Tilings, their pruning and the memory-access DAG: MCFuser's own counts, and what must hold of any chain."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.strategies.model.chain import Block, Chain, Tensor, chain_of, products
from redalg.strategies.model.dag import COMPUTE, LOAD, STORE, loops_around, place, statements, tiling_expression
from redalg.strategies.model.tiling import Nest, deep, flat
from redalg.strategies.search.pruning import funnel, keeps_partial_tiles, sub_tiling, tilings
from redalg.strategies.search.tiling import PADDING, padding, tile_lengths
from tests.cases.kernels import fused

GEMMS = products("m", "k", "n", "h")
EXTENTS = {"m": 1024, "n": 1024, "k": 512, "h": 512}
A100_SMEM = 166912
LOOPS = "mknh"


# ---- MCFuser's example -----------------------------------------------------------------------------------------------


def test_the_funnel_of_two_products() -> None:
    found = funnel(GEMMS, EXTENTS, dict.fromkeys("ABCDE", 2), A100_SMEM)
    everything, once, small, unpadded, fitting = found.stages
    assert (len(everything.nests), everything.candidates) == (26, 109_051_904)
    assert (len(once.nests), len(small.nests)) == (5, 3)
    assert unpadded.candidates < 0.01 * small.candidates  # "Rule 3 discards 99 %"
    assert 10**3 < fitting.candidates < 10**4.5  # "from 10⁸ to 10⁴"
    assert [stage.candidates for stage in found.stages] == sorted(
        (one.candidates for one in found.stages), reverse=True
    )


def test_sub_tilings_of_two_products() -> None:
    found = {str(sub_tiling(GEMMS, nest)) for nest in (*deep(GEMMS), *flat(GEMMS))}
    assert found == {"nk", "kn", "nhk", "knh", "n(k, h)"}
    kept = {name for name in found if not keeps_partial_tiles(GEMMS, Nest(tuple(name)))} - {"n(k, h)"}
    assert kept == {"nk", "nhk"}


def test_the_paper_writes_statements_like_this() -> None:
    trips = dict.fromkeys("mnkh", 4)
    nested = Nest(("m", "h", "n", "k"))
    assert tiling_expression(place(GEMMS, nested, trips)) == "mh(n(k(L_A, L_B, C_C), L_D, C_E), S_E)"  # section III-B
    moved = {str(one.statement): "".join(one.around) for one in place(GEMMS, nested, {**trips, "k": 1})}
    assert moved["L_A"] == "m"  # Fig. 4 (b)
    branches = Nest(("m", "n"), (Nest(("k",)), Nest(("h",))))
    assert tiling_expression(place(GEMMS, branches, trips)) == "mn(k(L_A, L_B, C_C), h(L_D, C_E, S_E))"


def test_volume_of_the_store_that_is_moved() -> None:
    trips, tiles = {"m": 8, "n": 4, "k": 2, "h": 16}, {"m": 128, "n": 256, "k": 256, "h": 32}
    stores = {str(one.statement): one for one in place(GEMMS, Nest(("m", "h", "n", "k")), trips)}
    assert stores["S_E"].volume(trips, tiles) == 1024 * 512
    assert stores["L_A"].volume(trips, tiles) == 1024 * 512 * 16 * 4  # again for every h and n


# ---- any chain -------------------------------------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """One to three blocks in a row, each reducing a loop that the one before left to it."""
    count = draw(st.integers(1, 3))
    row, reduced, made = "m", "abc", list[Block]()
    for place_ in range(count):
        out = ("m", "xyz"[place_]) if place_ == count - 1 else (row, reduced[place_ + 1])
        taken = made[-1].output if made else Tensor("A", ("m", reduced[0]))
        weights = Tensor(f"W{place_}", (reduced[place_], out[1]))
        made.append(Block(Tensor(f"X{place_}", out), (taken, weights), (reduced[place_],)))
    return Chain(tuple(made))


@st.composite
def placements(draw: st.DrawFn) -> tuple[Chain, Nest, dict[str, int]]:
    chain = draw(chains())
    nests = [Nest(tuple(draw(st.permutations(chain.loops)))), *flat(chain)]
    return chain, draw(st.sampled_from(nests)), {loop: draw(st.sampled_from((1, 2, 5))) for loop in chain.loops}


@given(placements())
def test_statements_stand_within_their_loops_and_no_further(case: tuple[Chain, Nest, dict[str, int]]) -> None:
    chain, nest, trips = case
    blocks = {str(one): block for block, one in statements(chain)}
    for one in place(chain, nest, trips):
        live = {loop for loop in one.statement.loops if trips[loop] > 1}
        path = nest.path(blocks[str(one.statement)])
        assert live & set(path) <= set(one.around)
        assert not one.around or one.around[-1] in live  # one loop further out, and it would leave its scope
        assert all(trips[loop] > 1 for loop in one.around)


@given(placements())
def test_every_block_loads_then_computes_then_stores(case: tuple[Chain, Nest, dict[str, int]]) -> None:
    chain, nest, trips = case
    kinds = [(one.statement.kind, one.statement.tensor.name) for one in place(chain, nest, trips)]
    for block in chain.blocks:
        computed = kinds.index((COMPUTE, block.output.name))
        taken = [one.name for one in block.inputs]
        assert all(kinds.index((LOAD, name)) < computed for name in taken if (LOAD, name) in kinds)
        assert all(kinds.index((COMPUTE, name)) < computed for name in taken if (COMPUTE, name) in kinds)
    assert [kind for kind, _ in kinds].count(STORE) == len(chain.blocks) - len(chain.intermediates)


@given(placements(), st.sampled_from("mabc"))
def test_a_dead_loop_moves_nothing_more(case: tuple[Chain, Nest, dict[str, int]], loop: str) -> None:
    """What moves with a loop run once is at most what moves with it run many times, for the same tiles."""
    chain, nest, trips = case
    tiles = dict.fromkeys(chain.loops, 16)
    before = sum(one.volume(trips, tiles) for one in place(chain, nest, trips))
    once = {**trips, **({loop: 1} if loop in trips else {})}
    assert sum(one.volume(once, tiles) for one in place(chain, nest, once)) <= before


@given(st.integers(1, 3000), st.sampled_from((16, 32, 64)), st.integers(64, 1024))
def test_tiles_hardly_pad(extent: int, step: int, most: int) -> None:
    lengths = tile_lengths(extent, step, most)
    assert lengths
    for length in lengths:
        assert length % step == 0 or length == most
        assert padding(extent, length, step) <= PADDING or len(lengths) == 1


def test_powers_of_two_are_not_padded() -> None:
    assert all(extent % tile == 0 for extent in (64, 512, 4096) for tile in tile_lengths(extent, 16, extent))
    assert {prod(one.values()) > 0 for one in tilings(GEMMS, EXTENTS)} == {True}


# ---- chains of forms -------------------------------------------------------------------------------------------------


def test_attention_is_a_chain_of_two_products() -> None:
    chain = chain_of(fused("attention").form)
    scores, *state = chain.blocks
    assert (scores.output.loops, scores.reduced) == (("b", "h", "k", "q"), ("d",))
    assert {block.reduced for block in state} == {("k",)}
    assert ("b", "e", "h", "q") in {block.output.loops for block in state}
    assert chain.intermediates == {scores.output.name}
    assert not {"d", "k"} & set(chain.spatial)


PATHS = (("mhnk", "mk", ("m", "h", "n", "k")), ("mhnk", "", ()), ("mhnk", "x", ()), ("", "m", ()))


@pytest.mark.parametrize(("path", "loops", "around"), PATHS)
def test_within(path: str, loops: str, around: tuple[str, ...]) -> None:
    assert loops_around(path, loops) == around
