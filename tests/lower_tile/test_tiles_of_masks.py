"""Blocks read the tiles that a mask leaves, and no others: windows of the call, and two ranges."""

from __future__ import annotations

import operator
import shutil
from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sympy import Eq, Integer, floor, oo

import redalg as ra
from redalg.lower_tile.check import interpret as interpreter
from redalg.lower_tile.ir.program import Region
from redalg.lower_tile.ir.scalars import Places
from redalg.lower_tile.place.expressions import among_places
from redalg.lower_tile.place.extent import RANGES
from redalg.runtime.compile.compile import compile_only
from redalg.strategies.levels import Grid, Loop, Parts, ScalarCores
from redalg.strategies.schedule import Schedule, with_choices

b, q, k, d, e = ra.axes("b q k d e")
Q, K, V = ra.tensors("Q[b,q,d] K[b,k,d] V[b,k,e]")
LENGTH = ra.tensor("length[b]")
WINDOW, SINK = ra.scalars("window sink")
BLOCK = 16
SPARE = 3
"""Tiles that a range may have beside those with live elements: an end that is rounded, and rows that have none."""
MASKS: dict[str, tuple[Any, Any]] = {
    "window of the call": ((k <= q) & (k > q - WINDOW), lambda q, k, given: (k <= q) & (k > q - given["window"])),
    "about the row": ((k < q + WINDOW) & (k >= q - 2 * SINK),
                      lambda q, k, given: (k < q + given["window"]) & (k >= q - 2 * given["sink"])),
    "window and first": ((k <= q) & ((k > q - WINDOW) | (k < 4)),
                         lambda q, k, given: (k <= q) & ((k > q - given["window"]) | (k < 4))),
    "window and first of the call": ((k <= q) & ((k >= q - 40) | (k < SINK)),
                                     lambda q, k, given: (k <= q) & ((k >= q - 40) | (k < given["sink"]))),
    "causal after a prefix": ((k <= q) | (k < LENGTH), lambda q, k, given: (k <= q) | (k < given["length"])),
    "two windows": (((k <= q) & (k > q - 20)) | ((k >= q + 50) & (k < q + 60)),
                    lambda q, k, _: ((k <= q) & (k > q - 20)) | ((k >= q + 50) & (k < q + 60))),
}  # fmt: skip
RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORMS = {
    name: ra.fuse(ra.sum(ra.softmax(ra.where(mask, ra.sum(Q * K, d), -oo), k) * V, k), axes="b q e")
    for name, (mask, _) in MASKS.items()
}


SEGMENT, BLOCKS = ra.Tensor("segment"), ra.Tensor("blocks")
KEPT = ra.tensor("kept[b,k]")
BY_DATA: dict[str, tuple[Any, Any]] = {
    "documents": (Eq(SEGMENT[b, q], SEGMENT[b, k]),
                  lambda q, k, given: given["segment"][0, q] == given["segment"][0, k]),
    "documents, causal": ((k <= q) & Eq(SEGMENT[b, q], SEGMENT[b, k]),
                          lambda q, k, given: (k <= q) & (given["segment"][0, q] == given["segment"][0, k])),
    "padding": (KEPT > 0, lambda q, k, given: (given["kept"][0, k] > 0) & (q >= 0)),
    "blocks": (BLOCKS[b, floor(q / 16), floor(k / 32)] > 0,
               lambda q, k, given: given["blocks"][0, q // 16, k // 32] > 0),
}  # fmt: skip
FORMS |= {
    name: ra.fuse(ra.sum(ra.softmax(ra.where(mask, ra.sum(Q * K, d), -oo), k) * V, k), axes="b q e")
    for name, (mask, _) in BY_DATA.items()
}


def read_tiles(name: str, data: dict[str, Any], parts: int) -> tuple[np.ndarray, dict[int, list[int]]]:
    """The output, and the tiles of V that each block of rows reads, in their order."""
    form, size = FORMS[name], data["V"].shape[1]
    sizes = {"b": 1, "q": size, "k": size, "d": 8, "e": 8}
    share = [Parts("k", parts)] if parts > 1 else []
    plan = Schedule(Grid("b"), Grid("q", BLOCK), Grid("e", BLOCK), *share, Loop("k", BLOCK), ScalarCores(1))
    dtypes = {one: str(array.dtype) for one, array in data.items() if np.ndim(array)}
    shapes = {one: data[one].shape for one in ("segment", "blocks") if one in data}
    lowered = form.lower("c", sizes=sizes, dtypes=dtypes, shapes=shapes, plan=plan)
    tiles = defaultdict[int, list[int]](list)
    read = interpreter._Block._read

    def recorded(block: Any, region: Region, *rest: float) -> Any:
        if region.name == "V":
            places = {str(variable): at for variable, at in block.variables.items()} | block.tiles
            rows = next(at for name, at in places.items() if name.startswith("q_block") and "turn" not in name)
            tiles[int(rows)].append([first for first, _, _ in block._spans(region)][1] // BLOCK)
        return read(block, region, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter._Block, "_read", recorded)
        return interpreter.interpret(lowered.program, data)["out"], tiles


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MASKS)
@settings(max_examples=6)
@given(size=st.integers(1, 100), window=st.floats(-20, 200) | st.just(np.inf), sink=st.floats(-3, 90),
       length=st.integers(0, 160), parts=st.sampled_from([1, 3]))  # fmt: skip
@example(size=100, window=30.0, sink=4.0, length=70, parts=1)
@example(size=100, window=float("nan"), sink=float("-inf"), length=0, parts=3)
def test_the_tiles_that_a_block_reads(
    name: str, size: int, window: float, sink: float, length: int, parts: int
) -> None:
    rng, mask = np.random.default_rng(size), MASKS[name][1]
    given = {"window": np.float32(window), "sink": np.float32(sink), "length": np.array([length], np.int32)}
    data: dict[str, Any] = {name: rng.standard_normal((1, size, 8)).astype(np.float32) for name in "QKV"}
    own = {one.name for one in (*FORMS[name].cascade.scalars(), *FORMS[name].cascade.elements())}
    data |= {key: one for key, one in given.items() if key in own}
    found, tiles = read_tiles(name, data, parts)
    wanted = FORMS[name].reference(**{key: one.astype(np.float64) if one.dtype == np.float32 else one
                                      for key, one in data.items()})  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    live = mask(np.arange(size)[:, None], np.arange(size)[None, :], {**given, "length": length})
    for rows in range(-(-size // BLOCK)):
        needed = set(np.flatnonzero(live[rows * BLOCK : (rows + 1) * BLOCK].any(axis=0)) // BLOCK)
        once = sorted(set(tiles[rows]))
        assert tiles[rows] == once
        assert needed <= set(once)
        assert len(once) <= len(needed) + SPARE * RANGES


@pytest.mark.parametrize("name", BY_DATA)
@settings(max_examples=6)
@given(size=st.integers(1, 100), seed=st.integers(0, 9), ordered=st.booleans(), share=st.sampled_from([0, 0.1, 1]))
def test_the_tiles_that_data_leaves(name: str, size: int, seed: int, ordered: bool, share: float) -> None:
    """Exactly those with a live element, also where ids are not sorted, and where a block has none."""
    rng = np.random.default_rng(seed)
    segment = rng.integers(0, 4 + size // 8, (1, size)).astype(np.int32)
    given = {
        "segment": np.sort(segment) if ordered else segment,
        "kept": (rng.uniform(size=(1, size)) < share).astype(np.int32),
        "blocks": (rng.uniform(size=(1, -(-size // 16), -(-size // 32))) < share).astype(np.int32),
    }
    own = {one.name for one in FORMS[name].cascade.elements()}
    data: dict[str, Any] = {key: one for key, one in given.items() if key in own}
    data |= {key: rng.standard_normal((1, size, 8)).astype(np.float32) for key in "QKV"}
    found, tiles = read_tiles(name, data, 1)
    exact = {key: one.astype(np.float64) if key in "QKV" else one for key, one in data.items()}
    np.testing.assert_allclose(found, FORMS[name].reference(**exact), rtol=1e-4, atol=1e-5)
    live = BY_DATA[name][1](np.arange(size)[:, None], np.arange(size)[None, :], given)
    for rows in range(-(-size // BLOCK)):
        needed = np.flatnonzero(live[rows * BLOCK : (rows + 1) * BLOCK].any(axis=0)) // BLOCK
        assert tiles[rows] == sorted(set(needed))


@pytest.mark.parametrize(
    "relation", [k <= WINDOW, k < WINDOW, k > q - WINDOW, q - k >= WINDOW, k < q + WINDOW], ids=str
)
@pytest.mark.parametrize("window", [-2.5, -1.0, 0.0, 2.0, 2.5, 2.0**40, np.inf, -np.inf, np.nan])
def test_a_relation_of_places_and_a_scalar_is_one_of_integers(relation: Any, window: float) -> None:
    exact = among_places(relation)
    assert exact is not None
    for row, place in product(range(4), range(6)):
        difference = float((relation.lhs - relation.rhs).subs({q: row, k: place, WINDOW: 0}))
        sign = float((relation.lhs - relation.rhs).coeff(WINDOW))
        wanted = RELATIONS[relation.rel_op](difference, -sign * window)
        [node] = exact.atoms(Places)
        scalar, beyond = node.args
        rounded = int(interpreter.whole_place(np.float64(float(scalar.coeff(WINDOW)) * window), int(beyond)))
        assert bool(exact.xreplace({node: Integer(rounded), q: Integer(row), k: Integer(place)})) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["padding", "documents, causal", "window and first of the call", "blocks"])
def test_sizes_may_change_from_call_to_call(name: str) -> None:
    rng = np.random.default_rng(0)
    own = {one.name for one in (*FORMS[name].cascade.elements(), *FORMS[name].cascade.scalars())}
    for size in (40, 70, 7):
        given = {
            "segment": np.sort(rng.integers(0, 4, (1, size))).astype(np.int32),
            "kept": (rng.uniform(size=(1, size)) < 0.5).astype(np.int32),
            "blocks": rng.integers(0, 2, (1, -(-size // 16), -(-size // 32))).astype(np.int32),
            "sink": 4.0,
            "window": 9.0,
        }
        data: dict[str, Any] = {key: one for key, one in given.items() if key in own}
        data |= {key: rng.standard_normal((1, size, 8)).astype(np.float32) for key in "QKV"}
        np.testing.assert_allclose(FORMS[name](**data, backend="tilelang"), FORMS[name].reference(**data),
                                   rtol=1e-4, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize(("size", "staged"), [(512, True), (511, False)])
def test_specialised_warps_take_no_tile_that_threads_copy(size: int, staged: bool) -> None:
    """TileLang releases such a tile before its last read: rows of 511 integers begin at no multiple of 16 bytes."""
    form, sizes = FORMS["documents"], {"q": size, "k": size, "b": 2, "d": 64, "e": 64}
    dtypes = {**dict.fromkeys("QKV", "float16"), "segment": "int32"}
    options: dict[str, Any] = {"sizes": sizes, "dtypes": dtypes, "shapes": {"segment": (2, size)}}
    plan = with_choices(form.lower("sm_90a", **options).plan, stages=2, warp_specialized=True, block_row=64,
                        block_streamed=64, threads=128, segments=1)  # fmt: skip
    stream = form.lower("sm_90a", **options, plan=plan).program.kernels[-1]
    assert any(one.name.startswith("segment_tile") for one in stream.buffers) == staged


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_tiles_of_three_warpgroups_compare_integers() -> None:
    """The ends of 192 integers: TileLang reduces a power of two of them alone, which divides the threads."""
    form, size = FORMS["documents, causal"], 400
    sizes = {"q": size, "k": size, "b": 1, "d": 64, "e": 64}
    options: dict[str, Any] = {"sizes": sizes, "dtypes": {**dict.fromkeys("QKV", "float16"), "segment": "int32"},
                               "shapes": {"segment": (1, size)}}  # fmt: skip
    plan = with_choices(form.lower("H200", **options).plan, stages=1, warp_specialized=True, block_row=192,
                        block_streamed=64, threads=384, segments=1)  # fmt: skip
    lowered = form.lower("H200", **options, plan=plan)
    assert all(one.spill_bytes == 0 for one in compile_only(lowered.source))
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {key: rng.standard_normal((1, size, 64)).astype(np.float16) for key in "QKV"}
    data["segment"] = np.sort(rng.integers(0, 5, (1, size))).astype(np.int32)
    exact = {key: one.astype(np.float64) if key in "QKV" else one for key, one in data.items()}
    found = interpreter.interpret(lowered.program, data)["out"]
    np.testing.assert_allclose(found, form.reference(**exact), atol=4e-3)


@pytest.mark.parametrize(
    ("name", "varying", "target", "wanted"),
    [("two windows", [], "H200", False), ("two windows", ["q", "k"], "H200", True),
     ("window and first", [], "H200", True), ("window and first", [], "c", False)],
)  # fmt: skip
def test_bounds_of_two_ranges_that_a_run_tells_are_variables(
    name: str, varying: list[str], target: str, *, wanted: bool
) -> None:
    """A kernel of such ranges took TileLang's solver minutes to compile, of two ranks' pieces (`workarounds.known`)."""
    sizes = {"q": 8, "k": 7, "b": 1, "d": 4, "e": 3}
    lowered = FORMS[name].lower(target, sizes, "float32", varying=varying)
    variables = [line for line in str(lowered.source).splitlines() if 'T.alloc_var("int32"' in line]
    assert any("other_stop" in line for line in variables) == bool(variables) == wanted


def test_tiles_that_data_choose_are_listed_where_products_are_split() -> None:
    """The workspaces of the list came to no program."""
    i = ra.axes("i")
    scores = ra.sum(ra.tensor("h[b,d]") * ra.tensor("w[i,d]"), d)
    form = ra.fuse(ra.sum(ra.where(ra.ne(ra.tensor("t[i]"), 0), scores**2, 0), i), axes="b")
    dtypes = {"h": "float16", "w": "float16", "t": "int32"}
    lowered = form.lower("sm_90a", {"b": 16, "i": 200, "d": 8192}, dtypes)
    assert {"sum_d_0_parts", "marks", "live_tiles"} <= {one.name for one in lowered.program.parameters}
    generator = np.random.default_rng(0)
    data = {name: (generator.standard_normal((rows, 8192)) / 64).astype(np.float16)
            for name, rows in (("h", 16), ("w", 200))}  # fmt: skip
    data["t"] = (np.arange(200) // 64 % 2).astype(np.int32)
    values = (data["h"].astype(float) @ data["w"].astype(float).T) ** 2 * (data["t"] != 0)
    np.testing.assert_allclose(interpreter.interpret(lowered.program, data)["out"], values.sum(1), rtol=2e-3)
