"""Models written here, each as its paper has it, at small sizes: no library of the environment holds them.

ResNeXt   bottlenecks with grouped convolutions (Xie et al., 2017)
LSTM      layers of cells, unrolled over steps (Hochreiter and Schmidhuber, 1997)
MMoE      experts that tasks mix by gates of their own (Ma et al., 2018)
DIEN      states of a GRU, weighed by how they fit a target, as gates of another GRU (Zhou et al., 2019)
CRNN      convolutions whose columns an LSTM reads in both directions (Shi et al., 2017)
Mixture   a router's weights of the best experts, of which all are computed (Shazeer et al., 2017)
"""

from __future__ import annotations

import torch
from torch import nn


class Bottleneck(nn.Module):
    """A residual of three convolutions, the middle one in groups."""

    def __init__(self, width: int, inner: int, groups: int) -> None:
        super().__init__()
        sizes = ((width, inner, 1, 1), (inner, inner, 3, groups), (inner, width, 1, 1))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(start, end, side, padding=side // 2, groups=parts, bias=False), nn.BatchNorm2d(end))
            for start, end, side, parts in sizes
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        return (x + third(second(first(x).relu()).relu())).relu()


class ResNeXt(nn.Module):
    """Two stages of bottlenecks, a mean over places, and classes."""

    def __init__(self, width: int = 16, groups: int = 4, classes: int = 10) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        first = [Bottleneck(width, width, groups) for _ in range(2)]
        second = [Bottleneck(2 * width, 2 * width, groups) for _ in range(2)]
        self.body = nn.Sequential(*stem, *first, nn.Conv2d(width, 2 * width, 1, 2), *second)
        self.classes = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.body(x).mean((2, 3))).softmax(-1)


class Cell(nn.Module):
    """A step of an LSTM."""

    def __init__(self, start: int, width: int) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(start, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: torch.Tensor, state: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        enter, forget, new, leave = (self.of_input(x) + self.of_state(state)).chunk(4, -1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * memory.tanh(), memory


def run_cell(cell: Cell, steps: list[torch.Tensor]) -> list[torch.Tensor]:
    """The states of a cell after each step, from zeros."""
    width = cell.of_state.in_features
    state, states = (torch.zeros(len(steps[0]), width, dtype=steps[0].dtype),) * 2, []
    for step in steps:
        state = cell(step, *state)
        states.append(state[0])
    return states


class UnrolledLSTM(nn.Module):
    """Layers of cells over the steps of a sequence [b, steps, width]."""

    def __init__(self, width: int = 16, layers: int = 10) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Cell(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = list(x.unbind(1))
        for layer in self.layers:
            steps = run_cell(layer, steps)
        return steps[-1]


class MMoE(nn.Module):
    """Experts, and for each task a gate over them and a tower."""

    def __init__(self, width: int = 100, inner: int = 16, experts: int = 8, tasks: int = 2) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, inner), nn.ReLU()) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(width, experts) for _ in range(tasks))
        towers = [[nn.Linear(inner, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(-1)] for _ in range(tasks)]
        self.towers = nn.ModuleList(nn.Sequential(*tower) for tower in towers)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.stack([expert(x) for expert in self.experts], 1)
        gates = [gate(x).softmax(-1) for gate in self.gates]
        mixed = [(gate[..., None] * found).sum(1) for gate in gates]
        return tuple(tower(each) for tower, each in zip(self.towers, mixed, strict=True))


class Gated(nn.Module):
    """A step of a GRU; its update is scaled by how much the step counts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor | float = 1.0) -> torch.Tensor:
        reset, update, new = self.of_input(x).chunk(3, -1)
        own_reset, own_update, own_new = self.of_state(state).chunk(3, -1)
        update = weight * (update + own_update).sigmoid()
        return (1 - update) * state + update * (new + (reset + own_reset).sigmoid() * own_new).tanh()


class DIEN(nn.Module):
    """The chance of a click on a target, of what was clicked before: ids [b], ids [b, steps] and a mask of these."""

    def __init__(self, items: int = 50, width: int = 16) -> None:
        super().__init__()
        self.items, self.fit = nn.Embedding(items, width), nn.Linear(width, width, bias=False)
        self.interest, self.evolution = Gated(width), Gated(width)
        self.head = nn.Sequential(nn.Linear(3 * width, 20), nn.PReLU(), nn.Linear(20, 2), nn.Softmax(-1))

    def forward(self, target: torch.Tensor, clicked: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        wanted, known = self.items(target), self.items(clicked)
        state, states = torch.zeros_like(wanted), []
        for step in known.unbind(1):
            state = self.interest(step, state)
            states.append(state)
        scores = (self.fit(torch.stack(states, 1)) * wanted[:, None]).sum(-1)
        weights = scores.masked_fill(mask == 0, -1e9).softmax(-1)
        last = torch.zeros_like(wanted)
        for step, weight in zip(states, weights.unbind(1), strict=True):
            last = self.evolution(step, last, weight[:, None])
        total = (known * mask[..., None]).sum(1)
        return self.head(torch.cat([wanted, last, total], -1))


class CRNN(nn.Module):
    """Letters of a line of text [b, 1, height, width], as logarithms of chances for every column."""

    def __init__(self, width: int = 16, letters: int = 12) -> None:
        super().__init__()
        pooled = [[nn.Conv2d(start, end, 3, 1, 1), nn.BatchNorm2d(end), nn.ReLU(), nn.MaxPool2d(*pool)]
                  for start, end, pool in ((1, 8, (2,)), (8, width, (2,)), (width, width, ((2, 1),)))]  # fmt: skip
        self.columns = nn.Sequential(*(layer for layers in pooled for layer in layers))
        self.cells = nn.ModuleList(Cell(width, width) for _ in range(2))
        self.letters = nn.Linear(2 * width, letters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = list(self.columns(x).mean(2).unbind(-1))
        forward, backward = self.cells
        both = zip(run_cell(forward, steps), reversed(run_cell(backward, steps[::-1])), strict=True)
        return self.letters(torch.stack([torch.cat(each, -1) for each in both])).log_softmax(-1)


class DenseMixture(nn.Module):
    """A norm, a router's two best experts for each row of [b, n, width], and the mix of the experts' results."""

    def __init__(self, width: int = 32, inner: int = 48, experts: int = 4) -> None:
        super().__init__()
        self.norm, self.router = nn.RMSNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(x)
        best, places = self.router(rows).softmax(-1).topk(2, -1)
        chances = torch.zeros(*x.shape[:2], len(self.up), dtype=x.dtype).scatter(-1, places, best)
        weights = chances / chances.sum(-1, keepdim=True)
        inner = torch.nn.functional.silu(torch.einsum("bnd,edh->benh", rows, self.up))
        return x + torch.einsum("benh,ehd,bne->bnd", inner, self.down, weights)
