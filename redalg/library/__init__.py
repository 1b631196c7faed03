"""Known patterns, each a few lines of the surface language: mathematics to start from, and no kernels.

    >>> from redalg.library import attention, variance

Each function gives a `Fused`: call it on tensors, ask it to `explain`, take its kernel's `source`. `PATTERNS` holds
them by name, with the field, the sizes and the dtypes that each is met with; `redalg list` prints it.
"""

from typing import TYPE_CHECKING

from redalg.expression.spelling import missing_name_error
from redalg.library.attention import (
    alibi_attention,
    attention,
    causal_attention,
    grouped_query_attention,
    mla_decode,
    padded_attention,
    paged_attention,
    sink_attention,
    sliding_window_attention,
    softcap_attention,
)
from redalg.library.attention_weights import (
    additive_attention,
    attention_entropy,
    cosine_attention,
    differential_attention,
    linear_attention,
    off_by_one_attention,
    power_attention,
    rectified_attention,
    relative_bias_attention,
    retention,
    sigmoid_attention,
    slot_attention,
)
from redalg.library.hidden_states import (
    backward_step,
    forward_step,
    k_means_assignment,
    k_means_update,
    mixture_likelihood,
    responsibilities,
    viterbi_step,
)
from redalg.library.information import (
    chi_square,
    hellinger_distance,
    js_divergence,
    kl_divergence,
    mutual_information,
    perplexity,
    renyi_entropy,
    shannon_entropy,
    softmax_entropy,
    tsallis_entropy,
    variation_distance,
)
from redalg.library.kernel_methods import (
    density_score,
    energy_distance,
    gaussian_sum,
    kernel_projection,
    kernel_regression,
    laplacian_sum,
    log_density,
    mahalanobis,
    mean_discrepancy,
    sinkhorn_step,
)
from redalg.library.losses import (
    linear_cross_entropy,
    linear_distillation,
)
from redalg.library.normalization import (
    batch_statistics,
    cross_entropy,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    log_softmax,
    min_max_scaling,
    response_norm,
    rms_norm,
    softmax,
    weight_norm,
    weight_standardization,
)
from redalg.library.pattern import PATTERNS, Pattern
from redalg.library.physics import (
    boltzmann_ensemble,
    centre_of_mass,
    dipole_moment,
    gravity,
    heat_capacity,
    inertia,
    inertia_tensor,
    kabsch_matrix,
    lennard_jones,
    nearest_distance,
    radial_distribution,
    radius_of_gyration,
    structure_factor,
)
from redalg.library.products import (
    chained_product,
    log_product,
    manhattan_distances,
    max_plus_product,
)
from redalg.library.quantization import (
    block_quantization,
    quantization_error,
    quantized_product,
    row_quantization,
)
from redalg.library.robust import (
    atkinson_index,
    clipped_mean,
    effective_sample_size,
    gini_index,
    mean_absolute_deviation,
    mean_without_extremes,
    semivariance,
    share_beyond_mean_deviation,
    theil_index,
    winsorized_mean,
)
from redalg.library.routing import (
    expert_load,
    greedy_choice,
    router_z_loss,
    routing,
    sigmoid_routing,
)
from redalg.library.row_losses import (
    binary_cross_entropy,
    dice_loss,
    distillation,
    focal_loss,
    huber_loss,
    info_nce,
    label_smoothing,
    log_cosh_loss,
    margin_loss,
    masked_mean_loss,
    pinball_loss,
    preference_loss,
    signal_distortion_ratio,
    triplet_loss,
    tversky_loss,
)
from redalg.library.statistics import (
    circular_mean,
    coefficient_of_variation,
    concordance,
    correlation,
    correlation_matrix,
    covariance_matrix,
    geometric_mean,
    harmonic_mean,
    kurtosis,
    least_squares_line,
    logsumexp,
    moments,
    skewness,
    softmax_denominator,
    variance,
    weighted_covariance,
    weighted_mean,
    weighted_skewness,
    weighted_variance,
)
from redalg.library.time_series import (
    autocorrelation,
    discounted_return,
    durbin_watson,
    exponential_smoothing,
    exponentially_weighted_mean,
    linear_recurrence,
    linear_trend,
    periodogram,
    sharpe_ratio,
    spectral_flatness,
    total_variation,
)
from redalg.library.transformers import register_with_transformers

__all__ = [
    "PATTERNS", "Pattern", "additive_attention", "alibi_attention", "atkinson_index", "attention",
    "attention_entropy", "autocorrelation", "backward_step", "batch_statistics", "binary_cross_entropy",
    "block_quantization", "boltzmann_ensemble", "causal_attention", "centre_of_mass", "chained_product", "chi_square",
    "circular_mean", "clipped_mean", "coefficient_of_variation", "concordance", "correlation", "correlation_matrix",
    "cosine_attention", "covariance_matrix", "cross_entropy", "density_score", "dice_loss", "differential_attention",
    "dipole_moment", "discounted_return", "distillation", "durbin_watson", "effective_sample_size", "energy_distance",
    "expert_load", "exponential_smoothing", "exponentially_weighted_mean", "focal_loss", "forward_step",
    "gaussian_sum", "geometric_mean", "gini_index", "gravity", "greedy_choice", "group_norm",
    "grouped_query_attention", "harmonic_mean", "heat_capacity", "hellinger_distance", "huber_loss", "inertia",
    "inertia_tensor", "info_nce", "instance_norm", "js_divergence", "k_means_assignment", "k_means_update",
    "kabsch_matrix", "kernel_projection", "kernel_regression", "kl_divergence", "kurtosis", "l2_normalize",
    "label_smoothing", "laplacian_sum", "layer_norm", "least_squares_line", "lennard_jones", "linear_attention",
    "linear_cross_entropy", "linear_distillation", "linear_recurrence", "linear_trend", "log_cosh_loss",
    "log_density", "log_product", "log_softmax", "logsumexp", "mahalanobis", "manhattan_distances", "margin_loss",
    "masked_mean_loss", "max_plus_product", "mean_absolute_deviation", "mean_discrepancy", "mean_without_extremes",
    "min_max_scaling", "mixture_likelihood", "mla_decode", "moments", "mutual_information", "nearest_distance",
    "off_by_one_attention", "padded_attention", "paged_attention", "periodogram", "perplexity", "pinball_loss",
    "power_attention", "preference_loss", "quantization_error", "quantized_product", "radial_distribution",
    "radius_of_gyration", "rectified_attention", "register_with_transformers", "relative_bias_attention",
    "renyi_entropy", "response_norm", "responsibilities", "retention", "rms_norm", "router_z_loss", "routing",
    "row_quantization", "semivariance", "shannon_entropy", "share_beyond_mean_deviation", "sharpe_ratio",
    "sigmoid_attention", "sigmoid_routing", "signal_distortion_ratio", "sink_attention", "sinkhorn_step", "skewness",
    "sliding_window_attention", "slot_attention", "softcap_attention", "softmax", "softmax_denominator",
    "softmax_entropy", "spectral_flatness", "structure_factor", "theil_index", "total_variation", "triplet_loss",
    "tsallis_entropy", "tversky_loss", "variance", "variation_distance", "viterbi_step", "weight_norm",
    "weight_standardization", "weighted_covariance", "weighted_mean", "weighted_skewness", "weighted_variance",
    "winsorized_mean",
]  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Nothing: the error names the patterns that are nearest."""
        raise missing_name_error(name, __all__, "redalg.library")
