"""Models of transformers as programs of tensor expressions: what is left to PyTorch, and eager PyTorch's numbers.

Small models with random weights. Memory-intensive is what is neither a convolution nor a product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from redalg.graphs.analysis import Kind
from redalg.graphs.interpret import interpret_program
from tests.graphs.test_exploration import check_plan, found_in
from tests.torch.test_aten import exported

EAGER = {"attn_implementation": "eager", "vocab_size": 1000}
ROWS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**ROWS, **EAGER, "num_key_value_heads": 2, "intermediate_size": 96, "bos_token_id": 1, "eos_token_id": 2}
LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "moe_intermediate_size": 32, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
MULTIPLIED = {"convolution", "grouped_mm_fallback"}


class OnStates(nn.Module):
    """A language model, called on hidden states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(inputs_embeds=x, use_cache=False).last_hidden_state


class OnTokens(OnStates):
    """An encoder, called on tokens and a mask of those that count."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.model(ids, attention_mask=mask).last_hidden_state


class OnPictures(OnStates):
    """A model of pictures."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=x).last_hidden_state


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[:, 9:] = 0
    return torch.randint(0, 1000, (2, 12)), mask


def states(batch: int = 2) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 12, 64),)


def pictures(size: int = 32) -> tuple[torch.Tensor]:
    return (torch.randn(2, 3, size, size),)


def bert(**options: Any) -> nn.Module:
    config = transformers.BertConfig(**ROWS, **options, intermediate_size=128)
    return OnTokens(transformers.BertModel(config, add_pooling_layer=False))


def swin() -> nn.Module:
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 64}
    config = transformers.SwinConfig(**sizes, attn_implementation="eager")
    return OnPictures(transformers.SwinModel(config, add_pooling_layer=False))


def of(kind: str, wrap: type[nn.Module] = OnStates, **options: Any) -> Callable[[], nn.Module]:
    """A model by its kind, of a configuration."""
    return lambda: wrap(getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**options)))


PYRAMID = {"hidden_sizes": [16, 32], "depths": [2, 2]}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]], float]] = {
    "BERT": (lambda: bert(**EAGER), tokens, 1.0),
    "BERT, one operator for attention": (lambda: bert(vocab_size=1000), tokens, 1.0),
    "GPT-2": (of("GPT2", n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, **EAGER), states, 0.98),
    "Llama": (of("Llama", **GROUPED), states, 0.98),
    "Gemma 2": (of("Gemma2", **GROUPED, head_dim=16, sliding_window=4), states, 0.98),
    "Mixtral": (of("Mixtral", **GROUPED, num_local_experts=4), lambda: states(1), 0.95),
    "DeepSeek-V3": (of("DeepseekV3", **{**GROUPED, "num_key_value_heads": 4}, **LATENT), lambda: states(1), 0.96),
    "T5": (
        lambda: OnTokens(transformers.T5EncoderModel(transformers.T5Config(
            d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, vocab_size=1000))),
        tokens, 1.0,
    ),
    "ViT": (of("ViT", OnPictures, **ROWS, intermediate_size=128, image_size=32, patch_size=8), pictures, 1.0),
    "Swin": (swin, lambda: pictures(64), 1.0),
    "ConvNeXt": (of("ConvNext", OnPictures, **PYRAMID, num_stages=2), pictures, 1.0),
    "ResNet": (of("ResNet", OnPictures, **PYRAMID, embedding_size=16), pictures, 0.97),
}  # fmt: skip
"""Model -> how it is made, its inputs, and the share of memory-intensive statements that are tensor expressions."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_program(name: str) -> None:
    torch.manual_seed(0)
    make, given, least = MODELS[name]
    model, inputs = make().eval(), given()
    imported, arrays = exported(model, inputs)
    left = [one for one in imported.program.externals() if one.operator not in MULTIPLIED]
    count = len(list(imported.program.expressions()))
    assert count / (count + len(left)) >= least, [(one.operator, one.reason) for one in left]
    found = interpret_program(imported.program, arrays, imported.compute)
    with torch.no_grad():
        wanted = model(*inputs)
    errors = [
        float((one - wanted).abs().max() / wanted.abs().max()) for one in found.values() if one.shape == wanted.shape
    ]
    assert min(errors) <= 1e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_models_groups_compute_the_model(name: str) -> None:
    torch.manual_seed(0)
    make, given, _ = MODELS[name]
    imported, arrays = exported(make().eval(), given())
    program = imported.program.live()
    candidates, plan = found_in(program)
    check_plan(program, plan, arrays, imported.compute)
    kinds, inside = candidates.vertices.analysis.kinds, {name for group in plan.groups for name in group.names}
    reductions = [name for name in candidates.vertices.names if kinds[name] is Kind.REDUCTION]
    products = [sum(kinds[name] is Kind.CONTRACTION for name in group.names) for group in plan.groups]
    assert products.count(2) == ATTENDED.get(name, 2)
    if name not in ALONE:
        assert sum(name in inside for name in reductions) >= 0.84 * len(reductions)


ATTENDED = {"Swin": 4, "ConvNeXt": 0, "ResNet": 0}
"""Groups of scores, weights and what is weighted, where they are not one in each of two layers."""
ALONE = {"ConvNeXt"}
"""Models whose norms stand between convolutions: such a norm is one statement, which no group makes better."""
