"""Known patterns, each a few lines of the surface language: mathematics to start from, and no kernels.

    from redalg.library import attention, variance

Each function gives a `Fused`: call it on tensors, ask it to `explain`, take its kernel's `source`.
"""

from redalg.library.attention import attention, mla_decode
from redalg.library.losses import linear_cross_entropy, linear_distillation
from redalg.library.normalization import cross_entropy, layer_norm, log_softmax, rms_norm, softmax
from redalg.library.products import chained_product
from redalg.library.quantization import quantized_product
from redalg.library.routing import routing
from redalg.library.statistics import (
    inertia,
    logsumexp,
    softmax_denominator,
    variance,
    weighted_mean,
    weighted_variance,
)
from redalg.library.transformers import register_with_transformers

__all__ = [
    "attention", "chained_product", "cross_entropy", "inertia", "layer_norm", "linear_cross_entropy",
    "linear_distillation", "log_softmax", "logsumexp", "mla_decode", "quantized_product", "register_with_transformers",
    "rms_norm", "routing", "softmax", "softmax_denominator", "variance", "weighted_mean", "weighted_variance",
]  # fmt: skip
