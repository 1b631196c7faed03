"""What whole models are held to, beside what was measured: each aim a line of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.compete import OWN
from benchmarks.first_calls import BEYOND_S, SECOND
from benchmarks.markdown import Table
from benchmarks.models import PEER
from benchmarks.papers.measured import Measured, cell, geometric
from benchmarks.small_models import SQUEEZED

Find = Callable[[str], Measured]
KERNELS: dict[str, float] = {"BERT-384-x1": 121, "GPT-2-x1": 101, "Swin-T-x1": 117, "EfficientNet-B0-x1": 165,
                             "MMoE-x1": 2, "LSTM-10x100-x1": 1}  # fmt: skip
"""The most kernels of a call."""
BYTES = {"Swin-T-x1": 0.85, "Llama-like-x1": 0.80, "BERT-384-x1": 0.92}
"""The most bytes to and from memory, over Inductor's."""
SPEEDUPS = {"Swin-T-x1": 1.3, "MMoE-x1": 2.0}
"""The least speedup over Inductor in CUDA graphs."""
WRITTEN_OUT = ("BERT-384-x1", "GPT-2-x1", "Llama-like-x1", "Swin-T-x1")
MODULES = tuple(f"SE-{channels}x{side}-x1" for channels, side, _ in SQUEEZED)
MEANS = {"models whose attention is written out, one sample": (WRITTEN_OUT, 1.15),
         "squeeze and excite of EfficientNet-B0": (MODULES, 1.3)}  # fmt: skip
"""Rows, and the least geometric mean of their speedups over Inductor."""
LSTM, LSTM_US, LSTM_MB = "LSTM-10x100-x1", 800.0, 12.0


class Aim(NamedTuple):
    """A figure, its bound, and what was found; it is kept at most at the bound, or at least there."""

    quantity: str
    row: str
    bound: float
    found: float | None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """`kept`, `missed`, or `not measured yet`."""
        if self.found is None:
            return "not measured yet"
        return "kept" if (self.found >= self.bound if self.at_least else self.found <= self.bound) else "missed"

    @property
    def cells(self) -> tuple[str, ...]:
        """The aim as a line of the table."""
        side = "at least" if self.at_least else "at most"
        return self.quantity, self.row, f"{side} {self.bound:g}", cell(self.found, ".4g"), self.verdict


def aims(find: Find) -> Iterator[Aim]:
    """Yield every aim, with what was found."""
    for row, bound in KERNELS.items():
        yield Aim("kernels of a call", row, bound, find(row).kernels(OWN))
    for row, bound in BYTES.items():
        yield Aim("bytes to and from memory, over Inductor's", row, bound, find(row).bytes_of_inductors())
        counted = find(row).bytes_of_inductors("counted_bytes")
        yield Aim("bytes as Inductor counts them, over Inductor's", row, bound, counted)
    for row, bound in SPEEDUPS.items():
        yield Aim("speedup over Inductor", row, bound, find(row).speedup(PEER), at_least=True)
    for name, (rows, bound) in MEANS.items():
        found = [find(row).speedup(PEER) for row in rows]
        yield Aim("speedup over Inductor, geometric mean", name, bound,
                  None if None in found else geometric(found), at_least=True)  # fmt: skip
    yield Aim("µs of a call", LSTM, LSTM_US, find(LSTM).time_us(OWN))
    yield Aim("megabytes to and from memory", LSTM, LSTM_MB, find(LSTM).megabytes(OWN))
    bert = find("BERT-384-x1")
    own, peer = bert.first_call_s(OWN), bert.first_call_s(PEER)
    beyond = own - peer if own is not None and peer is not None else None
    yield Aim("seconds of a first call beyond Inductor's", "BERT-384-x1", BEYOND_S, beyond)
    second = bert.line.get("first_calls", {}).get(SECOND, {}).get("explored_groups")
    yield Aim("groups that a second process looks for", "BERT-384-x1", 0, second)


def aims_table(find: Find) -> Table:
    """All aims."""
    return Table(("figure", "row", "aim", "measured", "verdict"), [aim.cells for aim in aims(find)])
