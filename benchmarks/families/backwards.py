"""Backwards alone, of functions of other families, beside those of PyTorch's kernels.

    Use     := the kind of function, its row in its own family, and if the forward is timed too
    Row.use := a Use

A call is recorded on a stream that a graph captures, and handed a random cotangent, before anything is timed. The time
is that of `torch.autograd.grad`, which keeps the graph for the next call. Gradients are compared with those of the
definition in float64; of attention at some heads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
from torch._functorch import config
from torch.nn import functional
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from benchmarks.ahead import recorded_problems
from benchmarks.families import attention, losses, rows, statistics
from benchmarks.families.attention import BACKENDS, CAP, PLAIN, SAMPLED, WINDOW
from benchmarks.family import (
    Contestant,
    Family,
    Problem,
    Row,
    Tensors,
    normal,
    outputs,
    picks,
    relative_error,
    width,
)

HEADS = 2
"""Heads of K and V whose gradients are compared, at most."""
TOLERANCE = {"float32": 2e-5, "bfloat16": 4e-2}
FIXED = ("slope",)
"""Floating-point tensors that are not learned."""
TIMES = {"attention": (2.5, 3.5), "losses": (2.0, 3.0)}
"""FLOPs of a backward, and of both, over the forward's; a backward of attention makes the scores again."""


@dataclass(frozen=True)
class Kind:
    """Functions of one family, and their definitions in PyTorch, in whatever dtype tensors have."""

    family: Family
    definition: Callable[[Row], Contestant]


@dataclass(frozen=True)
class Use:
    """A row of another family, the tensors whose gradients are made, and if the forward is timed with them."""

    kind: str
    forward: Row
    gradients: tuple[str, ...]
    whole: bool = False


def attended(row: Row) -> Contestant:
    """Attention step by step."""
    return lambda **tensors: attention.unfused(row.use, **tensors)[0]


def scored(row: Row) -> Contestant:
    """A loss of the scores of a vocabulary."""
    return lambda h, w, target: losses.PEERS[row.use](h @ w.mT, target)


ROWS: dict[str, Contestant] = rows.PEERS | {
    "cross_entropy": lambda x, target: functional.cross_entropy(x, target, reduction="none")
}
KINDS = {
    "attention": Kind(attention.Attention("", "", (), ()), attended),
    "rows": Kind(rows.Rows(), lambda row: ROWS[row.use]),
    "variance": Kind(statistics.Variance(), lambda _: statistics.formula),
    "losses": Kind(losses.Losses(), scored),
}


def backward_row(kind: str, forward: Row, *, whole: bool = False) -> Row:
    """The row of a backward, which writes gradients and no outputs."""
    gradients = tuple(name for name, dtype in forward.dtypes.items() if "float" in dtype and name not in FIXED)
    written = sum(width(forward.dtypes[name]) * torch.Size(forward.shapes[name]).numel() for name in gradients)
    return replace(
        forward,
        name=forward.name + ("-with-forward" if whole else ""),
        flops=forward.flops * TIMES.get(kind, (0, 0))[whole],
        out_bytes=written,
        use=Use(kind, forward, gradients, whole),
    )


def attention_row(name: str, size: str, use: attention.Use = PLAIN, dtype: str = "bfloat16") -> Row:
    """Of batch x heads x queries x keys x width."""
    return backward_row("attention", attention.row(f"{name}-{size}", size, use, dtype))


def loss_row(*sizes: int, dtype: str = "bfloat16", whole: bool = False) -> Row:
    """Of tokens, words and width."""
    tokens, words, wide = sizes
    forward = losses.row("cross_entropy", tokens, words, wide, dtype)
    return backward_row("losses", replace(forward, name=f"linear_{forward.name}"), whole=whole)


def rows_row(operation: str, b: int, n: int, dtype: str = "bfloat16") -> Row:
    """An operation on rows, the variance among them."""
    if operation == "variance":
        return backward_row("variance", statistics.variance_row(f"variance-{b}x{n}", b, n, dtype))
    return backward_row("rows", rows.row(operation, b, n, dtype))


OPERATIONS = ("layer_norm", "rms_norm", "softmax", "variance", "cross_entropy")
CAUSAL, CAPPED, LINEAR = attention.Use("causal"), attention.Use("causal", "capped"), attention.Use("causal", "linear")
WINDOWED, SINKS = attention.Use("window"), attention.Use("causal", sinks=True)
GROUPED = attention.Use("causal", groups=4)
CUDA_ROWS = (
    attention_row("attention", "4x16x4096x4096x128"),
    attention_row("attention", "4x16x4096x4096x64"),
    attention_row("attention", "32x16x512x512x64"),
    attention_row("attention", "4x16x4096x512x128"),
    attention_row("causal", "4x16x4096x4096x128", CAUSAL),
    attention_row("causal", "2x32x8192x8192x128", CAUSAL),
    attention_row("grouped", "4x16x2048x2048x128", GROUPED),
    attention_row("capped", "4x16x4096x4096x128", CAPPED),
    attention_row("window", "4x16x4096x4096x128", WINDOWED),
    attention_row("linear", "4x16x4096x4096x128", LINEAR),
    attention_row("sinks", "4x16x4096x4096x128", SINKS),
    rows_row("layer_norm", 8192, 4096),
    rows_row("rms_norm", 16384, 4096),
    rows_row("softmax", 8192, 8192),
    rows_row("variance", 8192, 8192),
    rows_row("cross_entropy", 4096, 128256),
    loss_row(4096, 32000, 2048),
    loss_row(4096, 32000, 2048, whole=True),
)
CPU_ROWS = (
    attention_row("attention", "1x2x70x90x32", dtype="float32"),
    attention_row("causal", "1x2x70x70x32", CAUSAL, "float32"),
    attention_row("grouped", "1x8x70x70x32", GROUPED, "float32"),
    attention_row("capped", "1x2x70x70x32", CAPPED, "float32"),
    attention_row("window", "1x2x600x600x32", WINDOWED, "float32"),
    attention_row("linear", "1x2x70x70x32", LINEAR, "float32"),
    attention_row("sinks", "2x2x70x70x32", SINKS, "float32"),
    *(rows_row(operation, 16, 500, "float32") for operation in OPERATIONS),
    loss_row(64, 300, 32, dtype="float32"),
    loss_row(64, 300, 32, dtype="float32", whole=True),
)


@final
class Backwards(Family):
    """See the module."""

    name = "backwards"
    title = "backwards alone beside those of cuDNN, FlashAttention-2, FlexAttention and torch.compile"
    alike = True

    def rows(self, device: torch.device) -> tuple[Row, ...]:
        return CUDA_ROWS if device.type == "cuda" else CPU_ROWS

    def fused(self, row: Row) -> Any:
        """The function whose calls are recorded."""
        return KINDS[row.use.kind].family.fused(row.use.forward)

    def problems(self, row: Row) -> tuple[Problem, ...]:
        problem = Problem(self.fused(row), row.sizes, row.dtypes, row.shapes)
        return tuple(recorded_problems(problem, row.use.gradients))

    def peers(self, row: Row, device: torch.device) -> dict[str, Contestant]:
        """Functions whose calls are recorded; graphs that other rows have compiled are forgotten."""
        forward = row.use.forward
        if device.type == "cuda":
            torch.compiler.reset()
        if row.use.kind != "attention":
            known = KINDS[row.use.kind].family.peers(forward, device)
            return {name: peer for name, peer in known.items() if name != rows.COPY}
        if device.type != "cuda":
            return {"eager": attended(forward)}
        kernels = ("cuDNN", "FlashAttention-2") if forward.use in (PLAIN, CAUSAL, GROUPED) else ()
        return {**{name: attention.sdpa(forward, BACKENDS[name]) for name in kernels}, "FlexAttention": flex(forward)}

    def tolerance(self, row: Row) -> float:
        return TOLERANCE[next(iter(row.dtypes.values()))]

    def inputs(self, row: Row, generator: torch.Generator) -> Tensors:
        """Those of the forward's family; slopes are powers of two."""
        drawn = KINDS[row.use.kind].family.inputs(row.use.forward, generator)
        if "slope" in drawn:
            powers = -torch.arange(1, row.sizes["h"] + 1, device=generator.device, dtype=torch.float32)
            drawn["slope"] = (2.0**powers).to(drawn["slope"].dtype)
        return drawn

    def timed(self, row: Row) -> str:
        return "forward and backward" if row.use.whole else "the backward alone: torch.autograd.grad, graph retained"

    def prepare(self, row: Row, call: Contestant, inputs: Tensors) -> Callable[[], Any]:
        leaves = {name: one.detach().requires_grad_(name in row.use.gradients) for name, one in inputs.items()}
        wanted = [leaves[name] for name in row.use.gradients]
        with captured_stream(wanted[0].device), nullcontext() if row.use.whole else kept_graphs():
            out = call(**leaves)
            given = cotangent(row, out.shape, out.device).to(out.dtype)
        if row.use.whole:
            return lambda: torch.autograd.grad(call(**leaves), wanted, given)
        return partial(torch.autograd.grad, out, wanted, given, retain_graph=True)

    def error(self, row: Row, out: Any, inputs: Tensors) -> float:
        found = compared(row, out)
        return max(relative_error(found[name], one) for name, one in reference(row, inputs).items())


# ---- recording -------------------------------------------------------------------------------------------------------


@contextmanager
def captured_stream(device: torch.device) -> Iterator[None]:
    """Run on the stream of captured graphs: a backward's kernels run on the stream of their forward's."""
    if device.type != "cuda":
        yield
        return
    graph = torch.cuda.graph
    graph.default_capture_stream = graph.default_capture_stream or torch.cuda.Stream()
    stream = graph.default_capture_stream
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def kept_graphs() -> Any:
    """Let torch.compile keep what a forward saves: by default its backward takes that memory, and runs but once."""
    return config.patch(donated_buffer=False)


def cotangent(row: Row, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """That of a row's output, for every contestant; of the tensors' dtype."""
    return normal(shape, next(iter(row.dtypes.values())), torch.Generator(device).manual_seed(1))


# ---- the definition --------------------------------------------------------------------------------------------------


def reference(row: Row, tensors: Tensors) -> Tensors:
    """The gradients of the definition in float64, by tensor; of attention those of some heads."""
    part = {name: one[place(row, name)] for name, one in tensors.items()}
    wide = {name: one.double() if one.is_floating_point() else one for name, one in part.items()}
    wanted = [wide[name].requires_grad_() for name in row.use.gradients]
    out = KINDS[row.use.kind].definition(row.use.forward)(**wide)
    given = cotangent(row, output_shape(row) or out.shape, out.device)[place(row, "out")]
    return dict(zip(row.use.gradients, torch.autograd.grad(out, wanted, given.double()), strict=True))


def compared(row: Row, gradients: Any) -> Tensors:
    """A contestant's gradients that have a reference."""
    by_name = zip(row.use.gradients, outputs(gradients), strict=True)
    return {name: one[place(row, name)] for name, one in by_name}


def place(row: Row, name: str) -> Any:
    """The indices of a tensor, or of the output, that are compared."""
    if row.use.kind != "attention":
        return ...
    forward = row.use.forward
    b, h, q, k, *_ = row.sizes.values()
    groups = picks(h // forward.use.groups, min(HEADS, max(1, SAMPLED // (b * forward.use.groups * q * k))))
    heads = attention.heads_of(forward, groups)
    return {"K": (slice(None), groups), "V": (slice(None), groups), "sinks": heads, "slope": heads}.get(
        name, (slice(None), heads)
    )


def output_shape(row: Row) -> tuple[int, ...]:
    """The shape of attention's output; empty for another's, which the definition gives whole."""
    return tuple(row.sizes[axis] for axis in "bhqe") if row.use.kind == "attention" else ()


def sampled_eager(row: Row) -> Contestant:
    """Eager attention of the heads that are compared; the others' output is 0."""
    call = attended(row.use.forward)

    def run(**tensors: torch.Tensor) -> torch.Tensor:
        out = tensors["Q"].new_zeros(output_shape(row))
        out[place(row, "out")] = call(**{name: one[place(row, name)] for name, one in tensors.items()})
        return out

    return run


# ---- FlexAttention ---------------------------------------------------------------------------------------------------

MASKS: dict[str, Callable[..., torch.Tensor]] = {
    "causal": lambda _b, _h, i, j: j <= i,
    "window": lambda _b, _h, i, j: (j <= i) & (j > i - WINDOW),
}


def flex(row: Row) -> Contestant:
    """FlexAttention of a use, compiled; a mask's blocks are found once. A sink takes its share of the weights after."""
    use, known = row.use, dict[torch.device, Any]()

    def attend(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, blocks: Any, other: Tensors) -> torch.Tensor:
        def score(s: torch.Tensor, _b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
            return CAP * torch.tanh(s / CAP) if use.score == "capped" else s - other["slope"][h] * (i - j)

        out, told = flex_attention(Q, K, V, score_mod=score if use.score else None, block_mask=blocks,
                                   enable_gqa=use.groups > 1, return_aux=AuxRequest(lse=use.sinks))  # fmt: skip
        if told.lse is None:
            return out
        share = torch.sigmoid(told.lse - other["sinks"][:, None])
        return (out * share[..., None]).to(Q.dtype)

    kernel = torch.compile(attend, dynamic=False)

    def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, **other: torch.Tensor) -> torch.Tensor:
        if use.mask and Q.device not in known:
            known[Q.device] = create_block_mask(MASKS[use.mask], None, None, Q.shape[2], K.shape[2], device=Q.device)
        out: torch.Tensor = kernel(Q, K, V, known.get(Q.device), other)
        return out

    return run
