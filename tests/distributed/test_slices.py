"""Slices of states, which ranks merge for each other: outputs to the last bit as of whole states, errors on all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.distributed import slices
from redalg.distributed.packed import message_packing
from redalg.distributed.slices import choose_slices
from redalg.runtime.bind.leaf import read_piece
from tests.distributed.cases import as_arrays, fused, j, n, split_call, x
from tests.distributed.pool import Pool, ranks
from tests.distributed.test_again import told_by

SLICED = ("variance", "logsumexp", "argmax", "topk", "first and last", "affine", "correlation", "softmax", "furthest")
"""Cases of rows that two ranks share evenly."""
X, V = ra.tensors("X[b,n] V[n,e]")
products = ra.fuse(ra.sum(X * V, n), axes="b e")


def with_slices(rank: int, size: int, call: Any, *args: Any) -> Any:
    """What a rank's function gives if slices are as good as free; and how many calls had them."""
    chosen = []

    def choose(*given: Any) -> Any:
        chosen.append(choose_slices(*given))
        return chosen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "sliced_us", lambda *_: -1.0)
        patch.setattr("redalg.distributed.call.choose_slices", choose)
        return call(rank, size, *args), sum(one is not None for one in chosen)


@pytest.mark.parametrize("name", SLICED)
def test_outputs_are_those_of_whole_states(two: Pool, name: str) -> None:
    for seed, lengths in enumerate(([6, 7], [0, 9])):
        whole = two.values(split_call, name, lengths, seed)
        for plain, (found, number) in zip(whole, two.values(with_slices, split_call, name, lengths, seed), strict=True):
            assert number == 1
            for output, want in zip(found, plain, strict=True):
                np.testing.assert_array_equal(output, want)


def uneven_call(rank: int, size: int, rows: int) -> list[np.ndarray]:
    data = torch.randn(rows, 13, generator=torch.Generator().manual_seed(rows))
    return as_arrays(fused("variance").distributed(axis=n)(x=data[:, 6 * rank : 6 * rank + 6 + rank]))


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_rows_that_ranks_do_not_divide_are_cut_too(two: Pool, rows: int) -> None:
    whole = two.values(uneven_call, rows)
    for [plain], ([found], number) in zip(whole, two.values(with_slices, uneven_call, rows), strict=True):
        assert number == 1
        np.testing.assert_array_equal(found, plain)


def parts_call(rank: int, size: int) -> list[np.ndarray]:
    data = torch.arange(32.0).reshape(2, 16)[:, 8 * rank : 8 * rank + 8] ** 1.5
    return as_arrays(fused("variance").distributed(axis=n, deterministic=4)(x=data))


def test_parts_of_fixed_length_are_cut_too(two: Pool) -> None:
    whole = two.values(parts_call)
    for [plain], ([found], number) in zip(whole, two.values(with_slices, parts_call), strict=True):
        assert number == 1
        np.testing.assert_array_equal(found, plain)


def calls_that_fail(rank: int, size: int) -> Any:
    """A call; one that fails on the last rank; one of another kind on that rank; a call of that kind on all."""
    call, data = fused("variance").distributed(axis=n), torch.randn(2, 5, generator=torch.Generator().manual_seed(rank))
    last = rank == size - 1
    first = as_arrays(call(x=data))
    failed = told_by(lambda: call(x=data, **({"empty": "none"} if last else {})))
    wide = data.double() if last else data
    other = told_by(lambda: call(x=wide))
    return first, failed, other, as_arrays(call(x=data.double()))


def test_errors_are_told_on_all_ranks(two: Pool) -> None:
    whole, sliced = two.values(calls_that_fail), two.values(with_slices, calls_that_fail)
    for plain, (found, _) in zip(whole, sliced, strict=True):
        assert found[1:3] == plain[1:3]
        assert found[1]
        assert found[2]
        for place in (0, 3):
            np.testing.assert_array_equal(found[place], plain[place])


def chosen(function: ra.Fused, parts: int, size: int, **tensors: torch.Tensor) -> slices.Slices | None:
    piece, form = read_piece(function.form, tensors, {}, {}), function.form
    packing = message_packing(form.slots, piece.bound.sizes, piece.bound.compute, far=False)
    return choose_slices(form, piece.bound.sizes, packing, (parts, size), "c")


def test_large_states_are_cut_where_it_is_sooner() -> None:
    large, column = torch.empty(4096, 4), torch.empty(4, 4096)
    found = chosen(products, 1, 4, X=large, V=column)
    assert found is not None
    assert (str(found.axis), found.length, found.packing.nbytes) == ("b", 1024, found.whole.nbytes // 4)
    assert chosen(products, 1, 4, X=large[:16], V=column[:, :16]) is None  # the second collective costs more
    assert chosen(products, 1, 2, X=large, V=column) is None  # two ranks send as much
    assert chosen(products, 1, 1, X=large, V=column) is None
    odd = chosen(products, 1, 4, X=large[:4095], V=column)
    assert odd is not None
    assert (str(odd.axis), odd.length, odd.size) == ("e", 1024, 4096)  # the shortest slices are those of columns


def test_what_is_not_cut() -> None:
    """Neither a list of the best, of which no slice has its own, nor rows whose places count."""
    listed = ra.fuse(ra.topk(x, n, j)[0], axes="b j")
    assert [str(axis) for axis in slices.axes_of_rows(listed.form)] == ["b"]
    q = ra.axes("q")
    causal = ra.fuse(ra.sum(ra.where(n <= q, ra.tensor("Y[q,n]"), 0), n))
    assert not slices.may_be_cut(q, causal.form, {"q": 8})
    assert not slices.may_be_cut(n, listed.form, {"b": 8})


@given(size=st.integers(0, 40), ranks=st.integers(1, 9))
def test_slices_of_all_ranks_hold_every_row_and_each_keeps_its_chunk(size: int, ranks: int) -> None:
    form = ra.fuse(ra.sum(ra.tensor("w[b,n]"), n)).form
    packing = message_packing(form.slots, {"b": size}, "float32", far=False)
    cut = slices.slices_along(ra.axes("b"), form, packing, size, ranks)
    rows = torch.arange(size)
    spans = [rows[slice(*cut.span(number))] for number in range(ranks)]
    assert {len(one) for one in spans} == {cut.length}
    assert set(torch.cat(spans).tolist()) == {*range(size)}
    own = [cut.keep_own(number, one, 0).tolist() for number, one in enumerate(spans)]
    chunks = [one.tolist() for one in rows.chunk(ranks)] if size else []
    assert own == chunks + [[]] * (ranks - len(chunks))


def targets_call(rank: int, size: int) -> Any:
    """A call of ranks whose cards differ, and the card by which each chose."""
    chosen = []

    def choose(*given: Any) -> Any:
        chosen.append(given[-1])
        return choose_slices(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redalg.distributed.call.target_of_rank", lambda _: ("H100", "A10")[rank])
        patch.setattr("redalg.distributed.call.choose_slices", choose)
        call = fused("variance").distributed(axis=n)
        return chosen, as_arrays(call(x=torch.ones(2, 3)))


def test_ranks_of_several_cards_choose_alike(two: Pool) -> None:
    """By a card of its own one rank might send slices, and another whole states, and both would wait."""
    for chosen_by, [output] in two.values(targets_call):
        assert chosen_by == ["H100"]
        assert output.tolist() == [0, 0]


@pytest.mark.slow
def test_four_ranks_merge_slices(tmp_path) -> None:
    with ranks(4, tmp_path) as pool:
        whole = pool.values(large_call)
        for other in whole[1:]:
            np.testing.assert_array_equal(other, whole[0])
        data, columns = products_data()
        np.testing.assert_allclose(whole[0], data @ columns, rtol=1e-9)


def products_data() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(1024, 12)), generator.normal(size=(12, 1024))


def large_call(rank: int, size: int) -> Any:
    data, columns = (torch.from_numpy(one) for one in products_data())
    part = slice(3 * rank, 3 * rank + 3)
    call = products.distributed(axis=n)
    found = call(X=data[:, part].contiguous(), V=columns[part])
    agreed = call._protocol.last
    assert agreed is not None
    assert agreed.terms.slices is not None
    return found.numpy()
