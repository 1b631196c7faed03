"""Whole models: torch.compile(model, backend="redalg") beside torch.compile, and PyTorch as it is.

Models are those of transformers, from configurations, and some written here; in bfloat16, with random weights, with
attention as operators of its own ("eager"). Each is measured at batches of 1 and of 32, 16 or 8.
The error is that of the output, over its largest element, beside the model in float32. A model that is trained is timed
with its backward, for all parameters and the input, at its largest batch; its error is that of the input's gradient.
Beside that stand the seconds of the host in which the groups of a model's graphs were found, and a call's launches.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.compete import OWN, Measurement, Result, peak_bytes, said
from benchmarks.family import Row
from benchmarks.launches import bytes_counted, bytes_of_graphs, launches_of
from benchmarks.small_models import SQUEEZED, WIDTH, Excite, Mixture, Recurrent, WrittenOut, rounds_of_cells
from benchmarks.timing import measure
from benchmarks.written_models import CRNN, Clicks, Residual

NAME = "models"
TITLE = "models: whole models, beside torch.compile"
PEER, AUTOTUNED, PLAIN = "torch.compile", "max-autotune", "eager"
SAMPLES, REPEATS = 5, 3
BUDGET_S = 400.0
"""Seconds for the trials and measurements of a graph."""
TOLERANCE = 1.1
"""The largest error, over that of the peer that has the most: a model whose groups are left out has torch.compile's."""
EAGER: dict[str, Any] = {"attn_implementation": "eager"}


Run = Callable[[Callable[..., torch.Tensor], torch.Tensor], torch.Tensor]
Prepared = tuple[Callable[[torch.Tensor], torch.Tensor], list[Any]]
"""The function to call, and the list that its graphs' reports come into."""


class Model(NamedTuple):
    """A model: how it is made, the shape of a sample, the most samples of a batch, and if it is trained.

    It may have a dtype of its own, and other contestants: redalg's, and a library's. If it is `autotuned`, Inductor's
    longest search is a contestant on request.
    """

    make: Callable[[], nn.Module]
    sample: tuple[int, ...]
    batch: int = 32
    trained: bool = False
    dtype: str = ""
    contestants: Mapping[str, Callable[..., Prepared]] = MappingProxyType({})
    autotuned: bool = False


class Hidden(nn.Module):
    """A model of transformers as a function of one tensor: embedded tokens, or pictures.

    `family` has the configuration, if it is not that of the model's own name.
    """

    def __init__(self, name: str, *, family: str = "", pictures: bool = False, **config: Any) -> None:
        super().__init__()
        import transformers

        self.keyword = "pixel_values" if pictures else "inputs_embeds"
        self.model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{family or name}Config")(**config))
        self.options = {} if pictures or name in ("Bert", "T5Encoder") else {"use_cache": False}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(**{self.keyword: x}, **self.options).last_hidden_state
        return out


class Block(nn.Module):
    """A layer of attention and its norm: the model of machines without a GPU."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        out: torch.Tensor = self.norm(x + (q @ k.mT / 4).softmax(-1) @ v)
        return out


def output(model: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The output of a model."""
    return model(x)


def input_gradient(cotangent: torch.Tensor, model: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The gradient of a model's input; those of its parameters are made beside it."""
    x = x.detach().requires_grad_()
    for parameter in model.parameters() if isinstance(model, nn.Module) else ():
        parameter.grad = None
    model(x).backward(cotangent.to(x.dtype))
    assert x.grad is not None
    return x.grad


def own_graph(run: Run, model: nn.Module, x: torch.Tensor, *, cached: bool = False) -> Prepared:
    """redalg's; reports of all graphs, but of those that may be `cached` from a process before."""
    from redalg.torch.backend import BUDGET, GATE, compile_graph
    from redalg.torch.gate import REPLAYED
    from redalg.torch.records import recorded_reports

    with recorded_reports(cached=cached) as reports:
        options: dict[str, Any] = {GATE: REPLAYED, BUDGET: BUDGET_S}  # it is timed in CUDA graphs
        graph = torch.compile(model, backend=compile_graph, options=options)
        run(graph, x)
    return partial(run, graph), reports


def inductors_graph(run: Run, model: nn.Module, x: torch.Tensor, mode: str | None = None) -> Prepared:
    """Inductor's."""
    graph = torch.compile(model, mode=mode)
    run(graph, x)
    return partial(run, graph), []


def plain(run: Run, model: nn.Module, x: torch.Tensor) -> Prepared:
    """PyTorch's operators, one after another."""
    run(model, x)
    return partial(run, model), []


def autotuned_graph(run: Run, model: nn.Module, x: torch.Tensor) -> Prepared:
    """Inductor's, of the fastest of many kernels for each product; calls are captured by whoever times them."""
    return inductors_graph(run, model, x, "max-autotune-no-cudagraphs")


LLAMA: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 1000,
}  # fmt: skip
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
T5: dict[str, Any] = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "vocab_size": 1000}
B0: dict[str, Any] = {
    "image_size": 224,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_dim": 1280,
    "initializer_range": 0.2,
}
LETTERS = ((64, (2, 2)), (128, (2, 2)), (256, (1, 1)), (256, (2, 1)), (512, (1, 1)), (512, (2, 1)), (512, (1, 1)))
PICTURE = (3, 224, 224)
MODELS = {
    "BERT-384": Model(partial(Hidden, "Bert", **EAGER), (384, 768), autotuned=True),
    "BERT-512": Model(partial(Hidden, "Bert", **EAGER), (512, 768)),
    "GPT-2": Model(partial(Hidden, "GPT2", **EAGER), (512, 768), 16, autotuned=True),
    "Llama-like": Model(partial(Hidden, "Llama", **LLAMA, **EAGER), (1024, 2048), 8, autotuned=True),
    "T5": Model(partial(Hidden, "T5Encoder", family="T5", **T5), (512, 768), 16, autotuned=True),
    "ViT-B": Model(partial(Hidden, "ViT", pictures=True, **EAGER), PICTURE, autotuned=True),
    "BERT-384-trained": Model(partial(Hidden, "Bert", **NO_DROPOUT, **EAGER), (384, 768), trained=True),
    "Llama-like-trained": Model(partial(Hidden, "Llama", **LLAMA, **EAGER), (1024, 2048), 8, trained=True),
    "Swin-T": Model(partial(Hidden, "Swin", pictures=True, **EAGER), PICTURE, autotuned=True),
    "ResNet-50": Model(Residual, PICTURE),
    "ResNeXt-50": Model(partial(Residual, groups=32, each=4), PICTURE),
    "EfficientNet-B0": Model(partial(Hidden, "EfficientNet", pictures=True, **B0), PICTURE),
    "DIEN": Model(partial(Clicks, 36, (200, 80)), (1 + 20, 36)),
    "CRNN": Model(partial(CRNN, LETTERS, 256, 2, 37), (1, 32, 100)),
    "MMoE": Model(Mixture, (100,), 1, dtype="float32"),
    **{f"SE-{channels}x{side}": Model(partial(Excite, channels, few), (channels, side, side), 1, dtype="float32")
       for channels, side, few in SQUEEZED},
    "LSTM-10x10": Model(WrittenOut, (10, WIDTH), 1, dtype="float16"),
    "LSTM-10x100": Model(Recurrent, (100, WIDTH), 1, False, "float16", {OWN: rounds_of_cells, "cuDNN": plain}),
}  # fmt: skip
SMALL = {"block": Model(Block, (12, 16), 1), "block-trained": Model(Block, (12, 16), 1, trained=True)}


def models_of(where: torch.device) -> tuple[dict[str, Model], str]:
    """The models of a device, and the dtype of those that have none of their own."""
    return (MODELS, "bfloat16") if where.type == "cuda" else (SMALL, "float32")


def rows_of(models: dict[str, Model], dtype: str) -> Iterator[tuple[Row, Model]]:
    """Every model at a batch of 1 and at its largest; one that is trained at its largest."""
    for name, model in models.items():
        for batch in dict.fromkeys((model.batch if model.trained else 1, model.batch)):
            shape = (batch, *model.sample)
            sizes = {f"d{place}": size for place, size in enumerate(shape)}
            yield Row(f"{name}-x{batch}", sizes, {"x": shape}, {"x": model.dtype or dtype}), model


def drawn_model(row: Row, model: Model, where: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """A model with random weights, and what it is called on, in 32 bits: the same in every process."""
    generator = torch.Generator(where).manual_seed(0)
    torch.manual_seed(0)
    made = model.make().to(where)
    x = torch.randn(row.shapes["x"], generator=generator, device=where)
    set_batch_norms(made, x)
    return made.train(model.trained), x


def set_batch_norms(model: nn.Module, x: torch.Tensor) -> None:
    """Give batch norms the mean and variance of a batch, as training would: else numbers vanish over many layers."""
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    kept = [each.momentum for each in norms]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            model.train()(x)
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum


def contestants_of(model: Model, *, autotuned: bool = False) -> dict[str, Callable[..., Prepared]]:
    """The contestants of a model, redalg's first, and last the one whose error others are held to."""
    if model.contestants:
        return {**model.contestants}
    searched = {AUTOTUNED: autotuned_graph} if autotuned and model.autotuned else {}
    return {OWN: own_graph, PEER: inductors_graph, **searched, PLAIN: plain}


def measure_model(
    row: Row, model: Model, where: torch.device, *, autotuned: bool = False
) -> tuple[Result, dict[str, dict[str, Any]]]:
    """The measurements of a row, and what else is told of each contestant."""
    dtype = getattr(torch, row.dtypes["x"])
    made, x = drawn_model(row, model, where)
    with torch.set_grad_enabled(model.trained):
        run = run_of(made, model, x)
        wanted = run(made, x)
        made, x = made.to(dtype), x.to(dtype)
        found, told = dict[str, Measurement](), dict[str, dict[str, Any]]()
        contestants = contestants_of(model, autotuned=autotuned)
        for name, prepare in contestants.items():
            found[name], told[name] = compete_model(partial(prepare, run), made, x, wanted)
    peers = [found[name].error or 0.0 for name in contestants if name != OWN]
    allowed = TOLERANCE * max(*peers, 1e-6)
    for name, one in found.items():
        if one.error is not None and not one.error <= allowed:
            found[name] = Measurement(one.error, None, f"its error is {one.error:.1e}, allowed {allowed:.1e}")
    return Result(row, None, found, "a step of training" if model.trained else "a call of the model"), told


def run_of(made: nn.Module, model: Model, x: torch.Tensor) -> Run:
    """The part of a model's work that is timed: a call, or a step of training by a random gradient of its output."""
    return partial(input_gradient, torch.randn_like(made(x))) if model.trained else output


def compete_model(
    prepare: Callable[[nn.Module, torch.Tensor], Prepared], model: nn.Module, x: torch.Tensor, wanted: torch.Tensor
) -> tuple[Measurement, dict[str, Any]]:
    """A contestant's error, time and memory, and the seconds that it compiled; what it raises is recorded."""
    torch.compiler.reset()  # the other contestants' graphs are of the same function
    gc.collect()
    start = time.perf_counter()
    try:
        with bytes_of_graphs() as moved:
            call, reports = prepare(model, x)
        told: dict[str, Any] = {
            "compile_s": round(time.perf_counter() - start, 1), "graphs": [one.summary for one in reports],
            "explored_s": [round(one.explored_s, 2) for one in reports],
        }  # fmt: skip
        told |= bytes_counted(moved, parts=2 if torch.is_grad_enabled() else 1)
        error = float((call(x).float() - wanted).abs().max() / wanted.abs().max())
        timings = sorted(
            (measure([partial(call, x)], x.device, SAMPLES) for _ in range(REPEATS)), key=lambda one: one.median_us
        )
        peak = peak_bytes(partial(call, x), x.device)
        told |= launches_of(partial(call, x), x.device)
        return Measurement(error, timings[REPEATS // 2], peak_bytes=peak), told
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measurement(None, None, said(failure)), {}
