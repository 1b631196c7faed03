"""Models that no library of the environment holds, each as its paper has it, with sizes of choice.

Residual  bottlenecks of three convolutions, the middle one in groups (He et al., 2016; ResNeXt: Xie et al., 2017)
DIEN      states of a GRU, weighed by how they fit a target, as gates of another GRU (Zhou et al., 2019)
CRNN      convolutions whose columns layers of LSTMs read in both directions (Shi et al., 2017)

Steps of recurrent cells are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

LAST = 4
"""Channels that a bottleneck leaves, over those of a stage."""
SMALL = 0.2
"""The scale of what a bottleneck adds: residuals begin small (Goyal et al., 2017), or errors grow with depth."""


# ---- residual networks -----------------------------------------------------------------------------------------------


def normed_convolution(start: int, end: int, side: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution of squares, and its batch norm."""
    return nn.Sequential(nn.Conv2d(start, end, side, stride, side // 2, groups=groups, bias=False), nn.BatchNorm2d(end))


class Bottleneck(nn.Module):
    """A residual of three convolutions; its input is projected if its shape is another."""

    def __init__(self, start: int, inner: int, end: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        parts = (normed_convolution(start, inner, 1), normed_convolution(inner, inner, 3, stride, groups),
                 normed_convolution(inner, end, 1))  # fmt: skip
        self.layers = nn.ModuleList(parts)
        nn.init.constant_(parts[-1].get_parameter("1.weight"), SMALL)
        is_same = start == end and stride == 1
        self.project: nn.Module = nn.Identity() if is_same else normed_convolution(start, end, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        return (self.project(x) + third(second(first(x).relu()).relu())).relu()


class Residual(nn.Module):
    """Stages of bottlenecks, a mean over places, and classes; ResNet-50 by its defaults."""

    def __init__(
        self, depths: Sequence[int] = (3, 4, 6, 3), width: int = 64, *, groups: int = 1, each: int = 64,
        classes: int = 1000,
    ) -> None:  # fmt: skip
        """Take the bottlenecks of the stages, the channels of the first, and the groups of `each` channels there."""
        super().__init__()
        layers: list[nn.Module] = [*normed_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        start = width
        for stage, depth in enumerate(depths):
            inner, end = groups * each << stage, LAST * width << stage
            for place in range(depth):
                stride = 2 if stage and not place else 1
                layers.append(Bottleneck(start, inner, end, stride=stride, groups=groups))
                start = end
        self.body, self.classes = nn.Sequential(*layers), nn.Linear(start, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classes(self.body(x).mean((2, 3)))
        return out


# ---- recurrent models ------------------------------------------------------------------------------------------------


class Cell(nn.Module):
    """A step of an LSTM."""

    def __init__(self, start: int, width: int) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(start, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: torch.Tensor, state: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        enter, forget, new, leave = (self.of_input(x) + self.of_state(state)).chunk(4, -1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * memory.tanh(), memory


def run_cell(cell: Cell, steps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The states of a cell after each step, from zeros."""
    state = (steps[0].new_zeros(len(steps[0]), cell.of_state.in_features),) * 2
    states = []
    for step in steps:
        state = cell(step, *state)
        states.append(state[0])
    return states


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
    """The chance of a click on a target, of what was clicked before: rows [b, n], [b, steps, n] and a mask of these."""

    def __init__(self, width: int = 16, inner: Sequence[int] = (20,)) -> None:
        super().__init__()
        self.fit = nn.Linear(width, width, bias=False)
        self.interest, self.evolution = Gated(width), Gated(width)
        sizes = (3 * width, *inner)
        rows = (
            layer for start, end in zip(sizes, inner, strict=False) for layer in (nn.Linear(start, end), nn.PReLU())
        )
        self.head = nn.Sequential(*rows, nn.Linear(sizes[-1], 2), nn.Softmax(-1))

    def forward(self, wanted: torch.Tensor, known: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
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
        out: torch.Tensor = self.head(torch.cat([wanted, last, total], -1))
        return out


class Clicks(nn.Module):
    """DIEN of one tensor of embedded rows: the target, then what was clicked in every step."""

    def __init__(self, width: int, inner: Sequence[int]) -> None:
        super().__init__()
        self.model = DIEN(width, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wanted, known = x[:, 0], x[:, 1:]
        out: torch.Tensor = self.model(wanted, known, torch.ones_like(known[..., 0]))
        return out


POOLED = ((8, (2, 2)), (16, (2, 2)), (16, (2, 1)))
"""Channels of convolutions, and the places that are pooled after each."""


class CRNN(nn.Module):
    """Letters of a line of text [b, 1, height, width], as logarithms of chances for every column."""

    def __init__(
        self, pooled: Sequence[tuple[int, tuple[int, int]]] = POOLED, width: int = 16, layers: int = 1,
        letters: int = 12,
    ) -> None:  # fmt: skip
        super().__init__()
        self.columns = nn.Sequential(*self.convolutions(pooled))
        starts = (pooled[-1][0], *(2 * width,) * (layers - 1))
        self.cells: Any = nn.ModuleList(Cell(start, width) for start in starts for _ in range(2))
        self.letters = nn.Linear(2 * width, letters)

    @staticmethod
    def convolutions(pooled: Sequence[tuple[int, tuple[int, int]]]) -> Iterator[nn.Module]:
        """Yield convolutions of places around, each with a batch norm, and windows of maxima."""
        start = 1
        for end, window in pooled:
            yield from (nn.Conv2d(start, end, 3, 1, 1), nn.BatchNorm2d(end), nn.ReLU())
            if max(window) > 1:
                yield nn.MaxPool2d(window)
            start = end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = list(self.columns(x).mean(2).unbind(-1))
        for forward, backward in zip(self.cells[::2], self.cells[1::2], strict=True):
            both = zip(run_cell(forward, steps), reversed(run_cell(backward, steps[::-1])), strict=True)
            steps = [torch.cat(each, -1) for each in both]
        out: torch.Tensor = self.letters(torch.stack(steps)).log_softmax(-1)
        return out
