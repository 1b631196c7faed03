"""Measure a training step of a small language model: redalg within torch.compile, beside torch.compile alone.

    model  := layers of RMS norm, causal attention of rotary positions with shared K/V heads, and SwiGLU, as Llama's
    step   := forward, backward, AdamW; all of the model and its loss is one graph (fullgraph=True)
    redalg := attention, and the loss of the last product; the peer takes PyTorch's (attention by cuDNN)

Norms are the graph's in both: it joins them with what stands beside them.

Both begin with the same parameters and see the same tokens in every step. Their first losses must agree.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

import redalg as ra
from benchmarks import report
from benchmarks.ahead import compile_all, recorded_problems
from benchmarks.compete import OWN, Measurement, Result, peak_bytes, said, sources_sha256
from benchmarks.environment import device, environment, target
from benchmarks.families import losses
from benchmarks.families.attention import BACKENDS
from benchmarks.family import Problem, Row, Tensors, normal
from benchmarks.timing import measure
from redalg.gradient.stage import lengths_of
from redalg.library import attention
from redalg.runtime.known.tuned import SWITCH

NAME = "step"
TITLE = "step: a training step of a small language model, beside torch.compile"
PEER = "torch.compile"
FIRST = 5
"""Steps whose losses are compared."""
TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}
"""Largest difference of two losses over the peer's."""
SAMPLES = 10
BACKEND = {"cuda": "inductor", "cpu": "aot_eager"}
"""The backend of torch.compile; on the CPU nothing is to be learned of Inductor's."""
SPREAD, RATE, EPS = 0.02, 1e-4, 1e-5
"""Standard deviation of weights, AdamW's rate, and the norm's eps."""
Parameters = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """A model and its batch.

    Attributes:
        layers, width: of the model; heads, shared, depth: of attention, K/V heads and the width of a head.
        inner, words: the width within SwiGLU, and the vocabulary.
        batch, tokens: sequences and their length.
    """

    layers: int
    width: int
    heads: int
    shared: int
    depth: int
    inner: int
    words: int
    batch: int
    tokens: int


LLAMA = Sizes(4, 2048, 16, 4, 128, 5632, 32000, 4, 2048)
SMALL = Sizes(2, 32, 4, 2, 8, 64, 96, 2, 16)


class Parts(NamedTuple):
    """The functions that contestants have for parts of the model."""

    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


# ---- the model -------------------------------------------------------------------------------------------------------


def drawn_parameters(sizes: Sizes, dtype: str, where: torch.device) -> Parameters:
    """Parameters, the same in every call."""
    generator = torch.Generator(where).manual_seed(0)
    wide, queries, keys = sizes.width, sizes.heads * sizes.depth, sizes.shared * sizes.depth
    shapes = {"queries": (queries, wide), "keys": (keys, wide), "values": (keys, wide), "out": (wide, queries),
              "gate": (sizes.inner, wide), "up": (sizes.inner, wide), "down": (wide, sizes.inner)}  # fmt: skip
    matrices = {f"{name}_{layer}": shape for layer in range(sizes.layers) for name, shape in shapes.items()}
    matrices |= {"embedding": (sizes.words, wide), "head": (sizes.words, wide)}
    found = {name: SPREAD * normal(shape, dtype, generator) for name, shape in matrices.items()}
    norms = [f"{name}_{layer}" for layer in range(sizes.layers) for name in ("before", "between")]
    ones = {name: torch.ones(wide, dtype=getattr(torch, dtype), device=where) for name in (*norms, "last")}
    return {name: one.requires_grad_() for name, one in (found | ones).items()}


def model_loss(sizes: Sizes, parts: Parts, parameters: Parameters, tokens: torch.Tensor, rotary: Tensors) -> Any:
    """The mean loss of the next tokens; `tokens` has one more than are read."""
    x = functional.embedding(tokens[:, :-1], parameters["embedding"])
    for layer in range(sizes.layers):
        own = {name.rpartition("_")[0]: one for name, one in parameters.items() if name.endswith(f"_{layer}")}
        x = x + attended(sizes, parts, own, normed(x, own["before"]), rotary)
        y = normed(x, own["between"])
        gated = functional.silu(functional.linear(y, own["gate"])) * functional.linear(y, own["up"])
        x = x + functional.linear(gated, own["down"])
    return parts.loss(normed(x, parameters["last"]).flatten(0, 1), parameters["head"], tokens[:, 1:].flatten())


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMS norm (Zhang and Sennrich, 2019)."""
    return functional.rms_norm(x, x.shape[-1:], weight, EPS)


def attended(sizes: Sizes, parts: Parts, own: Parameters, x: torch.Tensor, rotary: Tensors) -> torch.Tensor:
    """Attention of a layer, of x[b,t,n]."""
    heads = {"queries": sizes.heads, "keys": sizes.shared, "values": sizes.shared}
    q, k, v = (functional.linear(x, own[name]).unflatten(-1, (count, sizes.depth)).transpose(1, 2)
               for name, count in heads.items())  # fmt: skip
    out = parts.attention(turned(q, rotary), turned(k, rotary), v)
    return functional.linear(out.transpose(1, 2).flatten(2), own["out"])


def turned(x: torch.Tensor, rotary: Tensors) -> torch.Tensor:
    """Rotary positions of x[b,h,t,d] (Su et al., 2021), as Llama pairs dimensions."""
    left, right = x.float().chunk(2, -1)
    cos, sin = rotary["cos"], rotary["sin"]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(x.dtype)


def drawn_rotary(sizes: Sizes, where: torch.device) -> Tensors:
    """Cosines and sines by position and pair."""
    powers = torch.arange(0, sizes.depth, 2, device=where) / sizes.depth
    angles = torch.arange(sizes.tokens, device=where)[:, None] * 10000.0**-powers
    return {"cos": angles.cos(), "sin": angles.sin()}


# ---- contestants -----------------------------------------------------------------------------------------------------


@cache
def fused_functions(sizes: Sizes) -> dict[str, Any]:
    """redalg's functions by part, derived once."""
    k, q = ra.axes("k q")
    grouped = attention(mask=k <= q, groups=sizes.heads // sizes.shared)
    return {"loss": losses.derived("cross_entropy"), "attention": grouped}


def own_parts(sizes: Sizes) -> Parts:
    """redalg's."""
    fused = fused_functions(sizes)
    return Parts(
        lambda q, k, v: fused["attention"](Q=q, K=k, V=v),
        lambda h, w, target: fused["loss"](h=h, w=w, target=target).mean(),
    )


PYTORCH = Parts(
    partial(functional.scaled_dot_product_attention, is_causal=True, enable_gqa=True),
    lambda h, w, target: functional.cross_entropy(functional.linear(h, w).float(), target),
)


def prepare_step(row: Row, parts: Parts, where: torch.device) -> Callable[[], torch.Tensor]:
    """The step of a contestant, which gives its loss."""
    sizes = row.use
    parameters, rotary = drawn_parameters(sizes, row.dtypes["parameters"], where), drawn_rotary(sizes, where)
    generator = torch.Generator(where).manual_seed(1)
    tokens = torch.randint(sizes.words, (sizes.batch, sizes.tokens + 1), generator=generator, device=where)
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, fused=where.type == "cuda")

    def loss_of(parameters: Parameters, tokens: torch.Tensor) -> Any:
        return model_loss(sizes, parts, parameters, tokens, rotary)

    torch.compiler.reset()  # the other contestant's graph is of the same function
    graph = torch.compile(loss_of, fullgraph=True, dynamic=False, backend=BACKEND[where.type])

    def step() -> torch.Tensor:
        with sdpa_kernel(BACKENDS["cuDNN"]) if where.type == "cuda" else nullcontext():
            loss: torch.Tensor = graph(parameters, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def compete_step(row: Row, parts: Parts, where: torch.device) -> tuple[Measurement, list[float]]:
    """A contestant's time and memory, and its first losses; what it raises is recorded."""
    try:
        step = prepare_step(row, parts, where)
        first = [float(step()) for _ in range(FIRST)]
        peak = peak_bytes(step, where)
        return Measurement(None, measure([step], where, SAMPLES, captured=False), peak_bytes=peak), first
    except Exception as failure:  # noqa: BLE001 - a contestant's failure is a result
        return Measurement(None, None, said(failure)), []


def disagreement(own: Sequence[float], peer: Sequence[float]) -> float | None:
    """The largest difference of two losses over the peer's; None where a contestant has none.

    >>> disagreement([2.0, 1.5], [2.0, 1.0]), disagreement([2.0], [])
    (0.5, None)
    """
    return max(abs(a - b) / abs(b) for a, b in zip(own, peer, strict=True)) if own and peer else None


def first_losses(content: report.Document) -> str:
    """The first losses of both, as a document's text."""
    [row] = content["rows"]
    told = [f"{name} {', '.join(f'{loss:.4f}' for loss in one['losses'])}" for name, one in row["contestants"].items()]
    return f"Losses of the first steps: {'; '.join(told)}."


def judge_losses(row: Row, own: Measurement, error: float | None) -> Measurement:
    """redalg's measurement, without a time where its losses are not the peer's."""
    allowed = TOLERANCE[row.dtypes["parameters"]]
    if error is None or error <= allowed:
        return replace(own, error=error)
    return replace(own, error=error, timing=None, failure=f"losses differ by {error:.1e}, allowed {allowed:.1e}")


# ---- the command -----------------------------------------------------------------------------------------------------


def step_row(sizes: Sizes, dtype: str) -> Row:
    """The row of a model."""
    return Row(f"llama-{sizes.batch}x{sizes.tokens}", asdict(sizes), {}, {"parameters": dtype}, flops(sizes), use=sizes)


def flops(sizes: Sizes) -> float:
    """FLOPs of a step: the backward has twice the products of the forward, and attention's makes its scores again."""
    queries, keys = sizes.heads * sizes.depth, sizes.shared * sizes.depth
    layer = sizes.width * (2 * queries + 2 * keys + 3 * sizes.inner)
    read = sizes.batch * sizes.tokens
    matrices = 2.0 * read * (sizes.layers * layer + sizes.words * sizes.width)
    scores = 2.0 * sizes.layers * sizes.batch * sizes.heads * sizes.tokens**2 * sizes.depth  # two products, half masked
    return 3 * matrices + 3.5 * scores


def problems(row: Row) -> list[Problem]:
    """redalg's functions and their backwards."""
    sizes, dtype = row.use, row.dtypes["parameters"]
    read, wide = sizes.batch * sizes.tokens, sizes.width
    cached = (sizes.batch, sizes.shared, sizes.tokens, sizes.depth)
    shapes = {
        "loss": {"h": (read, wide), "w": (sizes.words, wide), "target": (read,)},
        "attention": {"Q": (sizes.batch, sizes.heads, *cached[2:]), "K": cached, "V": cached},
    }
    found = list[Problem]()
    for part, fused in fused_functions(sizes).items():
        dtypes = {name: "int64" if name == "target" else dtype for name in shapes[part]}
        gradients = [name for name in shapes[part] if name != "target"]
        found += recorded_problems(Problem(fused, extents(fused, shapes[part]), dtypes, shapes[part]), gradients)
    return found


def extents(fused: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of a function's axes."""
    tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    return {str(name): int(size) for name, size in lengths_of(fused.cascade, tensors).items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"write {NAME}.json into this folder")


def main(options: argparse.Namespace) -> int:
    """Measure both, write and show; 1 where redalg failed, or its losses are not the peer's."""
    os.environ.setdefault(SWITCH, "pack")  # what ships is measured, not what this machine has tuned
    where, chip = device(), target()
    row = step_row(LLAMA, "bfloat16") if where.type == "cuda" else step_row(SMALL, "float32")
    if where.type == "cuda":
        compile_all(problems(row), chip)
    found = {name: compete_step(row, parts, where) for name, parts in ((OWN, own_parts(row.use)), (PEER, PYTORCH))}
    first = {name: losses for name, (_, losses) in found.items()}
    measured = {name: one for name, (one, _) in found.items()}
    measured[OWN] = judge_losses(row, measured[OWN], disagreement(first[OWN], first[PEER]))
    result = Result(row, sources_sha256(problems(row), chip), measured, "forward, backward and AdamW")
    content = report.document(NAME, environment(), [result])
    for name, contestant in content["rows"][0]["contestants"].items():
        contestant["losses"] = first[name]
    if options.out:
        report.save(options.out / f"{NAME}.json", content)
    report.show(content)
    Console().print(first_losses(content), highlight=False)
    return int(bool(measured[OWN].failure))
