"""Measure whole models: torch.compile(model, backend="redalg") beside torch.compile, and PyTorch as it is.

models                  every model, with random weights, at batches of 1 and of 32, 16 or 8
models NAME …           some of them
models … --out DIR      written into DIR/models.json after each, and not measured again if they stand there

Models are those of transformers, from configurations, in bfloat16, with attention as operators of its own ("eager").
The error is that of the output, over its largest element, beside the model in float32. A model that is trained is timed
with its backward, for all parameters and the input, at its largest batch; its error is that of the input's gradient.
Beside that stand the seconds of the host in which the groups of a model's graphs were found.
"""

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn

from benchmarks import report
from benchmarks.compete import OWN, Measurement, Result, peak_bytes, said
from benchmarks.environment import device, environment
from benchmarks.family import Row
from benchmarks.small_models import SQUEEZED, WIDTH, Excite, Mixture, Recurrent, WrittenOut, rounds_of_cells
from benchmarks.timing import measure
from redalg.runtime.known.tuned import SWITCH

NAME = "models"
TITLE = "models: whole models, beside torch.compile"
PEER, PLAIN = "torch.compile", "eager"
SAMPLES, REPEATS = 5, 3
BUDGET_S = 400.0
"""Seconds for the trials and measurements of a graph."""
TOLERANCE = 1.1
"""The largest error, over eager's own in 16 bits."""
EAGER: dict[str, Any] = {"attn_implementation": "eager"}


Run = Callable[[Callable[..., torch.Tensor], torch.Tensor], torch.Tensor]
Prepared = tuple[Callable[[torch.Tensor], torch.Tensor], list[Any]]
"""The function to call, and the list that its graphs' reports come into."""


class Model(NamedTuple):
    """A model: how it is made, the shape of a sample, the most samples of a batch, and if it is trained.

    It may have a dtype of its own, and other contestants: redalg's, and a library's.
    """

    make: Callable[[], nn.Module]
    sample: tuple[int, ...]
    batch: int = 32
    trained: bool = False
    dtype: str = ""
    contestants: Mapping[str, Callable[..., Prepared]] = MappingProxyType({})


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


def own_graph(run: Run, model: nn.Module, x: torch.Tensor) -> Prepared:
    """redalg's."""
    from redalg.torch.backend import BUDGET, GATE, compile_graph
    from redalg.torch.gate import REPLAYED
    from redalg.torch.records import recorded_reports

    with recorded_reports() as reports:
        options: dict[str, Any] = {GATE: REPLAYED, BUDGET: BUDGET_S}  # it is timed in CUDA graphs
        graph = torch.compile(model, backend=compile_graph, options=options)
        run(graph, x)
    return partial(run, graph), reports


def inductors_graph(run: Run, model: nn.Module, x: torch.Tensor) -> Prepared:
    """Inductor's."""
    graph = torch.compile(model)
    run(graph, x)
    return partial(run, graph), []


def plain(run: Run, model: nn.Module, x: torch.Tensor) -> Prepared:
    """PyTorch's operators, one after another."""
    run(model, x)
    return partial(run, model), []


LLAMA: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 1000,
}  # fmt: skip
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
T5: dict[str, Any] = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "vocab_size": 1000}
MODELS = {
    "BERT-384": Model(partial(Hidden, "Bert", **EAGER), (384, 768)),
    "BERT-512": Model(partial(Hidden, "Bert", **EAGER), (512, 768)),
    "GPT-2": Model(partial(Hidden, "GPT2", **EAGER), (512, 768), 16),
    "Llama-like": Model(partial(Hidden, "Llama", **LLAMA, **EAGER), (1024, 2048), 8),
    "T5": Model(partial(Hidden, "T5Encoder", family="T5", **T5), (512, 768), 16),
    "ViT-B": Model(partial(Hidden, "ViT", pictures=True, **EAGER), (3, 224, 224)),
    "BERT-384-trained": Model(partial(Hidden, "Bert", **NO_DROPOUT, **EAGER), (384, 768), trained=True),
    "Llama-like-trained": Model(partial(Hidden, "Llama", **LLAMA, **EAGER), (1024, 2048), 8, trained=True),
    "Swin-T": Model(partial(Hidden, "Swin", pictures=True, **EAGER), (3, 224, 224)),
    "MMoE": Model(Mixture, (100,), 1, dtype="float32"),
    **{f"SE-{channels}x{side}": Model(partial(Excite, channels, few), (channels, side, side), 1, dtype="float32")
       for channels, side, few in SQUEEZED},
    "LSTM-10x10": Model(WrittenOut, (10, WIDTH), 1, dtype="float16"),
    "LSTM-10x100": Model(Recurrent, (100, WIDTH), 1, False, "float16", {OWN: rounds_of_cells, "cuDNN": plain}),
}  # fmt: skip
SMALL = {"block": Model(Block, (12, 16), 1), "block-trained": Model(Block, (12, 16), 1, trained=True)}


def rows_of(models: dict[str, Model], dtype: str) -> Iterator[tuple[Row, Model]]:
    """Every model at a batch of 1 and at its largest; one that is trained at its largest."""
    for name, model in models.items():
        for batch in dict.fromkeys((model.batch if model.trained else 1, model.batch)):
            shape = (batch, *model.sample)
            sizes = {f"d{place}": size for place, size in enumerate(shape)}
            yield Row(f"{name}-x{batch}", sizes, {"x": shape}, {"x": model.dtype or dtype}), model


def measure_model(row: Row, model: Model, where: torch.device) -> tuple[Result, dict[str, dict[str, Any]]]:
    """The measurements of a row, and what else is told of each contestant."""
    dtype, generator = getattr(torch, row.dtypes["x"]), torch.Generator(where).manual_seed(0)
    torch.manual_seed(0)
    made = model.make().train(model.trained).to(where)
    x = torch.randn(row.shapes["x"], generator=generator, device=where)
    with torch.set_grad_enabled(model.trained):
        run = partial(input_gradient, torch.randn_like(made(x))) if model.trained else output
        wanted = run(made, x)
        made, x = made.to(dtype), x.to(dtype)
        found, told = dict[str, Measurement](), dict[str, dict[str, Any]]()
        contestants = model.contestants or {OWN: own_graph, PEER: inductors_graph, PLAIN: plain}
        for name, prepare in contestants.items():
            found[name], told[name] = compete_model(partial(prepare, run), made, x, wanted)
    allowed = TOLERANCE * max(found[[*contestants][-1]].error or 0.0, 1e-6)
    for name, one in found.items():
        if one.error is not None and not one.error <= allowed:
            found[name] = Measurement(one.error, None, f"its error is {one.error:.1e}, allowed {allowed:.1e}")
    return Result(row, None, found, "a step of training" if model.trained else "a call of the model"), told


def compete_model(
    prepare: Callable[[nn.Module, torch.Tensor], Prepared], model: nn.Module, x: torch.Tensor, wanted: torch.Tensor
) -> tuple[Measurement, dict[str, Any]]:
    """A contestant's error, time and memory, and the seconds that it compiled; what it raises is recorded."""
    torch.compiler.reset()  # the other contestants' graphs are of the same function
    gc.collect()
    start = time.perf_counter()
    try:
        call, reports = prepare(model, x)
        told = {"compile_s": round(time.perf_counter() - start, 1), "graphs": [one.summary for one in reports],
                "explored_s": [round(one.explored_s, 2) for one in reports]}  # fmt: skip
        error = float((call(x).float() - wanted).abs().max() / wanted.abs().max())
        timings = sorted(
            (measure([partial(call, x)], x.device, SAMPLES) for _ in range(REPEATS)), key=lambda one: one.median_us
        )
        peak = peak_bytes(partial(call, x), x.device)
        return Measurement(error, timings[REPEATS // 2], peak_bytes=peak), told
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measurement(None, None, said(failure)), {}


# ---- the command -----------------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; none: all")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"write {NAME}.json into this folder")


def main(options: argparse.Namespace) -> int:
    """Measure, write and show; 1 where redalg failed or is wrong."""
    os.environ.setdefault(SWITCH, "pack")  # what ships is measured, not what this machine has tuned
    where = device()
    models, dtype = (MODELS, "bfloat16") if where.type == "cuda" else (SMALL, "float32")
    unknown = sorted({*options.names} - models.keys())
    if unknown:
        Console().print(f"models: {', '.join(unknown)} is none of {', '.join(models)}", style="red", highlight=False)
        return 1
    path = options.out / f"{NAME}.json" if options.out else None
    content = report.load(path) if path and path.exists() else report.document(NAME, environment(), [])
    known = {line["name"] for line in content["rows"]}
    chosen = {name: model for name, model in models.items() if name in (options.names or models)}
    for row, model in rows_of(chosen, dtype):
        if row.name not in known:
            result, told = measure_model(row, model, where)
            own = environment()  # a file may be made in several sessions, and on several cards
            line = report.row(result) | {"commit": own["commit"], "device": own["device"]}
            for name, each in told.items():
                line["contestants"][name] |= each
            content["rows"].append(line)
            if path:
                report.save(path, content)
    report.show(content)
    return int(any(line["contestants"][OWN]["failure"] for line in content["rows"]))
