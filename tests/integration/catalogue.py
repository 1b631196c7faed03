"""The models of these tests: small, with random weights, those of transformers by their configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
import transformers
from torch import nn

from benchmarks.written_models import CRNN, Residual
from tests.integration.written import DIEN, DenseMixture, MMoE, UnrolledLSTM

Inputs = tuple[torch.Tensor, ...]


@final
@dataclass(frozen=True)
class Sample:
    """A model of a kind.

    Attributes:
        make: the model, with random weights.
        draw: its inputs, of a size that may vary: the length of a sequence, or the number of pictures or rows.
        share: of memory-intensive statements that are tensor expressions, at least.
        sizes: of the inputs; more than one if the model takes sizes that vary.
    """

    make: Callable[[], nn.Module]
    draw: Callable[[int], Inputs]
    share: float = 1.0
    sizes: tuple[int, ...] = (12, 17, 9)


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
    """A model of pictures, or of sounds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).last_hidden_state


def tokens(length: int) -> Inputs:
    """Ids of tokens, and a mask whose last quarter is padding."""
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[:, 3 * length // 4 :] = 0
    return torch.randint(0, 1000, (2, length)), mask


def states(length: int, batch: int = 2) -> Inputs:
    return (torch.randn(batch, length, 64),)


def pictures(side: int) -> Callable[[int], Inputs]:
    """Pictures of a side, by their number."""
    return lambda count: (torch.randn(count, 3, side, side),)


def clicks(count: int) -> Inputs:
    """A target, what was clicked in eight steps, and a mask of these."""
    mask = (torch.arange(8) < torch.randint(1, 9, (count, 1))).float()
    return torch.randint(0, 50, (count,)), torch.randint(0, 50, (count, 8)), mask


def of(kind: str, wrap: type[nn.Module] = OnStates, **options: Any) -> Callable[[], nn.Module]:
    """A model of transformers by its kind, of a configuration."""
    config = getattr(transformers, f"{kind}Config")
    return lambda: wrap(getattr(transformers, f"{kind}Model")(config(**options)))


def bert(**options: Any) -> nn.Module:
    config = transformers.BertConfig(**ROWS, **options, intermediate_size=128)
    return OnTokens(transformers.BertModel(config, add_pooling_layer=False))


def swin() -> nn.Module:
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 64}
    config = transformers.SwinConfig(**sizes, attn_implementation="eager")
    return OnPictures(transformers.SwinModel(config, add_pooling_layer=False))


def t5() -> nn.Module:
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
    return OnTokens(transformers.T5EncoderModel(transformers.T5Config(**sizes, vocab_size=1000)))


def whisper() -> nn.Module:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128}
    config = transformers.WhisperConfig(**sizes, num_mel_bins=16, max_source_positions=16, attn_implementation="eager")
    return OnPictures(WhisperEncoder(config))


EAGER = {"attn_implementation": "eager", "vocab_size": 1000}
ROWS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**ROWS, **EAGER, "num_key_value_heads": 2, "intermediate_size": 96, "bos_token_id": 1, "eos_token_id": 2}
LATENT = {
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "moe_intermediate_size": 32, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
PATCHES = {**ROWS, "intermediate_size": 128, "image_size": 32, "patch_size": 8}
PYRAMID = {"hidden_sizes": [16, 32], "depths": [2, 2]}
BLOCKS = {
    "image_size": 32, "hidden_dim": 640, "kernel_sizes": [3, 3, 5], "in_channels": [32, 16, 24],
    "out_channels": [16, 24, 32], "depthwise_padding": [], "strides": [1, 2, 2], "num_block_repeats": [1, 2, 2],
    "expand_ratios": [1, 6, 6], "width_coefficient": 0.5, "depth_coefficient": 1.0,
}  # fmt: skip
FEW = (2, 3, 5)
MODELS: dict[str, Sample] = {
    "BERT": Sample(lambda: bert(**EAGER), tokens),
    "BERT, one operator for attention": Sample(lambda: bert(vocab_size=1000), tokens),
    "GPT-2": Sample(of("GPT2", n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, **EAGER), states, 0.98),
    "Llama": Sample(of("Llama", **GROUPED), states, 0.98),
    "Qwen 3": Sample(of("Qwen3", **GROUPED, head_dim=16), states, 0.98),
    "Gemma 2": Sample(of("Gemma2", **GROUPED, head_dim=16, sliding_window=4), states, 0.98),
    "Gemma 3": Sample(of("Gemma3Text", **GROUPED, head_dim=16, sliding_window=4), states, 0.98),
    "GPT-OSS": Sample(of("GptOss", **GROUPED, head_dim=16, sliding_window=4, num_local_experts=4,
                         num_experts_per_tok=2), lambda length: states(length, 1), 0.97, (12,)),
    "Mixtral": Sample(of("Mixtral", **GROUPED, num_local_experts=4), lambda length: states(length, 1), 0.97, (12,)),
    "DeepSeek-V3": Sample(of("DeepseekV3", **{**GROUPED, "num_key_value_heads": 4}, **LATENT),
                          lambda length: states(length, 1), 0.98, (12,)),
    "T5": Sample(t5, tokens),
    "CLIP, text": Sample(of("CLIPText", OnTokens, **ROWS, **EAGER, intermediate_size=128), tokens),
    "Whisper, encoder": Sample(whisper, lambda count: (torch.randn(count, 16, 32),), sizes=FEW),
    "ViT": Sample(of("ViT", OnPictures, **PATCHES, attn_implementation="eager"), pictures(32), sizes=FEW),
    "ViT, one operator for attention": Sample(of("ViT", OnPictures, **PATCHES), pictures(32), sizes=FEW),
    "Swin": Sample(swin, pictures(64), sizes=(2,)),
    "ConvNeXt": Sample(of("ConvNext", OnPictures, **PYRAMID, num_stages=2), pictures(32), sizes=FEW),
    "ResNet": Sample(of("ResNet", OnPictures, **PYRAMID, embedding_size=16), pictures(32), 0.97, FEW),
    "ResNeXt": Sample(lambda: Residual((2, 2), 16, groups=4, each=4, classes=10), pictures(32), 0.97, FEW),
    "EfficientNet": Sample(of("EfficientNet", OnPictures, **BLOCKS), pictures(32), 0.98, FEW),
    "LSTM, unrolled": Sample(UnrolledLSTM, lambda count: (torch.randn(count, 10, 16),), sizes=FEW),
    "MMoE": Sample(MMoE, lambda count: (torch.randn(count, 100),), sizes=FEW),
    "DIEN": Sample(DIEN, clicks, sizes=FEW),
    "CRNN": Sample(CRNN, lambda count: (torch.randn(count, 1, 16, 32),), 0.97, FEW),
    "mixture, dense": Sample(DenseMixture, lambda length: (torch.randn(2, length, 32),), 0.97),
}  # fmt: skip
"""Name -> the model's sample."""


def tensors_of(returned: torch.Tensor | Inputs) -> Inputs:
    """What a model returns, as a tuple."""
    return (returned,) if isinstance(returned, torch.Tensor) else returned
