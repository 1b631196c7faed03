"""Models of transformers with attention by redalg: logits, gradients, generation and graphs, beside other attention.

Small models with random weights. In float32 the other attention is the models' own (`eager`); in float64, where `eager`
takes its softmax in float32 and masks by a number that overflows there, it is a definition written here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, DynamicCache
from transformers.masking_utils import sdpa_mask

import redalg as ra
from docs.generate.blocks import python_blocks
from redalg.library import register_with_transformers
from redalg.library.transformers import FUNCTIONS, SlidingWindow, mask_forward
from tests.house.source import ROOT

register_with_transformers()

VOCABULARY, LENGTH, WINDOW, PADDED = 61, 17, 5, 4
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
GEMMA = {**COMMON, "sliding_window": WINDOW, "query_pre_attn_scalar": 16}
CONFIGURATIONS = {
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **COMMON,
        sliding_window=WINDOW,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_theta": 1e4, "rope_type": "default"},
    ),
    "gemma 2": lambda: transformers.Gemma2Config(**GEMMA, attn_logit_softcapping=2.0),
    "gemma 3": lambda: transformers.Gemma3TextConfig(**GEMMA),
}
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}
models = pytest.mark.parametrize("name", CONFIGURATIONS)


def defined_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float, softcap: float | None = None,
    s_aux: Any = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention by its definition, in the dtype of its tensors."""
    key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    s = query @ key.mT * scaling
    s = s if softcap is None else softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~attention_mask, -torch.inf)
    if s_aux is not None:
        s = torch.cat([s, s_aux[:, None, None].expand(*s.shape[:3], 1)], -1)
    weights = (s - s.amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    weights = (weights / weights.sum(-1, keepdim=True).clamp(min=1e-300))[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("defined", defined_attention)
AttentionMaskInterface.register("defined", lambda **told: sdpa_mask(**{**told, "allow_is_causal_skip": False}))


def pair(name: str, dtype: torch.dtype, *, experts: str = "eager") -> tuple[Any, Any]:
    """A model with attention by redalg, and one with other attention and the same weights."""
    config, found = CONFIGURATIONS[name](), []
    for attention in ("redalg", "eager" if dtype == torch.float32 else "defined"):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            copy.deepcopy(config), attn_implementation=attention, experts_implementation=experts
        )
        found.append(model.to(dtype).eval())
    mine, other = found
    mine.load_state_dict(other.state_dict())
    return mine, other


def tokens() -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def kept(*, padded: bool) -> torch.Tensor:
    """Where a token is no padding, of which the first row has some on its left."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, : PADDED * padded] = 0
    return mask


def logits_and_gradients(model: Any, mask: torch.Tensor, run: Any = None) -> Iterator[torch.Tensor]:
    """The logits of tokens, and the gradients of all parameters of a loss over them."""
    live, ids = mask.bool(), tokens()
    call = model if run is None else run
    logits = call(input_ids=ids, attention_mask=mask, use_cache=False).logits[live]
    loss = torch.nn.functional.cross_entropy(logits, ids.roll(-1, 1)[live])
    parameters = [one for one in model.parameters() if one.requires_grad]
    yield logits.detach()
    yield from torch.autograd.grad(loss, parameters, allow_unused=False)


@models
@pytest.mark.parametrize("padded", [False, True], ids=["all tokens", "left padding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logits_and_gradients(name: str, padded: bool, dtype: torch.dtype) -> None:
    mine, other = (logits_and_gradients(one, kept(padded=padded)) for one in pair(name, dtype))
    for got, exact in zip(mine, other, strict=True):
        assert float((got - exact).abs().max()) <= TOLERANCE[dtype] * max(1e-3, float(exact.abs().max()))


@models
@pytest.mark.parametrize(
    "options",
    [{}, {"cache_implementation": "static"}, {"num_beams": 3}, {"use_cache": False}],
    ids=["dynamic cache", "static cache", "beams", "no cache"],
)
@pytest.mark.parametrize("padded", [False, True], ids=["all tokens", "left padding"])
def test_greedy_tokens(name: str, options: dict[str, Any], padded: bool) -> None:
    """12 more tokens: the sliding caches are full and drop keys."""
    mine, other = (
        model.generate(tokens(), attention_mask=kept(padded=padded), max_new_tokens=12, do_sample=False, **options)
        for model in pair(name, torch.float64)
    )
    assert torch.equal(mine, other)


@models
def test_a_prompt_in_two_parts(name: str) -> None:
    """The second part has more keys than queries."""
    found = []
    for model in pair(name, torch.float64):
        cache = DynamicCache(config=model.config)
        for part in tokens().split(9, 1):
            logits = model(input_ids=part, cache=cache).logits
        found.append(logits)
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)


@models
def test_a_packed_batch(name: str) -> None:
    """Two sequences in a row, which transformers reads off the positions."""
    positions = torch.cat([torch.arange(9), torch.arange(LENGTH - 9)])[None].expand(2, -1)
    mine, other = (
        one(input_ids=tokens(), position_ids=positions, use_cache=False) for one in pair(name, torch.float64)
    )
    torch.testing.assert_close(mine.logits, other.logits, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "gemma 2"])
@pytest.mark.parametrize("padded", [False, True], ids=["all tokens", "left padding"])
def test_a_graph_without_breaks(name: str, padded: bool) -> None:
    torch.compiler.reset()
    mine, other = pair(name, torch.float32, experts="batched_mm")
    graph = torch.compile(mine, fullgraph=True, backend="aot_eager")
    mask = kept(padded=padded)
    for got, exact in zip(logits_and_gradients(mine, mask, graph), logits_and_gradients(other, mask), strict=True):
        assert float((got - exact).abs().max()) <= 5e-6 * max(1e-3, float(exact.abs().max()))


def test_masks_of_positions_are_conditions() -> None:
    """Without padding no tensor of a mask is made: the functions have none."""
    vars(FUNCTIONS).clear()
    for name in CONFIGURATIONS:
        pair(name, torch.float32)[0](input_ids=tokens())
    cascades = [one.cascade for one in vars(FUNCTIONS).values()]
    assert any("window" in str(one) for one in cascades)
    assert not any({"mask", "bias"} & set(one.inputs()) for one in cascades)


def test_the_mask_function_is_told_by_its_code() -> None:
    from transformers.masking_utils import and_masks, causal_mask_function, sliding_window_causal_mask_function

    told: dict[str, Any] = {"batch_size": 1, "q_length": 9, "kv_length": 9, "q_offset": 0, "kv_offset": 0}
    window = sliding_window_causal_mask_function(4)
    assert mask_forward(**told, mask_function=causal_mask_function) is None
    assert mask_forward(**told, mask_function=window) == SlidingWindow(4)
    assert mask_forward(**told, mask_function=sliding_window_causal_mask_function(9)) is None
    others = [
        {**told, "mask_function": window, "allow_is_causal_skip": False},
        {**told, "mask_function": window, "q_offset": 3, "kv_length": 13},
        {**told, "mask_function": window, "attention_mask": torch.arange(9)[None] > 1},
        {**told, "mask_function": and_masks(lambda b, h, q, k: k != 2, causal_mask_function)},
    ]
    for one in others:
        torch.testing.assert_close(mask_forward(**one), sdpa_mask(**{**one, "allow_is_causal_skip": False}))


def test_what_redalg_does_not_do_is_refused() -> None:
    model = pair("llama", torch.float32)[0]
    with pytest.raises(ra.InputError, match="output_attentions is given"):
        model(input_ids=tokens(), output_attentions=True)
    dropped = AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**COMMON, attention_dropout=0.1), attn_implementation="redalg"
    )
    dropped.eval()(input_ids=tokens())
    with pytest.raises(ra.InputError, match="dropout is given"):
        dropped.train()(input_ids=tokens())


def test_other_masks_of_the_model_are_taken() -> None:
    """Truth values or numbers that are added, [b,1,q,k]."""
    mine, other = pair("llama", torch.float32)
    seen = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    seen[1, :, :, 3] = False
    seen[1, :, 3, 3] = True
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    wanted = other(input_ids=tokens(), attention_mask=added).logits
    for mask in (seen, added):
        torch.testing.assert_close(mine(input_ids=tokens(), attention_mask=mask).logits, wanted, rtol=1e-5, atol=1e-6)


def test_the_code_of_the_documents_runs() -> None:
    """The blocks that need transformers, which tests/benchmarks/test_readme.py does not run."""
    page = (ROOT / "docs" / "TRAINING.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    for block in python_blocks(page, "py"):
        exec(compile(block, "TRAINING.md", "exec"), namespace)
    assert namespace["model"](input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 128)
