"""Models whose statements are small beside a launch: SOUFFLE's (ASPLOS '24, Table 3), as they were published.

MMoE            eight experts of 16, two gates, two towers, one sample of 100 features (Ma et al., KDD '18)
SE-…            squeeze and excite of EfficientNet-B0: channels × height, squeezed to a few
LSTM-10x10      ten layers of 256 over ten steps, written out, through torch.compile
LSTM-10x100     over a hundred steps: its cells as steps of one launch, beside cuDNN
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from sympy import exp, tanh
from torch import nn

import redalg as ra
from redalg.runtime.bind.functions import text_of
from redalg.runtime.together.call import call_steps
from redalg.runtime.together.steps import FunctionStep, Steps

WIDTH, GATES = 256, 4
SQUEEZED = ((32, 112, 8), (96, 56, 4), (144, 56, 6), (144, 28, 6), (240, 28, 10), (240, 14, 10), (480, 14, 20),
            (672, 14, 28), (672, 7, 28), (1152, 7, 48))  # fmt: skip
"""Channels, height and width, and the channels that they are squeezed to."""


class Mixture(nn.Module):
    """Experts that share an input, gates that weigh them, and a tower for each gate."""

    def __init__(self, features: int = 100, experts: int = 8, width: int = 16, tasks: int = 2, tower: int = 8) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(features, width) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(features, experts, bias=False) for _ in range(tasks))
        towers = (nn.Sequential(nn.Linear(width, tower), nn.ReLU(), nn.Linear(tower, 1)) for _ in range(tasks))
        self.towers = nn.ModuleList(towers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.stack([torch.relu(expert(x)) for expert in self.experts], 1)
        mixed = [(torch.softmax(gate(x), -1).unsqueeze(-1) * made).sum(1) for gate in self.gates]
        return torch.cat([tower(row) for tower, row in zip(self.towers, mixed, strict=True)], 1)


class Excite(nn.Module):
    """Channels, scaled by what their means say of each other."""

    def __init__(self, channels: int, few: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, few, 1), nn.Conv2d(few, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squeezed = nn.functional.silu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.excite(squeezed))


class Recurrent(nn.Module):
    """The last row of the last of PyTorch's recurrent layers, which cuDNN computes."""

    def __init__(self, layers: int = 10) -> None:
        super().__init__()
        self.layers, self.lstm = layers, nn.LSTM(WIDTH, WIDTH, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.lstm(x)[0][:, -1]
        return out


class WrittenOut(nn.Module):
    """As much, of cells, every step of which is written out."""

    def __init__(self, layers: int = 10) -> None:
        super().__init__()
        self.cells: Any = nn.ModuleList(nn.LSTMCell(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = [x.new_zeros(x.shape[0], WIDTH) for _ in self.cells]
        c, linear = list(h), nn.functional.linear
        for row in x.unbind(1):
            for layer, cell in enumerate(self.cells):
                by_input = linear(h[layer - 1] if layer else row, cell.weight_ih, cell.bias_ih)
                i, f, g, o = (by_input + linear(h[layer], cell.weight_hh, cell.bias_hh)).chunk(GATES, 1)
                c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
                h[layer] = o.sigmoid() * c[layer].tanh()
        return h[-1]


def cell() -> Any:
    """A recurrent cell: its state and its memory, of what comes from below and of both before."""
    j, k = ra.axes("j k")
    x, h, c = (ra.Tensor(name) for name in "xhc")

    def gate(number: int) -> Any:
        by_input, by_state, at_input, at_state = (ra.Tensor(f"{name}{number}") for name in ("u", "w", "a", "b"))
        return ra.sum(by_input[j, k] * x[k], k) + ra.sum(by_state[j, k] * h[k], k) + at_input[j] + at_state[j]

    i, f, g, o = map(gate, range(GATES))
    memory = c[j] / (1 + exp(-f)) + tanh(g) / (1 + exp(-i))
    return ra.fuse({"memory": (memory, "j"), "state": (tanh(memory) / (1 + exp(-o)), "j")})


def steps_of_cells(layers: int, steps: int, dtype: str) -> Steps:
    """The cells of layers over steps, each a step of one launch; a weight holds all gates, one after another."""
    made, weights = cell(), tuple(weights_of(layers))
    function, sizes = text_of(made.number), (("j", WIDTH), ("k", WIDTH))
    names = ("x", "h", "c", *(f"{kind}{gate}" for kind in "uwab" for gate in range(GATES)))
    shapes = ((WIDTH,),) * 3 + ((WIDTH, WIDTH),) * 2 * GATES + ((WIDTH,),) * 2 * GATES
    inside = tuple(gate * size for size in (WIDTH * WIDTH,) * 2 + (WIDTH,) * 2 for gate in range(GATES))
    found = list[FunctionStep]()
    for step in range(steps):
        for layer in range(layers):
            below = f"h_{layer - 1}_{step}" if layer else "x"
            before = (f"h_{layer}_{step - 1}", f"c_{layer}_{step - 1}") if step else ("zero", "zero")
            own = tuple(f"{kind}_{layer}" for kind in "uwab" for _ in range(GATES))
            offsets = (0 if layer else step * WIDTH, 0, 0, *inside)
            writes = f"c_{layer}_{step}", f"h_{layer}_{step}"
            found.append(FunctionStep(function, names, (below, *before, *own), shapes, offsets, sizes, writes))
    return Steps(("x", "zero", *weights), tuple(found), ((f"h_{layers - 1}_{steps - 1}", (1, WIDTH), dtype),))


def weights_of(layers: int) -> Iterator[str]:
    """Yield the names of the weights, layer after layer, as PyTorch orders them."""
    yield from (f"{kind}_{layer}" for layer in range(layers) for kind in "uwab")


def rounds_of_cells(
    run: Callable[..., torch.Tensor], model: Recurrent, x: torch.Tensor
) -> tuple[Callable[[torch.Tensor], torch.Tensor], list[Any]]:  # fmt: skip
    """The cells of a model as steps of one launch, ready to be called."""
    text = steps_of_cells(model.layers, x.shape[1], str(x.dtype).removeprefix("torch.")).text
    tensors = [x.new_zeros(WIDTH), *(weight for layer in model.lstm.all_weights for weight in layer)]
    call = partial(run, lambda given: call_steps(text, [given, *tensors])[0])
    call(x)
    return call, []
