"""Attention as layers of transformers call it, without transformers: against PyTorch's operations in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.compiler import assume_constant_result

import redalg as ra
from redalg.library import transformers
from redalg.library.transformers import SlidingWindow, attention_forward

BATCH, HEADS, ROWS, COLUMNS, WIDTH = 2, 4, 5, 7, 3
SIZES = (BATCH, HEADS, ROWS, COLUMNS)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def layer(groups: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keys, values = (drawn(BATCH, HEADS // groups, COLUMNS, WIDTH, seed=seed) for seed in (1, 2))
    return drawn(BATCH, HEADS, ROWS, WIDTH), keys, values


def visible(mask: Any, *, causal: bool) -> torch.Tensor:
    """Where a key counts; the last query stands at the last key."""
    q, k = torch.arange(ROWS)[:, None] + COLUMNS - ROWS, torch.arange(COLUMNS)
    if isinstance(mask, SlidingWindow):
        return (k <= q) & (k > q - mask.size)
    if mask is None:
        return k <= q if causal else torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    return mask if mask.dtype == torch.bool else torch.ones(ROWS, COLUMNS, dtype=torch.bool)


def by_hand(
    query: Any, key: Any, value: Any, mask: Any, *, causal: bool, scaling: float | None = None,
    softcap: float | None = None, position_bias: Any = None, s_aux: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Attention [b,q,h,e] by PyTorch's operations."""
    key, value = (one.repeat_interleave(HEADS // one.shape[1], 1) for one in (key, value))
    s = query @ key.mT * (WIDTH**-0.5 if scaling is None else scaling)
    s = s if softcap is None else softcap * torch.tanh(s / softcap)
    s = s if position_bias is None else s + position_bias
    s = s + mask if torch.is_tensor(mask) and mask.is_floating_point() else s
    s = s.masked_fill(~visible(mask, causal=causal), -torch.inf)
    sinks = s.new_full((HEADS,), -torch.inf) if s_aux is None else s_aux
    weights = torch.cat([s, sinks[:, None, None].expand(BATCH, HEADS, ROWS, 1)], -1).softmax(-1)[..., :-1]
    return (weights @ value).transpose(1, 2)


MASKS = st.one_of(
    st.none(),
    st.builds(SlidingWindow, st.integers(1, 8)),
    st.tuples(*(st.booleans() for _ in range(3)), st.booleans()),
)


def mask_of(told: Any) -> Any:
    """A mask or a bias, which is repeated over some of its first three dimensions."""
    if not isinstance(told, tuple):
        return told
    *repeated, added = told
    shape = [1 if one else size for one, size in zip((*repeated, False), SIZES, strict=True)]
    return drawn(*shape, seed=3) if added else (drawn(*shape, seed=3) > -1).index_fill(3, torch.tensor([0]), value=True)


@given(
    MASKS, st.booleans(), st.sampled_from([1, 2, 4]), st.booleans(), st.sampled_from([None, 0.7]),
    st.sampled_from([None, 1.5]), st.sampled_from([None, 1, BATCH]),
)  # fmt: skip
def test_a_layer_s_attention_and_its_gradients(
    told: Any, causal: bool, groups: int, sinks: bool, scaling: float | None, softcap: float | None, biased: int | None
) -> None:
    tensors, mask = layer(groups), mask_of(told)
    options: dict[str, Any] = {"scaling": scaling, "softcap": softcap}
    options["s_aux"] = drawn(HEADS, seed=4) if sinks else None
    options["position_bias"] = None if biased is None else drawn(biased, HEADS, ROWS, COLUMNS, seed=5)
    found, weights = attention_forward(SimpleNamespace(is_causal=causal), *tensors, mask, sliding_window=3, **options)
    wanted = by_hand(*tensors, mask, causal=causal, **options)
    assert weights is None
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)
    leaves = [one for one in (*tensors, mask, *options.values()) if torch.is_tensor(one) and one.requires_grad]
    cotangent = drawn(*wanted.shape, seed=6).detach()
    for got, exact in zip(*(torch.autograd.grad(one, leaves, cotangent) for one in (found, wanted)), strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-10, atol=1e-11)


def test_one_query_sees_every_key_and_a_query_without_keys_gives_zero() -> None:
    query, key, value = layer(2)
    found, _ = attention_forward(SimpleNamespace(is_causal=True), query[:, :, :1], key, value, None)
    wanted = by_hand(query, key, value, None, causal=False)[:, :1]
    torch.testing.assert_close(found, wanted)
    mask = torch.ones(1, 1, ROWS, COLUMNS, dtype=torch.bool)
    mask[:, :, 1] = False
    found, _ = attention_forward(None, query, key, value, mask)
    assert not found[:, 1].any()


def test_functions_are_made_once() -> None:
    before = len(vars(transformers.FUNCTIONS))
    for scaling in (0.1, 0.2, 0.3):
        attention_forward(None, *layer(4), SlidingWindow(3), scaling=scaling, softcap=scaling)
    assert len(vars(transformers.FUNCTIONS)) <= before + 1


def test_a_graph_has_the_function_of_each_layer() -> None:
    """`register_with_transformers` marks the name of a function as a constant of a graph."""
    assume_constant_result(transformers.name_of_function)
    sinks = drawn(HEADS)

    def two_layers(query: Any, key: Any, value: Any) -> torch.Tensor:
        first, _ = attention_forward(None, query, key, value, SlidingWindow(3), s_aux=sinks)
        second, _ = attention_forward(None, first.transpose(1, 2), key, value, None, softcap=2.0)
        return second.square().sum()

    torch.compiler.reset()
    graph = torch.compile(two_layers, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        tensors = layer(2)
        found, wanted = graph(*tensors), two_layers(*tensors)
        torch.testing.assert_close(found, wanted)
        for got, exact in zip(*(torch.autograd.grad(one, tensors) for one in (found, wanted)), strict=True):
            torch.testing.assert_close(got, exact)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dropout": 0.1}, "dropout is given, and redalg drops no weights"),
        ({"output_attentions": True}, "output_attentions is given, and redalg makes no tensor of the weights"),
        ({"cu_seq_lens_q": torch.zeros(2)}, "a packed batch needs a mask"),
        ({"block_indices": torch.zeros(2)}, "redalg does not know this keyword. Name it in `ignore=`"),
    ],
)
def test_what_is_not_supported_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ra.InputError, match=said):
        attention_forward(None, *layer(1), None, **options)


def test_what_changes_nothing_is_taken() -> None:
    options: dict[str, Any] = {
        "dropout": 0.0,
        "output_attentions": False,
        "position_ids": torch.arange(5),
        "indices": None,
    }
    attention_forward(None, *layer(1), None, **options)
    attention_forward(None, *layer(1), None, block_indices=torch.zeros(2), ignore={"block_indices"})


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (torch.ones(ROWS, COLUMNS, dtype=torch.bool), r"4 dimensions \[b,h,q,k\] is needed, and its shape is \(5, 7\)"),
        ({"full_attention": None}, "a tensor is needed, and it is a dict"),
    ],
)
def test_a_mask_is_a_tensor_of_four_dimensions(mask: Any, said: str) -> None:
    with pytest.raises(ra.InputError, match=said):
        attention_forward(None, *layer(1), mask)
