"""The figures that the papers state, as they are printed, and the rows of the benchmarks that are of their kind.

FusionStitching   Zheng et al., 2020 (arXiv 2009.10924), Table 2: NVIDIA V100, TensorFlow
SOUFFLE           Xia et al., ASPLOS '24, Tables 3, 4 and 5 and Figure 6: NVIDIA A100, a batch of one
"""

from __future__ import annotations

from typing import NamedTuple

# ---- FusionStitching -------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """An iteration of a model by a compiler: its time, the memory-intensive kernels and all calls on the device."""

    ms: float
    kernels: int
    calls: int


class Stitched(NamedTuple):
    """A model of FusionStitching's Table 2, and the row here of its kind, with what differs of it."""

    model: str
    tensorflow: Run
    xla: Run
    own: Run
    row: str = ""
    differs: str = ""


STITCHED = (
    Stitched("BERT, trained, 32", Run(71.84, 561, 761), Run(53.9, 200, 395), Run(51.96, 98, 216),
             "BERT-384-trained-x32", "12 layers, 384 tokens"),
    Stitched("BERT, 32", Run(5.86, 365, 541), Run(4.02, 277, 469), Run(3.49, 77, 205),
             "BERT-384-x32", "12 layers, 384 tokens"),
    Stitched("DIEN, trained, 256", Run(137.56, 10406, 13015), Run(177.16, 6842, 10053), Run(97.72, 2109, 4719)),
    Stitched("DIEN, 256", Run(39.48, 3680, 4311), Run(53.51, 2585, 3617), Run(24.20, 815, 1642),
             "DIEN-x32", "32 samples, 20 steps"),
    Stitched("Transformer, trained, 4096", Run(195.37, 2497, 3418), Run(157.70, 903, 1885), Run(145.65, 423, 1212)),
    Stitched("ASR, 8", Run(15.89, 1359, 1942), Run(11.10, 386, 647), Run(9.18, 187, 475)),
    Stitched("CRNN, 8", Run(37.10, 3674, 4820), Run(24.88, 993, 1406), Run(15.36, 311, 707),
             "CRNN-x32", "32 samples, 25 columns"),
)  # fmt: skip
STATED_BY_STITCHING = {"XLA": 1.45, "TensorFlow": 1.66}
"""The averages of its section 7.2: how many times as fast as each."""


# ---- SOUFFLE ---------------------------------------------------------------------------------------------------------


class Fused(NamedTuple):
    """A model of SOUFFLE's Tables 3, 4 and 5, and the row here of its kind, with what differs of it.

    Attributes:
        ms: by compiler; one that failed is not among them.
        levels_ms: of V0 to V4.
        kernels, megabytes: calls of kernels, and what they move to and from memory, by compiler.
        row: of the whole models; ablated: of the ablation of transformations.
    """

    model: str
    ms: dict[str, float]
    levels_ms: tuple[float, ...]
    kernels: dict[str, int]
    megabytes: dict[str, float]
    row: str
    ablated: tuple[str, ...]
    differs: str


SOUFFLE, TENSORRT, XLA = "SOUFFLE", "TensorRT", "XLA"
FUSED = (
    Fused("BERT", {"XLA": 2.55, "Ansor": 2.31, "TensorRT": 1.30, "Rammer": 2.19, "Apollo": 3.29, "IREE": 2.22,
                   "SOUFFLE": 1.22}, (3.1, 2.12, 1.53, 1.41, 1.22),
          {"TensorRT": 120, "Apollo": 240, "XLA": 216, "SOUFFLE": 24},
          {"TensorRT": 361.8, "Apollo": 880.5, "SOUFFLE": 226.8},
          "BERT-384-x1", ("BERT-384", "BERT, 2 layers of 128"), "384 tokens, bfloat16"),
    Fused("ResNeXt", {"XLA": 8.91, "Ansor": 20.50, "TensorRT": 24.82, "Rammer": 11.69, "Apollo": 22.80, "IREE": 314.8,
                      "SOUFFLE": 4.43}, (29.0, 5.90, 4.43, 4.43, 4.43),
          {"TensorRT": 2406, "Apollo": 1226, "XLA": 526, "SOUFFLE": 105},
          {"TensorRT": 622.2, "Apollo": 436.1, "SOUFFLE": 470.2},
          "ResNeXt-50-x1", ("ResNeXt-50",), "50 layers for 101, bfloat16"),
    Fused("LSTM", {"XLA": 10.57, "Ansor": 6.78, "TensorRT": 6.30, "Rammer": 1.72, "IREE": 16.0, "SOUFFLE": 0.80},
          (6.78, 1.60, 1.21, 0.8, 0.8), {"TensorRT": 662, "XLA": 3363, "SOUFFLE": 1},
          {"TensorRT": 126.8, "SOUFFLE": 10.6},
          "LSTM-10x100-x1", ("LSTM-10x10",), "float16; levels: 10 steps for 100"),
    Fused("EfficientNet", {"XLA": 2.96, "Ansor": 0.91, "TensorRT": 1.21, "Apollo": 2.3, "IREE": 12.33,
                           "SOUFFLE": 0.66}, (4.2, 4.2, 0.72, 0.63, 0.63),
          {"TensorRT": 187, "Apollo": 273, "XLA": 332, "SOUFFLE": 66},
          {"TensorRT": 96.4, "Apollo": 127.4, "SOUFFLE": 86.6},
          "EfficientNet-B0-x1", ("EfficientNet-B0", "SE-240x14"), "bfloat16, no classes"),
    Fused("Swin", {"XLA": 6.43, "Ansor": 5.81, "TensorRT": 1.74, "Apollo": 10.78, "IREE": 18.1, "SOUFFLE": 1.55},
          (5.81, 4.88, 2.09, 1.78, 1.55), {"TensorRT": 716, "Apollo": 1014, "XLA": 3188, "SOUFFLE": 53},
          {"TensorRT": 831.5, "Apollo": 1309.0, "SOUFFLE": 282.9},
          "Swin-T-x1", ("Swin-T", "Swin, 4 layers of 32"), "the smallest for the base version, bfloat16"),
    Fused("MMoE", {"XLA": 0.29, "Ansor": 0.034, "TensorRT": 0.070, "Apollo": 0.049, "IREE": 0.088, "SOUFFLE": 0.014},
          (0.05, 0.019, 0.016, 0.014, 0.014), {"TensorRT": 20, "Apollo": 10, "XLA": 7, "SOUFFLE": 1},
          {"TensorRT": 0.061, "Apollo": 0.063, "SOUFFLE": 0.058},
          "MMoE-x1", ("MMoE",), "float32"),
)  # fmt: skip
STATED_BY_SOUFFLE = {"TensorRT": 3.7, "XLA": 7.8}
"""The abstract's "geometric mean" speedups, at most."""
SPEEDUPS_OF_MODULES = {"grid synchronisation": 1.31, "data reuse too": 1.84}
"""Figure 6: the average speedup over unfused kernels of ten squeeze-and-excite modules of EfficientNet."""
