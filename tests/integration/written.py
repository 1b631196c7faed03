"""Models written here, each as its paper has it, at small sizes: no library of the environment holds them.

LSTM      layers of cells, unrolled over steps (Hochreiter and Schmidhuber, 1997)
MMoE      experts that tasks mix by gates of their own (Ma et al., 2018)
DIEN      that of the benchmarks, of ids (Zhou et al., 2019)
Mixture   a router's weights of the best experts, of which all are computed (Shazeer et al., 2017)
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks import written_models
from benchmarks.written_models import Cell, run_cell


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


class DIEN(nn.Module):
    """The chance of a click on a target, of what was clicked before: ids [b], ids [b, steps] and a mask of these."""

    def __init__(self, items: int = 50, width: int = 16) -> None:
        super().__init__()
        self.items, self.model = nn.Embedding(items, width), written_models.DIEN(width)

    def forward(self, target: torch.Tensor, clicked: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(self.items(target), self.items(clicked), mask)


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
